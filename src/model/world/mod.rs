//! The world format: one text for what was seen of a host, in one look or in several.
//!
//! Rule tests and scenario tests are written in it by hand, and `reapd observe --save` writes it from a real host.
//! It is made of lines; `#` opens a remark; a word with white space or strange bytes in it stands in `"quotes"`.
//!
//! ```text
//! reapd world 1
//! look at 10d uid=1000 home=/home/ana       # the boot clock, and who looks
//!   pid  ppid began command                 # any of: pid ppid pgid sid began start uid tty state threads cpu
//!   1    0    10d   init                    #         rss kernel exec comm, and command at the end
//!   4242 1    3d    node broker.mjs serve --cwd /home/ana/wt
//!   4243 4242 3d    codex app-server
//!   facts 4242 cwd=/home/ana/wt fate=deleted
//!   path 4242 /home/ana/wt absent           # parent= parent-file= mount= on=
//!   stdin 4243 pipe held by=4242            # also stdout, stderr, and channel PID FD
//!   listens 4242 unix /tmp/cxc-Ab/broker.sock
//!   client 4242 unix /tmp/cxc-Ab/broker.sock peer=inode/77
//!   owner 4242 883 absent
//!   terminals 900 pts/3                     # whose master side it holds; none by default
//!   facts 4243 ?denied                      # any question can be unknown, and so can any single fact
//!   lease gw-1 holder=4242 start=here env=gw-1 age=61s label.session=x
//!   cookie 4243 gw-1                        # its REAPD_LEASE, looked for and found; or ?denied
//!   faulty-lease n-81 ?unsupported:"line 1, column 9: expected value"
//!   registered 4242 nodes /run/nodes/*.json 77 others=3
//!   bound 4242 /tmp/s 42:7 absent           # also here, renamed=NAME, replaced=socket, directory-absent
//!   named 4242 /tmp/s 4243 census=whole     # who carries the text
//!   ping 4242 mine /tmp/s 4242,4243 5000 lines send=hi expect=ok silent=5000
//! look after 10s as before                  # only what changed
//!   gone 4243
//!   lease gw-1 holder=4242 start=here env=gw-1 released="session end"
//!   no-lease n-81
//! ```
//!
//! A word `?reason` or `?reason:"what was read"` stands wherever something is not known; `-` stands for the default.
//!
//! `lease ID` says any of: `bound=holder|ttl` (by default what `ttl=30s` or `holder=PID` means), `covers=PID,PID`,
//! `env=TEXT`, `label.NAME=TEXT` (`label-name=TEXT label-value=TEXT` where the name is no plain word), `note=TEXT`,
//! `released` or `released=WHY`; of its file `owner=UID file=DEVICE:INODE modified=NANOSECONDS` (the looking user's,
//! made from the name, 0); of its holder, after `holder=PID` and none of it by default, `start=STAMP|here boot=ID
//! pidns=INODE timens=INODE host=NAME age=SPAN`; of `reapd run`, `watcher=PID command=PID leftovers=reap|report
//! channel=stdio|none`. `start=here` is whoever bears the number at this look. Saying a lease again replaces it whole;
//! `no-lease ID [owner=UID]` and `no-cookie PID` end what `as before` carried on, and a cookie goes with its process.
//! In a world written by hand a cookie stands in the facts' environment too. A registry's answer is `listed` (with
//! what it says of a holder), `over=WHY`, `others=NUMBER` or `?reason`; of a server, PLACE is `-`.
//!
//! A world written by hand says only what is not boring. What it leaves out about a process is what a quiet live
//! daemon would show: facts readable, standing linked in `/`, nobody tracing, standard streams on `/dev/null`,
//! no sockets. None of these defaults is a sign of loss. What has no harmless default (paths, holders, activity)
//! stays unanswered. A world that begins with `reapd world 1 strict` has no defaults at all: saved worlds are
//! strict.

mod anonymise;
mod answers;
mod defaults;
mod leases;
mod parse;
mod print;
mod rows;
mod served;
mod terms;
mod words;

pub use anonymise::{Anonymiser, anonymise};
pub use defaults::answer;
pub use parse::{World, parse, parse_world};
pub use print::{print, print_all};

/// What is wrong with a world, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct WorldError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it, for a person; a lowercase fragment.
    pub message: String,
}

/// Whether a world leaves things out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// What is left out has a boring default.
    Boring,
    /// Nothing is left out: what is not answered was not asked.
    Strict,
}

#[cfg(test)]
mod tests;
