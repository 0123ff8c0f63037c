//! Where engines are: what the surroundings, docker's contexts and the usual places say. Only sockets of this machine;
//! nothing else is ever contacted.
//!
//! All of it is read in the aside process, since a home directory may lie on a mount that hangs.

use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::policy::{Docker, Sockets};
use crate::model::container::EngineId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Gap;

/// Longest file of docker's that is read.
const TEXT_MOST: u64 = 1024 * 1024;
/// Contexts, and machines of Colima, that are looked at.
const ENTRIES_MOST: usize = 64;

/// Sockets of the system.
const OF_SYSTEM: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
/// Below the runtime directory of a user.
const AT_RUNTIME: [&str; 2] = ["docker.sock", "podman/podman.sock"];
/// Below a home directory: Docker Desktop, OrbStack, Rancher Desktop.
const AT_HOME: [&str; 4] = [
    ".docker/run/docker.sock",
    ".docker/desktop/docker.sock",
    ".orbstack/run/docker.sock",
    ".rd/docker.sock",
];

/// What the surroundings say about engines.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EngineSurroundings {
    /// `DOCKER_HOST`.
    pub host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub context: Option<String>,
    /// `DOCKER_CONFIG`: the directory of docker's own configuration.
    pub config: Option<PathBuf>,
    /// The home directory.
    pub home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
}

/// Where to look for engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::observe) struct Seek {
    /// Exactly these sockets; nothing where the surroundings count.
    these: Option<Vec<String>>,
    around: EngineSurroundings,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::observe) struct Found {
    /// Sockets, sorted by their real paths, each once.
    pub(super) places: Vec<Place>,
    pub(super) gaps: Vec<Gap>,
}

/// One socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) id: EngineId,
    /// Where it was heard of.
    pub(super) from: String,
}

/// Whether somebody named a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// Somebody did, so that it ought to be there.
    Named,
    /// It may be there.
    Usual,
}

impl Seek {
    /// Returns what is to be looked for; nothing where the configuration says nowhere.
    pub(super) fn new(docker: &Docker, around: &EngineSurroundings) -> Option<Seek> {
        let these = match &docker.sockets {
            Sockets::Off => return None,
            Sockets::Auto => None,
            Sockets::These(paths) => Some(paths.clone()),
        };
        Some(Seek { these, around: around.clone() })
    }

    /// Looks.
    pub(in crate::observe) fn find(&self) -> Found {
        let mut search = Search { found: Found::default(), user: rustix::process::geteuid().as_raw() };
        if let Some(paths) = &self.these {
            for path in paths {
                search.add("[docker] socket", Path::new(path), Naming::Named);
            }
        } else {
            search.everywhere(&self.around);
        }
        search.found.places.sort_by(|one, other| one.id.cmp(&other.id));
        search.found
    }
}

struct Search {
    found: Found,
    user: u32,
}

impl Search {
    fn everywhere(&mut self, around: &EngineSurroundings) {
        if let Some(host) = &around.host {
            self.endpoint("DOCKER_HOST", host, Naming::Named);
        }
        let config = around.config.clone().or_else(|| Some(around.home.as_ref()?.join(".docker")));
        if let Some(config) = config.filter(|directory| self.is_ours(directory)) {
            self.contexts(&config, around);
        }
        for path in OF_SYSTEM {
            self.add("a usual place", Path::new(path), Naming::Usual);
        }
        if let Some(runtime) = around.runtime.as_ref().filter(|directory| self.is_ours(directory)) {
            for path in AT_RUNTIME {
                self.add("a usual place", &runtime.join(path), Naming::Usual);
            }
        }
        if let Some(home) = around.home.as_ref().filter(|directory| self.is_ours(directory)) {
            for path in AT_HOME {
                self.add("a usual place", &home.join(path), Naming::Usual);
            }
            for machine in entries(&home.join(".colima")) {
                self.add("a usual place", &machine.join("docker.sock"), Naming::Usual);
            }
        }
    }

    /// `sudo` may leave a user's variables in root's surroundings, and whoever owns a directory names what is in it.
    fn is_ours(&self, directory: &Path) -> bool {
        directory.is_absolute()
            && directory.metadata().is_ok_and(|meta| meta.uid() == self.user || meta.uid() == 0)
    }

