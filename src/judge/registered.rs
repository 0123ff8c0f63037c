//! Whether a registry of somebody else's still lists what a tree stands for.
//!
//! A registry is the word of whoever keeps it, and only where the tree itself would look for it: its place is filled
//! from the root's own environment; for a container, see [`super::containers`]. Being unlisted counts only where the registry is known to work, since an empty
//! directory is also what an unmounted, a moved and a cleared one look like (REDTEAM F11).

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{
    Config, Confirm, FileRegistry, HttpRegistry, PlacePart, PlacePattern, Registry, Source,
};
use crate::model::evidence::Cause;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{Answer, Question, Registered};

use super::case::{Case, known, misfit};
use super::leased;
use super::ledger::Ledger;
use super::rule::{Finding, Found, Holds};
use super::rules::span;

/// PATH_MAX on Linux; no path is longer.
const LONGEST: usize = 4096;

/// Whoever a registry may list: what must be known of it to weigh that.
pub(in crate::judge) trait Registrant<'a> {
    /// Returns what was seen at this look.
    fn look(&self) -> &'a Look;

    /// Returns what was seen at earlier looks.
    fn memory(&self) -> &'a Ledger;

    /// Returns how sure we must be.
    fn confirm(&self) -> &'a Confirm;

    /// Returns for which process's sake a registry is asked.
    fn asker(&self) -> Found<ProcessId>;

    /// Returns when it began.
    fn began(&self) -> Found<Moment>;

    /// Returns where its own registry of files is.
    fn place(&self, name: &str, files: &FileRegistry) -> Found<BString>;

    /// Says why a server could not be told from another one at the same address, for its sake.
    fn may_ask(&self, name: &str, http: &HttpRegistry) -> Found<()>;

    /// Returns the answer to a question.
    fn ask(&self, question: Question) -> Found<&'a Answer>;
}

impl<'a> Registrant<'a> for Case<'a> {
    fn look(&self) -> &'a Look {
        self.look
    }

    fn memory(&self) -> &'a Ledger {
        self.memory
    }

    fn confirm(&self) -> &'a Confirm {
        &self.config.confirm
    }

    fn asker(&self) -> Found<ProcessId> {
        Ok(self.root.id)
    }

    fn began(&self) -> Found<Moment> {
        Ok(self.root.began)
    }

    fn place(&self, name: &str, files: &FileRegistry) -> Found<BString> {
        place(self, name, files)
    }

    fn may_ask(&self, _: &str, _: &HttpRegistry) -> Found<()> {
        // Who answered is compared with whom it stands below where the answer comes in.
        Ok(())
    }

    fn ask(&self, question: Question) -> Found<&'a Answer> {
        self.answer(question)
    }
}

/// Returns the registry of this name.
pub(super) fn named<'a>(config: &'a Config, name: &str) -> Found<&'a Registry> {
    let found = config.registries.iter().find(|registry| registry.name == name);
    found.ok_or_else(|| Unknown::new(Reason::NotAsked, format!("what registry '{name}' says")).into())
}

/// Weighs what a registry says of a key.
pub(super) fn weigh<'a>(of: &impl Registrant<'a>, registry: &Registry, key: &BStr) -> Found<Finding> {
    let name = &registry.name;
    let finding = match &registry.source {
        Source::Files(files) => {
            let place = of.place(name, files)?;
            let said = said(of, name, place.as_bstr(), key)?;
            let finding = said_of(of, name, place.as_bstr(), said)?;
            if finding.holds == Holds::Yes {
                let age = of.look().snapshot.began.boot.since(of.began()?);
                if age < files.settle {
                    // What is listed now may be what another one left, and its own record may be still to come.
                    let why =
                        format!("it has run for {} only, and registry '{name}' may list it later", span(age));
                    return Ok(Finding::no(why));
                }
            }
            finding
        }
        Source::Http(http) => {
            of.may_ask(name, http)?;
            let said = said(of, name, BStr::new(""), key)?;
            said_of(of, name, BStr::new(""), said)?
        }
    };
    Ok(finding.hanging_on(Cause::Registry(name.clone())))
}

fn said<'a>(of: &impl Registrant<'a>, name: &str, place: &BStr, key: &BStr) -> Found<&'a Registered> {
    let (registry, place, key) = (name.to_owned(), place.to_owned(), key.to_owned());
    let question = Question::Registered { of: of.asker()?, registry, place, key };
    let Answer::Registered(registered) = of.ask(question)? else { return Err(misfit()) };
    Ok(registered)
}

