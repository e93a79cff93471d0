//! A forward-secure generator of random bytes.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// A generator of random bytes. Its state does not reveal earlier output. Secret.
pub(crate) struct ForwardSecureRng(Zeroizing<[u8; 32]>);

impl ForwardSecureRng {
    /// Starts from a seed of 32 random bytes, which must not be used for anything else.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(Zeroizing::new(seed))
    }

    /// The next bytes.
    pub(crate) fn draw<const LEN: usize>(&mut self) -> Zeroizing<[u8; LEN]> {
        let mut drawn = Zeroizing::new([0; LEN]);
        for (number, piece) in (1_u64..).zip(drawn.chunks_mut(32)) {
            piece.copy_from_slice(&self.block(number)[..piece.len()]);
        }
        self.0 = self.block(0);
        drawn
    }

    fn block(&self, number: u64) -> Zeroizing<[u8; 32]> {
        let mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("keys of any length are taken");
        Zeroizing::new(mac.chain_update(number.to_be_bytes()).finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_secure_rng_does_not_repeat_output() {
        let mut random = ForwardSecureRng::new([1; 32]);
        let one = random.draw::<70>();
        let left = ForwardSecureRng::new(*random.0);
        let two = random.draw::<70>();
        assert_ne!(one[..32], one[32..64]);
        assert_ne!(one[..32], two[..32]);
        assert_eq!(*two, *ForwardSecureRng(left.0).draw::<70>());
    }
}
