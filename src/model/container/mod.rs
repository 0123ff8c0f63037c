//! Containers: who is who, what an engine says of one, and who is connected to the engine.
//!
//! Facts are from the Docker Engine API (1.41 and later) and Podman's compatible one. What such an answer says is
//! checked when it is read; nothing in here was filtered by the engine alone.

pub mod judgement;
pub mod leftover;
#[cfg(test)]
pub mod sample;
pub mod stop;

use std::collections::BTreeMap;
use std::fmt;

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::id::ProcessId;
use super::known::Known;
use super::moment::Moment;
use super::question::Census;

/// An engine: the real path of the socket that it answers at, links resolved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineId(pub String);

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A container's full id: 64 hexadecimal digits. An engine gives it to no other container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

impl ContainerId {
    /// Returns the text as a full id, or nothing where it is none: a prefix or a name may come to mean another.
    pub fn new(text: &str) -> Option<ContainerId> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(digit)).then(|| ContainerId(text.to_owned()))
    }

    /// Returns the id in a file that an engine's client wrote (`--cidfile`): it may end with a line feed, and is empty
    /// until the container is made.
    pub fn written(text: &str) -> Option<ContainerId> {
        ContainerId::new(text.trim())
    }

    /// Returns the whole id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first twelve digits, as engines show it to people.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl TryFrom<String> for ContainerId {
    type Error = String;

    fn try_from(text: String) -> Result<ContainerId, String> {
        ContainerId::new(&text).ok_or_else(|| "not a full container id".to_owned())
    }
}

impl From<ContainerId> for String {
    fn from(id: ContainerId) -> String {
        id.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

/// Names one container on one engine, whatever run of it: a key for tables and questions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerRef {
    /// Its engine.
    pub engine: EngineId,
    /// Its full id.
    pub id: ContainerId,
}

impl fmt::Display for ContainerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// Names one run of a container: what must still be so before it is stopped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerRun {
    /// Which container.
    pub at: ContainerRef,
    /// `State.StartedAt` as the engine wrote it. A container that was started anew is used by somebody.
    pub started: String,
}

/// An engine that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// Which.
    pub id: EngineId,
    /// Where it was heard of: `DOCKER_HOST`, a docker context by name, a usual place, or the configuration.
    pub from: String,
    /// What it is.
    pub kind: Known<EngineKind>,
    /// Every container that is not stopped, sorted by id; unknown where the engine did not answer whole and in time.
    pub containers: Known<Vec<Listed>>,
}

/// Kinds of engine that differ in what they tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Docker, with its version.
    Docker(String),
    /// Podman's compatible service, with its version. It never says how a container was attached to.
    Podman(String),
}

/// One container as the list shows it: cheap, and it narrows the search only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its full id.
    pub id: ContainerId,
    /// Its names, without the leading slash.
    pub names: Vec<String>,
    /// The image as the list writes it: a tag, or an id where the tag moved on.
    pub image: String,
    /// The image's id.
    pub image_id: String,
    /// What it is doing.
    pub state: ContainerState,
    /// When it was made, seconds of the engine's wall clock since the epoch.
    pub created: i64,
    /// Its labels, those of its image among them.
    pub labels: BTreeMap<String, String>,
}

/// What a container is doing (`State.Status`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerState {
    /// It runs.
    Running,
    /// Somebody paused it and means to go on.
    Paused,
    /// It ended and is being started anew.
    Restarting,
    /// It is being removed.
    Removing,
    /// It was made and never started.
    Created,
    /// It ended.
    Exited,
    /// The engine failed to remove it.
    Dead,
    /// A word we do not know.
    Other(String),
}

/// What an engine says of one container when asked for it alone (`inspect`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// Which run.
    pub run: ContainerRun,
    /// Its first name, without the leading slash.
    pub name: String,
    /// The image as it was asked for.
    pub image: String,
    /// The image's id.
    pub image_id: String,
    /// What it was asked to run: the program and its arguments, entry point included.
    pub argv: Vec<BString>,
    /// The arguments behind the image alone (`Config.Cmd`), which the command line of its maker shows.
    pub command: Vec<BString>,
    /// What it is doing.
    pub state: ContainerState,
    /// Its first process, where that is one of ours: `State.Pid`, whose cgroup bears the container's id. The number of
    /// an engine in a virtual machine means another process here, or none.
    pub init: Known<ProcessId>,
    /// When it began, on our boot clock: that of its first process. Unknown where that is not ours.
    pub began: Known<Moment>,
    /// How its standard input was set up when it was made.
    pub stdin: ContainerStdin,
    /// Whether its output was attached to when it was made; an engine that never says is unknown.
    pub foreground: Known<Attached>,
    /// Whether it has a terminal.
    pub tty: Tty,
    /// Whether the engine removes it once it ends.
    pub removal: AutoRemoval,
    /// Whether the engine starts it anew.
    pub restart: RestartPolicy,
    /// What its health check says, where it has one.
    pub health: Option<Health>,
    /// Ports of the host that lead into it.
    pub published: Vec<Published>,
    /// Whose network it uses: `HostConfig.NetworkMode`.
    pub network: String,
    /// Directories and volumes of the host inside of it.
    pub mounts: Vec<ContainerMount>,
    /// Its labels, those of its image among them.
    pub labels: BTreeMap<String, String>,
    /// Its environment.
    pub env: BTreeMap<BString, BString>,
    /// Commands that were started in it later and run still, by their ids.
    pub execs: Vec<String>,
}

