//! Which live client of an engine could be a container's own.
//!
//! Nothing in the API and nothing in the kernel says which connection is attached to which container, so every live
//! client is asked what it could own. It is cleared of a container in two ways only: by its words, its file of the
//! container's id and its start; or because it is needed elsewhere. A container whose input is open has a live client;
//! where a client in question is used up in every way to give each such container one of its own, it has none to spare.
//! That it was started right before a container proves nothing: a slow pull makes a later one its own.

use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::Config;
use crate::config::program_name;
use crate::model::container::{Attached, AutoRemoval, ContainerFacts, EngineClient, Listed, Tty};
use crate::model::docker_command::{DockerCommand, RunOptions, Stays, Switch};
use crate::model::look::Look;
use crate::model::moment::Moment;

use super::case::ContainerCase;
use super::{LEASE, is_attached};

/// Raw start stamps are ticks of 10 ms, so two starts are told apart only beyond two of them.
pub(super) const TICKS: Duration = Duration::from_millis(20);

/// `docker run` starts what it made at once; even a slow start of a busy engine takes no minute. What began later was
/// made by `create` and started by somebody else.
const AT_ONCE: Duration = Duration::from_mins(1);

/// What a live client is to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::judge) enum Relation {
    /// It names it, or made it for sure.
    Own(String),
    /// It is a `docker run` that may have made it.
    MayHaveMade,
    /// It is something else that may be attached to it; why nobody can tell, for a person.
    May(String),
    /// It cannot be its client.
    Not,
}

/// Whether a container's input is known to have ended for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::judge) enum Input {
    /// It ended.
    Ended,
    /// It could not be read.
    Unread,
}

/// A client with what its command line says, which is read once.
#[derive(Debug, Clone, Copy)]
pub(in crate::judge) struct Known<'a> {
    pub(in crate::judge) client: &'a EngineClient,
    pub(in crate::judge) command: &'a DockerCommand,
}

/// Returns what a client's command line says; one that cannot be read may be anything.
pub(super) fn command_of(client: &EngineClient) -> DockerCommand {
    client.argv.as_ref().map_or(DockerCommand::Anything, |argv| DockerCommand::of(argv))
}

/// One container as clients are compared with it.
#[derive(Debug, Clone, Copy)]
pub(in crate::judge) struct Subject<'a> {
    pub(in crate::judge) listed: &'a Listed,
    pub(in crate::judge) facts: &'a ContainerFacts,
    pub(in crate::judge) began: Moment,
}

/// Returns what a client is to a container.
pub(in crate::judge) fn relation(
    case: &ContainerCase<'_>,
    known: &Known<'_>,
    to: Subject<'_>,
    input: Input,
) -> Relation {
    let Known { client, command } = known;
    if is_nobodys(case, client) {
        return Relation::Not;
    }
    if let Some(Ok(id)) = &client.cidfile
        && *id == to.listed.id
    {
        return Relation::Own("it wrote the container's id into its --cidfile".to_owned());
    }
    let argv = match &client.argv {
        Ok(argv) => argv,
        Err(unknown) => return Relation::May(unknown.to_string()),
    };
    if let Some(why) = names(argv, command, to.listed) {
        return Relation::Own(why);
    }
    match command {
        DockerCommand::Run(options) => may_have_made(client, options, to),
        // Without a word it is about all of them, as `stats` is, and about none in particular.
        DockerCommand::About(words) if words.is_empty() => Relation::Not,
        DockerCommand::Attached(words) | DockerCommand::About(words) => {
            attached(case, client, words, to.listed)
        }
        DockerCommand::Elsewhere => Relation::Not,
        DockerCommand::Compose => match to.listed.labels.get("com.docker.compose.project") {
            Some(_) => Relation::May("it may be that of its compose project".to_owned()),
            None => Relation::Not,
        },
        // Who came after the container did not make it, and nobody can give it any more input.
        DockerCommand::Anything if input == Input::Ended && is_younger(client, to) && !is_relay(argv) => {
            Relation::Not
        }
        DockerCommand::Anything => Relation::May("what it does at the engine cannot be told".to_owned()),
    }
}

/// Says whether a client is reapd itself, or a program that the configuration says runs containers for nobody.
pub(in crate::judge) fn is_nobodys(case: &ContainerCase<'_>, client: &EngineClient) -> bool {
    runs_for_nobody(case.look, case.config, client)
}

