//! `reapd why` of a container: what each policy and each rule sees of it, or what became of it.

use std::fmt::Write as _;

use bstr::{BStr, ByteSlice as _};
use serde_json::{Value, json};

use super::named::{is_part_of_id, listed, named};
use super::{LEASE, ended};
use crate::app::exit::Exit;
use crate::app::journal::stopped::{StopStory, stops};
use crate::app::legible;
use crate::app::report::Seen;
use crate::app::report::containers::{exec_json, judgement_json, name, seen_of};
use crate::app::report::json::SCHEMA;
use crate::app::report::text::wait;
use crate::app::session::Session;
use crate::app::story::{finding, remembered};
use crate::app::trouble::Trouble;
use crate::app::why::verdict;
use crate::app::words::{age, count, homely, size};
use crate::config::policy::{Config, ContainerMatch, ContainerPolicy, Glob, LeaseLabel, ProofNeed};
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::leftover::ExecJudgement;
use crate::model::container::{ContainerRef, Listed};
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::look::Look;
use crate::model::plan::Wait;
use crate::model::question::{Answer, Question};
use crate::model::verdict::Verdict;

/// How many earlier stops of one container are told of.
const EARLIER: usize = 3;

/// The container that a process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Within {
    /// Which.
    pub at: ContainerRef,
    /// What it is called.
    pub name: String,
}

/// Returns the container that a process runs in: one whose processes it is among, or whose id stands in its cgroup.
pub fn of_process(
    session: &Session,
    config: &Config,
    look: &Look,
    id: ProcessId,
) -> Result<Option<Within>, Trouble> {
    let all: Vec<(ContainerRef, &Listed)> = listed(&look.snapshot.engines).collect();
    if all.is_empty() {
        return Ok(None);
    }
    let asked = Question::Facts(id);
    let answer = if let Some(known) = look.answers.get(&asked) {
        known.clone()
    } else {
        let mut eyes = session.observer(config)?;
        let answers = eyes.answer(&look.snapshot, std::slice::from_ref(&asked));
        let Some((_, answer)) = answers.into_iter().next() else { return Ok(None) };
        answer
    };
    let Ok(Answer::Facts(facts)) = answer else { return Ok(None) };
    let Ok(cgroup) = &facts.cgroup else { return Ok(None) };
    Ok(in_cgroup(&all, cgroup.as_bstr()))
}

/// Returns the container whose whole id stands in the path of a cgroup: `/docker/ID`, `/system.slice/docker-ID.scope`.
fn in_cgroup(all: &[(ContainerRef, &Listed)], cgroup: &BStr) -> Option<Within> {
    let fits = |(at, _): &&(ContainerRef, &Listed)| cgroup.contains_str(at.id.as_str());
    all.iter().find(fits).map(|(at, listed)| Within { at: at.clone(), name: name(listed) })
}

/// Returns what is to be said of a living container, as a document and as a screen; nothing where none is called so.
pub fn alive(seen: &Seen<'_>, what: &str) -> Result<Option<(Value, String)>, Trouble> {
    let Some((at, listed)) = named(&seen.look.snapshot.engines, what)? else { return Ok(None) };
    let judgements: Vec<&ContainerJudgement> =
        seen.verdicts.containers.iter().filter(|judgement| judgement.at == at).collect();
    let execs = seen.verdicts.execs.iter().filter(|exec| exec.at == at).collect();
    let alive = Alive { seen, at: &at, listed, judgements, execs };
    Ok(Some((alive.json(), alive.text())))
}

/// Tells what became of a container that the journal knows; nothing where it knows none.
pub fn dead(session: &mut Session, what: &str) -> Result<Option<Exit>, Trouble> {
    let history = remembered(session)?;
    let stories = stops(&history);
    let is_meant = |story: &&StopStory<'_>| {
        let judgement = &story.stop.judgement;
        judgement.listed.names.iter().any(|name| name == what)
            || is_part_of_id(what) && judgement.at.id.as_str().starts_with(what)
    };
    let found: Vec<&StopStory<'_>> = stories.iter().rev().filter(is_meant).take(EARLIER).collect();
    if found.is_empty() {
        return Ok(None);
    }
    if session.place.json {
        let stops: Vec<Value> = found.iter().map(|story| ended::as_json(story)).collect();
        session.json(&json!({ "schema": SCHEMA, "state": "gone", "containers": stops }));
        return Ok(Some(Exit::Done));
    }
    for story in found {
        let text = homely(&ended::told(story), session.around.home_text());
        session.out.line(&text);
    }
    Ok(Some(Exit::Done))
}