    /// Reads docker's contexts: which one is in use, and where each leads.
    fn contexts(&mut self, config: &Path, around: &EngineSurroundings) {
        let file = config.join("config.json");
        let current = match json(&file) {
            Ok(text) => text.and_then(|text| Some(text.get("currentContext")?.as_str()?.to_owned())),
            Err(why) => {
                self.found.gaps.push(Gap {
                    source: format!("docker contexts in {}", file.display()),
                    why,
                    cure: Some("mend the file, or name the sockets in [docker] socket".into()),
                });
                None
            }
        };
        // DOCKER_HOST goes before both, and DOCKER_CONTEXT before the file (docker's own order).
        let chosen = around.context.clone().or(current).filter(|_| around.host.is_none());
        let mut is_met = false;
        for directory in entries(&config.join("contexts/meta")) {
            let file = directory.join("meta.json");
            let Some((name, host)) = json(&file).ok().flatten().as_ref().and_then(context) else { continue };
            let is_chosen = chosen.as_ref() == Some(&name);
            is_met |= is_chosen;
            let from = format!("docker context {name}");
            // One that is not in use may well lead elsewhere, or to what is switched off.
            if is_chosen {
                self.endpoint(&from, &host, Naming::Named);
            } else if let Some(path) = local(&host) {
                self.add(&from, Path::new(path), Naming::Usual);
            }
        }
        if let Some(chosen) = chosen.filter(|name| !is_met && name != "default" && !name.is_empty()) {
            self.found.gaps.push(Gap {
                source: format!("docker context {chosen}"),
                why: Unknown::new(Reason::NoRecord, "where it leads"),
                cure: Some("name a context that is there: docker context ls".into()),
            });
        }
    }

    fn endpoint(&mut self, from: &str, host: &str, naming: Naming) {
        match local(host) {
            Some(path) => self.add(from, Path::new(path), naming),
            None => self.found.gaps.push(Gap {
                source: format!("docker at {host}"),
                why: Unknown::new(Reason::Foreign, format!("{from} is not on this machine")),
                cure: Some("run reapd where that engine runs".into()),
            }),
        }
    }

    /// Adds a socket by its real path, where it is not known already.
    fn add(&mut self, from: &str, path: &Path, naming: Naming) {
        let real = path.canonicalize().and_then(|real| Ok((real.metadata()?.file_type(), real)));
        let real = match (real, naming) {
            (Ok((kind, real)), _) if kind.is_socket() => real,
            (Ok(_), Naming::Named) => {
                let why = Unknown::new(Reason::Unsound, "what is there is no socket");
                return self.missing(path, why);
            }
            (Err(error), Naming::Named) => return self.missing(path, unknown(&error)),
            (Ok(_) | Err(_), Naming::Usual) => return,
        };
        let Some(text) = real.to_str() else {
            return self.missing(path, Unknown::new(Reason::Unsupported, "its path is no text"));
        };
        let id = EngineId(text.to_owned());
        if !self.found.places.iter().any(|place| place.id == id) {
            self.found.places.push(Place { id, from: from.to_owned() });
        }
    }

    fn missing(&mut self, path: &Path, why: Unknown) {
        self.found.gaps.push(Gap {
            source: format!("docker at {}", path.display()),
            why,
            cure: Some("start the engine, or name its socket in [docker] socket".into()),
        });
    }
}

/// Returns the path of an endpoint that is a Unix socket.
fn local(host: &str) -> Option<&str> {
    host.strip_prefix("unix://").filter(|path| path.starts_with('/'))
}

/// Returns a context's name, and where it leads.
fn context(meta: &Value) -> Option<(String, String)> {
    let host = meta.get("Endpoints")?.get("docker")?.get("Host")?.as_str()?;
    Some((meta.get("Name")?.as_str()?.to_owned(), host.to_owned()))
}

/// Returns what is in a directory, sorted, as far as it counts; nothing where it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(list) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = list.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.truncate(ENTRIES_MOST);
    paths
}

/// Reads a JSON file; nothing where it is not there.
fn json(path: &Path) -> Result<Option<Value>, Unknown> {
    let meta = match path.metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unknown(&error)),
    };
    // What is no file may let us wait for ever when it is opened.
    if !meta.is_file() || meta.len() > TEXT_MOST {
        return Err(Unknown::new(Reason::Unsound, "it is no short file"));
    }
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(TEXT_MOST).read_to_end(&mut text));
    read.map_err(|error| unknown(&error))?;
    let value = serde_json::from_slice(&text);
    value.map(Some).map_err(|error| Unknown::new(Reason::Unsound, format!("it is no JSON ({error})")))
}

