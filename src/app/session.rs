//! What every command starts from: the command line, the surroundings, the configuration and the ways out.

use std::path::{Path, PathBuf};

use bstr::BStr;
use serde_json::Value;

use super::cli::Place;
use super::lease::place::{self as leases, all};
use super::look::variables;
use super::out::Out;
use super::place::{Presence, Surroundings};
use super::trouble::Trouble;
use super::{legible, words};
use crate::config::policy::Config;
use crate::config::{self, Context, Source, Whole};
use crate::judge::rules;
use crate::model::id::Uid;
use crate::model::rule::RuleSpec;
use crate::observe::{EngineSetup, EngineSurroundings, LeaseDirectory, Observer, Setup};

/// What every command starts from.
pub struct Session {
    /// Who and where we are.
    pub around: Surroundings,
    /// The options that every command knows.
    pub place: Place,
    /// The ways out.
    pub out: Out,
}

/// A configuration file as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Where it is, or would be.
    pub path: PathBuf,
    /// Its text; empty where it is not there.
    pub text: String,
}

impl Session {
    /// Returns the home directory for screens.
    pub fn home(&self) -> Option<&BStr> {
        self.around.home_text()
    }

    /// Reads and checks the configuration.
    pub fn configuration(&self) -> Result<Whole, Trouble> {
        let written = self.written()?;
        self.checked(&written).map_err(|faults| {
            Trouble::usage(format!(
                "the configuration is wrong, and nothing was done\n\n{}",
                faults.join("\n")
            ))
        })
    }

    /// Reads the configuration file.
    pub fn written(&self) -> Result<Written, Trouble> {
        let (path, presence) = self.around.config(&self.place)?;
        read(&path, presence)
    }

    /// Checks a configuration; returns its faults rendered, each with the line it stands on.
    pub fn checked(&self, written: &Written) -> Result<Whole, Vec<String>> {
        let specs: Vec<&RuleSpec> = rules::ALL.iter().map(|rule| &rule.spec).collect();
        let context = Context { rules: &specs, home: self.home() };
        let name = self.shown(&written.path);
        let source = Source { name: &name, text: &written.text };
        config::load_whole(Some(source), &context)
            .map_err(|faults| faults.iter().map(|fault| config::render(fault, &written.text)).collect())
    }

    /// Returns a path for a screen.
    pub fn shown(&self, path: &Path) -> String {
        use std::os::unix::ffi::OsStrExt as _;
        words::path(BStr::new(path.as_os_str().as_bytes()), self.home())
    }

    /// Opens the eyes.
    pub fn observer(&self, config: &Config) -> Result<Observer, Trouble> {
        let scope = self.around.scope(&self.place)?;
        let aside = std::env::current_exe()
            .map_err(|error| Trouble::because("cannot find my own program", &error))?;
        Observer::open(Setup {
            scope,
            probe_timeout: config.confirm.probe_timeout,
            env_names: variables(config),
            aside,
            home: self.around.home.clone(),
            leases: all(&self.around, scope).into_iter().map(lease_directory).collect(),
            registries: config.registries.clone(),
            engines: self.engines(config),
        })
        .map_err(|error| Trouble::because("cannot look at processes", &error))
    }

    /// Returns where engines are looked for; nowhere without a policy for containers.
    fn engines(&self, config: &Config) -> Option<EngineSetup> {
        let around = &self.around;
        (!config.containers.is_empty()).then(|| EngineSetup {
            docker: config.docker.clone(),
            around: EngineSurroundings {
                host: around.text("DOCKER_HOST"),
                context: around.text("DOCKER_CONTEXT"),
                config: around.absolute("DOCKER_CONFIG"),
                home: around.home.clone(),
                runtime: around.absolute("XDG_RUNTIME_DIR"),
            },
        })
    }

    /// Prints a JSON document.
    pub fn json(&mut self, json: &Value) {
        self.out.line(&format!("{json:#}"));
    }

    /// Prints one line of talk that may hold text from outside.
    pub fn talk(&mut self, text: &str) {
        let text = words::homely(&legible::text(text), self.around.home_text());
        self.out.talk(&format!("reapd: {text}"));
    }
}

fn lease_directory(directory: leases::LeaseDirectory) -> LeaseDirectory {
    LeaseDirectory { path: directory.path, owner: Uid(directory.owner) }
}

/// Reads a configuration file.
pub fn read(path: &Path, presence: Presence) -> Result<Written, Trouble> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Written { path: path.to_owned(), text }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && presence == Presence::Optional => {
            Ok(Written { path: path.to_owned(), text: String::new() })
        }
        Err(error) => Err(Trouble::usage(format!("cannot read {}: {error}", path.display()))),
    }
}
