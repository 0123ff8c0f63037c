//! What is remembered of containers: what was fixed when they were made, and since when a line holds for one of them.

use bstr::{BStr, BString};
use serde::{Deserialize, Serialize};

use crate::config::policy::AdmitEnv;
use crate::judge::containers::{Admission, ContainerNotes};
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::{ContainerFacts, ContainerRef, ContainerRun, ContainerState, Listed};
use crate::model::id::FileId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{Answer, EngineAnswer, EngineQuestion, PathAnswer, Question};
use crate::model::verdict::Verdict;

use super::{LastingKey, Ledger, Suspicion, fingerprint};

/// More containers than this are not remembered: they are asked for at each look.
const MOST: usize = 10_000;

/// What is remembered of containers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Containers {
    // Invariant: sorted by `at`, none twice.
    known: Vec<Remembered>,
    // Invariant: sorted by (at, policy), no pair twice.
    records: Vec<Record>,
}

/// What was fixed when a container was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    at: ContainerRef,
    /// Without its environment, which holds secrets; without its labels, which each list tells anew; and of its
    /// arguments the program alone. Its command is compared with what clients say, so it stands here whole, whatever
    /// it holds: the file of the ledger is its owner's alone (0600).
    facts: ContainerFacts,
    /// What `[scope] admit-env` asked for then, and whether it carried that.
    scope: u64,
    admitted: Admission,
}

/// What is remembered of one container under one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    at: ContainerRef,
    policy: String,
    /// Which run of it; another one is used by somebody else and starts anew.
    run: Option<ContainerRun>,
    suspicion: Option<Suspicion>,
    lasting: Vec<(LastingKey, Moment)>,
    /// Directories that it names, as they were while they were there, with their parents.
    directories: Vec<(BString, FileId, FileId)>,
}

impl Containers {
    /// What is suspected is suspected anew; what was fixed is fixed.
    pub(super) fn rearm(&mut self) {
        for record in &mut self.records {
            record.suspicion = None;
            record.lasting.clear();
        }
    }

    /// Forgets what an engine does not list any more; an engine that did not answer has said nothing.
    pub(super) fn begin(&mut self, look: &Look) {
        let is_here = |at: &ContainerRef| {
            let engine = look.snapshot.engines.iter().find(|engine| engine.id == at.engine);
            let listed = engine.and_then(|engine| engine.containers.as_ref().ok());
            listed.is_none_or(|listed| listed.iter().any(|listed| listed.id == at.id))
        };
        self.known.retain(|known| is_here(&known.at));
        self.records.retain(|record| is_here(&record.at));
    }

    fn record(&mut self, at: &ContainerRef, policy: &str) -> &mut Record {
        let place =
            self.records.binary_search_by(|record| (&record.at, record.policy.as_str()).cmp(&(at, policy)));
        let at = match place {
            Ok(place) => place,
            Err(place) => {
                self.records.insert(
                    place,
                    Record {
                        at: at.clone(),
                        policy: policy.to_owned(),
                        run: None,
                        suspicion: None,
                        lasting: Vec::new(),
                        directories: Vec::new(),
                    },
                );
                place
            }
        };
        &mut self.records[at]
    }

    fn get(&self, at: &ContainerRef, policy: &str) -> Option<&Record> {
        let place = self
            .records
            .binary_search_by(|record| (&record.at, record.policy.as_str()).cmp(&(at, policy)))
            .ok()?;
        self.records.get(place)
    }

    /// Remembers a look, once it has been judged.
    pub(super) fn remember(
        &mut self,
        look: &Look,
        judgements: &[ContainerJudgement],
        notes: &ContainerNotes,
    ) {
        self.remember_facts(look, notes);
        let now = look.snapshot.began.boot;
        for record in &mut self.records {
            let is_judged = |judgement: &ContainerJudgement| {
                judgement.at == record.at && judgement.policy == record.policy
            };
            // A look that had nothing to say of it is a look that did not agree: the row is broken.
            if !judgements.iter().any(is_judged) {
                record.suspicion = None;
                record.lasting.clear();
            }
        }
        for judgement in judgements {
            let note = notes.get(&judgement.at, &judgement.policy);
            let record = self.record(&judgement.at, &judgement.policy);
            let run = judgement.run.as_ref().ok();
            if record.run.is_some() && run.is_some() && record.run.as_ref() != run {
                record.suspicion = None;
                record.lasting.clear();
                record.directories.clear();
            }
            record.run = run.cloned().or(record.run.take());
            record.suspicion = match judgement.verdict {
                Verdict::Suspect { .. } | Verdict::Orphaned { .. } => note.and_then(|note| note.suspicion),
                Verdict::Protected | Verdict::Alive | Verdict::Unknown => None,
            };
            let lasting = note.map(|note| note.lasting.as_slice()).unwrap_or_default();
            record.lasting.retain(|(key, _)| lasting.contains(key));
            for &key in lasting {
                if !record.lasting.iter().any(|(kept, _)| *kept == key) {
                    record.lasting.push((key, now));
                }
            }
            remember_directories(record, judgement, look);
        }
    }

