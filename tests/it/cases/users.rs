//! An ordinary user beside other users' processes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::patience::patiently;
use crate::support::program;

use super::{Ended, Field, Kept, Swept, is_root};

/// A user that nobody here is.
const USER: &str = "61234";

#[test]
fn an_ordinary_user_ends_what_is_theirs_and_could_be_read_and_says_nothing_of_others_b23_b24() {
    if !is_root() {
        return;
    }
    let field = Field::prepare();
    let path = |name: &str| field.planted.path(name);
    for name in ["", "run", "home"] {
        // Sticky, as /tmp is: root takes no configuration that somebody else could swap.
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    // The variables of a process that hides itself cannot be read either, so that no mark admits anybody here; the
    // policies fit the script of this directory alone.
    let policies = field.policies();
    fs::write(field.config(), &policies[policies.find("[confirm]").unwrap()..]).unwrap();
    program::copy(env!("CARGO_BIN_EXE_reapd"), path("reapd"));
    field.grow("users");

    let mut command = Command::new("setsid");
    command
        .args(["--wait", "setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"])
        .arg(path("reapd"))
        .args(["sweep", "--yes", "--json", "--config"])
        .arg(field.config())
        .arg("--state-dir")
        .arg(path("home/state"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", path("home"));
    let output = patiently(&mut command);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.lines().all(|line| line.ends_with("confirmed.")), "{said}");
    let swept = Swept::read(&output.stdout);
    field.check(
        &swept,
        &[
            ("b24-own", Ended),
            ("b24-hides-itself", Kept("unknown")),
            ("b24-stands-somewhere", Kept("unknown")),
            ("b24-stands-in-the-open", Ended),
            ("b23-another-users", Kept("")),
        ],
    );
    let other = field.pids("b23-another-users")[0];
    assert!(!swept.trees.contains_key(&other), "no verdict on another user's: {}", swept.said);
    // To the administrator the very same shape is as dead as the first.
    fs::write(field.config(), policies).unwrap();
    let swept = field.sweep();
    field.check(&swept, &[("b23-another-users", Ended)]);
}
