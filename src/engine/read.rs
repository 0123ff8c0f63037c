//! Answers of an engine made into nouns. What every engine writes and this one does not is malformed, never a default.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum,
    ExecInspectResponse, HealthStatusEnum, HostConfig, ImageInspect, MountPoint, PortMap,
    RestartPolicyNameEnum, SystemVersion,
};
use bstr::BString;
use hyper::HeaderMap;

use super::fault::Fault;
use super::wire::Version;
use crate::model::container::{
    Attached, AutoRemoval, ContainerFacts, ContainerId, ContainerMount, ContainerRef, ContainerRun,
    ContainerState, ContainerStdin, EngineId, EngineKind, Health, Listed, MountAccess, MountKind, Published,
    RestartPolicy, Tty,
};
use crate::model::id::Pid;
use crate::model::known::{Known, Reason, Unknown};

/// What an engine says of a container, and the number that it gives for its first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The facts; `init` and `began` are still to be found, since only the kernel knows whose number it is.
    pub facts: ContainerFacts,
    /// `State.Pid`, as the engine's own pid namespace has it; nothing where none runs.
    pub pid: Option<Pid>,
}

/// What an engine says of a command that was started inside a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecInspected {
    /// In which container.
    pub container: ContainerId,
    /// Its number, as the engine's own pid namespace has it; nothing where it does not run.
    pub pid: Option<Pid>,
    /// Whether it runs.
    pub state: ExecState,
    /// Its program and arguments.
    pub argv: Vec<BString>,
    /// Whether it has a standard input.
    pub stdin: Attached,
    /// Whether it has a terminal.
    pub tty: Tty,
}

/// Whether a command inside a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecState {
    /// It does.
    Runs,
    /// It has ended, or was never started so far.
    Rests,
}

/// Returns what answers by what it says of its version.
pub(super) fn kind(said: SystemVersion) -> Result<EngineKind, Fault> {
    let version = required(said.version, "Version")?;
    let components = said.components.unwrap_or_default();
    if components.iter().any(|part| part.name == "Podman Engine") {
        Ok(EngineKind::Podman(version))
    } else if components.iter().any(|part| part.name == "Engine") {
        Ok(EngineKind::Docker(version))
    } else {
        Err(Fault::malformed("what answers is neither Docker nor Podman"))
    }
}

/// Returns the version of Podman and of its interface, where the headers of an answer say so.
pub(super) fn podman(headers: &HeaderMap) -> Option<(String, Version)> {
    let server = headers.get("server")?.to_str().ok()?.strip_prefix("Libpod/")?;
    let theirs = Version::read(headers.get("api-version")?.to_str().ok()?)?;
    Some((server.split(' ').next().unwrap_or_default().to_owned(), theirs))
}

/// Returns one row of the list.
pub(super) fn listed(row: ContainerSummary) -> Result<Listed, Fault> {
    let state = match required(row.state, "State")? {
        ContainerSummaryStateEnum::RUNNING => ContainerState::Running,
        ContainerSummaryStateEnum::PAUSED => ContainerState::Paused,
        ContainerSummaryStateEnum::RESTARTING => ContainerState::Restarting,
        ContainerSummaryStateEnum::REMOVING => ContainerState::Removing,
        ContainerSummaryStateEnum::CREATED => ContainerState::Created,
        ContainerSummaryStateEnum::EXITED => ContainerState::Exited,
        ContainerSummaryStateEnum::DEAD => ContainerState::Dead,
        other @ (ContainerSummaryStateEnum::EMPTY | ContainerSummaryStateEnum::STOPPING) => {
            ContainerState::Other(other.to_string())
        }
    };
    Ok(Listed {
        id: id(row.id)?,
        names: row.names.unwrap_or_default().iter().map(|name| bare(name)).collect(),
        image: required(row.image, "Image")?,
        image_id: required(row.image_id, "ImageID")?,
        state,
        created: required(row.created, "Created")?,
        labels: row.labels.unwrap_or_default().into_iter().collect(),
    })
}

