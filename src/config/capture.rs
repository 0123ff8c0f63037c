//! Values that a process itself supplies for templates: hostile text, taken only when it is unmistakable.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice as _};

use super::arguments::written_out;
use super::policy::{Argument, Capture, Match};

/// PATH_MAX on Linux; no path and no number is longer.
const LONGEST: usize = 4096;

/// Returns what can be captured of a process. What is missing, given twice with different values, empty, over-long
/// or holds control characters is left out, so that a template that needs it cannot be filled.
pub fn capture(
    captures: &BTreeMap<String, Capture>,
    argv: &[BString],
    env: &BTreeMap<BString, BString>,
) -> BTreeMap<String, BString> {
    let argv = written_out(argv);
    captures
        .iter()
        .filter_map(|(name, capture)| {
            let (value, strip) = match capture {
                Capture::Flag { flag, strip } => (flag_value(flag, &argv)?, strip),
                Capture::Env { name, strip } => (env.get(name.as_bytes().as_bstr())?.as_bstr(), strip),
                // Not on the process itself: whoever knows its leases fills it.
                Capture::Lease { .. } => return None,
            };
            let value = match strip {
                Some(strip) => value.strip_prefix(strip.as_bytes())?,
                None => value,
            };
            is_fit(value).then(|| (name.clone(), value.into()))
        })
        .collect()
}

/// Says whether a captured text is one that a template may take.
pub(crate) fn is_fit(value: &[u8]) -> bool {
    // C1 controls move cursors too; in UTF-8 they are 0xC2 0x80..0x9F.
    let c1 = value.windows(2).any(|pair| pair[0] == 0xC2 && (0x80..0xA0).contains(&pair[1]));
    !value.is_empty() && value.len() <= LONGEST && !value.iter().any(u8::is_ascii_control) && !c1
}

fn flag_value<'a>(flag: &str, argv: &'a [BString]) -> Option<&'a BStr> {
    let arguments = argv.get(1..)?;
    let mut values = BTreeSet::new();
    for (at, argument) in arguments.iter().enumerate() {
        if argument.as_slice() == flag.as_bytes() {
            // A flag at the very end has no value; it is as good as one with a different value.
            values.insert(arguments.get(at + 1).map(|value| value.as_bstr()));
        } else if let Some(value) =
            argument.strip_prefix(flag.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        {
            values.insert(Some(value.as_bstr()));
        }
    }
    if values.len() == 1 { values.pop_first().flatten() } else { None }
}

