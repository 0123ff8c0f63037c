//! Which policies apply to whom, and what belongs to each tree. Protected roots drop out here.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{Config, GlobPart, Match, Offer, Policy};
use crate::config::{fits_shape, program_name, written_out};
use crate::model::facts::Facts;
use crate::model::id::{Pid, ProcessId};
use crate::model::look::Look;
use crate::model::ownership::{Parentage, descendants, parentage};
use crate::model::table::Row;

use super::case::{Other, Standing};
use super::leased::{self, Roots};
use super::mcp;
use super::protect;

/// Everybody that a policy looks at, one entry per tree and policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidates {
    /// Sorted by root, then policy.
    pub list: Vec<Candidate>,
    /// Everybody that fits, as rules that join processes see them: protected ones and inner ones as well.
    pub others: Vec<Other>,
}

/// One tree that one policy looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The root.
    pub root: ProcessId,
    /// Its place in [`Config::judged`].
    pub policy: usize,
    /// The root and everybody who counts as inside; see [`super::case::Case::tree`].
    pub tree: Vec<ProcessId>,
}

impl Candidate {
    /// Returns the policy that looks at it.
    pub fn policy<'a>(&self, config: &'a Config) -> &'a Policy {
        policy(config, self.policy)
    }
}

/// Returns the policy at this place of [`Config::judged`].
fn policy(config: &Config, at: usize) -> &Policy {
    match at.checked_sub(config.policies.len()) {
        None => &config.policies[at],
        Some(at) => &config.offered[at],
    }
}

/// Returns who is looked at by which policy.
///
/// Matching goes by the argument vectors of the snapshot, which may be stale: they only narrow the search.
/// [`still_fits`] repeats it on freshly read facts before anything is weighed.
pub fn candidates(look: &Look, config: &Config) -> Candidates {
    let table = &look.snapshot.table;
    let fixed = protect::Fixed::new(look);
    let index = Index::new(config);
    let leased = Roots::new(look);
    let mut matched: Vec<(ProcessId, usize)> = Vec::new();
    let mut protected: BTreeSet<ProcessId> = BTreeSet::new();
    let mut fitting = Vec::new();
    for arguments in &look.snapshot.arguments {
        let Some(row) = table.get(arguments.id) else { continue };
        let argv: &[BString] = arguments.argv.as_deref().unwrap_or_default();
        index.fitting(look, &leased, row, argv, &mut fitting);
        // Whom no policy concerns, nobody needs to protect: most end here.
        if fitting.is_empty() || row.is_gone() {
            continue;
        }
        if fixed.protects(look, row).is_some() {
            protected.insert(row.id);
        }
        matched.extend(fitting.iter().map(|&policy| (row.id, policy)));
    }
    let trees = trees(look, &matched);
    let mut candidates = Candidates::default();
    for &(root, at) in &matched {
        let policy = policy(config, at);
        let within = |other: &(ProcessId, usize)| {
            other.1 == at
                && other.0 != root
                && !protected.contains(&other.0)
                && trees.get(&other.0).is_some_and(|tree| tree.contains(&root))
        };
        // Two matches of one policy that hold each other (a session leader and its own leader) keep the lower pid.
        let outermost = !matched.iter().any(|other| {
            within(other) && (other.0 < root || !trees.get(&root).is_some_and(|tree| tree.contains(&other.0)))
        });
        let tree = trees.get(&root).cloned().unwrap_or_else(|| vec![root]);
        let captures = look
            .arguments(root)
            .and_then(|arguments| arguments.argv.as_deref().ok())
            .map(|argv| captures(policy, look, root, argv, None))
            .unwrap_or_default();
        let standing = if protected.contains(&root) { Standing::Protected } else { Standing::Judged };
        // Nobody is joined with what is only offered: it is as good as not there.
        if policy.offer == Offer::No {
            candidates.others.push(Other {
                policy: policy.name.clone(),
                root,
                captures,
                tree: tree.clone(),
                standing,
            });
        }
        if outermost && standing == Standing::Judged {
            candidates.list.push(Candidate { root, policy: at, tree });
        }
    }
    candidates
}

/// The forms of all policies, by the program's name where that is a plain word: a host of thousands of processes is
/// matched at a look-up each.
struct Index<'a> {
    by_name: BTreeMap<&'a [u8], Vec<(usize, &'a Match)>>,
    others: Vec<(usize, &'a Match)>,
}

