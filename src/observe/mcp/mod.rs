//! MCP servers that a user's own configuration files name: which ones there are, and how each is read.
//!
//! A file that cannot be read or understood is a gap with a cure and stops nothing. Only our own files and root's
//! count, and root reads nobody else's home. The files are read in the aside process, since a project may lie on a
//! mount that hangs.

mod claude;
mod codex;
mod expand;
mod json;
mod vscode;

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

use crate::model::known::{Reason, Unknown};
use crate::model::look::{Gap, McpServer};

use expand::Values;

/// Longest file that is read.
const MOST: u64 = 4 * 1024 * 1024;

/// Most project directories that are looked into.
pub(super) const DIRECTORIES_MOST: usize = 256;

/// Where files are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In a user's home: every client's own files.
    Home(BString),
    /// In a project's directory.
    Directory(BString),
}

/// What the files of one place say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Configured {
    /// The stdio servers, in the order of files and names.
    pub(super) servers: Vec<McpServer>,
    /// Project directories that they name.
    pub(super) directories: Vec<BString>,
    /// Files that could not be read or understood.
    pub(super) gaps: Vec<Gap>,
}

/// A stdio server as a file has it, nothing expanded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    command: String,
    args: Vec<String>,
    /// The project it belongs to, where the file names one.
    directory: Option<String>,
}

/// What one file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Parsed {
    entries: Vec<Entry>,
    directories: Vec<String>,
}

type Parser = fn(&str) -> Result<Parsed, String>;

/// Files in a home directory, with who reads them.
const IN_HOME: [(&str, Parser); 9] = [
    (".claude.json", claude::parse),
    (".claude/settings.json", claude::parse),
    (".config/Claude/claude_desktop_config.json", claude::parse),
    ("Library/Application Support/Claude/claude_desktop_config.json", claude::parse),
    (".cursor/mcp.json", claude::parse),
    (".config/Code/User/mcp.json", vscode::parse),
    (".config/Code/User/settings.json", vscode::parse),
    ("Library/Application Support/Code/User/mcp.json", vscode::parse),
    (".codex/config.toml", codex::parse),
];

/// Files in a project's directory.
const IN_DIRECTORY: [(&str, Parser); 3] =
    [(".mcp.json", claude::parse), (".cursor/mcp.json", claude::parse), (".vscode/mcp.json", vscode::parse)];

/// Files as last read; one is parsed again when it changed.
#[derive(Debug, Default)]
pub(super) struct Files {
    read: BTreeMap<PathBuf, (Stamp, Result<Parsed, Unknown>)>,
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
}

impl Files {
    /// Returns what the files of one place say now.
    pub(super) fn at(&mut self, place: &Place) -> Configured {
        let (Place::Home(base) | Place::Directory(base)) = place;
        let path = Path::new(std::ffi::OsStr::from_bytes(base));
        let user = rustix::process::geteuid().as_raw();
        // `sudo` may leave another user's HOME in root's environment.
        if !path.is_absolute() || user == 0 && path.metadata().is_ok_and(|home| home.uid() != 0) {
            return Configured::default();
        }
        let (files, home, workspace): (&[(&str, Parser)], _, _) = match place {
            Place::Home(home) => (&IN_HOME, Some(home.to_str_lossy().into_owned()), None),
            Place::Directory(directory) => (&IN_DIRECTORY, None, Some(directory.to_str_lossy().into_owned())),
        };
        let home = home.or_else(|| std::env::var("HOME").ok());
        let mut found = Configured::default();
        for (name, parser) in files {
            let file = path.join(name);
            match self.parsed(&file, user, *parser) {
                None => {}
                Some(Ok(parsed)) => {
                    found.directories.extend(parsed.directories.iter().map(|text| text.as_str().into()));
                    for entry in &parsed.entries {
                        let directory = entry.directory.clone().or_else(|| workspace.clone());
                        let values = Values { home: home.clone(), workspace: directory };
                        found.servers.push(entry.server(&file, &values));
                    }
                }
                Some(Err(why)) => found.gaps.push(Gap {
                    source: format!("MCP servers in {}", file.display()),
                    why: why.clone(),
                    cure: Some(
                        "mend the file, or make it yours and readable: its servers are not matched".into(),
                    ),
                }),
            }
        }
        found
    }

    /// Returns what a file says, from memory where it is unchanged; nothing where it is not there.
    fn parsed(&mut self, file: &Path, user: u32, parser: Parser) -> Option<&Result<Parsed, Unknown>> {
        let meta = match file.metadata() {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                self.read.remove(file);
                return None;
            }
            Err(error) => {
                let none = Stamp { file: (0, 0), size: 0, modified: (0, 0) };
                self.read.insert(file.to_owned(), (none, Err(unreadable(&error))));
                return self.read.get(file).map(|(_, parsed)| parsed);
            }
        };
        let stamp = Stamp::of(&meta);
        if self.read.get(file).is_none_or(|(seen, _)| *seen != stamp) {
            let parsed = read(file, &meta, user).and_then(|text| {
                parser(&text)
                    .map_err(|fault| Unknown::new(Reason::Unsupported, format!("malformed: {fault}")))
            });
            self.read.insert(file.to_owned(), (stamp, parsed));
        }
        self.read.get(file).map(|(_, parsed)| parsed)
    }
}

