//! `[docker]`, and policies for containers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Glob, Line, Origin, ProofNeed, PublishedPing};
use crate::model::container::stop::Fate;
use crate::model::verdict::Mode;

/// `[docker]`: which engines are looked at, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Docker {
    /// `socket`.
    pub sockets: Sockets,
    /// `stdin`.
    pub stdin: StdinReader,
    /// `watchers`: programs that are connected to an engine and run containers for nobody (globs of file names): such a
    /// client counts as nobody's own.
    pub watchers: Vec<Glob>,
}

/// Where engines are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sockets {
    /// `DOCKER_HOST`, docker contexts and the usual places; those of this machine only.
    Auto,
    /// Nowhere.
    Off,
    /// At these sockets, absolute paths.
    These(Vec<String>),
}

/// Who reads a container's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinReader {
    /// We ourselves, as far as the kernel lets us: root everything, others their own.
    Auto,
    /// A helper container, where the kernel does not let us.
    Helper,
    /// Nobody.
    Off,
}

impl Default for Docker {
    fn default() -> Docker {
        Docker { sockets: Sockets::Auto, stdin: StdinReader::Auto, watchers: Vec::new() }
    }
}

/// A policy for containers, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// Its name; a policy for process trees may have the same one, and then `[builtin]` and `--policy` mean both.
    pub name: String,
    /// Where it was written.
    pub origin: Origin,
    /// One sentence for lists.
    pub about: String,
    /// What it may do.
    pub mode: Mode,
    /// Which containers it looks at: any of these.
    pub matches: Vec<ContainerMatch>,
    /// Names for templates.
    pub captures: BTreeMap<String, ContainerCapture>,
    /// Any line is enough; all of a line must hold.
    pub reap_when: Vec<Line>,
    /// Any line is enough, and so is "cannot tell".
    pub spare_when: Vec<Line>,
    /// Whether each line must hold a proof.
    pub proof: ProofNeed,
    /// How long a container has between being asked to end and being killed; whole seconds.
    pub grace: Duration,
    /// What happens to its anonymous volumes.
    pub volumes: Fate,
    /// What happens to the networks that it alone used.
    pub networks: Fate,
    /// What `socket-unresponsive` asks.
    pub ping: Option<PublishedPing>,
}

/// One form a container may have. All that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerMatch {
    /// The image as the list writes it: any of these globs; empty for any image.
    pub images: Vec<Glob>,
    /// One of its names: any of these globs; empty for any name.
    pub names: Vec<Glob>,
    /// Labels that it must have, each with a glob for its value; nothing for any value.
    pub labels: BTreeMap<String, Option<Glob>>,
    /// How its standard input must be set up.
    pub stdin: StdinMatch,
    /// Whether a lease of ours must be among its labels.
    pub lease: LeaseLabel,
}

/// How a container's standard input must be set up to be matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StdinMatch {
    /// However.
    #[default]
    Any,
    /// As `docker run -i` does without `-t` and `-d`: one client was connected from the start, and its input ends for good
    /// with it.
    Attached,
}

/// Whether commands that were left behind inside containers are told of; there is nothing else that may be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecReport {
    /// One sentence for lists.
    pub about: String,
    /// Whether it is on.
    pub telling: Telling,
}

impl ExecReport {
    /// Its name, in `[builtin]` and in lists.
    pub const NAME: &'static str = "docker-exec";
}

/// Whether something that is only ever told is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// It is.
    Report,
    /// It is not looked for.
    Off,
}

/// Whether a lease of ours must be among the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaseLabel {
    /// Not needed.
    #[default]
    Any,
    /// `lease = "any"`: `dev.reapd.lease` is there.
    Given,
}

/// Where a captured value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerCapture {
    /// A label.
    Label {
        /// Its key.
        label: String,
        /// Taken from the front of the value; a value without it is not captured.
        strip: Option<String>,
    },
    /// The host's side of a bind mount, by its path inside the container.
    Bind {
        /// The path inside.
        bind: String,
    },
    /// A variable of the environment that it was made with.
    Env {
        /// The variable.
        name: String,
        /// Taken from the front of the value.
        strip: Option<String>,
    },
}
