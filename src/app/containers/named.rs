//! Finds a container by what a person calls it: its name, its id, or enough of its id.

use crate::app::legible;
use crate::app::trouble::Trouble;
use crate::model::container::{ContainerRef, Engine, Listed};

/// So many digits of an id, at least, are taken for one: fewer are soon another's.
const DIGITS: usize = 4;

/// Returns the container that is called this; nothing where there is none. Where there are several, says which.
pub fn named<'a>(engines: &'a [Engine], text: &str) -> Result<Option<(ContainerRef, &'a Listed)>, Trouble> {
    let all: Vec<(ContainerRef, &Listed)> = listed(engines).collect();
    let by = |fits: &dyn Fn(&(ContainerRef, &Listed)) -> bool| -> Vec<(ContainerRef, &'a Listed)> {
        all.iter().filter(|one| fits(one)).cloned().collect()
    };
    // A name goes first, as with the engines' own clients.
    let name = text.strip_prefix('/').unwrap_or(text);
    let mut found = by(&|(_, listed)| listed.names.iter().any(|known| known == name));
    if found.is_empty() && is_part_of_id(text) {
        found = by(&|(at, _)| at.id.as_str().starts_with(text));
    }
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => Ok(Some(one)),
        (Some((one, _)), Some((other, _))) => Err(Trouble::failed(format!(
            "'{}' is more than one container: {} at {}, {} at {}",
            legible::text(text),
            one.id,
            legible::text(&one.engine.0),
            other.id,
            legible::text(&other.engine.0),
        ))
        .hint("give more of its id")),
    }
}

/// Says whether a text is the beginning of an id.
pub fn is_part_of_id(text: &str) -> bool {
    (DIGITS..=64).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns every container of every engine that answered.
pub fn listed(engines: &[Engine]) -> impl Iterator<Item = (ContainerRef, &Listed)> {
    engines.iter().flat_map(|engine| {
        let containers = engine.containers.as_ref().map(Vec::as_slice).unwrap_or_default();
        containers
            .iter()
            .map(|listed| (ContainerRef { engine: engine.id.clone(), id: listed.id.clone() }, listed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::container::{EngineId, sample};
    use crate::model::known::{Reason, Unknown};

    fn engine(socket: &str, numbers: &[u32]) -> Engine {
        Engine {
            id: EngineId(socket.into()),
            from: "a usual place".into(),
            kind: Err(Unknown::new(Reason::NotAsked, "kind")),
            containers: Ok(numbers.iter().map(|&number| sample::listed(number)).collect()),
        }
    }

    fn found(engines: &[Engine], text: &str) -> Option<String> {
        named(engines, text).unwrap().map(|(at, _)| format!("{} {at}", at.engine))
    }

    #[test]
    fn by_name_by_id_and_by_enough_of_it() {
        let mut engines = [engine("/a", &[0xaaaa_1111, 0xaaaa_2222]), engine("/b", &[])];
        engines[1].containers = Err(Unknown::new(Reason::Hung, "the engine"));
        let name = sample::listed(0xaaaa_1111).names[0].clone();
        let whole = sample::id(0xaaaa_1111);
        for text in [name.as_str(), &format!("/{name}"), whole.as_str(), whole.short(), "0000aaaa1"] {
            assert_eq!(found(&engines, text).as_deref(), Some("/a 0000aaaa1111"), "{text}");
        }
        for text in ["0000b", "helper", "000", "", "0000AAAA1"] {
            assert_eq!(found(&engines, text), None, "{text}");
        }
        let many = named(&engines, "0000aaaa").unwrap_err();
        assert!(many.what.contains("more than one"), "{many:?}");
    }

    #[test]
    fn one_name_on_two_engines_is_nobodys() {
        let engines = [engine("/a", &[1]), engine("/b", &[1])];
        assert!(named(&engines, "helper-1").is_err());
    }

    /// A container may be called as another one's id begins; its engine's own client takes the name.
    #[test]
    fn a_name_goes_before_an_id() {
        let mut engines = [engine("/a", &[1, 2])];
        let listed = engines[0].containers.as_mut().unwrap();
        listed[1].names = vec!["0000".into()];
        assert_eq!(found(&engines, "0000").as_deref(), Some("/a 000000000002"));
    }
}
