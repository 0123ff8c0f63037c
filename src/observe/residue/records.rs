//! Files of state that may name a directory in a root.

use std::os::fd::OwnedFd;

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::config::policy::Glob;
use crate::model::id::Uid;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::residue::{Kind, Left, Place, Record, Target, below};
use crate::observe::opened::{file_id, text, unknown};

use super::directories::parted;
use super::{Finds, HARMLESS, NAMES_MOST, Root, beneath, is_private, names, piece, piece_at, roots};

/// Most records that are read.
const RECORDS_MOST: usize = 4_096;

/// A longer record is none of ours, bytes.
const LONGEST: usize = 64 * 1024;

/// What is read of each.
pub(super) struct Sought<'a> {
    /// JSON pointer to the text.
    pub(super) key: &'a str,
    /// Taken from the front of it.
    pub(super) strip: Option<&'a str>,
    /// Whose records count; everybody's where nobody is named.
    pub(super) user: Option<Uid>,
}

/// Reads the records of these places.
pub(super) fn records(
    finds: &mut Finds,
    places: &[(BString, Vec<String>)],
    sought: &Sought<'_>,
    paths: &[BString],
) {
    let roots = roots(finds, paths);
    let mut seen = Vec::new();
    for (base, elements) in places {
        let base = match Root::open(base.as_bstr()) {
            Ok(Some(base)) => base,
            Ok(None) => continue,
            Err(why) => {
                finds.gap(base.as_bstr(), why);
                continue;
            }
        };
        // Two places may be one, as where the temporary directory is /tmp.
        if seen.contains(&(base.file, elements)) {
            continue;
        }
        seen.push((base.file, elements));
        let mut walk = Walk { finds, sought, roots: &roots };
        walk.directory(&base.directory, base.path.as_bstr(), elements);
    }
}

struct Walk<'a> {
    finds: &'a mut Finds,
    sought: &'a Sought<'a>,
    roots: &'a [Root],
}

impl Walk<'_> {
    fn directory(&mut self, directory: &OwnedFd, path: &BStr, elements: &[String]) {
        let Some((element, rest)) = elements.split_first() else { return };
        let names = if element.contains(['*', '?']) {
            let Ok(glob) = Glob::parse(element) else { return };
            match names(directory, NAMES_MOST) {
                Ok(Some(mut names)) => {
                    names.retain(|name| {
                        glob.fits(name.as_bstr()) && (element.starts_with('.') || !name.starts_with(b"."))
                    });
                    names
                }
                Ok(None) => {
                    let what = format!("it holds more than {NAMES_MOST} names");
                    return self.finds.gap(path, Unknown::new(Reason::Truncated, what));
                }
                Err(errno) => return self.finds.gap(path, unknown(errno, "listing it")),
            }
        } else {
            vec![BString::from(element.as_str())]
        };
        for name in names {
            if self.finds.left.len() >= RECORDS_MOST {
                let what = format!("only the first {RECORDS_MOST} records were read");
                return self.finds.gap(path, Unknown::new(Reason::Truncated, what));
            }
            if !self.finds.may_go_on(path) {
                return;
            }
            if rest.is_empty() {
                self.record(directory, path, name.as_bstr());
            } else if let Ok(opened) = beneath(directory, name.as_bstr())
                && rustix::fs::fstat(&opened).is_ok_and(|stat| is_private(&stat))
            {
                self.directory(&opened, below(path, name.as_bstr()).as_bstr(), rest);
            }
        }
    }

    fn record(&mut self, directory: &OwnedFd, path: &BStr, name: &BStr) {
        let Ok(own) = piece_at(directory, name) else { return };
        if own.kind != Kind::File || self.sought.user.is_some_and(|user| own.uid != user) {
            return;
        }
        let Ok(above) = rustix::fs::fstat(directory) else { return };
        let place = Place { directory: path.to_owned(), holder: file_id(&above), name: name.to_owned() };
        let what = || format!("'{}'", place.path());
        // The very file that is read is the one that is told of.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | HARMLESS;
        let (own, target) = match rustix::fs::openat(directory, name.as_bytes(), flags, Mode::empty()) {
            Ok(file) => match rustix::fs::fstat(&file) {
                Ok(stat) => {
                    (piece(name, &stat), text(&file, LONGEST).map_err(|errno| unknown(errno, what())))
                }
                Err(errno) => (own, Err(unknown(errno, what()))),
            },
            Err(Errno::NOENT) => return,
            Err(errno) => (own, Err(unknown(errno, what()))),
        };
        let target = target.and_then(|text| self.target(&text, &what()));
        self.finds.left.push(Left::Record(Record { place, own, target }));
    }

    /// Returns what a record names: a file of a directory that stands directly in a root.
    fn target(&self, text: &[u8], what: &str) -> Known<Option<Target>> {
        let unsound = |why: &str| Unknown::new(Reason::Unsound, format!("{what}: {why}"));
        if text.len() > LONGEST {
            return Err(Unknown::new(Reason::Truncated, what));
        }
        let json: Value = serde_json::from_slice(text).map_err(|_| unsound("no JSON"))?;
        let named = json.pointer(self.sought.key).and_then(Value::as_str);
        let Some(named) = named else { return Err(unsound("it has no text there")) };
        let path = match self.sought.strip {
            Some(strip) => named.strip_prefix(strip),
            None => Some(named),
        };
        let Some((directory, file)) = path.and_then(|path| parted(BStr::new(path))) else { return Ok(None) };
        let Some((above, name)) = parted(directory) else { return Ok(None) };
        let Some(root) = self.roots.iter().find(|root| root.is_called(above)) else { return Ok(None) };
        let there = match piece_at(&root.directory, name) {
            Ok(piece) => Some(piece.file),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(unknown(errno, format!("what {what} names"))),
        };
        let directory = Place { directory: root.path.clone(), holder: root.file, name: name.to_owned() };
        Ok(Some(Target { directory, file: file.to_owned(), there }))
    }
}
