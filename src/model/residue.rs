//! What trees left behind: directories and records, what is to be removed of them, and what became of it.
//!
//! Paths here come from a root that the operator named and from names that were read in it; a text from outside is
//! only ever compared.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

use super::id::{FileId, Pid, ProcessId, Uid};
use super::known::Known;
use super::look::Gap;

/// Where something stands: a directory that was opened, and one name in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The path of the directory it stands in, as it was opened.
    pub directory: BString,
    /// That directory.
    pub holder: FileId,
    /// The name in it.
    pub name: BString,
}

impl Place {
    /// Returns the whole path.
    pub fn path(&self) -> BString {
        below(self.directory.as_bstr(), self.name.as_bstr())
    }
}

/// Returns the path of a name in a directory.
pub fn below(directory: &BStr, name: &BStr) -> BString {
    let mut path = BString::from(directory.trim_end_with(|letter| letter == '/'));
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// Returns the name under which something is taken before it is looked at for the last time and deleted. Whoever finds
/// it after a crash knows what it was.
pub fn taken(name: &BStr) -> BString {
    [TAKEN, name.as_bytes()].concat().into()
}

/// What [`taken`] puts before a name.
const TAKEN: &[u8] = b".reapd.";

/// A file, a socket or a directory, as lstat(2) shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Its name.
    pub name: BString,
    /// Which it is.
    pub file: FileId,
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub uid: Uid,
    /// Who may do what: the lower twelve bits of its mode.
    pub mode: u32,
    /// Names that lead to it.
    pub links: u64,
    /// What it takes on the disk, bytes.
    pub bytes: u64,
    /// Its length, bytes.
    pub length: u64,
    /// When its content was changed, nanoseconds of the wall clock since the epoch.
    pub modified: i64,
    /// When anything about it was changed, nanoseconds of the wall clock since the epoch.
    pub changed: i64,
}

#[cfg(test)]
impl Piece {
    /// Returns a piece of user 1000 on device 1, as tests have them.
    pub(crate) fn sample(name: &str, kind: Kind, ino: u64, changed: i64) -> Piece {
        Piece {
            name: name.into(),
            file: FileId { dev: 1, ino },
            kind,
            uid: Uid(1000),
            mode: 0o700,
            links: 1,
            bytes: 4_096,
            length: 1,
            modified: changed,
            changed,
        }
    }
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A Unix socket.
    Socket,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else: a FIFO, a device.
    Other,
}

/// A directory that a tree may have left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// Where it stands.
    pub place: Place,
    /// The directory itself.
    pub own: Piece,
    /// What is in it; unknown where there is more than anybody's residue.
    pub entries: Known<Vec<Piece>>,
    /// How its numbers compare to those of the kernel's list of sockets.
    pub numbers: Numbers,
}

/// How the device and inode of a file compare to those that the kernel tells of bound sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbers {
    /// Device and the lower half of the inode are the same.
    Alike,
    /// The file system shows another device (btrfs, overlayfs): only the lower half of the inode compares.
    InodeOnly,
}

/// A file of state that may name such a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where it stands.
    pub place: Place,
    /// The file itself.
    pub own: Piece,
    /// What it names; nothing where that is not a file of a directory in a root.
    pub target: Known<Option<Target>>,
}

/// What a record names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The directory, by its place in a root.
    pub directory: Place,
    /// The name of the file in it.
    pub file: BString,
    /// The directory, where it is there.
    pub there: Option<FileId>,
}

/// Something that was left behind, perhaps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// A directory.
    Directory(Remains),
    /// A record.
    Record(Record),
}

impl Left {
    /// Returns where it stands.
    pub fn place(&self) -> &Place {
        match self {
            Left::Directory(remains) => &remains.place,
            Left::Record(record) => &record.place,
        }
    }

    /// Returns the thing itself.
    pub fn own(&self) -> &Piece {
        match self {
            Left::Directory(remains) => &remains.own,
            Left::Record(record) => &record.own,
        }
    }

    /// Returns what is in it, as far as that is known.
    pub fn entries(&self) -> &[Piece] {
        match self {
            Left::Directory(remains) => remains.entries.as_deref().unwrap_or_default(),
            Left::Record(_) => &[],
        }
    }

