//! A lease while its line is read.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::id::{FileId, Pid, ProcessId, Uid};
use crate::model::lease::{
    Bound, Cgroup, Covers, Holder, Lease, LeaseFile, LeaseId, Leftovers, Release, Run, RunChannel,
};

use super::super::Manner;
use super::super::defaults;
use super::super::rows::{Person, named_text};
use super::super::terms::{file, one_of};
use super::super::words::Word;
use super::{holder_term, span_of};

/// What a line said of a lease so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    owner: Option<Uid>,
    file: Option<FileId>,
    modified: Option<i64>,
    bound: Option<BoundWord>,
    ttl: Option<Duration>,
    holder: Option<Holder>,
    covers: Covers,
    labels: BTreeMap<String, String>,
    // The name of a label that is no plain word, until its value comes.
    label: Option<String>,
    note: Option<String>,
    release: Option<Release>,
    watcher: Option<ProcessId>,
    command: Option<ProcessId>,
    leftovers: Option<Leftovers>,
    channel: Option<RunChannel>,
    cgroup: Option<String>,
    cgroup_file: Option<FileId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoundWord {
    Holder,
    Ttl,
}

impl Draft {
    /// Reads a word that stands alone.
    pub(super) fn word(&mut self, word: &Word) -> Result<(), String> {
        if word.keyword() != Some("released") {
            return Err(format!("'{}' is nothing a lease can say", word.text));
        }
        self.release = Some(Release::Released(None));
        Ok(())
    }

    /// Reads one setting.
    pub(super) fn setting(
        &mut self,
        people: &BTreeMap<Pid, Person>,
        key: &str,
        value: &Word,
    ) -> Result<(), String> {
        match key {
            "owner" => self.owner = Some(Uid(value.number()?)),
            "file" => self.file = Some(file(value)?),
            "modified" => self.modified = Some(value.number()?),
            "bound" => {
                self.bound = Some(one_of(value, &[("holder", BoundWord::Holder), ("ttl", BoundWord::Ttl)])?);
            }
            "ttl" => self.ttl = Some(span_of(value)?),
            "env" => self.covers.env = Some(value.text.clone()),
            "covers" => {
                for one in value.string()?.split(',') {
                    self.covers.processes.push(named_text(people, one)?);
                }
            }
            "note" => self.note = Some(value.string()?),
            "released" => self.release = Some(Release::Released(Some(value.string()?))),
            "label-name" => self.label = Some(value.string()?),
            "label-value" => {
                let name = self.label.take().ok_or("label-value= comes after label-name=")?;
                self.labels.insert(name, value.string()?);
            }
            "watcher" => self.watcher = Some(named_text(people, &value.string()?)?),
            "command" => self.command = Some(named_text(people, &value.string()?)?),
            "cgroup" => self.cgroup = Some(value.string()?),
            "cgroup-file" => self.cgroup_file = Some(file(value)?),
            "leftovers" => {
                let words = [("reap", Leftovers::Reap), ("report", Leftovers::Report)];
                self.leftovers = Some(one_of(value, &words)?);
            }
            "channel" => {
                let words = [("stdio", RunChannel::Stdio), ("none", RunChannel::None)];
                self.channel = Some(one_of(value, &words)?);
            }
            key => match key.strip_prefix("label.") {
                Some(name) => {
                    self.labels.insert(name.to_owned(), value.string()?);
                }
                None => holder_term(&mut self.holder, people, key, value)?,
            },
        }
        Ok(())
    }

    /// Returns the lease; in a boring world its file is the looking user's, and its own.
    pub(super) fn finish(self, id: LeaseId, own: Uid, manner: Manner) -> Result<Lease, String> {
        if manner == Manner::Strict {
            for (name, given) in [
                ("owner=", self.owner.is_some()),
                ("file=", self.file.is_some()),
                ("modified=", self.modified.is_some()),
            ] {
                if !given {
                    return Err(format!("a strict world leaves nothing out, but {name} is not given"));
                }
            }
        }
        let bound = match (self.bound, self.ttl, &self.holder) {
            (Some(BoundWord::Ttl) | None, Some(ttl), _) => Bound::Ttl(ttl),
            (Some(BoundWord::Holder) | None, None, Some(_)) => Bound::Holder,
            (Some(BoundWord::Ttl), None, _) => return Err("bound=ttl needs ttl=".to_owned()),
            (Some(BoundWord::Holder), Some(_), _) => {
                return Err("ttl= has no meaning with bound=holder".to_owned());
            }
            (Some(BoundWord::Holder) | None, None, None) => {
                return Err("a lease names a holder= or a ttl=".to_owned());
            }
        };
        let cgroup = match (self.cgroup, self.cgroup_file) {
            (Some(path), file) => {
                let file = file.unwrap_or_else(|| defaults::file(format!("cgroup {path}").as_bytes()));
                Some(Cgroup { path, file })
            }
            (None, Some(_)) => return Err("cgroup-file= goes with cgroup=".to_owned()),
            (None, None) => None,
        };
        let of_run =
            self.command.is_some() || self.leftovers.is_some() || self.channel.is_some() || cgroup.is_some();
        let run = match self.watcher {
            Some(watcher) => Some(Run {
                watcher,
                command: self.command,
                leftovers: self.leftovers.unwrap_or(Leftovers::Reap),
                channel: self.channel.unwrap_or(RunChannel::None),
                cgroup,
            }),
            None if of_run => {
                return Err("command=, leftovers=, channel= and cgroup= go with watcher=".to_owned());
            }
            None => None,
        };
        let file = LeaseFile {
            owner: self.owner.unwrap_or(own),
            file: self.file.unwrap_or_else(|| defaults::file(format!("lease {id}").as_bytes())),
            modified: self.modified.unwrap_or(0),
        };
        Ok(Lease {
            id,
            file,
            bound,
            holder: self.holder,
            covers: self.covers,
            labels: self.labels,
            note: self.note,
            release: self.release.unwrap_or(Release::Open),
            run,
        })
    }
}
