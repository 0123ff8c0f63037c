//! Assesses one tree under one policy: protection, lines, vetoes, age and confirmation, in that order.

use std::time::Duration;

use bstr::BString;

use crate::config::policy::{AdmitEnv, Config, Confirm, Line, Offer, Policy};
use crate::model::evidence::{Evidence, Says};
use crate::model::facts::Facts;
use crate::model::id::Uid;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::ownership::Parentage;
use crate::model::question::{Answer, ChannelKind, FarEnd, Question};
use crate::model::rule::Strength;
use crate::model::table::Row;
use crate::model::verdict::{Judgement, LineFinding, LineList, Lookalike, Mode, Verdict};

use super::candidates::{Candidate, Candidates, captures, still_fits};
use super::case::Case;
use super::ledger::{LastingKey, Ledger, Suspicion, fingerprint};
use super::weigh::Halt;
use super::{vetoes, weigh};

/// What one assessment came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assessment {
    pub(super) judgement: Judgement,
    pub(super) suspicion: Option<Suspicion>,
    pub(super) lasting: Vec<LastingKey>,
}

/// Returns the assessment of a tree, nothing where the policy does not concern it after all, or the questions that
/// must be asked first.
pub(super) fn assess(
    look: &Look,
    config: &Config,
    candidates: &Candidates,
    candidate: &Candidate,
    ledger: &Ledger,
) -> Result<Option<Assessment>, Vec<Question>> {
    let policy = candidate.policy(config);
    let Some(row) = look.snapshot.table.get(candidate.root) else { return Ok(None) };
    let facts = match look.facts(candidate.root) {
        None => return Err(vec![Question::Facts(candidate.root)]),
        Some(Ok(facts)) => facts,
        Some(Err(Unknown { reason: Reason::Vanished, .. })) => return Ok(None),
        Some(Err(unknown)) => {
            return Ok(match config.scope {
                AdmitEnv::Everybody => Some(undecided(look, policy, row, candidate, &unknown)),
                // Whether it carries the mark cannot be told, so it is not ours to look at.
                AdmitEnv::Marked { .. } => None,
            });
        }
    };
    if !admitted(&config.scope, facts) {
        return Ok(None);
    }
    if let Some(unknown) = vetoes::unreadable(facts) {
        return Ok(Some(undecided(look, policy, row, candidate, unknown)));
    }
    if !still_fits(policy, look, row, facts) {
        return Ok(None);
    }
    let argv: &[BString] = facts.argv.as_deref().unwrap_or_default();
    let values = captures(policy, look, row.id, argv, Some(facts));
    let case = Case {
        look,
        memory: ledger,
        config,
        policy,
        root: row,
        captures: &values,
        tree: &candidate.tree,
        others: &candidates.others,
    };
    let mut judgement = blank(look, policy, row, candidate, Some(facts));
    judgement.captures = values.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    decide(&case, judgement).map(Some)
}

/// Returns the verdict on a tree whose questions were never answered: unknown, and so kept.
pub(super) fn unanswered(
    look: &Look,
    config: &Config,
    candidate: &Candidate,
    open: &[Question],
) -> Option<Assessment> {
    let policy = candidate.policy(config);
    let row = look.snapshot.table.get(candidate.root)?;
    let facts = look.facts(candidate.root).and_then(Result::ok);
    if !facts.is_some_and(|facts| admitted(&config.scope, facts)) && config.scope != AdmitEnv::Everybody {
        return None;
    }
    let unknown = Unknown::new(Reason::NotAsked, format!("{} questions about it", open.len()));
    Some(undecided(look, policy, row, candidate, &unknown))
}

fn admitted(scope: &AdmitEnv, facts: &Facts) -> bool {
    match scope {
        AdmitEnv::Everybody => true,
        AdmitEnv::Marked { name, value } => {
            facts.env.as_ref().is_ok_and(|env| env.get(name).is_some_and(|seen| seen == value))
        }
    }
}

