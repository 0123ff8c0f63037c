//! Asks a person at the terminal.

use std::io::IsTerminal as _;

use rustix::event::{PollFd, PollFlags};

use super::out::{Out, Reader};
use super::signals::{Waited, wait_for};

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// A clear yes.
    Yes,
    /// Anything else, silence included.
    No,
    /// Somebody asked us to stop.
    Stopped,
}

/// Says whether there is a person to ask: questions go to stderr, answers come from stdin.
pub fn terminal() -> Reader {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        Reader::Terminal
    } else {
        Reader::Program
    }
}

/// Asks, and waits for one line. Only a clear yes is one.
pub fn ask(out: &mut Out, question: &str) -> Reply {
    out.murmur(&format!("{question} [y/N] "));
    let stdin = std::io::stdin();
    let mut line = Vec::new();
    // Not `read_line`: it begins anew when a signal interrupts it, and then Ctrl-C would do nothing.
    loop {
        let ready = wait_for(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
        if ready == Waited::Stopped {
            return Reply::Stopped;
        }
        let mut buffer = [0; 256];
        match rustix::io::read(&stdin, &mut buffer) {
            Ok(0) => return understood(&line),
            Ok(count) => line.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return Reply::No,
        }
        if line.ends_with(b"\n") || line.len() > 1_024 {
            return understood(&line);
        }
    }
}

fn understood(line: &[u8]) -> Reply {
    match line.trim_ascii().to_ascii_lowercase().as_slice() {
        b"y" | b"yes" => Reply::Yes,
        _ => Reply::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        for yes in ["y\n", "Y", " yes \n", "YES"] {
            assert_eq!(understood(yes.as_bytes()), Reply::Yes, "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yy", "yes please", "j\n"] {
            assert_eq!(understood(no.as_bytes()), Reply::No, "{no:?}");
        }
    }
}
