//! The process table as `sysctl kern.proc` returns it: a row of `struct kinfo_proc` for every process.
//!
//! libc has no such struct for Apple systems, so its layout (`<sys/sysctl.h>`, `<sys/proc.h>`, LP64) stands here, held
//! to 648 bytes at compile time, and the parser reads by its offsets. The parser knows no Apple type: it is compiled
//! and tested wherever the project is.

use std::mem::{offset_of, size_of};
use std::time::Duration;

use crate::model::id::{Pid, ProcessId, Start, Uid};
use crate::model::moment::{Clocks, Moment};
use crate::model::table::{ExecSignature, Kernel, Row, State};

use super::bytes::{i32_at, text_at, u8_at, u32_at, u64_at};

/// Length of one row.
pub(super) const ROW: usize = size_of::<KinfoProc>();

const _: () = assert!(size_of::<ExternProc>() == 296);
const _: () = assert!(size_of::<Eproc>() == 352);
const _: () = assert!(ROW == 648);
// These four are what other programs read by number, so a slip in the layout above would show here.
const _: () = assert!(PID == 40 && COMM == 243 && PPID == 560 && PGID == 564);

const START_SECONDS: usize = offset_of!(KinfoProc, process.start_seconds);
const START_MICROSECONDS: usize = offset_of!(KinfoProc, process.start_microseconds);
const FLAGS: usize = offset_of!(KinfoProc, process.flags);
const STAT: usize = offset_of!(KinfoProc, process.stat);
const PID: usize = offset_of!(KinfoProc, process.pid);
const ORIGINAL_PPID: usize = offset_of!(KinfoProc, process.original_ppid);
const IGNORED: usize = offset_of!(KinfoProc, process.ignored);
const CAUGHT: usize = offset_of!(KinfoProc, process.caught);
const COMM: usize = offset_of!(KinfoProc, process.comm);
const REAL_UID: usize = offset_of!(KinfoProc, more.real_uid);
const EFFECTIVE_UID: usize = offset_of!(KinfoProc, more.effective_uid);
const PPID: usize = offset_of!(KinfoProc, more.ppid);
const PGID: usize = offset_of!(KinfoProc, more.pgid);
const TERMINAL: usize = offset_of!(KinfoProc, more.terminal);
const SESSION_FLAGS: usize = offset_of!(KinfoProc, more.flags);

/// `MAXCOMLEN` of `<sys/param.h>`; the field holds one byte more.
const COMM_LENGTH: usize = 16;
/// `P_SYSTEM`: kernel_task.
const P_SYSTEM: u32 = 0x200;
/// `P_TRACED`: under a debugger, which is its parent for as long.
const P_TRACED: u32 = 0x800;
/// `P_WEXIT`: on its way out; in this state it may hang until a restart (C21).
const P_WEXIT: u32 = 0x2000;
/// `EPROC_CTTY`: its session has a controlling terminal.
const EPROC_CTTY: i32 = 1;
/// `EPROC_SLEADER`: it leads its session.
const EPROC_SLEADER: i32 = 2;
/// `NODEV`: no controlling terminal.
const NODEV: i32 = -1;

/// One process as the kernel's table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its row. The table has no session, thread count, resident size or processor time: session 0 is "not read yet"
    /// unless it leads one, one thread is what a zombie has here, and the others are for whoever asks libproc.
    pub(super) row: Row,
    /// Its real user.
    pub(super) real_uid: Uid,
    /// Its effective user, which is what the kernel's own permission checks compare.
    pub(super) effective_uid: Uid,
    /// Who traces it: the parent that a traced process has meanwhile.
    pub(super) tracer: Option<Pid>,
    /// Signals it ignores, bit 0 for signal 1.
    pub(super) ignored: u32,
    /// Signals it catches.
    pub(super) caught: u32,
    /// Whether it leads its session.
    pub(super) leads: Leads,
}

/// Whether a process leads its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// It does, so the session bears its number.
    Session,
    /// It does not.
    Nothing,
}

/// Returns every row of a table; a tail too short for a row, and rows that bear no process number, are left out.
///
/// A row without a start is kept with start 0: were it left out, its children would look as if their parent had
/// gone. Nobody may judge or signal it: see [`Entry::is_readable`].
pub(super) fn parse_kinfo(table: &[u8], now: Clocks) -> Vec<Entry> {
    table.chunks_exact(ROW).filter_map(|row| parse_row(row, now)).collect()
}

impl Entry {
    /// Says whether the kernel told enough of it to call it an identity. A refused read looks like a start of 0.
    pub(super) fn is_readable(&self) -> bool {
        self.row.id.start != Start(0)
    }
}

