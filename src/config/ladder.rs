//! One rung of a ladder as people write it: `"TERM 5s"`.

use std::time::Duration;

use crate::model::plan::{Rung, Signal};

use super::duration;

/// The longest grace: a teardown that takes longer holds up what comes after it.
const LONGEST: Duration = Duration::from_mins(10);

/// Returns the rung, or what is wrong and what to do about it.
///
/// A grace of nothing is refused on every rung: after TERM it would be no grace at all, and after KILL nobody would
/// have been seen gone yet when the report is written.
pub(super) fn rung(text: &str) -> Result<Rung, (String, Option<String>)> {
    let mut words = text.split_ascii_whitespace();
    let (Some(name), Some(grace), None) = (words.next(), words.next(), words.next()) else {
        return Err((
            "a rung is a signal and how long it is given".into(),
            Some("for example \"TERM 5s\"".into()),
        ));
    };
    let signal = signal(name)?;
    let grace =
        duration::parse(grace).map_err(|why| (why.to_owned(), Some("for example \"TERM 5s\"".into())))?;
    if grace.is_zero() || grace > LONGEST {
        return Err((
            format!("the grace after {} must be more than nothing and at most 10m", signal.name()),
            None,
        ));
    }
    Ok(Rung { signal, grace })
}

fn signal(name: &str) -> Result<Signal, (String, Option<String>)> {
    if let Some(signal) = Signal::ALL.into_iter().find(|signal| signal.name() == name) {
        return Ok(signal);
    }
    let bare = name.to_ascii_uppercase();
    let bare = bare.strip_prefix("SIG").unwrap_or(&bare);
    if ["STOP", "TSTP", "TTIN", "TTOU"].contains(&bare) {
        return Err((
            format!("{bare} is not allowed on a ladder"),
            Some(
                "stopping a member hangs up its orphaned group, and a crash would leave live work frozen"
                    .into(),
            ),
        ));
    }
    let known = Signal::ALL.into_iter().map(Signal::name).collect::<Vec<_>>().join(", ");
    let hint = match Signal::ALL.into_iter().find(|signal| signal.name() == bare) {
        Some(signal) => format!("did you mean `{}`?", signal.name()),
        None => format!("signals are {known}"),
    };
    Err((format!("unknown signal `{name}`"), Some(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung() {
        assert_eq!(rung("TERM 5s"), Ok(Rung { signal: Signal::Term, grace: Duration::from_secs(5) }));
        assert_eq!(rung("KILL 500ms"), Ok(Rung { signal: Signal::Kill, grace: Duration::from_millis(500) }));
    }

    #[test]
    fn nothing_is_ever_stopped_c20() {
        for text in ["STOP 1s", "SIGSTOP 1s", "tstp 1s"] {
            let (message, hint) = rung(text).unwrap_err();
            assert!(message.contains("is not allowed"), "{message}");
            assert!(hint.unwrap().contains("frozen"));
        }
    }

    #[test]
    fn what_is_no_rung() {
        for text in ["", "TERM", "5s", "TERM 5", "TERM 0s", "KILL 0s", "TERM 11m", "TERM 5s 6s", "BOO 5s"] {
            assert!(rung(text).is_err(), "{text}");
        }
        assert_eq!(rung("SIGTERM 5s").unwrap_err().1.unwrap(), "did you mean `TERM`?");
    }
}
