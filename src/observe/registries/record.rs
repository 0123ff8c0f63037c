//! One record of a registry of files, and what all of them say together.

use std::collections::BTreeMap;

use bstr::{BStr, BString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::id::{BootId, FileId, Pid, Start};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::Holder;
use crate::model::question::Registered;

use super::files::Reading;

/// What all records of one place say, read once for a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::observe) struct Records {
    /// The directory that they stand in: the place up to its first pattern.
    pub(super) root: FileId,
    /// The keys that are listed, and who holds each, where its record says so and no other record says otherwise.
    pub(super) listed: BTreeMap<BString, Known<Option<Holder>>>,
    /// Why this is not all of it, where it is not: then nothing is known of a key that is not listed.
    pub(super) incomplete: Option<Unknown>,
}

impl Records {
    /// Returns what the records say of one key. Whoever is listed is so however much could not be read.
    pub(super) fn answer(&self, key: &BStr) -> Known<Registered> {
        if let Some(holder) = self.listed.get(key) {
            return Ok(Registered::Listed { holder: holder.clone()?.map(Box::new) });
        }
        match &self.incomplete {
            Some(why) => Err(why.clone()),
            None => {
                Ok(Registered::NotListed { others: u64::try_from(self.listed.len()).unwrap_or(u64::MAX) })
            }
        }
    }

    /// Takes a record in. Of two with one key neither is believed against the other.
    pub(super) fn add(&mut self, key: BString, holder: Option<Holder>) {
        match self.listed.get_mut(&key) {
            None => {
                self.listed.insert(key, Ok(holder));
            }
            Some(known) => match (&known, holder) {
                (Ok(Some(one)), Some(other)) if *one == other => {}
                (Ok(Some(_)), Some(_)) => {
                    *known =
                        Err(Unknown::new(Reason::Unsupported, "two records name it, with different holders"));
                }
                // One without a holder only ever lists.
                (Ok(None) | Err(_), _) => {}
                (Ok(Some(_)), None) => *known = Ok(None),
            },
        }
    }

    /// Remembers the first reason why something is missing.
    pub(super) fn lack(&mut self, why: Unknown) {
        self.incomplete.get_or_insert(why);
    }
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Toml,
}

impl Form {
    /// Returns the form of a file by its name.
    pub(super) fn of(name: &BStr) -> Form {
        if name.ends_with(b".toml") { Form::Toml } else { Form::Json }
    }
}

/// Reads one record: its key, where it has one, and its holder. What is wrong is a lowercase fragment that holds
/// nothing of the text.
pub(super) fn record(
    form: Form,
    text: &[u8],
    reading: &Reading,
) -> Result<Option<(BString, Option<Holder>)>, &'static str> {
    let value: Value = match form {
        // What is cut off anywhere is no JSON object any more.
        Form::Json => serde_json::from_slice(text).map_err(|_| "half-written, or not JSON")?,
        // TOML is still TOML when it is cut off at the end of a line, or within a number.
        Form::Toml if text.last() != Some(&b'\n') => return Err("half-written: its last line does not end"),
        Form::Toml => {
            let text = std::str::from_utf8(text).map_err(|_| "not text in UTF-8")?;
            toml::from_str(text).map_err(|_| "half-written, or not TOML")?
        }
    };
    let key: BString = match value.pointer(&reading.key) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) if number.is_f64() => {
            return Err("its key is a number that is not whole");
        }
        Some(Value::Number(number)) => number.to_string().into(),
        Some(Value::Null) => return Ok(None),
        // Half of a TOML file is often TOML, and a program that was upgraded may write the key elsewhere.
        None => return Err("nothing stands where its key should"),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            return Err("its key is neither text nor a number");
        }
    };
    Ok(Some((key, holder(&value, reading))))
}

/// Reads the holder; nobody, who never dies, where anything of it is not what it should be.
fn holder(record: &Value, reading: &Reading) -> Option<Holder> {
    let at = |pointer: &Option<String>| pointer.as_deref().and_then(|pointer| record.pointer(pointer));
    let pid = Pid::new(i32::try_from(number(at(&reading.pid)?)?).ok()?)?;
    let start = match at(&reading.start) {
        None | Some(Value::Null) => None,
        Some(value) => Some(Start(number(value)?)),
    };
    let boot = match at(&reading.boot) {
        None | Some(Value::Null) => None,
        Some(value) => Some(BootId(value.as_str()?.to_owned())),
    };
    Some(Holder { pid, start, boot, pidns: None, timens: None, host: None, age: None })
}