fn said_of<'a>(of: &impl Registrant<'a>, name: &str, place: &BStr, said: &Registered) -> Found<Finding> {
    match said {
        Registered::Listed { holder: None } => Ok(Finding::no(format!("registry '{name}' lists it"))),
        Registered::Listed { holder: Some(holder) } => leased::recorded(of, name, holder),
        Registered::Over(why) => Ok(Finding::yes(format!("registry '{name}' says that it is over: {why}"))),
        Registered::NotListed { others: 0 } if !of.memory().has_listed(name, place) => {
            let what = format!("registry '{name}' lists nobody, and whether it ever did");
            Err(Unknown::new(Reason::NoRecord, what).into())
        }
        Registered::NotListed { others: 0 } => {
            Ok(Finding::yes(format!("registry '{name}' does not list it any more, nor anybody else")))
        }
        Registered::NotListed { others } => {
            Ok(Finding::yes(format!("registry '{name}' does not list it, and lists {others} others")))
        }
    }
}

/// Returns where the root's own registry is: the first place whose variables it has.
fn place(case: &Case<'_>, name: &str, files: &FileRegistry) -> Found<BString> {
    let facts = case.facts(case.root.id)?;
    let own = known(&case.look.snapshot.own.namespaces)?;
    if known(&facts.namespaces)?.mount != own.mount {
        let what = format!("what the files of registry '{name}' are in its mount namespace");
        return Err(Unknown::new(Reason::Foreign, what).into());
    }
    for pattern in &files.files {
        let value = |variable: &str| {
            Ok(known(&facts.env)?.get(variable.as_bytes().as_bstr()).map(|value| value.as_bstr()))
        };
        if let Some(place) = filled(name, pattern, value)? {
            return Ok(place);
        }
    }
    let what = format!("where registry '{name}' is: it has none of the variables that would say so");
    Err(Unknown::new(Reason::NoRecord, what).into())
}

/// Returns a place with its variables filled in, or nothing where one of them is not set.
pub(super) fn filled<'v>(
    name: &str,
    pattern: &PlacePattern,
    value: impl Fn(&str) -> Found<Option<&'v BStr>>,
) -> Found<Option<BString>> {
    let mut place = BString::default();
    for part in &pattern.parts {
        match part {
            PlacePart::Pattern(text) => place.extend_from_slice(text.as_bytes()),
            PlacePart::Variable(variable) => {
                let Some(value) = value(variable)? else { return Ok(None) };
                let Some(directory) = directory(value) else {
                    let what = format!("where registry '{name}' is: its {variable} names no whole directory");
                    return Err(Unknown::new(Reason::Unsupported, what).into());
                };
                place.extend_from_slice(directory);
            }
        }
    }
    if place.len() > LONGEST {
        let what = format!("where registry '{name}' is: the path is too long");
        return Err(Unknown::new(Reason::Truncated, what).into());
    }
    Ok(Some(place))
}

