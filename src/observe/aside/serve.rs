//! The inside of `reapd aside`: serves requests from standard input until it ends.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;

use bstr::{BString, ByteSlice as _};

use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::COOKIE;
use crate::model::question::{Answer, Question};
use crate::observe::channels::Channels;
use crate::observe::engines;
use crate::observe::leases::Directories;
use crate::observe::mcp::Files;
use crate::observe::pings;
use crate::observe::processes;
use crate::observe::registries;
use crate::observe::residue;

use super::frame::{self, Front};
use super::{Flush, Reply, Request};

/// Replies gathered before they are sent off together: half of a pipe.
const TOGETHER: usize = 32 * 1024;

/// Serves requests on standard input and output until end of file. This is what `reapd aside` runs; it is no
/// command for people.
pub fn aside_main() -> ExitCode {
    processes::prepare_aside();
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(from: &mut impl io::Read, to: &mut impl io::Write) -> io::Result<()> {
    let mut inbox = Vec::new();
    let mut outbox = Vec::new();
    let mut server = Server {
        env_names: BTreeSet::new(),
        flush: Flush::Each,
        channels: Channels::new(),
        files: Files::default(),
        leases: Directories::default(),
    };
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let mut used = 0;
        loop {
            match frame::take::<Request>(&inbox[used..]) {
                Front::Whole(request, length) => {
                    used += length;
                    server.handle(request, &mut outbox)?;
                }
                Front::Part => break,
                Front::Broken => return Err(io::ErrorKind::InvalidData.into()),
            }
            if server.flush == Flush::Each || outbox.len() > TOGETHER {
                send(to, &mut outbox)?;
            }
        }
        inbox.drain(..used);
        send(to, &mut outbox)?;
        let length = from.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        inbox.extend_from_slice(&chunk[..length]);
    }
}

fn send(to: &mut impl io::Write, outbox: &mut Vec<u8>) -> io::Result<()> {
    if !outbox.is_empty() {
        to.write_all(outbox)?;
        to.flush()?;
        outbox.clear();
    }
    Ok(())
}

struct Server {
    env_names: BTreeSet<BString>,
    flush: Flush,
    channels: Channels,
    files: Files,
    leases: Directories,
}

impl Server {
    fn handle(&mut self, request: Request, outbox: &mut Vec<u8>) -> io::Result<()> {
        let reply = match request {
            Request::Begin { env_names, flush } => {
                self.env_names = env_names;
                self.flush = flush;
                self.channels = Channels::new();
                return Ok(());
            }
            Request::Arguments(id) => Reply::Arguments(processes::arguments(id)),
            Request::Leases(place) => Reply::Leases(Box::new(self.leases.at(&place))),
            Request::Group(grouping) => Reply::Group(grouping.read()),
            Request::Cookie(id) => Reply::Cookie(processes::variable(id, COOKIE)),
            Request::Configured(place) => Reply::Configured(self.files.at(&place)),
            Request::Secret(path) => Reply::Secret(registries::secret(&path.to_path_lossy())),
            Request::Registry(reading) => Reply::Records(Box::new(registries::read(&reading))),
            Request::Naming(naming) => Reply::Carried(naming.read()),
            Request::Engines(seek) => Reply::Engines(seek.find()),
            Request::Client(id) => Reply::Client(Box::new(engines::given(id))),
            Request::Within(within) => Reply::Within(within.look()),
            Request::Pings(pings) => Reply::Pings(pings::ask(&pings)),
            Request::Residue(ask) => Reply::Residue(Box::new(residue::tell(&ask))),
            Request::Ask(question) => Reply::Answer(Box::new(self.answer(&question))),
        };
        frame::put(outbox, &reply).map_err(io::Error::other)
    }

    fn answer(&mut self, question: &Question) -> Known<Answer> {
        match question {
            Question::Facts(id) => {
                processes::facts(*id, &self.env_names).map(|facts| Answer::Facts(Box::new(facts)))
            }
            Question::Path { of, path } => processes::path(*of, path.as_bstr()).map(Answer::Path),
            Question::Bound { of, path, file } => {
                processes::bound(*of, path.as_bstr(), *file).map(Answer::Bound)
            }
            Question::Owner { of, pid } => processes::owner(*of, *pid).map(Answer::Owner),
            Question::Activity(id) => processes::activity(*id).map(Answer::Activity),
            Question::Channel { of, fd } => self.channels.channel(*of, *fd).map(Answer::Channel),
            Question::Sockets(id) => self.channels.sockets(*id).map(Answer::Sockets),
            Question::Terminals(id) => self.channels.terminals(*id).map(Answer::Terminals),
            // These need what is not here: the whole table, the configured registries, the other aside.
            Question::Holders { .. }
            | Question::Named { .. }
            | Question::Ping { .. }
            | Question::Registered { .. }
            | Question::Engine(_) => {
                Err(Unknown::new(Reason::NotAsked, "a question asked in the wrong place"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{Pid, ProcessId, Start};

    #[test]
    fn every_request_but_begin_gets_one_reply_in_order() {
        let id = ProcessId { pid: Pid::INIT, start: Start(u64::MAX) };
        let mut input = Vec::new();
        frame::put(&mut input, &Request::Begin { env_names: BTreeSet::new(), flush: Flush::Together })
            .unwrap();
        frame::put(&mut input, &Request::Arguments(id)).unwrap();
        frame::put(&mut input, &Request::Ask(Question::Facts(id))).unwrap();
        let mut output = Vec::new();
        serve(&mut input.as_slice(), &mut output).unwrap();
        let Front::Whole(Reply::Arguments(Err(_)), used) = frame::take(&output) else { panic!("{output:?}") };
        let Front::Whole(Reply::Answer(answer), rest) = frame::take(&output[used..]) else { panic!() };
        assert!(answer.is_err(), "nobody has that start");
        assert_eq!(used + rest, output.len());
    }

    #[test]
    fn rubbish_ends_it() {
        assert!(serve(&mut &[0xff; 64][..], &mut Vec::new()).is_err());
    }
}
