//! "Did you mean …?"

/// Longer names are not compared; the table would grow with the square.
const LONGEST: usize = 48;

/// Returns the known name that was probably meant: the same but for dashes and underscores, or at most a third of
/// its letters away.
pub(super) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    let name = plain(name);
    known
        .map(|other| (distance(&name, &plain(other)), other))
        .filter(|(distance, other)| *distance * 3 <= other.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// Returns how many letters must be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, there) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *there);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["min-age", "looks", "apart"];
        let near = |name| nearest(name, known.into_iter());
        assert_eq!(near("min_age"), Some("min-age"));
        assert_eq!(near("MinAge"), Some("min-age"));
        assert_eq!(near("lokos"), None);
        assert_eq!(near("look"), Some("looks"));
        assert_eq!(near("xyz"), None);
        assert_eq!(near(""), None);
        assert_eq!(near(&"a".repeat(10_000)), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