impl<'a> Index<'a> {
    fn new(config: &'a Config) -> Index<'a> {
        let mut index = Index { by_name: BTreeMap::new(), others: Vec::new() };
        for (at, policy) in config.judged().enumerate() {
            for form in &policy.matches {
                let Match::Shape { programs, .. } = form else {
                    index.others.push((at, form));
                    continue;
                };
                let words: Option<Vec<&[u8]>> = programs
                    .iter()
                    .map(|glob| match glob.parts.as_slice() {
                        [GlobPart::Literal(word)] => Some(word.as_slice()),
                        _ => None,
                    })
                    .collect();
                match words {
                    Some(words) => {
                        for word in words {
                            index.by_name.entry(word).or_default().push((at, form));
                        }
                    }
                    None => index.others.push((at, form)),
                }
            }
        }
        index
    }

    /// Puts into `found` the policies that may concern a process, each once.
    fn fitting(&self, look: &Look, leased: &Roots<'_>, row: &Row, argv: &[BString], found: &mut Vec<usize>) {
        found.clear();
        let written = written_out(argv);
        let named = written.first().map(|first| program_name(first.as_bstr()));
        // The command name finds those that put something else into argv[0], as the executable's name does later.
        let by_name = named
            .and_then(|name| self.by_name.get(name.as_bytes()))
            .into_iter()
            .chain(self.by_name.get(row.name()))
            .flatten();
        for &(policy, form) in by_name.chain(&self.others) {
            if !found.contains(&policy) && may_fit(form, look, leased, row, argv) {
                found.push(policy);
            }
        }
    }
}

/// Returns the values of a policy's captures for one process; those that cannot be filled are left out.
///
/// `{pid}`, `{cwd}` and `{user}` are always there, as far as they are known.
pub fn captures(
    policy: &Policy,
    look: &Look,
    root: ProcessId,
    argv: &[BString],
    facts: Option<&Facts>,
) -> BTreeMap<String, BString> {
    let none = BTreeMap::new();
    let env = facts.and_then(|facts| facts.env.as_ref().ok()).unwrap_or(&none);
    let mut values = crate::config::capture::capture(&policy.captures, argv, env);
    values.extend(leased::labels(policy, look, root));
    values.insert("pid".into(), root.pid.to_string().into());
    if let Some(cwd) = facts.and_then(|facts| facts.cwd.as_ref().ok()) {
        values.insert("cwd".into(), cwd.path.clone());
    }
    if let Some(arguments) = look.arguments(root) {
        values.insert("user".into(), arguments.uid.to_string().into());
    }
    values
}

/// Says whether freshly read facts still fit the policy. Unknown facts do not.
pub fn still_fits(policy: &Policy, look: &Look, row: &Row, facts: &Facts) -> bool {
    policy.matches.iter().any(|form| match form {
        Match::Leased => leased::may_be_root(look, row, facts),
        Match::Shape { .. } | Match::McpConfigured => facts.argv.as_ref().is_ok_and(|argv| {
            let exe = facts.exe.as_ref().ok().map(|exe| exe.path.as_bstr());
            fits(form, look, argv, exe)
        }),
        Match::Roots(roots) => {
            adopted(look, row)
                && facts
                    .cwd
                    .as_ref()
                    .is_ok_and(|cwd| roots.iter().any(|root| is_below(cwd.path.as_bstr(), root)))
        }
    })
}

fn may_fit(form: &Match, look: &Look, leased: &Roots<'_>, row: &Row, argv: &[BString]) -> bool {
    match form {
        Match::Shape { .. } | Match::McpConfigured => fits(form, look, argv, Some(row.name().as_bstr())),
        Match::Leased => leased.may_hold(look, row),
        // Where it stands is not known yet; only those without a living parent can be roots of such a tree.
        Match::Roots(_) => adopted(look, row),
    }
}

fn fits(form: &Match, look: &Look, argv: &[BString], exe: Option<&BStr>) -> bool {
    match form {
        Match::Shape { programs, args } => fits_shape(programs, args.as_deref(), exe, argv),
        Match::McpConfigured => look.snapshot.configured.iter().any(|server| mcp::is_server(server, argv)),
        Match::Roots(_) | Match::Leased => false,
    }
}

fn adopted(look: &Look, row: &Row) -> bool {
    match parentage(&look.snapshot.table, &look.reapers, row) {
        Parentage::Adopted(_) | Parentage::None => true,
        Parentage::Living(_) => false,
    }
}

/// Says whether `path` lies strictly below a directory that fits `root`, at a component boundary (CASES B31).
pub fn is_below(path: &BStr, root: &crate::config::policy::Glob) -> bool {
    path.char_indices()
        .filter(|&(start, _, letter)| letter == '/' && start > 0)
        .any(|(start, _, _)| root.fits(path[..start].as_bstr()))
}

/// Returns for each matched root who counts as inside its tree.
///
/// Descendants do, and adopted ones in a session that somebody inside leads: a session passes to nobody but descendants
/// (setsid(2)). A process group may hold the user's own work of the same job (`server | my-analysis`, REDTEAM F4), also
/// after the shell that joined the two is gone, so a group makes nobody inside: who reads the server's output, or is
/// connected to it, is then somebody outside. These are the same sessions that plan recruits from, so that nobody goes
/// with a tree who was not looked at for vetoes.
fn trees(look: &Look, matched: &[(ProcessId, usize)]) -> BTreeMap<ProcessId, Vec<ProcessId>> {
    let table = &look.snapshot.table;
    let mut adopted: BTreeMap<i32, Vec<&Row>> = BTreeMap::new();
    for row in table.rows() {
        if row.sid > 0
            && row.sid != row.id.pid.number()
            && matches!(parentage(table, &look.reapers, row), Parentage::Adopted(_))
        {
            adopted.entry(row.sid).or_default().push(row);
        }
    }
    let mut trees = BTreeMap::new();
    for &(root, _) in matched {
        // Two policies may match one root.
        if trees.contains_key(&root) {
            continue;
        }
        let mut tree = descendants(table, root);
        let mut inside: BTreeSet<Pid> = tree.iter().map(|id| id.pid).collect();
        let mut at = 0;
        // The tree grows while it is walked: who joins may lead a session too.
        while let Some(leader) = tree.get(at) {
            for row in adopted.get(&leader.pid.number()).into_iter().flatten() {
                if inside.contains(&row.id.pid) || row.id.start < root.start {
                    continue;
                }
                for id in descendants(table, row.id) {
                    if inside.insert(id.pid) {
                        tree.push(id);
                    }
                }
            }
            at += 1;
        }
        tree.retain(|&id| id == root || table.get(id).is_some_and(|row| !row.is_gone()));
        trees.insert(root, tree);
    }
    trees
}
