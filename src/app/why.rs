//! `reapd why`: for one process, what each policy and each rule sees of it, or what became of it.

use std::fmt::Write as _;
use std::time::Duration;

use bstr::ByteSlice as _;
use serde_json::{Value, json};

use super::containers::why::{self as container, Within};
use super::exit::Exit;
use super::glance::glance;
use super::journal::history::stories;
use super::legible;
use super::mismatch::mismatch;
use super::report::json::{SCHEMA, tree};
use super::report::text::wait;
use super::report::{Detail, Seen, Stage};
use super::session::Session;
use super::story::{self, finding, remembered};
use super::trouble::Trouble;
use super::words::{age, homely, size};
use crate::config::policy::{ArgumentsShown, Config, Policy};
use crate::judge::protect::protected;
use crate::model::escape::escape;
use crate::model::id::{Pid, ProcessId};
use crate::model::look::Look;
use crate::model::ownership::{Parentage, ancestors, parentage};
use crate::model::plan::{Plan, Wait};
use crate::model::table::{Row, State};
use crate::model::verdict::{Judgement, Verdict};
use crate::plan::{Asked, Pace};

/// How many earlier bearers of one number are told of.
const EARLIER: usize = 3;

/// Runs it, for a process by its number, or for a container by its name or id. What nobody bears and the journal does
/// not know ends with [`Exit::Failed`].
pub fn run(session: &mut Session, what: &str) -> Result<Exit, Trouble> {
    let pid = what.parse::<i32>().ok().and_then(Pid::new);
    let config = session.configuration()?.config;
    let asked = Asked { pace: Pace::Unpaced, ..Asked::default() };
    let (sight, plan) = glance(session, &config, &asked)?;
    let seen = Seen {
        look: &sight.look,
        verdicts: &sight.verdicts,
        plan: &plan,
        config: &config,
        home: session.home(),
        took: sight.took,
        only: None,
        stage: Stage::DryRun,
        detail: Detail::All,
    };
    let row = pid.and_then(|pid| sight.look.snapshot.table.at(pid)).filter(|row| !row.is_gone());
    if let Some(row) = row {
        let within = container::of_process(session, &config, &sight.look, row.id)?;
        let alive = Alive { seen: &seen, row, within };
        let (json, text) = (alive.json(), homely(&alive.text(), session.home()));
        if session.place.json {
            session.json(&json);
        } else {
            session.out.data(&text);
        }
        return Ok(Exit::Done);
    }
    if let Some((json, text)) = container::alive(&seen, what)? {
        let text = homely(&text, session.home());
        if session.place.json {
            session.json(&json);
        } else {
            session.out.data(&text);
        }
        return Ok(Exit::Done);
    }
    match (pid, container::dead(session, what)?) {
        (_, Some(exit)) => Ok(exit),
        (Some(pid), None) => dead(session, pid),
        (None, None) => Err(container::nobody(&sight.look, what)),
    }
}

fn dead(session: &mut Session, pid: Pid) -> Result<Exit, Trouble> {
    let history = remembered(session)?;
    let stories = stories(&history);
    let named: Vec<_> = stories.iter().rev().filter(|story| story.names(pid)).take(EARLIER).collect();
    if named.is_empty() {
        return Err(Trouble::failed(format!("there is no process {pid}, and the journal does not know it"))
            .hint("reapd log shows what was torn down"));
    }
    if session.place.json {
        let teardowns: Vec<Value> = named.iter().map(|story| story::as_json(story)).collect();
        session
            .json(&json!({ "schema": SCHEMA, "pid": pid.number(), "state": "gone", "teardowns": teardowns }));
        return Ok(Exit::Done);
    }
    for story in named {
        let text = homely(&story::told(story), session.around.home_text());
        session.out.line(&text);
    }
    Ok(Exit::Done)
}

/// One living process, to be explained.
struct Alive<'a> {
    seen: &'a Seen<'a>,
    row: &'a Row,
    /// The container that it runs in, where it is known to.
    within: Option<Within>,
}

