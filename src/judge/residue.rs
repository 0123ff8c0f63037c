//! Says what of what trees left behind may be removed: only what nobody can be using any more.
//!
//! Each condition is a gate of its own, and each that cannot be told keeps it. A file that stays costs some bytes; one
//! that goes wrongly costs somebody's session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{self, Config, Glob};
use crate::model::id::{FileId, Pid, Uid};
use crate::model::keep::Kept;
use crate::model::known::{Known, Unknown};
use crate::model::look::Look;
use crate::model::residue::{Kind, Left, Numbers, Piece, Record, Remains, Removal, Served, below};

use super::Ledger;

/// What one policy found, and what it is weighed with.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// What the policy says of residue.
    pub residue: &'a policy::Residue,
    /// The configuration.
    pub config: &'a Config,
    /// The look: its clocks, its leases, its keep list.
    pub look: &'a Look,
    /// When each was seen first, as it is.
    pub ledger: &'a Ledger,
    /// The sockets of the host.
    pub served: &'a Known<Served>,
    /// The names that everybody alive was asked for.
    pub asked: &'a BTreeSet<BString>,
    /// Who says which of them.
    pub named: &'a Known<BTreeMap<BString, Pid>>,
}

/// What is to be thought of something that was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody can be using it: every condition held at two looks.
    Stale,
    /// Every condition holds, but it was not yet seen so for long enough.
    Suspect,
    /// It stays; the text says why.
    Kept(String),
    /// It stays, since something could not be told.
    Unknown(String),
}

/// One thing with its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What.
    pub left: Left,
    /// What is to be thought of it.
    pub verdict: Verdict,
}

/// Why something stays.
enum Stays {
    Kept(String),
    Unknown(String),
}

impl From<&Unknown> for Stays {
    fn from(unknown: &Unknown) -> Stays {
        Stays::Unknown(unknown.to_string())
    }
}

type Gate = Result<(), Stays>;

fn kept(why: impl Into<String>) -> Gate {
    Err(Stays::Kept(why.into()))
}

/// Returns the names that must be asked of everybody alive, of what nothing else keeps, each with when it was changed.
pub fn open(
    found: &[Left],
    residue: &policy::Residue,
    config: &Config,
    look: &Look,
) -> BTreeSet<(i64, BString)> {
    let passes =
        |left: &&Left| by_itself(left, residue).and_then(|()| settled(left, residue, config, look)).is_ok();
    let passing = found.iter().filter(passes);
    passing.filter_map(|left| Some((left.changed(), left.called()?.to_owned()))).collect()
}

/// Judges what was left long ago. A record goes only together with its directory, or after it.
pub fn judge(found: &[Left], ground: &Ground<'_>) -> Vec<Judged> {
    let in_use = InUse::new(ground);
    let mut judged: Vec<Judged> = Vec::new();
    for left in found.iter().filter(|left| matches!(left, Left::Directory(_))) {
        let gate = weigh(left, ground, &in_use);
        judged.push(Judged { left: left.clone(), verdict: verdict(gate, left, ground) });
    }
    for left in found {
        let Left::Record(record) = left else { continue };
        let gate = weigh(left, ground, &in_use).and_then(|()| directory_goes(record, &judged));
        let mut verdict = verdict(gate, left, ground);
        if verdict == Verdict::Stale && goes(record, &judged) == Some(&Verdict::Suspect) {
            verdict = Verdict::Suspect;
        }
        judged.push(Judged { left: left.clone(), verdict });
    }
    judged
}

fn verdict(gate: Gate, left: &Left, ground: &Ground<'_>) -> Verdict {
    match gate {
        Err(Stays::Kept(why)) => Verdict::Kept(why),
        Err(Stays::Unknown(why)) => Verdict::Unknown(why),
        Ok(()) => {
            let seen = ground.ledger.left_since(left);
            let now = ground.look.snapshot.began.boot;
            // One look may have met it between two changes; two that agree have not.
            match seen.filter(|since| now.since(*since) >= ground.config.confirm.apart) {
                Some(_) => Verdict::Stale,
                None => Verdict::Suspect,
            }
        }
    }
}

