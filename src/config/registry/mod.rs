//! `[registry.NAME]`: where others write down who is alive.

mod address;
mod expect;
mod files;
mod http;

use bstr::BStr;
use toml::de::DeTable;

use super::policy::{Origin, Registry, Source};
use super::read::{Key, Node, Reader, in_order};
use super::template::is_name;

/// The breaker's word for the leases of reapd itself; a registry of that name would share its cause.
const RESERVED: &str = "leases";

/// A longer pointer names nothing.
const LONGEST_POINTER: usize = 1024;

/// Reads every registry of a file.
pub(super) fn read(
    reader: &mut Reader<'_>,
    top: &DeTable<'_>,
    home: Option<&BStr>,
    origin: &Origin,
) -> Vec<Registry> {
    let Some(table) = top.get("registry").and_then(|node| reader.table(node, "a section")) else {
        return Vec::new();
    };
    in_order(table).into_iter().filter_map(|(key, node)| registry(reader, key, node, home, origin)).collect()
}

fn registry(
    reader: &mut Reader<'_>,
    key: &Key<'_>,
    node: &Node<'_>,
    home: Option<&BStr>,
    origin: &Origin,
) -> Option<Registry> {
    let name = key.get_ref().as_ref();
    if !is_name(name) {
        reader
            .fault(key.span(), "not a name for a registry")
            .hint("up to 64 lowercase letters, digits and dashes, for example `previews`");
        return None;
    }
    if name == RESERVED {
        reader
            .fault(key.span(), format!("`{RESERVED}` are those of reapd itself"))
            .hint("choose another name; `lease-expired = true` asks for reapd's own leases");
        return None;
    }
    let table = reader.table(node, "a section")?;
    let source = match (table.get("files"), table.get("url")) {
        (Some(places), None) => Source::Files(files::read(reader, key, table, places, home)?),
        (None, Some(url)) => Source::Http(http::read(reader, key, table, url, home)?),
        (Some(_), Some(url)) => {
            let at = url.span();
            reader.fault(at, "a registry is files or a server, not both").hint("write two registries");
            return None;
        }
        (None, None) => {
            reader
                .fault(key.span(), format!("`{name}` has neither `files` nor `url`"))
                .hint("for example files = \"~/.local/state/previews/*.json\", and key = \"/socket\"");
            return None;
        }
    };
    Some(Registry { name: name.to_owned(), origin: origin.clone(), source })
}

/// Reads a JSON pointer (RFC 6901) to something within a record; the whole record has no name here.
pub(in crate::config) fn pointer(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<String> {
    let text = reader.text(node, "a JSON pointer such as \"/socket\"")?;
    if !text.starts_with('/') || text.len() > LONGEST_POINTER || text.chars().any(char::is_control) {
        reader
            .fault(node.span(), "not a JSON pointer")
            .hint("each step begins with `/`: \"/socket\", \"/details/id\", \"/list/0\"");
        return None;
    }
    let bad = text.match_indices('~').find(|(at, _)| !text[at + 1..].starts_with(['0', '1']));
    if let Some((at, _)) = bad {
        let span = reader.within(node, at..at + 1);
        reader.fault(span, "not a JSON pointer").hint("`~0` stands for `~`, and `~1` for `/`");
        return None;
    }
    Some(text.to_owned())
}

/// Reads the pointer of a key that must be given.
fn needed_pointer(
    reader: &mut Reader<'_>,
    section: &Key<'_>,
    table: &DeTable<'_>,
    key: &str,
    hint: &str,
) -> Option<String> {
    let Some(node) = table.get(key) else {
        reader.fault(section.span(), format!("`{}` has no `{key}`", section.get_ref())).hint(hint);
        return None;
    };
    pointer(reader, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what was read of a `[registry.r]`, or what is wrong with it.
    pub(super) fn read_one(text: &str) -> Result<Source, Vec<String>> {
        let text = format!("[registry.r]\n{text}\n");
        let mut reader = Reader::new("f", &text);
        let document = reader.parse().expect("TOML");
        let home = Some(BStr::new("/home/ana"));
        let mut all = super::read(&mut reader, document.get_ref(), home, &Origin::Builtin);
        let faults: Vec<String> = reader.into_faults().into_iter().map(|fault| fault.message).collect();
        if faults.is_empty() { Ok(all.remove(0).source) } else { Err(faults) }
    }

    #[track_caller]
    pub(super) fn refuses(text: &str, why: &str) {
        let faults = read_one(text).expect_err(text);
        assert!(faults.iter().any(|fault| fault.contains(why)), "{text}: {faults:?}");
    }

    #[test]
    fn a_registry_is_files_or_a_server() {
        refuses("", "neither");
        refuses("files = \"/a/*\"\nurl = \"http://127.0.0.1:1/{key}\"", "not both");
        refuses("files = \"/a/*\"\nkey = \"/k\"\nurll = 1", "unknown key");
        refuses("files = \"/a/*\"", "no `key`");
        for bad in ["\"\"", "\"key\"", "\"/a~2\"", "\"/a~\"", "\"/\\u0007\""] {
            refuses(&format!("files = \"/a/*\"\nkey = {bad}"), "pointer");
        }
    }

    #[test]
    fn a_name_is_a_name_and_not_that_of_our_own_leases() {
        for (name, why) in
            [("leases", "reapd itself"), ("Not-A-Name", "not a name"), ("\"a b\"", "not a name")]
        {
            let text = format!("[registry.{name}]\nfiles = \"/a/*\"\nkey = \"/k\"\n");
            let mut reader = Reader::new("f", &text);
            let document = reader.parse().expect("TOML");
            read(&mut reader, document.get_ref(), None, &Origin::Builtin);
            let faults = reader.into_faults();
            assert!(faults.iter().any(|fault| fault.message.contains(why)), "{name}: {faults:?}");
        }
    }
}
