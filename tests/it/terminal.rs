//! A person at a terminal: the question, its answers, colours, and Ctrl-C; script(1) lends the terminal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::Value;

use crate::desk::{Desk, text};
use crate::planted::wait_for;
use crate::turn::turn;

const LADDER: &str = "[\"TERM 500ms\", \"KILL 20s\"]";
const TREE: &str = "sleep 600 &\nwait\n";
/// It takes the whole first rung.
const STUBBORN_TREE: &str = "trap '' TERM\nsleep 600 &\nwait\n";

/// reapd at a terminal of its own.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn open(desk: &Desk, arguments: &[&str], variables: &[(&str, &str)], stdout: Option<&Path>) -> Terminal {
        let reapd = desk.command(arguments);
        let mut words = vec!["exec".to_owned(), reapd.get_program().to_str().unwrap().to_owned()];
        words.extend(reapd.get_args().map(|word| word.to_str().unwrap().to_owned()));
        words.extend(stdout.map(|file| format!(">{}", file.display())));
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-f", "-c", &words.join(" "), "/dev/null"]).env_clear();
        for (name, value) in reapd.get_envs() {
            command.env(name, value.unwrap());
        }
        let mut script = command
            .envs([("SHELL", "/bin/sh"), ("TERM", "xterm")])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keys = script.stdin.take().unwrap();
        let mut shown = script.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let filled = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = shown.read(&mut buffer)
                && count > 0
            {
                filled.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Terminal { script, keys, screen }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    fn shows(&self, text: &str) {
        wait_for(&format!("'{text}' on the screen"), || self.screen().contains(text));
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end, and returns the exit code.
    fn ends(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the end", || {
            status = self.script.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn no_reaps_nothing_and_yes_reaps() {
    let desk = Desk::with_stubborn(LADDER);
    let root = desk.stubborn("one", TREE, 1);
    let members = desk.planted.below(root);
    let _turn = turn();
    let mut terminal = Terminal::open(&desk, &["sweep"], &[], None);
    terminal.shows("Reap 1 tree, 2 processes");
    terminal.shows("[y/N]");
    terminal.types("n\n");
    assert_eq!(terminal.ends(), Some(0), "{}", terminal.screen());
    assert!(terminal.screen().contains("\u{1b}[1;31mWOULD REAP\u{1b}[0m"), "{}", terminal.screen());
    assert!(desk.planted.is_alive(root) && !desk.journal().contains("intent"));

    let mut terminal = Terminal::open(&desk, &["sweep"], &[("NO_COLOR", "1")], None);
    terminal.shows("[y/N]");
    assert!(desk.planted.is_alive(root));
    terminal.types("y\n");
    assert_eq!(terminal.ends(), Some(0), "{}", terminal.screen());
    assert!(!terminal.screen().contains('\u{1b}'), "{}", terminal.screen());
    assert!(terminal.screen().contains("Looking again in"), "{}", terminal.screen());
    for pid in members.into_iter().chain([root]) {
        assert!(!desk.planted.is_alive(pid), "{}", terminal.screen());
    }
}

#[test]
fn after_no_a_program_still_gets_its_document() {
    let desk = Desk::with_stubborn(LADDER);
    let root = desk.stubborn("one", TREE, 1);
    let file = desk.planted.path("out.json");
    let _turn = turn();
    let mut terminal = Terminal::open(&desk, &["sweep", "--json"], &[], Some(&file));
    terminal.shows("[y/N]");
    terminal.types("n\n");
    assert_eq!(terminal.ends(), Some(0), "{}", terminal.screen());
    let json: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(json["stage"], "first-look");
    assert_eq!(json["planned"][0]["root"], root);
    assert_eq!(json["teardowns"], serde_json::json!([]));
    assert!(desk.planted.is_alive(root));
}

#[test]
fn what_is_kept_while_the_question_stands_on_the_screen_is_not_reaped() {
    let desk = Desk::with_stubborn(LADDER);
    let root = desk.stubborn("one", TREE, 1);
    let _turn = turn();
    let mut terminal = Terminal::open(&desk, &["sweep"], &[], None);
    terminal.shows("[y/N]");
    let kept = desk.reapd_in_turn(&["keep", &root.to_string()]);
    assert!(kept.status.success(), "{}", text(&kept));
    terminal.types("y\n");
    assert_eq!(terminal.ends(), Some(0), "{}", terminal.screen());
    assert!(terminal.screen().contains("1 confirmed."), "only the re-check read it: {}", terminal.screen());
    assert!(desk.planted.is_alive(root) && !desk.journal().contains("intent"), "{}", terminal.screen());
}

#[test]
fn ctrl_c_at_the_question_ends_it_before_any_signal() {
    let desk = Desk::with_stubborn(LADDER);
    let root = desk.stubborn("one", TREE, 1);
    let _turn = turn();
    let mut terminal = Terminal::open(&desk, &["sweep"], &[], None);
    terminal.shows("[y/N]");
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(), Some(130), "{}", terminal.screen());
    assert!(!terminal.screen().contains("Looking again in"), "{}", terminal.screen());
    assert!(desk.planted.is_alive(root) && !desk.journal().contains("intent"));
}

#[test]
fn ctrl_c_between_the_looks_ends_it_before_any_signal() {
    let desk = Desk::with_stubborn(LADDER);
    desk.reconfigure(|text| text.replace("apart = \"300ms\"", "apart = \"60s\""));
    let root = desk.stubborn("one", TREE, 1);
    let _turn = turn();
    let mut terminal = Terminal::open(&desk, &["sweep"], &[], None);
    terminal.shows("[y/N]");
    terminal.types("y\n");
    terminal.shows("Looking again in ");
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(), Some(130), "{}", terminal.screen());
    assert!(terminal.screen().contains("nothing was signalled"), "{}", terminal.screen());
    assert!(desk.planted.is_alive(root) && !desk.journal().contains("intent"));
}

#[test]
fn a_sigterm_in_the_middle_lets_the_ladder_be_finished() {
    let desk = Desk::with_stubborn(LADDER);
    let root = desk.stubborn("one", STUBBORN_TREE, 1);
    let members = desk.planted.below(root);
    let _turn = turn();
    let sweep = desk.start(&["sweep", "--yes"]);
    desk.wait_for_journal("\"signalled\"");
    sweep.send(Signal::TERM);
    let ended = sweep.end();
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended));
    for pid in members.into_iter().chain([root]) {
        assert!(!desk.planted.is_alive(pid), "{pid} was forgotten: {}", text(&ended));
    }
    assert!(desk.journal().contains("\"closure\":\"gone\""), "{}", desk.journal());
}

#[test]
fn mode_report_restrains_a_run_by_hand_and_says_so() {
    let desk = Desk::with_stubborn(LADDER);
    desk.reconfigure(|text| format!("mode = \"report\"\n{text}"));
    let root = desk.stubborn("one", TREE, 1);
    let swept = desk.reapd(&["sweep", "--yes"]);
    assert!(swept.status.success(), "{}", text(&swept));
    assert!(text(&swept).contains("mode = \"report\": nothing is reaped"), "{}", text(&swept));
    assert!(desk.planted.is_alive(root) && !desk.journal().contains("intent"));
}
