//! Says why a policy does not match a process: the first argument that does not fit, in the form that fits best.
//!
//! For `reapd why` only. Whether a policy matches is for judge to say; this explains a "no".

use bstr::{BStr, BString, ByteSlice as _};

use super::legible;
use crate::config::policy::{Argument, ArgumentsShown, Glob, Match, Policy};
use crate::config::{program_name, written_out};

/// How far a form was fitting, and where it stopped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Misfit {
    /// Arguments that fitted; forms whose very program is another come last.
    fitted: usize,
    why: String,
}

/// Returns why none of the policy's forms fits, or nothing where one does as far as this can tell.
pub fn mismatch(policy: &Policy, argv: &[BString], exe: Option<&BStr>) -> Option<String> {
    let argv = written_out(argv);
    let mut best: Option<Misfit> = None;
    for form in &policy.matches {
        let misfit = misfit(form, &argv, exe)?;
        if best.as_ref().is_none_or(|best| misfit.fitted > best.fitted) {
            best = Some(misfit);
        }
    }
    Some(best.map_or_else(|| "it matches nobody".to_owned(), |best| best.why))
}

fn misfit(form: &Match, argv: &[BString], exe: Option<&BStr>) -> Option<Misfit> {
    match form {
        Match::McpConfigured => {
            Some(Misfit { fitted: 0, why: "it is no server of your MCP configuration files".to_owned() })
        }
        Match::Leased => Some(Misfit { fitted: 0, why: "no lease covers it".to_owned() }),
        Match::Roots(globs) => {
            Some(Misfit { fitted: 0, why: format!("it does not stand below {}", any_of(globs)) })
        }
        Match::Shape { programs, args } => shape(programs, args.as_deref(), argv, exe),
    }
}

fn shape(
    programs: &[Glob],
    args: Option<&[Argument]>,
    argv: &[BString],
    exe: Option<&BStr>,
) -> Option<Misfit> {
    let called = argv.first().map(|argv0| program_name(argv0.as_bstr()));
    let is = exe.map(program_name);
    let fits = |name: Option<&BStr>| name.is_some_and(|name| programs.iter().any(|glob| glob.fits(name)));
    if !fits(called) && !fits(is) {
        let name = called.or(is).map_or_else(|| "?".to_owned(), |name| crate::model::escape::escape(name));
        return Some(Misfit {
            fitted: 0,
            why: format!("its program is \"{name}\", not {}", any_of(programs)),
        });
    }
    let arguments = argv.get(1..).unwrap_or_default();
    let stop = furthest(args?, arguments)?;
    let shown = legible::argv(arguments, ArgumentsShown::Redacted);
    let why = match (shown.get(stop.at), stop.wanted) {
        (Some(argument), Some(glob)) => {
            format!("argument {} is \"{argument}\", not \"{}\"", stop.at + 1, glob.text)
        }
        (Some(argument), None) => format!("argument {} is \"{argument}\", where none should be", stop.at + 1),
        (None, Some(glob)) => {
            format!("it has no argument {}, which should be \"{}\"", stop.at + 1, glob.text)
        }
        (None, None) => "its arguments do not fit".to_owned(),
    };
    Some(Misfit { fitted: stop.at + 1, why })
}

/// Where a pattern stopped fitting: at which argument, and what it wanted there (nothing: the end).
#[derive(Debug, Clone, Copy)]
struct Stop<'a> {
    at: usize,
    part: usize,
    wanted: Option<&'a Glob>,
}

/// Returns the furthest place at which the pattern stopped, or nothing where it fits.
fn furthest<'a>(pattern: &'a [Argument], arguments: &[BString]) -> Option<Stop<'a>> {
    let mut best: Option<Stop<'a>> = None;
    // All pairs of places that can be reached, each once: no pattern makes this take long.
    let mut reached = std::collections::BTreeSet::from([(0_usize, 0_usize)]);
    let mut todo = vec![(0_usize, 0_usize)];
    while let Some((part, at)) = todo.pop() {
        let mut go = |next: (usize, usize)| {
            if reached.insert(next) {
                todo.push(next);
            }
        };
        let wanted = match (pattern.get(part), arguments.get(at)) {
            (None, None) => return None,
            (Some(Argument::Any), rest) => {
                go((part + 1, at));
                if rest.is_some() {
                    go((part, at + 1));
                }
                continue;
            }
            (Some(Argument::One(glob)), Some(argument)) if glob.fits(argument.as_bstr()) => {
                go((part + 1, at + 1));
                continue;
            }
            (Some(Argument::One(glob)), _) => Some(glob),
            (None, Some(_)) => None,
        };
        let stop = Stop { at, part, wanted };
        // "..." may swallow everything up to the end, which tells least; and of two stops at one argument the one
        // further into the pattern tells more.
        let end = arguments.len();
        let worth = |stop: &Stop<'_>| (stop.at < end, stop.at, stop.part);
        let better = |best: &Stop<'_>| worth(&stop) > worth(best);
        if best.as_ref().is_none_or(better) {
            best = Some(stop);
        }
    }
    best
}

fn any_of(globs: &[Glob]) -> String {
    let quoted: Vec<String> = globs.iter().map(|glob| format!("\"{}\"", glob.text)).collect();
    quoted.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    fn policy(program: &str, args: &[&str]) -> Policy {
        let glob = |text: &str| Glob::parse(text).unwrap();
        let args = args
            .iter()
            .map(|&text| if text == "..." { Argument::Any } else { Argument::One(glob(text)) })
            .collect();
        let form = Match::Shape { programs: vec![glob(program)], args: Some(args) };
        Policy { matches: vec![form], ..sample::policy("p") }
    }

    fn why(policy: &Policy, argv: &[&str]) -> Option<String> {
        let argv: Vec<BString> = argv.iter().map(|&word| word.into()).collect();
        mismatch(policy, &argv, None)
    }

    #[test]
    fn the_first_argument_that_does_not_fit_is_named() {
        let broker = policy("node", &["**/broker.mjs", "serve", "..."]);
        assert_eq!(why(&broker, &["/usr/bin/node", "/x/broker.mjs", "serve", "--cwd", "/w"]), None);
        insta::assert_snapshot!(why(&broker, &["node", "context7-mcp"]).unwrap(), @r#"argument 1 is "context7-mcp", not "**/broker.mjs""#);
        insta::assert_snapshot!(why(&broker, &["python3", "/x/broker.mjs"]).unwrap(), @r#"its program is "python3", not "node""#);
        insta::assert_snapshot!(why(&broker, &["node", "/x/broker.mjs"]).unwrap(), @r#"it has no argument 2, which should be "serve""#);
        insta::assert_snapshot!(why(&policy("node", &["a"]), &["node", "a", "b"]).unwrap(), @r#"argument 2 is "b", where none should be"#);
        insta::assert_snapshot!(why(&policy("node", &["...", "serve", "x"]), &["node", "q", "serve", "y"]).unwrap(), @r#"argument 3 is "y", not "x""#);
    }

    #[test]
    fn secrets_do_not_get_out_this_way_either() {
        let text = why(&policy("node", &["--token", "x"]), &["node", "--token", "t0p"]).unwrap();
        assert!(!text.contains("t0p"), "{text}");
    }

    #[test]
    fn many_ellipses_take_no_time() {
        let wild = policy("node", &["...", "a", "...", "b", "...", "c", "...", "d", "...", "e"]);
        let argv = vec!["node"; 400];
        assert!(why(&wild, &argv).is_some());
    }
}