/// Returns the facts of one container.
pub(super) fn inspected(
    said: ContainerInspectResponse,
    asked: &ContainerId,
    engine: &EngineId,
    kind: &EngineKind,
    env: &BTreeSet<BString>,
) -> Result<Inspected, Fault> {
    same(said.id, asked)?;
    let state = required(said.state, "State")?;
    let config = required(said.config, "Config")?;
    let host = required(said.host_config, "HostConfig")?;
    let (stdin, foreground) = attached(kind, (config.attach_stdin, config.open_stdin, config.stdin_once), {
        (config.attach_stdout, config.attach_stderr)
    })?;
    let started = required(state.started_at, "State.StartedAt")?;
    if started.is_empty() {
        return Err(Fault::malformed("the engine does not say when a container was started"));
    }
    let mut argv = vec![BString::from(required(said.path, "Path")?)];
    argv.extend(said.args.unwrap_or_default().into_iter().map(BString::from));
    let ports = said.network_settings.and_then(|settings| settings.ports);
    let facts = ContainerFacts {
        run: ContainerRun { at: ContainerRef { engine: engine.clone(), id: asked.clone() }, started },
        name: bare(&required(said.name, "Name")?),
        image: required(config.image, "Config.Image")?,
        image_id: required(said.image, "Image")?,
        argv,
        command: config.cmd.unwrap_or_default().into_iter().map(BString::from).collect(),
        state: status(required(state.status, "State.Status")?),
        init: Err(not_asked("its first process")),
        began: Err(not_asked("when it began")),
        stdin,
        foreground,
        tty: tty(required(config.tty, "Config.Tty")?),
        removal: if required(host.auto_remove, "HostConfig.AutoRemove")? {
            AutoRemoval::Yes
        } else {
            AutoRemoval::No
        },
        restart: restart(&host)?,
        health: health(state.health)?,
        published: published(ports.unwrap_or_default(), host.port_bindings.unwrap_or_default()),
        network: required(host.network_mode, "HostConfig.NetworkMode")?,
        mounts: mounts(said.mounts.unwrap_or_default())?,
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        env: environment(&config.env.unwrap_or_default(), env),
        execs: said.exec_ids.unwrap_or_default(),
    };
    Ok(Inspected { facts, pid: number(required(state.pid, "State.Pid")?)? })
}

/// How its streams were set up. Podman answers no, whatever was asked for, so that its no means nothing.
type Streams = (ContainerStdin, Known<Attached>);

fn attached(
    kind: &EngineKind,
    (attach, open, once): (Option<bool>, Option<bool>, Option<bool>),
    (out, err): (Option<bool>, Option<bool>),
) -> Result<Streams, Fault> {
    let open = yes(required(open, "Config.OpenStdin")?);
    match kind {
        EngineKind::Docker(_) => {
            let once = yes(required(once, "Config.StdinOnce")?);
            let attached = yes(required(attach, "Config.AttachStdin")?);
            let out = required(out, "Config.AttachStdout")?;
            let err = required(err, "Config.AttachStderr")?;
            Ok((ContainerStdin { open, once, attached }, Ok(yes(out || err))))
        }
        EngineKind::Podman(_) => {
            let stdin = ContainerStdin { open, once: Attached::No, attached: Attached::No };
            let why = "whether its output was attached to, which Podman does not say";
            Ok((stdin, Err(Unknown::new(Reason::Unsupported, why))))
        }
    }
}

fn status(said: ContainerStateStatusEnum) -> ContainerState {
    match said {
        ContainerStateStatusEnum::RUNNING => ContainerState::Running,
        ContainerStateStatusEnum::PAUSED => ContainerState::Paused,
        ContainerStateStatusEnum::RESTARTING => ContainerState::Restarting,
        ContainerStateStatusEnum::REMOVING => ContainerState::Removing,
        ContainerStateStatusEnum::CREATED => ContainerState::Created,
        ContainerStateStatusEnum::EXITED => ContainerState::Exited,
        ContainerStateStatusEnum::DEAD => ContainerState::Dead,
        other @ (ContainerStateStatusEnum::EMPTY | ContainerStateStatusEnum::STOPPING) => {
            ContainerState::Other(other.to_string())
        }
    }
}

fn restart(host: &HostConfig) -> Result<RestartPolicy, Fault> {
    let policy = host.restart_policy.as_ref();
    let policy = policy.ok_or_else(|| missing("HostConfig.RestartPolicy"))?;
    Ok(match policy.name.unwrap_or(RestartPolicyNameEnum::EMPTY) {
        RestartPolicyNameEnum::EMPTY | RestartPolicyNameEnum::NO => RestartPolicy::No,
        kept @ (RestartPolicyNameEnum::ALWAYS
        | RestartPolicyNameEnum::UNLESS_STOPPED
        | RestartPolicyNameEnum::ON_FAILURE) => RestartPolicy::Kept(kept.to_string()),
    })
}

fn health(said: Option<bollard::models::Health>) -> Result<Option<Health>, Fault> {
    let Some(said) = said else { return Ok(None) };
    Ok(match said.status {
        None | Some(HealthStatusEnum::EMPTY | HealthStatusEnum::NONE) => None,
        Some(HealthStatusEnum::STARTING) => Some(Health::Starting),
        Some(HealthStatusEnum::HEALTHY) => Some(Health::Healthy),
        Some(HealthStatusEnum::UNHEALTHY) => {
            let failing = required(said.failing_streak, "State.Health.FailingStreak")?;
            let failing =
                u64::try_from(failing).map_err(|_| Fault::malformed("a negative count of failures"))?;
            Some(Health::Unhealthy { failing })
        }
    })
}

/// Returns the ports that lead into a container: those that are bound, and those that were asked for and of which the
/// engine does not say that they are.
fn published(bound: PortMap, asked: PortMap) -> Vec<Published> {
    let mut ports = Vec::new();
    let bound: BTreeMap<String, _> = bound.into_iter().collect();
    let asked: BTreeMap<String, _> = asked.into_iter().collect();
    for (inside, bindings) in bound {
        add(&mut ports, &inside, bindings);
    }
    for (inside, bindings) in asked {
        if !ports.iter().any(|port| port.inside == inside) {
            add(&mut ports, &inside, bindings);
        }
    }
    ports
}

