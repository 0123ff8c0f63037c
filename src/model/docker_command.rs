//! What a command line of docker or podman says: which of its words is the verb, what it makes, what it is about.
//!
//! Pure, and read in two ways. `reapd run` puts marks behind the word `run`. Judge asks which container a live client
//! could belong to, and there whatever is not understood may be anything. Flags are those of docker 28 and podman 5
//! (docker-run(1), podman-run(1)); an option behind the image is the container's own.

use std::collections::BTreeMap;

use bstr::{BStr, BString, ByteSlice as _};

/// What a client of an engine was started for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DockerCommand {
    /// `run`: it makes one container, and stays with it unless it is told to detach.
    Run(Box<RunOptions>),
    /// `attach`, or `start` with `-a` or `-i`: it stays with containers that one of these words names each.
    Attached(Vec<BString>),
    /// Any other verb about containers that its words name: `exec`, `logs`, `wait`, `stop` and the like.
    About(Vec<BString>),
    /// `compose`: it may stay with a container of a compose project, and with no other.
    Compose,
    /// A verb that never stays with a container: `ps`, `events`, `build`, `pull` and the like.
    Elsewhere,
    /// Not understood, no client of that name, or one that passes on what others say (`system dial-stdio`).
    Anything,
}

/// What `run` was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// Whether it stays with its container.
    pub stays: Stays,
    /// `-i`.
    pub interactive: Switch,
    /// `-t`.
    pub tty: Switch,
    /// `--rm`.
    pub remove: Switch,
    /// `--name`.
    pub name: Option<BString>,
    /// `--cidfile`.
    pub cidfile: Option<BString>,
    /// `--label`, the last of each key; a label without a value has an empty one.
    pub labels: BTreeMap<BString, BString>,
    /// What was asked for that is not told here: options of a later version, or such as change what the others mean.
    pub unclear: Option<BString>,
    /// The image as it was written.
    pub image: BString,
    /// What stands behind the image.
    pub arguments: Vec<BString>,
}

/// Whether a client stays with its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// It does.
    Attached,
    /// `-d`: it leaves at once.
    Detached,
}

/// Whether a flag is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Global flags of docker and podman that take a value (`docker --help`, `podman --help`).
const GLOBAL: [&str; 25] = [
    "--config",
    "--context",
    "--host",
    "--log-level",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "-c",
    "-H",
    "-l",
    "--cgroup-manager",
    "--conmon",
    "--connection",
    "--events-backend",
    "--hooks-dir",
    "--identity",
    "--imagestore",
    "--module",
    "--network-cmd-path",
    "--network-config-dir",
    "--out",
    "--root",
    "--runroot",
    "--runtime",
    "--url",
];
/// And those that take none.
const GLOBAL_BARE: [&str; 6] = ["--debug", "-D", "--tls", "--tlsverify", "--remote", "-r"];

/// Options of `docker run` and `podman run` without a value. All others take one.
const BARE: [&str; 19] = [
    "--detach",
    "--disable-content-trust",
    "--help",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
    "--use-api-socket",
    "--replace",
    "--rmi",
    "--env-host",
    "--http-proxy",
];
/// Options of one letter without a value.
const BARE_LETTERS: &str = "ditPq";
/// Options of one letter with one.
const LETTERS: &str = "acehlmpuvw";
/// Options of `docker run` with a value that change nothing of what is read here.
const VALUED: &str = " add-host annotation blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns \
    cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems \
    detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops dns \
    dns-opt dns-option dns-search domainname entrypoint env env-file expose gpus group-add health-cmd \
    health-interval health-retries health-start-interval health-start-period health-timeout hostname \
    io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory link link-local-ip log-driver log-opt mac-address \
    memory memory-reservation memory-swap memory-swappiness mount net net-alias network network-alias oom-score-adj \
    pid pids-limit platform publish pull restart runtime security-opt shm-size stop-signal stop-timeout storage-opt \
    sysctl tmpfs ulimit user userns uts volume volume-driver volumes-from workdir ";

/// Verbs about containers that their words name, all but `run`, `attach` and `start`.
const ABOUT: [&str; 19] = [
    "commit", "cp", "diff", "exec", "export", "inspect", "kill", "logs", "pause", "port", "rename",
    "restart", "rm", "stats", "stop", "top", "unpause", "update", "wait",
];

/// Verbs that never stay with a container. `create` makes one and leaves; the classic `build` runs its steps unattached.
const ELSEWHERE: [&str; 33] = [
    "build", "builder", "buildx", "config", "context", "create", "events", "history", "image", "images",
    "import", "info", "list", "load", "login", "logout", "ls", "manifest", "network", "node", "plugin",
    "prune", "ps", "pull", "push", "rmi", "save", "search", "secret", "service", "tag", "version", "volume",
];

