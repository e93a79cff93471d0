//! Encodings of messages as numbers that RSA signs (RFC 8017, 9), with SHA-256 or SHA-512.

use sha2::{Digest as _, Sha256, Sha512};

/// The length of a PSS salt in bytes: that of the hash, as RFC 8017 recommends.
pub const SALT_LEN: usize = 32;

const HASH_LEN: usize = 32;

/// The start of a `DigestInfo` with a SHA-256 (RFC 8017, 9.2, note 1).
const DIGEST_INFO: [u8; 19] =
    [0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 32];

/// The start of a `DigestInfo` with a SHA-512.
const SHA512_DIGEST_INFO: [u8; 19] =
    [0x30, 0x51, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3, 5, 0, 4, 64];

/// The last byte of an encoding for PSS.
const PSS_TRAILER: u8 = 0xbc;

/// How a message is encoded as the number to sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsaEncoding {
    /// EMSA-PKCS1-v1_5 with SHA-256: one number for each message.
    Pkcs1,
    /// EMSA-PKCS1-v1_5 with SHA-512.
    Pkcs1Sha512,
    /// EMSA-PSS with MGF1, both with SHA-256.
    Pss {
        /// Random bytes.
        salt: [u8; SALT_LEN],
    },
}

impl RsaEncoding {
    /// The number for a message, big-endian, of `len` bytes, and below a modulus of `len` bytes
    /// whose highest bit is 1. `None` if `len` is too small: PKCS #1 v1.5 needs 62 bytes, with
    /// SHA-512 94, and PSS 66.
    pub fn encode(&self, message: &[u8], len: usize) -> Option<Vec<u8>> {
        match self {
            Self::Pkcs1 => pkcs1(&DIGEST_INFO, &Sha256::digest(message), len),
            Self::Pkcs1Sha512 => pkcs1(&SHA512_DIGEST_INFO, &Sha512::digest(message), len),
            Self::Pss { salt } => {
                let hash = Sha256::digest(message);
                let masked_len = len.checked_sub(HASH_LEN + 1)?;
                let salted = Sha256::new().chain_update([0; 8]).chain_update(hash);
                let salted = salted.chain_update(salt).finalize();
                let mut masked = vec![0; masked_len];
                mgf1(&[&salted], &mut masked);
                masked[masked_len.checked_sub(SALT_LEN + 1)?] ^= 1;
                for (byte, salt) in masked.iter_mut().rev().zip(salt.iter().rev()) {
                    *byte ^= salt;
                }
                // The number is below the modulus, whose highest bit is 1.
                masked[0] &= 0x7f;
                Some([&masked[..], &salted, &[PSS_TRAILER]].concat())
            }
        }
    }

    /// The encoding that produced a number, if it is PSS.
    pub(super) fn pss_of(encoded: &[u8]) -> Option<Self> {
        let (masked, rest) = encoded.split_at_checked(encoded.len().checked_sub(HASH_LEN + 1)?)?;
        let mut unmasked = vec![0; masked.len()];
        mgf1(&[&rest[..HASH_LEN]], &mut unmasked);
        for (byte, masked) in unmasked.iter_mut().zip(masked) {
            *byte ^= masked;
        }
        Some(Self::Pss { salt: *unmasked.last_chunk()? })
    }
}

/// EMSA-PKCS1-v1_5 of a hash.
fn pkcs1(digest_info: &[u8], hash: &[u8], len: usize) -> Option<Vec<u8>> {
    let padding = len.checked_sub(3 + digest_info.len() + hash.len())?;
    let ones = vec![0xff; padding];
    (padding >= 8).then(|| [&[0, 1], &ones[..], &[0], digest_info, hash].concat())
}

/// MGF1 with SHA-256 (RFC 8017, B.2.1), which expands a short seed: the first `out.len()` bytes of
/// SHA-256(seed, 0), SHA-256(seed, 1), ..., where the seed is the concatenation of `seed`.
pub fn mgf1(seed: &[&[u8]], out: &mut [u8]) {
    let mut seeded = Sha256::new();
    for part in seed {
        seeded.update(part);
    }
    for (counter, chunk) in (0_u32..).zip(out.chunks_mut(HASH_LEN)) {
        let block = seeded.clone().chain_update(counter.to_be_bytes()).finalize();
        chunk.copy_from_slice(&block[..chunk.len()]);
    }
}
