//! Parses `/proc/PID/stat` by hand, straight into a table row, without an allocation.
//!
//! Field numbers are those of proc_pid_stat(5).

use std::time::Duration;

use crate::model::id::{Pid, ProcessId, Start};
use crate::model::moment::Moment;
use crate::model::table::{ExecSignature, Kernel, Row, State};

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`: stable since Linux 2.6.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What the kernel's numbers are counted in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Units {
    nanos_per_tick: u64,
    page: u64,
}

impl Units {
    /// Returns the units of the running kernel.
    pub(super) fn of_this_kernel() -> Units {
        Units::new(rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64)
    }

    fn new(ticks: u64, page: u64) -> Units {
        Units { nanos_per_tick: 1_000_000_000 / ticks.max(1), page }
    }
}

/// Returns the row that `text` describes, or nothing where it is not a whole `stat` line.
///
/// The command name may hold anything, blanks, parentheses and line feeds included: it ends at the *last* `)`.
pub(super) fn parse(text: &[u8], units: Units) -> Option<Row> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = text.get(open + 1..close)?;
    let pid = Pid::new(i32::try_from(number(text.get(..open)?.trim_ascii())?).ok()?)?;
    let mut fields = Fields { rest: text.get(close + 2..)?, next: 3 };
    let state = State::of_letter(*fields.field(3)?.first()?);
    let ppid = fields.signed(4)?;
    let pgid = fields.signed(5)?;
    let sid = fields.signed(6)?;
    let tty = fields.signed(7)?;
    let flags = fields.unsigned(9)?;
    let ticks = fields.unsigned(14)?.saturating_add(fields.unsigned(15)?);
    let threads = u32::try_from(fields.unsigned(20)?).ok()?;
    let start = fields.unsigned(22)?;
    let pages = fields.unsigned(24).unwrap_or(0);
    let exec = ExecSignature {
        start_stack: fields.unsigned(28)?,
        arg_start: fields.unsigned(48)?,
        arg_end: fields.unsigned(49)?,
        env_start: fields.unsigned(50)?,
    };
    let mut comm = [0; 16];
    // Workers of the kernel have longer names than the 15 bytes an ordinary process can bear.
    let length = name.len().min(15);
    comm[..length].copy_from_slice(&name[..length]);
    Some(Row {
        id: ProcessId { pid, start: Start(start) },
        ppid,
        pgid: pgid.max(0),
        sid: sid.max(0),
        state,
        kernel: if flags & KERNEL_THREAD == 0 { Kernel::No } else { Kernel::Thread },
        tty,
        threads,
        cpu: Duration::from_nanos(ticks.saturating_mul(units.nanos_per_tick)),
        resident: pages.saturating_mul(units.page),
        // The kernel shows the start in the *reader's* time namespace (time_namespaces(7)), as it does our boot
        // clock: ages come out right within one reader, and starts of two readers may not compare.
        began: Moment(start.saturating_mul(units.nanos_per_tick)),
        comm,
        exec,
    })
}

/// Walks the blank-separated fields behind the command name.
struct Fields<'a> {
    rest: &'a [u8],
    next: u8,
}

impl<'a> Fields<'a> {
    /// Returns a field by its number in the manual page; numbers must be asked in ascending order.
    fn field(&mut self, wanted: u8) -> Option<&'a [u8]> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let end = self.rest.iter().position(|&byte| byte == b' ').unwrap_or(self.rest.len());
            let field = &self.rest[..end];
            self.rest = self.rest.get(end + 1..).unwrap_or(&[]);
            self.next += 1;
            if self.next > wanted {
                return Some(field);
            }
        }
    }

    fn unsigned(&mut self, wanted: u8) -> Option<u64> {
        number(self.field(wanted)?)
    }

    fn signed(&mut self, wanted: u8) -> Option<i32> {
        let field = self.field(wanted)?;
        match field.strip_prefix(b"-") {
            Some(digits) => i32::try_from(number(digits)?).ok().map(|number| -number),
            None => i32::try_from(number(field)?).ok(),
        }
    }
}

/// Returns a decimal number that fills all of `digits`, a final line feed apart.
fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_suffix(b"\n").unwrap_or(digits);
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNITS: Units = Units { nanos_per_tick: 10_000_000, page: 4096 };

    fn line(comm: &[u8]) -> Vec<u8> {
        let mut text = b"4242 (".to_vec();
        text.extend_from_slice(comm);
        text.extend_from_slice(
            b") S 1 4240 4200 34816 -1 4194304 100 0 0 0 7 5 0 0 20 0 3 0 123456 9000000 250 \
              18446744073709551615 1 2 140736000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 11 12 13 500 600 700 800 0\n",
        );
        text
    }

    #[test]
    fn every_field_lands_where_it_belongs() {
        let row = parse(&line(b"node"), UNITS).unwrap();
        assert_eq!(row.id, ProcessId { pid: Pid::new(4242).unwrap(), start: Start(123_456) });
        assert_eq!((row.ppid, row.pgid, row.sid, row.tty), (1, 4240, 4200, 34816));
        assert_eq!((row.state, row.kernel, row.threads), (State::Sleeping, Kernel::No, 3));
        assert_eq!(row.cpu, Duration::from_millis(120));
        assert_eq!(row.resident, 250 * 4096);
        assert_eq!(row.began, Moment(1_234_560_000_000));
        assert_eq!(row.name(), b"node");
        let exec = ExecSignature { start_stack: 140_736_000, arg_start: 500, arg_end: 600, env_start: 700 };
        assert_eq!(row.exec, exec);
    }

    #[test]
    fn a_name_ends_at_the_last_parenthesis() {
        for name in [&b"a) R 1 (b"[..], b"x y", b"new\nline", b"\xff\xfe)", b"", b"((", b") Z 0 0"] {
            let row = parse(&line(name), UNITS).unwrap();
            assert_eq!(row.name(), name);
            assert_eq!(row.ppid, 1);
            assert_eq!(row.state, State::Sleeping);
        }
    }

    #[test]
    fn kernel_threads_are_told_by_their_flag() {
        let text = String::from_utf8(line(b"kthreadd")).unwrap().replace(" 4194304 ", " 2129984 ");
        assert_eq!(parse(text.as_bytes(), UNITS).unwrap().kernel, Kernel::Thread);
    }

    #[test]
    fn a_cut_line_is_no_row() {
        let whole = line(b"node");
        let needed = whole.len() - b"00 800 0\n".len();
        for end in 0..needed - 3 {
            assert!(parse(&whole[..end], UNITS).is_none(), "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn no_name_shifts_a_field(name in proptest::collection::vec(1_u8.., 0..16)) {
            let row = parse(&line(&name), UNITS).unwrap();
            prop_assert_eq!(row.id.start, Start(123_456));
            prop_assert_eq!(row.exec.env_start, 700);
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes, UNITS);
        }
    }
}