/// What `docker system` can be told that passes nothing on.
const SYSTEM: [&str; 4] = ["df", "events", "info", "prune"];

impl DockerCommand {
    /// Returns what an argument vector says.
    pub fn of(argv: &[BString]) -> DockerCommand {
        match argv.first().map(|first| file_name(first.as_bstr())) {
            Some(name) if name == "docker" || name == "com.docker.cli" => {}
            // The plug-in is started by docker with its own verb as the first word; alone it is the same program.
            Some(name) if name == "docker-compose" => return DockerCommand::Compose,
            Some(name) if name == "docker-buildx" => return DockerCommand::Elsewhere,
            // Podman's own client speaks no language that an engine of Docker knows.
            Some(_) | None => return DockerCommand::Anything,
        }
        let Some(mut at) = verb_at(argv) else { return DockerCommand::Anything };
        if argv[at] == "container" {
            at += 1;
        }
        let Some(verb) = argv.get(at).and_then(|verb| verb.to_str().ok()) else {
            return DockerCommand::Anything;
        };
        let rest = &argv[at + 1..];
        match verb {
            "run" => match RunOptions::read(rest) {
                Some(options) => DockerCommand::Run(Box::new(options)),
                None => DockerCommand::Anything,
            },
            "attach" => DockerCommand::Attached(references(rest)),
            "start" => match started(rest) {
                Some(Stays::Attached) => DockerCommand::Attached(references(rest)),
                Some(Stays::Detached) => DockerCommand::About(references(rest)),
                None => DockerCommand::Anything,
            },
            "compose" => DockerCommand::Compose,
            "system" => match rest.first().and_then(|word| word.to_str().ok()) {
                Some(word) if SYSTEM.contains(&word) => DockerCommand::Elsewhere,
                Some(_) | None => DockerCommand::Anything,
            },
            verb if ABOUT.contains(&verb) => DockerCommand::About(references(rest)),
            verb if ELSEWHERE.contains(&verb) => DockerCommand::Elsewhere,
            _ => DockerCommand::Anything,
        }
    }
}

/// Returns where the word `run` of an engine's client stands: docker's or podman's.
pub fn run_at(argv: &[BString]) -> Option<usize> {
    let name = file_name(argv.first()?.as_bstr());
    if name != "docker" && name != "podman" {
        return None;
    }
    let mut at = verb_at(argv)?;
    if argv[at] == "container" {
        at += 1;
    }
    (argv.get(at)? == "run").then_some(at)
}

/// Returns the variables that name the engine which a command of docker's names itself; none where it names none.
pub fn engine_named(argv: &[BString]) -> Vec<(&'static str, BString)> {
    let is_docker = argv.first().is_some_and(|first| file_name(first.as_bstr()) == "docker");
    let Some(end) = run_at(argv).filter(|_| is_docker) else { return Vec::new() };
    let variable = |name: &str| match name {
        "--host" | "-H" => Some("DOCKER_HOST"),
        "--context" | "-c" => Some("DOCKER_CONTEXT"),
        _ => None,
    };
    let mut found = Vec::new();
    let mut words = argv[1..end].iter();
    while let Some(word) = words.next().and_then(|word| word.to_str().ok()) {
        match word.split_once('=') {
            Some((name, value)) => found.extend(variable(name).map(|name| (name, value.into()))),
            None if GLOBAL.contains(&word) => {
                let Some(value) = words.next() else { break };
                found.extend(variable(word).map(|name| (name, value.clone())));
            }
            None => {}
        }
    }
    found
}

fn file_name(path: &BStr) -> &BStr {
    path.rsplit_str("/").next().unwrap_or_default().as_bstr()
}

/// Returns where the first word stands that is no global flag.
fn verb_at(argv: &[BString]) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = argv.get(at)?.to_str().ok()?;
        if !word.starts_with('-') {
            return Some(at);
        }
        at += match word.split_once('=') {
            Some((name, _)) if GLOBAL.contains(&name) || GLOBAL_BARE.contains(&name) => 1,
            None if GLOBAL_BARE.contains(&word) => 1,
            None if GLOBAL.contains(&word) => 2,
            Some(_) | None => return None,
        };
    }
}

/// Returns every word that may name a container: the values of options are among them, which only ever keeps more.
fn references(words: &[BString]) -> Vec<BString> {
    words.iter().filter(|word| !word.starts_with(b"-")).cloned().collect()
}