    /// Returns when anything in it was last changed, nanoseconds of the wall clock since the epoch.
    pub fn changed(&self) -> i64 {
        let newest = |piece: &Piece| piece.changed.max(piece.modified);
        self.entries().iter().map(newest).max().unwrap_or(i64::MIN).max(newest(self.own()))
    }

    /// Returns the name that whoever still uses it would say: of the directory, or of the one that a record names.
    pub fn called(&self) -> Option<&BStr> {
        match self {
            Left::Directory(remains) => Some(remains.place.name.as_bstr()),
            Left::Record(record) => {
                let target = record.target.as_ref().ok()?.as_ref()?;
                Some(target.directory.name.as_bstr())
            }
        }
    }
}

/// What is asked about residue. Every directory is opened beneath its root, and no link below it is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The directories of these names that stand directly in a root.
    Stale {
        /// The roots, absolute.
        roots: Vec<BString>,
        /// Globs of one element.
        names: Vec<String>,
        /// Whose; everybody's where nobody is named.
        user: Option<Uid>,
    },
    /// One directory, where its path leads directly into a root.
    Directory {
        /// Its path: a text from outside.
        path: BString,
        /// The roots, absolute.
        roots: Vec<BString>,
    },
    /// Files that may name such directories.
    Records {
        /// Each an absolute directory, with the patterns of the elements below it.
        places: Vec<(BString, Vec<String>)>,
        /// JSON pointer to the text.
        key: String,
        /// Taken from the front of the text.
        strip: Option<String>,
        /// The roots, absolute.
        roots: Vec<BString>,
        /// Whose; everybody's where nobody is named.
        user: Option<Uid>,
    },
    /// Whether anybody alive says one of these names.
    Named(Vec<BString>),
    /// Which sockets have names.
    Served,
}

/// What was found out about residue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// To [`Ask::Stale`], [`Ask::Directory`] and [`Ask::Records`].
    Left {
        /// What is there.
        left: Vec<Left>,
        /// Where the looking stopped short.
        gaps: Vec<Gap>,
    },
    /// To [`Ask::Named`]: somebody who says it, by name.
    Named(BTreeMap<BString, Pid>),
    /// To [`Ask::Served`].
    Served(Served),
}

/// The Unix sockets of the host that have a name, listening or connected or neither.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Served {
    /// The names they were bound to; an accepted connection has its listener's.
    pub names: BTreeSet<BString>,
    /// The files that those of our own network namespace were bound to, the lower half of the inode only.
    pub files: Vec<FileId>,
}

/// Something that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The policy that names it.
    pub policy: String,
    /// Where it stands.
    pub place: Place,
    /// The thing itself.
    pub own: Piece,
    /// What is in it.
    pub entries: Vec<Piece>,
    /// The root of the tree that is to end first; nothing for what was left long ago.
    pub of: Option<ProcessId>,
}

impl Removal {
    /// Returns what was seen, as it is to be removed.
    pub fn new(policy: &str, left: &Left, of: Option<ProcessId>) -> Removal {
        Removal {
            policy: policy.to_owned(),
            place: left.place().clone(),
            own: left.own().clone(),
            entries: left.entries().to_vec(),
            of,
        }
    }

    /// Returns this as what became of it, with nothing removed.
    pub fn ended(&self, fate: Fate) -> Cleared {
        Cleared {
            policy: self.policy.clone(),
            place: self.place.clone(),
            file: self.own.file,
            kind: self.own.kind,
            fate,
            removed: Vec::new(),
            freed: 0,
        }
    }

    /// Returns what it takes on the disk, bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|piece| piece.bytes).sum::<u64>() + self.own.bytes
    }
}

/// What became of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleared {
    /// The policy.
    pub policy: String,
    /// Where it stood.
    pub place: Place,
    /// Which it was.
    pub file: FileId,
    /// What it was: a directory, or the file of a record.
    pub kind: Kind,
    /// What became of it.
    pub fate: Fate,
    /// What was removed of it, by name.
    pub removed: Vec<BString>,
    /// What that freed on the disk, bytes.
    pub freed: u64,
}

/// What became of something that was to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is removed.
    Removed,
    /// It was gone already.
    Gone,
    /// It is not as it was recorded any more, and what was not, is left; the text says what.
    Changed(String),
    /// The system refused; the text says what.
    Refused(String),
    /// It is left alone for this reason.
    Kept(String),
    /// A crash cut it short; the text says what was put back.
    CutShort(String),
}
