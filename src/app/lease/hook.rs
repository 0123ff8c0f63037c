//! `reapd lease hook`: an agent's own hook says that a session began or ended. It prints nothing, since a hook's output
//! goes into the model's context, never fails, and ends nothing itself.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bstr::{BString, ByteSlice as _};
use rustix::event::{PollFd, PollFlags};
use serde::Deserialize;

use super::identity;
use super::own_store;
use super::store::{self, Store};
use crate::app::exit::Exit;
use crate::app::session::Session;
use crate::app::signals::{Waited, wait_for};
use crate::model::id::Pid;
use crate::model::lease::{Bound, COOKIE, Holder, Lease, LeaseId, Release};
use crate::model::table::Row;
use crate::observe;

/// What an agent hands a hook is far smaller.
const LARGEST: u64 = 64 * 1024;

/// An agent writes at once and closes. Whoever does neither is no agent.
const PATIENCE: Duration = Duration::from_millis(500);

/// Ancestors are looked at no further up than this.
const GENERATIONS: usize = 64;

/// What Claude Code hands a hook, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Event {
    session_id: String,
    hook_event_name: String,
    #[serde(default)]
    reason: String,
}

/// Whether a session's shell commands are to carry the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cookie {
    /// They are: `--export`.
    Export,
    /// They are not: what they start in the background is the user's own (REDTEAM F4).
    None,
}

/// Runs it. Whatever goes wrong, the agent's session goes on as if we were not there.
pub(super) fn hook(session: &Session, agent: &str, cookie: Cookie) -> Exit {
    if agent == "claude-code"
        && let Some(event) = event()
    {
        // What could not be recorded covers nothing, and nobody is to hear of it here.
        let _ = record(session, &event, cookie);
    }
    Exit::Done
}

fn event() -> Option<Event> {
    let mut text = Vec::new();
    let begun = Instant::now();
    loop {
        let mut ready = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
        match wait_for(&mut ready, Some(PATIENCE.saturating_sub(begun.elapsed()))) {
            Waited::Ready => {}
            Waited::Over | Waited::Stopped => break,
        }
        let mut part = [0; 4096];
        match rustix::io::read(rustix::stdio::stdin(), &mut part) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.extend_from_slice(&part[..length]),
        }
        if text.len() as u64 > LARGEST {
            return None;
        }
    }
    serde_json::from_slice(&text).ok()
}

fn record(session: &Session, event: &Event, cookie: Cookie) -> Option<()> {
    let agent = agent()?;
    let holder = identity::of(agent).ok()?;
    let usual = LeaseId::new(&format!("claude-{}", event.session_id))?;
    // One session may be resumed by a second process while the first one still lives.
    let other = LeaseId::new(&format!("claude-{}.{agent}", event.session_id));
    let store = own_store(session).ok()?;
    match event.hook_event_name.as_str() {
        "SessionStart" => {
            let id = begin(&store, [Some(usual), other], &holder)?;
            if cookie == Cookie::Export {
                export(&id)?;
            }
        }
        "SessionEnd" if is_exit(&event.reason) => {
            for id in [Some(usual), other].into_iter().flatten() {
                if let Ok(Some(lease)) = store.read(&id)
                    && lease.holder.as_ref().is_some_and(|held| is_same(held, &holder))
                {
                    let _ = store.release(&id, Some(&format!("the session ended: {}", event.reason)));
                }
            }
        }
        _ => {}
    }
    Some(())
}

/// Says whether a session's end is the end of its process too. After `/clear` and when another session is resumed the
/// process lives on with all that it started, and an unknown reason is no exit.
fn is_exit(reason: &str) -> bool {
    matches!(reason, "logout" | "prompt_input_exit" | "bypass_permissions_disabled" | "other")
}

/// Writes the lease under the first of these ids that nobody else holds, and returns it.
fn begin(store: &Store, ids: [Option<LeaseId>; 2], holder: &Holder) -> Option<LeaseId> {
    for id in ids.into_iter().flatten() {
        let mut lease = store::draft(id.clone(), Bound::Holder);
        lease.holder = Some(holder.clone());
        lease.covers.env = Some(id.as_str().into());
        lease.labels.insert("agent".to_owned(), "claude-code".to_owned());
        lease.note = Some("a session of Claude Code".to_owned());
        if store.add(&lease).is_ok() {
            return Some(id);
        }
        let Ok(Some(there)) = store.read(&id) else { continue };
        match standing(&there, holder) {
            Standing::Ours => return Some(id),
            Standing::Others => {}
            Standing::Over => {
                if store.succeed(&lease, &there.file).is_ok() {
                    return Some(id);
                }
            }
        }
    }
    None
}

/// Whose a lease is that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The session goes on in the same process: compacted, cleared, resumed.
    Ours,
    /// Another living process has the session too, or may have.
    Others,
    /// It was released, or whoever held it is gone: the session is resumed.
    Over,
}

fn standing(there: &Lease, holder: &Holder) -> Standing {
    let Some(held) = &there.holder else { return Standing::Others };
    match (&there.release, is_same(held, holder)) {
        (Release::Open, true) => Standing::Ours,
        (Release::Released(_), _) => Standing::Over,
        (Release::Open, false) if is_surely_gone(held, holder) => Standing::Over,
        (Release::Open, false) => Standing::Others,
    }
}