/// Adds what is bound to one port. One that the engine chooses itself is 0 for as long as it does not say which.
fn add(ports: &mut Vec<Published>, inside: &str, bindings: Option<Vec<bollard::models::PortBinding>>) {
    for binding in bindings.unwrap_or_default() {
        let port = binding.host_port.as_deref().and_then(|port| port.parse().ok()).unwrap_or(0);
        let address = binding.host_ip.unwrap_or_default();
        ports.push(Published { address, port, inside: inside.to_owned() });
    }
}

/// Returns what is mounted inside; a kind without a word is another kind, since it may be anything.
fn mounts(said: Vec<MountPoint>) -> Result<Vec<ContainerMount>, Fault> {
    let mount = |mount: MountPoint| {
        let name = mount.name.unwrap_or_default();
        let source = mount.source.unwrap_or_default();
        let (kind, source) = match mount.typ.as_deref() {
            Some("bind") => (MountKind::Bind, source),
            Some("volume") if is_anonymous(&name) => (MountKind::AnonymousVolume, name),
            Some("volume") => (MountKind::Volume, name),
            Some("tmpfs") => (MountKind::Memory, source),
            other => (MountKind::Other(other.unwrap_or_default().to_owned()), source),
        };
        let access =
            if required(mount.rw, "Mounts.RW")? { MountAccess::Writable } else { MountAccess::ReadOnly };
        let inside = required(mount.destination, "Mounts.Destination")?.into();
        Ok(ContainerMount { kind, source: source.into(), inside, access })
    };
    said.into_iter().map(mount).collect()
}

fn is_anonymous(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn environment(said: &[String], wanted: &BTreeSet<BString>) -> BTreeMap<BString, BString> {
    let pairs = said.iter().filter_map(|line| line.split_once('='));
    let wanted = pairs.filter(|(name, _)| wanted.contains(&BString::from(*name)));
    wanted.map(|(name, value)| (name.into(), value.into())).collect()
}

/// Returns the labels of an image, which bears these digits as its id.
pub(super) fn image_labels(said: ImageInspect, digits: &str) -> Result<BTreeMap<String, String>, Fault> {
    let id = required(said.id, "Id")?;
    if id.strip_prefix("sha256:").unwrap_or(&id) != digits {
        return Err(Fault::malformed("the engine answers for another image"));
    }
    let config = required(said.config, "Config")?;
    Ok(config.labels.unwrap_or_default().into_iter().collect())
}

/// Returns the facts of a command in a container.
pub(super) fn exec(said: ExecInspectResponse, asked: &str) -> Result<ExecInspected, Fault> {
    if said.id.as_deref() != Some(asked) {
        return Err(Fault::malformed("the engine answers for another command"));
    }
    let command = required(said.process_config, "ProcessConfig")?;
    let mut argv = vec![BString::from(required(command.entrypoint, "ProcessConfig.entrypoint")?)];
    argv.extend(command.arguments.unwrap_or_default().into_iter().map(BString::from));
    let state = if required(said.running, "Running")? { ExecState::Runs } else { ExecState::Rests };
    Ok(ExecInspected {
        container: id(said.container_id)?,
        pid: number(said.pid.unwrap_or(0))?.filter(|_| state == ExecState::Runs),
        state,
        argv,
        stdin: yes(required(said.open_stdin, "OpenStdin")?),
        tty: tty(required(command.tty, "ProcessConfig.tty")?),
    })
}

pub(super) fn same(said: Option<String>, asked: &ContainerId) -> Result<(), Fault> {
    if &id(said)? == asked {
        Ok(())
    } else {
        Err(Fault::malformed("the engine answers for another container"))
    }
}

pub(super) fn id(said: Option<String>) -> Result<ContainerId, Fault> {
    let said = required(said, "Id")?;
    ContainerId::new(&said).ok_or_else(|| Fault::malformed("the engine gives an id that is not whole"))
}

/// Returns a number of a process; 0 is none.
fn number(said: i64) -> Result<Option<Pid>, Fault> {
    if said == 0 {
        return Ok(None);
    }
    let pid = i32::try_from(said).ok().and_then(Pid::new);
    pid.map(Some).ok_or_else(|| Fault::malformed("no number of a process"))
}

fn bare(name: &str) -> String {
    name.strip_prefix('/').unwrap_or(name).to_owned()
}

fn yes(said: bool) -> Attached {
    if said { Attached::Yes } else { Attached::No }
}

fn tty(said: bool) -> Tty {
    if said { Tty::Yes } else { Tty::No }
}

pub(super) fn required<T>(said: Option<T>, field: &str) -> Result<T, Fault> {
    said.ok_or_else(|| missing(field))
}

fn missing(field: &str) -> Fault {
    Fault::Malformed(format!("the engine leaves out {field}"))
}

fn not_asked(what: &str) -> Unknown {
    Unknown::new(Reason::NotAsked, what)
}
