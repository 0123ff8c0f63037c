//! Spans of time as people write them: `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"7d"`.

use std::time::Duration;

/// The units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest span that may be written: a hundred years. Beyond it sums of spans could overflow somewhere.
const LONGEST: Duration = Duration::from_hours(36_525 * 24);

/// Returns the span, or what is wrong with the text.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("a span begins with a whole number");
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err("a span ends in `ms`, `s`, `m`, `h` or `d`");
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*scale))
        .map(Duration::from_millis)
        .filter(|span| *span <= LONGEST)
        .ok_or("a span is a hundred years at most")
}

/// Returns the span as it would be written, in the largest unit that divides it. Parts of a millisecond are left
/// out.
pub fn format(span: Duration) -> String {
    let millis = span.as_millis();
    let unit = UNITS.iter().find(|(_, scale)| millis > 0 && millis.is_multiple_of(u128::from(*scale)));
    unit.map_or_else(|| "0s".to_owned(), |(name, scale)| format!("{}{name}", millis / u128::from(*scale)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_units() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(parse("2h"), Ok(Duration::from_hours(2)));
        assert_eq!(parse("7d"), Ok(Duration::from_hours(168)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_no_span() {
        for text in
            ["", "s", "5", "-5s", "5 s", "1.5h", "5S", "1h30m", "99999999999999999999s", "40000d", "٣s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_largest_unit_that_divides() {
        assert_eq!(format(Duration::from_secs(90)), "90s");
        assert_eq!(format(Duration::from_hours(2)), "2h");
        assert_eq!(format(Duration::ZERO), "0s");
        assert_eq!(format(Duration::from_millis(1500)), "1500ms");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(millis in 0_u64..3_000_000_000_000) {
            let span = Duration::from_millis(millis);
            prop_assert_eq!(parse(&format(span)), Ok(span));
        }

        #[test]
        fn any_text_is_read_without_panic(text in ".*") {
            let _ = parse(&text);
        }
    }
}
