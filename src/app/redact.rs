//! Stars out secrets in argument vectors and in text made of them, before anything is printed or written down.
//!
//! It errs on the side of a star: an argument too many starred is a nuisance, one too few is a leak in a log.

use std::borrow::Cow;

use bstr::ByteSlice as _;

const STARS: &str = "***";

/// Returns an argument vector as text without secrets. Not yet escaped.
pub fn arguments<A: AsRef<[u8]>>(argv: &[A]) -> Vec<String> {
    let mut shown = Vec::with_capacity(argv.len());
    let mut before: Option<Cow<'_, str>> = None;
    for argument in argv {
        let text = argument.as_ref().to_str_lossy();
        let flag = before.as_deref().and_then(flag_name);
        shown.push(match flag {
            // `--token --verbose`: the next flag is no value.
            Some(name) if is_secret(name) && !text.starts_with("--") => STARS.to_owned(),
            Some("u" | "user" | "proxy-user") if text.contains(':') => after_colon(&text),
            Some(_) | None => element(&text),
        });
        before = Some(text);
    }
    shown
}

/// Returns running text (a reason, a command line) without secrets. Not yet escaped.
pub fn text(text: &str) -> String {
    let text = after_schemes(text);
    let text = user_info(&text);
    let text = pairs(&text);
    known_prefixes(&text)
}

fn element(argument: &str) -> String {
    // The name stands at the very beginning: the whole rest is its value, whatever letters it has.
    let name_end = argument
        .find(|letter: char| !(letter.is_ascii_alphanumeric() || "_-.".contains(letter)))
        .unwrap_or(argument.len());
    let (name, rest) = argument.split_at(name_end);
    let separator = if rest.starts_with('=') {
        "="
    } else if rest.starts_with(": ") {
        ": "
    } else if rest.starts_with(':') && !rest.starts_with("://") {
        ":"
    } else {
        return text(argument);
    };
    if is_secret(name.trim_start_matches('-')) && rest.len() > separator.len() {
        return format!("{name}{separator}{STARS}");
    }
    text(argument)
}

fn flag_name(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    (!name.is_empty() && !name.contains(['=', ':', ' ', '/'])).then_some(name)
}

fn after_colon(value: &str) -> String {
    let user = value.split(':').next().unwrap_or_default();
    format!("{user}:{STARS}")
}

/// Says whether a flag, variable, header or key of this name holds a secret.
fn is_secret(name: &str) -> bool {
    // The value of these is where or how, not the secret itself.
    const HARMLESS_ENDS: [&str; 17] = [
        "file", "path", "dir", "name", "limit", "count", "max", "ttl", "type", "url", "uri", "endpoint",
        "env", "command", "mode", "scheme", "timeout",
    ];
    const SEGMENTS: [&str; 20] = [
        "token",
        "secret",
        "secrets",
        "password",
        "passwd",
        "passphrase",
        "pass",
        "pwd",
        "apikey",
        "credential",
        "credentials",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "jwt",
        "sig",
        "signature",
        "pin",
        "otp",
    ];
    const ENDS: [&str; 13] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "authkey",
        "signingkey",
        "credential",
        "credentials",
    ];
    // The shell's own variables.
    if matches!(name, "PWD" | "OLDPWD") {
        return false;
    }
    let segments = segments(name);
    let Some(last) = segments.last() else { return false };
    if segments.len() > 1 && HARMLESS_ENDS.contains(&last.as_str()) {
        return false;
    }
    let joined = segments.concat();
    name == "key"
        || segments.iter().any(|segment| SEGMENTS.contains(&segment.as_str()))
        || ENDS.iter().any(|end| joined.ends_with(end))
}