/// Returns a value that is one whole directory, without a slash at its end. It is text from outside: nothing of it may
/// read as a pattern, or lead elsewhere. An empty one is unset to some programs and not to others.
fn directory(value: &BStr) -> Option<&BStr> {
    let path = value.trim_end_with(|letter| letter == '/').as_bstr();
    let plain = |element: &[u8]| !matches!(element, b"" | b"." | b"..");
    let fits = value.starts_with(b"/")
        && path.split(|byte| *byte == b'/').skip(1).all(plain)
        && !path.iter().any(|byte| byte.is_ascii_control() || matches!(byte, b'*' | b'?'));
    fits.then_some(path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::policy::Origin;
    use crate::judge::ledger::Ledger;
    use crate::judge::rules::support::{ROOT, Says, Scene, config, id, pid, registry_server};
    use crate::judge::{Candidates, Notes};
    use crate::model::id::{BootId, Start};
    use crate::model::lease::Holder;
    use crate::model::moment::Moment;
    use crate::model::verdict::Verdicts;

    const PLACE: &str = "/tmp/state/*/r.json";

    fn files(parts: &[&[PlacePart]]) -> Registry {
        let place = |parts: &&[PlacePart]| PlacePattern { text: String::new(), parts: parts.to_vec() };
        Registry {
            name: "r".into(),
            origin: Origin::Builtin,
            source: Source::Files(FileRegistry {
                files: parts.iter().map(place).collect(),
                key: "/k".into(),
                holder: None,
                settle: Duration::from_secs(30),
            }),
        }
    }

    fn fixed() -> Registry {
        files(&[&[PlacePart::Pattern(PLACE.into())]])
    }

    fn question(place: &str) -> Question {
        Question::Registered { of: id(ROOT), registry: "r".into(), place: place.into(), key: "key".into() }
    }

    /// The root, old enough, and what the registry at a place says.
    fn told(place: &str, said: Registered) -> Scene {
        let scene = Scene::orphan().row(ROOT, |row| row.began = Moment(0));
        scene.now(Moment(0).plus(Duration::from_mins(5))).answer(question(place), Answer::Registered(said))
    }

    #[track_caller]
    fn check(scene: &Scene, registry: &Registry, expected: &Says) {
        scene.check_by(|case| weigh(case, registry, BStr::new("key")), expected);
    }

    fn unlisted() -> Registered {
        Registered::NotListed { others: 3 }
    }

    #[test]
    fn listed_over_and_not_listed() {
        check(&told(PLACE, Registered::Listed { holder: None }), &fixed(), &Says::No("'r' lists it"));
        check(&told(PLACE, unlisted()), &fixed(), &Says::Yes("lists 3 others"));
        check(
            &told("", Registered::Over("404".into())),
            &registry_server(Duration::ZERO),
            &Says::Yes("over: 404"),
        );
        let asked = Says::Asks(vec![question(PLACE)]);
        check(&told("/elsewhere", unlisted()), &fixed(), &asked);
        let refused = told(PLACE, unlisted()).refused(question(PLACE), Reason::Denied);
        check(&refused, &fixed(), &Says::Unknown(""));
    }

    #[test]
    fn a_registry_that_lists_nobody_at_all_proves_nothing_f11() {
        check(&told(PLACE, Registered::NotListed { others: 0 }), &fixed(), &Says::Unknown("lists nobody"));
    }

    fn remembering(scenes: &[&Scene]) -> Ledger {
        let mut ledger = Ledger::default();
        for scene in scenes {
            let mut look = scene.look();
            scene.case(|case| look.answers = case.look.answers.clone());
            ledger.begin(&look, &config(&[]).confirm);
            ledger.remember(&look, &Candidates::default(), &Verdicts::default(), &Notes::default());
        }
        ledger
    }

    #[track_caller]
    fn check_after(before: &[&Scene], scene: &Scene, expected: &Says) {
        let ledger = remembering(before);
        scene
            .check_by(|case| weigh(&Case { memory: &ledger, ..*case }, &fixed(), BStr::new("key")), expected);
    }

    #[test]
    fn one_that_listed_somebody_in_this_boot_may_list_nobody_now() {
        let nobody = || told(PLACE, Registered::NotListed { others: 0 });
        let once = told(PLACE, Registered::Listed { holder: None });
        check_after(&[&once], &nobody(), &Says::Yes("nor anybody else"));
        check_after(&[&told(PLACE, unlisted())], &nobody(), &Says::Yes("nor anybody else"));
        check_after(&[&nobody()], &nobody(), &Says::Unknown("lists nobody"));
        check_after(&[&told("/elsewhere", unlisted())], &nobody(), &Says::Unknown("lists nobody"));
    }

    /// The record names process 20, which is there unless it is taken out.
    fn held(start: Option<u64>, boot: Option<&str>) -> Scene {
        let holder = Holder {
            pid: pid(20),
            start: start.map(Start),
            boot: boot.map(|boot| BootId(boot.into())),
            pidns: None,
            timens: None,
            host: None,
            age: None,
        };
        told(PLACE, Registered::Listed { holder: Some(Box::new(holder)) }).process(20, 1)
    }

    #[test]
    fn a_holder_is_dead_only_if_it_was_seen_alive_by_number_and_start() {
        let start = Some(id(20).start.0);
        let (alive, dead) = (held(start, None), held(start, None).without(20));
        check(&alive, &fixed(), &Says::No("its holder 20"));
        check_after(&[&alive], &dead, &Says::Yes("process 20, which held it"));
        check_after(&[], &dead, &Says::Unknown("while it lived"));
        // Somebody else under the number is no holder, and was never seen as one.
        check_after(&[&held(Some(1), None)], &held(Some(1), None), &Says::Unknown("while it lived"));
        check_after(&[&alive], &held(start, Some("another")).without(20), &Says::Unknown("another boot"));
        check_after(&[&alive], &held(None, None).without(20), &Says::Unknown(""));
        check_after(&[&held(None, None)], &held(None, None), &Says::Unknown(""));
    }

    #[test]
    fn a_holder_that_died_young_was_perhaps_an_errand_f5() {
        let start = Some(id(20).start.0);
        let at = |seconds: u64| Moment(0).plus(Duration::from_secs(seconds));
        let young = |seconds: u64| held(start, None).row(20, |row| row.began = at(300 - seconds));
        let dead = held(start, None).without(20);
        check_after(&[&young(59)], &dead, &Says::Unknown("more than an errand"));
        check_after(&[&young(60)], &dead, &Says::Yes("is gone"));
    }

    #[test]
    fn a_dead_holder_of_a_record_from_before_is_not_the_processs_own() {
        let start = Some(id(20).start.0);
        let alive = held(start, None);
        let dead = held(start, None)
            .without(20)
            .row(ROOT, |row| row.began = Moment(0).plus(Duration::from_secs(271)));
        check_after(&[&alive], &dead, &Says::No("may list it later"));
    }

    #[test]
    fn whoever_is_younger_than_settle_may_be_listed_yet() {
        let at = |seconds| told(PLACE, unlisted()).now(Moment(0).plus(Duration::from_secs(seconds)));
        check(&at(29), &fixed(), &Says::No("may list it later"));
        check(&at(30), &fixed(), &Says::Yes("does not list it"));
    }

    #[test]
    fn every_end_hangs_on_its_registry() {
        for (registry, place) in [(fixed(), PLACE), (registry_server(Duration::ZERO), "")] {
            let found =
                told(place, unlisted()).case(|case| weigh(case, &registry, BStr::new("key"))).unwrap();
            assert_eq!(found.cause, Some(Cause::Registry("r".into())));
            assert_eq!(found.lasting, None);
        }
    }

    fn with_env(scene: Scene, env: &[(&str, &str)]) -> Scene {
        let env = env.iter().map(|(name, value)| (BString::from(*name), BString::from(*value))).collect();
        scene.facts(ROOT, |facts| facts.env = Ok(env))
    }

    fn by_variables() -> Registry {
        let variable = |name: &str| PlacePart::Variable(name.into());
        let pattern = |text: &str| PlacePart::Pattern(text.into());
        files(&[
            &[variable("DATA"), pattern("/state/*/r.json")],
            &[variable("TMPDIR"), pattern("/codex/*/r.json")],
            &[pattern("/tmp/codex/*/r.json")],
        ])
    }

    #[test]
    fn the_place_comes_from_the_roots_own_environment() {
        for (env, place) in [
            (&[("DATA", "/d"), ("TMPDIR", "/t")][..], "/d/state/*/r.json"),
            (&[("DATA", "/d//")], "/d/state/*/r.json"),
            (&[("TMPDIR", "/t/u")], "/t/u/codex/*/r.json"),
            (&[("TMPDIR", "/")], "/codex/*/r.json"),
            (&[], "/tmp/codex/*/r.json"),
        ] {
            let scene = with_env(told(place, unlisted()), env);
            check(&scene, &by_variables(), &Says::Yes("does not list it"));
        }
        let only = files(&[&[PlacePart::Variable("DATA".into()), PlacePart::Pattern("/*".into())]]);
        check(&with_env(told("/*", unlisted()), &[]), &only, &Says::Unknown("none of the variables"));
    }

    #[test]
    fn a_variable_that_is_no_whole_directory_is_unknown_s3() {
        for value in ["", "t", "./t", "/t/../u", "/t//u", "/t/.", "/t*", "/t?", "/t\n"] {
            let scene = with_env(told("/tmp/codex/*/r.json", unlisted()), &[("TMPDIR", value)]);
            check(&scene, &by_variables(), &Says::Unknown("no whole directory"));
        }
        let long = "/x".repeat(2050);
        let scene = with_env(told(PLACE, unlisted()), &[("DATA", &long)]);
        check(&scene, &by_variables(), &Says::Unknown("too long"));
    }

    #[test]
    fn an_unread_environment_or_another_mount_namespace_is_unknown() {
        let refused = || Unknown::new(Reason::Denied, "its environment");
        let unread = told("/tmp/codex/*/r.json", unlisted()).facts(ROOT, |facts| facts.env = Err(refused()));
        check(&unread, &by_variables(), &Says::Unknown("environment"));
        let foreign = told(PLACE, unlisted()).facts(ROOT, |facts| {
            facts.namespaces = facts.namespaces.clone().map(|mut theirs| {
                theirs.mount += 1;
                theirs
            });
        });
        check(&foreign, &fixed(), &Says::Unknown("mount namespace"));
        let untold = told(PLACE, unlisted()).facts(ROOT, |facts| facts.namespaces = Err(refused()));
        check(&untold, &fixed(), &Says::Unknown("environment"));
    }
}
