//! Reads numbers and text out of kernel structures by documented offset, never past the end of what was returned.

/// Returns `N` bytes at `offset`, or nothing where the record is too short for them.
fn field<const N: usize>(record: &[u8], offset: usize) -> Option<[u8; N]> {
    record.get(offset..)?.first_chunk::<N>().copied()
}

/// Returns a byte.
pub(super) fn u8_at(record: &[u8], offset: usize) -> Option<u8> {
    record.get(offset).copied()
}

/// Returns a 16-bit number in the machine's order; every Mac that runs is little-endian.
pub(super) fn u16_at(record: &[u8], offset: usize) -> Option<u16> {
    field(record, offset).map(u16::from_le_bytes)
}

/// Returns a 32-bit number.
pub(super) fn u32_at(record: &[u8], offset: usize) -> Option<u32> {
    field(record, offset).map(u32::from_le_bytes)
}

/// Returns a signed 32-bit number.
pub(super) fn i32_at(record: &[u8], offset: usize) -> Option<i32> {
    field(record, offset).map(i32::from_le_bytes)
}

/// Returns a 64-bit number.
pub(super) fn u64_at(record: &[u8], offset: usize) -> Option<u64> {
    field(record, offset).map(u64::from_le_bytes)
}

/// Returns the text in a field of `length` bytes, up to its first NUL.
pub(super) fn text_at(record: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    let bytes = record.get(offset..offset.checked_add(length)?)?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(length);
    Some(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_past_the_end() {
        assert_eq!(u32_at(&[1, 0, 0, 0], 0), Some(1));
        assert_eq!(u32_at(&[1, 0, 0, 0], 1), None);
        assert_eq!(u64_at(&[], usize::MAX), None);
        assert_eq!(text_at(b"ab\0d", 0, 4), Some(&b"ab"[..]));
        assert_eq!(text_at(b"abcd", 0, 4), Some(&b"abcd"[..]));
        assert_eq!(text_at(b"abcd", 1, usize::MAX), None);
    }
}
