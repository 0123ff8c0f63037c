//! Writes what descriptors are, and who holds their far ends.

use crate::model::look::Look;
use crate::model::question::{Census, Channel, ChannelKind, FarEnd, Holders, TerminalFate};

use super::super::words::{known, quote};
use super::name;

pub(super) fn channel_words(channel: &Channel) -> String {
    let kind = match &channel.kind {
        ChannelKind::Pipe { inode } => format!("pipe:{inode}"),
        ChannelKind::Stream { inode } => format!("stream:{inode}"),
        ChannelKind::NamedFifo => "fifo".to_owned(),
        ChannelKind::Terminal(TerminalFate::Present) => "terminal".to_owned(),
        ChannelKind::Terminal(TerminalFate::Deleted) => "terminal-deleted".to_owned(),
        ChannelKind::Null => "null".to_owned(),
        ChannelKind::File => "file".to_owned(),
        ChannelKind::Listener => "listener".to_owned(),
        ChannelKind::Unconnected => "unconnected".to_owned(),
        ChannelKind::Closed => "closed".to_owned(),
        ChannelKind::Other(text) => format!("other:{}", quote(text.as_bytes())),
    };
    let far = known(&channel.far, |far| {
        match far {
            FarEnd::Gone => "gone",
            FarEnd::Held => "held",
        }
        .to_owned()
    });
    format!("{kind} {far} unread={}", known(&channel.unread, ToString::to_string))
}

pub(super) fn holder_words(look: &Look, holders: &Holders) -> String {
    let seen: String = holders.seen.iter().flat_map(|id| [name(look, *id), " ".to_owned()]).collect();
    match holders.census {
        Census::Whole => format!("{seen}census=whole"),
        Census::Partial(count) => format!("{seen}census=partial/{count}"),
    }
}
