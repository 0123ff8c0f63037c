//! Who is never touched, whatever the configuration and the evidence say.
//!
//! Lists of names only ever widen what is kept: a wrong name here costs a leak, never a kill.

use std::collections::BTreeSet;

use bstr::{BStr, ByteSlice as _};

use crate::config::pattern::program_name;
use crate::config::policy::Config;
use crate::model::facts::Facts;
use crate::model::id::{Pid, ProcessId};
use crate::model::keep::Kept;
use crate::model::look::{Look, Scope};
use crate::model::ownership::ancestors;
use crate::model::table::{Kernel, Row};

use super::case::known;
use super::rule::{Blank, Found};

/// Service managers, container runtimes and shims (CASES C13), login sessions, terminals and multiplexers (B01, B11,
/// B46), and agents and build daemons that whole logins share (B07, B45, B47, B48, B49). Kernel names are at most
/// 15 bytes.
const NAMES: [&[u8]; 63] = [
    b"systemd",
    b"systemd-logind",
    b"systemd-udevd",
    b"launchd",
    b"init",
    b"runit",
    b"runsvdir",
    b"s6-svscan",
    b"supervisord",
    b"(sd-pam)",
    b"dbus-daemon",
    b"dbus-broker",
    b"dockerd",
    b"containerd",
    b"containerd-shim",
    b"conmon",
    b"podman",
    b"runc",
    b"crun",
    b"buildkitd",
    b"kubelet",
    b"bwrap",
    b"docker-init",
    b"tini",
    b"dumb-init",
    b"catatonit",
    b"login",
    b"sshd",
    b"sshd-session",
    b"getty",
    b"agetty",
    b"gdm",
    b"sddm",
    b"lightdm",
    b"Xorg",
    b"Xwayland",
    b"gnome-shell",
    b"plasmashell",
    b"kwin_wayland",
    b"tmux: server",
    b"tmux",
    b"screen",
    b"zellij",
    b"mosh-server",
    b"dtach",
    b"abduco",
    b"gnome-terminal-",
    b"konsole",
    b"kitty",
    b"alacritty",
    b"wezterm-gui",
    b"ghostty",
    b"xterm",
    b"foot",
    b"Terminal",
    b"iTerm2",
    b"ssh-agent",
    b"gpg-agent",
    b"adb",
    b"watchman",
    b"sccache",
    b"bazel",
    b"pipewire",
];

/// Names that begin so belong to one of the above (`containerd-shim-runc-v2` is cut to 15 bytes).
const PREFIXES: [&[u8]; 3] = [b"containerd-shim", b"bazel(", b"gnome-terminal"];

/// What is protected without reading anything of the process itself.
#[derive(Debug, Clone)]
pub struct Fixed {
    // Invariant: holds our own pid and every ancestor of ours.
    lineage: BTreeSet<Pid>,
    session: i32,
    scope: Scope,
    uid: crate::model::id::Uid,
}

impl Fixed {
    /// Returns what is protected at this look.
    pub fn new(look: &Look) -> Fixed {
        let own = &look.snapshot.own;
        let mut lineage: BTreeSet<Pid> =
            ancestors(&look.snapshot.table, own.pid).into_iter().map(|id| id.pid).collect();
        lineage.insert(own.pid);
        Fixed { lineage, session: own.sid, scope: own.scope, uid: own.uid }
    }

    /// Returns why a process must not be touched, as far as the table tells.
    pub fn protects(&self, look: &Look, row: &Row) -> Option<String> {
        let id = row.id;
        if id.pid == Pid::INIT {
            return Some("it is the first process".into());
        }
        if row.kernel == Kernel::Thread {
            return Some("it is a thread of the kernel".into());
        }
        if self.lineage.contains(&id.pid) {
            return Some("it is reapd itself or an ancestor of it".into());
        }
        // 0 is "outside our pid namespace", which many share.
        if self.session > 0 && row.sid == self.session {
            return Some("it is in the session that reapd runs in".into());
        }
        if self.scope == Scope::User {
            match look.arguments(id) {
                None => return Some("it is another user's".into()),
                Some(arguments) if arguments.uid != self.uid => return Some("it is another user's".into()),
                Some(_) => {}
            }
        }
        if look.reapers.contains(&id.pid) {
            return Some("it adopts orphans for others".into());
        }
        if is_shared(row.name()) {
            return Some(format!("{} serves more than one owner", row.name().as_bstr()));
        }
        None
    }
}

