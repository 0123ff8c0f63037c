//! The words of the language below its statements: facts, families, kinds, namespaces.

use crate::model::facts::{Executable, Facts, Fate, FileSystem, Freezer, Hangup, Namespaces};
use crate::model::id::{FileId, Pid, ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{ChannelKind, Family, Peer, TerminalFate};

use super::defaults;
use super::words::Word;

pub(super) fn pairs(words: &[Word]) -> Result<Vec<(&str, Word)>, String> {
    words
        .iter()
        .map(|word| word.split().ok_or_else(|| format!("'{}' is not of the form key=value", word.text)))
        .collect()
}

/// Facts of which nothing is known yet.
pub(super) fn blank(id: ProcessId) -> Facts {
    fn none<T>() -> Known<T> {
        Err(Unknown::new(Reason::NotAsked, "a fact"))
    }
    Facts {
        id,
        uid: none(),
        argv: none(),
        exe: none(),
        cwd: none(),
        env: none(),
        cgroup: none(),
        namespaces: none(),
        tracer: none(),
        hangup: none(),
        freezer: none(),
        unique: None,
    }
}

pub(super) fn fact(facts: &mut Facts, key: &str, value: &Word) -> Result<(), String> {
    let why = value.unknown(&format!("its {key}"))?;
    match (key, why) {
        ("uid", why) => facts.uid = known(why, || Ok(Uid(value.number()?)))?,
        ("exe", why) => {
            facts.exe = known(why, || {
                Ok(Executable { path: value.text.clone(), file: defaults::file(&value.text) })
            })?;
        }
        ("cwd", why) => facts.cwd = known(why, || Ok(defaults::directory(&value.text)))?,
        ("cgroup", why) => facts.cgroup = known(why, || Ok(value.text.clone()))?,
        ("namespaces", _) => facts.namespaces = namespaces(value)?,
        ("tracer", why) => {
            facts.tracer = known(why, || match value.keyword() {
                Some("none") => Ok(None),
                _ => Ok(Some(Pid::new(value.number()?).ok_or("a tracer is a process number or 'none'")?)),
            })?;
        }
        ("hangup", why) => {
            let words =
                [("ignored", Hangup::Ignored), ("caught", Hangup::Caught), ("default", Hangup::Default)];
            facts.hangup = known(why, || one_of(value, &words))?;
        }
        ("freezer", why) => {
            let words = [("frozen", Freezer::Frozen), ("thawed", Freezer::Thawed)];
            facts.freezer = known(why, || one_of(value, &words))?;
        }
        ("unique", None) => {
            facts.unique = if value.keyword() == Some("none") { None } else { Some(value.number()?) };
        }
        ("exe-file", None) => {
            facts.exe.as_mut().map_err(|_| "exe-file= comes after exe=")?.file = file(value)?;
        }
        ("cwd-file", None) => {
            facts.cwd.as_mut().map_err(|_| "cwd-file= comes after cwd=")?.file = file(value)?;
        }
        ("fate", why) => {
            let words = [("linked", Fate::Linked), ("deleted", Fate::Deleted)];
            facts.cwd.as_mut().map_err(|_| "fate= comes after cwd=")?.fate =
                known(why, || one_of(value, &words))?;
        }
        ("on", None) => facts.cwd.as_mut().map_err(|_| "on= comes after cwd=")?.on = file_system(value)?,
        (other, None) => return Err(format!("'{other}' is no fact")),
        (other, Some(_)) => return Err(format!("'{other}' cannot be unknown on its own")),
    }
    Ok(())
}

pub(super) fn known<T>(
    why: Option<Unknown>,
    value: impl FnOnce() -> Result<T, String>,
) -> Result<Known<T>, String> {
    match why {
        Some(why) => Ok(Err(why)),
        None => value().map(Ok),
    }
}

pub(super) fn one_of<T: Copy>(value: &Word, words: &[(&str, T)]) -> Result<T, String> {
    let word = value.keyword().unwrap_or_default();
    words.iter().find(|(name, _)| *name == word).map(|(_, one)| *one).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("'{}' is none of: {}", value.text, names.join(", "))
    })
}

/// Reads `pid:mount:net:time:user`; with fewer numbers, the others are the first ones of the kernel.
pub(super) fn namespaces(value: &Word) -> Result<Known<Namespaces>, String> {
    known(value.unknown("namespaces")?, || {
        let text = value.string()?;
        let mut numbers = text.split(':').map(|part| match part {
            "" => Ok(None),
            part => part.parse().map(Some).map_err(|_| format!("'{part}' is no namespace")),
        });
        let mut next =
            |default: u64| Ok::<_, String>(numbers.next().transpose()?.flatten().unwrap_or(default));
        let first = defaults::NAMESPACES;
        Ok(Namespaces {
            pid: next(first.pid)?,
            mount: next(first.mount)?,
            net: next(first.net)?,
            time: next(first.time)?,
            user: next(first.user)?,
        })
    })
}

pub(super) fn file(value: &Word) -> Result<FileId, String> {
    let text = value.string()?;
    let parts = text.split_once(':').and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
    let (dev, ino) = parts.ok_or_else(|| format!("'{text}' is not of the form DEVICE:INODE"))?;
    Ok(FileId { dev, ino })
}

pub(super) fn file_system(value: &Word) -> Result<FileSystem, String> {
    one_of(
        value,
        &[
            ("local", FileSystem::Local),
            ("overlay", FileSystem::Overlay),
            ("fuse", FileSystem::Fuse),
            ("network", FileSystem::Network),
        ],
    )
}

pub(super) fn family(word: &Word) -> Result<Family, String> {
    one_of(
        word,
        &[
            ("unix", Family::Unix),
            ("unix-datagram", Family::UnixDatagram),
            ("tcp", Family::Tcp),
            ("udp", Family::Udp),
        ],
    )
}

pub(super) fn peer(value: &Word) -> Result<Peer, String> {
    let text = value.string()?;
    match text.split_once('/') {
        Some(("inode", inode)) => {
            inode.parse().map(Peer::Inode).map_err(|_| format!("'{inode}' is no inode"))
        }
        Some(("remote", address)) => Ok(Peer::Remote(address.to_owned())),
        _ => match text.as_str() {
            "gone" => Ok(Peer::Gone),
            "unknown" => Ok(Peer::Unknown),
            _ => Err(format!("'{text}' is no peer: gone, unknown, inode/NUMBER or remote/ADDRESS")),
        },
    }
}

pub(super) fn kind(word: &Word, inode: u64) -> Result<ChannelKind, String> {
    let text = word.string()?;
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name, Some(value)),
        None => (text.as_str(), None),
    };
    let inode = || match value {
        Some(number) => number.parse().map_err(|_| format!("'{number}' is no inode")),
        None => Ok(inode),
    };
    Ok(match (name, value) {
        ("pipe", _) => ChannelKind::Pipe { inode: inode()? },
        ("stream", _) => ChannelKind::Stream { inode: inode()? },
        ("other", value) => ChannelKind::Other(value.unwrap_or_default().to_owned()),
        ("fifo", None) => ChannelKind::NamedFifo,
        ("terminal", None) => ChannelKind::Terminal(TerminalFate::Present),
        ("terminal-deleted", None) => ChannelKind::Terminal(TerminalFate::Deleted),
        ("null", None) => ChannelKind::Null,
        ("file", None) => ChannelKind::File,
        ("listener", None) => ChannelKind::Listener,
        ("unconnected", None) => ChannelKind::Unconnected,
        ("closed", None) => ChannelKind::Closed,
        _ => return Err(format!("'{text}' is no kind of channel")),
    })
}