    fn remember_facts(&mut self, look: &Look, notes: &ContainerNotes) {
        for (question, answer) in &look.answers {
            let (Question::Engine(EngineQuestion::Container(at)), Ok(Answer::Engine(answer))) =
                (question, answer)
            else {
                continue;
            };
            let EngineAnswer::Container(facts) = answer else { continue };
            let Some(admitted) = notes.admitted.get(at).copied() else { continue };
            let mut facts = ContainerFacts::clone(facts);
            facts.env.clear();
            facts.labels.clear();
            facts.argv.truncate(1);
            let known = Remembered { at: at.clone(), facts, scope: notes.scope, admitted };
            match self.known.binary_search_by(|known| known.at.cmp(at)) {
                Ok(place) => self.known[place] = known,
                Err(place) if self.known.len() < MOST => self.known.insert(place, known),
                Err(_) => {}
            }
        }
    }
}

/// Records the directories that a container names, while they are there: a deletion counts only for what was once seen
/// (REDTEAM F8).
fn remember_directories(record: &mut Record, judgement: &ContainerJudgement, look: &Look) {
    let own = look.snapshot.table.at(look.snapshot.own.pid).map(|row| row.id);
    for (question, answer) in &look.answers {
        let (Question::Path { of, path }, Ok(Answer::Path(PathAnswer::Present { file, parent }))) =
            (question, answer)
        else {
            continue;
        };
        let is_named = || {
            judgement.captures.iter().any(|(_, value)| {
                let end = value.len() - value.iter().rev().take_while(|byte| **byte == b'/').count();
                end > 0 && path.windows(end).any(|part| part == &value[..end])
            })
        };
        let is_new = || !record.directories.iter().any(|(known, _, _)| known == path);
        if Some(*of) == own && is_named() && is_new() {
            record.directories.push((path.clone(), *file, parent.file));
        }
    }
}

impl Ledger {
    /// Returns what is remembered of a container, with whether the scope admits it, where it is surely still so: the
    /// same image, and the same first process where that is ours to see.
    pub(in crate::judge) fn container(
        &self,
        at: &ContainerRef,
        listed: &Listed,
        look: &Look,
        scope: &AdmitEnv,
    ) -> Option<(ContainerFacts, Admission)> {
        let place = self.containers.known.binary_search_by(|known| known.at.cmp(at)).ok()?;
        let known = &self.containers.known[place];
        if known.facts.image_id != listed.image_id || known.scope != fingerprint(scope) {
            return None;
        }
        let mut facts = known.facts.clone();
        match facts.init {
            Ok(init) => {
                let is_here = look.snapshot.table.get(init).is_some_and(|row| !row.is_gone());
                if !is_here || !matches!(listed.state, ContainerState::Running | ContainerState::Paused) {
                    return None;
                }
            }
            // Nobody here sees it run, so when this run began is not remembered either.
            Err(_) => facts.began = Err(Unknown::new(Reason::NotAsked, "when it began")),
        }
        facts.state = listed.state.clone();
        facts.labels.clone_from(&listed.labels);
        if let Some(name) = listed.names.first() {
            facts.name.clone_from(name);
        }
        Some((facts, known.admitted))
    }

    /// Returns the unbroken suspicion of this very run of a container under a policy.
    pub(in crate::judge) fn container_suspicion(
        &self,
        run: &ContainerRun,
        policy: &str,
    ) -> Option<Suspicion> {
        let record = self.containers.get(&run.at, policy)?;
        if record.run.as_ref() == Some(run) { record.suspicion } else { None }
    }

    /// Returns since when a condition has held at every look for this very run.
    pub(in crate::judge) fn container_lasting_since(
        &self,
        run: &ContainerRun,
        policy: &str,
        key: LastingKey,
    ) -> Option<Moment> {
        let record =
            self.containers.get(&run.at, policy).filter(|record| record.run.as_ref() == Some(run))?;
        record.lasting.iter().find(|(kept, _)| *kept == key).map(|(_, since)| *since)
    }

    /// Returns the identities of a directory that a container names, and of its parent, as recorded while it was there.
    pub(in crate::judge) fn container_directory(
        &self,
        run: &ContainerRun,
        policy: &str,
        path: &BStr,
    ) -> Option<(FileId, FileId)> {
        let record =
            self.containers.get(&run.at, policy).filter(|record| record.run.as_ref() == Some(run))?;
        record
            .directories
            .iter()
            .find(|(known, _, _)| known == path)
            .map(|(_, file, parent)| (*file, *parent))
    }

    /// Drops every suspicion of one container: an unfinished stop is judged anew from the first look.
    pub fn forget_container(&mut self, at: &ContainerRef) {
        self.containers.records.retain(|record| record.at != *at);
        self.containers.known.retain(|known| known.at != *at);
        self.pings.forget_container(at);
    }
}