/// Says whether `start` stays with what it starts.
fn started(words: &[BString]) -> Option<Stays> {
    let mut stays = Stays::Detached;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.to_str().ok()?;
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            match (name, value) {
                ("attach" | "interactive", value) => {
                    if switch(value.map(str::as_bytes))? == Switch::On {
                        stays = Stays::Attached;
                    }
                }
                ("detach-keys" | "checkpoint" | "checkpoint-dir", None) => {
                    words.next();
                }
                ("detach-keys" | "checkpoint" | "checkpoint-dir", Some(_)) => {}
                _ => return None,
            }
        } else if let Some(letters) = word.strip_prefix('-') {
            if letters.is_empty() || letters.chars().any(|letter| letter != 'a' && letter != 'i') {
                return None;
            }
            stays = Stays::Attached;
        }
    }
    Some(stays)
}

impl RunOptions {
    /// Reads the words behind `run`. Nothing where one of them is not understood, or there is no image.
    pub fn read(words: &[BString]) -> Option<RunOptions> {
        let mut options = RunOptions {
            stays: Stays::Attached,
            interactive: Switch::Off,
            tty: Switch::Off,
            remove: Switch::Off,
            name: None,
            cidfile: None,
            labels: BTreeMap::new(),
            unclear: None,
            image: BString::default(),
            arguments: Vec::new(),
        };
        let mut rest = words;
        loop {
            // An option without an image behind it is a fault that the client tells best.
            let (word, behind) = rest.split_first()?;
            if !word.starts_with(b"-") || word == "-" {
                return Some(options.ended(word, behind));
            }
            let Ok(text) = word.to_str() else {
                // Whatever is no text begins no option that we know.
                return None;
            };
            rest = behind;
            if text == "--" {
                let (image, behind) = rest.split_first()?;
                return Some(options.ended(image, behind));
            }
            if text.starts_with("--") {
                options.long(text, &mut rest)?;
            } else {
                options.short(&text[1..], &mut rest)?;
            }
        }
    }

    fn ended(self, image: &BString, arguments: &[BString]) -> RunOptions {
        RunOptions { image: image.clone(), arguments: arguments.to_vec(), ..self }
    }

    fn long(&mut self, text: &str, rest: &mut &[BString]) -> Option<()> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(BString::from(value))),
            None => (text, None),
        };
        if BARE.contains(&name) {
            return self.flag(name, value.as_ref().map(|value| value.as_slice()));
        }
        let value = match value {
            Some(value) => value,
            None => next(rest)?,
        };
        self.valued(name, value);
        Some(())
    }

    /// Reads letters that stand together, of which the last may have a value: `-itd`, `-p80:80`, `-p 80:80`.
    fn short(&mut self, letters: &str, rest: &mut &[BString]) -> Option<()> {
        for (at, letter) in letters.char_indices() {
            let behind = &letters[at + letter.len_utf8()..];
            if BARE_LETTERS.contains(letter) {
                let name = match letter {
                    'd' => "--detach",
                    'i' => "--interactive",
                    't' => "--tty",
                    _ => "--quiet",
                };
                match behind.strip_prefix('=') {
                    Some(value) => return self.flag(name, Some(value.as_bytes())),
                    None => self.flag(name, None)?,
                }
            } else if LETTERS.contains(letter) {
                let value = match behind {
                    "" => next(rest)?,
                    value => BString::from(value.strip_prefix('=').unwrap_or(value)),
                };
                self.valued(if letter == 'l' { "--label" } else { "--env" }, value);
                if letter == 'a' {
                    self.unclear = Some("-a".into());
                }
                return Some(());
            } else {
                return None;
            }
        }
        Some(())
    }

    fn flag(&mut self, name: &str, value: Option<&[u8]>) -> Option<()> {
        match (name, switch(value)) {
            ("--detach", Some(Switch::On)) => self.stays = Stays::Detached,
            ("--detach", Some(Switch::Off)) => self.stays = Stays::Attached,
            ("--detach", None) => return None,
            ("--interactive", Some(switch)) => self.interactive = switch,
            ("--tty", Some(switch)) => self.tty = switch,
            ("--rm", Some(switch)) => self.remove = switch,
            ("--interactive" | "--tty" | "--rm", None) => self.unclear = Some(name.into()),
            _ => {}
        }
        Some(())
    }

    fn valued(&mut self, name: &str, value: BString) {
        match name {
            "--cidfile" => self.cidfile = Some(value),
            "--name" => self.name = Some(value),
            "--label" => {
                let (key, value) = value.split_once_str("=").unwrap_or((value.as_slice(), b""));
                self.labels.insert(key.into(), value.into());
            }
            // A file that may be another one by now changes only what is not compared, but for these.
            "--label-file" => {}
            _ => {
                let known = name.strip_prefix("--").is_some_and(|name| VALUED.contains(&format!(" {name} ")));
                if !known {
                    self.unclear = Some(name.into());
                }
            }
        }
    }
}

