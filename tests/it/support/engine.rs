//! The engines that tests may use: told by the environment alone, and nobody else's.
#![expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An engine of the tests' own, with the images of `tests/engine/stand`.
pub(crate) struct Stand {
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// A client that fits it.
    pub(crate) client: PathBuf,
    /// What every `run` of it needs besides.
    pub(crate) run_flags: &'static [&'static str],
    /// The directory of an engine that was started for one test.
    own: Option<PathBuf>,
}

impl Stand {
    /// The Docker engine that all tests share, where there is one. A test of it returns at once where there is none.
    pub(crate) fn docker() -> Option<Stand> {
        Stand::shared("REAPD_TEST_DOCKER", "docker", &[])
    }

    /// The Podman service that all tests share, where there is one.
    pub(crate) fn podman() -> Option<Stand> {
        // Its own limits cannot be set by whoever may not raise a limit.
        let limits = &["--ulimit", "nofile=1024:4096", "--ulimit", "nproc=4096:4096"];
        Stand::shared("REAPD_TEST_PODMAN", "podman", limits)
    }

    fn shared(variable: &str, program: &str, run_flags: &'static [&'static str]) -> Option<Stand> {
        let Some(socket) = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
        else {
            missing(&format!("{variable} names no engine that is the tests' own (tests/README.md)"));
            return None;
        };
        for place in ["/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"] {
            let usual = fs::canonicalize(place).ok();
            assert!(
                usual.is_none() || usual != fs::canonicalize(&socket).ok(),
                "{variable} is the host's own"
            );
        }
        Some(Stand { socket, client: client(program), run_flags, own: None })
    }

    /// A Docker engine for one test alone, which may stop it and kill it. Only root can start one; below `folder`, and
    /// not deep: a socket's path is short.
    pub(crate) fn own(folder: &Path) -> Option<Stand> {
        // Where the tests have no engine at all, this one could not be started either.
        Stand::docker()?;
        if !super::observing::is_root() {
            eprintln!("skipped: an engine of a test's own needs root");
            return None;
        }
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let at = folder.join("e");
        let started = script().arg("start").arg(&at).arg("docker").output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(Stand {
            socket: at.join("docker/docker.sock"),
            client: client("docker"),
            run_flags: &[],
            own: Some(at),
        })
    }

    /// The process number of an engine that is this test's own.
    pub(crate) fn pid(&self) -> i32 {
        let file = self.own.as_ref().unwrap().join("docker/pid");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            let stopped = script().arg("stop").arg(own).output();
            if !std::thread::panicking() {
                let stopped = stopped.unwrap();
                assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
            }
        }
    }
}

fn script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/stand"))
}

/// The distribution's client fits its engine; another one may stand before it in PATH.
fn client(program: &str) -> PathBuf {
    let own = Path::new("/usr/bin").join(program);
    if own.exists() { own } else { PathBuf::from(program) }
}

/// Another client of Docker's than the distribution's, where one is installed.
pub(crate) fn other_client() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("docker"))
        .find(|program| program.is_file() && *program != client("docker"))
}

/// Says why a test skips what it needs an engine for, or fails where it must not.
fn missing(why: &str) {
    let required = std::env::var_os("REAPD_REQUIRE_DOCKER").is_some_and(|value| value == "1");
    assert!(!required, "REAPD_REQUIRE_DOCKER=1, and {why}");
    eprintln!("skipped: {why}");
}