fn weigh(left: &Left, ground: &Ground<'_>, in_use: &InUse<'_>) -> Gate {
    by_itself(left, ground.residue)?;
    settled(left, ground.residue, ground.config, ground.look)?;
    unused(left, ground, in_use)
}

/// What a directory that a tree leaves must be before the tree is ended; what is in it then is what may go.
pub fn may_be_left(remains: &Remains, residue: &policy::Residue, user: Uid) -> Result<(), String> {
    if remains.own.uid != user {
        return Err("it is of another user than the tree".to_owned());
    }
    directory_by_itself(remains, residue).map_err(said)
}

/// Says whether what a tree left is still what was recorded before its end, and nobody else has taken it over.
pub fn is_left(recorded: &Removal, now: &Remains, ground: &Ground<'_>) -> Result<(), String> {
    if now.own.file != recorded.own.file || now.place.holder != recorded.place.holder {
        return Err("another directory is there by now".to_owned());
    }
    may_be_left(now, ground.residue, recorded.own.uid)?;
    for piece in now.entries.as_deref().unwrap_or_default() {
        // An inode is given out again at once, so that a successor's socket may bear the old one's; nobody writes to a
        // socket, and its time is that of its making.
        let same = |old: &&Piece| {
            old.name == piece.name
                && old.file == piece.file
                && old.kind == piece.kind
                && (piece.kind != Kind::Socket || old.modified == piece.modified)
        };
        if recorded.entries.iter().find(same).is_none() {
            return Err(format!("'{}' in it was not there before", piece.name));
        }
    }
    let left = Left::Directory(now.clone());
    unkept(&left, ground.config, ground.look).map_err(said)?;
    unused(&left, ground, &InUse::new(ground)).map_err(said)
}

fn said(stays: Stays) -> String {
    match stays {
        Stays::Kept(why) | Stays::Unknown(why) => why,
    }
}

fn by_itself(left: &Left, residue: &policy::Residue) -> Gate {
    match left {
        Left::Directory(remains) => directory_by_itself(remains, residue),
        Left::Record(record) => record_by_itself(record, residue),
    }
}

fn directory_by_itself(remains: &Remains, residue: &policy::Residue) -> Gate {
    if remains.own.kind != Kind::Directory {
        return kept("it is no directory");
    }
    // Whoever else may write there may be using it, or put something there meanwhile.
    if remains.own.mode & 0o022 != 0 {
        return kept("others may write in it");
    }
    plain(remains.place.name.as_bstr())?;
    for piece in remains.entries.as_ref().map_err(Stays::from)? {
        let name = piece.name.as_bstr();
        if !fits(&residue.only, name) {
            return kept(format!("it holds '{name}', which its policy does not name"));
        }
        if !matches!(piece.kind, Kind::File | Kind::Socket) {
            return kept(format!("'{name}' in it is neither a file nor a socket"));
        }
        if piece.links != 1 {
            return kept(format!("'{name}' in it has another name elsewhere"));
        }
        if piece.uid != remains.own.uid {
            return kept(format!("'{name}' in it is of another user"));
        }
        plain(name)?;
    }
    Ok(())
}

fn record_by_itself(record: &Record, residue: &policy::Residue) -> Gate {
    if record.own.kind != Kind::File || record.own.links != 1 {
        return kept("it is no file of one name");
    }
    if record.own.mode & 0o022 != 0 {
        return kept("others may write it");
    }
    plain(record.place.name.as_bstr())?;
    let target = record.target.as_ref().map_err(Stays::from)?;
    let Some(target) = target else { return kept("it names nothing in a root") };
    plain(target.directory.name.as_bstr())?;
    if !fits(&residue.stale, target.directory.name.as_bstr()) || !fits(&residue.only, target.file.as_bstr()) {
        return kept("it names nothing that its policy would remove");
    }
    Ok(())
}

fn fits(globs: &[Glob], name: &BStr) -> bool {
    globs.iter().any(|glob| glob.fits(name))
}

/// Letters that no program has to write in any other way, so that whoever says the name says these very bytes.
fn plain(name: &BStr) -> Gate {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@~".contains(&byte);
    if name.is_empty() || name.len() > 128 || !name.bytes().all(is_plain) {
        return kept("its name is not plain");
    }
    Ok(())
}

