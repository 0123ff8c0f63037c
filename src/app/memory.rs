//! What is remembered between runs: the ledger of what was seen, what a person keeps, and what a person released.

use bstr::ByteSlice as _;
use serde::{Deserialize, Serialize};

use super::state::{State, StateError};
use crate::judge::Ledger;
use crate::model::container::ContainerRef;
use crate::model::evidence::Cause;
use crate::model::id::{BootId, ProcessId};
use crate::model::keep::{KeepMark, Kept};
use crate::observe::Heard;

const LEDGER: &str = "ledger.json";
const KEEP: &str = "keep.json";
const RELEASED: &str = "released.json";
const HEARD: &str = "registry-answers.json";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct LedgerFile<L> {
    v: u32,
    ledger: L,
}

/// What there is of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remembered {
    /// Nothing yet.
    Nothing,
    /// What was seen before. Whether it was in this boot, the ledger itself knows.
    Ledger(Box<Ledger>),
    /// Something that cannot be gone on with, for this reason.
    Bad(&'static str),
}

/// Reads the ledger.
pub fn ledger(state: &State) -> Result<Remembered, StateError> {
    let Some(content) = state.read(LEDGER)? else { return Ok(Remembered::Nothing) };
    Ok(match serde_json::from_slice::<LedgerFile<Ledger>>(&content) {
        Ok(file) if file.v == VERSION => Remembered::Ledger(Box::new(file.ledger)),
        Ok(_) => Remembered::Bad("is of another version"),
        Err(_) => Remembered::Bad("cannot be read"),
    })
}

/// Sets a bad ledger aside, so that the next one does not overwrite what somebody may want to look at, and returns
/// where it is now.
pub fn set_ledger_aside(state: &State) -> Result<String, StateError> {
    let aside = format!("{LEDGER}.bad");
    state.rename(LEDGER, &aside)?;
    Ok(aside)
}

/// Writes the ledger.
pub fn save_ledger(state: &State, ledger: &Ledger) -> Result<(), StateError> {
    write(state, LEDGER, &LedgerFile { v: VERSION, ledger })
}

#[derive(Default, Serialize, Deserialize)]
struct KeepFile {
    v: u32,
    marks: Vec<KeepMark>,
}

/// Returns every keep mark. A list that cannot be read is an error: its marks protect somebody.
pub fn marks(state: &State) -> Result<Vec<KeepMark>, StateError> {
    Ok(read::<KeepFile>(state, KEEP)?.unwrap_or_default().marks)
}

/// Returns the marks that still hold.
pub fn valid_marks(marks: &[KeepMark], boot: &BootId, wall: u64) -> Vec<KeepMark> {
    marks.iter().filter(|mark| holds(mark, boot, wall)).cloned().collect()
}

/// Says whether a mark still holds.
pub fn holds(mark: &KeepMark, boot: &BootId, wall: u64) -> bool {
    let in_time = mark.until.is_none_or(|until| wall < until);
    let here = match &mark.what {
        Kept::Process { boot: seen, .. } => seen == boot,
        // An engine gives an id to no other container, in whatever boot.
        Kept::Directory { .. } | Kept::Container { .. } => true,
    };
    in_time && here
}

/// Changes the keep list, alone.
pub fn change_marks(state: &State, change: impl FnOnce(&mut Vec<KeepMark>)) -> Result<(), StateError> {
    let _alone = state.exclusive()?;
    let mut marks = marks(state)?;
    change(&mut marks);
    // Bytes as text, as far as they are text, for whoever looks into the file.
    let mut json = serde_json::to_value(KeepFile { v: VERSION, marks })
        .map_err(|source| StateError::Encode { name: KEEP.to_owned(), source })?;
    for mark in json["marks"].as_array_mut().into_iter().flatten() {
        if let Some(path) = mark.pointer_mut("/what/directory/path") {
            let bytes = serde_json::from_value::<Vec<u8>>(path.clone()).unwrap_or_default();
            if let Ok(text) = bytes.to_str() {
                *path = text.into();
            }
        }
    }
    write(state, KEEP, &json)
}

/// What a person released for the next sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// Everything that hangs on this cause.
    Cause(Cause),
    /// One tree, by its root.
    Tree(ProcessId),
    /// One container.
    Container(ContainerRef),
}

/// What was released and not swept since.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Releases {
    v: u32,
    boot: Option<BootId>,
    released: Vec<Release>,
}

impl Releases {
    /// Returns those of this boot.
    pub fn of(self, boot: &BootId) -> Vec<Release> {
        if self.boot.as_ref() == Some(boot) { self.released } else { Vec::new() }
    }
}

/// Returns what was released and not swept since.
pub fn releases(state: &State) -> Result<Releases, StateError> {
    Ok(read::<Releases>(state, RELEASED)?.unwrap_or_default())
}

/// Adds a release for the next sweep.
pub fn release(state: &State, boot: &BootId, what: Release) -> Result<(), StateError> {
    let _alone = state.exclusive()?;
    let mut released = releases(state)?.of(boot);
    if !released.contains(&what) {
        released.push(what);
    }
    write(state, RELEASED, &Releases { v: VERSION, boot: Some(boot.clone()), released })
}