/// Says whether a process that fits `form` could carry what is captured.
pub(super) fn can_fill(form: &Match, capture: &Capture) -> bool {
    let (Match::Shape { args: Some(args), .. }, Capture::Flag { flag, .. }) = (form, capture) else {
        return true;
    };
    let joined = [flag.as_bytes(), b"="].concat();
    args.iter().any(|argument| match argument {
        Argument::Any => true,
        Argument::One(glob) => glob.fits(BStr::new(flag)) || glob.could_begin_with(joined.as_bstr()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::policy::Glob;
    use super::*;

    fn flag(flag: &str, strip: Option<&str>) -> BTreeMap<String, Capture> {
        let capture = Capture::Flag { flag: flag.into(), strip: strip.map(Into::into) };
        BTreeMap::from([("x".to_owned(), capture)])
    }

    #[track_caller]
    fn check(captures: &BTreeMap<String, Capture>, argv: &[&[u8]], want: Option<&str>) {
        let argv: Vec<BString> = argv.iter().map(|word| BString::from(*word)).collect();
        let got = capture(captures, &argv, &BTreeMap::new());
        assert_eq!(got.get("x").map(|value| value.as_bstr()), want.map(BStr::new), "{argv:?}");
    }

    #[test]
    fn both_ways_to_give_a_value() {
        check(&flag("--cwd", None), &[b"p", b"--cwd", b"/a b"], Some("/a b"));
        check(&flag("--cwd", None), &[b"p", b"--cwd=/a"], Some("/a"));
        check(&flag("--cwd", None), &[b"p", b"--cwdx=/a", b"--cw", b"/b"], None);
        check(&flag("--e", Some("unix:")), &[b"p", b"--e", b"unix:/a"], Some("/a"));
        check(&flag("--e", Some("unix:")), &[b"p", b"--e", b"tcp:/a"], None);
        check(&flag("--cwd", None), &[b"--cwd=/a"], None);
    }

    #[test]
    fn what_is_not_clear_is_not_captured() {
        check(&flag("--cwd", None), &[b"p", b"--cwd", b"/a", b"--cwd=/b"], None);
        check(&flag("--cwd", None), &[b"p", b"--cwd", b"/a", b"--cwd=/a"], Some("/a"));
        check(&flag("--cwd", None), &[b"p", b"--note", b"--cwd", b"--cwd", b"/a"], None);
        check(&flag("--cwd", None), &[b"p", b"--cwd", b"/a", b"--cwd"], None);
        check(&flag("--cwd", None), &[b"p", b"--cwd"], None);
        check(&flag("--cwd", None), &[b"p", b"--cwd="], None);
        check(&flag("--cwd", None), &[], None);
    }

    #[test]
    fn hostile_values_are_not_captured_s3() {
        for value in [&b"/a\n/b"[..], b"/a\x1b[2J", b"/a\x7f", b"/a\xc2\x9b", b"/a\0", &[b'a'; 5000]] {
            check(&flag("--cwd", None), &[b"p", b"--cwd", value], None);
        }
        let plain = flag("--cwd", None);
        let odd = [BString::from("p"), "--cwd".into(), BString::from(&b"/\xff"[..])];
        assert_eq!(capture(&plain, &odd, &BTreeMap::new())["x"], BString::from(&b"/\xff"[..]));
    }

    #[test]
    fn the_environment() {
        let captures = BTreeMap::from([("x".to_owned(), Capture::Env { name: "OWNER".into(), strip: None })]);
        let env = BTreeMap::from([(BString::from("OWNER"), BString::from("42"))]);
        assert_eq!(capture(&captures, &[], &env)["x"], "42");
        assert!(capture(&captures, &[], &BTreeMap::new()).is_empty());
    }

    #[test]
    fn what_no_match_can_fill() {
        let shape = |words: &[&str]| Match::Shape {
            programs: vec![],
            args: Some(
                words
                    .iter()
                    .map(|word| match *word {
                        "..." => Argument::Any,
                        word => Argument::One(Glob::parse(word).unwrap()),
                    })
                    .collect(),
            ),
        };
        let cwd = Capture::Flag { flag: "--cwd".into(), strip: None };
        assert!(!can_fill(&shape(&["serve", "--port"]), &cwd));
        assert!(!can_fill(&shape(&["--cwdx=*"]), &cwd));
        assert!(can_fill(&shape(&["serve", "..."]), &cwd));
        assert!(can_fill(&shape(&["--cwd", "*"]), &cwd));
        assert!(can_fill(&shape(&["--cwd=*"]), &cwd));
        assert!(can_fill(&shape(&["--{cwd,x}=*"]), &cwd));
        assert!(can_fill(&Match::McpConfigured, &cwd));
        assert!(can_fill(&shape(&[]), &Capture::Env { name: "X".into(), strip: None }));
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_captured_was_given_and_is_harmless_s3(
            argv in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..6), 0..6),
            at in 0_usize..6,
            joined in proptest::prelude::any::<bool>(),
        ) {
            let mut argv: Vec<BString> = argv.into_iter().map(BString::from).collect();
            let at = at.min(argv.len());
            argv.insert(at, if joined { "--cwd=/a\u{1b}".into() } else { "--cwd".into() });
            if let Some(value) = capture(&flag("--cwd", None), &argv, &BTreeMap::new()).get("x") {
                proptest::prop_assert!(argv.iter().skip(1).any(|word| word.ends_with(value)));
                proptest::prop_assert!(!value.is_empty() && value.chars().all(|letter| !letter.is_control()));
            }
        }
    }
}