/// Says whether the recorded holder is gone; `seen` is somebody whom we can see.
fn is_surely_gone(held: &Holder, seen: &Holder) -> bool {
    let here = (&held.boot, held.pidns, held.timens) == (&seen.boot, seen.pidns, seen.timens);
    here && match observe::bearer(held.pid) {
        Ok(Some(row)) => row.is_gone() || held.start.is_some_and(|start| start != row.id.start),
        Ok(None) => true,
        Err(_) => false,
    }
}

fn is_same(one: &Holder, other: &Holder) -> bool {
    one.start.is_some()
        && (one.pid, one.start, &one.boot, one.pidns) == (other.pid, other.start, &other.boot, other.pidns)
}

/// Has the session's shell commands carry the lease.
fn export(id: &LeaseId) -> Option<()> {
    let path = PathBuf::from(std::env::var_os("CLAUDE_ENV_FILE").filter(|path| !path.is_empty())?);
    let line = format!("export {COOKIE}={id}\n");
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path).ok()?;
    let mut text = Vec::new();
    std::io::Read::by_ref(&mut file).take(LARGEST).read_to_end(&mut text).ok()?;
    // A session begins again whenever it is compacted or cleared.
    let said = text.lines().rfind(|there| there.starts_with(format!("export {COOKIE}=").as_bytes()));
    if said == Some(line.trim_end().as_bytes()) {
        return Some(());
    }
    if text.last().is_some_and(|&last| last != b'\n') {
        file.write_all(b"\n").ok()?;
    }
    file.write_all(line.as_bytes()).ok()
}

/// Returns the nearest ancestor that is the agent: never the shell that runs this hook, which is gone in a moment
/// (REDTEAM F5).
fn agent() -> Option<Pid> {
    let own = Pid::new(rustix::process::getpid().as_raw_nonzero().get())?;
    let mut row = observe::bearer(own).ok()??;
    for _ in 0..GENERATIONS {
        let above = observe::bearer(Pid::new(row.ppid)?).ok()??;
        // A parent that is younger than its child only adopted it.
        if above.id.pid == Pid::INIT || above.began > row.began {
            return None;
        }
        if is_agent(&above) {
            return Some(above.id.pid);
        }
        row = above;
    }
    None
}

fn is_agent(row: &Row) -> bool {
    let by_name = row.name() == b"claude";
    if !by_name && !is_interpreter(row.name()) {
        return false;
    }
    observe::arguments_of(row.id).is_ok_and(|argv| by_arguments(&argv, by_name))
}

/// A threaded interpreter may call its main thread so.
fn is_interpreter(name: &[u8]) -> bool {
    matches!(name, b"node" | b"MainThread" | b"node-MainThread" | b"bun" | b"deno")
}

fn by_arguments(argv: &[BString], by_name: bool) -> bool {
    let stem = |text: &[u8]| BString::from(text.rsplit_str(b"/").next().unwrap_or(text));
    let Some(program) = argv.first().map(|program| stem(program)) else { return false };
    if by_name {
        // A wrapper in shell bears the name too, and may be a hook's own script.
        return !matches!(program.as_slice(), b"sh" | b"bash" | b"dash" | b"zsh" | b"ksh" | b"fish");
    }
    let script = argv.iter().skip(1).find(|argument| !argument.starts_with(b"-"));
    is_interpreter(&program)
        && script.is_some_and(|script| {
            stem(script) == "claude" || script.split_str(b"/").any(|element| element == b"claude-code")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &str) -> Vec<BString> {
        words.split(' ').map(BString::from).collect()
    }

    #[test]
    fn the_agent_is_a_program_and_no_shell_f5() {
        assert!(by_arguments(&argv("claude --resume"), true));
        assert!(by_arguments(&argv("/opt/claude"), true));
        assert!(!by_arguments(&argv("/bin/sh /usr/local/bin/claude"), true));
        assert!(by_arguments(&argv("node --max-old-space-size=9 /usr/bin/claude"), false));
        assert!(by_arguments(&argv("node /l/node_modules/@anthropic-ai/claude-code/cli.js"), false));
        assert!(!by_arguments(&argv("node /srv/server.js claude"), false));
        assert!(!by_arguments(&[], true));
    }

    #[test]
    fn only_a_known_exit_is_one() {
        assert!(is_exit("logout") && is_exit("prompt_input_exit") && is_exit("other"));
        for goes_on in ["clear", "resume", "", "compact", "something new"] {
            assert!(!is_exit(goes_on), "{goes_on}");
        }
    }

    #[test]
    fn a_living_stranger_keeps_the_name_of_a_session() {
        let ours = identity::own().unwrap();
        let mut lease = store::draft(LeaseId::new("claude-x").unwrap(), Bound::Holder);
        lease.holder = Some(ours.clone());
        assert_eq!(standing(&lease, &ours), Standing::Ours);
        let other = identity::of(Pid::INIT).unwrap();
        assert_eq!(standing(&lease, &other), Standing::Others);
        let gone =
            Holder { start: ours.start.map(|start| crate::model::id::Start(start.0 + 1)), ..ours.clone() };
        lease.holder = Some(gone.clone());
        assert_eq!(standing(&lease, &ours), Standing::Over);
        lease.holder = Some(Holder { pidns: Some(1), ..gone });
        assert_eq!(standing(&lease, &ours), Standing::Others, "its number means nothing here");
        lease.release = Release::Released(None);
        assert_eq!(standing(&lease, &ours), Standing::Over);
    }
}