fn parse_row(row: &[u8], now: Clocks) -> Option<Entry> {
    let pid = Pid::new(i32_at(row, PID)?)?;
    let seconds = u64_at(row, START_SECONDS)?;
    let microseconds = u64::from(u32_at(row, START_MICROSECONDS)?);
    let start = Start(seconds.checked_mul(1_000_000)?.checked_add(microseconds)?);
    let flags = u32_at(row, FLAGS)?;
    let session = i32_at(row, SESSION_FLAGS)?;
    let leads = if session & EPROC_SLEADER != 0 { Leads::Session } else { Leads::Nothing };
    let mut comm = [0; 16];
    let name = text_at(row, COMM, COMM_LENGTH)?;
    let kept = name.len().min(comm.len() - 1);
    comm[..kept].copy_from_slice(&name[..kept]);
    let traced = flags & P_TRACED != 0;
    let parent = i32_at(row, PPID)?;
    let original = i32_at(row, ORIGINAL_PPID)?;
    Some(Entry {
        row: Row {
            id: ProcessId { pid, start },
            // A tracer stands in for the parent; the real one is kept aside and has not gone.
            ppid: if traced && original > 0 { original } else { parent },
            pgid: i32_at(row, PGID)?,
            sid: if leads == Leads::Session { pid.number() } else { 0 },
            state: state(u8_at(row, STAT)?, flags),
            kernel: if flags & P_SYSTEM != 0 { Kernel::Thread } else { Kernel::No },
            tty: terminal(i32_at(row, TERMINAL)?, session),
            threads: 1,
            cpu: Duration::ZERO,
            resident: 0,
            began: began(start, now),
            comm,
            exec: ExecSignature::default(),
        },
        real_uid: Uid(u32_at(row, REAL_UID)?),
        effective_uid: Uid(u32_at(row, EFFECTIVE_UID)?),
        tracer: if traced { Pid::new(parent) } else { None },
        ignored: u32_at(row, IGNORED)?,
        caught: u32_at(row, CAUGHT)?,
        leads,
    })
}

/// `p_stat` of `<sys/proc.h>`: 1 idle (being made), 2 running, 3 sleeping, 4 stopped, 5 zombie. The kernel keeps
/// run states per thread, so that what sleeps says 2 as well.
fn state(stat: u8, flags: u32) -> State {
    match stat {
        // Exiting and not yet a zombie may last until a restart: it can neither be signalled nor is it gone (C21).
        1..=3 if flags & P_WEXIT != 0 => State::Uninterruptible,
        1 | 2 => State::Running,
        3 => State::Sleeping,
        4 => State::Stopped,
        5 => State::Zombie,
        other => State::Other(other),
    }
}

/// Whichever of the two says that there is a terminal is believed: a terminal spares.
fn terminal(device: i32, session: i32) -> i32 {
    match device {
        NODEV | 0 if session & EPROC_CTTY != 0 => NODEV,
        NODEV => 0,
        device => device,
    }
}

/// A start is a wall-clock stamp; on the boot clock it is as long ago as the wall clock says now. A step of the wall
/// clock since shifts it, which is why ages never make an identity.
fn began(start: Start, now: Clocks) -> Moment {
    let age = now.wall.saturating_sub(start.0 / 1_000);
    now.boot.minus(Duration::from_millis(age))
}

/// `struct kinfo_proc`.
#[repr(C)]
struct KinfoProc {
    process: ExternProc,
    more: Eproc,
}

/// `struct extern_proc`, pointers as numbers. The first 16 bytes are a union that the kernel fills with the start.
#[repr(C)]
struct ExternProc {
    start_seconds: i64,
    start_microseconds: i32,
    vmspace: u64,
    sigacts: u64,
    flags: i32,
    stat: u8,
    pid: i32,
    original_ppid: i32,
    dupfd: i32,
    user_stack: u64,
    exit_thread: u64,
    debugger: i32,
    sigwait: i32,
    estcpu: u32,
    cpticks: i32,
    pctcpu: u32,
    wchan: u64,
    wmesg: u64,
    swtime: u32,
    slptime: u32,
    realtimer: [i64; 4],
    rtime: [i64; 2],
    ticks: [u64; 3],
    traceflag: i32,
    tracep: u64,
    siglist: i32,
    textvp: u64,
    holdcnt: i32,
    sigmask: u32,
    ignored: u32,
    caught: u32,
    priority: u8,
    usrpri: u8,
    nice: i8,
    comm: [u8; COMM_LENGTH + 1],
    pgrp: u64,
    addr: u64,
    xstat: u16,
    acflag: u16,
    ru: u64,
}

/// `struct eproc` with the structs in it written out.
#[repr(C)]
struct Eproc {
    paddr: u64,
    sess: u64,
    pc_lock: [u8; 72],
    pc_ucred: u64,
    real_uid: u32,
    saved_uid: u32,
    real_gid: u32,
    saved_gid: u32,
    refcnt: i32,
    pcred_end: u32,
    cr_ref: i32,
    effective_uid: u32,
    cr_ngroups: i16,
    cr_groups: [u32; 16],
    vm: [u64; 8],
    ppid: i32,
    pgid: i32,
    jobc: i16,
    terminal: i32,
    tpgid: i32,
    tsess: u64,
    wmesg: [u8; 8],
    xsize: i32,
    xrssize: i16,
    xccount: i16,
    xswrss: i16,
    flags: i32,
    login: [u8; 12],
    spare: [i32; 4],
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Clocks =
        Clocks { boot: Moment(500_000_000_000), monotonic: 500_000_000_000, wall: 1_700_000_100_000 };