impl Alive<'_> {
    fn look(&self) -> &Look {
        self.seen.look
    }

    fn config(&self) -> &Config {
        self.seen.config
    }

    fn plan(&self) -> &Plan {
        self.seen.plan
    }

    /// Returns the judgements on the tree that it is the root of, else those on trees that it is in.
    fn judgements(&self) -> Vec<&Judgement> {
        let all = || self.seen.verdicts.judgements.iter();
        let own: Vec<&Judgement> = all().filter(|judgement| judgement.root == self.row.id).collect();
        if !own.is_empty() {
            return own;
        }
        all().filter(|judgement| judgement.tree.contains(&self.row.id)).collect()
    }

    /// Returns why it is never touched. Protected roots drop out before they are judged (B11, B49), so that the
    /// verdicts alone do not tell.
    fn protected(&self) -> Option<String> {
        let id = self.row.id;
        let known = self.seen.verdicts.protected.iter().find(|(known, _)| *known == id).cloned();
        known.or_else(|| protected(self.look(), self.config(), &[id]).pop()).map(|(_, why)| why)
    }

    fn waits(&self, judgement: &Judgement) -> Option<&Wait> {
        let same = |other: &Judgement| other.root == judgement.root && other.policy == judgement.policy;
        self.plan().waiting.iter().find(|waiting| same(&waiting.judgement)).map(|waiting| &waiting.why)
    }

    /// Returns the verdict in the words of the screen.
    fn headline(&self) -> String {
        if let Some(why) = self.protected() {
            return format!("KEEP: protected, {}", legible::text(&why));
        }
        let judgements = self.judgements();
        let goes = |judgement: &&&Judgement| {
            matches!(judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
        };
        if let Some(judgement) = judgements.iter().find(goes) {
            return match self.waits(judgement) {
                None => "REAP: when further looks agree".to_owned(),
                Some(why) => format!("KEEP for now: {}", wait(why)),
            };
        }
        if judgements.iter().any(|judgement| judgement.verdict == Verdict::Unknown) {
            return "KEEP: could not tell".to_owned();
        }
        match judgements.first() {
            Some(judgement) => format!("KEEP: {}", legible::text(&judgement.because)),
            None => "KEEP: no policy looks at it".to_owned(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}  {}  up {}  {}   {}\n",
            self.row.id,
            self.command(),
            age(self.age()),
            size(self.row.resident),
            self.headline()
        );
        let judgements = self.judgements();
        for judgement in &judgements {
            self.judgement(&mut text, judgement);
        }
        text.push('\n');
        for (policy, why) in self.others(&judgements) {
            let _ = writeln!(text, "{policy}   does not match: {why}");
        }
        let _ = writeln!(text, "\n{}", self.parent());
        if let Some(within) = &self.within {
            let _ = writeln!(text, "It runs in container {}:   reapd why {}", within.name, within.at);
        }
        if self.protected().is_none() {
            let _ = writeln!(text, "Keep it for good:   reapd keep {}", self.row.id);
        }
        text
    }

    fn judgement(&self, text: &mut String, judgement: &Judgement) {
        let about = self.policy(&judgement.policy).map(|policy| policy.about.as_str()).unwrap_or_default();
        let _ = write!(text, "\n{}   {}", judgement.policy, escape(about.as_bytes()));
        if judgement.root != self.row.id {
            let root = self.seen.name(judgement.root);
            let _ = write!(text, "   as part of the tree of {} {root}", judgement.root);
        }
        if self.seen.without_proof().contains(&judgement.policy.as_str()) {
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
    }

    fn policy(&self, name: &str) -> Option<&Policy> {
        self.config().policies.iter().find(|policy| policy.name == name)
    }

    /// Returns each policy that does not match, with the reason.
    fn others(&self, judgements: &[&Judgement]) -> Vec<(&str, String)> {
        let matched = |policy: &&Policy| {
            judgements
                .iter()
                .any(|judgement| judgement.policy == policy.name && judgement.root == self.row.id)
        };
        let argv = self.look().arguments(self.row.id).map(|entry| &entry.argv);
        let exe = match self.look().facts(self.row.id) {
            Some(Ok(facts)) => facts.exe.as_ref().ok().map(|exe| exe.path.as_bstr()),
            Some(Err(_)) | None => None,
        };
        self.config()
            .policies
            .iter()
            .filter(|policy| !matched(policy))
            .map(|policy| {
                let why = match argv {
                    None if self.row.state == State::Zombie => "its first thread has ended".to_owned(),
                    None => "it belongs to another user, or to the kernel".to_owned(),
                    Some(Err(unknown)) => legible::text(&unknown.to_string()),
                    Some(Ok(argv)) => mismatch(policy, argv, exe).unwrap_or_else(|| {
                        if self.protected().is_some() {
                            return "its form fits, and it is protected".to_owned();
                        }
                        "its form fits, but it is judged with the tree it belongs to, or [scope] leaves it out"
                            .to_owned()
                    }),
                };
                (policy.name.as_str(), why)
            })
            .collect()
    }

    fn command(&self) -> String {
        match self.look().arguments(self.row.id).map(|entry| &entry.argv) {
            Some(Ok(argv)) if !argv.is_empty() => legible::argv(argv, ArgumentsShown::Redacted).join(" "),
            Some(_) | None => escape(self.row.name()),
        }
    }

    fn age(&self) -> Duration {
        self.look().snapshot.began.boot.since(self.row.began)
    }

    fn parent(&self) -> String {
        let named = |id: ProcessId| format!("{id} {}", self.seen.name(id));
        match parentage(&self.look().snapshot.table, &self.look().reapers, self.row) {
            Parentage::Living(parent) => format!("Parent {} is alive.", named(parent)),
            Parentage::Adopted(parent) => format!("Its parent is gone; {} adopted it.", named(parent)),
            Parentage::None => "It has no parent that could be seen.".to_owned(),
        }
    }

    fn json(&self) -> Value {
        let judgements = self.judgements();
        let others: Vec<Value> = self
            .others(&judgements)
            .into_iter()
            .map(|(policy, why)| json!({ "policy": policy, "why": why }))
            .collect();
        let waiting: Vec<Value> = judgements
            .iter()
            .filter_map(|judgement| {
                Some(json!({ "policy": judgement.policy, "why": wait(self.waits(judgement)?) }))
            })
            .collect();
        let above = ancestors(&self.look().snapshot.table, self.row.id.pid);
        json!({
            "schema": SCHEMA,
            "pid": self.row.id.pid.number(),
            "start": self.row.id.start.0,
            "state": "alive",
            "headline": self.headline(),
            "protected": self.protected().as_deref().map(legible::text),
            "trees": judgements.iter().map(|judgement| tree(self.seen, judgement)).collect::<Vec<_>>(),
            "does_not_match": others,
            "waiting": waiting,
            "container": self.within.as_ref().map(|within| within.at.id.as_str()),
            "ancestors": above.iter().map(|id| id.pid.number()).collect::<Vec<_>>(),
        })
    }
}

/// Returns a verdict in the words of the screen.
pub fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Protected => "keep, protected",
        Verdict::Alive => "keep",
        Verdict::Unknown => "keep, could not tell",
        Verdict::Suspect { .. } => "reap, when further looks agree",
        Verdict::Orphaned { .. } => "reap, confirmed",
    }
}
