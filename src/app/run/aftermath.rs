//! After the command: its streams are let go of, what it left behind is ended or told of, and we end like it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitIdOptions, WaitStatus};

use super::family::{self, Kin};
use super::signals::Signals;
use super::watch::{AGAIN, Asking, LOOK, Watch, Why, let_go_of_streams, wait_on};
use super::{end, say, tell};
use crate::model::container::ContainerId;
use crate::model::escape::escape;
use crate::model::lease::Leftovers;

/// What ends together with the command needs a moment to be gone.
const AFTERMATH: Duration = Duration::from_millis(100);

/// What `docker run` and `podman run` end with when the engine failed them, not the container (docker-run(1)).
const LOST_ENGINE: i32 = 125;

impl Watch<'_> {
    /// The command has ended: ends what it left behind or tells of it, and ends like it.
    pub(super) fn after(mut self, status: WaitStatus, signals: &Signals) -> ExitCode {
        // Whoever reads or writes the other ends sees the end now, as without us.
        let_go_of_streams();
        let was_asked = matches!(self.asking, Asking::Running { .. });
        let settled = self.settle(signals, was_asked, status);
        // Whoever is left in it keeps it, until a later run or a sweep.
        if let Some(place) = &self.place {
            place.remove();
        }
        match settled {
            Settled::Clean => {
                if let Some(record) = &self.record {
                    record.remove();
                }
            }
            // A sweep finishes from the lease, which says that it is over.
            Settled::Left => {}
        }
        end::like(status)
    }

    fn settle(&mut self, signals: &Signals, was_asked: bool, status: WaitStatus) -> Settled {
        if was_asked && self.wait_for_end(signals) == Waited::Told {
            return Settled::Left;
        }
        if let Some(container) = self.cut_off(status) {
            return self.end_container(signals, &container);
        }
        if self.is_alone_soon(signals) {
            return Settled::Clean;
        }
        let Some(root) = self.root else { return Settled::Left };
        let hangup = self.hangup;
        // A list that cannot be made is no reason to leave anything.
        let left = family::below(root, |pid| family::ignores_hangup(pid, hangup)).unwrap_or_default();
        if left.is_empty() {
            return Settled::Clean;
        }
        match self.order.leftovers {
            Leftovers::Report => {
                say(&format!("{} left {} behind ({})", self.name(), count(left.len()), family::named(&left)));
                Settled::Clean
            }
            Leftovers::Reap => self.end_leftovers(signals, &left),
        }
    }

    /// Returns the container whose client was killed, or lost its engine: ending a client ends no container (C35). A
    /// client that ends by itself, with the status of its container, has seen the end of it.
    fn cut_off(&self, status: WaitStatus) -> Option<ContainerId> {
        let is_cut_off = status.signaled() || status.exit_status() == Some(LOST_ENGINE);
        if is_cut_off { self.record.as_ref()?.container() } else { None }
    }

    /// Has a container ended whose client is gone. Only its engine knows whether it is, so the lease stays, and says that
    /// it is over, until a sweep finds nobody under it.
    fn end_container(&mut self, signals: &Signals, container: &ContainerId) -> Settled {
        match self.order.leftovers {
            Leftovers::Report => {
                say(&format!("{} may have left its container {container} behind", self.name()));
                Settled::Clean
            }
            Leftovers::Reap => {
                self.ask(Why::Ended, AGAIN);
                self.wait_for_end(signals);
                Settled::Left
            }
        }
    }

    fn end_leftovers(&mut self, signals: &Signals, left: &[Kin]) -> Settled {
        self.ask(Why::Ended, AGAIN);
        if !matches!(self.asking, Asking::Running { .. }) || self.wait_for_end(signals) == Waited::Told {
            return Settled::Left;
        }
        let (alive, ended): (Vec<Kin>, Vec<Kin>) = left.iter().cloned().partition(Kin::is_alive);
        if !ended.is_empty() {
            let (many, names) = (count(ended.len()), family::named(&ended));
            say(&format!("ended {many} that {} left behind ({names})", self.name()));
        }
        if alive.is_empty() {
            return Settled::Clean;
        }
        tell(self.order, || format!("still there: {}", family::named(&alive)));
        Settled::Clean
    }

    /// Waits for `reapd finish`; it goes on without us where somebody has us end.
    fn wait_for_end(&mut self, signals: &Signals) -> Waited {
        loop {
            self.reap();
            let Asking::Running { .. } = self.asking else { return Waited::Over };
            let told = signals
                .take()
                .iter()
                .any(|(signal, _)| [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(signal));
            if told {
                return Waited::Told;
            }
            wait_on(signals, LOOK);
        }
    }

    /// Says whether nobody is below us, now or a moment later.
    fn is_alone_soon(&mut self, signals: &Signals) -> bool {
        let end = Instant::now() + AFTERMATH;
        loop {
            self.reap();
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if rustix::process::waitid(rustix::process::WaitId::All, options).is_err() {
                // No child at all; without a subreaper that says nothing of who was orphaned.
                return cfg!(target_os = "linux");
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            wait_on(signals, left);
        }
    }

    fn name(&self) -> String {
        let word = self.order.command.first().map(|word| word.as_encoded_bytes());
        escape(word.unwrap_or_default())
    }
}

/// What became of everything below us.
enum Settled {
    /// The lease has said all that it can.
    Clean,
    /// Something is left for a sweep.
    Left,
}

#[derive(PartialEq, Eq)]
enum Waited {
    /// It is done.
    Over,
    /// Somebody has us end.
    Told,
}

fn count(number: usize) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}