fn decide(case: &Case<'_>, mut judgement: Judgement) -> Result<Assessment, Vec<Question>> {
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
            holding = Some(index);
            break;
        }
    }
    let done = |judgement, lasting| Ok(Assessment { judgement, suspicion: None, lasting });
    let Some(index) = holding else {
        let doubtful = judgement.lines.iter().find(|line| line.says == Says::Unknown);
        (judgement.verdict, judgement.because) = match doubtful {
            Some(line) => (Verdict::Unknown, last_why(line)),
            None => (Verdict::Alive, not_over(&judgement.lines)),
        };
        judgement.lookalike = lookalike(case);
        return done(judgement, lasting);
    };

    judgement.vetoes = vetoes::vetoes(case, weigh::clients(&case.policy.reap_when[index]))?;
    if let Some(veto) = judgement.vetoes.iter().find(|veto| veto.says != Says::No) {
        judgement.verdict = match (veto.says, veto.rule.as_str()) {
            (Says::Unknown, _) => Verdict::Unknown,
            (_, "kept" | "foreign") => Verdict::Protected,
            _ => Verdict::Alive,
        };
        judgement.because.clone_from(&veto.why);
        judgement.lookalike = Some(Lookalike::Vetoed(veto.rule.clone()));
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
            judgement.lookalike = Some(Lookalike::Vetoed(rule));
            return done(judgement, lasting);
        }
    }

    let deciding =
        judgement.lines.iter().find(|line| line.says == Says::Yes && line.list == LineList::ReapWhen);
    let evidence: &[Evidence] = deciding.map(|line| line.evidence.as_slice()).unwrap_or_default();
    judgement.because = reasons(evidence);
    judgement.causes = evidence.iter().filter_map(|seen| seen.cause.clone()).collect();
    if age(case) < case.config.confirm.min_age {
        judgement.verdict = Verdict::Alive;
        judgement.because = format!("{}, but {}", judgement.because, too_young(case));
        return done(judgement, lasting);
    }
    if let Some(unknown) = unidentified(case, &judgement) {
        judgement.verdict = Verdict::Unknown;
        judgement.because = format!("{}, but who it is cannot be told ({unknown})", judgement.because);
        return done(judgement, lasting);
    }
    if case.policy.mode == Mode::Report {
        judgement.lookalike = Some(Lookalike::ReportOnly);
    }
    let suspicion = confirm(case, &judgement, index);
    judgement.verdict = if suspicion.looks >= case.config.confirm.looks {
        Verdict::Orphaned { since: suspicion.since }
    } else {
        Verdict::Suspect { since: suspicion.since, looks: suspicion.looks }
    };
    Ok(Assessment { judgement, suspicion: Some(suspicion), lasting })
}

