//! Where an engine listens, by its arguments and its configuration; for callers who cannot see its sockets.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice as _};
use serde_json::Value;

use crate::model::container::Reach;
use crate::model::known::{Known, Reason, Unknown};
use crate::observe::opened;

/// Longest configuration or unit file that is read.
const TEXT_MOST: u64 = 1024 * 1024;
/// Where dockerd listens when nobody says anything.
const USUAL: &str = "/var/run/docker.sock";
/// Where systemd looks for units, first ones first (systemd.unit(5)).
const UNITS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The unit that hands its sockets to dockerd.
const SOCKET: &str = "docker.socket";

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listening {
    /// Names of Unix sockets.
    pub(super) names: BTreeSet<BString>,
    /// Whether that is all.
    pub(super) reach: Reach,
}

impl Default for Listening {
    fn default() -> Listening {
        Listening { names: BTreeSet::new(), reach: Reach::Local }
    }
}

/// Returns where dockerd listens that was started with these arguments, with the files below a root: `/`, but for
/// tests.
pub(super) fn listening(argv: &[BString], root: &Path) -> Known<Listening> {
    let given = Given::read(argv)?;
    let file = given.file.clone().unwrap_or_else(|| "/etc/docker/daemon.json".into());
    let file = if file.is_absolute() { file } else { return Err(unknown("its configuration file")) };
    let mut hosts = given.hosts;
    if let Some(text) = text(&below(root, &file))? {
        let value: Value = serde_json::from_slice(&text).map_err(|_| unknown("its configuration file"))?;
        match value.get("hosts") {
            None => {}
            Some(Value::Array(list)) => {
                for host in list {
                    hosts.push(host.as_str().ok_or_else(|| unknown("'hosts' in its configuration"))?.into());
                }
            }
            Some(_) => return Err(unknown("'hosts' in its configuration")),
        }
    }
    let mut found = Listening::default();
    if hosts.is_empty() {
        found.names.insert(USUAL.into());
    }
    for host in hosts {
        match host.split_once("://") {
            Some(("unix", "")) => drop(found.names.insert(USUAL.into())),
            Some(("unix", path)) if path.starts_with('/') => drop(found.names.insert(path.into())),
            Some(("fd", _)) => units(root, &mut found)?,
            _ => found.reach = Reach::Network(host),
        }
    }
    Ok(found)
}

/// What the arguments say.
struct Given {
    hosts: Vec<String>,
    file: Option<PathBuf>,
}

impl Given {
    fn read(argv: &[BString]) -> Known<Given> {
        let mut given = Given { hosts: Vec::new(), file: None };
        let mut words = argv.iter().skip(1);
        while let Some(word) = words.next() {
            let word = word.to_str().map_err(|_| unknown("its arguments"))?;
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word, None),
            };
            let mut value = || {
                let next = joined
                    .clone()
                    .or_else(|| words.next().and_then(|word| word.to_str().ok().map(str::to_owned)));
                next.ok_or_else(|| unknown("its arguments"))
            };
            match name {
                "-H" | "--host" => given.hosts.push(value()?),
                "--config-file" => given.file = Some(value()?.into()),
                // `-Hunix:///x`, and letters that stand together, such as `-DH`.
                _ if name.starts_with("-H") => given.hosts.push(word[2..].to_owned()),
                _ if name.starts_with('-') && !name.starts_with("--") && name.contains('H') => {
                    return Err(unknown("its arguments"));
                }
                _ => {}
            }
        }
        Ok(given)
    }
}