/// The same, where no container is in question.
pub(super) fn runs_for_nobody(look: &Look, config: &Config, client: &EngineClient) -> bool {
    if client.id.pid == look.snapshot.own.pid {
        return true;
    }
    let Ok(argv) = &client.argv else { return false };
    let Some(first) = argv.first() else { return false };
    let name = program_name(first.as_bstr());
    name == "reapd" || config.docker.watchers.iter().any(|glob| glob.fits(name))
}

/// Says whether a client passes on what somebody elsewhere says, who may name any container.
fn is_relay(argv: &[BString]) -> bool {
    argv.iter().any(|word| word == "dial-stdio")
}

/// Says whether a client began after the container did.
fn is_younger(client: &EngineClient, to: Subject<'_>) -> bool {
    client.began > to.began.plus(TICKS)
}

/// Returns why an argument vector names a container: its name, or the beginning of its id, as a word or in one. Verbs
/// that take containers name one by any beginning.
pub(in crate::judge) fn names(argv: &[BString], command: &DockerCommand, listed: &Listed) -> Option<String> {
    let id = listed.id.as_str().as_bytes();
    let short = listed.id.short().as_bytes();
    for word in argv.iter().skip(1) {
        if listed.names.iter().any(|name| is_name(word.as_bstr(), name)) {
            return Some(format!("it names '{word}'"));
        }
        if word.find(short).is_some() {
            return Some(format!("it names {}", listed.id));
        }
    }
    let (DockerCommand::About(words) | DockerCommand::Attached(words)) = command else {
        return None;
    };
    let is_it = |word: &&BString| {
        let word = word.split_once_str(":").map_or(word.as_slice(), |(container, _)| container);
        let named = || listed.names.iter().any(|name| is_name(word.as_bstr(), name));
        !word.is_empty() && (id.starts_with(word) || named())
    };
    words.iter().find(is_it).map(|word| format!("it names '{word}'"))
}

/// Says whether a word names a container: by its bare name, with the slash that engines write before it, as the value
/// of an option (`--name=web`), and as whose namespace or volumes another one has (`container:web`, `web:ro`).
fn is_name(word: &BStr, name: &str) -> bool {
    let value = match word.split_once_str("=") {
        Some((_, value)) if word.starts_with(b"-") => value,
        Some(_) | None => word.as_bytes(),
    };
    let value = value.strip_prefix(b"container:").unwrap_or(value);
    let value = value.strip_suffix(b":ro").or(value.strip_suffix(b":rw")).unwrap_or(value);
    value.strip_prefix(b"/").unwrap_or(value) == name.as_bytes()
}

/// What a verb about containers is to one that it does not name.
fn attached(case: &ContainerCase<'_>, client: &EngineClient, words: &[BString], to: &Listed) -> Relation {
    let is_named = |word: &BString| {
        // `cp` puts a path behind it.
        let word = word.split_once_str(":").map_or(word.as_slice(), |(container, _)| container).as_bstr();
        let others = case.engine.containers.as_deref().unwrap_or_default();
        others.iter().filter(|other| other.id != to.id).any(|other| {
            // A name that passed on since it was said means another container now.
            other.id.as_str().as_bytes().starts_with(word.as_bytes()) && word.len() >= 12
                || other.names.iter().any(|name| is_name(word.as_bstr(), name))
                    && was_there(case, other, client)
        })
    };
    if words.iter().any(is_named) {
        Relation::Not
    } else {
        Relation::May("the container that it names is not there under that name".to_owned())
    }
}

/// Says whether a container was made before a client began, by the engine's clock and ours, which are one here.
fn was_there(case: &ContainerCase<'_>, listed: &Listed, client: &EngineClient) -> bool {
    created(case.look, listed.created).is_some_and(|created| created <= client.began)
}

/// Returns when something was made, on the boot clock. The engine writes whole seconds, so the second's end counts.
pub(in crate::judge) fn created(look: &Look, seconds: i64) -> Option<Moment> {
    let now = look.snapshot.began;
    let age = i128::from(now.wall) - (i128::from(seconds) + 1) * 1_000;
    let boot = i128::from(now.boot.0) - age * 1_000_000;
    Some(Moment(u64::try_from(boot).ok()?))
}

