//! Programs that tests lay out and start.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Copies a file by way of another process: a descriptor of ours that is open for writing could be inherited by what
/// another test starts at that moment, and then nobody could run the copy (execve(2), ETXTBSY).
pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg("--").arg(from.as_ref()).arg(to.as_ref()).status().unwrap();
    assert!(copied.success(), "{} to {}", from.as_ref().display(), to.as_ref().display());
}

/// Lays out a script that everybody may start.
pub(crate) fn script(text: &str, to: &Path) {
    let draft = to.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::set_permissions(&draft, Permissions::from_mode(0o755)).unwrap();
    copy(&draft, to);
    fs::remove_file(draft).unwrap();
}