/// Forgets these releases: a sweep has used them. One that came meanwhile stays for the next.
pub fn use_up(state: &State, boot: &BootId, used: &[Release]) -> Result<(), StateError> {
    if used.is_empty() {
        return Ok(());
    }
    let _alone = state.exclusive()?;
    let mut released = releases(state)?.of(boot);
    released.retain(|release| !used.contains(release));
    write(state, RELEASED, &Releases { v: VERSION, boot: Some(boot.clone()), released })
}

#[derive(Serialize, Deserialize)]
struct HeardFile<H> {
    v: u32,
    heard: H,
}

/// Returns what servers said to an earlier run. A file that cannot be understood only costs asking once more.
pub fn heard(state: &State) -> Option<Heard> {
    let file = read::<HeardFile<Heard>>(state, HEARD).ok()??;
    (file.v == VERSION).then_some(file.heard)
}

/// Writes down what servers said, for the next run; where there is nothing, nothing is written.
pub fn save_heard(state: &State, heard: &Heard) -> Result<(), StateError> {
    if heard.is_empty() {
        return Ok(());
    }
    write(state, HEARD, &HeardFile { v: VERSION, heard })
}

fn read<T: for<'a> Deserialize<'a>>(state: &State, name: &str) -> Result<Option<T>, StateError> {
    let Some(content) = state.read(name)? else { return Ok(None) };
    serde_json::from_slice(&content).map(Some).map_err(|source| StateError::Io {
        doing: "cannot understand",
        path: state.path_of(name),
        source: source.into(),
    })
}

fn write<T: Serialize>(state: &State, name: &str, value: &T) -> Result<(), StateError> {
    let mut content =
        serde_json::to_vec(value).map_err(|source| StateError::Encode { name: name.to_owned(), source })?;
    content.push(b'\n');
    state.write(name, &content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    fn state() -> (tempfile::TempDir, State) {
        let base = tempfile::tempdir().unwrap();
        let state = State::open(&base.path().join("s")).unwrap();
        (base, state)
    }

    fn boot(name: &str) -> BootId {
        BootId(name.into())
    }

    #[test]
    fn a_ledger_comes_back_and_a_bad_one_is_set_aside() {
        let (base, state) = state();
        assert_eq!(ledger(&state).unwrap(), Remembered::Nothing);
        save_ledger(&state, &Ledger::default()).unwrap();
        assert_eq!(ledger(&state).unwrap(), Remembered::Ledger(Box::default()));
        let good = String::from_utf8(state.read(LEDGER).unwrap().unwrap()).unwrap();
        let other_version = good.replacen("\"v\":1", "\"v\":2", 1);
        assert_ne!(other_version, good);
        for bad in ["{", &other_version, ""] {
            state.write(LEDGER, bad.as_bytes()).unwrap();
            assert!(matches!(ledger(&state).unwrap(), Remembered::Bad(_)), "{bad}");
            let aside = set_ledger_aside(&state).unwrap();
            assert_eq!(std::fs::read_to_string(base.path().join("s").join(aside)).unwrap(), bad);
            assert_eq!(ledger(&state).unwrap(), Remembered::Nothing);
        }
    }

    fn directory(path: &[u8]) -> KeepMark {
        KeepMark { what: Kept::Directory { path: path.into() }, until: None, set: 0, note: None }
    }

    #[test]
    fn keep_marks_come_back_as_they_were_and_a_broken_list_is_no_empty_one() {
        let (base, state) = state();
        let all = [directory(b"/a"), directory(b"/\xff")];
        change_marks(&state, |marks| marks.extend(all.clone())).unwrap();
        assert_eq!(marks(&state).unwrap(), all);
        let text = std::fs::read_to_string(base.path().join("s/keep.json")).unwrap();
        assert!(text.contains("\"/a\""), "{text}");
        state.write(KEEP, b"{").unwrap();
        assert!(marks(&state).is_err());
    }

    #[test]
    fn marks_end_with_their_time_and_their_boot() {
        let process = Kept::Process { boot: boot("a"), id: sample::process(5), name: "x".into() };
        let mark = KeepMark { what: process, until: Some(10), set: 0, note: None };
        assert!(holds(&mark, &boot("a"), 9));
        assert!(!holds(&mark, &boot("a"), 10));
        assert!(!holds(&mark, &boot("b"), 9));
        assert!(holds(&directory(b"/a"), &boot("b"), u64::MAX));
    }

    #[test]
    fn a_release_is_used_up_once() {
        let (_base, state) = state();
        let one = Release::Tree(sample::process(5));
        let two = Release::Cause(Cause::Mount("/mnt".into()));
        release(&state, &boot("a"), one.clone()).unwrap();
        release(&state, &boot("a"), two.clone()).unwrap();
        assert!(releases(&state).unwrap().of(&boot("b")).is_empty());
        use_up(&state, &boot("a"), &[one]).unwrap();
        assert_eq!(releases(&state).unwrap().of(&boot("a")), [two]);
    }
}