/// Returns the words of a name, in lower case: `X-Api-Key`, `api_key` and `apiKey` alike.
fn segments(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut fresh = true;
    let mut lower_before = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() {
            fresh = true;
            continue;
        }
        if letter.is_uppercase() && lower_before {
            fresh = true;
        }
        lower_before = letter.is_lowercase();
        if fresh {
            words.push(String::new());
            fresh = false;
        }
        if let Some(word) = words.last_mut() {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

/// Stars what follows "Bearer" and its like.
fn after_schemes(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut armed = false;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(char::is_whitespace);
        if armed && !word.is_empty() {
            // A closing quote belongs to whoever opened it.
            let tail = word.len() - word.trim_end_matches(['"', '\'', '}', ',', ')']).len();
            shown.push_str(STARS);
            shown.push_str(&piece[word.len() - tail..]);
            armed = false;
        } else {
            shown.push_str(piece);
        }
        if !word.is_empty() {
            let bare = word.trim_start_matches(|letter: char| !letter.is_ascii_alphabetic());
            let bare = bare.rsplit([':', '=', '"', '\'']).next().unwrap_or(bare);
            armed = bare.eq_ignore_ascii_case("bearer") || bare == "Basic" || bare == "Digest";
        }
    }
    shown
}

/// Stars the password in `scheme://user:password@host`, and a lone token before the `@`.
fn user_info(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after
            .find(|letter: char| letter.is_whitespace() || "/?#\"'<>".contains(letter))
            .unwrap_or(after.len());
        // A password may itself hold an `@`: the last one counts, as in RFC 3986's reading by browsers.
        rest = match after[..end].rfind('@') {
            Some(sign) => {
                let user = after[..sign].split_once(':').map(|(user, _)| user);
                if let Some(user) = user {
                    shown.push_str(user);
                    shown.push(':');
                }
                let lone_name = user.is_none() && before.ends_with("ssh://");
                shown.push_str(if lone_name { &after[..sign] } else { STARS });
                &after[sign..]
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

/// Stars the value of each `name=value`, `name: value` and `"name": "value"` whose name is a secret's.
fn pairs(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        shown.push_str(before);
        shown.push_str(&after[..1]);
        rest = &after[1..];
        let named = before.trim_end_matches(['"', '\'', '\\', ' ']);
        let start = named
            .rfind(|letter: char| !(letter.is_ascii_alphanumeric() || "_-.".contains(letter)))
            .map_or(0, |at| at + named[at..].chars().next().map_or(1, char::len_utf8));
        if !is_secret(named[start..].trim_start_matches(['-', '.'])) || rest.starts_with("//") {
            continue;
        }
        let value = rest.trim_start_matches([' ', '"', '\'', '\\']);
        let lead = &rest[..rest.len() - value.len()];
        let quote = lead.chars().find(|letter| "\"'".contains(*letter));
        let end = match quote {
            Some(quote) => value.find(quote),
            None => value.find(|letter: char| letter.is_whitespace() || "&,;\"'<>)]}".contains(letter)),
        };
        let end = end.unwrap_or(value.len());
        shown.push_str(lead);
        if end > 0 {
            shown.push_str(STARS);
        }
        rest = &value[end..];
    }
    shown.push_str(rest);
    shown
}

/// Stars the rest of words that begin like the tokens of well-known services.
fn known_prefixes(text: &str) -> String {
    const PREFIXES: [&str; 22] = [
        "sk-",
        "sk_",
        "rk_",
        "pk_live_",
        "ghp_",
        "gho_",
        "ghs_",
        "ghu_",
        "ghr_",
        "github_pat_",
        "xoxb-",
        "xoxp-",
        "xoxa-",
        "xoxr-",
        "xoxs-",
        "xapp-",
        "glpat-",
        "AKIA",
        "AIza",
        "eyJ",
        "hf_",
        "npm_",
    ];
    // Shorter words that begin so are words: `sk-learn`, `npm_run`.
    const SHORTEST: usize = 12;
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-.+".contains(letter);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.find(is_word).unwrap_or(rest.len());
        shown.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let word = &rest[..end];
        match PREFIXES.iter().find(|prefix| word.starts_with(**prefix)) {
            Some(prefix) if word.len() >= SHORTEST => {
                shown.push_str(prefix);
                shown.push_str(STARS);
            }
            Some(_) | None => shown.push_str(word),
        }
        rest = &rest[end..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(argv: &[&str]) -> String {
        arguments(argv).join(" ")
    }

    #[test]
    fn what_a_person_needs_to_see_stays() {
        for argv in [
            &["node", "/srv/app-server-broker.mjs", "serve", "--cwd", "/home/ana/src", "--endpoint"][..],
            &[
                "llm",
                "--max-tokens",
                "4096",
                "--tokenizer",
                "bpe",
                "--token-file=/etc/t",
                "--auth-type",
                "none",
            ],
            &["npx", "-y", "@playwright/mcp", "--port=8931", "http://127.0.0.1:8811/sessions"],
            &["git", "clone", "ssh://git@example.org/x", "sk-learn", "npm_run"],
            &["sh", "-c", "cd /x; PWD=/x FOO=bar exec y"],
            &["ünï", "--größe=3", "a:b", "c::d", "=", ":", ""],
        ] {
            assert_eq!(shown(argv), argv.join(" "));
        }
    }

    #[test]
    fn secrets_by_the_place_they_stand_in() {
        insta::assert_snapshot!(shown(&["a", "--token", "t0p", "-v", "--api-key=t0p", "GITHUB_TOKEN=t0p"]),
            @"a --token *** -v --api-key=*** GITHUB_TOKEN=***");
        insta::assert_snapshot!(shown(&["psql", "postgres://ana:t0p@db/x", "https://t0p@h/y", "https://h/z?key=t0p&a=b"]),
            @"psql postgres://ana:***@db/x https://***@h/y https://h/z?key=***&a=b");
        insta::assert_snapshot!(shown(&["curl", "-H", "Authorization: Bearer t0p", "-H", "X-Api-Key: t0p", "-u", "ana:t0p"]),
            @"curl -H Authorization: *** -H X-Api-Key: *** -u ana:***");
        insta::assert_snapshot!(shown(&["mcp", r#"{"apiKey": "t0p", "port": 1}"#, "x sk-aaaaaaaaaaaaaaaa y"]),
            @r#"mcp {"apiKey": "***", "port": 1} x sk-*** y"#);
        insta::assert_snapshot!(text("stdin of 'curl -H Authorization: Bearer t0p' and password=t0p, more"),
            @"stdin of 'curl -H Authorization: *** ***' and password=***, more");
        insta::assert_snapshot!(shown(&["a", "--password=with spaces & more", "--secret", "-t0p", "--token", "--verbose"]),
            @"a --password=*** --secret *** --token --verbose");
    }

    const NAMES: [&str; 8] = [
        "token",
        "api-key",
        "API_KEY",
        "clientSecret",
        "db.password",
        "X-Auth-Token",
        "authtoken",
        "passphrase",
    ];

    proptest! {
        #[test]
        fn never_panics_and_a_second_time_changes_nothing(argv in prop::collection::vec(".{0,40}", 0..6)) {
            let once = arguments(&argv);
            prop_assert_eq!(arguments(&once), once.clone());
            for argument in &argv {
                let once = text(argument);
                prop_assert_eq!(text(&once), once.clone());
            }
        }

        #[test]
        fn hostile_mixtures_settle_too(argv in prop::collection::vec(
            "(--)?(token|key|Bearer|Basic|https://|sk-aaaaaaaaaaaa|a@b|=|:| |\"|'|\\\\|&|-u|\\*\\*\\*){0,6}", 0..5))
        {
            let once = arguments(&argv);
            prop_assert_eq!(arguments(&once), once.clone());
        }

        #[test]
        fn bytes_that_are_no_text(argv in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..5)) {
            arguments(&argv);
        }

        #[test]
        fn no_secret_gets_out(name in prop::sample::select(&NAMES[..]), secret in "[A-Za-z0-9+_][A-Za-z0-9+/_-]{9,40}") {
            for argv in [
                vec![format!("--{name}={secret}")],
                vec![format!("--{name}"), secret.clone()],
                vec![format!("{name}={secret}")],
                vec!["sh".into(), "-c".into(), format!("x {name}={secret} y")],
                vec![format!("https://ana:{}@host/x", secret.replace('/', "%2F"))],
                vec![format!("https://host/x?a=b&{name}={secret}&c=d")],
                vec![format!("{name}: {secret}")],
                vec![format!("Authorization: Bearer {secret}")],
                vec![format!("x Authorization: Bearer {secret}")],
                vec![format!("{{\"{name}\":\"{secret}\"}}")],
                vec![format!("{{\"h\": \"Bearer {secret}\"}}")],
            ] {
                let shown = arguments(&argv).join(" ");
                prop_assert!(!shown.contains(&secret), "{argv:?} became {shown}");
            }
        }
    }
}
