//! Root goes where a user's paths lead only with that user's ids: what the user may not reach is not reached for him.

use rustix::process::{Gid, Uid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::model::known::Known;
use crate::observe::descriptors::why;
use crate::observe::processes;

/// Does something with the effective ids of a user and without supplementary groups, and takes our own back. Who is
/// not root does it as he is. Only this thread is meant, and the aside process has one.
pub(super) fn as_user<T>(user: u32, group: u32, work: impl FnOnce() -> Known<T>) -> Known<T> {
    if !geteuid().is_root() || user == 0 {
        return work();
    }
    let what = "taking the ids of a user";
    let groups = getgroups().map_err(|errno| why(errno, what))?;
    let root = (Uid::ROOT, Gid::ROOT);
    let gid = Gid::from_raw_unchecked(group);
    let uid = Uid::from_raw_unchecked(user);
    let taken = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(root.1, gid, root.1))
        .and_then(|()| set_thread_res_uid(root.0, uid, root.0));
    let done = match taken {
        Ok(()) => work(),
        Err(errno) => Err(why(errno, what)),
    };
    let back = set_thread_res_uid(root.0, root.0, root.0)
        .and_then(|()| set_thread_res_gid(root.1, root.1, root.1))
        .and_then(|()| set_thread_groups(&groups));
    if back.is_err() {
        // Without our own ids nothing that is read after this would mean what it should.
        std::process::abort();
    }
    // The kernel forgets whose death ends us when ids change (prctl(2), PR_SET_PDEATHSIG).
    processes::prepare_aside();
    done
}