/// Says whether nobody has changed anything for long enough, and no person wants it kept.
fn settled(left: &Left, residue: &policy::Residue, config: &Config, look: &Look) -> Gate {
    let wall = i64::try_from(look.snapshot.began.wall).unwrap_or(0).saturating_mul(1_000_000);
    let changed = left.changed();
    // A clock that was wrong then or is wrong now: how long ago that was nobody can tell.
    if changed > wall {
        return Err(Stays::Unknown("it was changed in the future, by the clock".to_owned()));
    }
    let ago = Duration::from_nanos(wall.saturating_sub(changed).unsigned_abs());
    if ago < residue.after {
        return kept("something in it was changed not long ago");
    }
    unkept(left, config, look)
}

fn unkept(left: &Left, config: &Config, look: &Look) -> Gate {
    let path = left.place().path();
    let is_at_or_below = |directory: &BStr| {
        let rest = path.strip_prefix(directory.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || directory.ends_with(b"/"))
    };
    let marked = look.marks.iter().any(|mark| match &mark.what {
        Kept::Directory { path } => is_at_or_below(path.as_bstr()),
        Kept::Process { .. } | Kept::Container { .. } => false,
    });
    if marked || config.keep.directories.iter().any(|directory| is_at_or_below(directory.as_bstr())) {
        return kept("you said that whatever is there is kept");
    }
    Ok(())
}

/// What everybody alive uses, ready to be looked through for each thing that was left.
struct InUse<'a> {
    /// The names that sockets are bound to.
    sockets: Known<Vec<SocketName<'a>>>,
    /// Each lease by its name, with all of what it says: one that names something anywhere may mean it.
    leases: Vec<(&'a str, String)>,
}

/// The name that a socket is bound to.
struct SocketName<'a> {
    whole: &'a BStr,
    elements: Vec<&'a [u8]>,
}

impl SocketName<'_> {
    /// Says whether it may be this file: it was bound by a relative path, so that nothing says in which directory.
    fn may_be(&self, file: &BStr) -> bool {
        let is_relative = !self.whole.starts_with(b"/") && !self.whole.starts_with(b"@");
        is_relative && self.elements.last().is_some_and(|last| *last == file.as_bytes())
    }
}

impl<'a> InUse<'a> {
    fn new(ground: &Ground<'a>) -> InUse<'a> {
        let socket = |name: &'a BString| SocketName {
            whole: name.as_bstr(),
            elements: name.split(|&byte| byte == b'/' || byte == 0 || byte == b'@').collect(),
        };
        let sockets = match ground.served {
            Ok(served) => Ok(served.names.iter().map(socket).collect()),
            Err(unknown) => Err(unknown.clone()),
        };
        let leases = &ground.look.snapshot.leases.list;
        InUse {
            sockets,
            leases: leases.iter().map(|lease| (lease.id.as_str(), format!("{lease:?}"))).collect(),
        }
    }
}

/// Says whether nobody alive has anything to do with it: no socket, no argument, no lease.
///
/// A directory that somebody merely stands in or has open, and does not name, is not looked for.
fn unused(left: &Left, ground: &Ground<'_>, in_use: &InUse<'_>) -> Gate {
    let Some(name) = left.called() else { return kept("it names nothing") };
    let served = ground.served.as_ref().map_err(Stays::from)?;
    let sockets = in_use.sockets.as_ref().map_err(Stays::from)?;
    if let Some(socket) = sockets.iter().find(|socket| socket.elements.contains(&name.as_bytes())) {
        return kept(format!("a socket is bound to '{}'", socket.whole));
    }
    if let Left::Directory(remains) = left {
        for piece in remains.entries.as_ref().map_err(Stays::from)? {
            // The files are those of our own network namespace; of any other there is nothing but the name.
            let by_name = piece.kind == Kind::Socket
                && sockets.iter().any(|socket| socket.may_be(piece.name.as_bstr()));
            if by_name || served.files.iter().any(|file| is_same(*file, piece.file, remains.numbers)) {
                return kept(format!("a socket is bound to '{}' in it", piece.name));
            }
        }
    }
    if !ground.asked.contains(name) {
        return Err(Stays::Unknown("nobody was asked whether he names it".to_owned()));
    }
    if let Some(pid) = ground.named.as_ref().map_err(Stays::from)?.get(name) {
        return kept(format!("process {pid} names it"));
    }
    let said_name = name.to_string();
    if let Some((lease, _)) = in_use.leases.iter().find(|(_, said)| said.contains(&said_name)) {
        return kept(format!("lease {lease} names it"));
    }
    let leases = &ground.look.snapshot.leases;
    let of = left.own().uid;
    if leases.faulty.iter().any(|lease| lease.owner.is_none_or(|owner| owner == of)) {
        return Err(Stays::Unknown("a lease that cannot be read may name it".to_owned()));
    }
    Ok(())
}

