//! Turns what the stages say into JSON that a person can read and a log may keep: bytes as text, secrets starred
//! out, nothing that moves a cursor.
//!
//! The one way into journal and `--json`, so that no field can be forgotten.

use bstr::ByteSlice as _;
use serde::Serialize;
use serde_json::Value;

use super::redact;
use crate::config::policy::ArgumentsShown;
use crate::model::escape::escape;

/// Returns a value as legible JSON.
pub fn legible<T: Serialize>(value: &T, arguments: ArgumentsShown) -> Result<Value, serde_json::Error> {
    let mut json = serde_json::to_value(value)?;
    walk(&mut json, arguments);
    Ok(json)
}

/// Returns running text as it may be printed or kept.
pub fn text(text: &str) -> String {
    escape(redact::text(text).as_bytes())
}

/// Returns an argument vector as it may be printed or kept.
pub fn argv<A: AsRef<[u8]>>(argv: &[A], shown: ArgumentsShown) -> Vec<String> {
    let words = match shown {
        ArgumentsShown::Full => {
            argv.iter().map(|argument| argument.as_ref().to_str_lossy().into_owned()).collect()
        }
        ArgumentsShown::Redacted => redact::arguments(argv),
        ArgumentsShown::None => redact::arguments(argv.get(..1).unwrap_or_default()),
    };
    words.iter().map(|word| escape(word.as_bytes())).collect()
}

/// Returns the value of a capture as it may be printed or kept: its name can say that it is a secret.
pub fn capture(name: &str, value: &[u8], shown: ArgumentsShown) -> String {
    match shown {
        ArgumentsShown::Full => escape(value),
        ArgumentsShown::Redacted | ArgumentsShown::None => {
            let flag = format!("--{name}");
            let words = redact::arguments(&[flag.as_bytes(), value]);
            words.last().map(|word| escape(word.as_bytes())).unwrap_or_default()
        }
    }
}

fn walk(json: &mut Value, shown: ArgumentsShown) {
    match json {
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "argv" => *field = argument_vector(field, shown),
                    "captures" => captures(field, shown),
                    // `Cause::Mount` and paths are bytes in the model.
                    "mount" | "path" => {
                        if let Some(bytes) = bytes(field) {
                            *field = Value::String(text(&bytes.to_str_lossy()));
                        }
                        walk(field, shown);
                    }
                    _ => walk(field, shown),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|element| walk(element, shown)),
        Value::String(string) => *string = text(string),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn argument_vector(json: &Value, shown: ArgumentsShown) -> Value {
    let Some(list) = json.as_array() else { return Value::Null };
    let words: Vec<Vec<u8>> = list.iter().filter_map(text_or_bytes).collect();
    Value::from(argv(&words, shown))
}

fn captures(json: &mut Value, shown: ArgumentsShown) {
    let Some(list) = json.as_array_mut() else { return };
    for pair in list {
        let Some([name, value]) = pair.as_array_mut().map(Vec::as_mut_slice) else { continue };
        if let (Some(name), Some(bytes)) = (name.as_str(), text_or_bytes(value)) {
            *value = Value::String(capture(name, &bytes, shown));
        }
    }
}

fn text_or_bytes(json: &Value) -> Option<Vec<u8>> {
    json.as_str().map(|text| text.as_bytes().to_vec()).or_else(|| bytes(json))
}

fn bytes(json: &Value) -> Option<Vec<u8>> {
    let list = json.as_array()?;
    list.iter().map(|number| number.as_u64().and_then(|number| u8::try_from(number).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    #[test]
    fn a_judgement_becomes_text_without_secrets_and_can_be_read_back_s4() {
        let mut judgement = sample::judgement(21_066, "codex-broker");
        judgement.argv = vec!["node".into(), "--token".into(), "t0p".into(), "a\nb".into()];
        judgement.captures = vec![("api-key".into(), "t0p".into()), ("workspace".into(), "/w".into())];
        judgement.because = "password=t0p \u{1b}[2J".into();
        judgement.causes = vec![crate::model::evidence::Cause::Mount("/mnt/nfs".into())];
        let json = legible(&judgement, ArgumentsShown::Redacted).unwrap();
        let text = json.to_string();
        assert!(!text.contains("t0p"), "{text}");
        assert!(!text.contains("\\u001b"), "{text}");
        assert_eq!(json["argv"], serde_json::json!(["node", "--token", "***", "a\\nb"]));
        assert_eq!(json["captures"][1], serde_json::json!(["workspace", "/w"]));
        let back: crate::model::verdict::Judgement = serde_json::from_value(json).unwrap();
        assert_eq!(back.root, judgement.root);
        assert_eq!(back.identity, judgement.identity);
        assert_eq!(back.causes, judgement.causes);
    }

    #[test]
    fn arguments_as_configured() {
        let vector = ["node", "--token", "t0p"];
        assert_eq!(argv(&vector, ArgumentsShown::Full), vector);
        assert_eq!(argv(&vector, ArgumentsShown::None), ["node"]);
    }
}
