//! The options of `docker run` and `podman run`.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice as _};

/// What `run` was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// Whether it stays with its container.
    pub stays: Stays,
    /// `-i`.
    pub interactive: Switch,
    /// `-t`.
    pub tty: Switch,
    /// `--rm`.
    pub remove: Switch,
    /// `--name`.
    pub name: Option<BString>,
    /// `--cidfile`.
    pub cidfile: Option<BString>,
    /// `--label`, the last of each key; a label without a value has an empty one.
    pub labels: BTreeMap<BString, BString>,
    /// What was asked for that is not told here: options of a later version, or such as change what the others mean.
    pub unclear: Option<BString>,
    /// The image as it was written.
    pub image: BString,
    /// What stands behind the image.
    pub arguments: Vec<BString>,
}

/// Whether a client stays with its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It does.
    Attached,
    /// `-d`: it leaves at once.
    Detached,
}

/// Whether a flag is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Options of `docker run` and `podman run` without a value. All others take one.
const BARE: [&str; 19] = [
    "--detach",
    "--disable-content-trust",
    "--help",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
    "--use-api-socket",
    "--replace",
    "--rmi",
    "--env-host",
    "--http-proxy",
];
/// Options of one letter without a value.
const BARE_LETTERS: &str = "ditPq";
/// Options of one letter with one.
const LETTERS: &str = "acehlmpuvw";
/// Options of `docker run` with a value that change nothing of what is read here.
const VALUED: &str = " add-host annotation blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns \
    cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems \
    detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops dns \
    dns-opt dns-option dns-search domainname entrypoint env env-file expose gpus group-add health-cmd \
    health-interval health-retries health-start-interval health-start-period health-timeout hostname \
    io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory link link-local-ip log-driver log-opt mac-address \
    memory memory-reservation memory-swap memory-swappiness mount net net-alias network network-alias oom-score-adj \
    pid pids-limit platform publish pull restart runtime security-opt shm-size stop-signal stop-timeout storage-opt \
    sysctl tmpfs ulimit user userns uts volume volume-driver volumes-from workdir ";

impl RunOptions {
    /// Reads the words behind `run`. Nothing where one of them is not understood, or there is no image.
    pub fn read(words: &[BString]) -> Option<RunOptions> {
        let mut options = RunOptions {
            stays: Stays::Attached,
            interactive: Switch::Off,
            tty: Switch::Off,
            remove: Switch::Off,
            name: None,
            cidfile: None,
            labels: BTreeMap::new(),
            unclear: None,
            image: BString::default(),
            arguments: Vec::new(),
        };
        let mut rest = words;
        loop {
            // An option without an image behind it is a fault that the client tells best.
            let (word, behind) = rest.split_first()?;
            if !word.starts_with(b"-") || word == "-" {
                return Some(options.ended(word, behind));
            }
            let Ok(text) = word.to_str() else {
                // Whatever is no text begins no option that we know.
                return None;
            };
            rest = behind;
            if text == "--" {
                let (image, behind) = rest.split_first()?;
                return Some(options.ended(image, behind));
            }
            if text.starts_with("--") {
                options.long(text, &mut rest)?;
            } else {
                options.short(&text[1..], &mut rest)?;
            }
        }
    }

    fn ended(self, image: &BString, arguments: &[BString]) -> RunOptions {
        RunOptions { image: image.clone(), arguments: arguments.to_vec(), ..self }
    }

    fn long(&mut self, text: &str, rest: &mut &[BString]) -> Option<()> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(BString::from(value))),
            None => (text, None),
        };
        if BARE.contains(&name) {
            return self.flag(name, value.as_ref().map(|value| value.as_slice()));
        }
        let value = match value {
            Some(value) => value,
            None => next(rest)?,
        };
        self.valued(name, value);
        Some(())
    }

    /// Reads letters that stand together, of which the last may have a value: `-itd`, `-p80:80`, `-p 80:80`.
    fn short(&mut self, letters: &str, rest: &mut &[BString]) -> Option<()> {
        for (at, letter) in letters.char_indices() {
            let behind = &letters[at + letter.len_utf8()..];
            if BARE_LETTERS.contains(letter) {
                let name = match letter {
                    'd' => "--detach",
                    'i' => "--interactive",
                    't' => "--tty",
                    _ => "--quiet",
                };
                match behind.strip_prefix('=') {
                    Some(value) => return self.flag(name, Some(value.as_bytes())),
                    None => self.flag(name, None)?,
                }
            } else if LETTERS.contains(letter) {
                let value = match behind {
                    "" => next(rest)?,
                    value => BString::from(value.strip_prefix('=').unwrap_or(value)),
                };
                self.valued(if letter == 'l' { "--label" } else { "--env" }, value);
                if letter == 'a' {
                    self.unclear = Some("-a".into());
                }
                return Some(());
            } else {
                return None;
            }
        }
        Some(())
    }

    fn flag(&mut self, name: &str, value: Option<&[u8]>) -> Option<()> {
        match (name, switch(value)) {
            ("--detach", Some(Switch::On)) => self.stays = Stays::Detached,
            ("--detach", Some(Switch::Off)) => self.stays = Stays::Attached,
            ("--detach", None) => return None,
            ("--interactive", Some(switch)) => self.interactive = switch,
            ("--tty", Some(switch)) => self.tty = switch,
            ("--rm", Some(switch)) => self.remove = switch,
            ("--interactive" | "--tty" | "--rm", None) => self.unclear = Some(name.into()),
            _ => {}
        }
        Some(())
    }

    fn valued(&mut self, name: &str, value: BString) {
        match name {
            "--cidfile" => self.cidfile = Some(value),
            "--name" => self.name = Some(value),
            "--label" => {
                let (key, value) = value.split_once_str("=").unwrap_or((value.as_slice(), b""));
                self.labels.insert(key.into(), value.into());
            }
            // A file that may be another one by now changes only what is not compared, but for these.
            "--label-file" => {}
            _ => {
                let known = name.strip_prefix("--").is_some_and(|name| VALUED.contains(&format!(" {name} ")));
                if !known {
                    self.unclear = Some(name.into());
                }
            }
        }
    }
}

/// Takes the value of an option off the front.
fn next(rest: &mut &[BString]) -> Option<BString> {
    let (value, behind) = rest.split_first()?;
    *rest = behind;
    Some(value.clone())
}

/// Returns what a flag's value says, as strconv.ParseBool of Go reads it; a flag without one is on.
pub(super) fn switch(value: Option<&[u8]>) -> Option<Switch> {
    match value {
        None | Some(b"true" | b"1" | b"t" | b"T" | b"TRUE" | b"True") => Some(Switch::On),
        Some(b"false" | b"0" | b"f" | b"F" | b"FALSE" | b"False") => Some(Switch::Off),
        Some(_) => None,
    }
}
