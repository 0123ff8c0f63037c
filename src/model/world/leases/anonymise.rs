//! Takes personal details out of leases. Names stay equal where they were equal: a cookie still fits its lease.

use crate::model::lease::{Holder, LeaseId, Leases, Release};

use super::super::anonymise::Anonymiser;

impl Anonymiser {
    /// Cleans all leases of a look. `epoch` is the wall clock that becomes 0, milliseconds.
    pub(in super::super) fn leases(&mut self, leases: &mut Leases, epoch: u64) {
        for lease in &mut leases.list {
            let clean = self.text(lease.id.as_str().as_bytes()).to_string();
            let fresh = |own: &mut Self| own.replaced(lease.id.as_str().as_bytes()).to_string();
            if let Some(id) = LeaseId::new(&clean).or_else(|| LeaseId::new(&fresh(self))) {
                let own = leases.grouped.values_mut().filter(|grouped| **grouped == lease.id);
                own.for_each(|grouped| grouped.clone_from(&id));
                lease.id = id;
            }
            if let Some(cgroup) = lease.run.as_mut().and_then(|run| run.cgroup.as_mut()) {
                cgroup.path = self.text(cgroup.path.as_bytes()).to_string();
            }
            let epoch = i64::try_from(epoch).unwrap_or(i64::MAX).saturating_mul(1_000_000);
            lease.file.modified = lease.file.modified.saturating_sub(epoch);
            lease.holder = lease.holder.as_ref().map(|holder| self.holder(holder));
            lease.covers.env = lease.covers.env.as_ref().map(|env| self.text(env));
            let labels = std::mem::take(&mut lease.labels).into_iter();
            let text = |own: &mut Self, text: &str| own.text(text.as_bytes()).to_string();
            lease.labels = labels.map(|(key, value)| (text(self, &key), text(self, &value))).collect();
            lease.note = None;
            if let Release::Released(reason) = &mut lease.release {
                *reason = reason.as_ref().map(|reason| text(self, reason));
            }
        }
        leases.list.sort_by(|a, b| (a.file.owner, &a.id).cmp(&(b.file.owner, &b.id)));
        for faulty in &mut leases.faulty {
            faulty.stem = self.text(&faulty.stem);
            faulty.why = self.unknown(&faulty.why);
        }
        for cookie in leases.cookies.values_mut() {
            *cookie = self.known(cookie, |own, value| own.text(value));
        }
    }

    /// Cleans who holds something.
    pub(in super::super) fn holder(&mut self, holder: &Holder) -> Holder {
        let mut clean = holder.clone();
        clean.boot = holder.boot.as_ref().map(|boot| self.boot(boot));
        clean.host = holder.host.as_ref().map(|host| self.replaced(host.as_bytes()).to_string());
        clean
    }
}
