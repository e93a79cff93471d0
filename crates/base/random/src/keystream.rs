//! AES-128 in counter mode: block `j` is the encryption of `counter + j`, where only the low half
//! of the counter counts.
//!
//! Processors with VAES and AVX-512 use a kernel in this module, about three times as fast as the
//! general one; all others use the `aes` crate (AES-NI, `ARMv8`, or bit-sliced in constant time).
//! Both give the same bytes.
#![allow(unsafe_code)]

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use zeroize::Zeroizing;

use crate::wipe::wipe_stack;

/// The length of a seed: a key of 16 bytes and a counter of 16 bytes.
pub(super) const SEED_LEN: usize = 32;

/// A keystream and a position in it. The key is wiped on drop.
pub(super) struct AesKeystream {
    cipher: KeystreamCipher,
    /// The next block's counter: its low half, then its high half, which stays.
    counter: [u64; 2],
}

enum KeystreamCipher {
    #[cfg(target_arch = "x86_64")]
    Vaes(Zeroizing<vaes::RoundKeys>),
    Any(Aes128),
}

impl AesKeystream {
    /// A keystream with a key and a counter of zeros, which must be replaced.
    pub(super) fn unkeyed() -> Self {
        Self { cipher: KeystreamCipher::new(&[0; 16]), counter: [0; 2] }
    }

    /// Replaces the key and the counter in place, as moving a key would leave a copy behind.
    pub(super) fn rekey(&mut self, seed: &[u8; SEED_LEN]) {
        let (key, counter) = seed.split_at(16);
        self.cipher.rekey(key.try_into().expect("16 bytes"));
        wipe_stack();
        let (low, high) = counter.split_at(8);
        let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        self.counter = [half(low), half(high)];
    }

    /// Overwrites `bytes` with the next bytes of the stream. The rest of the last block is
    /// discarded.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        match &self.cipher {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is made only where the processor has the instructions.
            KeystreamCipher::Vaes(keys) => unsafe { vaes::fill(keys, self.counter, bytes) },
            KeystreamCipher::Any(cipher) => fill(cipher, self.counter, bytes),
        }
        let blocks = bytes.len().div_ceil(16) as u64;
        self.counter[0] = self.counter[0].wrapping_add(blocks);
    }
}

impl KeystreamCipher {
    fn new(key: &[u8; 16]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if vaes::available() {
            let mut cipher = Self::Vaes(Zeroizing::new([[0; 16]; 11]));
            cipher.rekey(key);
            return cipher;
        }
        Self::Any(Aes128::new(key.into()))
    }

    /// In its own stack frame, which is wiped afterwards.
    #[inline(never)]
    fn rekey(&mut self, key: &[u8; 16]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is made only where the processor has the instructions.
            Self::Vaes(keys) => unsafe { vaes::expand(key, keys) },
            Self::Any(cipher) => *cipher = Aes128::new(key.into()),
        }
    }
}

