//! Who we are and where we stand: uid, home, the XDG variables, and the paths that follow from them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bstr::{BStr, BString, ByteSlice as _};
use std::os::unix::ffi::OsStrExt as _;

use super::cli::Place;
use super::state::{State, StateError, is_roots_alone, usual_path};
use super::trouble::Trouble;
use crate::model::look::Scope;

/// The surroundings of this process, read once.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The effective user.
    pub uid: u32,
    /// The home directory; as root the one of passwd(5), whatever HOME says.
    pub home: Option<PathBuf>,
    variables: BTreeMap<&'static str, OsString>,
}

const VARIABLES: [&str; 10] = [
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "HOME",
    "TMPDIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "REAPD_CONFIG",
    "REAPD_LEASES",
];

impl Surroundings {
    /// Reads them.
    pub fn read() -> Surroundings {
        let uid = rustix::process::geteuid().as_raw();
        let variables: BTreeMap<&'static str, OsString> = VARIABLES
            .into_iter()
            .filter_map(|name| std::env::var_os(name).map(|value| (name, value)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let home = if uid == 0 { home_of_root() } else { variables.get("HOME").map(PathBuf::from) };
        Surroundings { uid, home: home.filter(|home| home.is_absolute()), variables }
    }

    /// Says whether we are root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Returns a variable that names an absolute path; the XDG specification has relative ones ignored.
    pub fn absolute(&self, name: &'static str) -> Option<PathBuf> {
        self.variables.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Returns a variable as text; nothing where it is none.
    pub fn text(&self, name: &'static str) -> Option<String> {
        self.variables.get(name).and_then(|value| value.to_str()).map(str::to_owned)
    }

    /// Returns the temporary directories: the user's own, and everybody's. As root only that, since sudo(8) may have
    /// kept the variable from a user (REDTEAM S2).
    pub fn temporary(&self) -> Vec<BString> {
        let own = if self.is_root() { None } else { self.absolute("TMPDIR") };
        let trimmed =
            own.map(|path| BString::from(path.as_os_str().as_bytes().trim_end_with(|byte| byte == '/')));
        trimmed.filter(|path| !path.is_empty()).into_iter().chain([BString::from("/tmp")]).collect()
    }

    /// Returns the home directory for screens.
    pub fn home_text(&self) -> Option<&BStr> {
        self.home.as_deref().map(|home| BStr::new(home.as_os_str().as_bytes()))
    }

    /// Returns the configuration file to read, and whether it must be there.
    ///
    /// A flag, then `REAPD_CONFIG`, then the usual place. Root has one place, and takes a named file only when it is
    /// root's own and nobody else may write it (REDTEAM S2).
    pub fn config(&self, place: &Place) -> Result<(PathBuf, Presence), Trouble> {
        let named = place.config.clone();
        if self.is_root() {
            return match named {
                None => Ok((PathBuf::from("/etc/reapd/config.toml"), Presence::Optional)),
                Some(path) => own_by_root(&path).map(|()| (path, Presence::Required)),
            };
        }
        if let Some(path) = named.or_else(|| self.variables.get("REAPD_CONFIG").map(PathBuf::from)) {
            return Ok((path, Presence::Required));
        }
        let base = self
            .absolute("XDG_CONFIG_HOME")
            .or_else(|| self.home.as_ref().map(|home| home.join(".config")))
            .ok_or_else(|| Trouble::usage("HOME is not set").hint("name a file with --config"))?;
        Ok((base.join("reapd/config.toml"), Presence::Optional))
    }

    /// Returns where the state directory is.
    pub fn state_path(&self, place: &Place) -> Result<PathBuf, StateError> {
        match &place.state_dir {
            Some(path) => Ok(path.clone()),
            None => usual_path(self),
        }
    }

    /// Opens the state directory, making it where needed.
    pub fn state(&self, place: &Place) -> Result<State, Trouble> {
        let opened = self.state_path(place).and_then(|path| State::open(&path));
        opened.map_err(|error| state_trouble(&error))
    }

    /// Opens the state directory where it is there.
    pub fn existing_state(&self, place: &Place) -> Result<Option<State>, Trouble> {
        let opened = self.state_path(place).and_then(|path| State::existing(&path));
        opened.map_err(|error| state_trouble(&error))
    }

    /// Returns whose processes are to be looked at.
    pub fn scope(&self, place: &Place) -> Result<Scope, Trouble> {
        match (place.host, self.is_root()) {
            (false, _) => Ok(Scope::User),
            (true, true) => Ok(Scope::Host),
            (true, false) => {
                Err(Trouble::usage("--host needs root").hint("without it, your own are looked at"))
            }
        }
    }

    /// Returns surroundings with these variables.
    #[cfg(test)]
    pub fn of(variables: &[(&'static str, &str)], uid: u32) -> Surroundings {
        let variables: BTreeMap<_, _> =
            variables.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
        let home = variables.get("HOME").map(PathBuf::from);
        Surroundings { uid, home, variables }
    }
}

/// Whether a file must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Somebody named it.
    Required,
    /// Everything works without it.
    Optional,
}

/// Returns trouble with the state directory, which is a fault of the command line or its surroundings.
pub fn state_trouble(error: &StateError) -> Trouble {
    let trouble = Trouble::because("state directory", error);
    match error {
        StateError::Nowhere | StateError::Untrusted { .. } => {
            Trouble { exit: super::exit::Exit::Usage, ..trouble }
                .hint("name another directory with --state-dir")
        }
        StateError::Io { .. } | StateError::Encode { .. } => trouble,
    }
}

fn own_by_root(path: &Path) -> Result<(), Trouble> {
    match is_roots_alone(path) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Trouble::usage(format!("refusing {} as root: somebody else could change it", path.display()))
                .hint("it must belong to root and be writable by nobody else"))
        }
        Err(error) => {
            Err(Trouble { exit: super::exit::Exit::Usage, ..Trouble::because("configuration", &error) })
        }
    }
}

fn home_of_root() -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        return Some(PathBuf::from("/var/root"));
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').nth(2) == Some("0"))?;
    line.split(':').nth(5).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str) -> Place {
        Place { config: Some(path.into()), ..Place::default() }
    }

    #[test]
    fn a_flag_then_a_variable_then_the_usual_place() {
        let around = Surroundings::of(&[("HOME", "/home/ana"), ("REAPD_CONFIG", "/c.toml")], 1000);
        assert_eq!(around.config(&named("x.toml")).unwrap().0, Path::new("x.toml"));
        assert_eq!(around.config(&Place::default()).unwrap(), ("/c.toml".into(), Presence::Required));
        let around = Surroundings::of(&[("HOME", "/home/ana"), ("XDG_CONFIG_HOME", "relative")], 1000);
        let usual = PathBuf::from("/home/ana/.config/reapd/config.toml");
        assert_eq!(around.config(&Place::default()).unwrap(), (usual, Presence::Optional));
    }

    #[test]
    fn root_reads_no_configuration_of_a_user_s2() {
        let around = Surroundings::of(&[("HOME", "/home/ana"), ("REAPD_CONFIG", "/home/ana/c.toml")], 0);
        assert_eq!(around.config(&Place::default()).unwrap().0, Path::new("/etc/reapd/config.toml"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(file.path(), mode(0o666)).unwrap();
        assert!(around.config(&named(file.path().to_str().unwrap())).is_err());
        assert!(around.config(&named("/nonexistent")).is_err());
    }

    #[test]
    fn root_takes_a_named_configuration_only_where_it_is_roots_alone_s2() {
        let around = Surroundings::of(&[], 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        let place = named(file.path().to_str().unwrap());
        let told = |uid, mode| {
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(file.path(), Some(uid), None).unwrap();
            }
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(file.path(), mode).unwrap();
            around.config(&place)
        };
        let refused = told(65534, 0o600).unwrap_err();
        assert_eq!(refused.exit, super::super::exit::Exit::Usage);
        assert!(refused.what.contains("somebody else could change it"), "{refused}");
        if rustix::process::geteuid().is_root() {
            assert!(told(0, 0o620).is_err() && told(0, 0o602).is_err());
            assert_eq!(told(0, 0o644).unwrap().1, Presence::Required, "the twin that is root's alone");
        }
    }

    #[test]
    fn root_takes_no_configuration_that_somebody_else_could_swap_s2() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let around = Surroundings::of(&[], 0);
        let base = tempfile::tempdir().unwrap();
        let (theirs, ours) = (base.path().join("theirs"), base.path().join("ours"));
        for directory in [&theirs, &ours] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("config.toml"), "").unwrap();
        }
        let link = theirs.join("link.toml");
        std::os::unix::fs::symlink(ours.join("config.toml"), &link).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65_534), None).unwrap();
        let taken = |path: &Path| around.config(&named(path.to_str().unwrap())).is_ok();
        assert!(taken(&ours.join("config.toml")), "the twin that is root's alone");
        assert!(!taken(&theirs.join("config.toml")), "its directory is somebody else's");
        assert!(!taken(&link), "and so is the one with the link");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&ours, open).unwrap();
        assert!(!taken(&ours.join("config.toml")), "everybody may write to its directory");
    }

    #[test]
    fn only_root_looks_at_everybody() {
        let place = Place { host: true, ..Place::default() };
        assert!(Surroundings::of(&[], 1000).scope(&place).is_err());
        assert_eq!(Surroundings::of(&[], 0).scope(&place), Ok(Scope::Host));
    }
}