fn unknown(error: &io::Error) -> Unknown {
    let what = "looking for it";
    match rustix::io::Errno::from_io_error(error) {
        Some(errno) => crate::observe::opened::unknown(errno, what),
        None => Unknown::new(Reason::Failed(0), what),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    struct Home {
        directory: tempfile::TempDir,
    }

    impl Home {
        fn new() -> Home {
            Home { directory: tempfile::tempdir().unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().canonicalize().unwrap().join(name)
        }

        fn socket(&self, name: &str) -> String {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            // The file stays when nobody listens any more.
            drop(UnixListener::bind(&path).unwrap());
            path.to_str().unwrap().to_owned()
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn context(&self, name: &str, host: &str) {
            let text = format!(
                r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#
            );
            self.write(&format!(".docker/contexts/meta/{name}/meta.json"), &text);
        }

        fn around(&self) -> EngineSurroundings {
            EngineSurroundings { home: Some(self.path("")), ..EngineSurroundings::default() }
        }

        fn find(&self, around: EngineSurroundings) -> (Vec<(String, String)>, Vec<Gap>) {
            let Found { places, gaps } = Seek { these: None, around }.find();
            let own = self.path("");
            // Whatever engines the machine of the test has are not of this home.
            let places = places.into_iter().filter(|place| Path::new(&place.id.0).starts_with(&own));
            (places.map(|place| (place.id.0, place.from)).collect(), gaps)
        }
    }

    #[test]
    fn usual_places_are_found_and_what_is_not_there_is_no_gap() {
        let home = Home::new();
        assert_eq!(home.find(home.around()), (Vec::new(), Vec::new()));
        let expected: Vec<String> = [
            ".colima/default/docker.sock",
            ".docker/run/docker.sock",
            ".orbstack/run/docker.sock",
            ".rd/docker.sock",
        ]
        .map(|name| home.socket(name))
        .into();
        let runtime = home.socket("run/podman/podman.sock");
        let around = EngineSurroundings { runtime: Some(home.path("run")), ..home.around() };
        let (found, gaps) = home.find(around);
        let paths: Vec<String> = found.into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, [expected, vec![runtime]].concat());
        assert_eq!(gaps, []);
    }

    #[test]
    fn every_local_context_is_found_and_each_engine_once() {
        let home = Home::new();
        let one = home.socket("a/docker.sock");
        std::os::unix::fs::symlink(&one, home.path("linked.sock")).unwrap();
        home.context("one", &format!("unix://{one}"));
        home.context("two", &format!("unix://{}", home.path("linked.sock").display()));
        home.context("off", "unix:///nonexistent/docker.sock");
        home.context("far", "ssh://somewhere");
        let around = EngineSurroundings { host: Some(format!("unix://{one}")), ..home.around() };
        assert_eq!(home.find(home.around()), (vec![(one.clone(), "docker context one".into())], Vec::new()));
        assert_eq!(home.find(around).0, [(one, "DOCKER_HOST".into())]);
    }

    #[test]
    fn what_is_not_on_this_machine_is_a_gap() {
        let home = Home::new();
        home.context("far", "tcp://10.0.0.1:2375");
        home.write(".docker/config.json", r#"{"currentContext":"far"}"#);
        let (found, gaps) = home.find(home.around());
        assert_eq!(found, []);
        assert_eq!(gaps.len(), 1);
        assert_eq!(
            (gaps[0].source.as_str(), gaps[0].why.reason),
            ("docker at tcp://10.0.0.1:2375", Reason::Foreign)
        );
        for host in ["tcp://10.0.0.1:2375", "ssh://me@there", "npipe:////./pipe/docker", "unix://relative"] {
            let around = EngineSurroundings { host: Some(host.into()), ..home.around() };
            let (found, gaps) = home.find(around);
            assert_eq!((found.len(), gaps.len()), (0, 1), "{host}: the context is not in use then");
        }
    }

    #[test]
    fn who_is_named_and_not_there_is_a_gap() {
        let home = Home::new();
        home.write("file", "");
        for host in
            ["unix:///nonexistent/docker.sock".to_owned(), format!("unix://{}", home.path("file").display())]
        {
            let around = EngineSurroundings { host: Some(host.clone()), ..home.around() };
            let (found, gaps) = home.find(around);
            assert_eq!((found.len(), gaps.len()), (0, 1), "{host}");
            assert!(gaps[0].cure.is_some());
        }
        let around = EngineSurroundings { context: Some("gone".into()), ..home.around() };
        home.write(".docker/config.json", "{}");
        let (_, gaps) = home.find(around);
        assert_eq!(gaps[0].source, "docker context gone");
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_a_gap_and_the_rest_is_found() {
        let home = Home::new();
        let one = home.socket(".docker/run/docker.sock");
        home.write(".docker/config.json", "{");
        let (found, gaps) = home.find(home.around());
        assert_eq!((found, gaps.len()), (vec![(one, "a usual place".into())], 1));
    }

    #[test]
    fn exactly_these_where_the_configuration_says_so() {
        let home = Home::new();
        let (one, _other) = (home.socket("one.sock"), home.socket(".rd/docker.sock"));
        let docker = |sockets| Docker { sockets, ..Docker::default() };
        let seek = Seek::new(&docker(Sockets::These(vec![one.clone()])), &home.around()).unwrap();
        let places = seek.find().places;
        assert_eq!(places, [Place { id: EngineId(one), from: "[docker] socket".into() }]);
        assert_eq!(Seek::new(&docker(Sockets::Off), &home.around()), None);
    }
}
