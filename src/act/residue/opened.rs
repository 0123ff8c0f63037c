//! Whether somebody has a file open for writing.

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::fd::OwnedFd;

use bstr::BStr;
#[cfg(target_os = "linux")]
use bstr::ByteSlice as _;

/// Says why it is not sure that nobody has this file open for writing.
///
/// A read lease is granted only where nobody has (fcntl(2), `F_SETLEASE`); it is given up at once. Should somebody open
/// the file in that moment, the kernel would tell us by a signal, and by one that ends nobody: `SIGURG` is ignored
/// unless somebody asks for it.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no call for leases")]
pub(super) fn by_nobody(directory: &OwnedFd, name: &BStr) -> Result<(), String> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name.as_bytes(), flags, Mode::empty())
        .map_err(|errno| format!("whether somebody writes to it could not be told: {errno}"))?;
    // SAFETY: the descriptor is open, and the argument is a number.
    let tells = unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
    // SAFETY: as above.
    let granted = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    let error = std::io::Error::last_os_error();
    match (tells, granted) {
        // It goes with the descriptor.
        (0, 0) => Ok(()),
        (0, _) if error.kind() == std::io::ErrorKind::WouldBlock => Err("somebody has it open".to_owned()),
        _ => Err(format!("whether somebody writes to it could not be told: {error}")),
    }
}

/// `F_SETSIG` of asm-generic/fcntl.h, which libc has not for every kind of Linux.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Nothing here can tell.
#[cfg(not(target_os = "linux"))]
pub(super) fn by_nobody(_: &OwnedFd, _: &BStr) -> Result<(), String> {
    Err("this system does not say who has a file open".to_owned())
}
