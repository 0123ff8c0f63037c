//! What a client of an engine was started with. It runs in the aside process, since arguments and files may hang.

use bstr::BString;
use serde::{Deserialize, Serialize};

use crate::model::container::ContainerId;
#[cfg(any(target_os = "linux", test))]
use crate::model::docker_command::DockerCommand;
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};

/// What a process was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::observe) struct Given {
    pub(super) argv: Known<Vec<BString>>,
    pub(super) cwd: Known<BString>,
    /// What stands in the file that its `--cidfile` names, where it names one.
    pub(super) cidfile: Option<Known<ContainerId>>,
}

/// Reads it.
#[cfg(target_os = "linux")]
pub(in crate::observe) fn given(of: ProcessId) -> Given {
    use crate::observe::processes;

    let argv = processes::arguments(of);
    let cwd = processes::working_directory(of);
    let named = argv.as_ref().ok().and_then(|argv| cidfile(argv));
    let cidfile = named.map(|path| {
        // An id and a newline, where somebody wrote one.
        id(&processes::short_text(of, bstr::BStr::new(&path), 128)?)
    });
    Given { argv, cwd, cidfile }
}

/// Reads it.
#[cfg(not(target_os = "linux"))]
pub(in crate::observe) fn given(_: ProcessId) -> Given {
    let why = Unknown::new(Reason::Unsupported, "what a client of an engine was started with");
    Given { argv: Err(why.clone()), cwd: Err(why), cidfile: None }
}

/// Returns the path behind `--cidfile`. One that stands behind the image is an argument of the container's own program,
/// and its file may hold any id: whatever is not understood names none.
#[cfg(any(target_os = "linux", test))]
fn cidfile(argv: &[BString]) -> Option<BString> {
    let DockerCommand::Run(options) = DockerCommand::of(argv) else { return None };
    options.cidfile.filter(|_| options.unclear.is_none())
}

/// Returns the id in a file that an engine's client wrote; empty until the container is made.
#[cfg(any(target_os = "linux", test))]
fn id(text: &[u8]) -> Known<ContainerId> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(ContainerId::written)
        .ok_or_else(|| Unknown::new(Reason::Unsound, "what stands in its cidfile is no container's id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_and_nothing_like_it() {
        let whole = "0a".repeat(32);
        assert_eq!(id(whole.as_bytes()).unwrap().as_str(), whole);
        assert_eq!(id(format!("{whole}\n").as_bytes()).unwrap().as_str(), whole);
        for text in [&b""[..], b"0a0a", format!("{whole}0").as_bytes(), b"\xff"] {
            assert!(id(text).is_err());
        }
    }

    #[test]
    fn a_cidfile_of_the_client_and_not_of_the_container() {
        let of = |words: &str| cidfile(&words.split(' ').map(BString::from).collect::<Vec<_>>());
        assert_eq!(of("docker run -i --cidfile /tmp/c img"), Some("/tmp/c".into()));
        assert_eq!(of("docker run -i --cidfile=c img"), Some("c".into()));
        assert_eq!(of("docker run -i img tool --cidfile /tmp/c"), None);
        assert_eq!(of("docker exec x tool --cidfile /tmp/c"), None);
    }
}
