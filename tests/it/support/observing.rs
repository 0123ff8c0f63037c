//! The observer under test, asked about real processes.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reapd::model::id::ProcessId;
use reapd::model::known::Known;
use reapd::model::look::Scope;
use reapd::model::question::{Answer, Listener, Question};
use reapd::observe::{Observer, Setup};

/// Becomes an ordinary user, in a shell.
pub(crate) const NOBODY: &str = "exec setpriv --reuid 65534 --regid 65534 --clear-groups";

/// Says whether we may do as we like.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns an observer of everybody that we may see.
pub(crate) fn observer() -> Observer {
    observer_by(Path::new(env!("CARGO_BIN_EXE_reapd")))
}

/// Returns an observer whose reads are done by `PROGRAM aside`.
pub(crate) fn observer_by(aside: &Path) -> Observer {
    Observer::open(Setup {
        scope: if is_root() { Scope::Host } else { Scope::User },
        probe_timeout: Duration::from_secs(20),
        env_names: BTreeSet::new(),
        aside: PathBuf::from(aside),
        home: None,
        leases: Vec::new(),
        registries: Vec::new(),
        engines: None,
    })
    .unwrap()
}

/// Asks one thing in a look of its own.
pub(crate) fn ask(question: Question) -> Known<Answer> {
    ask_all(&mut observer(), &[question]).remove(0)
}

/// Asks several things at one look.
pub(crate) fn ask_all(observer: &mut Observer, questions: &[Question]) -> Vec<Known<Answer>> {
    let snapshot = observer.table().unwrap();
    let answers = observer.answer(&snapshot, questions);
    assert!(answers.iter().map(|(question, _)| question).eq(questions), "one for each, in their order");
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the listeners of a process.
pub(crate) fn listeners(of: ProcessId) -> Vec<Listener> {
    match ask(Question::Sockets(of)) {
        Ok(Answer::Sockets(sockets)) => sockets.listeners,
        other => panic!("{other:?}"),
    }
}

/// Writes a program in `folder` that does `before` and then becomes reapd; for everybody to start.
pub(crate) fn reapd_after(folder: &Path, before: &str) -> PathBuf {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (binary, program) = (folder.join("reapd"), folder.join("start"));
    // The build may be where another user cannot go.
    super::program::copy(env!("CARGO_BIN_EXE_reapd"), &binary);
    super::program::script(&format!("#!/bin/sh\n{before} {} \"$@\"\n", binary.display()), &program);
    program
}

/// Writes a reapd in `folder` that runs as an ordinary user.
pub(crate) fn as_nobody(folder: &Path) -> PathBuf {
    reapd_after(folder, NOBODY)
}
