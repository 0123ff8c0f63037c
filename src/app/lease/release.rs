//! `reapd lease release` and `renew`: says that a lease is over, or that it is still wanted.

use serde_json::json;

use super::store::Released;
use super::wait;
use super::{id_of, own_store, store_trouble};
use crate::app::exit::Exit;
use crate::app::report::json::SCHEMA;
use crate::app::session::Session;
use crate::app::trouble::Trouble;
use crate::app::words;
use crate::model::escape::escape;

/// Runs `reapd lease renew`.
pub(super) fn renew(session: &mut Session, id: &str) -> Result<Exit, Trouble> {
    let id = id_of(id)?;
    own_store(session)?.renew(&id).map_err(|error| store_trouble(&error))?;
    if session.place.json {
        session.json(&json!({ "schema": SCHEMA, "id": id.as_str() }));
    }
    Ok(Exit::Done)
}

/// Runs `reapd lease release`.
pub(super) fn release(session: &mut Session, id: &str, wait: Option<&str>) -> Result<Exit, Trouble> {
    let id = id_of(id)?;
    let patience = wait
        .map(|text| {
            words::parse_span(text).ok_or_else(|| {
                Trouble::usage(format!("'{}' is no span of time", escape(text.as_bytes())))
                    .hint("write 10s, 2m or 1h")
            })
        })
        .transpose()?;
    let Some(patience) = patience else {
        let store = own_store(session)?;
        let released = store.release(&id, None).map_err(|error| store_trouble(&error))?;
        if session.place.json {
            let before = released == Released::Before;
            session.json(&json!({ "schema": SCHEMA, "id": id.as_str(), "before": before }));
        } else if released == Released::Before {
            session.talk(&format!("lease {id} was released before"));
        }
        return Ok(Exit::Done);
    };
    wait::release_and_wait(session, &id, patience)
}
