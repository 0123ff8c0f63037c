//! What a `docker exec` on a command line runs, and in which container.

use bstr::{BString, ByteSlice as _};

use super::{DockerCommand, verb_at};

/// Options of `docker exec` that take a value (docker-exec(1)).
const VALUED: [&str; 5] = ["--detach-keys", "--env", "--env-file", "--user", "--workdir"];
/// And those that take none.
const BARE: [&str; 4] = ["--detach", "--interactive", "--privileged", "--tty"];

/// What a command line runs inside a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Executed {
    /// Nothing: it is no `exec`.
    Nothing,
    /// This.
    In {
        /// The container as it is named there: by a name, or by the beginning of an id.
        container: BString,
        /// The command and its arguments.
        argv: Vec<BString>,
    },
    /// An `exec` that was not understood: it may run anything anywhere.
    Unclear,
}

impl Executed {
    /// Returns what an argument vector of docker's client runs inside a container.
    pub fn of(argv: &[BString]) -> Executed {
        let DockerCommand::About(_) = DockerCommand::of(argv) else { return Executed::Nothing };
        let Some(mut at) = verb_at(argv) else { return Executed::Nothing };
        if argv[at] == "container" {
            at += 1;
        }
        if argv.get(at).is_none_or(|verb| verb != "exec") {
            return Executed::Nothing;
        }
        read(&argv[at + 1..]).unwrap_or(Executed::Unclear)
    }
}

/// Reads what stands behind `exec`: its options end at the first word that is none.
fn read(words: &[BString]) -> Option<Executed> {
    let mut words = words.iter();
    let container = loop {
        let word = words.next()?;
        if !word.starts_with(b"-") {
            break word;
        }
        if word == "--" {
            break words.next()?;
        }
        let text = word.to_str().ok()?;
        if text.starts_with("--") {
            match text.split_once('=') {
                Some((name, _)) if VALUED.contains(&name) || BARE.contains(&name) => {}
                None if BARE.contains(&text) => {}
                None if VALUED.contains(&text) => {
                    words.next()?;
                }
                Some(_) | None => return None,
            }
            continue;
        }
        let mut letters = text[1..].chars();
        while let Some(letter) = letters.next() {
            match letter {
                // A switch may say what it is set to, as `-i=false`.
                'd' | 'i' | 't' if !letters.as_str().starts_with('=') => {}
                'd' | 'i' | 't' => break,
                'e' | 'u' | 'w' => {
                    if letters.as_str().is_empty() {
                        words.next()?;
                    }
                    break;
                }
                _ => return None,
            }
        }
    };
    Some(Executed::In { container: container.clone(), argv: words.cloned().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Executed {
        Executed::of(&line.split_whitespace().map(BString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_container_and_the_command_behind_any_options() {
        let argv: Vec<BString> = ["tool", "-i", "web"].map(BString::from).to_vec();
        for line in [
            "docker exec web tool -i web",
            "/usr/bin/docker --context x exec -i web tool -i web",
            "docker container exec -it -u me -eA=b -e C --workdir=/x --env D=e --privileged web tool -i web",
            "docker exec -itu me -i=false --tty=false -- web tool -i web",
        ] {
            assert_eq!(of(line), Executed::In { container: "web".into(), argv: argv.clone() }, "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_may_be_anything_and_what_is_no_exec_is_nothing() {
        for line in ["docker exec", "docker exec -i", "docker exec --new web tool", "docker exec -x web t"] {
            assert_eq!(of(line), Executed::Unclear, "{line}");
        }
        for line in
            ["docker logs exec", "docker run -i web exec", "docker ps", "podman exec web t", "exec web"]
        {
            assert_eq!(of(line), Executed::Nothing, "{line}");
        }
    }
}
