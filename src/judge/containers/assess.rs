//! Assesses one container under one policy: scope, match, lines, vetoes, age and confirmation, in that order.

use std::time::Duration;

use bstr::BString;

use crate::config::policy::{AdmitEnv, Config, ContainerPolicy, Line};
use crate::judge::assess::standing;
use crate::judge::assess::{counted, last_why};
use crate::judge::ledger::{LastingKey, Ledger, Suspicion, fingerprint};
use crate::judge::served::acts;
use crate::judge::weigh::Halt;
use crate::model::container::judgement::{ContainerJudgement, ContainerLookalike};
use crate::model::container::{ContainerFacts, ContainerRef, Engine, Listed};
use crate::model::evidence::{Evidence, Says};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Look;
use crate::model::ownership::descendants;
use crate::model::question::{Answer, EngineAnswer, EngineQuestion, Question};
use crate::model::rule::Strength;
use crate::model::verdict::{LineList, Mode, Verdict};

use super::Admission;
use super::candidates::{captures, fits, is_admitted, is_admitted_by_label, needs_asking};
use super::case::{ContainerCase, Crowd};
use super::cure::{cure, cure_of, lookalike};
use super::vetoes::{self, Word};
use super::weigh;

/// What one container is assessed by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) look: &'a Look,
    pub(super) config: &'a Config,
    pub(super) engine: &'a Engine,
    pub(super) listed: &'a Listed,
    pub(super) policy: &'a ContainerPolicy,
    pub(super) ledger: &'a Ledger,
    pub(super) crowd: &'a Crowd,
}

/// What one assessment came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assessment {
    pub(super) judgement: ContainerJudgement,
    pub(super) suspicion: Option<Suspicion>,
    pub(super) lasting: Vec<LastingKey>,
}

/// Returns the assessment of a container, nothing where the policy does not concern it after all, or the questions that
/// must be asked first.
///
/// It is weighed with what is remembered first, where something is; only where that would end it is the engine asked for
/// it, and everything weighed again.
pub(super) fn assess(ground: &Ground<'_>) -> Result<Option<Assessment>, Vec<Question>> {
    let Ground { look, config, engine, listed, policy, ledger, .. } = *ground;
    let at = ContainerRef { engine: engine.id.clone(), id: listed.id.clone() };
    let question = Question::Engine(EngineQuestion::Container(at.clone()));
    let weighed = |facts: &ContainerFacts| weighed(ground, facts);
    match look.answers.get(&question) {
        Some(Ok(Answer::Engine(EngineAnswer::Container(facts)))) => {
            if facts.run.at != at || !is_admitted(&config.scope, facts) {
                return Ok(None);
            }
            weighed(facts)
        }
        // It went, or this is an answer to another question.
        Some(Err(Unknown { reason: Reason::Vanished, .. }) | Ok(_)) => Ok(None),
        Some(Err(unknown)) => {
            Ok(is_in_scope(config, listed).then(|| undecided(look, engine, listed, policy, unknown)))
        }
        None => match ledger.container(&at, listed, look, &config.scope) {
            Some((_, Admission::Foreign)) => Ok(None),
            Some((facts, Admission::Admitted)) if !needs_asking(policy, &facts) => match weighed(&facts) {
                Ok(Some(assessment)) if is_condemned(&assessment) => Err(vec![question]),
                // Nobody connects to what was only remembered.
                Err(questions) if questions.iter().any(acts) => Err(vec![question]),
                other => other,
            },
            Some(_) | None => Err(vec![question]),
        },
    }
}

/// Returns the verdict on a container whose questions were never answered: unknown, and so kept.
pub(super) fn unanswered(ground: &Ground<'_>, open: &[Question]) -> Option<Assessment> {
    let Ground { look, config, engine, listed, policy, .. } = *ground;
    let at = ContainerRef { engine: engine.id.clone(), id: listed.id.clone() };
    let asked = look.answers.get(&Question::Engine(EngineQuestion::Container(at)));
    let facts = match asked {
        Some(Ok(Answer::Engine(EngineAnswer::Container(facts)))) => Some(facts.as_ref()),
        _ => None,
    };
    let is_ours = match facts {
        Some(facts) => is_admitted(&config.scope, facts) && fits(policy, engine, listed, facts),
        None => is_in_scope(config, listed),
    };
    let unknown = Unknown::new(Reason::NotAsked, format!("{} questions about it", open.len()));
    is_ours.then(|| undecided(look, engine, listed, policy, &unknown))
}

/// Says whether a container is ours to look at, as far as the list tells.
fn is_in_scope(config: &Config, listed: &Listed) -> bool {
    config.scope == AdmitEnv::Everybody || is_admitted_by_label(&config.scope, &listed.labels)
}

