//! Remembers who carries which cookie, so that an unchanged process costs nothing; see [`super::super::arguments`].
//!
//! A remembered cookie only saves work: whoever may be ended has its environment read afresh with its other facts.

use std::collections::BTreeMap;

use bstr::BString;

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Arguments;
use crate::model::table::{ExecSignature, Row, Table};

/// Each entry is read again after this many looks at the latest.
const TURNS: u32 = 20;

/// What is remembered of one process.
#[derive(Debug, Clone)]
struct Entry {
    comm: [u8; 16],
    exec: ExecSignature,
    cookie: Known<Option<BString>>,
}

/// The cookies of the last look.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    entries: BTreeMap<ProcessId, Entry>,
    turn: u32,
}

impl Cookies {
    /// Brings the memory up to date with these processes, and returns who carries a cookie, or may carry one.
    ///
    /// `read` reads the cookies of many processes, in order.
    pub(super) fn refresh<'a>(
        &mut self,
        table: &Table,
        processes: impl Iterator<Item = &'a Arguments>,
        read: impl FnOnce(&[ProcessId]) -> Vec<Known<Option<BString>>>,
    ) -> BTreeMap<ProcessId, Known<BString>> {
        self.turn = self.turn.wrapping_add(1);
        let mut old = std::mem::take(&mut self.entries);
        let mut wanted = Vec::new();
        for process in processes {
            let Some(row) = table.get(process.id) else { continue };
            let due = row.id.pid.number().unsigned_abs() % TURNS == self.turn % TURNS;
            match old.remove(&process.id) {
                Some(entry) if !due && entry.is_of(row) => {
                    self.entries.insert(row.id, entry);
                    continue;
                }
                Some(_) | None => {}
            }
            let mut entry = Entry { comm: row.comm, exec: row.exec, cookie: Ok(None) };
            match &process.argv {
                // What hung a moment ago over its arguments would hang over its environment.
                Err(why) if why.reason == Reason::Hung => entry.cookie = Err(why.clone()),
                Ok(_) | Err(_) => wanted.push(row.id),
            }
            self.entries.insert(row.id, entry);
        }
        if !wanted.is_empty() {
            let mut cookies = read(&wanted).into_iter();
            for id in wanted {
                let unasked = || Err(Unknown::new(Reason::NotAsked, "its lease cookie"));
                let cookie = cookies.next().unwrap_or_else(unasked);
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.cookie = cookie;
                }
            }
        }
        let carriers = self.entries.iter().filter_map(|(id, entry)| match &entry.cookie {
            Ok(None) => None,
            Ok(Some(cookie)) => Some((*id, Ok(cookie.clone()))),
            // Who went meanwhile is not there to be covered.
            Err(why) if why.reason == Reason::Vanished => None,
            Err(why) => Some((*id, Err(why.clone()))),
        });
        carriers.collect()
    }
}

impl Entry {
    /// Says whether this was read of the same program, and may serve again. `arg_start` 0 is what the kernel shows
    /// of processes that we may not look into: an exec leaves no trace there.
    fn is_of(&self, row: &Row) -> bool {
        self.comm == row.comm && self.exec == row.exec && self.exec.arg_start != 0 && self.cookie.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{Pid, Start, Uid};
    use crate::model::table::plain_row;

    fn row(pid: i32, arg_start: u64) -> Row {
        let mut row = plain_row(Pid::new(pid).unwrap(), 1, Start(5));
        row.exec.arg_start = arg_start;
        row
    }

    fn arguments(rows: &[Row]) -> Vec<Arguments> {
        let entry = |row: &Row| Arguments { id: row.id, uid: Uid(7), argv: Ok(Vec::new().into()) };
        rows.iter().map(entry).collect()
    }

    /// Refreshes with a world in which pid 6 carries nothing and pid 7 is denied; returns whom it read.
    fn look(cookies: &mut Cookies, rows: &[Row]) -> (Vec<i32>, Vec<(i32, Option<String>)>) {
        let mut read = Vec::new();
        let found = cookies.refresh(&Table::new(rows.to_vec()), arguments(rows).iter(), |ids| {
            read.extend(ids.iter().map(|id| id.pid.number()));
            let cookie = |id: &ProcessId| match id.pid.number() {
                6 => Ok(None),
                7 => Err(Unknown::new(Reason::Denied, "its environment")),
                8 => Err(Unknown::new(Reason::Vanished, "its environment")),
                other => Ok(Some(BString::from(format!("c{other}")))),
            };
            ids.iter().map(cookie).collect()
        });
        let found = found.into_iter();
        (read, found.map(|(id, it)| (id.pid.number(), it.ok().map(|it| it.to_string()))).collect())
    }

    /// Takes the memory to a turn at which none of the pids in these tests is due.
    fn quiet() -> Cookies {
        Cookies { turn: 11, ..Cookies::default() }
    }

    #[test]
    fn an_unchanged_carrier_is_read_once_and_a_refusal_is_unknown() {
        let mut cookies = quiet();
        let rows = [row(5, 1), row(6, 1), row(7, 1), row(8, 1)];
        let (read, first) = look(&mut cookies, &rows);
        assert_eq!(read, [5, 6, 7, 8]);
        assert_eq!(first, [(5, Some("c5".to_owned())), (7, None)], "who vanished is left out");
        let (read, second) = look(&mut cookies, &rows);
        assert_eq!(read, [7, 8], "what was not read is read again");
        assert_eq!(first, second);
    }

    #[test]
    fn another_program_or_process_is_read_again() {
        let mut cookies = quiet();
        look(&mut cookies, &[row(5, 1), row(6, 1), row(9, 0)]);
        let mut reused = row(5, 1);
        reused.id.start = Start(6);
        assert_eq!(look(&mut cookies, &[reused, row(6, 2), row(9, 0)]).0, [5, 6, 9]);
    }

    #[test]
    fn everybody_is_read_again_within_twenty_looks() {
        let mut cookies = Cookies::default();
        look(&mut cookies, &[row(5, 1), row(6, 1)]);
        let mut times = BTreeMap::new();
        for _ in 0..TURNS {
            for pid in look(&mut cookies, &[row(5, 1), row(6, 1)]).0 {
                *times.entry(pid).or_insert(0) += 1;
            }
        }
        assert_eq!(times, [(5, 1), (6, 1)].into());
    }

    #[test]
    fn whose_arguments_hung_is_not_asked_for_its_environment_c17() {
        let rows = [row(5, 1)];
        let mut entries = arguments(&rows);
        entries[0].argv = Err(Unknown::new(Reason::Hung, "reading it"));
        let found = quiet().refresh(&Table::new(rows.to_vec()), entries.iter(), |_| panic!("asked"));
        assert_eq!(found[&rows[0].id].as_ref().unwrap_err().reason, Reason::Hung);
    }
}
