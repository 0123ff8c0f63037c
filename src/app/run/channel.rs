//! Standard input and output as the two ends of one channel to whoever uses the command: seen by poll(2) without
//! events, which consumes nothing, opens nothing and copies nothing.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::net::{AddressFamily, SocketType};

/// A far end that is handed over from one process to another is nobody's for a moment.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// What standard input and output were when we began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// Both were anonymous pipes or connected pairs: the loss of both far ends is the proof.
    Channel,
    /// Input was one and output was not: `echo x | server >log`. Nothing can be told from either, nor from the caller.
    InputOnly,
    /// Input was none.
    Other,
}

impl Streams {
    /// Looks at them.
    pub(super) fn now() -> Streams {
        match (is_channel(io::stdin().as_fd(), 0), is_channel(io::stdout().as_fd(), 1)) {
            (true, true) => Streams::Channel,
            (true, false) => Streams::InputOnly,
            (false, _) => Streams::Other,
        }
    }
}

/// Says whether a descriptor is an anonymous pipe or a connected stream socket of the Unix family. A FIFO with a name
/// may get another writer at any time, and a listener never had a peer (REDTEAM F3).
fn is_channel(fd: BorrowedFd<'_>, number: u32) -> bool {
    let Ok(stat) = rustix::fs::fstat(fd) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => is_anonymous(number, &stat),
        FileType::Socket => {
            rustix::net::sockopt::socket_type(fd).is_ok_and(|kind| kind == SocketType::STREAM)
                && rustix::net::getpeername(fd)
                    .is_ok_and(|peer| peer.is_some_and(|peer| peer.address_family() == AddressFamily::UNIX))
        }
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => false,
    }
}

#[cfg(target_os = "linux")]
fn is_anonymous(number: u32, _stat: &rustix::fs::Stat) -> bool {
    rustix::fs::readlink(format!("/proc/self/fd/{number}"), Vec::new())
        .is_ok_and(|link| link.to_bytes().starts_with(b"pipe:["))
}

#[cfg(target_os = "macos")]
fn is_anonymous(_number: u32, stat: &rustix::fs::Stat) -> bool {
    // A pipe has no place in any file system; a FIFO with a name stands on a device.
    stat.st_dev == 0
}

/// The far ends of standard input and output, watched.
#[derive(Debug, Default)]
pub(super) struct Channel {
    input: End,
    output: End,
    /// Since when both are gone.
    since: Option<Instant>,
}

/// What is known of a far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum End {
    #[default]
    There,
    Gone,
}

impl Channel {
    /// Returns the descriptors whose far end is still there; to be polled for nothing.
    pub(super) fn watched(&self) -> (bool, bool) {
        (self.input == End::There, self.output == End::There)
    }

    /// Asks anew about both far ends.
    pub(super) fn look(&mut self, now: Instant) {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        self.input = end(stdin.as_fd());
        self.output = end(stdout.as_fd());
        self.since = match (self.input, self.output) {
            (End::Gone, End::Gone) => self.since.or(Some(now)),
            (End::There, _) | (_, End::There) => None,
        };
    }

    /// Returns when the grace is over, where both are gone.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + GRACE)
    }

    /// Says whether everything that was ever sent was taken.
    pub(super) fn is_drained() -> bool {
        rustix::io::ioctl_fionread(io::stdin()).is_ok_and(|unread| unread == 0)
    }
}

fn end(fd: BorrowedFd<'_>) -> End {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    match poll(&mut asked, Some(&now)) {
        // A reading end says HUP, a pipe's writing end says ERR, a pair says HUP when its peer was closed.
        Ok(count) if count > 0 && asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => End::Gone,
        Ok(_) | Err(_) => End::There,
    }
}
