//! Deaths at any instant: whoever is killed, nothing is left after the grace, and nobody outside is touched.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Field, Held, wait_for};

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Watcher,
    Client,
    Command,
    Grandchild,
}

/// A small generator of numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // Numerical Recipes' constants for a linear congruence.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A client with both far ends, a command, and a grandchild that is deaf to TERM.
const CLIENT: &str = "import subprocess, sys, time\n\
    p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n\
    open('watcher.new', 'w').write(str(p.pid))\n\
    import os; os.rename('watcher.new', 'watcher')\n\
    time.sleep(600)";
const TREE: &str = "(trap '' TERM; sleep 601 & echo $! >grandchild; wait) & echo $$ >command; cat; sleep 602";

fn round(dice: &mut Dice) {
    let field = Field::new();
    let victim = [Victim::Watcher, Victim::Client, Victim::Command, Victim::Grandchild]
        [usize::try_from(dice.below(4)).unwrap()];
    let delay = Duration::from_micros(dice.below(120_000));
    // Somebody of this field whom nobody but this test may end.
    let mut outside = Held::start(field.planted.command("sleep").arg("600"));
    let mut words = vec!["python3".to_owned(), "-c".to_owned(), CLIENT.to_owned()];
    words.extend(field.prefix(&[]));
    words.extend(["sh", "-c", TREE].map(str::to_owned));
    let mut client = Held::start(&mut field.command(&words));
    let watcher = field.planted.pid_in(&field.path("watcher"));
    let begun = Instant::now();
    while begun.elapsed() < delay {
        std::thread::yield_now();
    }
    match victim {
        Victim::Client => {}
        Victim::Watcher => kill(&field, watcher),
        Victim::Command | Victim::Grandchild => {
            let name = if victim == Victim::Command { "command" } else { "grandchild" };
            kill(&field, field.planted.pid_in(&field.path(name)));
        }
    }
    // In the end the client dies, whoever died before.
    client.send(Signal::KILL);
    client.ends();
    let but = [outside.pid()];
    if victim == Victim::Watcher {
        let mut sweeps = 0;
        let killed = Instant::now();
        wait_for("sweeps to end it", || {
            let left = field.alive().iter().any(|pid| !but.contains(pid));
            if left {
                field.sweep();
                sweeps += 1;
            }
            // Looks that are closer together than `apart` count once, so that it is time that bounds this; and where a
            // machine is so busy that a look takes seconds, it is looks.
            !left || killed.elapsed() > Duration::from_secs(15) && sweeps > 5
        });
        let left = field.alive();
        assert_eq!(
            left,
            but,
            "{victim:?} after {delay:?}, {sweeps} sweeps: {:?}\n{}",
            field.leases(),
            field.journal()
        );
    } else {
        wait_for(&format!("nothing to be left ({victim:?} after {delay:?})"), || {
            field.alive().iter().all(|pid| but.contains(pid))
        });
    }
    assert!(
        outside.0.try_wait().unwrap().is_none(),
        "{victim:?} after {delay:?}: somebody outside was touched"
    );
}

/// Kills one of ours, where it is still there.
fn kill(field: &Field, pid: i32) {
    if field.alive().contains(&pid) {
        field.planted.end(pid);
    }
}

/// Goes through so many rounds, `wide` at once: a round mostly waits.
fn rounds(count: u64, seed: u64, wide: u64) {
    std::thread::scope(|scope| {
        for lane in 0..wide {
            scope.spawn(move || {
                let mut dice = Dice(seed + lane);
                for _ in 0..count.div_ceil(wide) {
                    round(&mut dice);
                }
            });
        }
    });
}

#[test]
fn whoever_dies_at_any_instant_nothing_is_left_and_nobody_outside_is_touched() {
    let _alone = crate::turn::heavy();
    rounds(30, 7, 8);
}

#[test]
#[ignore = "a thousand rounds take long; REAPD_TORTURE sets how many"]
fn a_thousand_deaths() {
    let count = std::env::var("REAPD_TORTURE").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    rounds(count, 1_000, 24);
}