/// Compares a file that the kernel says a socket was bound to with one of stat(2).
fn is_same(bound: FileId, file: FileId, numbers: Numbers) -> bool {
    let inode = bound.ino & 0xffff_ffff == file.ino & 0xffff_ffff;
    match numbers {
        Numbers::Alike => inode && bound.dev == file.dev,
        Numbers::InodeOnly => inode,
    }
}

fn goes<'a>(record: &Record, judged: &'a [Judged]) -> Option<&'a Verdict> {
    let target = record.target.as_ref().ok()?.as_ref()?;
    let is_it = |one: &&Judged| {
        one.left.place().path() == target.directory.path() && Some(one.left.own().file) == target.there
    };
    judged.iter().find(is_it).map(|one| &one.verdict)
}

/// Says whether the directory that a record names is gone, or goes with it.
fn directory_goes(record: &Record, judged: &[Judged]) -> Gate {
    let Some(target) = record.target.as_ref().map_err(Stays::from)? else { return kept("it names nothing") };
    match (target.there, goes(record, judged)) {
        (None, _) | (Some(_), Some(Verdict::Stale | Verdict::Suspect)) => Ok(()),
        (Some(_), Some(Verdict::Kept(_) | Verdict::Unknown(_)) | None) => {
            let path = below(target.directory.directory.as_bstr(), target.directory.name.as_bstr());
            kept(format!("the directory that it names, '{path}', stays"))
        }
    }
}

#[cfg(test)]
mod tests {
    use bstr::ByteVec as _;
    use proptest::prelude::*;

    use super::*;
    use crate::model::keep::KeepMark;
    use crate::model::known::Reason;
    use crate::model::lease::FaultyLease;
    use crate::model::moment::Moment;
    use crate::model::residue::{Place, Target};
    use crate::model::world;

    const HOUR: i64 = 3_600_000_000_000;

    /// Everything that a verdict hangs on.
    #[derive(Clone)]
    struct Case {
        left: Left,
        served: Known<Served>,
        named: Known<BTreeMap<BString, Pid>>,
        asked: BTreeSet<BString>,
        look: Look,
        /// What was seen at the look before, a minute ago; nothing where there was none.
        before: Option<Left>,
    }

    fn residue() -> policy::Residue {
        let glob = |text| Glob::parse(text).unwrap();
        policy::Residue {
            directory: None,
            only: vec![glob("server.sock"), glob("server.log")],
            stale: vec![glob("pv-??????")],
            roots: vec![policy::Root::Temporary],
            records: None,
            after: Duration::from_hours(1),
        }
    }

    fn config() -> Config {
        let specs: Vec<_> = crate::judge::rules::ALL.iter().map(|rule| &rule.spec).collect();
        let context = crate::config::Context { rules: &specs, home: None };
        crate::config::load(None, &context).unwrap()
    }

    fn look() -> Look {
        world::parse("reapd world 1\nlook at 10d\n  pid  ppid began command\n  1 0 10d init\n")
            .unwrap()
            .remove(0)
    }

    impl Case {
        /// Something that everything says may go.
        fn stale() -> Case {
            let look = look();
            let old = i64::try_from(look.snapshot.began.wall).unwrap() * 1_000_000 - 2 * HOUR;
            let place = Place {
                directory: "/tmp".into(),
                holder: FileId { dev: 1, ino: 2 },
                name: "pv-abcdef".into(),
            };
            let entries = vec![
                Piece::sample("server.sock", Kind::Socket, 11, old),
                Piece::sample("server.log", Kind::File, 12, old),
            ];
            let own = Piece::sample("pv-abcdef", Kind::Directory, 10, old);
            let left = Left::Directory(Remains { place, own, entries: Ok(entries), numbers: Numbers::Alike });
            Case {
                before: Some(left.clone()),
                left,
                served: Ok(Served::default()),
                named: Ok(BTreeMap::new()),
                asked: BTreeSet::from(["pv-abcdef".into()]),
                look,
            }
        }

