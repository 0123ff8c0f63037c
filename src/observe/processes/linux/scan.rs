//! Scans the process table at the floor of `/proc`: three system calls and no allocation for each process.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, openat};
use rustix::io::Errno;

use crate::model::id::{ProcessId, Uid};
use crate::model::known::Known;
use crate::model::table::Table;
use crate::observe::ObserveError;

use super::pinned::unknown;
use super::stat::{self, Units};

/// Size of the getdents64(2) buffer: a few thousand entries, so that the call itself costs nothing.
const ENTRIES: usize = 64 * 1024;

/// Size of the read buffer: `stat` is about 330 bytes, 52 numbers of at most 20 digits and a name.
const LINE: usize = 2048;

/// What is kept between scans.
#[derive(Debug)]
pub(in crate::observe) struct Scanner {
    proc: OwnedFd,
    entries: Vec<MaybeUninit<u8>>,
    units: Units,
}

impl Scanner {
    /// Opens `/proc` and makes sure that it shows our own pid namespace: numbers of another one would be somebody
    /// else's.
    pub(in crate::observe) fn open() -> Result<Scanner, ObserveError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())
            .map_err(|source| ObserveError::Proc { source: source.into() })?;
        let own = rustix::fs::readlinkat(&proc, "self", Vec::new()).ok();
        let number = rustix::process::getpid().as_raw_nonzero().to_string();
        if own.is_none_or(|own| own.as_bytes() != number.as_bytes()) {
            return Err(ObserveError::ForeignProc);
        }
        Ok(Scanner { proc, entries: vec![MaybeUninit::uninit(); ENTRIES], units: Units::of_this_kernel() })
    }

    /// Refills and indexes the table. Returns how many processes are there but could not be read.
    ///
    /// A process that vanishes between the listing and the read is left out: it is gone. When we run short of
    /// descriptors or memory the whole scan fails, since a table with holes would look like deaths.
    pub(in crate::observe) fn scan(&mut self, table: &mut Table) -> Result<u32, ObserveError> {
        let table_error = |errno: Errno| ObserveError::Table { source: errno.into() };
        rustix::fs::seek(&self.proc, SeekFrom::Start(0)).map_err(table_error)?;
        let rows = table.refill();
        let mut refused = 0;
        let mut line = [0; LINE];
        let mut listing = RawDir::new(&self.proc, &mut self.entries);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(table_error)?;
            let name = entry.file_name().to_bytes();
            if !name.first().is_some_and(u8::is_ascii_digit) {
                continue;
            }
            let mut path = [0; 24];
            let Some(path) = stat_path(name, &mut path) else { continue };
            match read_once(&self.proc, path, &mut line) {
                Ok(length) => match stat::parse(&line[..length], self.units) {
                    Some(row) => rows.push(row),
                    None => refused += 1,
                },
                Err(Errno::NOENT | Errno::SRCH) => {}
                Err(Errno::ACCESS | Errno::PERM) => refused += 1,
                Err(errno) => return Err(table_error(errno)),
            }
        }
        table.index();
        Ok(refused)
    }

    /// Returns the owner of a process's `/proc` entry: its effective user, or root where it is not dumpable
    /// (proc_pid(5)), which keeps it out of a user's scope.
    pub(in crate::observe) fn user(&self, id: ProcessId) -> Known<Uid> {
        let mut path = [0; 24];
        let mut digits = [0; 12];
        let name = decimal(id.pid.number().unsigned_abs(), &mut digits);
        path[..name.len()].copy_from_slice(name);
        let path = CStr::from_bytes_until_nul(&path).unwrap_or(c"");
        rustix::fs::statat(&self.proc, path, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| Uid(stat.st_uid))
            .map_err(|errno| unknown(errno, "asking who owns it"))
    }
}

/// Opens, reads and closes: the three calls.
fn read_once(proc: &OwnedFd, path: &CStr, line: &mut [u8]) -> Result<usize, Errno> {
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::read(&file, line)
}

fn stat_path<'a>(name: &[u8], path: &'a mut [u8; 24]) -> Option<&'a CStr> {
    let end = name.len();
    path.get_mut(..end)?.copy_from_slice(name);
    path.get_mut(end..end + 6)?.copy_from_slice(b"/stat\0");
    CStr::from_bytes_with_nul(&path[..end + 6]).ok()
}

fn decimal(mut number: u32, digits: &mut [u8; 12]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Pid;

    #[test]
    fn numbers_as_text() {
        let mut digits = [0; 12];
        assert_eq!(decimal(0, &mut digits), b"0");
        assert_eq!(decimal(4_194_304, &mut digits), b"4194304");
    }

    #[test]
    fn we_are_in_our_own_table() {
        let mut scanner = Scanner::open().unwrap();
        let mut table = Table::default();
        scanner.scan(&mut table).unwrap();
        let own = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        let row = *table.at(own).unwrap();
        assert_eq!(row.ppid, i32::try_from(std::os::unix::process::parent_id()).unwrap());
        assert_eq!(scanner.user(row.id).unwrap(), Uid(rustix::process::geteuid().as_raw()));
        let first = table.rows().len();
        scanner.scan(&mut table).unwrap();
        assert!(table.rows().len() * 2 > first, "the second scan starts from the beginning again");
    }
}
