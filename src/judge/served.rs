//! What a case says of servers: where the files of their sockets are, who names them, and whether they answer.

use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{Talk, Template};
use crate::model::escape::escape;
use crate::model::id::{FileId, ProcessId};
use crate::model::known::{Reason, Unknown};
use crate::model::question::{
    Answer, Binding, Call, Carriers, EngineQuestion, Family, Listener, PathAnswer, Pinged, Question,
};

use super::case::{Case, misfit};
use super::rule::Found;

/// Says whether asking does something: connects to the server that is judged, or asks somebody else's.
pub(super) fn acts(question: &Question) -> bool {
    match question {
        Question::Ping { .. } | Question::Engine(EngineQuestion::Ping { .. }) => true,
        // Files have a place; a server has none.
        Question::Registered { place, .. } => place.is_empty(),
        Question::Facts(_)
        | Question::Path { .. }
        | Question::Channel { .. }
        | Question::Holders { .. }
        | Question::Sockets(_)
        | Question::Owner { .. }
        | Question::Activity(_)
        | Question::Terminals(_)
        | Question::Bound { .. }
        | Question::Named { .. }
        | Question::Engine(_) => false,
    }
}

impl<'a> Case<'a> {
    /// Returns a template filled in. What this process has no value for is unknown.
    pub fn filled(&self, template: &Template) -> Found<BString> {
        self.fill(template).ok_or_else(|| {
            Unknown::new(Reason::NotAsked, format!("what '{}' is for it", template.text)).into()
        })
    }

    /// Returns where the file of a listening socket is, seen from a path.
    pub fn bound(&self, of: ProcessId, path: &BStr, file: FileId) -> Found<&'a Binding> {
        let question = Question::Bound { of, path: path.to_owned(), file };
        let Answer::Bound(binding) = self.answer(question)? else { return Err(misfit()) };
        Ok(binding)
    }

    /// Returns who carries a text in arguments or environment.
    pub fn named(&self, text: &BStr) -> Found<&'a Carriers> {
        let question = Question::Named { of: self.root.id, text: text.to_owned() };
        let Answer::Named(carriers) = self.answer(question)? else { return Err(misfit()) };
        Ok(carriers)
    }

    /// Returns what came of asking a server for as long as `patience` by the policy's ping.
    pub fn pinged(&self, of: ProcessId, socket: &BStr, patience: Duration) -> Found<&'a Pinged> {
        let question = Question::Ping {
            of,
            policy: self.policy.name.clone(),
            call: self.call()?,
            socket: socket.to_owned(),
            tree: self.tree.to_vec(),
            patience: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        };
        let Answer::Ping(pinged) = self.answer(question)? else { return Err(misfit()) };
        Ok(pinged)
    }

    /// Returns what the policy's ping says, filled in.
    pub(super) fn call(&self) -> Found<Call> {
        let Some(ping) = &self.policy.ping else {
            return Err(Unknown::new(Reason::NotAsked, "what to say to it: its policy has no ping").into());
        };
        call(&ping.talk, |template| self.filled(template))
    }

    /// Returns the members that take connections at an address, each with its listener: by its very name, by a wildcard
    /// of its port, or by the file that is at the path. That nobody does is unknown: a server that is starting does not
    /// yet.
    pub fn listening(&self, address: &BStr) -> Found<Vec<(ProcessId, &'a Listener)>> {
        let all: Vec<(ProcessId, &Listener)> = self
            .sockets()?
            .into_iter()
            .flat_map(|(id, sockets)| sockets.listeners.iter().map(move |listener| (id, listener)))
            .filter(|(_, listener)| matches!(listener.family, Family::Unix | Family::Tcp))
            .collect();
        let is_named = |listener: &Listener| listener.name == address || is_wildcard(listener, address);
        let mut found: Vec<_> = all.iter().copied().filter(|(_, listener)| is_named(listener)).collect();
        if found.is_empty() && address.starts_with(b"/") {
            // Bound by another name: rename(2) after bind(2), a relative path, a link on the way.
            if let PathAnswer::Present { file, .. } = self.path(address)? {
                found.extend(all.iter().filter(|(_, listener)| listener.file == Some(*file)));
            }
        }
        if found.is_empty() {
            let what = format!("what became of {}: no member listens there", escape(address));
            return Err(Unknown::new(Reason::NotAsked, what).into());
        }
        Ok(found)
    }
}

/// Returns what is said, its templates filled in.
pub(super) fn call(talk: &Talk, filled: impl Fn(&Template) -> Found<BString>) -> Found<Call> {
    Ok(match talk {
        Talk::Lines { send, expect } => Call::Lines { send: filled(send)?, expect: filled(expect)? },
        Talk::ContentLength { send, expect } => {
            Call::ContentLength { send: filled(send)?, expect: filled(expect)? }
        }
        Talk::Mcp => Call::Mcp,
        Talk::Http { path, status, expect } => Call::Http {
            path: filled(path)?,
            status: *status,
            expect: expect.as_ref().map(filled).transpose()?,
        },
        Talk::Greeting => Call::Greeting,
    })
}

/// Says whether a listener takes what comes to its port at whatever address, `address` included.
fn is_wildcard(listener: &Listener, address: &BStr) -> bool {
    let (Some((host, port)), Some((_, wanted))) = (split(listener.name.as_bstr()), split(address)) else {
        return false;
    };
    listener.family == Family::Tcp && port == wanted && matches!(host, b"0.0.0.0" | b"[::]" | b"*")
}

fn split(address: &BStr) -> Option<(&[u8], &[u8])> {
    let at = address.rfind_byte(b':')?;
    Some((&address[..at], &address[at + 1..]))
}
