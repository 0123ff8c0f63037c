//! What a command line of docker or podman says: which of its words is the verb, what it makes, what it is about.
//!
//! Pure, and read in two ways. `reapd run` puts marks behind the word `run`. Judge asks which container a live client
//! could belong to, and there whatever is not understood may be anything. Flags are those of docker 28 and podman 5
//! (docker-run(1), podman-run(1)); an option behind the image is the container's own.

mod exec;
mod run;

use bstr::{BStr, BString, ByteSlice as _};

pub use exec::Executed;
pub use run::{RunOptions, Stays, Switch};

use run::switch;

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
        let command = of(line);
        let DockerCommand::Run(options) = command else { panic!("{line}: {command:?}") };
        *options
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
