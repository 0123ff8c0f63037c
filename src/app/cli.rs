//! The command line: what may be asked of reapd.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
    /// Say why a process would be reaped or kept, or what became of one that is gone.
    Why {
        /// The process number.
        pid: i32,
    },
    /// Print what was done, newest last.
    Log {
        /// Print only the last N teardowns.
        #[arg(short = 'n', value_name = "N", default_value_t = 50)]
        count: usize,
    },
    /// Never touch a process with what is below it, or whatever stands in a directory; list or take back such marks.
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
        /// A cause as `reapd held` shows it (a mount point, registry:NAME, clock) or a process number.
        what: String,
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
    /// List every tree.
    #[arg(long)]
    pub all: bool,
}

/// `reapd keep`.
#[derive(Debug, Clone, Default, Args)]
pub struct Keep {
    /// A process number, or a directory; without it, the list is printed.
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
