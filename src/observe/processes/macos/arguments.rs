//! Takes apart what `sysctl kern.procargs2` returns: the argument vector and the environment of one process.
//!
//! The kernel hands out the top of the process's own stack, which the process may have rewritten: a count, the path
//! that was executed, zeros up to a word's border, the arguments, and the variables, each ended by a zero.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BString, ByteSlice as _};

use crate::model::known::{Known, Reason, Unknown};

use super::bytes::i32_at;

/// An argument vector and the variables that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arguments {
    /// The arguments, empty ones kept but for leading ones: the zeros behind the path cannot be told from them.
    pub(super) argv: Vec<BString>,
    /// The variables. Unknown where the kernel left all of them out, as it does for the system's own programs.
    pub(super) env: Known<BTreeMap<BString, BString>>,
}

/// What dyld and the kernel append behind the environment (`apple[]`); seen alone, the environment was left out.
const APPLE: [&[u8]; 16] = [
    b"executable_path",
    b"executable_file",
    b"executable_cdhash",
    b"executable_boothash",
    b"dyld_file",
    b"dyld_flags",
    b"ptr_munge",
    b"stack_guard",
    b"malloc_entropy",
    b"main_stack",
    b"pfz",
    b"th_port",
    b"arm64e_abi",
    b"security_config",
    b"subsystem_root_path",
    b"has_sec_transition",
];

/// Takes apart one answer. `names` are the variables that somebody asked for; the others are not kept.
pub(super) fn parse_arguments(answer: &[u8], names: &BTreeSet<BString>) -> Known<Arguments> {
    let cut = || Unknown::new(Reason::Truncated, "arguments");
    let count = i32_at(answer, 0).and_then(|count| usize::try_from(count).ok()).ok_or_else(cut)?;
    let strings = &answer[size_of::<i32>()..];
    let path = strings.find_byte(0).ok_or_else(cut)?;
    let first = strings[path..].iter().position(|&byte| byte != 0);
    if count == 0 {
        return Err(Unknown::new(Reason::Unsupported, "an empty argument vector"));
    }
    let mut rest = &strings[path + first.ok_or_else(cut)?..];
    let mut argv = Vec::new();
    for _ in 0..count {
        // A count that the strings do not bear out: what is missing is not an empty argument.
        let (argument, behind) = next(rest).ok_or_else(cut)?;
        argv.push(BString::from(argument));
        rest = behind;
    }
    Ok(Arguments { argv, env: environment(rest, names) })
}

fn environment(mut rest: &[u8], names: &BTreeSet<BString>) -> Known<BTreeMap<BString, BString>> {
    let mut found = BTreeMap::new();
    let mut seen = 0_usize;
    while let Some((entry, behind)) = next(rest) {
        rest = behind;
        let Some((name, value)) = entry.split_once_str("=") else {
            // The end, or a hole that the process made; behind a hole more may follow.
            continue;
        };
        if APPLE.contains(&name) {
            continue;
        }
        seen += 1;
        if names.contains(name.as_bstr()) {
            found.entry(BString::from(name)).or_insert_with(|| BString::from(value));
        }
    }
    if seen == 0 {
        // Nothing at all: left out by the kernel, which must not read as "carries no keep mark".
        return Err(Unknown::new(Reason::Denied, "environment"));
    }
    Ok(found)
}

/// Returns the arguments and the values of the environment, each with a NUL behind it. Unknown where the kernel left
/// the environment out.
pub(super) fn given(answer: &[u8]) -> Known<Vec<u8>> {
    let Arguments { argv, env } = parse_arguments(answer, &BTreeSet::new())?;
    env?;
    let mut given = Vec::new();
    for argument in &argv {
        given.extend_from_slice(argument);
        given.push(0);
    }
    // Of the rest whatever looks like a variable counts: what names too much keeps, what names too little does not.
    let mut rest = answer.get(size_of::<i32>()..).unwrap_or_default();
    while let Some((entry, behind)) = next(rest) {
        rest = behind;
        if let Some((_, value)) = entry.split_once_str("=") {
            given.extend_from_slice(value);
            given.push(0);
        }
    }
    Ok(given)
}

