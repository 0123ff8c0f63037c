//! The command line: what may be asked of reapd.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::policy::StdinReader;

/// Ends process trees that have provably lost their owner, and nothing else.
#[derive(Debug, Parser)]
#[command(name = "reapd", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// Where things are.
    #[command(flatten)]
    pub place: Place,
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done · 1 with --exit-code, when orphans were found · \
     2 usage or configuration · 3 some steps failed, or what was asked for is not there · \
     130 interrupted before the first signal";

/// Options that every command knows.
#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// Read this configuration instead of ~/.config/reapd/config.toml (or $REAPD_CONFIG).
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Keep ledger, journal and keep list in this directory.
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// Look at everybody's processes; only as root.
    #[arg(long, global = true)]
    pub host: bool,
    /// Print JSON, errors included; docs/json.md describes it.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find orphaned trees and, when you say yes, tear them down.
    Sweep(Sweep),
    /// Say why a process or a container would be reaped or kept, or what became of one that is gone.
    Why {
        /// A process number, or a container's name, id, or at least four digits of its id.
        what: String,
    },
    /// Print what was done, newest last.
    Log {
        /// Print only the last N teardowns, the last N containers and the last N removals.
        #[arg(short = 'n', value_name = "N", default_value_t = 50)]
        count: usize,
    },
    /// Never touch a process with what is below it, a container, or whatever stands in a directory; list or take back
    /// such marks.
    Keep(Keep),
    /// List policies, print one as TOML, or set what a built-in one may do.
    Policies {
        /// Print this policy as TOML.
        name: Option<String>,
        /// Set a built-in policy's mode (reap, report or off) in your configuration file.
        #[arg(long, value_name = "NAME=MODE", conflicts_with = "name")]
        set: Option<String>,
    },
    /// List the rules, or print what one of them means.
    Rules {
        /// The rule to explain.
        name: Option<String>,
    },
    /// Check a configuration file and show each fault where it stands.
    Check {
        /// The file; yours when left out.
        file: Option<PathBuf>,
    },
    /// List what is proven but held back, and by what.
    Held,
    /// Let the next sweep have what is held.
    Release {
        /// A cause as `reapd held` shows it (a mount point, registry:NAME, engine:SOCKET, clock), a process number, or a
        /// container.
        what: String,
    },
    /// Leases: say who owns what no look from outside can tell, for scripts and hooks.
    Lease {
        /// What is to be done.
        #[command(subcommand)]
        command: Lease,
    },
    /// Run a command and end everything that it leaves behind.
    Run(Run),
    /// Ends what one lease covers, once it is over; started by `reapd run`, not for people.
    #[command(hide = true)]
    Finish {
        /// The lease.
        id: String,
    },
    /// Look once and save what was seen.
    Observe {
        /// The file to write.
        #[arg(long, value_name = "FILE")]
        save: PathBuf,
    },
    /// Answers what may hang, for another reapd; not for people.
    #[command(hide = true)]
    Aside,
    /// Says what the standard inputs of these processes are, in a container; not for people.
    #[command(hide = true)]
    Stdin {
        /// The processes, PID:START each
        asked: Vec<String>,
    },
}

/// `reapd sweep`.
#[derive(Debug, Clone, Default, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line, turned into enums at once"
)]
pub struct Sweep {
    /// Show what would be done; touch and write nothing.
    #[arg(long, conflicts_with_all = ["once", "yes"])]
    pub dry_run: bool,
    /// Look once and count on what earlier runs saw, for timers; paced by trees-per-sweep.
    #[arg(long)]
    pub once: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Only what this policy finds.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Exit with 1 when orphans were found.
    #[arg(long)]
    pub exit_code: bool,
    /// List every tree and every container.
    #[arg(long)]
    pub all: bool,
    /// Who reads whether a container's stdin has ended, in the place of `[docker] stdin`: helper starts one privileged
    /// container for that and removes it.
    #[arg(long, value_name = "READER")]
    pub docker_stdin: Option<DockerStdin>,
}

