//! Frames between us and the aside process: four bytes of length, little end first, and a postcard body.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest body. A reply holds at most one argument vector and a few paths and variables.
const MOST: usize = 8 * 1024 * 1024;

/// What the front of a buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Front<T> {
    /// A whole frame, and how many bytes it took.
    Whole(T, usize),
    /// Not all of one yet.
    Part,
    /// No frame of ours.
    Broken,
}

/// Appends a frame. A value that will not be written leaves the buffer as it was.
pub(super) fn put(buffer: &mut Vec<u8>, value: &impl Serialize) -> Result<(), postcard::Error> {
    let body = postcard::to_stdvec(value)?;
    let length = u32::try_from(body.len()).map_err(|_| postcard::Error::SerializeBufferFull)?;
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(&body);
    Ok(())
}

/// Reads the frame at the front.
pub(super) fn take<T: DeserializeOwned>(buffer: &[u8]) -> Front<T> {
    let Some((head, rest)) = buffer.split_first_chunk::<4>() else { return Front::Part };
    let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
    if length > MOST {
        return Front::Broken;
    }
    let Some(body) = rest.get(..length) else { return Front::Part };
    match postcard::from_bytes(body) {
        Ok(value) => Front::Whole(value, length + 4),
        Err(_) => Front::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reply, Request};
    use super::*;
    use crate::model::id::{Pid, ProcessId, Start};
    use crate::model::known::{Reason, Unknown};
    use crate::model::question::{Answer, Owner, Question};

    #[test]
    fn frames_come_back_whole_and_in_order() {
        let id = ProcessId { pid: Pid::INIT, start: Start(7) };
        let first = Request::Ask(Question::Path { of: id, path: b"/a\xff".into() });
        let second = Request::Arguments(id);
        let mut buffer = Vec::new();
        put(&mut buffer, &first).unwrap();
        let one = buffer.len();
        put(&mut buffer, &second).unwrap();
        for end in 0..one {
            assert_eq!(take::<Request>(&buffer[..end]), Front::Part);
        }
        assert_eq!(take(&buffer), Front::Whole(first, one));
        assert_eq!(take(&buffer[one..]), Front::Whole(second, buffer.len() - one));
    }

    #[test]
    fn unknowns_travel_with_their_reasons() {
        let replies = [
            Reply::Arguments(Ok(vec!["".into(), b"\xfe".into()])),
            Reply::Answer(Box::new(Err(Unknown::new(Reason::Failed(5), "x")))),
            Reply::Answer(Box::new(Ok(Answer::Owner(Owner::Absent)))),
        ];
        for reply in replies {
            let mut buffer = Vec::new();
            put(&mut buffer, &reply).unwrap();
            assert_eq!(take(&buffer), Front::Whole(reply, buffer.len()));
        }
    }

    #[test]
    fn rubbish_is_broken() {
        assert_eq!(take::<Reply>(&[0xff; 64]), Front::Broken);
        assert_eq!(take::<Reply>(&[1, 0, 0, 0, 99]), Front::Broken);
    }
}
