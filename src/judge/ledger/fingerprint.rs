//! Tells what was asked apart from what is asked now.

/// Returns a number that tells conditions with different settings apart (FNV-1a): all it is for is to notice that the
/// configuration was changed between two looks.
pub(in crate::judge) fn fingerprint(asked: &impl std::fmt::Debug) -> u64 {
    format!("{asked:?}").bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
