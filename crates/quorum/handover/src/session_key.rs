//! The keys of ciphertexts. A new server j draws r and registers R = r B for one handover. A dealer
//! draws e for its dealing and publishes E = e B. The key follows from K = e R = r E. The secrets
//! are wiped at the end of the handover, so that the ciphertexts, which are on the log, cannot be
//! decrypted later.

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use curve25519_dalek::scalar::Scalar;
use random::wipe_stack;
use zeroize::{Zeroize as _, Zeroizing};

use crate::element::{PrimeOrderPoint, hash_to_scalar, sha512};
use crate::proof::{LogarithmProof, of_base};

/// The difference in bytes between the length of a ciphertext and of its plaintext.
pub const TAG_LEN: usize = 16;

/// The secret half of a key, r or e. It is on the heap, so that no copy remains where it is moved.
pub struct SessionScalar(Box<Scalar>);

impl Drop for SessionScalar {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl SessionScalar {
    /// The secret that is derived from a seed for a purpose.
    pub fn new(seed: &[u8; 32], purpose: &[u8]) -> Self {
        let secret = hash_to_scalar(&[b"sunder-schnorr session secret v1\0", seed, purpose]);
        let secret = Zeroizing::new(secret);
        wipe_stack();
        Self(Box::new(*secret))
    }

    /// R or E.
    pub fn public(&self) -> PrimeOrderPoint {
        let public = PrimeOrderPoint::base(&self.0);
        wipe_stack();
        public
    }

    /// The proof that its author knows this secret. Without it, a faulty server could publish a
    /// point that it derived from another server's.
    pub fn prove(&self, context: &[u8]) -> LogarithmProof {
        LogarithmProof::new(&self.0, &[of_base(self.public())], context)
    }

    /// K, which is secret unless it is published in a complaint.
    pub fn agree(&self, other: &PrimeOrderPoint) -> Zeroizing<PrimeOrderPoint> {
        let agreed = Zeroizing::new(PrimeOrderPoint::new(*self.0 * other.point()));
        wipe_stack();
        agreed
    }

    /// The proof that K is [`Self::agree`] with `other`.
    pub fn prove_agreed(
        &self,
        other: &PrimeOrderPoint,
        agreed: &PrimeOrderPoint,
        context: &[u8],
    ) -> LogarithmProof {
        LogarithmProof::new(&self.0, &[of_base(self.public()), (*other, *agreed)], context)
    }
}

/// The cipher of one ciphertext. Its key is derived from K and from `context`, which names the
/// handover, the dealer and the receiver, so the key has no other plaintext.
fn cipher(agreed: &PrimeOrderPoint, context: &[u8]) -> ChaCha20Poly1305 {
    let bytes = Zeroizing::new(agreed.to_bytes());
    let hash = sha512(&[b"sunder-schnorr encryption v1\0", &*bytes, context]);
    let key: Zeroizing<[u8; 32]> = Zeroizing::new(*hash.first_chunk().expect("half of a digest"));
    ChaCha20Poly1305::new(&Key::from(*key))
}

/// Encrypts a plaintext, whose buffer has room for [`TAG_LEN`] more bytes.
#[expect(clippy::missing_panics_doc, reason = "a row is shorter than 256 GiB")]
pub fn seal(agreed: &PrimeOrderPoint, context: &[u8], mut buffer: Zeroizing<Vec<u8>>) -> Vec<u8> {
    let sealed = cipher(agreed, context).encrypt_in_place(&Nonce::default(), &[], &mut *buffer);
    sealed.expect("a row is shorter than 256 GiB");
    wipe_stack();
    buffer.to_vec()
}

/// Decrypts a ciphertext. `None` if it is not authentic.
pub fn open(
    agreed: &PrimeOrderPoint,
    context: &[u8],
    ciphertext: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let mut buffer = Zeroizing::new(ciphertext.to_vec());
    let opened = cipher(agreed, context).decrypt_in_place(&Nonce::default(), &[], &mut *buffer);
    wipe_stack();
    opened.is_ok().then_some(buffer)
}