/// `--docker-stdin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DockerStdin {
    /// A helper container, where the kernel does not let us.
    Helper,
    /// We ourselves, as far as the kernel lets us.
    Auto,
    /// Nobody.
    Off,
}

impl From<DockerStdin> for StdinReader {
    fn from(given: DockerStdin) -> StdinReader {
        match given {
            DockerStdin::Helper => StdinReader::Helper,
            DockerStdin::Auto => StdinReader::Auto,
            DockerStdin::Off => StdinReader::Off,
        }
    }
}

/// `reapd keep`.
#[derive(Debug, Clone, Default, Args)]
pub struct Keep {
    /// A process number, a directory, or a container's name or id; without it, the list is printed.
    #[arg(conflicts_with = "remove")]
    pub what: Option<String>,
    /// For how long, e.g. 2d; for good when left out.
    #[arg(long = "for", value_name = "SPAN", requires = "what")]
    pub span: Option<String>,
    /// Why, for whoever reads the list.
    #[arg(long, value_name = "TEXT", requires = "what")]
    pub note: Option<String>,
    /// Take back the mark with this number in the list.
    #[arg(long, value_name = "N")]
    pub remove: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_dry_run_takes_no_yes() {
        assert!(Cli::try_parse_from(["reapd", "sweep", "--dry-run", "--yes"]).is_err());
        assert!(Cli::try_parse_from(["reapd", "sweep", "--once", "--yes"]).is_ok());
    }
}

/// `reapd lease`.
#[derive(Debug, Clone, Subcommand)]
pub enum Lease {
    /// Make a lease and print its id, and nothing else.
    Acquire(Acquire),
    /// Say that a lease is still wanted, as touching its file does.
    Renew {
        /// The lease.
        id: String,
    },
    /// Say that a lease is over; what it covers goes at the next sweep, or at once with --wait.
    Release {
        /// The lease.
        id: String,
        /// Return only when everything that it covered was seen gone, or after this long with exit code 3.
        #[arg(long, value_name = "SPAN")]
        wait: Option<String>,
    },
    /// Say who holds what, what it covers, and its state.
    List,
    /// Check a lease file and say what is wrong with it.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Record a session of an agent, from the agent's own hook; prints nothing and always succeeds.
    Hook {
        /// The agent: claude-code.
        agent: String,
        /// Have the session's shell commands carry the lease, where the agent offers a file for that.
        #[arg(long)]
        export: bool,
    },
}

/// `reapd lease acquire`.
#[derive(Debug, Clone, Default, Args)]
#[command(group = clap::ArgGroup::new("bound").required(true).multiple(true).args(["holder", "ttl"]))]
pub struct Acquire {
    /// The process that the lease lives and dies with. There is no default: a script's own shell is $$.
    #[arg(long, value_name = "PID")]
    pub holder: Option<i32>,
    /// It also ends when nobody renewed it for so long (touching its file renews it).
    #[arg(long, value_name = "SPAN")]
    pub ttl: Option<String>,
    /// The id; a random one when left out.
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Cover this process, and what is below it, besides whoever carries REAPD_LEASE=ID. May be given again.
    #[arg(long = "pid", value_name = "PID")]
    pub pids: Vec<i32>,
    /// A word for policies to capture. May be given again.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// What it is for, for whoever reads the list.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `reapd run`.
#[derive(Debug, Clone, Default, Args)]
pub struct Run {
    /// Also end it when it moved no byte for so long.
    #[arg(long, value_name = "SPAN")]
    pub idle: Option<String>,
    /// What becomes of what the command leaves behind: reap or report.
    #[arg(long, value_name = "WHAT", default_value = "reap")]
    pub leftovers: String,
    /// Also end it when this process is dead; the caller when left out, and stdin is no pipe.
    #[arg(long, value_name = "PID")]
    pub holder: Option<i32>,
    /// Write the lease and become the command; sweeps do the rest.
    #[arg(long)]
    pub exec: bool,
    /// A word for policies to capture. May be given again.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Say on stderr what is done.
    #[arg(short, long)]
    pub verbose: bool,
    /// The command and its arguments; after `--`, or from the first word that is no flag.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}
