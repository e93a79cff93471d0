//! Bits and bytes: bit i of a value is bit `i mod 8` of byte `i div 8`.

/// The bits of bytes.
pub fn of_bytes(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> i & 1 == 1)).collect()
}

/// The bytes of bits; the missing bits of the last byte are 0.
pub fn to_bytes(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    bits.chunks(8).map(byte).collect()
}