/// Returns what is said of a name that nobody bears.
pub fn nobody(look: &Look, what: &str) -> Trouble {
    let engines = &look.snapshot.engines;
    let blind = engines.iter().filter(|engine| engine.containers.is_err()).count();
    let what = escape(what.as_bytes());
    let hint = match (engines.len(), blind) {
        (0, _) => "no container engine was found; reapd log shows what was done",
        (_, 0) => "stopped containers are not looked at; reapd log shows what was done",
        (_, _) => "an engine did not answer: reapd sweep --dry-run says which and why",
    };
    Trouble::failed(format!(
        "there is no process and no running container '{what}', and the journal knows none"
    ))
    .hint(hint)
}

/// One living container, to be explained.
struct Alive<'a> {
    seen: &'a Seen<'a>,
    at: &'a ContainerRef,
    listed: &'a Listed,
    judgements: Vec<&'a ContainerJudgement>,
    execs: Vec<&'a ExecJudgement>,
}

impl Alive<'_> {
    fn waits(&self, judgement: &ContainerJudgement) -> Option<&Wait> {
        let waiting = &self.seen.plan.containers.waiting;
        let same = |other: &ContainerJudgement| other.at == judgement.at && other.policy == judgement.policy;
        waiting.iter().find(|(other, _)| same(other)).map(|(_, why)| why)
    }

    fn goes(&self) -> bool {
        self.seen.plan.containers.stops.iter().any(|stop| stop.run.at == *self.at)
    }

    /// Returns the verdict in the words of the screen.
    fn headline(&self) -> String {
        if self.goes() {
            return "REAP: when further looks agree".to_owned();
        }
        let is_condemned = |judgement: &&&ContainerJudgement| {
            matches!(judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
        };
        if let Some(judgement) = self.judgements.iter().find(is_condemned) {
            return match self.waits(judgement) {
                Some(why) => format!("KEEP for now: {}", wait(why)),
                None => "KEEP for now".to_owned(),
            };
        }
        let by = |verdict: &Verdict| self.judgements.iter().find(|judgement| judgement.verdict == *verdict);
        match (by(&Verdict::Protected), by(&Verdict::Unknown), self.judgements.first()) {
            (Some(judgement), _, _) => format!("KEEP: protected, {}", legible::text(&judgement.because)),
            (None, Some(_), _) => "KEEP: could not tell".to_owned(),
            (None, None, Some(judgement)) => format!("KEEP: {}", legible::text(&judgement.because)),
            (None, None, None) => "KEEP: no policy looks at it".to_owned(),
        }
    }

    fn text(&self) -> String {
        let clocks = self.seen.look.snapshot.began;
        let began = self.judgements.iter().find_map(|judgement| judgement.began.as_ref().ok());
        let up = match began {
            Some(began) => format!("up {}", age(clocks.boot.since(*began))),
            None => "up for an unknown time".to_owned(),
        };
        let resident = self.judgements.iter().map(|judgement| judgement.resident).max().unwrap_or(0);
        let mut text = format!(
            "{}  {}  {}  {up}  {}   {}\n",
            self.at,
            name(self.listed),
            legible::text(&self.listed.image),
            size(resident),
            self.headline()
        );
        for judgement in &self.judgements {
            self.judgement(&mut text, judgement);
        }
        text.push_str(&seen_of(&self.execs, &self.seen.config.execs.about));
        text.push('\n');
        for (policy, why) in self.others() {
            let _ = writeln!(text, "{policy}   does not match: {why}");
        }
        if let Some(processes) = self.processes() {
            let _ = writeln!(text, "\n{processes}");
        }
        if !self.judgements.iter().any(|judgement| judgement.verdict == Verdict::Protected) {
            let _ = writeln!(text, "Keep it for good:   reapd keep {}", self.at);
        }
        text
    }

    fn judgement(&self, text: &mut String, judgement: &ContainerJudgement) {
        let policy = self.seen.config.containers.iter().find(|policy| policy.name == judgement.policy);
        let about = policy.map(|policy| policy.about.as_str()).unwrap_or_default();
        let _ = write!(text, "\n{}   {}", judgement.policy, escape(about.as_bytes()));
        if policy.is_some_and(|policy| policy.proof == ProofNeed::Waived) {
            text.push_str("   (without proof)");
        }
        text.push('\n');
        for evidence in judgement.lines.iter().flat_map(|line| &line.evidence).chain(&judgement.vetoes) {
            let _ = writeln!(text, "  {}", finding(evidence));
        }
        let _ = writeln!(text, "  {}: {}", verdict(&judgement.verdict), legible::text(&judgement.because));
        if let Some(why) = self.waits(judgement) {
            let _ = writeln!(text, "  held back: {}", wait(why));
        }
        if let Some(cure) = &judgement.cure {
            let _ = writeln!(text, "  what would tell: {}", legible::text(cure));
        }
    }

    /// Returns each policy that does not look at it, with the reason.
    fn others(&self) -> Vec<(&str, String)> {
        let judged = |policy: &&ContainerPolicy| {
            self.judgements.iter().any(|judgement| judgement.policy == policy.name)
        };
        let policies = self.seen.config.containers.iter().filter(|policy| !judged(policy));
        policies.map(|policy| (policy.name.as_str(), mismatch(policy, self.listed))).collect()
    }

    fn processes(&self) -> Option<String> {
        let tree = self.judgements.iter().find_map(|judgement| judgement.tree.as_ref().ok())?;
        let first = tree.first()?;
        Some(format!("Its first process is {first}; {} in all.", count(tree.len(), "process", "processes")))
    }

    fn json(&self) -> Value {
        let now = self.seen.look.snapshot.began.boot;
        let others: Vec<Value> =
            self.others().into_iter().map(|(policy, why)| json!({ "policy": policy, "why": why })).collect();
        let waiting: Vec<Value> = self
            .judgements
            .iter()
            .filter_map(|judgement| {
                Some(json!({ "policy": judgement.policy, "why": wait(self.waits(judgement)?) }))
            })
            .collect();
        json!({
            "schema": SCHEMA,
            "state": "alive",
            "engine": legible::text(&self.at.engine.0),
            "id": self.at.id.as_str(),
            "name": name(self.listed),
            "image": legible::text(&self.listed.image),
            "headline": self.headline(),
            "judgements": self.judgements.iter().map(|one| judgement_json(one, now)).collect::<Vec<_>>(),
            "commands": self.execs.iter().map(|exec| exec_json(exec, now)).collect::<Vec<_>>(),
            "does_not_match": others,
            "waiting": waiting,
        })
    }
}

