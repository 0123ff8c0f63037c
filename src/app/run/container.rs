//! `docker run` and `podman run` in the words of a command: where a lease's labels and a cidfile go. Pure.
//!
//! The labels are `dev.reapd.lease=ID` and, where the holder is known, `dev.reapd.holder=PID:START:BOOT:PIDNS`: the
//! holder's number, raw start stamp, boot id and the inode of its pid namespace, as they stand in the lease.
//! The file behind `--cidfile` tells which container the command line made. It is recorded in the lease as the label
//! `cidfile`, which is where whoever stops containers finds it.
//!
//! Whatever is not understood is left alone.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice as _};

use crate::model::docker_command::{RunOptions, Stays, engine_named, run_at};
use crate::model::lease::{Holder, LeaseId};

/// What goes into the command line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp<'a> {
    /// The lease.
    pub(super) id: &'a LeaseId,
    /// Who holds it.
    pub(super) holder: Option<&'a Holder>,
    /// Where the engine's client is to write the container's id.
    pub(super) cidfile: &'a Path,
}

/// A command line with a lease's marks in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamped {
    /// The whole command.
    pub(super) command: Vec<OsString>,
    /// Where the container's id is going to stand, where that is known.
    pub(super) cidfile: Option<PathBuf>,
}

/// Returns the command with the marks behind its word `run`; nothing where it is no such command, or is not understood.
pub(super) fn stamped(command: &[OsString], stamp: Stamp<'_>) -> Option<Stamped> {
    let words = bytes(command);
    let at = run_at(&words)?;
    let options = RunOptions::read(&words[at + 1..])?;
    let mut marks = vec![OsString::from("--label"), format!("dev.reapd.lease={}", stamp.id).into()];
    if let Some(holder) = stamp.holder.and_then(holder_text) {
        marks.extend([OsString::from("--label"), format!("dev.reapd.holder={holder}").into()]);
    }
    let cidfile = match (options.cidfile, options.stays) {
        (Some(own), _) => Some(OsStr::from_bytes(own.as_bytes()).into()),
        (None, Stays::Attached) => {
            marks.extend([OsString::from("--cidfile"), stamp.cidfile.into()]);
            Some(stamp.cidfile.to_owned())
        }
        // It outlives this command on purpose; nobody here ends it.
        (None, Stays::Detached) => None,
    };
    let mut all = command[..=at].to_vec();
    all.extend(marks);
    all.extend_from_slice(&command[at + 1..]);
    Some(Stamped { command: all, cidfile })
}

fn bytes(command: &[OsString]) -> Vec<BString> {
    command.iter().map(|word| word.as_bytes().into()).collect()
}

fn holder_text(holder: &Holder) -> Option<String> {
    let (start, boot, pidns) = (holder.start?, holder.boot.as_ref()?, holder.pidns?);
    Some(format!("{}:{}:{}:{pidns}", holder.pid, start.0, boot.0))
}

/// Returns the variables by which whoever looks for the container finds the engine that the command names; none where it
/// names none, or is no command of docker's.
pub(super) fn engine(command: &[OsString]) -> Vec<(&'static str, OsString)> {
    let named = engine_named(&bytes(command));
    named.into_iter().map(|(name, value)| (name, OsString::from_vec(value.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{BootId, Pid, Start};

    #[test]
    fn the_engine_that_a_command_names_is_the_one_that_is_looked_at() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            engine(&words)
        };
        let host = |socket: &str| vec![("DOCKER_HOST", OsString::from(socket))];
        assert_eq!(of("docker -H unix:///x run -i img"), host("unix:///x"));
        assert_eq!(of("/usr/bin/docker --host=unix:///x --log-level debug run img"), host("unix:///x"));
        assert_eq!(of("docker --context colima run img"), [("DOCKER_CONTEXT", "colima".into())]);
        for line in
            ["docker run -H x img", "docker --log-level -H run img", "podman -c x run img", "sh -H x run"]
        {
            assert_eq!(of(line), [], "{line}");
        }
    }

    fn holder() -> Holder {
        Holder {
            pid: Pid::new(7).unwrap(),
            start: Some(Start(9)),
            boot: Some(BootId("b-1".into())),
            pidns: Some(42),
            timens: None,
            host: None,
            age: None,
        }
    }

    fn stamp_line(line: &str) -> Option<(String, Option<String>)> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let (id, holder) = (LeaseId::new("r-1").unwrap(), holder());
        let stamp = Stamp { id: &id, holder: Some(&holder), cidfile: Path::new("/l/r-1.cid") };
        let done = stamped(&words, stamp)?;
        let words: Vec<&str> = done.command.iter().map(|word| word.to_str().unwrap()).collect();
        Some((words.join(" "), done.cidfile.map(|path| path.to_str().unwrap().to_owned())))
    }

    const LABELS: &str = "--label dev.reapd.lease=r-1 --label dev.reapd.holder=7:9:b-1:42";
    const CIDFILE: &str = "--cidfile /l/r-1.cid";

    #[test]
    fn marks_go_right_behind_the_word_run() {
        for (line, before, after) in [
            ("docker run img", "docker run", "img"),
            ("/usr/bin/docker run -i --rm mcp/x a b", "/usr/bin/docker run", "-i --rm mcp/x a b"),
            ("docker container run -it img", "docker container run", "-it img"),
            (
                "docker --context c -H unix:///s run --rm img",
                "docker --context c -H unix:///s run",
                "--rm img",
            ),
            ("docker --host=x --tls run img run", "docker --host=x --tls run", "img run"),
            ("podman --remote run --name n img", "podman --remote run", "--name n img"),
            ("podman run --name=n -e A=-d img -d", "podman run", "--name=n -e A=-d img -d"),
            ("docker run -eA=d -p80:80 img", "docker run", "-eA=d -p80:80 img"),
            ("docker run --detach=false img", "docker run", "--detach=false img"),
            ("docker run -d=false img", "docker run", "-d=false img"),
            ("docker run --network -d img", "docker run", "--network -d img"),
            ("docker run -- img -d", "docker run", "-- img -d"),
        ] {
            let wanted = (format!("{before} {LABELS} {CIDFILE} {after}"), Some("/l/r-1.cid".to_owned()));
            assert_eq!(stamp_line(line), Some(wanted), "{line}");
        }
    }

    #[test]
    fn a_cidfile_of_the_users_own_stays() {
        for option in ["--cidfile /own", "--cidfile=/own"] {
            let wanted = (format!("docker run {LABELS} {option} img"), Some("/own".to_owned()));
            assert_eq!(stamp_line(&format!("docker run {option} img")), Some(wanted));
        }
    }

    #[test]
    fn who_detaches_gets_labels_only() {
        for option in ["-d", "--detach", "-itd", "-d=true", "--detach=1", "-di"] {
            let wanted = (format!("docker run {LABELS} {option} img"), None);
            assert_eq!(stamp_line(&format!("docker run {option} img")), Some(wanted), "{option}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        for line in [
            "dockerd run img",
            "docker",
            "docker ps",
            "docker exec run img",
            "docker compose run img",
            "docker --unknown run img",
            "docker --context",
            "docker run",
            "docker run -i",
            "docker run -z img",
            "docker run --name",
            "docker run --detach=perhaps img",
            "sh -c docker run img",
        ] {
            assert_eq!(stamp_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_holder_that_is_not_known_in_full_is_no_label() {
        let mut holder = holder();
        holder.boot = None;
        assert_eq!(holder_text(&holder), None);
    }
}