impl Stamp {
    fn of(meta: &Metadata) -> Stamp {
        Stamp {
            file: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

impl Entry {
    fn server(&self, file: &Path, values: &Values) -> McpServer {
        McpServer {
            name: self.name.clone(),
            file: file.display().to_string(),
            command: values.expand(&self.command).into(),
            args: self.args.iter().map(|argument| values.expand(argument).into()).collect(),
        }
    }
}

/// Reads a file that is a regular one, small enough, and ours or root's.
fn read(file: &Path, meta: &Metadata, user: u32) -> Result<String, Unknown> {
    // Opening anything else could act: it may be a FIFO that somebody waits on.
    if !meta.is_file() {
        return Err(Unknown::new(Reason::Unsupported, "not a regular file"));
    }
    if meta.uid() != user && meta.uid() != 0 {
        return Err(Unknown::new(Reason::Denied, "owned by another user"));
    }
    if meta.size() > MOST {
        return Err(Unknown::new(Reason::Truncated, "reading it"));
    }
    let opened = File::open(file).map_err(|error| unreadable(&error))?;
    let mut text = Vec::new();
    opened.take(MOST).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    String::from_utf8(text).map_err(|_| Unknown::new(Reason::Unsupported, "not text in UTF-8"))
}

fn unreadable(error: &io::Error) -> Unknown {
    let reason = if error.kind() == io::ErrorKind::PermissionDenied {
        Reason::Denied
    } else {
        Reason::Failed(error.raw_os_error().unwrap_or(0))
    };
    Unknown::new(reason, "reading it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Place) {
        let home = tempfile::tempdir().unwrap();
        let place = Place::Home(home.path().as_os_str().as_bytes().into());
        (home, place)
    }

    #[test]
    fn servers_of_several_clients_and_their_projects() {
        let (home, place) = home();
        std::fs::write(
            home.path().join(".claude.json"),
            r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "${HOME}/x"]}}, "projects": {"/p": {}}}"#,
        )
        .unwrap();
        std::fs::create_dir(home.path().join(".codex")).unwrap();
        let codex = "[mcp_servers.db]\ncommand = \"db-mcp\"\nargs = [\"--ro\"]\n";
        std::fs::write(home.path().join(".codex/config.toml"), codex).unwrap();
        let found = Files::default().at(&place);
        assert_eq!(found.gaps, []);
        assert_eq!(found.directories, ["/p"]);
        let names: Vec<&str> = found.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["files", "db"]);
        assert_eq!(found.servers[0].args[1], format!("{}/x", home.path().display()).as_str());
    }

    #[test]
    fn a_broken_file_is_a_gap_and_the_rest_goes_on() {
        let (home, place) = home();
        std::fs::write(home.path().join(".claude.json"), "{").unwrap();
        std::fs::create_dir(home.path().join(".cursor")).unwrap();
        let cursor = r#"{"mcpServers": {"a": {"command": "b"}}}"#;
        std::fs::write(home.path().join(".cursor/mcp.json"), cursor).unwrap();
        let mut files = Files::default();
        let found = files.at(&place);
        assert_eq!(found.servers.len(), 1);
        assert_eq!(found.gaps.len(), 1);
        assert!(found.gaps[0].source.ends_with(".claude.json"), "{:?}", found.gaps);
        assert!(found.gaps[0].cure.is_some());
        std::fs::write(home.path().join(".claude.json"), "{}").unwrap();
        assert_eq!(files.at(&place).gaps, [], "read again once it changed");
    }

    #[test]
    fn no_fifo_is_opened_s1() {
        let (home, place) = home();
        let fifo = home.path().join(".claude.json");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(Files::default().at(&place).gaps[0].why.what, "not a regular file");
    }

    #[test]
    fn too_long_a_file_is_not_read_s7() {
        let (home, place) = home();
        let file = File::create(home.path().join(".claude.json")).unwrap();
        file.set_len(MOST + 1).unwrap();
        assert_eq!(Files::default().at(&place).gaps[0].why.reason, Reason::Truncated);
    }

    #[test]
    fn a_project_means_its_own_directory() {
        let project = tempfile::tempdir().unwrap();
        std::fs::create_dir(project.path().join(".vscode")).unwrap();
        let text = r#"{"servers": {"x": {"command": "${workspaceFolder}/bin/x",},} /* c */ }"#;
        std::fs::write(project.path().join(".vscode/mcp.json"), text).unwrap();
        let found = Files::default().at(&Place::Directory(project.path().as_os_str().as_bytes().into()));
        assert_eq!(found.servers[0].command, format!("{}/bin/x", project.path().display()).as_str());
    }
}