/// Returns why none of a policy's forms fits, as far as the list tells.
fn mismatch(policy: &ContainerPolicy, listed: &Listed) -> String {
    let why = |form: &ContainerMatch| {
        let fits = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.fits(BStr::new(text)));
        if !form.images.is_empty() && !fits(&form.images, &listed.image) {
            return Some(format!("its image is {}", legible::text(&listed.image)));
        }
        if !form.names.is_empty() && !listed.names.iter().any(|name| fits(&form.names, name)) {
            return Some(format!("its name is {}", name(listed)));
        }
        for (label, wanted) in &form.labels {
            match (listed.labels.get(label), wanted) {
                (None, _) => return Some(format!("it has no label {}", legible::text(label))),
                (Some(value), Some(glob)) if !glob.fits(BStr::new(value)) => {
                    return Some(format!("its label {} says otherwise", legible::text(label)));
                }
                (Some(_), _) => {}
            }
        }
        if form.lease == LeaseLabel::Given && !listed.labels.contains_key(LEASE) {
            return Some("no lease is among its labels".to_owned());
        }
        None
    };
    policy.matches.iter().find_map(why).unwrap_or_else(|| {
        "its standard input is not set up as the policy asks, or [scope] leaves it out".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::container::sample;

    #[test]
    fn a_process_is_in_the_container_whose_whole_id_its_cgroup_bears() {
        let listed = [sample::listed(1), sample::listed(2)];
        let all: Vec<(ContainerRef, &Listed)> = listed
            .iter()
            .map(|listed| (ContainerRef { id: listed.id.clone(), ..sample::at(0) }, listed))
            .collect();
        let id = sample::id(2);
        for cgroup in
            [format!("/docker/{}", id.as_str()), format!("/system.slice/docker-{}.scope/x", id.as_str())]
        {
            let within = in_cgroup(&all, BStr::new(&cgroup)).unwrap();
            assert_eq!((within.at, within.name.as_str()), (sample::at(2), "helper-2"));
        }
        for cgroup in ["/", &format!("/docker/{}", id.short())] {
            assert_eq!(in_cgroup(&all, BStr::new(cgroup)), None, "{cgroup}");
        }
    }
}