fn may_have_made(client: &EngineClient, options: &RunOptions, to: Subject<'_>) -> Relation {
    let Subject { facts, .. } = to;
    if is_younger(client, to) {
        return Relation::Not;
    }
    // What was not understood may have changed what follows.
    if options.unclear.is_some() {
        return Relation::MayHaveMade;
    }
    if options.stays == Stays::Detached {
        return Relation::Not;
    }
    // Another id in the file of its --cidfile, and another container of the name it gave, say nothing: files are replaced,
    // and names pass on.
    let is_set = |switch: Switch, set: bool| (switch == Switch::On) == set;
    let differs = !is_set(options.interactive, facts.stdin.attached == Attached::Yes)
        || !is_set(options.tty, facts.tty == Tty::Yes)
        || !is_set(options.remove, facts.removal == AutoRemoval::Yes)
        || !may_be_image(options.image.as_bstr(), &facts.image, &facts.image_id)
        || !may_be_arguments(&options.arguments, &facts.command)
        || options.labels.iter().any(|(key, value)| !has_label(facts, key.as_bstr(), value.as_bstr()));
    if differs { Relation::Not } else { Relation::MayHaveMade }
}

/// Says whether the words behind an image may be what a container was asked to run. Without any the image says it; and
/// what is no text reaches the engine as another one.
fn may_be_arguments(written: &[BString], command: &[BString]) -> bool {
    written.is_empty() || written == command || written.iter().any(|word| word.to_str().is_err())
}

fn has_label(facts: &ContainerFacts, key: &BStr, value: &BStr) -> bool {
    let Ok(key) = key.to_str() else { return true };
    facts.labels.get(key).is_some_and(|seen| value.to_str().map_or(true, |value| seen == value))
}

/// Says whether an image as it was written on a command line may be a container's: the same text, the same repository
/// under another tag, or the beginning of its id.
pub(super) fn may_be_image(written: &BStr, image: &str, id: &str) -> bool {
    if written == image.as_bytes() {
        return true;
    }
    let bare = written.strip_prefix(b"sha256:").unwrap_or(written);
    let id = id.strip_prefix("sha256:").unwrap_or(id).as_bytes();
    let is_hex = !bare.is_empty() && bare.iter().all(u8::is_ascii_hexdigit);
    if is_hex && id.starts_with(bare) {
        return true;
    }
    let seen = BStr::new(image);
    // What the engine shows as an id may have had any name.
    seen.starts_with(b"sha256:") || repository(written) == repository(seen)
}

/// Returns an image's repository: without its tag and digest, and without what is added to short names.
fn repository(image: &BStr) -> &BStr {
    let image = image.split_once_str("@").map_or(image.as_bytes(), |(name, _)| name).as_bstr();
    let last = image.rfind_byte(b'/').map_or(0, |at| at + 1);
    let end = image[last..].find_byte(b':').map_or(image.len(), |at| last + at);
    let mut name = image[..end].as_bstr();
    for prefix in ["docker.io/", "index.docker.io/", "library/"] {
        name = name.strip_prefix(prefix.as_bytes()).map_or(name, BStr::new);
    }
    name
}

/// Says whether a container was made by a `docker run` that stayed with it. `docker create -i` and libraries leave the
/// same marks, and what they made may be started without anybody attached, for commands that are run in it later: it
/// has no `--rm` as a rule, starts later, or bears a name by which it is found again.
pub(in crate::judge) fn is_made_by_run(case: &ContainerCase<'_>, to: Subject<'_>) -> bool {
    is_attached(to.facts)
        && to.facts.removal == AutoRemoval::Yes
        && to.listed.names.iter().all(|name| is_given_by_engine(name))
        && created(case.look, to.listed.created).is_some_and(|created| to.began <= created.plus(AT_ONCE))
}

/// Says whether a name has the form of those that an engine makes up itself: two words, and a digit where they were taken
/// (`quirky_noether`, `quirky_noether3`).
fn is_given_by_engine(name: &str) -> bool {
    let name = name.strip_suffix(|letter: char| letter.is_ascii_digit()).unwrap_or(name);
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    name.split_once('_').is_some_and(|(one, other)| is_word(one) && is_word(other))
}

/// Returns the process that a client is, for a person: its number and what it was started as.
pub(in crate::judge) fn shown(client: &EngineClient) -> String {
    let name = client.argv.as_ref().ok().and_then(|argv| argv.first());
    match name {
        Some(first) => format!("{} ({})", client.id, program_name(first.as_bstr())),
        None => client.id.to_string(),
    }
}

/// Says whether a client is the one that `reapd run` started for a container: it bears the lease that stands in the
/// container's labels.
pub(in crate::judge) fn is_of_lease(client: &EngineClient, listed: &Listed) -> bool {
    let Some(lease) = listed.labels.get(LEASE) else { return false };
    let mark = format!("{LEASE}={lease}");
    client.argv.as_ref().is_ok_and(|argv| argv.iter().any(|word| word == mark.as_str()))
}
