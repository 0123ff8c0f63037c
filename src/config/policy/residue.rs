//! `[process.NAME.residue]`: which files a tree leaves behind, and what may be deleted of them.

use std::time::Duration;

use super::{Glob, Template};

/// What a tree leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residue {
    /// The directory of a tree that was just ended, e.g. `{socket.dir}`. Deleted only where it stands directly in one
    /// of `roots`.
    pub directory: Option<Template>,
    /// File names that may be deleted in such a directory; with any other in it nothing is.
    pub only: Vec<Glob>,
    /// Directory names (one element, globs) by which those are found whose owner is long gone.
    pub stale: Vec<Glob>,
    /// The directories that such a directory stands directly in; `~` expanded. Never from a captured text.
    pub roots: Vec<Root>,
    /// Files of state that name such a directory, and go once it is gone.
    pub records: Option<Records>,
    /// How long nobody must have changed anything in it before what was left long ago is deleted.
    pub after: Duration,
}

/// A directory in which residue may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The temporary directory of the user, and `/tmp`: `{tmp}`.
    Temporary,
    /// This very directory, absolute.
    Directory(String),
}

/// Files of state that name a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// Where they stand.
    pub files: Vec<RecordPlace>,
    /// JSON pointer to the text that names a file within the directory.
    pub key: String,
    /// Taken from the front of that text; a text without it names nothing.
    pub strip: Option<String>,
}

/// One pattern of paths of such files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPlace {
    /// What the pattern begins with, up to its first element that is one.
    pub base: Root,
    /// The elements below; `*` and `?` stay within one.
    pub below: Vec<String>,
}
