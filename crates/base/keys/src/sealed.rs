//! Encryption of what a program stores: XChaCha20-Poly1305 with a random nonce, which comes first.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use random::{RandomError, RandomGenerator, wipe_stack};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::file::KEY_LEN;
use crate::identity::IdentitySecretKey;

/// The length of a nonce, in bytes.
const NONCE_LEN: usize = 24;

/// A key that encrypts what is stored. Secret.
pub struct SealedKey(XChaCha20Poly1305);

impl SealedKey {
    /// How much longer a sealed secret is, in bytes: the nonce, and an authentication tag.
    pub const OVERHEAD: usize = NONCE_LEN + 16;

    /// The cipher with this key.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let cipher = XChaCha20Poly1305::new(key.into());
        wipe_stack();
        Self(cipher)
    }

    /// The key that is derived from an identity. Each use of an identity needs its own label.
    ///
    /// # Panics
    /// Never: HMAC takes keys of any length.
    pub fn of_identity(identity: &IdentitySecretKey, label: &[u8]) -> Self {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&*identity.x25519())
            .expect("HMAC takes keys of any length");
        mac.update(label);
        Self::new(&Zeroizing::new(<[u8; KEY_LEN]>::from(mac.finalize().into_bytes())))
    }

    /// Encrypts a secret, bound to `context`.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    ///
    /// # Panics
    /// Never: no secret is as long as the cipher's limit, 256 GiB.
    pub fn seal(
        &self,
        context: &[u8],
        secret: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<Vec<u8>, RandomError> {
        // Random nonces of 24 bytes do not repeat.
        let nonce = generator.array::<NONCE_LEN>()?;
        let payload = Payload { msg: secret, aad: context };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload);
        wipe_stack();
        let sealed = sealed.expect("secrets are shorter than 256 GiB");
        Ok([&nonce[..], &sealed].concat())
    }

    /// Decrypts the output of [`SealedKey::seal`]. `None` if it was changed, or was sealed with
    /// another key or for another context.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let payload = Payload { msg: ciphertext, aad: context };
        let opened = self.0.decrypt(&XNonce::from(*nonce), payload).ok().map(Zeroizing::new);
        wipe_stack();
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nonce is 0, 1, 2 ... 23. Computed by a program of its own, which also computes the
    /// example of draft-irtf-cfrg-xchacha-03, A.3.1.
    #[test]
    fn what_older_versions_have_sealed_opens() {
        let nonce: Vec<u8> = (0..24).collect();
        let sealed = |digits: &str| {
            let rest = base16ct::lower::decode_vec(digits).unwrap();
            [&nonce[..], &rest].concat()
        };
        let state = sealed("5b412815a9c05571d407582246dd7be4ef0a4c5e5f06");
        let identity = IdentitySecretKey::new(&[7; 32]);
        let key = SealedKey::of_identity(&identity, b"sunder mix state 1");
        assert_eq!(key.open(b"state", &state).unwrap()[..], b"secret"[..]);
        let epoch = sealed("0bb5b8f7f8e598fefc9ca9a7e400262bd3f92fe1e4bf");
        let opened = SealedKey::new(&[1; 32]).open(b"k\0\0\0\0\0\0\0\x07", &epoch);
        assert_eq!(opened.unwrap()[..], b"secret"[..]);
    }

    #[test]
    fn a_sealed_secret_opens_only_with_its_key_and_context() {
        let mut generator = RandomGenerator::system();
        let [own, other] = [1, 2]
            .map(|byte| SealedKey::of_identity(&IdentitySecretKey::new(&[byte; 32]), b"a label"));
        let mut seal = || own.seal(b"state", b"secret", &mut generator).unwrap();
        let (mut sealed, again) = (seal(), seal());
        assert_ne!(sealed, again);
        assert_eq!(sealed.len(), b"secret".len() + SealedKey::OVERHEAD);
        assert_eq!(own.open(b"state", &sealed).unwrap()[..], b"secret"[..]);
        assert!(own.open(b"history", &sealed).is_none());
        assert!(other.open(b"state", &sealed).is_none());
        let relabelled = SealedKey::of_identity(&IdentitySecretKey::new(&[1; 32]), b"another");
        assert!(relabelled.open(b"state", &sealed).is_none());
        assert!(own.open(b"state", &sealed[..NONCE_LEN - 1]).is_none());
        *sealed.last_mut().unwrap() ^= 1;
        assert!(own.open(b"state", &sealed).is_none());
    }
}