        /// A record of that directory, which is gone.
        fn record() -> Case {
            let case = Case::stale();
            let (mut place, mut own) = (case.left.place().clone(), case.left.own().clone());
            let target = Target { directory: place.clone(), file: "server.sock".into(), there: None };
            (place.directory, place.name, own.name) = ("/home/u/x".into(), "r.json".into(), "r.json".into());
            (own.kind, own.mode) = (Kind::File, 0o644);
            let left = Left::Record(Record { place, own, target: Ok(Some(target)) });
            Case { before: Some(left.clone()), left, ..case }
        }

        fn ledger(&self) -> Ledger {
            let mut ledger = Ledger::default();
            let since = Moment(self.look.snapshot.began.boot.0.saturating_sub(60_000_000_000));
            ledger.remember_left(self.before.iter(), since);
            ledger
        }

        fn verdict(&self) -> Verdict {
            let (residue, config, ledger) = (residue(), config(), self.ledger());
            let ground = Ground {
                residue: &residue,
                config: &config,
                look: &self.look,
                ledger: &ledger,
                served: &self.served,
                asked: &self.asked,
                named: &self.named,
            };
            judge(std::slice::from_ref(&self.left), &ground).remove(0).verdict
        }

        /// The same with something else in its place at both looks.
        fn with(mut self, change: impl FnOnce(&mut Remains)) -> Case {
            if let Left::Directory(remains) = &mut self.left {
                change(remains);
            }
            Case { before: Some(self.left.clone()), ..self }
        }

        fn with_record(mut self, change: impl FnOnce(&mut Record)) -> Case {
            if let Left::Record(record) = &mut self.left {
                change(record);
            }
            Case { before: Some(self.left.clone()), ..self }
        }
    }

    #[track_caller]
    fn kept(case: &Case, why: &str) {
        let verdict = case.verdict();
        assert!(matches!(&verdict, Verdict::Kept(said) if said.contains(why)), "{verdict:?}");
    }

    #[track_caller]
    fn unknown(case: &Case) {
        assert!(matches!(case.verdict(), Verdict::Unknown(_)), "{:?}", case.verdict());
    }

    fn entry(remains: &mut Remains) -> &mut Piece {
        if remains.entries.is_err() {
            return &mut remains.own;
        }
        &mut remains.entries.as_mut().unwrap()[1]
    }

    #[test]
    fn what_everything_lets_go_is_stale() {
        assert_eq!(Case::stale().verdict(), Verdict::Stale);
        assert_eq!(Case::record().verdict(), Verdict::Stale);
    }

    #[test]
    fn what_is_in_it_must_be_named_plain_and_its_own() {
        kept(&Case::stale().with(|remains| entry(remains).name = "notes".into()), "does not name");
        kept(&Case::stale().with(|remains| entry(remains).kind = Kind::Link), "neither");
        kept(&Case::stale().with(|remains| entry(remains).kind = Kind::Directory), "neither");
        kept(&Case::stale().with(|remains| entry(remains).links = 2), "another name");
        kept(&Case::stale().with(|remains| entry(remains).uid = Uid(0)), "another user");
        unknown(&Case::stale().with(|remains| remains.entries = Err(Unknown::new(Reason::Truncated, "x"))));
    }

    #[test]
    fn the_directory_must_be_one_and_nobody_elses() {
        kept(&Case::stale().with(|remains| remains.own.mode = 0o770), "others may write");
        kept(&Case::stale().with(|remains| remains.own.mode = 0o702), "others may write");
        kept(&Case::stale().with(|remains| remains.own.kind = Kind::Link), "no directory");
        kept(&Case::stale().with(|remains| remains.place.name.push_char('\n')), "not plain");
    }