/// Counter mode over the `aes` crate, in place.
fn fill(cipher: &Aes128, [low, high]: [u64; 2], bytes: &mut [u8]) {
    let mut counters = (0..).map(|j| {
        let mut block = [0; 16];
        block[..8].copy_from_slice(&low.wrapping_add(j).to_le_bytes());
        block[8..].copy_from_slice(&high.to_le_bytes());
        block
    });
    let (blocks, rest) = bytes.as_chunks_mut::<16>();
    // In pieces, so that each block is still in the cache when it is encrypted.
    for piece in blocks.chunks_mut(64) {
        piece.iter_mut().zip(&mut counters).for_each(|(block, counter)| *block = counter);
        cipher.encrypt_blocks(Block::cast_slice_from_core_mut(piece));
    }
    if !rest.is_empty() {
        let mut last = Zeroizing::new(counters.next().expect("an endless sequence"));
        cipher.encrypt_block((&mut *last).into());
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(target_arch = "x86_64")]
mod vaes {
    use std::arch::is_x86_feature_detected as has;
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_aeskeygenassist_si128, _mm_loadu_si128, _mm_shuffle_epi32,
        _mm_slli_si128, _mm_storeu_si128, _mm_xor_si128, _mm512_add_epi64, _mm512_aesenc_epi128,
        _mm512_aesenclast_epi128, _mm512_broadcast_i32x4, _mm512_set_epi64, _mm512_setzero_si512,
        _mm512_storeu_si512, _mm512_xor_si512,
    };

    use zeroize::Zeroizing;

    pub(super) type RoundKeys = [[u8; 16]; 11];

    /// The number of vectors of four blocks in flight: enough to hide the latency of a round, and
    /// few enough to stay in registers.
    const LANES: usize = 8;

    pub(super) fn available() -> bool {
        has!("aes") && has!("vaes") && has!("avx512f")
    }

    /// The key schedule of FIPS 197, section 5.2.
    ///
    /// # Safety
    /// The processor is [`available`].
    #[target_feature(enable = "aes")]
    pub(super) unsafe fn expand(key: &[u8; 16], keys: &mut RoundKeys) {
        // SAFETY: 16 bytes are read from an array of 16.
        let mut last = unsafe { _mm_loadu_si128(key.as_ptr().cast()) };
        keys[0] = *key;
        macro_rules! rounds {
            ($($round:literal $constant:literal),*) => {$(
                last = next_key(last, _mm_aeskeygenassist_si128::<$constant>(last));
                // SAFETY: 16 bytes are written to an array of 16.
                unsafe { _mm_storeu_si128(keys[$round].as_mut_ptr().cast(), last) };
            )*};
        }
        rounds!(1 0x01, 2 0x02, 3 0x04, 4 0x08, 5 0x10, 6 0x20, 7 0x40, 8 0x80, 9 0x1B, 10 0x36);
    }

    #[target_feature(enable = "aes")]
    fn next_key(key: __m128i, assist: __m128i) -> __m128i {
        let key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
        let key = _mm_xor_si128(key, _mm_slli_si128::<8>(key));
        _mm_xor_si128(key, _mm_shuffle_epi32::<0xFF>(assist))
    }

    /// # Safety
    /// The processor is [`available`].
    #[target_feature(enable = "aes,vaes,avx512f")]
    pub(super) unsafe fn fill(keys: &RoundKeys, [low, high]: [u64; 2], bytes: &mut [u8]) {
        // SAFETY: 16 bytes are read from arrays of 16.
        let keys: [__m512i; 11] = keys
            .each_ref()
            .map(|key| _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(key.as_ptr().cast()) }));
        let [low, high] = [low, high].map(u64::cast_signed);
        let start = |j: i64| low.wrapping_add(j);
        let mut counter =
            _mm512_set_epi64(high, start(3), high, start(2), high, start(1), high, start(0));

        let (wide, rest) = bytes.as_chunks_mut::<{ 64 * LANES }>();
        for chunk in wide {
            let vectors = encrypt::<LANES>(&keys, &mut counter);
            for (out, vector) in chunk.as_chunks_mut::<64>().0.iter_mut().zip(vectors) {
                // SAFETY: 64 bytes are written to an array of 64.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
            }
        }
        let (vectors, rest) = rest.as_chunks_mut::<64>();
        for out in vectors {
            let [vector] = encrypt::<1>(&keys, &mut counter);
            // SAFETY: 64 bytes are written to an array of 64.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
        }
        if !rest.is_empty() {
            let [vector] = encrypt::<1>(&keys, &mut counter);
            let mut last = Zeroizing::new([0u8; 64]);
            // SAFETY: 64 bytes are written to an array of 64.
            unsafe { _mm512_storeu_si512(last.as_mut_ptr().cast(), vector) };
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Encrypts the next `4 * N` counters.
    #[inline]
    #[target_feature(enable = "aes,vaes,avx512f")]
    fn encrypt<const N: usize>(keys: &[__m512i; 11], counter: &mut __m512i) -> [__m512i; N] {
        let four = _mm512_set_epi64(0, 4, 0, 4, 0, 4, 0, 4);
        let mut vectors = [_mm512_setzero_si512(); N];
        for vector in &mut vectors {
            *vector = _mm512_xor_si512(*counter, keys[0]);
            *counter = _mm512_add_epi64(*counter, four);
        }
        for &key in &keys[1..10] {
            for vector in &mut vectors {
                *vector = _mm512_aesenc_epi128(*vector, key);
            }
        }
        vectors.map(|vector| _mm512_aesenclast_epi128(vector, keys[10]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keystream with each cipher that this processor supports.
    fn keystreams(key: &[u8; 16], counter: &[u8; 16]) -> Vec<AesKeystream> {
        let seed: [u8; SEED_LEN] = [&key[..], counter].concat().try_into().unwrap();
        let any = AesKeystream {
            cipher: KeystreamCipher::Any(Aes128::new(&[0; 16].into())),
            counter: [0; 2],
        };
        let mut all = vec![AesKeystream::unkeyed(), any];
        for keystream in &mut all {
            keystream.rekey(&seed);
        }
        all
    }

    #[test]
    fn matches_fips_197() {
        // Appendix C.1: the plaintext is the counter, its halves in little-endian order.
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let counter: [u8; 16] = std::array::from_fn(|i| u8::try_from(i * 0x11).unwrap());
        let expected = [
            0x69, 0xC4, 0xE0, 0xD8, 0x6A, 0x7B, 0x04, 0x30, 0xD8, 0xCD, 0xB7, 0x80, 0x70, 0xB4,
            0xC5, 0x5A,
        ];
        for mut keystream in keystreams(&key, &counter) {
            let mut block = [0; 16];
            keystream.fill(&mut block);
            assert_eq!(block, expected);
        }
    }

    #[test]
    fn all_ciphers_give_the_same_stream_in_any_pieces() {
        let key: [u8; 16] = std::array::from_fn(|i| u8::try_from(i * 7).unwrap());
        // The low half wraps around within the first bytes.
        let counter: [u8; 16] = std::array::from_fn(|i| if i == 0 { 0xFE } else { 0xFF });
        let mut streams = keystreams(&key, &counter).into_iter().map(|mut keystream| {
            let mut stream = Vec::new();
            for len in (0..700).chain([4096, 1, 16, 64, 65]) {
                let mut piece = vec![0; len];
                keystream.fill(&mut piece);
                stream.extend(piece);
            }
            stream
        });
        let first = streams.next().unwrap();
        assert!(streams.all(|stream| stream == first));
    }
}