/// Adds what systemd listens at for dockerd. All settings count, those that another one takes back too.
fn units(root: &Path, found: &mut Listening) -> Known<()> {
    let mut is_there = false;
    for directory in UNITS {
        let directory = below(root, Path::new(directory));
        let mut files = vec![directory.join(SOCKET)];
        match std::fs::read_dir(directory.join(format!("{SOCKET}.d"))) {
            Ok(list) => {
                for entry in list {
                    files.push(entry.map_err(|error| denied(&error))?.path());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(denied(&error)),
        }
        for file in files {
            let Some(text) = text(&file)? else { continue };
            is_there = true;
            for line in text.lines() {
                let Some((key, value)) = line.split_once_str("=") else { continue };
                if key.trim_ascii() == b"ListenStream" {
                    add(value.trim_ascii().to_str().map_err(|_| unknown("a unit of systemd"))?, found)?;
                }
            }
        }
    }
    if is_there { Ok(()) } else { Err(unknown("the unit that hands it its sockets")) }
}

/// Adds one address of systemd.socket(5).
fn add(value: &str, found: &mut Listening) -> Known<()> {
    let value = value.replace("%t", "/run");
    if value.contains('%') {
        return Err(unknown("a unit of systemd"));
    }
    if value.starts_with('/') || value.starts_with('@') {
        found.names.insert(value.into());
    } else if !value.is_empty() {
        found.reach = Reach::Network(value);
    }
    Ok(())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Reads a file; nothing where it is not there.
fn text(path: &Path) -> Known<Option<Vec<u8>>> {
    let meta = match path.metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(denied(&error)),
    };
    // /dev/null is how systemd masks a unit.
    if !meta.is_file() {
        return Ok(Some(Vec::new()));
    }
    if meta.len() > TEXT_MOST {
        return Err(Unknown::new(Reason::Truncated, "where an engine listens"));
    }
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(TEXT_MOST).read_to_end(&mut text));
    read.map(|_| Some(text)).map_err(|error| denied(&error))
}

fn denied(error: &std::io::Error) -> Unknown {
    let errno = rustix::io::Errno::from_io_error(error);
    opened::unknown(errno.unwrap_or(rustix::io::Errno::IO), "reading where an engine listens")
}

fn unknown(what: &str) -> Unknown {
    Unknown::new(Reason::Unsound, format!("where an engine listens, by {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Root(tempfile::TempDir);

    impl Root {
        fn new(files: &[(&str, &str)]) -> Root {
            let root = Root(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = below(root.0.path(), Path::new(path));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            root
        }

        fn listening(&self, words: &str) -> Known<Listening> {
            let argv: Vec<BString> = words.split(' ').map(BString::from).collect();
            listening(&argv, self.0.path())
        }
    }

    fn local(names: &[&str]) -> Listening {
        Listening { names: names.iter().map(|&name| name.into()).collect(), reach: Reach::Local }
    }

    fn is_network(found: &Known<Listening>) -> bool {
        matches!(found, Ok(Listening { reach: Reach::Network(_), .. }))
    }

    #[test]
    fn sockets_by_arguments() {
        let root = Root::new(&[]);
        assert_eq!(root.listening("dockerd").unwrap(), local(&[USUAL]));
        assert_eq!(root.listening("dockerd -D --data-root /x -H unix:///a").unwrap(), local(&["/a"]));
        assert_eq!(
            root.listening("dockerd -Hunix:///a --host=unix:///b -H=unix:///c").unwrap(),
            local(&["/a", "/b", "/c"])
        );
        for words in ["-H tcp://0.0.0.0:2375", "--host=127.0.0.1:1", "-Htcp://x", "-H unix:///a -H tcp://b"] {
            assert!(is_network(&root.listening(&format!("dockerd {words}"))), "{words}");
        }
        for words in ["-DH unix:///a", "-H", "--config-file daemon.json"] {
            assert!(root.listening(&format!("dockerd {words}")).is_err(), "{words}");
        }
    }

    #[test]
    fn sockets_by_the_configuration() {
        let at = |text| {
            Root::new(&[("/etc/docker/daemon.json", text), ("/other.json", r#"{"hosts":["tcp://x"]}"#)])
        };
        assert_eq!(at("{}").listening("dockerd").unwrap(), local(&[USUAL]));
        assert_eq!(at(r#"{"hosts":["unix:///a"]}"#).listening("dockerd").unwrap(), local(&["/a"]));
        assert!(is_network(&at(r#"{"hosts":["unix:///a","tcp://0.0.0.0:1"]}"#).listening("dockerd")));
        assert!(is_network(&at("{}").listening("dockerd --config-file /other.json")));
        for text in ["{", r#"{"hosts":"tcp://x"}"#, r#"{"hosts":[1]}"#] {
            assert!(at(text).listening("dockerd").is_err(), "{text}");
        }
    }

    #[test]
    fn sockets_that_systemd_hands_on() {
        let unit = (
            "/lib/systemd/system/docker.socket",
            "[Socket]\nListenStream=/run/docker.sock\nSocketMode=0660\n",
        );
        assert_eq!(Root::new(&[unit]).listening("dockerd -H fd://").unwrap(), local(&["/run/docker.sock"]));
        let drop_in = |text| ("/etc/systemd/system/docker.socket.d/more.conf", text);
        let with = |text| Root::new(&[unit, drop_in(text)]).listening("dockerd -H fd:// --containerd=/x");
        assert_eq!(
            with("[Socket]\nListenStream=%t/more.sock").unwrap(),
            local(&["/run/docker.sock", "/run/more.sock"])
        );
        assert!(is_network(&with("[Socket]\nListenStream = 2375")));
        assert!(is_network(&with("[Socket]\nListenStream=0.0.0.0:2375")));
        assert!(with("[Socket]\nListenStream=%h/x").is_err());
        assert!(Root::new(&[]).listening("dockerd -H fd://").is_err(), "nobody knows what it was handed");
    }
}
