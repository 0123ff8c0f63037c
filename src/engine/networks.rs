//! Which networks a container is in, and who else is, as answers of an engine tell it.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::{ContainerInspectResponse, ContainerSummary, NetworkInspect};

use super::fault::Fault;
use super::read::{id, required, same};
use crate::model::container::ContainerId;

/// Returns the networks that a container is in, by name, with their ids.
pub(super) fn networks(
    said: ContainerInspectResponse,
    asked: &ContainerId,
) -> Result<BTreeMap<String, String>, Fault> {
    same(said.id, asked)?;
    let networks = required(said.network_settings, "NetworkSettings")?.networks.unwrap_or_default();
    let mut found = BTreeMap::new();
    let networks: BTreeMap<_, _> = networks.into_iter().collect();
    for (name, endpoint) in networks {
        let id = required(endpoint.network_id, "NetworkID")?;
        // Where a container has ended, some engines leave it empty: then nobody can say which network it was.
        if id.is_empty() {
            continue;
        }
        if !is_network_id(&id) {
            return Err(Fault::malformed("no id of a network"));
        }
        found.insert(name, id);
    }
    Ok(found)
}

/// Says whether a text is a network's id, and nothing that would lead elsewhere in a path.
pub(super) fn is_network_id(text: &str) -> bool {
    (25..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns which other containers are in a network: by the list of all, since the network itself names only those that
/// run, and by the network.
pub(super) fn others(
    rows: &[ContainerSummary],
    network: &NetworkInspect,
    own: &ContainerId,
    (name, asked): (&str, &str),
) -> Result<Vec<ContainerId>, Fault> {
    if network.id.as_deref() != Some(asked) {
        return Err(Fault::malformed("the engine answers for another network"));
    }
    let mut others = BTreeSet::new();
    for row in rows {
        let networks = row.network_settings.as_ref().and_then(|settings| settings.networks.as_ref());
        let is_in = networks.is_some_and(|networks| {
            networks.contains_key(name)
                || networks.values().any(|endpoint| endpoint.network_id.as_deref() == Some(asked))
        });
        if is_in {
            others.insert(id(row.id.clone())?);
        }
    }
    for key in network.containers.iter().flat_map(|containers| containers.keys()) {
        let other = ContainerId::new(key);
        others
            .insert(other.ok_or_else(|| Fault::malformed("something is in a network that is no container"))?);
    }
    others.remove(own);
    Ok(others.into_iter().collect())
}
