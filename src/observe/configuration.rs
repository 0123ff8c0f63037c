//! Which MCP servers the user's files name, asked of the aside process and remembered between looks.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bstr::BString;

use crate::model::known::{Reason, Unknown};
use crate::model::look::{Gap, McpServer};

use super::aside::{Aside, Reply, Request};
use super::mcp::{Configured, DIRECTORIES_MOST, Place};

/// Projects are looked into at every so many looks only: there may be hundreds of them, and they seldom change.
const TURNS: u32 = 10;

/// What the files said when they were last asked.
#[derive(Debug)]
pub(super) struct Configuration {
    home: Option<BString>,
    user: Configured,
    projects: BTreeMap<BString, Configured>,
    // Those that hung once are not asked again: each would cost every look a deadline.
    hung: BTreeSet<BString>,
    turn: u32,
}

impl Configuration {
    /// Returns a configuration that has read nothing yet.
    pub(super) fn new(home: Option<&Path>) -> Configuration {
        let home = home.map(|home| BString::from(home.as_os_str().as_bytes()));
        Configuration {
            home,
            user: Configured::default(),
            projects: BTreeMap::new(),
            hung: BTreeSet::new(),
            turn: 0,
        }
    }

    /// Returns the servers that are configured now, and the files that could not be read.
    pub(super) fn read(&mut self, aside: &mut Aside) -> (Vec<McpServer>, Vec<Gap>) {
        let Some(home) = &self.home else { return (Vec::new(), Vec::new()) };
        let mut gaps = Vec::new();
        let home = Request::Configured(Place::Home(home.clone()));
        let before = self.user.directories.len();
        match aside.ask(&[home]).pop().map(|reply| reply.and_then(Reply::configured)) {
            Some(Ok(user)) => self.user = user,
            Some(Err(why)) => gaps.push(Gap {
                source: "MCP configuration in the home directory".into(),
                why,
                cure: Some("it will be tried again at the next look".into()),
            }),
            None => {}
        }
        if self.turn.is_multiple_of(TURNS) || before != self.user.directories.len() {
            self.read_projects(aside);
        }
        self.turn = self.turn.wrapping_add(1);
        gaps.extend(self.hung.iter().map(|directory| Gap {
            source: format!("MCP configuration in {directory}"),
            why: Unknown::new(Reason::Hung, "reading it"),
            cure: Some(
                "mend or unmount its file system; it is not asked again until reapd starts anew".into(),
            ),
        }));
        let mut servers = self.user.servers.clone();
        gaps.extend(self.user.gaps.iter().cloned());
        for project in self.projects.values() {
            servers.extend(project.servers.iter().cloned());
            gaps.extend(project.gaps.iter().cloned());
        }
        (servers, gaps)
    }

    fn read_projects(&mut self, aside: &mut Aside) {
        let wanted: BTreeSet<&BString> = self
            .user
            .directories
            .iter()
            .filter(|directory| !self.hung.contains(*directory) && may_be_probed(directory))
            .take(DIRECTORIES_MOST)
            .collect();
        let requests: Vec<Request> = wanted
            .iter()
            .map(|&directory| Request::Configured(Place::Directory(directory.clone())))
            .collect();
        let mut projects = BTreeMap::new();
        for (&directory, reply) in wanted.iter().zip(aside.ask(&requests)) {
            match reply.and_then(Reply::configured) {
                Ok(found) => {
                    projects.insert(directory.clone(), found);
                }
                Err(Unknown { reason: Reason::Hung, .. }) => {
                    self.hung.insert(directory.clone());
                }
                Err(_) => {}
            }
        }
        self.projects = projects;
    }
}

/// macOS asks the user for consent when a program looks into these, which a reaper must never cause at night.
fn may_be_probed(directory: &BString) -> bool {
    !cfg!(target_os = "macos")
        || ![&b"/Documents"[..], b"/Desktop", b"/Downloads", b"/Library/Mobile Documents"]
            .iter()
            .any(|private| bstr::ByteSlice::contains_str(directory.as_slice(), private))
}
