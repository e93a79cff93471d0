//! Conversion between bits as bytes of 0 or 1 and packed bits. Packed, bit i is bit i mod 64 of
//! word i / 64. The words are little-endian in bytes, so bit i is bit i mod 8 of byte i / 8.

/// Packs bytes of 0 or 1.
pub(super) fn pack(bits: &[u8; 64]) -> u64 {
    let (eights, _) = bits.as_chunks();
    let packed = eights.iter().enumerate();
    packed.fold(0, |word, (at, eight)| word | pack_byte(*eight) << (8 * at))
}

/// Packs eight bytes: the product has byte i's bit at 56 + i, and all others elsewhere.
fn pack_byte(bits: [u8; 8]) -> u64 {
    u64::from_le_bytes(bits).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// The bits of a word, as bytes of 0 or 1.
pub(super) fn unpack(word: u64) -> [u8; 64] {
    let mut bits = [0; 64];
    let (eights, _) = bits.as_chunks_mut();
    for (eight, byte) in eights.iter_mut().zip(word.to_le_bytes()) {
        *eight = unpack_byte(byte);
    }
    bits
}

/// The bits of a byte: byte i of the sum is at least 128 where bit i is set.
pub(super) fn unpack_byte(byte: u8) -> [u8; 8] {
    let spread = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let carried = spread + 0x7f7f_7f7f_7f7f_7f7f;
    ((carried >> 7) & 0x0101_0101_0101_0101).to_le_bytes()
}

/// Appends the first `bytes` bytes of words.
pub(super) fn append(words: &[u64], bytes: usize, to: &mut Vec<u8>) {
    let end = to.len() + bytes;
    to.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    to.truncate(end);
}

/// Word `index` of packed bytes. Bytes after the last one are 0.
pub(super) fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = &bytes[8 * index..];
    if let Some(bytes) = bytes.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    let mut last = [0; 8];
    last[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_packed_and_unpacked() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..1_000 {
            let number = rng.u64(..);
            let bits = unpack(number);
            for (at, bit) in bits.iter().enumerate() {
                assert_eq!(u64::from(*bit), number >> at & 1);
            }
            assert_eq!(pack(&bits), number);
        }
        for byte in 0..=255 {
            assert_eq!(pack_byte(unpack_byte(byte)), u64::from(byte));
        }
    }

    #[test]
    fn words_are_read_from_bytes_as_they_were_written() {
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        for len in 0..=16 {
            let mut bytes = vec![9];
            append(&words[..usize::div_ceil(len, 8)], len, &mut bytes);
            assert_eq!(bytes.len(), 1 + len);
            for (index, expected) in words[..len / 8].iter().enumerate() {
                assert_eq!(word(&bytes[1..], index), *expected);
            }
            let mask = (1_u64 << (8 * (len % 8))) - 1;
            assert_eq!(word(&bytes[1..], len / 8), words.get(len / 8).map_or(0, |it| it & mask));
        }
    }
}