    #[test]
    fn time_must_have_passed_by_a_clock_that_makes_sense() {
        kept(&Case::stale().with(|remains| entry(remains).modified += 3 * HOUR / 2), "not long ago");
        kept(&Case::stale().with(|remains| remains.own.changed += 3 * HOUR / 2), "not long ago");
        unknown(&Case::stale().with(|remains| entry(remains).modified += 3 * HOUR));
    }

    #[test]
    fn two_looks_must_have_seen_the_same_f12() {
        let case = Case::stale();
        assert_eq!(Case { before: None, ..case.clone() }.verdict(), Verdict::Suspect);
        let mut changed = case.clone();
        if let Some(Left::Directory(remains)) = &mut changed.before {
            entry(remains).changed -= 1;
        }
        assert_eq!(changed.verdict(), Verdict::Suspect);
        let mut another = case.clone();
        if let Some(Left::Directory(remains)) = &mut another.before {
            remains.own.file.ino += 1;
        }
        assert_eq!(another.verdict(), Verdict::Suspect);
    }

    #[test]
    fn what_was_left_is_seen_anew_after_a_suspend_f13() {
        let case = Case::stale();
        let confirm = config().confirm;
        let mut look = case.look.clone();
        let mut ledger = Ledger::default();
        ledger.begin(&look, &confirm);
        ledger.remember_left([&case.left].into_iter(), look.snapshot.began.boot);
        look.snapshot.began.boot = look.snapshot.began.boot.plus(Duration::from_secs(20));
        look.snapshot.began.wall += 20_000;
        let mut awake = look.clone();
        awake.snapshot.began.monotonic += 20_000_000_000;
        let mut twin = ledger.clone();
        twin.begin(&awake, &confirm);
        assert!(twin.left_since(&case.left).is_some(), "the twin that did not sleep");
        ledger.begin(&look, &confirm);
        assert_eq!(ledger.left_since(&case.left), None);
    }

    #[test]
    fn looks_too_close_together_are_one() {
        let case = Case::stale();
        let (residue, config, mut ledger) = (residue(), config(), Ledger::default());
        ledger.remember_left([&case.left].into_iter(), case.look.snapshot.began.boot);
        let ground = Ground {
            residue: &residue,
            config: &config,
            look: &case.look,
            ledger: &ledger,
            served: &case.served,
            asked: &case.asked,
            named: &case.named,
        };
        assert_eq!(judge(std::slice::from_ref(&case.left), &ground)[0].verdict, Verdict::Suspect);
    }

    #[test]
    fn whoever_serves_there_keeps_it_f16() {
        for name in
            ["/tmp/pv-abcdef/server.sock", "pv-abcdef/x", "/private/tmp/pv-abcdef/server.sock", "@pv-abcdef"]
        {
            let served = Ok(Served { names: BTreeSet::from([name.into()]), files: Vec::new() });
            kept(&Case { served: served.clone(), ..Case::stale() }, "a socket is bound");
            kept(&Case { served, ..Case::record() }, "a socket is bound");
        }
        let bound = |dev| Ok(Served { names: BTreeSet::new(), files: vec![FileId { dev, ino: 11 }] });
        kept(&Case { served: bound(1), ..Case::stale() }, "a socket is bound");
        assert_eq!(Case { served: bound(9), ..Case::stale() }.verdict(), Verdict::Stale);
        let other_numbers = Case { served: bound(9), ..Case::stale() };
        kept(&other_numbers.with(|remains| remains.numbers = Numbers::InodeOnly), "a socket is bound");
        unknown(&Case { served: Err(Unknown::new(Reason::Unsupported, "x")), ..Case::stale() });
    }

    #[test]
    fn a_socket_without_its_directory_keeps_what_bears_its_name_f7_f16() {
        let serving = |name: &str| {
            let served = Ok(Served { names: BTreeSet::from([name.into()]), files: Vec::new() });
            Case { served, ..Case::stale() }
        };
        for name in ["server.sock", "./server.sock", "../x/server.sock"] {
            kept(&serving(name), "a socket is bound to 'server.sock' in it");
        }
        for other in ["server.log", "other.sock", "@server.sock", "/run/x/server.sock", "server.sock/x"] {
            assert_eq!(serving(other).verdict(), Verdict::Stale, "{other}");
        }
    }

