//! Drives a plan: stands between `plan`, which says who goes, and `act`, which signals.
//!
//! All trees climb their ladders side by side in one loop on one thread, so that twenty stubborn trees take one
//! ladder and not twenty. Nothing is ever stopped (SIGSTOP hangs up orphaned groups, and a crash would leave live
//! work frozen), and nothing blocks on a process that does not go.

use std::time::{Duration, Instant};

use crate::act::cgroup::Group;
use crate::act::processes::{self, Held, Sight};
use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::moment::Moment;
use crate::model::outcome::Report;
use crate::model::plan::{Member, Plan, Signal, Teardown};
use crate::plan::teardown::Membership;

use climb::{Climb, Progress};
use walk::Adopters;

mod climb;
mod close;
mod group;
mod send;
mod walk;

/// More than so many are not waited for one by one: each wake-up looks at all of them.
const CROWD: usize = 64;

/// How long a crowd is left alone: some thirty processes end in a millisecond.
const CROWD_PAUSE: Duration = Duration::from_millis(1);

/// At least so often a fresh table is taken for those that wait for it, whatever else is to be done: half of what the
/// machine of a ladder grants beyond the ladder's own time.
const SERVED_EVERY: Duration = Duration::from_secs(1);

/// How many steps one tree may take before the others have their turn.
const TURN: usize = 64;

/// What the driver asks of its surroundings: the clock, fresh looks and the journal.
pub trait Scene {
    /// Returns the boot clock.
    fn now(&mut self) -> Moment;

    /// Judges a tree once more, right before its first signal and with its members already held; the error says why
    /// it is left alone.
    fn recheck(&mut self, teardown: &Teardown) -> Result<(), String>;

    /// Returns the reapers that would adopt what a tree leaves behind; see [`crate::plan::teardown::adopters`].
    fn adopters(&mut self, teardown: &Teardown) -> Vec<ProcessId>;

    /// Works out membership from one fresh table, for each of these trees in their order.
    fn fresh(&mut self, trees: &[Again<'_>]) -> Vec<Known<Membership>>;

    /// Lets a newborn process of a tree join, or not; see [`crate::plan::teardown::admit`].
    fn admit(&mut self, teardown: &Teardown, newborn: &Sight, came: Came) -> Admission;

    /// Returns the cgroup that `reapd run` made for a tree, open, with its path; nothing where there is none.
    fn group(&mut self, teardown: &Teardown) -> Option<(String, Group)> {
        let _ = teardown;
        None
    }

    /// Writes an event to the journal. Without a record of the intent there is no signal. Where a later event cannot
    /// be written the tree is finished all the same, and no further one is begun.
    fn record(&mut self, event: &Event<'_>) -> Result<(), String>;

    /// Says whether reapd itself was asked to end: no further tree is begun then, and those begun are finished.
    fn interrupt(&mut self) -> Interrupt {
        Interrupt::GoOn
    }
}

/// A tree whose membership is worked out once more.
#[derive(Debug, Clone)]
pub struct Again<'a> {
    /// The tree.
    pub teardown: &'a Teardown,
    /// Those that are or were held.
    pub known: Vec<Member>,
    /// Those of them that went.
    pub gone: Vec<ProcessId>,
}

/// How a newborn process was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// A held member is, or was a moment ago, its parent.
    Below(ProcessId),
    /// It is in the cgroup that `reapd run` made for the tree, and a reaper or a member is its parent.
    Group,
    /// A reaper adopted it, and it is in a session that a member leads and this held member is in.
    Session(ProcessId),
}

/// Whether a newborn process joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It goes with the tree.
    Join(Member),
    /// It is left alone, for this reason.
    Spare(String),
}

/// What is written to the journal.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// This tree is about to be signalled.
    Intent(&'a Teardown),
    /// This signal went to these.
    Signalled {
        /// The root of their tree.
        root: ProcessId,
        /// Which.
        signal: Signal,
        /// To whom; those that were refused it or were gone are not among them.
        to: &'a [ProcessId],
    },
    /// Everybody in the tree's own cgroup is about to be killed at once.
    GroupKilled {
        /// The root of their tree.
        root: ProcessId,
        /// The cgroup.
        cgroup: &'a str,
        /// Who is in it.
        members: &'a [ProcessId],
    },
    /// These were seen gone.
    SeenGone {
        /// The root of their tree.
        root: ProcessId,
        /// Who.
        ids: &'a [ProcessId],
    },
    /// This came of it.
    Outcome(&'a Report),
}

/// Whether to begin further trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Nobody asked to end.
    GoOn,
    /// Finish what was begun, and begin nothing.
    Finish,
}