fn is_condemned(assessment: &Assessment) -> bool {
    matches!(assessment.judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
}

fn weighed(ground: &Ground<'_>, facts: &ContainerFacts) -> Result<Option<Assessment>, Vec<Question>> {
    let Ground { look, config, engine, listed, policy, ledger: memory, crowd } = *ground;
    if !fits(policy, engine, listed, facts) {
        return Ok(None);
    }
    let values = captures(policy, facts);
    let captures = &values;
    let case = ContainerCase { look, memory, config, policy, engine, listed, facts, captures, crowd };
    let mut judgement = blank(look, engine, listed, policy, Some(facts));
    judgement.captures = values.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    decide(&case, judgement).map(Some)
}

fn decide(case: &ContainerCase<'_>, mut judgement: ContainerJudgement) -> Result<Assessment, Vec<Question>> {
    let mut lasting = Vec::new();
    let mut holding = None;
    for (index, line) in case.policy.reap_when.iter().enumerate() {
        let weighed = match weigh::line(case, LineList::ReapWhen, index, line) {
            Ok(weighed) => weighed,
            Err(Halt::Ask(questions)) => return Err(questions),
            Err(Halt::Act { questions, so_far, rule, strength }) => match kept(case, line)? {
                None => return Err(questions),
                Some((says, why)) => so_far.cut(rule, strength, says, format!("it was not asked: {why}")),
            },
        };
        lasting.extend(weighed.lasting);
        let says = weighed.finding.says;
        judgement.lines.push(weighed.finding);
        if says == Says::Yes {
            holding = Some((index, line));
            break;
        }
    }
    let done = |judgement, lasting| Ok(Assessment { judgement, suspicion: None, lasting });
    let Some((index, line)) = holding else {
        let doubtful = judgement.lines.iter().find(|line| line.says == Says::Unknown);
        (judgement.verdict, judgement.because, judgement.cure) = match doubtful {
            Some(line) => (Verdict::Unknown, last_why(line), cure_of(case, line)),
            None => (Verdict::Alive, judgement.lines.last().map(last_why).unwrap_or_default(), None),
        };
        judgement.lookalike = lookalike(case, &judgement);
        return done(judgement, lasting);
    };

    judgement.vetoes = vetoes::vetoes(case, Word::of(line))?;
    if let Some(veto) = judgement.vetoes.iter().find(|veto| veto.says != Says::No) {
        judgement.verdict = match (veto.says, veto.rule.as_str()) {
            (Says::Unknown, _) => Verdict::Unknown,
            (_, "kept" | "labelled" | "kubernetes") => Verdict::Protected,
            _ => Verdict::Alive,
        };
        judgement.because.clone_from(&veto.why);
        judgement.lookalike = Some(ContainerLookalike::Vetoed(veto.rule.clone()));
        if judgement.verdict == Verdict::Unknown {
            judgement.cure = cure(case, &veto.rule);
        }
        return done(judgement, lasting);
    }
    for (at, line) in case.policy.spare_when.iter().enumerate() {
        let weighed = weigh::line(case, LineList::SpareWhen, at, line).map_err(Halt::questions)?;
        lasting.extend(weighed.lasting);
        let says = weighed.finding.says;
        let why = last_why(&weighed.finding);
        let rule = weighed.finding.evidence.last().map(|seen| seen.rule.clone()).unwrap_or_default();
        judgement.lines.push(weighed.finding);
        if says != Says::No {
            judgement.verdict = if says == Says::Yes { Verdict::Alive } else { Verdict::Unknown };
            judgement.because = why;
            judgement.lookalike = Some(ContainerLookalike::Vetoed(rule));
            return done(judgement, lasting);
        }
    }

    let deciding =
        judgement.lines.iter().find(|line| line.says == Says::Yes && line.list == LineList::ReapWhen);
    let evidence: &[Evidence] = deciding.map(|line| line.evidence.as_slice()).unwrap_or_default();
    judgement.because = reasons(evidence);
    judgement.causes = evidence.iter().filter_map(|seen| seen.cause.clone()).collect();
    match age(case) {
        Err(unknown) => {
            judgement.verdict = Verdict::Unknown;
            judgement.because =
                format!("{}, but how old it is cannot be told ({unknown})", judgement.because);
            return done(judgement, lasting);
        }
        Ok(age) if age < case.config.confirm.min_age => {
            judgement.verdict = Verdict::Alive;
            let least = case.config.confirm.min_age.as_secs();
            judgement.because = format!("{}, but it is younger than {least}s", judgement.because);
            return done(judgement, lasting);
        }
        Ok(_) => {}
    }
    if let Err(unknown) = &judgement.run {
        judgement.verdict = Verdict::Unknown;
        judgement.because =
            format!("{}, but which run of it this is cannot be told ({unknown})", judgement.because);
        return done(judgement, lasting);
    }
    if case.policy.mode == Mode::Report {
        judgement.lookalike = Some(ContainerLookalike::ReportOnly);
    }
    let suspicion = confirm(case, index);
    judgement.verdict = if suspicion.looks >= case.config.confirm.looks {
        Verdict::Orphaned { since: suspicion.since }
    } else {
        Verdict::Suspect { since: suspicion.since, looks: suspicion.looks }
    };
    Ok(Assessment { judgement, suspicion: Some(suspicion), lasting })
}

/// Returns what would keep a container though this line held, so that one which is kept anyway is not connected to.
fn kept(case: &ContainerCase<'_>, line: &Line) -> Result<Option<(Says, String)>, Vec<Question>> {
    match age(case) {
        Err(unknown) => {
            return Ok(Some((Says::Unknown, format!("how old it is cannot be told ({unknown})"))));
        }
        Ok(age) if age < case.config.confirm.min_age => {
            let least = case.config.confirm.min_age.as_secs();
            return Ok(Some((Says::No, format!("it is younger than {least}s"))));
        }
        Ok(_) => {}
    }
    let vetoes = vetoes::vetoes(case, Word::of(line))?;
    if let Some(veto) = vetoes.into_iter().find(|veto| veto.says != Says::No) {
        return Ok(Some((standing(veto.says), veto.why)));
    }
    for (at, line) in case.policy.spare_when.iter().enumerate() {
        let weighed = weigh::line(case, LineList::SpareWhen, at, line).map_err(Halt::questions)?;
        if weighed.finding.says != Says::No {
            return Ok(Some((standing(weighed.finding.says), last_why(&weighed.finding))));
        }
    }
    Ok(None)
}

/// Returns how old this run is: by its first process, or else by when it was made, by the engine's clock.
fn age(case: &ContainerCase<'_>) -> Known<Duration> {
    let now = case.look.snapshot.began;
    match &case.facts.began {
        Ok(began) => Ok(now.boot.since(*began)),
        Err(unknown) => {
            // It may have been made before this boot, which is no moment of the boot clock; the second's end counts.
            let made = (i128::from(case.listed.created) + 1) * 1_000;
            let age = u64::try_from(i128::from(now.wall) - made);
            age.map(Duration::from_millis).map_err(|_| unknown.clone())
        }
    }
}

/// Counts this look onto the unbroken row of looks at which the same line held for the same run. Looks that are closer
/// together than `apart` count once.
fn confirm(case: &ContainerCase<'_>, line: usize) -> Suspicion {
    let now = case.look.snapshot.began.boot;
    let asked = case.policy.reap_when.get(line).map_or(0, fingerprint);
    let earlier = case
        .memory
        .container_suspicion(&case.facts.run, &case.policy.name)
        .filter(|earlier| (earlier.line, earlier.asked) == (line, asked));
    counted(earlier, (line, asked), now, &case.config.confirm)
}

/// Returns the proofs' reasons, or all where there is no proof.
fn reasons(evidence: &[Evidence]) -> String {
    let has_proof = evidence.iter().any(|seen| seen.strength == Strength::Proof);
    let said = evidence.iter().filter(|seen| !has_proof || seen.strength == Strength::Proof);
    said.map(|seen| seen.why.as_str()).collect::<Vec<_>>().join(", ")
}

fn undecided(
    look: &Look,
    engine: &Engine,
    listed: &Listed,
    policy: &ContainerPolicy,
    unknown: &Unknown,
) -> Assessment {
    let mut judgement = blank(look, engine, listed, policy, None);
    judgement.because = unknown.to_string();
    judgement.lookalike = Some(ContainerLookalike::CannotTell);
    Assessment { judgement, suspicion: None, lasting: Vec::new() }
}

fn blank(
    look: &Look,
    engine: &Engine,
    listed: &Listed,
    policy: &ContainerPolicy,
    facts: Option<&ContainerFacts>,
) -> ContainerJudgement {
    let unasked = || Unknown::new(Reason::NotAsked, "what the engine says of it");
    let table = &look.snapshot.table;
    let tree: Known<Vec<ProcessId>> = match facts.map(|facts| &facts.init) {
        Some(Ok(init)) => Ok(descendants(table, *init)),
        Some(Err(unknown)) => Err(unknown.clone()),
        None => Err(unasked()),
    };
    let members = tree.as_deref().unwrap_or_default();
    let argv: Vec<BString> = facts.map(|facts| facts.argv.clone()).unwrap_or_default();
    ContainerJudgement {
        at: ContainerRef { engine: engine.id.clone(), id: listed.id.clone() },
        run: facts.map(|facts| facts.run.clone()).ok_or_else(unasked),
        listed: listed.clone(),
        policy: policy.name.clone(),
        mode: policy.mode,
        argv,
        captures: Vec::new(),
        verdict: Verdict::Unknown,
        because: String::new(),
        lines: Vec::new(),
        vetoes: Vec::new(),
        resident: members.iter().filter_map(|&id| table.get(id)).map(|row| row.resident).sum(),
        tree,
        began: facts.map_or_else(|| Err(unasked()), |facts| facts.began.clone()),
        causes: Vec::new(),
        lookalike: None,
        cure: None,
    }
}
