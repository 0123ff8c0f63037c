//! Figures as people read them: sizes, ages, counts and paths.

use std::time::Duration;

use bstr::{BStr, ByteSlice as _};

use crate::model::escape::escape;

/// Returns a size in the decimal units that disks and memory are sold by, e.g. "812 MB".
pub fn size(bytes: u64) -> String {
    const KB: u64 = 1_000;
    const MB: u64 = 1_000_000;
    // From here on a megabyte figure would have four digits or round up to them.
    const GB: u64 = 999_500_000;
    if bytes >= GB {
        let tenths = bytes.saturating_add(50 * MB) / (100 * MB);
        format!("{}.{} GB", tenths / 10, tenths % 10)
    } else if bytes >= MB {
        format!("{} MB", (bytes + MB / 2) / MB)
    } else {
        format!("{} kB", bytes.div_ceil(KB))
    }
}

/// Returns an age by its two greatest units, e.g. "3d 7h".
pub fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    if days > 0 {
        format!("{days}d {hours}h")
    } else if hours > 0 {
        format!("{hours}h {minutes}m")
    } else if minutes > 0 {
        format!("{minutes}m {}s", seconds % 60)
    } else {
        format!("{seconds}s")
    }
}

/// Returns a short span, e.g. "10 s" or "41 ms".
pub fn span(span: Duration) -> String {
    let millis = span.as_millis();
    if millis < 1_000 {
        format!("{millis} ms")
    } else if millis < 10_000 && !millis.is_multiple_of(1_000) {
        format!("{}.{} s", millis / 1_000, millis / 100 % 10)
    } else if span.as_secs() < 120 {
        format!("{} s", span.as_secs())
    } else {
        age(span)
    }
}

/// Returns a number with its thousands set apart.
pub fn number(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count with its noun, e.g. "1 tree" and "2 trees".
pub fn count(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// Returns a path for a screen: escaped, the home directory as `~`.
pub fn path(path: &BStr, home: Option<&BStr>) -> String {
    if let Some(home) = home.filter(|home| home.len() > 1)
        && let Some(rest) = path.strip_prefix(home.as_bytes())
        && (rest.is_empty() || rest.starts_with(b"/"))
    {
        return format!("~{}", escape(rest));
    }
    escape(path)
}

/// Returns running text with the home directory as `~`, wherever a path of it begins.
pub fn homely(text: &str, home: Option<&BStr>) -> String {
    let Some(home) = home.and_then(|home| home.to_str().ok()).filter(|home| home.len() > 1) else {
        return text.to_owned();
    };
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(home) {
        let (before, after) = (&rest[..at], &rest[at + home.len()..]);
        shown.push_str(before);
        let begins = !before.ends_with(|letter: char| letter.is_alphanumeric() || "/._-~".contains(letter));
        let ends = !after.starts_with(|letter: char| letter.is_alphanumeric() || "._-".contains(letter));
        shown.push_str(if begins && ends { "~" } else { home });
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Returns a moment of the wall clock in UTC, e.g. "2026-03-14 15:09:26Z".
///
/// In UTC, since reading time zone files is a library of its own and a journal is compared across machines.
pub fn date(millis: u64) -> String {
    let seconds = millis / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years: leap days fall at the end of each computed year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// Returns the span that text such as "30s", "2h" or "2d" means.
pub fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let count: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    count.checked_mul(unit).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_at_most() {
        assert_eq!(size(0), "0 kB");
        assert_eq!(size(4_096), "5 kB");
        assert_eq!(size(812_300_000), "812 MB");
        assert_eq!(size(999_600_000), "1.0 GB");
        assert_eq!(size(15_100_000_000), "15.1 GB");
        assert_eq!(size(u64::MAX), "18446744073.7 GB");
    }

    #[test]
    fn ages_and_counts() {
        assert_eq!(age(Duration::from_secs(3 * 86_400 + 7 * 3_600 + 59)), "3d 7h");
        assert_eq!(age(Duration::from_secs(65)), "1m 5s");
        assert_eq!(span(Duration::from_millis(41)), "41 ms");
        assert_eq!(span(Duration::from_millis(4_150)), "4.1 s");
        assert_eq!(span(Duration::from_secs(10)), "10 s");
        assert_eq!(number(1_842), "1,842");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(count(1, "tree", "trees"), "1 tree");
    }

    #[test]
    fn home_is_a_whole_element() {
        let home = Some(BStr::new("/home/ana"));
        assert_eq!(path(BStr::new("/home/ana/src"), home), "~/src");
        assert_eq!(path(BStr::new("/home/anabel"), home), "/home/anabel");
        assert_eq!(homely("/home/ana/x and /home/anabel: deleted", home), "~/x and /home/anabel: deleted");
        assert_eq!(homely("/mnt/home/ana/x", home), "/mnt/home/ana/x");
        assert_eq!(path(BStr::new("/x\n"), None), "/x\\n");
    }

    #[test]
    fn dates_of_leap_years() {
        assert_eq!(date(0), "1970-01-01 00:00:00Z");
        assert_eq!(date(951_782_399_000), "2000-02-28 23:59:59Z");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00Z");
        assert_eq!(date(1_773_500_966_000), "2026-03-14 15:09:26Z");
    }

    #[test]
    fn spans_as_written() {
        assert_eq!(parse_span("2d"), Some(Duration::from_secs(172_800)));
        assert_eq!(parse_span("90s"), Some(Duration::from_secs(90)));
        for wrong in ["", "d", "2", "2 d", "-1s", "99999999999999999999d", "2ä"] {
            assert_eq!(parse_span(wrong), None, "{wrong}");
        }
    }
}