    #[test]
    fn whoever_names_it_keeps_it() {
        let named = Ok(BTreeMap::from([("pv-abcdef".into(), Pid::INIT)]));
        kept(&Case { named: named.clone(), ..Case::stale() }, "process 1 names it");
        kept(&Case { named, ..Case::record() }, "process 1 names it");
        unknown(&Case { named: Err(Unknown::new(Reason::Denied, "x")), ..Case::stale() });
        unknown(&Case { asked: BTreeSet::new(), ..Case::stale() });
    }

    #[test]
    fn a_lease_that_names_it_or_cannot_be_read_keeps_it() {
        let faulty = |owner| FaultyLease { owner, stem: "x".into(), why: Unknown::new(Reason::Unsound, "x") };
        let with = |owner| {
            let mut case = Case::stale();
            case.look.snapshot.leases.faulty.push(faulty(owner));
            case
        };
        unknown(&with(Some(Uid(1000))));
        unknown(&with(None));
        assert_eq!(with(Some(Uid(7))).verdict(), Verdict::Stale, "a lease of another user");
    }

    #[test]
    fn a_person_keeps_a_directory_with_what_is_in_it() {
        for path in ["/tmp", "/tmp/pv-abcdef", "/"] {
            let mut case = Case::stale();
            let what = Kept::Directory { path: path.into() };
            case.look.marks.push(KeepMark { what, until: None, set: 0, note: None });
            kept(&case, "kept");
        }
        let mut case = Case::stale();
        let what = Kept::Directory { path: "/tmp/pv-abc".into() };
        case.look.marks.push(KeepMark { what, until: None, set: 0, note: None });
        assert_eq!(case.verdict(), Verdict::Stale);
    }

    #[test]
    fn a_record_must_name_what_its_policy_would_remove_and_that_must_go() {
        fn target(record: &mut Record) -> &mut Target {
            record.target.as_mut().unwrap().as_mut().unwrap()
        }
        kept(&Case::record().with_record(|record| record.target = Ok(None)), "nothing in a root");
        unknown(
            &Case::record().with_record(|record| record.target = Err(Unknown::new(Reason::Unsound, "x"))),
        );
        kept(
            &Case::record().with_record(|record| target(record).file = "other".into()),
            "nothing that its policy",
        );
        let precious = |record: &mut Record| target(record).directory.name = "precious".into();
        kept(&Case::record().with_record(precious), "nothing that its policy");
        kept(
            &Case::record().with_record(|record| target(record).there = Some(FileId { dev: 1, ino: 10 })),
            "stays",
        );
        kept(&Case::record().with_record(|record| record.own.links = 2), "one name");
        kept(&Case::record().with_record(|record| record.own.mode = 0o666), "others may write");
    }

    #[test]
    fn a_record_goes_with_its_directory_and_not_before() {
        let (directory, mut record) = (Case::stale(), Case::record());
        record = record.with_record(|record| {
            record.target.as_mut().unwrap().as_mut().unwrap().there = Some(FileId { dev: 1, ino: 10 });
        });
        let (residue, config) = (residue(), config());
        let verdicts = |before: &[&Left], directory: &Left| {
            let mut ledger = Ledger::default();
            let since = Moment(record.look.snapshot.began.boot.0 - 60_000_000_000);
            ledger.remember_left(before.iter().copied(), since);
            let ground = Ground {
                residue: &residue,
                config: &config,
                look: &record.look,
                ledger: &ledger,
                served: &record.served,
                asked: &record.asked,
                named: &record.named,
            };
            let judged = judge(&[record.left.clone(), directory.clone()], &ground);
            judged.into_iter().find(|one| matches!(one.left, Left::Record(_))).unwrap().verdict
        };
        assert_eq!(verdicts(&[&directory.left, &record.left], &directory.left), Verdict::Stale);
        assert_eq!(verdicts(&[&record.left], &directory.left), Verdict::Suspect);
        let full = Case::stale().with(|remains| entry(remains).name = "notes".into());
        assert!(matches!(verdicts(&[&full.left, &record.left], &full.left), Verdict::Kept(_)));
        // Another directory of that name is not the one it goes with.
        let another = Case::stale().with(|remains| remains.own.file.ino = 99);
        assert!(matches!(verdicts(&[&another.left, &record.left], &another.left), Verdict::Kept(_)));
    }

