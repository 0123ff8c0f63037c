//! Why an engine did not do, or not say, what it was asked.

use std::error::Error as _;
use std::io;

use bollard::errors::Error;
use rustix::io::Errno;

use super::wire::TooLong;
use crate::model::known::{Reason, Unknown};

/// What an engine says is shown to people; more of it than this is noise.
const MESSAGE_MOST: usize = 300;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// There is no socket, or nobody listens at it.
    #[error("no engine answers there")]
    Absent,
    /// The socket is not for us.
    #[error("the engine's socket is not for this user")]
    Denied,
    /// Nothing, or not everything, came within the deadline.
    #[error("the engine did not answer in time")]
    Hung,
    /// The engine said no.
    #[error("the engine said '{message}' ({status})")]
    Refused {
        /// The status of its answer, from HTTP.
        status: u16,
        /// Its own words, cut short where they are many.
        message: String,
    },
    /// The answer is not what it should be; the text says how, a lowercase fragment.
    #[error("{0}")]
    Malformed(String),
    /// The answer is longer than any honest one.
    #[error("the engine's answer has no end")]
    TooLong,
    /// The connection could not be made, or broke.
    #[error("the engine cannot be reached")]
    Broken(#[source] io::Error),
    /// We ourselves are short of something.
    #[error("too little is left to ask an engine")]
    Starved(#[source] io::Error),
}

impl Fault {
    /// Returns a fault of an answer that is not what it should be.
    pub(super) fn malformed(text: impl Into<String>) -> Fault {
        Fault::Malformed(text.into())
    }

    /// Returns the fault behind an error of the kernel.
    fn of_kernel(error: io::Error) -> Fault {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED) => Fault::Absent,
            Some(Errno::ACCESS | Errno::PERM) => Fault::Denied,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => Fault::Starved(error),
            _ => Fault::Broken(error),
        }
    }

    /// Returns the number of the kernel's error, 0 where it gave none.
    fn errno(&self) -> i32 {
        match self {
            Fault::Broken(source) | Fault::Starved(source) => source.raw_os_error().unwrap_or(0),
            Fault::Absent
            | Fault::Denied
            | Fault::Hung
            | Fault::Refused { .. }
            | Fault::Malformed(_)
            | Fault::TooLong => 0,
        }
    }
}

impl From<Error> for Fault {
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it is, it is no answer")]
    fn from(error: Error) -> Fault {
        match error {
            Error::DockerResponseServerError { status_code, message } => {
                Fault::Refused { status: status_code, message: message.chars().take(MESSAGE_MOST).collect() }
            }
            Error::IOError { err } => Fault::of_kernel(err),
            Error::RequestTimeoutError => Fault::Hung,
            Error::HyperResponseError { err } => of_transfer(&err),
            Error::JsonDataError { message, .. } => {
                Fault::Malformed(format!("the engine's answer cannot be read: {message}"))
            }
            other => Fault::Malformed(format!("the engine's answer cannot be read: {other}")),
        }
    }
}

/// Returns what became of an answer that broke off, or never was one.
fn of_transfer(error: &hyper::Error) -> Fault {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            if io.get_ref().and_then(|inner| inner.downcast_ref::<TooLong>()).is_some() {
                return Fault::TooLong;
            }
            if let Some(errno) = io.raw_os_error() {
                return Fault::Broken(io::Error::from_raw_os_error(errno));
            }
        }
        source = inner.source();
    }
    Fault::Malformed(format!("the engine's answer broke off: {error}"))
}

impl From<&Fault> for Unknown {
    fn from(fault: &Fault) -> Unknown {
        let reason = match fault {
            Fault::Absent => Reason::Failed(Errno::CONNREFUSED.raw_os_error()),
            Fault::Denied => Reason::Denied,
            Fault::Hung => Reason::Hung,
            Fault::Refused { status, .. } => Reason::Failed(i32::from(*status)),
            Fault::Malformed(_) => Reason::Unsound,
            Fault::TooLong => Reason::Truncated,
            Fault::Broken(_) => Reason::Failed(fault.errno()),
            Fault::Starved(_) => Reason::Starved,
        };
        Unknown::new(reason, fault.to_string())
    }
}

impl From<Fault> for Unknown {
    fn from(fault: Fault) -> Unknown {
        Unknown::from(&fault)
    }
}
