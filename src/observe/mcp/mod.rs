//! MCP servers that a user's own configuration files name.
use crate::model::look::{Gap, McpServer};
use std::path::PathBuf;
/// Files.
#[derive(Debug)]
pub(super) struct Files;
impl Files {
    /// New.
    pub(super) fn new(_home: Option<PathBuf>) -> Files {
        Files
    }
    /// Read.
    pub(super) fn read(&mut self) -> (Vec<McpServer>, Vec<Gap>) {
        (Vec::new(), Vec::new())
    }
}