/// Returns a whole number that is written as one, or as its decimal text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Uid;

    fn reading() -> Reading {
        Reading {
            place: "/x".into(),
            user: Uid(1),
            key: "/k".into(),
            pid: Some("/p".into()),
            start: Some("/s".into()),
            boot: Some("/b".into()),
        }
    }

    type Read = Result<Option<(BString, Option<Holder>)>, &'static str>;

    fn json(text: &str) -> Read {
        record(Form::Json, text.as_bytes(), &reading())
    }

    fn toml(text: &str) -> Read {
        record(Form::Toml, text.as_bytes(), &reading())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with what a record may have")]
    fn held(pid: i32, start: Option<u64>, boot: Option<&str>) -> Option<Holder> {
        Some(Holder {
            pid: Pid::new(pid).unwrap(),
            start: start.map(Start),
            boot: boot.map(|boot| BootId(boot.into())),
            pidns: None,
            timens: None,
            host: None,
            age: None,
        })
    }

    #[test]
    fn keys_are_text_or_whole_numbers() {
        assert_eq!(json(r#"{"k": "a"}"#), Ok(Some(("a".into(), None))));
        assert_eq!(json(r#"{"k": 18446744073709551615}"#), Ok(Some(("18446744073709551615".into(), None))));
        assert_eq!(json(r#"{"k": -3}"#), Ok(Some(("-3".into(), None))));
        // A number that is not told exactly would be compared with another.
        for odd in ["1.5", "1e3", "99999999999999999999999", "true", "[]", "{}"] {
            assert!(json(&format!("{{\"k\": {odd}}}")).is_err(), "{odd}");
        }
        assert_eq!(json(r#"{"k": null}"#), Ok(None));
        // Whose record it is nobody can tell: its program may have been upgraded.
        for odd in [r#"{"other": 1}"#, r#"{"v": 2, "it": {"k": "a"}}"#, "{}", "[]", "1", "\"k\""] {
            assert!(json(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn whatever_is_cut_off_is_no_record() {
        let whole = r#"{"k": "a", "p": 12}"#;
        assert_eq!(json(whole), Ok(Some(("a".into(), held(12, None, None)))));
        for end in 0..whole.len() {
            assert!(json(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        let whole = "# a\n[x]\ny = 1\n\n[z]\nk = 12\n";
        let reading = Reading { key: "/z/k".into(), ..reading() };
        assert_eq!(record(Form::Toml, whole.as_bytes(), &reading), Ok(Some(("12".into(), None))));
        for end in 0..whole.len() {
            assert!(record(Form::Toml, &whole.as_bytes()[..end], &reading).is_err(), "{}", &whole[..end]);
        }
        assert!(toml("").is_err() && json("\0\0").is_err());
    }

    #[test]
    fn a_holder_is_whole_or_nobody() {
        let of = |text: &str| json(&format!("{{\"k\": 1, {text}}}")).unwrap().unwrap().1;
        assert_eq!(of(r#""p": 12, "s": 99, "b": "x""#), held(12, Some(99), Some("x")));
        assert_eq!(of(r#""p": "12", "s": "99""#), held(12, Some(99), None));
        assert_eq!(of(r#""p": 12, "s": null"#), held(12, None, None));
        for bad in [r#""s": 9"#, r#""p": -1"#, r#""p": 0"#, r#""p": 12, "s": "soon""#, r#""p": 12, "b": 4"#] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(toml("k = \"a\"\np = 12\n"), Ok(Some(("a".into(), held(12, None, None)))));
    }

    #[test]
    fn of_two_records_with_one_key_neither_ends_it() {
        let mut records =
            Records { root: FileId { dev: 1, ino: 1 }, listed: BTreeMap::new(), incomplete: None };
        let of = |records: &Records| records.answer(BStr::new("a"));
        records.add("a".into(), held(1, Some(1), None));
        records.add("a".into(), held(1, Some(1), None));
        assert_eq!(of(&records), Ok(Registered::Listed { holder: held(1, Some(1), None).map(Box::new) }));
        records.add("a".into(), held(2, Some(1), None));
        assert!(of(&records).is_err());
        records.add("b".into(), held(2, Some(1), None));
        records.add("b".into(), None);
        records.add("b".into(), held(2, Some(1), None));
        assert_eq!(records.answer(BStr::new("b")), Ok(Registered::Listed { holder: None }));
        assert_eq!(records.answer(BStr::new("c")), Ok(Registered::NotListed { others: 2 }));
        records.lack(Unknown::new(Reason::Denied, "x"));
        assert!(records.answer(BStr::new("c")).is_err());
        assert!(records.answer(BStr::new("b")).is_ok(), "what is listed is so");
    }
}
