//! The bytes that tests send.

/// Bytes that differ from noise, and do not repeat.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).flat_map(|i| (i * 0x9E37_79B9).to_be_bytes()).take(len).collect()
}
