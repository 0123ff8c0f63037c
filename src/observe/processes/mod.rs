//! Picks the platform that reads processes: one folder or file each, with one and the same inner interface.
//!
//! The rest of `observe` uses these names and no others; each platform provides all of them.
//!
//! ```text
//! struct Scanner                                    // what is kept open between scans
//!   Scanner::open() -> Result<Scanner, ObserveError>
//!   Scanner::scan(&mut self, &mut Table) -> Result<u32, ObserveError>
//!                                                   // refills and indexes the table; who vanishes is left out,
//!                                                   // and how many are there but refused is returned
//!   Scanner::user(&self, id: ProcessId) -> Known<Uid>
//!                                                   // cheap and never hangs: asked for everybody once
//!
//! struct Pinned                                     // a handle that stays on one process, whoever gets its number
//!   Pinned::open(id: ProcessId) -> Known<Pinned>    // Vanished where the start is another
//!   Pinned::life(&self) -> Life
//!
//! fn arguments(id: ProcessId) -> Known<Vec<BString>>           // may hang: runs in the aside process
//! fn facts(id: ProcessId, env_names: &BTreeSet<BString>) -> Known<Facts>                  // the same
//! fn variable(id: ProcessId, name: &str) -> Known<Option<BString>>                         // the same
//! fn given(id: ProcessId, user: Uid) -> Known<Option<Vec<u8>>>                             // the same
//! fn path(of: ProcessId, path: &BStr) -> Known<PathAnswer>                                // the same
//! fn bound(of: ProcessId, path: &BStr, file: FileId) -> Known<Binding>                     // the same
//! fn owner(of: ProcessId, pid: Pid) -> Known<Owner>                                       // the same
//! fn bearer(pid: Pid) -> Known<Option<Row>>          // who bears a number in our pid namespace, if anybody does
//! fn activity(id: ProcessId) -> Known<Activity>                                           // the same
//!
//! fn boot_id() -> Result<BootId, ObserveError>
//! fn own(scope: Scope, home: Option<BString>) -> Own
//! fn clocks() -> Clocks
//! fn gaps() -> Vec<Gap>                             // what this machine hides from us
//! fn is_blind(table: &Table) -> Known<bool>         // whether there may be some that the table cannot show
//! fn is_outermost() -> Known<bool>                  // Linux: whether everybody of the host has a number here
//! fn file_system(held: &OwnedFd) -> Known<FileSystem> // Linux
//! fn prepare_aside()                                // called once by the aside process: die with the parent
//!
//! // Linux only, for pings and for who still uses what was left:
//! fn at_rest(id: ProcessId) -> Known<()>            // every thread sleeps, and nobody holds it up
//! fn progress(tree: &[ProcessId]) -> Known<Progress>
//! fn way(of: ProcessId) -> Known<Way>               // its root directory, and whose it is
//! fn unknown(errno: Errno, what) -> Unknown         // why a read of a process failed
//!
//! // Linux only, for containers and the clients of engines:
//! fn cgroups(of: ProcessId) -> Known<Vec<u8>>
//! fn numbers(of: ProcessId) -> Known<Vec<i32>>      // in each pid namespace, from ours down to its own
//! fn working_directory(of: ProcessId) -> Known<BString>
//! fn short_text(of: ProcessId, path: &BStr, most: usize) -> Known<Vec<u8>>                // may hang
//! fn within_network(of: ProcessId, look) -> Known<T>  // in the aside process alone
//!
//! // macOS only; on Linux these need a dump of all sockets and are in `stdio` and `sockets`:
//! fn channel(of: ProcessId, fd: u32) -> Known<Channel>
//! fn holders(of: ProcessId, fd: u32) -> Known<Holders>
//! fn sockets(of: ProcessId) -> Known<Sockets>
//! fn terminals(of: ProcessId) -> Known<Vec<i32>>
//! ```

#[cfg(target_os = "linux")]
mod linux;
// Its parsers name no Apple type and are tested everywhere.
#[cfg(any(target_os = "macos", test))]
mod macos;

#[cfg(target_os = "linux")]
pub(super) use linux::{
    Pinned, Scanner, Way, activity, arguments, at_rest, bearer, boot_id, bound, cgroups, clocks, facts,
    file_system, gaps, given, is_blind, is_outermost, numbers, own, owner, path, prepare_aside, progress,
    short_text, unknown, variable, way, within_network, working_directory,
};
#[cfg(target_os = "macos")]
pub(super) use macos::{
    Pinned, Scanner, activity, arguments, bearer, boot_id, bound, channel, clocks, facts, gaps, given,
    holders, is_blind, own, owner, path, prepare_aside, sockets, terminals, variable,
};
