//! Whoever can be reached over a network is used, whatever became of the client that started it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use super::field::Fate::{Ended, Kept};
use super::field::Field;
use crate::planted::wait_for;

/// A network of a test's own; it goes with the test.
pub(super) struct Network<'a>(&'a Field, String);

impl<'a> Network<'a> {
    pub(super) fn new(field: &'a Field) -> Network<'a> {
        let name = format!("stand-{}", field.planted.nonce());
        field.docker(&["network", "create", "--label", &field.label(), &name]);
        Network(field, name)
    }

    pub(super) fn name(&self) -> &str {
        &self.1
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        for id in self.0.ids() {
            let _ = self.0.try_docker(&["rm", "-f", &id]);
        }
        let _ = self.0.try_docker(&["network", "rm", &self.1]);
    }
}

fn asks(stream: &mut TcpStream, line: &str) -> String {
    writeln!(stream, "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

#[test]
fn a_database_in_use_outlives_its_client_f9() {
    let Some(field) = Field::new() else { return };
    let network = Network::new(&field);
    let published = ["-i", "--rm", "--network", network.name(), "-p", "127.0.0.1::5432"];
    let mut used = field.run(&published, "database", &[]);
    let mut unused = field.run(&published, "database", &[]);
    let port = field.docker(&["port", &used.id, "5432/tcp"]);
    let mut stream = None;
    wait_for("the port to answer", || {
        stream = TcpStream::connect(&port).ok().filter(|stream| {
            let mut stream = stream.try_clone().unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            writeln!(stream, "ready").is_ok()
                && BufReader::new(stream).read_line(&mut String::new()).is_ok_and(|n| n > 0)
        });
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    used.client.kill();
    unused.client.kill();

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("in use", &used.id, Kept("of the host")),
            ("published, not in use", &unused.id, Kept("of the host")),
        ],
    );
    assert_eq!(asks(&mut stream, "still there"), "still there");
}

#[test]
fn a_listener_inside_keeps_f9() {
    let Some(field) = Field::new() else { return };
    let mut listens = field.run(&["-i", "--rm"], "database", &[]);
    // Somebody is connected to it from inside.
    let mut connected = field.run(&["-i", "--rm"], "database", &[]);
    for started in [&listens, &connected] {
        wait_for("the listener", || {
            let tcp = std::fs::read_to_string(format!("/proc/{}/net/tcp6", field.init(&started.id))).unwrap();
            tcp.contains(":1538 ")
        });
    }
    let mut inside = field.client(&["exec", "-i", &connected.id, "nc", "127.0.0.1", "5432"]);
    assert_eq!(inside.ask("hello"), "hello");
    // Whoever only stands in the other's network is not reached by it, and its twin is alone.
    let twin = field.stray(&["--rm"], "notes", &["deaf"]);
    let beside = {
        let network = format!("container:{}", connected.id);
        field.stray(&["--rm", "--network", &network], "notes", &["deaf"])
    };
    listens.client.kill();
    connected.client.kill();
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("listens", &listens.id, Kept("5432")),
            ("with a connection", &connected.id, Kept("it names")),
            ("in another's network", &beside, Kept("")),
            ("alone", &twin, Ended),
        ],
    );
    assert_eq!(inside.ask("again"), "again");
}
