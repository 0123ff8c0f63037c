//! `[docker]`: which container engines are looked at, and how.

use bstr::{BStr, ByteSlice as _};
use toml::de::{DeTable, DeValue};

use super::pattern::expand;
use super::policy::{Docker, Sockets, StdinReader};
use super::read::{Node, Reader, one_or_more};
use super::settings::program;

/// The keys of the section.
pub(super) const KEYS: [&str; 3] = ["socket", "stdin", "watchers"];

/// Reads the section.
pub(super) fn read(reader: &mut Reader<'_>, table: &DeTable<'_>, home: Option<&BStr>) -> Docker {
    let mut docker = Docker::default();
    if let Some(sockets) = table.get("socket").and_then(|node| sockets(reader, node, home)) {
        docker.sockets = sockets;
    }
    let word = table.get("stdin").and_then(|node| reader.word(node, &["auto", "helper", "off"]));
    docker.stdin = match word {
        Some("helper") => StdinReader::Helper,
        Some("off") => StdinReader::Off,
        Some(_) | None => StdinReader::Auto,
    };
    if let Some(node) = table.get("watchers") {
        for element in reader.list(node, "a list of program names").unwrap_or_default() {
            let Some(glob) = program(reader, element) else { continue };
            if glob.is_open() {
                reader
                    .fault(element.span(), "this would call every client a watcher")
                    .hint("name the program that only watches, for example \"portainer\"");
                continue;
            }
            docker.watchers.push(glob);
        }
    }
    docker
}

fn sockets(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<Sockets> {
    if let DeValue::String(word) = node.get_ref() {
        match word.as_ref() {
            "auto" => return Some(Sockets::Auto),
            "off" => return Some(Sockets::Off),
            _ => {}
        }
    }
    let elements = one_or_more(node);
    if elements.is_empty() {
        reader.fault(node.span(), "an empty list").hint("\"off\" looks at no engine");
        return None;
    }
    let mut paths = Vec::new();
    for element in elements {
        let path = socket(reader, element, home)?;
        if paths.contains(&path) {
            reader.fault(element.span(), format!("`{path}` stands here twice"));
            return None;
        }
        paths.push(path);
    }
    Some(Sockets::These(paths))
}

fn socket(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<String> {
    let text = reader.text(node, "\"auto\", \"off\" or the path of a socket")?;
    let bare = text.strip_prefix("unix://").unwrap_or(text);
    let fault = match expand(bare, home) {
        Ok(path) if path.starts_with(b"/") => match path.to_str() {
            Ok(path) => return Some(path.to_owned()),
            Err(_) => "not a path in UTF-8".to_owned(),
        },
        Ok(_) if text.contains("://") => format!("`{text}` is not a socket of this machine"),
        Ok(_) => format!("`{text}` is neither \"auto\" nor \"off\" nor a whole path"),
        Err(why) => why,
    };
    reader.fault(node.span(), fault).hint("for example \"/var/run/docker.sock\"");
    None
}