/// Returns what would keep a tree though this line held, so that a server which is kept anyway is not connected to.
fn kept(case: &Case<'_>, line: &Line) -> Result<Option<(Says, String)>, Vec<Question>> {
    if case.policy.offer == Offer::Told {
        return Ok(Some((Says::Unknown, "its policy is off".to_owned())));
    }
    if age(case) < case.config.confirm.min_age {
        return Ok(Some((Says::No, too_young(case))));
    }
    let vetoes = vetoes::vetoes(case, weigh::clients(line))?;
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

/// Returns what a rule says that was not asked, since something keeps the tree or may keep it.
pub(super) fn standing(keeps: Says) -> Says {
    match keeps {
        Says::Yes => Says::No,
        Says::No | Says::Unknown => Says::Unknown,
    }
}

fn age(case: &Case<'_>) -> Duration {
    case.look.snapshot.began.boot.since(case.root.began)
}

fn too_young(case: &Case<'_>) -> String {
    format!("it is younger than {}s", case.config.confirm.min_age.as_secs())
}

/// Returns why a root could not be told from another process with its number: the strict identity of a signal needs
/// its user and its executable, and without them no look could ever confirm it (CASES C07).
fn unidentified(case: &Case<'_>, judgement: &Judgement) -> Option<Unknown> {
    match &judgement.identity {
        Err(unknown) => Some(unknown.clone()),
        Ok(identity) if identity.exe.is_some() => None,
        Ok(_) => match case.facts(case.root.id) {
            Ok(Facts { exe: Err(unknown), .. }) => Some(unknown.clone()),
            Ok(_) | Err(_) => Some(Unknown::new(Reason::NotAsked, "its executable")),
        },
    }
}

/// Counts this look onto the unbroken row of looks at which the same line held for the same process. Looks that are
/// closer together than `apart` count once.
fn confirm(case: &Case<'_>, judgement: &Judgement, line: usize) -> Suspicion {
    let now = case.look.snapshot.began.boot;
    let asked = case.policy.reap_when.get(line).map_or(0, fingerprint);
    let earlier = judgement
        .identity
        .as_ref()
        .ok()
        .and_then(|identity| case.memory.suspicion(identity, &case.policy.name))
        .filter(|earlier| (earlier.line, earlier.asked) == (line, asked));
    counted(earlier, (line, asked), now, &case.config.confirm)
}

/// Returns the row of looks with this one: a further one where it is far enough apart, the first where there is none.
pub(super) fn counted(
    earlier: Option<Suspicion>,
    (line, asked): (usize, u64),
    now: Moment,
    confirm: &Confirm,
) -> Suspicion {
    match earlier {
        None => Suspicion { line, asked, since: now, counted: now, looks: 1 },
        Some(earlier) if now.since(earlier.counted) >= confirm.apart => {
            Suspicion { counted: now, looks: earlier.looks.saturating_add(1), ..earlier }
        }
        Some(earlier) => earlier,
    }
}

/// Returns the proofs' reasons, or all where there is no proof; what one says already, another does not repeat.
fn reasons(evidence: &[Evidence]) -> String {
    let has_proof = evidence.iter().any(|seen| seen.strength == Strength::Proof);
    let mut reasons: Vec<&str> = Vec::new();
    for seen in evidence.iter().filter(|seen| !has_proof || seen.strength == Strength::Proof) {
        if !reasons.iter().any(|said| said.contains(&seen.why)) {
            reasons.retain(|said| !seen.why.contains(said));
            reasons.push(&seen.why);
        }
    }
    reasons.join(", ")
}

/// Returns why no line holds: by the last proof that does not, since a period of a sign that is not over yet says less.
fn not_over(lines: &[LineFinding]) -> String {
    let is_proof =
        |line: &&LineFinding| line.evidence.last().is_some_and(|seen| seen.strength == Strength::Proof);
    lines.iter().rev().find(is_proof).or(lines.last()).map(last_why).unwrap_or_default()
}

pub(super) fn last_why(line: &LineFinding) -> String {
    line.evidence.last().map(|seen| seen.why.clone()).unwrap_or_default()
}

/// Returns why a kept tree may look leaked, from what is known anyway: nothing is asked for its sake.
fn lookalike(case: &Case<'_>) -> Option<Lookalike> {
    let stdin = match case.look.answers.get(&Question::Channel { of: case.root.id, fd: 0 }) {
        Some(Ok(Answer::Channel(channel))) => Some(channel),
        _ => None,
    };
    let piped = stdin
        .is_some_and(|channel| matches!(channel.kind, ChannelKind::Pipe { .. } | ChannelKind::Stream { .. }));
    match (case.parentage(), stdin.map(|channel| &channel.far)) {
        (_, Some(Ok(FarEnd::Gone))) if piped => Some(Lookalike::StdinEnded),
        (Parentage::Living(parent), Some(Ok(FarEnd::Held))) if piped => Some(Lookalike::HeldBy(parent)),
        (Parentage::Adopted(_) | Parentage::None, _) => Some(Lookalike::Adopted),
        (Parentage::Living(_), _) => None,
    }
}

fn undecided(
    look: &Look,
    policy: &Policy,
    row: &Row,
    candidate: &Candidate,
    unknown: &Unknown,
) -> Assessment {
    let mut judgement = blank(look, policy, row, candidate, None);
    judgement.verdict = Verdict::Unknown;
    judgement.because = unknown.to_string();
    Assessment { judgement, suspicion: None, lasting: Vec::new() }
}

fn blank(look: &Look, policy: &Policy, row: &Row, candidate: &Candidate, facts: Option<&Facts>) -> Judgement {
    let table = &look.snapshot.table;
    let cached = look.arguments(row.id);
    let argv = match facts.map(|facts| &facts.argv) {
        Some(Ok(argv)) => argv.clone(),
        Some(Err(_)) | None => {
            cached.and_then(|cached| cached.argv.as_deref().ok()).map(<[BString]>::to_vec).unwrap_or_default()
        }
    };
    let identity: Known<_> = match facts {
        Some(facts) => facts.identity(&look.snapshot.boot),
        None => Err(Unknown::new(Reason::NotAsked, "who it is")),
    };
    Judgement {
        root: row.id,
        uid: cached.map_or(Uid(u32::MAX), |cached| cached.uid),
        identity,
        policy: policy.name.clone(),
        mode: policy.mode,
        argv,
        captures: Vec::new(),
        verdict: Verdict::Unknown,
        because: String::new(),
        lines: Vec::new(),
        vetoes: Vec::new(),
        tree: candidate.tree.clone(),
        resident: candidate.tree.iter().filter_map(|&id| table.get(id)).map(|row| row.resident).sum(),
        began: row.began,
        causes: Vec::new(),
        lookalike: None,
    }
}