    /// One row of the table by offset, constructed from the layout in Apple's headers (not recorded on a Mac).
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn new(pid: i32, ppid: i32) -> Bytes {
            let mut bytes = Bytes(vec![0; 648]);
            bytes.set(0, &1_700_000_000_i64.to_le_bytes()); // p_starttime.tv_sec
            bytes.set(8, &123_456_i32.to_le_bytes()); // p_starttime.tv_usec
            bytes.set(36, &[2]); // p_stat: SRUN
            bytes.set(40, &pid.to_le_bytes()); // p_pid
            bytes.set(232, &0x1808_0000_u32.to_le_bytes()); // p_sigignore: URG, CHLD, WINCH, INFO
            bytes.set(243, b"node"); // p_comm
            bytes.set(392, &501_u32.to_le_bytes()); // e_pcred.p_ruid
            bytes.set(420, &501_u32.to_le_bytes()); // e_ucred.cr_uid
            bytes.set(560, &ppid.to_le_bytes()); // e_ppid
            bytes.set(564, &pid.to_le_bytes()); // e_pgid
            bytes.set(572, &(-1_i32).to_le_bytes()); // e_tdev: NODEV
            bytes
        }

        fn set(&mut self, offset: usize, value: &[u8]) {
            self.0[offset..offset + value.len()].copy_from_slice(value);
        }

        fn one(&self) -> Entry {
            let [entry] = parse_kinfo(&self.0, NOW)[..] else { panic!("one row") };
            entry
        }
    }

    #[test]
    fn a_row_by_documented_offsets() {
        let entry = Bytes::new(4242, 883).one();
        assert_eq!(entry.row.id.pid.number(), 4242);
        assert_eq!(entry.row.id.start, Start(1_700_000_000_123_456), "microseconds, not whole seconds (C07)");
        assert_eq!((entry.row.ppid, entry.row.pgid, entry.row.tty), (883, 4242, 0));
        assert_eq!(entry.row.name(), b"node");
        assert_eq!((entry.real_uid, entry.effective_uid), (Uid(501), Uid(501)));
        assert_eq!(entry.tracer, None);
        assert_eq!(NOW.boot.since(entry.row.began), Duration::from_millis(99_877));
    }

    #[test]
    fn a_refused_row_is_kept_for_its_children_and_never_readable() {
        let mut bytes = Bytes::new(7, 0);
        bytes.set(0, &[0; 16]);
        assert!(!bytes.one().is_readable());
        assert!(Bytes::new(7, 0).one().is_readable());
    }

    #[test]
    fn a_tracer_is_not_a_parent() {
        let mut bytes = Bytes::new(4242, 900);
        bytes.set(32, &0x800_u32.to_le_bytes());
        bytes.set(44, &883_i32.to_le_bytes()); // p_oppid
        let entry = bytes.one();
        assert_eq!(entry.tracer, Pid::new(900));
        assert_eq!(entry.row.ppid, 883);
    }

    #[test]
    fn exiting_for_good_is_neither_gone_nor_running_c21() {
        let mut bytes = Bytes::new(4242, 1);
        bytes.set(32, &0x2000_u32.to_le_bytes());
        assert_eq!(bytes.one().row.state, State::Uninterruptible);
        assert!(!bytes.one().row.is_gone());
        bytes.set(36, &[5]);
        assert!(bytes.one().row.is_gone());
    }

    #[test]
    fn a_terminal_is_believed_from_either_side() {
        let mut bytes = Bytes::new(4242, 1);
        bytes.set(572, &0x1000_0003_i32.to_le_bytes());
        assert_eq!(bytes.one().row.tty, 0x1000_0003);
        bytes.set(572, &(-1_i32).to_le_bytes());
        bytes.set(612, &1_i32.to_le_bytes()); // e_flag: EPROC_CTTY
        assert_ne!(bytes.one().row.tty, 0);
    }

    #[test]
    fn sixteen_letters_without_end_do_not_run_over() {
        let mut bytes = Bytes::new(4242, 1);
        bytes.set(243, b"sixteen-letters!");
        assert_eq!(bytes.one().row.name(), b"sixteen-letters");
    }

    proptest! {
        #[test]
        fn hostile_tables_never_panic(table in proptest::collection::vec(any::<u8>(), 0..1400)) {
            let entries = parse_kinfo(&table, NOW);
            prop_assert!(entries.len() <= table.len() / ROW);
            prop_assert!(entries.iter().all(|entry| entry.row.id.pid.number() > 0));
        }
    }
}