/// Takes the value of an option off the front.
fn next(rest: &mut &[BString]) -> Option<BString> {
    let (value, behind) = rest.split_first()?;
    *rest = behind;
    Some(value.clone())
}

/// Returns what a flag's value says, as strconv.ParseBool of Go reads it; a flag without one is on.
fn switch(value: Option<&[u8]>) -> Option<Switch> {
    match value {
        None | Some(b"true" | b"1" | b"t" | b"T" | b"TRUE" | b"True") => Some(Switch::On),
        Some(b"false" | b"0" | b"f" | b"F" | b"FALSE" | b"False") => Some(Switch::Off),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<BString> {
        line.split_whitespace().map(BString::from).collect()
    }

    fn of(line: &str) -> DockerCommand {
        DockerCommand::of(&words(line))
    }

    fn run(line: &str) -> RunOptions {
        match of(line) {
            DockerCommand::Run(options) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_run_was_told() {
        let line = "/usr/bin/docker --context c container run -i --rm --name=n --label a=b -l c -l a=d \
            -e X=1 --cidfile /c -v /a:/b --network none mcp/x --flag -t";
        let options = run(line);
        assert_eq!(
            (options.stays, options.interactive, options.tty),
            (Stays::Attached, Switch::On, Switch::Off)
        );
        assert_eq!((options.remove, options.unclear.clone()), (Switch::On, None));
        assert_eq!((options.name, options.cidfile), (Some("n".into()), Some("/c".into())));
        let labels: Vec<_> = options.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["a=d", "c="]);
        assert_eq!((options.image, options.arguments), ("mcp/x".into(), words("--flag -t")));
        assert_eq!(run("docker run -itd img").stays, Stays::Detached);
        assert_eq!(run("docker run -itd img").tty, Switch::On);
        assert_eq!(run("docker run -d -d=false img").stays, Stays::Attached);
        assert_eq!(run("docker run --rm=false img").remove, Switch::Off);
        assert_eq!(run("docker run -i=0 -- img -i").arguments, words("-i"));
    }

    #[test]
    fn what_is_not_told_is_said_to_be_unclear() {
        for line in [
            "docker run --brand-new x img",
            "docker run -a stdin img",
            "docker run --attach stdin img",
            "docker run --interactive=perhaps img",
        ] {
            assert!(run(line).unclear.is_some(), "{line}");
        }
        for line in
            ["docker run", "docker run -z img", "docker run --detach=perhaps img", "docker run --name"]
        {
            assert_eq!(of(line), DockerCommand::Anything, "{line}");
        }
    }

    #[test]
    fn verbs_by_what_they_may_stay_with() {
        let attached = |line: &str| DockerCommand::Attached(words(line));
        let about = |line: &str| DockerCommand::About(words(line));
        for (line, command) in [
            ("docker attach --no-stdin web", attached("web")),
            ("docker start -ai a b", attached("a b")),
            ("docker start --attach a", attached("a")),
            ("docker start a", about("a")),
            ("docker start --attach=false a", about("a")),
            ("docker exec -it web sh", about("web sh")),
            ("docker logs -f abc123", about("abc123")),
            ("docker container wait web", about("web")),
            ("docker ps -a", DockerCommand::Elsewhere),
            ("docker container ls", DockerCommand::Elsewhere),
            ("docker buildx build .", DockerCommand::Elsewhere),
            ("docker system events", DockerCommand::Elsewhere),
            ("docker compose up", DockerCommand::Compose),
            ("/usr/libexec/docker/cli-plugins/docker-compose compose run x", DockerCommand::Compose),
        ] {
            assert_eq!(of(line), command, "{line}");
        }
    }

    #[test]
    fn whatever_is_not_understood_may_be_anything_f9() {
        for line in [
            "",
            "docker",
            "docker system dial-stdio",
            "docker --unknown run img",
            "docker mcp gateway run",
            "docker start -z a",
            "podman run -i img",
            "python3 runner.py",
            "sh -c docker",
            "docker-mcp gateway run",
        ] {
            assert_eq!(of(line), DockerCommand::Anything, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_words_are_too_odd(line in proptest::collection::vec("(docker|run|-i|--rm|--name|=|-|é|--|\\PC{0,4})", 0..8)) {
            let argv: Vec<BString> = line.into_iter().map(BString::from).collect();
            let _ = DockerCommand::of(&argv);
            let _ = run_at(&argv);
        }
    }
}