    #[test]
    fn of_a_tree_only_what_was_recorded_goes_f16() {
        let case = Case::stale();
        let Left::Directory(remains) = &case.left else { panic!() };
        let recorded = Removal::new("p", &case.left, None);
        let (residue, config, ledger) = (residue(), config(), Ledger::default());
        let says = |now: &Remains, served: &Known<Served>, asked: &BTreeSet<BString>, named: &Known<_>| {
            let look = &case.look;
            let ground =
                Ground { residue: &residue, config: &config, look, ledger: &ledger, served, asked, named };
            is_left(&recorded, now, &ground)
        };
        let usual = |now: &Remains| says(now, &case.served, &case.asked, &case.named);
        assert_eq!(usual(remains), Ok(()));
        let changed = |change: fn(&mut Remains)| {
            let mut now = remains.clone();
            change(&mut now);
            usual(&now)
        };
        assert!(
            changed(|now| {
                now.entries.as_mut().unwrap().remove(0);
            })
            .is_ok(),
            "it tidied up itself"
        );
        assert!(changed(|now| entry(now).modified += HOUR).is_ok(), "it wrote until its end");
        assert!(changed(|now| now.own.file.ino += 1).is_err());
        assert!(changed(|now| now.place.holder.ino += 1).is_err());
        assert!(changed(|now| entry(now).file.ino += 1).is_err(), "a successor's");
        let reused = |now: &mut Remains| now.entries.as_mut().unwrap()[0].modified += 1;
        assert!(changed(reused).is_err(), "a successor's socket with the inode of the old one");
        assert!(changed(|now| entry(now).name = "server.pid".into()).is_err());
        assert!(changed(|now| now.own.uid = Uid(7)).is_err());
        let served = Ok(Served { names: BTreeSet::from(["/tmp/pv-abcdef/s".into()]), files: Vec::new() });
        assert!(says(remains, &served, &case.asked, &case.named).is_err());
        let named = Ok(BTreeMap::from([("pv-abcdef".into(), Pid::INIT)]));
        assert!(says(remains, &case.served, &case.asked, &named).is_err());
    }

    /// One thing that is in the way.
    fn spoil(case: Case, at: usize) -> Case {
        let bad = || Unknown::new(Reason::Denied, "x");
        match at {
            0 => case.with(|remains| remains.own.mode = 0o777),
            1 => case.with(|remains| entry(remains).name = "other".into()),
            2 => case.with(|remains| entry(remains).kind = Kind::Other),
            3 => case.with(|remains| entry(remains).links = 2),
            4 => case.with(|remains| entry(remains).uid = Uid(3)),
            5 => case.with(|remains| remains.entries = Err(Unknown::new(Reason::Truncated, "x"))),
            6 => case.with(|remains| remains.own.modified = i64::MAX),
            7 => case.with(|remains| remains.own.changed += 3 * HOUR / 2),
            8 => Case { served: Err(bad()), ..case },
            9 => Case { named: Err(bad()), ..case },
            10 => Case { asked: BTreeSet::new(), ..case },
            11 => Case { before: None, ..case },
            12 => Case { named: Ok(BTreeMap::from([("pv-abcdef".into(), Pid::INIT)])), ..case },
            _ => {
                let names = BTreeSet::from(["/tmp/pv-abcdef/server.sock".into()]);
                Case { served: Ok(Served { names, files: Vec::new() }), ..case }
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_else_holds_one_thing_in_the_way_is_enough(spoiled in proptest::collection::btree_set(0_usize..14, 0..5)) {
            let case = spoiled.iter().fold(Case::stale(), |case, &at| {
                let was_first = case.before.is_none();
                let spoiled = spoil(case, at);
                // What changes at both looks must not bring a look back that never was.
                if was_first { Case { before: None, ..spoiled } } else { spoiled }
            });
            // An entry list that cannot be read hides what else is wrong in it, and keeps it all the same.
            prop_assert_eq!(case.verdict() == Verdict::Stale, spoiled.is_empty());
        }
    }
}
