//! Splits what `/proc/PID/cmdline` and `/proc/PID/environ` hold.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BString, ByteSlice as _};

/// Returns the argument vector, element by element, empty ones kept.
///
/// Each argument ends in a NUL; a process that rewrote its title may have left the last one off.
pub(super) fn arguments(text: &[u8]) -> Vec<BString> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    text.split_str(b"\0").map(BString::from).collect()
}

/// Returns those of the asked variables that are there. Of two with one name the first counts, as in getenv(3).
pub(super) fn variables(text: &[u8], names: &BTreeSet<BString>) -> BTreeMap<BString, BString> {
    let mut found = BTreeMap::new();
    for entry in text.split_str(b"\0") {
        let Some((name, value)) = entry.split_once_str(b"=") else { continue };
        if let Some(name) = names.get(name.as_bstr()) {
            found.entry(name.clone()).or_insert_with(|| BString::from(value));
        }
    }
    found
}

/// Returns the arguments, and behind them the values of the environment, each ended by a NUL.
pub(super) fn values(mut arguments: Vec<u8>, environment: &[u8]) -> Vec<u8> {
    arguments.push(0);
    for entry in environment.split_str(b"\0") {
        arguments.extend_from_slice(entry.split_once_str(b"=").map_or(entry, |(_, value)| value));
        arguments.push(0);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_arguments_are_kept() {
        assert_eq!(arguments(b"node\0\0a b\0\0"), ["node", "", "a b", ""]);
        assert_eq!(arguments(b"\0"), [""]);
        assert_eq!(arguments(b""), [] as [&str; 0]);
        assert_eq!(arguments(b"nginx: worker"), ["nginx: worker"], "a rewritten title has no final NUL");
    }

    #[test]
    fn only_asked_variables_and_the_first_of_each() {
        let names = BTreeSet::from([BString::from("A"), BString::from("EMPTY"), BString::from("NONE")]);
        let found = variables(b"B=1\0A=x=y\0A=later\0EMPTY=\0NONE\0AA=2\0", &names);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&BString::from("A")], "x=y");
        assert_eq!(found[&BString::from("EMPTY")], "");
    }

    #[test]
    fn values_without_their_names() {
        assert_eq!(values(b"a\0b\0".to_vec(), b"N=1\0odd\0M=x=y\0"), b"a\0b\0\x001\0odd\0x=y\0\0");
        assert_eq!(values(Vec::new(), b""), b"\0\0");
    }

    proptest! {
        #[test]
        fn what_exec_was_given_comes_back(argv in proptest::collection::vec(
            proptest::collection::vec(1_u8.., 0..8), 0..8)) {
            let mut text = Vec::new();
            for argument in &argv {
                text.extend_from_slice(argument);
                text.push(0);
            }
            prop_assert_eq!(arguments(&text), argv);
        }

        #[test]
        fn no_environment_breaks_it(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let names = BTreeSet::from([BString::from("A")]);
            prop_assert!(variables(&text, &names).len() <= 1);
        }
    }
}
