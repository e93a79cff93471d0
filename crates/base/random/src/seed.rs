//! The seed from which the shares of one secret can be made again.

use zeroize::Zeroizing;

use super::keystream::{AesKeystream, SEED_LEN};
use super::{RandomError, SeededGenerator};

/// A seed from which the shares of one secret can be made more than once, so that only the secret
/// and the seed need to be stored. Wiped on drop.
///
/// Two secrets under the same seed would reveal how they differ, so each seed must be stored
/// together with its secret, and used for no other. A seed is drawn under the rules of its
/// [`Generator`](super::RandomGenerator), and the claim of secrecy is that of a seeded generator.
pub struct SharingSeed(Zeroizing<[u8; SEED_LEN]>);

impl SharingSeed {
    pub(super) fn draw(seeded: &mut SeededGenerator) -> Result<Self, RandomError> {
        let mut seed = Zeroizing::new([0; SEED_LEN]);
        seeded.fill(&mut *seed)?;
        Ok(Self(seed))
    }

    /// Returns a function that fills buffers with the seed's keystream from its beginning: AES-128
    /// in counter mode. Each call of this method gives the same bytes again.
    pub fn keystream(&self) -> impl FnMut(&mut [u8]) {
        let mut keystream = Box::new(AesKeystream::unkeyed());
        keystream.rekey(&self.0);
        move |bytes| keystream.fill(bytes)
    }
}

impl std::fmt::Debug for SharingSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharingSeed").finish_non_exhaustive()
    }
}