/// Says whether this command name is of the kind that whole logins share.
pub fn is_shared(name: &[u8]) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns why a process must not be touched, once its facts are known: keep marks of every kind, shared daemons by
/// program, and foreign namespaces.
///
/// Facts that could not be read leave the question open, and an open question protects: the caller keeps.
pub fn by_facts(look: &Look, config: &Config, facts: &Facts) -> Found<Option<String>> {
    if let Some(reason) = marked(look, config, facts)? {
        return Ok(Some(reason));
    }
    let names = names(facts);
    if let Some(name) = names.iter().find(|name| is_shared(name)) {
        return Ok(Some(format!("{name} serves more than one owner")));
    }
    Ok(None)
}

/// Returns why a person wants it kept.
fn marked(look: &Look, config: &Config, facts: &Facts) -> Found<Option<String>> {
    let names = names(facts);
    for glob in &config.keep.programs {
        if names.iter().any(|name| glob.fits(name)) {
            return Ok(Some(format!("'{}' stands under [keep] programs", glob.text)));
        }
    }
    if let Some(reason) = person_keeps(look, facts.id) {
        return Ok(Some(reason));
    }
    let marks = look.marks.iter().filter(|mark| is_current(mark.until, look));
    let kept: Vec<&BStr> = config
        .keep
        .directories
        .iter()
        .map(|path| path.as_bstr())
        .chain(marks.filter_map(|mark| match &mark.what {
            Kept::Directory { path } => Some(path.as_bstr()),
            Kept::Process { .. } | Kept::Container { .. } => None,
        }))
        .collect();
    if !kept.is_empty() {
        // Where it stands is needed only when somebody keeps a directory; unreadable then is a veto (CASES B24).
        let cwd = known(&facts.cwd)?;
        if let Some(path) = kept.iter().find(|path| at_or_below(cwd.path.as_bstr(), path)) {
            return Ok(Some(format!("it stands in {path}, which is kept")));
        }
    }
    let env = known(&facts.env)?;
    match env.get(b"REAPD_KEEP".as_bstr()) {
        Some(value) if !value.is_empty() && value != "0" => {
            Ok(Some("REAPD_KEEP is set in its environment".into()))
        }
        Some(_) | None => Ok(None),
    }
}

/// Returns why a person keeps this very process, or one above it.
pub fn person_keeps(look: &Look, id: ProcessId) -> Option<String> {
    let table = &look.snapshot.table;
    look.marks.iter().filter(|mark| is_current(mark.until, look)).find_map(|mark| match &mark.what {
        Kept::Process { boot, id: kept, .. } if *boot == look.snapshot.boot => {
            if *kept == id {
                Some("it was marked with `reapd keep`".into())
            } else if ancestors(table, id.pid).contains(kept) {
                Some(format!("{kept} above it was marked with `reapd keep`"))
            } else {
                None
            }
        }
        Kept::Process { .. } | Kept::Directory { .. } | Kept::Container { .. } => None,
    })
}

/// Says whether `path` is `directory` or lies below it, at a component boundary (CASES B31).
pub fn at_or_below(path: &BStr, directory: &BStr) -> bool {
    let directory = directory.trim_end_with(|letter| letter == '/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

pub(super) fn is_current(until: Option<u64>, look: &Look) -> bool {
    until.is_none_or(|until| look.snapshot.began.wall < until)
}

fn names(facts: &Facts) -> Vec<&BStr> {
    let argv =
        facts.argv.as_ref().ok().and_then(|argv| argv.first()).map(|first| program_name(first.as_bstr()));
    let exe = facts.exe.as_ref().ok().map(|exe| program_name(exe.path.as_bstr()));
    argv.into_iter().chain(exe).collect()
}

/// Returns why these processes must not be touched, for plan to prune: one entry for each that is protected, and for
/// each of which it could not be told.
pub fn protected(look: &Look, config: &Config, ids: &[ProcessId]) -> Vec<(ProcessId, String)> {
    let fixed = Fixed::new(look);
    let mut found = Vec::new();
    for &id in ids {
        let Some(row) = look.snapshot.table.get(id) else { continue };
        if row.is_gone() {
            continue;
        }
        let reason = fixed.protects(look, row).or_else(|| match look.facts(id) {
            Some(Ok(facts)) => match by_facts(look, config, facts) {
                Ok(reason) => reason,
                Err(Blank::Unknown(unknown)) => Some(format!("could not tell whether it is kept: {unknown}")),
                Err(Blank::Ask(_)) => Some("could not tell whether it is kept: not asked".into()),
            },
            Some(Err(unknown)) => Some(format!("could not tell whether it is kept: {unknown}")),
            None => person_keeps(look, id),
        });
        if let Some(reason) = reason {
            found.push((id, reason));
        }
    }
    found
}