/// Something of the host, or of the engine, inside a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerMount {
    /// What it is.
    pub kind: MountKind,
    /// The directory of the host, or the volume's name.
    pub source: BString,
    /// Where it is inside the container.
    pub inside: BString,
    /// Whether the container may write to it.
    pub access: MountAccess,
}

/// Kinds of mount that differ in what is left of them once the container is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountKind {
    /// A directory or file of the host.
    Bind,
    /// A volume with a name that somebody gave it: it stays.
    Volume,
    /// A volume that was made for this container alone; the engine names it by 64 hexadecimal digits.
    AnonymousVolume,
    /// Memory: it goes with the container.
    Memory,
    /// Anything else, as the engine calls it.
    Other(String),
}

/// Whether a container may write to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountAccess {
    /// It may.
    Writable,
    /// It may only read.
    ReadOnly,
}

/// How a container's standard input was set up. Fixed when it is made: nothing of it changes when a client goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStdin {
    /// `OpenStdin`: it has one (`-i`).
    pub open: Attached,
    /// `StdinOnce`: it is closed for good when its first client goes. An engine that never says is no.
    pub once: Attached,
    /// `AttachStdin`: somebody was connected to it from the start.
    pub attached: Attached,
}

/// Whether something was set when the container was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attached {
    /// It was.
    Yes,
    /// It was not, or the engine never says.
    No,
}

/// Whether a container has a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tty {
    /// `-t`: the engine keeps its input open for good.
    Yes,
    /// None.
    No,
}

/// Whether an engine removes a container once it ends (`--rm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AutoRemoval {
    /// It does.
    Yes,
    /// It stays until somebody removes it.
    No,
}

/// Whether an engine starts a container anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Never.
    No,
    /// By this policy: stopping it is a fight, and whoever made it means it to run.
    Kept(String),
}

/// What a health check says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// The first checks are still to come.
    Starting,
    /// All is well.
    Healthy,
    /// It failed as often as was asked, in a row.
    Unhealthy {
        /// How often in a row.
        failing: u64,
    },
}

/// A port of the host that leads into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The host's address, as the engine writes it.
    pub address: String,
    /// The host's port.
    pub port: u16,
    /// The container's port and protocol: `5432/tcp`.
    pub inside: String,
}

/// Who is connected to an engine's socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineClients {
    /// Whoever was found to hold the far end of an accepted connection, sorted by process.
    pub clients: Vec<EngineClient>,
    /// Whether every accepted connection with a living far end was traced to somebody. Counts connections.
    pub census: Census,
    /// Whether the engine can be reached from here alone.
    pub reach: Known<Reach>,
}

/// One process that is connected to an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineClient {
    /// Who.
    pub id: ProcessId,
    /// When it began, on the boot clock.
    pub began: Moment,
    /// Its argument vector.
    pub argv: Known<Vec<BString>>,
    /// The working directory, for paths in its arguments; unknown is common.
    pub cwd: Known<BString>,
    /// What stands in the file that its `--cidfile` names, where it names one.
    pub cidfile: Option<Known<ContainerId>>,
}

/// From where an engine can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Only through Unix sockets of this machine, all of which were looked at.
    Local,
    /// Over the network as well; the text is where.
    Network(String),
}

/// Who uses a container through its own network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ContainerSockets {
    /// Where it can be reached inside its network namespace: `tcp 0.0.0.0:5432`, `unix /run/x`.
    pub listeners: Vec<String>,
    /// Connections that stand, with both ends as the kernel writes them.
    pub connections: Vec<String>,
}

/// A command that was started inside a container (`docker exec`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecFacts {
    /// Its first process, where that is one of ours.
    pub init: Known<ProcessId>,
    /// Its arguments.
    pub argv: Vec<BString>,
    /// Whether standard input was attached, without a terminal.
    pub stdin: Attached,
    /// Whether it has a terminal.
    pub tty: Tty,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_id_names_a_container() {
        let whole = "0123456789abcdef".repeat(4);
        assert_eq!(ContainerId::new(&whole).unwrap().short(), "0123456789ab");
        for text in
            ["", "0123456789ab", &whole[1..], &format!("{whole}0"), &whole.to_uppercase(), &"g".repeat(64)]
        {
            assert_eq!(ContainerId::new(text), None, "{text}");
        }
    }
}
