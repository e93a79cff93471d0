//! The random bytes of one secret's shares, to be made again.

use zeroize::Zeroizing;

use super::keystream::{AesKeystream, SEED_LEN};
use super::{RandomError, SeededGenerator};

/// From which the shares of one secret can be made more than once: who has to keep them needs to
/// keep only the secret and this. Wiped on drop.
///
/// Two secrets under the same seed would give away how they differ, so it is kept beside the one
/// that it is for. It is drawn under the rules of its [`Generator`](super::RandomGenerator), and
/// the claim of secrecy is that of a seeded one.
pub struct SharingSeed(Zeroizing<[u8; SEED_LEN]>);

impl SharingSeed {
    pub(super) fn draw(seeded: &mut SeededGenerator) -> Result<Self, RandomError> {
        let mut seed = Zeroizing::new([0; SEED_LEN]);
        seeded.fill(&mut *seed)?;
        Ok(Self(seed))
    }

    /// Returns a function that fills buffers with the seed's keystream, from its beginning: AES-128
    /// in counter mode. Each call of this gives the same bytes again.
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
