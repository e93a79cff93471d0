//! What tests send.

/// Bytes that are easily told from noise, and from each other at any distance.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).flat_map(|i| (i * 0x9E37_79B9).to_be_bytes()).take(len).collect()
}
