//! Whether anybody can still speak to a command of `reapd run`, by the streams that its watcher holds as well.
//!
//! Servers move their protocol off fd 0 and 1, so that what they print by accident does not go into it (the Python
//! package `mcp` 2 does). The watcher inherited the same two streams and does nothing with them.

use crate::judge::case::{Case, known};
use crate::judge::rule::Found;
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::question::{Channel, FarEnd};

use super::State;

/// What is said where nobody can speak to it any more.
pub(in crate::judge) const ABANDONED: &str =
    "nobody holds the other ends of the stdin and stdout that it was started with";

/// Returns why somebody may still speak through the watcher's streams; nothing where the far ends of both are gone and
/// nothing is unread.
pub(in crate::judge) fn held_ends<'a>(
    watcher: ProcessId,
    channel_of: impl Fn(ProcessId, u32) -> Found<&'a Channel>,
) -> Found<Option<String>> {
    for (fd, name) in [(0, "stdin"), (1, "stdout")] {
        let channel = channel_of(watcher, fd)?;
        if !channel.kind.has_far_end() {
            return Ok(Some(format!("the {name} of its reapd run {watcher} is no channel")));
        }
        if *known(&channel.far)? == FarEnd::Held {
            return Ok(Some(format!("somebody holds the other end of {name}")));
        }
        if fd == 0 && *known(&channel.unread)? > 0 {
            return Ok(Some("there is still something to read on stdin".to_owned()));
        }
    }
    Ok(None)
}

/// Weighs the watcher's streams: the far ends of both are gone, nothing is unread, nobody of the tree has a terminal
/// or can be reached in another way.
pub(super) fn of_watcher(case: &Case<'_>, watcher: ProcessId) -> Found<State> {
    if let Some(why) = held_ends(watcher, |of, fd| case.channel_of(of, fd))? {
        return Ok(State::held(why));
    }
    if let Some(member) = case.terminal() {
        return Ok(State::held(format!("process {member} has a terminal")));
    }
    if let Some((member, listener)) = case.listeners()?.first() {
        return Ok(State::held(format!("process {member} can be reached at {}", escape(&listener.name))));
    }
    Ok(State::over(ABANDONED))
}
