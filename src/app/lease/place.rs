//! Where lease files are: a directory of the user's own that a login, a timer and a cron job find alike.

use std::path::{Path, PathBuf};

use crate::app::place::Surroundings;
use crate::app::state::is_roots_alone;
use crate::model::look::Scope;

/// The variable that names another directory, for gateways in containers and for tests.
pub const VARIABLE: &str = "REAPD_LEASES";

/// A lease directory, and the one user whose files in it count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseDirectory {
    /// Where it is, or would be.
    pub path: PathBuf,
    /// Whose it is.
    pub owner: u32,
}

/// Returns the directory of this user's own leases.
///
/// As root a directory that the environment names counts only when nobody else may change it (REDTEAM S2). Not by
/// `XDG_RUNTIME_DIR` alone: a login has it, and a cron job has not.
pub fn own(around: &Surroundings) -> LeaseDirectory {
    let path = named(around).unwrap_or_else(|| usual(around));
    LeaseDirectory { path, owner: around.uid }
}

/// Returns every directory that a look of this scope reads: our own, and as root for the whole host each user's.
pub fn all(around: &Surroundings, scope: Scope) -> Vec<LeaseDirectory> {
    let mut found = vec![own(around)];
    if scope == Scope::Host {
        found.extend(of_users(Path::new("/run/user"), |runtime| runtime.join("reapd/leases")));
        found.extend(of_users(Path::new("/run/reapd/leases"), Path::to_owned));
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.dedup_by(|one, other| one.path == other.path);
    found
}

fn named(around: &Surroundings) -> Option<PathBuf> {
    let path = around.absolute(VARIABLE)?;
    // Before its first lease it need not be there; whoever may make it decides.
    let there = path.ancestors().find(|above| above.symlink_metadata().is_ok())?;
    (!around.is_root() || is_roots_alone(there).unwrap_or(false)).then_some(path)
}

fn usual(around: &Surroundings) -> PathBuf {
    if around.is_root() {
        let run = if cfg!(target_os = "macos") { "/var/run" } else { "/run" };
        return PathBuf::from(run).join("reapd/leases/0");
    }
    if cfg!(target_os = "macos")
        && let Some(home) = &around.home
    {
        return home.join("Library/Application Support/reapd/leases");
    }
    let runtime = PathBuf::from(format!("/run/user/{}", around.uid));
    let runtime = if runtime.is_dir() { Some(runtime) } else { around.absolute("XDG_RUNTIME_DIR") };
    runtime.unwrap_or_else(|| format!("/tmp/reapd-{}", around.uid).into()).join("reapd/leases")
}

/// Returns the directories below `parent` that are named for a user number.
fn of_users(parent: &Path, below: impl Fn(&Path) -> PathBuf) -> Vec<LeaseDirectory> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let owner = entry.file_name().to_str()?.parse().ok()?;
            Some(LeaseDirectory { path: below(&entry.path()), owner })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_and_a_cron_job_find_the_same_place() {
        let path = |variables: &[(&'static str, &str)]| own(&Surroundings::of(variables, 4_000_123)).path;
        assert_eq!(path(&[]), Path::new("/tmp/reapd-4000123/reapd/leases"));
        assert_eq!(path(&[("XDG_RUNTIME_DIR", "/x")]), Path::new("/x/reapd/leases"));
        assert_eq!(path(&[("XDG_RUNTIME_DIR", "x")]), Path::new("/tmp/reapd-4000123/reapd/leases"));
        assert_eq!(path(&[("XDG_RUNTIME_DIR", "/x"), (VARIABLE, "/y")]), Path::new("/y"));
    }

    #[test]
    fn root_takes_no_directory_that_somebody_else_could_change() {
        let path = |named: &Path| {
            let named = named.to_str().unwrap();
            own(&Surroundings::of(&[(VARIABLE, named), ("XDG_RUNTIME_DIR", "/x")], 0)).path
        };
        let usual = Path::new("/run/reapd/leases/0");
        assert_eq!(path(Path::new("relative")), usual);
        let base = tempfile::tempdir().unwrap();
        std::fs::set_permissions(base.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(path(base.path()), usual);
        assert_eq!(path(&base.path().join("not/yet/there")), usual, "somebody else could make it");
        if rustix::process::geteuid().is_root() {
            let ours = tempfile::tempdir().unwrap();
            assert_eq!(path(ours.path()), ours.path());
            let later = ours.path().join("not/yet/there");
            assert_eq!(path(&later), later, "nobody but root can make it");
        }
    }
}