/// Carries out a plan and returns what came of each tree, in the plan's order.
///
/// All are held before the first is judged once more. Then each round begins one tree, whose first signal follows its
/// re-check at once, and gives a turn to those that were begun before.
pub fn carry_out<S: Scene>(plan: &Plan, scene: &mut S) -> Vec<Report> {
    let mut adopters = Adopters::default();
    let mut climbs: Vec<Climb<'_>> =
        plan.teardowns.iter().map(|teardown| Climb::hold(teardown, scene)).collect();
    let mut begun = 0;
    let mut verified = Instant::now();
    loop {
        let mut wake: Option<Moment> = None;
        let mut busy = Busy::No;
        let obstacle = obstacle(&climbs, scene);
        if let Some(climb) = climbs.get_mut(begun) {
            match obstacle {
                None => climb.begin(scene),
                Some(why) => climb.stand_down(&why, scene.now()),
            }
            begun += 1;
            busy = Busy::Yes;
        }
        let mut scans = Vec::new();
        for (at, climb) in climbs.iter_mut().take(begun).enumerate() {
            match turn(climb, scene, &mut adopters) {
                Progress::Again => busy = Busy::Yes,
                Progress::Wait(until) => wake = Some(wake.map_or(until, |wake| wake.min(until))),
                Progress::Scan => scans.push(at),
                Progress::Over => {}
            }
        }
        // A fresh table takes long: one for all who wait for it, and only when nobody is to be signalled or followed.
        // While many trees are begun one by one that never is, and who waits is served now and then: its ladder's time
        // runs out meanwhile.
        let is_due = matches!(busy, Busy::No) || verified.elapsed() >= SERVED_EVERY;
        if is_due && !scans.is_empty() {
            verify(&mut climbs, &scans, scene);
            verified = Instant::now();
            busy = Busy::Yes;
        }
        let until = match (busy, wake) {
            (Busy::Yes, _) => Instant::now(),
            (Busy::No, Some(wake)) => Instant::now() + wake.since(scene.now()),
            (Busy::No, None) => break,
        };
        watch(&mut climbs, scene, until);
    }
    climbs.into_iter().map(Climb::into_report).collect()
}

/// Works out the membership of these trees from one fresh table, as the last proof that nobody is left.
fn verify<S: Scene>(climbs: &mut [Climb<'_>], scans: &[usize], scene: &mut S) {
    let trees: Vec<Again<'_>> = scans.iter().filter_map(|&at| Some(climbs.get(at)?.again())).collect();
    let found = scene.fresh(&trees);
    for ((&at, tree), found) in scans.iter().zip(trees).zip(found) {
        if let Some(climb) = climbs.get_mut(at) {
            climb.verified(found, &tree.gone, scene);
        }
    }
}

/// Says why no further tree may be begun.
fn obstacle<S: Scene>(climbs: &[Climb<'_>], scene: &mut S) -> Option<String> {
    if scene.interrupt() == Interrupt::Finish {
        return Some("reapd was asked to end".to_owned());
    }
    let why = climbs.iter().find_map(Climb::unwritten)?;
    Some(format!("the journal cannot be written any more: {why}"))
}

#[derive(Debug, Clone, Copy)]
enum Busy {
    Yes,
    No,
}

fn turn<S: Scene>(climb: &mut Climb<'_>, scene: &mut S, adopters: &mut Adopters) -> Progress {
    for _ in 0..TURN {
        match climb.step(scene, adopters) {
            Progress::Again => {}
            progress @ (Progress::Wait(_) | Progress::Scan | Progress::Over) => return progress,
        }
    }
    Progress::Again
}

/// Waits for anybody of any tree to go, and notes who went.
fn watch<S: Scene>(climbs: &mut [Climb<'_>], scene: &mut S, until: Instant) {
    let mut places: Vec<(usize, ProcessId)> = Vec::new();
    let mut held: Vec<&Held> = Vec::new();
    for (at, climb) in climbs.iter().enumerate() {
        for (id, one) in climb.awaited() {
            places.push((at, id));
            held.push(one);
        }
    }
    if held.len() > CROWD {
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(CROWD_PAUSE));
    }
    // Where waiting itself fails (out of memory), each is looked at by itself, and the ladder's own time goes on.
    let gone = processes::wait_any(&held, until).unwrap_or_else(|_| {
        held.iter().enumerate().filter(|(_, held)| held.is_gone()).map(|(at, _)| at).collect()
    });
    let gone: Vec<(usize, ProcessId)> = gone.into_iter().filter_map(|at| places.get(at).copied()).collect();
    let now = scene.now();
    for (at, id) in gone {
        if let Some(climb) = climbs.get_mut(at) {
            climb.gone(id, now);
        }
    }
}
