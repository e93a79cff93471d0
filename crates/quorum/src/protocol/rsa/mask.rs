//! MGF1 with SHA-256 (RFC 8017, B.2.1): expands a short seed.

use sha2::{Digest as _, Sha256};

/// The first `out.len()` bytes of SHA-256(seed, 0), SHA-256(seed, 1), ..., where the seed is the
/// concatenation of `seed`.
pub(crate) fn mgf1(seed: &[&[u8]], out: &mut [u8]) {
    let mut seeded = Sha256::new();
    for part in seed {
        seeded.update(part);
    }
    for (counter, chunk) in (0_u32..).zip(out.chunks_mut(32)) {
        let block = seeded.clone().chain_update(counter.to_be_bytes()).finalize();
        chunk.copy_from_slice(&block[..chunk.len()]);
    }
}
