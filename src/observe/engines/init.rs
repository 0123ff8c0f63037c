//! Which of our processes is a container's first one.
//!
//! The number that an engine gives is one of its own pid namespace: that of an engine in a virtual machine means
//! somebody else here. So a number counts only where the cgroup of its process bears the container's whole id.

#[cfg(any(target_os = "linux", test))]
use bstr::ByteSlice as _;

use crate::model::container::ContainerId;
use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::moment::Moment;

/// Returns who bears the number that an engine gave for a process of a container, and when it began.
#[cfg(target_os = "linux")]
pub(super) fn of_number(pid: Option<Pid>, container: &ContainerId) -> Known<(ProcessId, Moment)> {
    use crate::observe::processes;

    let vanished = || Unknown::new(Reason::Vanished, "its first process");
    let row = processes::bearer(pid.ok_or_else(vanished)?)?;
    let row = row.filter(|row| !row.is_gone()).ok_or_else(foreign)?;
    if bearer(&processes::cgroups(row.id)?).as_ref() != Some(container) {
        return Err(foreign());
    }
    Ok((row.id, row.began))
}

/// Returns who bears the number that an engine gave: nobody of ours, since engines run in a virtual machine here.
#[cfg(not(target_os = "linux"))]
pub(super) fn of_number(_: Option<Pid>, _: &ContainerId) -> Known<(ProcessId, Moment)> {
    Err(foreign())
}

fn foreign() -> Unknown {
    Unknown::new(Reason::Foreign, "its first process, which is none of this system's")
}

/// Returns the container that a process is in, by the text of `/proc/PID/cgroup`: the innermost one whose id stands in
/// a path. Hierarchies that disagree tell nothing.
#[cfg(any(target_os = "linux", test))]
pub(super) fn bearer(text: &[u8]) -> Option<ContainerId> {
    let mut found = None;
    for line in text.lines() {
        let path = line.splitn_str(3, b":").nth(2)?;
        let Some(id) = path.rsplit_str(b"/").find_map(in_name) else { continue };
        if found.as_ref().is_some_and(|found| found != &id) {
            return None;
        }
        found = Some(id);
    }
    found
}

/// Returns the id in a cgroup's name: `ID`, `docker-ID.scope`, `libpod-ID.scope`.
#[cfg(any(target_os = "linux", test))]
fn in_name(name: &[u8]) -> Option<ContainerId> {
    name.split(|byte| !byte.is_ascii_alphanumeric()).find_map(|word| ContainerId::new(word.to_str().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> ContainerId {
        ContainerId::new(&digit.to_string().repeat(64)).unwrap()
    }

    #[test]
    fn an_id_wherever_engines_put_it() {
        let a = id('a');
        let a = a.as_str();
        for text in [
            format!("0::/docker/{a}\n"),
            format!("0::/system.slice/docker-{a}.scope\n"),
            format!(
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{a}.scope/container\n"
            ),
            format!("9:name=systemd:/docker/{a}\n8:pids:/docker/{a}\n0::/\n"),
            format!("0::/docker/{}/docker/{a}\n", id('b').as_str()),
        ] {
            assert_eq!(bearer(text.as_bytes()), Some(id('a')), "{text}");
        }
    }

    #[test]
    fn what_is_no_id_and_what_disagrees_is_nobodys() {
        let (a, b) = (id('a'), id('b'));
        let (a, b) = (a.as_str(), b.as_str());
        for text in [
            "0::/user.slice/session-1.scope\n".to_owned(),
            format!("0::/docker/{}\n", &a[1..]),
            format!("0::/docker/{a}0\n"),
            format!("9:pids:/docker/{a}\n0::/docker/{b}\n"),
            String::new(),
        ] {
            assert_eq!(bearer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_number_that_means_another_here_is_foreign() {
        let own = Pid::new(i32::try_from(std::process::id()).unwrap());
        assert_eq!(of_number(own, &id('a')).unwrap_err().reason, Reason::Foreign);
        assert_eq!(of_number(None, &id('a')).unwrap_err().reason, Reason::Vanished);
    }
}
