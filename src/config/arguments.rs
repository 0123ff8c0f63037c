//! Whether an argument vector fits a pattern, element by element; never a joined command line, whose name patterns
//! have killed editors and browsers (B10).

use std::borrow::Cow;

use bstr::{BStr, BString, ByteSlice as _};

use super::policy::{Argument, Glob};

/// Returns the name of a program by its `argv[0]` or its path: the last path element, without the dash of a login
/// shell.
pub fn program_name(argv0: &BStr) -> &BStr {
    let name = argv0.rfind_byte(b'/').map_or(argv0, |at| argv0[at + 1..].as_bstr());
    name.strip_prefix(b"-").unwrap_or(name).as_bstr()
}

/// Says whether a process of this executable and argument vector has the shape: one of `programs` fits the
/// executable's file name or `argv[0]`'s, and the rest fits `args`.
///
/// The vector is taken as [`written_out`] has it.
pub fn fits_shape(
    programs: &[Glob],
    args: Option<&[Argument]>,
    executable: Option<&BStr>,
    argv: &[BString],
) -> bool {
    let argv = written_out(argv);
    let named = |name: &BStr| programs.iter().any(|glob| glob.fits(program_name(name)));
    let by_name = argv.first().is_some_and(|argv0| named(argv0.as_bstr())) || executable.is_some_and(named);
    by_name && args.is_none_or(|args| fits_arguments(args, argv.get(1..).unwrap_or_default()))
}

/// Returns an argument vector with npm's own title undone.
///
/// npm(1) sets `process.title` to `npm exec @scope/pkg --stdio`: `argv[0]` then holds all of it and the old elements
/// are left as empty ones. Only this title is undone, and only when nothing but empty elements follows: other
/// programs' titles are no argument vectors.
pub fn written_out(argv: &[BString]) -> Cow<'_, [BString]> {
    match argv.split_first() {
        Some((title, rest)) if title.starts_with(b"npm ") && rest.iter().all(|arg| arg.is_empty()) => {
            Cow::Owned(title.split_str(" ").filter(|word| !word.is_empty()).map(BString::from).collect())
        }
        _ => Cow::Borrowed(argv),
    }
}

/// Says whether the arguments after `argv[0]` fit, one by one.
///
/// Takes pattern × vector steps at most: after a `"..."` fails to lead on, only the last one is tried further.
pub fn fits_arguments(pattern: &[Argument], argv_after_0: &[BString]) -> bool {
    let mut here = (0, 0);
    let mut last_any: Option<(usize, usize)> = None;
    loop {
        let (want, got) = here;
        match (pattern.get(want), argv_after_0.get(got)) {
            (None, None) => return true,
            (Some(Argument::Any), _) => {
                last_any = Some((want + 1, got));
                here = (want + 1, got);
                continue;
            }
            (Some(Argument::One(glob)), Some(argument)) if glob.fits(argument.as_bstr()) => {
                here = (want + 1, got + 1);
                continue;
            }
            _ => {}
        }
        match last_any {
            Some((after, from)) if from < argv_after_0.len() => {
                last_any = Some((after, from + 1));
                here = (after, from + 1);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn args(words: &[&str]) -> Vec<Argument> {
        words
            .iter()
            .map(
                |word| if *word == "..." { Argument::Any } else { Argument::One(Glob::parse(word).unwrap()) },
            )
            .collect()
    }

    fn argv(words: &[&str]) -> Vec<BString> {
        words.iter().map(|word| BString::from(*word)).collect()
    }

    #[track_caller]
    fn check(pattern: &[&str], fits: &[&[&str]], not: &[&[&str]]) {
        for words in fits {
            assert!(fits_arguments(&args(pattern), &argv(words)), "{pattern:?} should fit {words:?}");
        }
        for words in not {
            assert!(!fits_arguments(&args(pattern), &argv(words)), "{pattern:?} should not fit {words:?}");
        }
    }

    #[test]
    fn one_by_one() {
        check(&[], &[&[]], &[&["a"], &[""]]);
        check(&["..."], &[&[], &["a", "b"]], &[]);
        check(&["a", "..."], &[&["a"], &["a", "b"]], &[&["b", "a"], &[]]);
        check(&["...", "a"], &[&["a"], &["a", "a"], &["b", "a"]], &[&["a", "b"]]);
        check(&["...", "a", "b", "...", "c"], &[&["a", "a", "b", "c"]], &[&["a", "c", "b"], &["a", "b"]]);
        check(&["serve"], &[&["serve"]], &[&["serve", ""], &["observer"]]);
    }

    #[test]
    fn a_name_in_an_argument_is_not_the_program_b10() {
        let editor = argv(&["/usr/bin/vim", "notes about node server.mjs"]);
        let programs = [Glob::parse("node").unwrap()];
        assert!(!fits_shape(&programs, None, Some(BStr::new("/usr/bin/vim.basic")), &editor));
        assert!(!fits_shape(&programs, Some(&args(&["**server.mjs"])), None, &editor));
    }

    #[test]
    fn the_program_by_executable_or_by_name() {
        let programs = [Glob::parse("node").unwrap()];
        assert!(fits_shape(&programs, None, Some(BStr::new("/opt/node")), &argv(&["claude", ""])));
        assert!(fits_shape(&programs, None, None, &argv(&["/opt/bin/node", "x"])));
        assert!(!fits_shape(&programs, None, Some(BStr::new("/opt/node/bun")), &argv(&["bun"])));
        assert!(!fits_shape(&programs, None, None, &[]));
        assert_eq!(program_name(BStr::new("-zsh")), "zsh");
        assert_eq!(program_name(BStr::new("/a/b/")), "");
    }

    #[test]
    fn the_title_that_npm_gives_itself_a01() {
        let programs = [Glob::parse("npm").unwrap()];
        let pattern = args(&["exec", "@acme/mcp-x", "..."]);
        let titled = argv(&["npm exec @acme/mcp-x --stdio", "", "", ""]);
        let node = Some(BStr::new("/usr/bin/node"));
        assert!(fits_shape(&programs, Some(&pattern), node, &titled));
        assert!(!fits_shape(&programs, Some(&pattern), node, &argv(&["npm exec @acme/mcp-x", "more"])));
        assert!(!fits_shape(&programs, Some(&pattern), node, &argv(&["other exec @acme/mcp-x", ""])));
    }

    #[test]
    fn many_dots_stay_cheap() {
        let pattern = args(&["...", "a"].repeat(200));
        assert!(!fits_arguments(&pattern, &argv(&vec!["a"; 199])));
        assert!(fits_arguments(&pattern, &argv(&vec!["a"; 2000])));
    }

    fn naive(pattern: &[Argument], argv: &[BString]) -> bool {
        match pattern.split_first() {
            None => argv.is_empty(),
            Some((Argument::Any, rest)) => (0..=argv.len()).any(|from| naive(rest, &argv[from..])),
            Some((Argument::One(glob), rest)) => {
                argv.split_first().is_some_and(|(arg, argv)| glob.fits(arg.as_bstr()) && naive(rest, argv))
            }
        }
    }

    proptest! {
        #[test]
        fn the_same_as_trying_everything(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "..."]), 0..7),
            words in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", ""]), 0..8),
        ) {
            let (pattern, words) = (args(&pattern), argv(&words));
            prop_assert_eq!(fits_arguments(&pattern, &words), naive(&pattern, &words));
        }
    }
}