/// Returns the bytes up to the next zero and what is behind it, or nothing where no zero comes.
fn next(strings: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = strings.find_byte(0)?;
    Some((&strings[..end], &strings[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> BTreeSet<BString> {
        BTreeSet::from(["REAPD_KEEP".into(), "XPC_SERVICE_NAME".into()])
    }

    /// An answer as the kernel lays it out; constructed, not recorded on a Mac.
    fn answer(count: i32, strings: &[u8]) -> Vec<u8> {
        [&count.to_le_bytes()[..], strings].concat()
    }

    #[test]
    fn element_by_element_with_empty_ones_kept() {
        let answer = answer(
            4,
            b"/usr/local/bin/node\0\0\0\0\0node\0serve\0\0--stdio\0PATH=/bin\0REAPD_KEEP=1\0SECRET=x\0\0ptr_munge=1\0",
        );
        let parsed = parse_arguments(&answer, &names()).unwrap();
        assert_eq!(parsed.argv, ["node", "serve", "", "--stdio"]);
        assert_eq!(parsed.env.unwrap(), BTreeMap::from([("REAPD_KEEP".into(), "1".into())]));
    }

    #[test]
    fn an_environment_that_was_left_out_is_unknown_and_not_empty() {
        for strings in [&b"/bin/sh\0\0\0sh\0-c\0"[..], b"/bin/sh\0\0\0sh\0-c\0\0ptr_munge=5\0main_stack=7\0"]
        {
            let parsed = parse_arguments(&answer(2, strings), &names()).unwrap();
            assert_eq!(parsed.argv, ["sh", "-c"]);
            assert_eq!(parsed.env.unwrap_err().reason, Reason::Denied);
        }
    }

    #[test]
    fn everything_that_was_given_without_names_of_variables() {
        let whole = answer(2, b"/bin/a\0\0a\0-x\0P=/tmp/s\0\0Q=1=2\0");
        let given = given(&whole).unwrap();
        for text in ["a", "-x", "/tmp/s", "1=2"] {
            assert!(given.split(|&byte| byte == 0).any(|one| one == text.as_bytes()), "{text}");
        }
        let left_out = answer(1, b"/bin/a\0a\0\0ptr_munge=1\0");
        assert_eq!(super::given(&left_out).unwrap_err().reason, Reason::Denied);
    }

    #[test]
    fn a_hole_in_the_environment_hides_no_mark() {
        let parsed =
            parse_arguments(&answer(1, b"/bin/a\0a\0PATH=/bin\0\0REAPD_KEEP=1\0"), &names()).unwrap();
        assert_eq!(parsed.env.unwrap()[b"REAPD_KEEP".as_bstr()], "1");
    }

    #[test]
    fn a_count_that_the_strings_do_not_bear_out_is_cut_short() {
        for (count, strings) in [
            (3, &b"/bin/a\0a\0b\0"[..]),
            (1, b"/bin/a\0a"),
            (1, b"/bin/a"),
            (1, b"/bin/a\0\0\0"),
            (-1, b"x\0x\0"),
        ] {
            let reason = parse_arguments(&answer(count, strings), &names()).unwrap_err().reason;
            assert_eq!(reason, Reason::Truncated, "{count} {strings:?}");
        }
        assert!(parse_arguments(&[1, 0], &names()).is_err());
        assert!(parse_arguments(&answer(0, b"/bin/a\0\0A=b\0"), &names()).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_arguments(&bytes, &names());
        }

        #[test]
        fn what_was_put_in_comes_out(
            argv in proptest::collection::vec("[^\0]{0,12}", 1..6),
            keep in "[^\0]{0,6}",
        ) {
            // A leading empty argument cannot be told from padding.
            prop_assume!(!argv[0].is_empty());
            let mut strings = b"/opt/x y/bin\0\0\0\0".to_vec();
            for argument in &argv {
                strings.extend_from_slice(argument.as_bytes());
                strings.push(0);
            }
            strings.extend_from_slice(format!("A=b\0REAPD_KEEP={keep}\0\0").as_bytes());
            let parsed = parse_arguments(&answer(argv.len().try_into().unwrap(), &strings), &names()).unwrap();
            prop_assert_eq!(parsed.argv, argv.iter().map(|a| BString::from(a.as_str())).collect::<Vec<_>>());
            let env = parsed.env.unwrap();
            prop_assert_eq!(env.get(b"REAPD_KEEP".as_bstr()), Some(&BString::from(keep)));
        }
    }
}
