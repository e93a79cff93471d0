//! Session keys: new for every epoch and erased at its end, so that an attacker who breaks into a
//! server later cannot decrypt recorded subshares (thesis, 3.3).
//!
//! A new server j has the secret `r_j` and registers `R_j` = `r_j` B, in Ristretto255. A dealer
//! draws e for each dealing and publishes E = e B. Both compute K = e `R_j` = `r_j` E, from which
//! the key of the ciphertext is derived. To complain, j publishes K, with a proof that it used the
//! logarithm of `R_j`.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use encoding::FieldReader;
use hmac::{Hmac, Mac};
use random::{RandomError, RandomGenerator, wipe_stack};
use sha2::{Digest as _, Sha256, Sha512};
use zeroize::{Zeroize, Zeroizing};

use crate::protocol::combination::Label;
use crate::protocol::wire::MalformedEncoding;

/// The difference in bytes between the length of a ciphertext and of its plaintext.
pub(crate) const TAG_LEN: usize = 16;

/// The length of a [`SessionProof`] in bytes.
pub(crate) const PROOF_LEN: usize = 64;

/// The public half of a session key, `R_j` or E, or their shared point K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionPoint {
    point: RistrettoPoint,
    bytes: CompressedRistretto,
}

impl SessionPoint {
    fn new(point: RistrettoPoint) -> Self {
        Self { point, bytes: point.compress() }
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        self.bytes.as_bytes()
    }

    /// Reads a point other than the neutral element.
    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let bytes = CompressedRistretto(reader.take()?);
        let point = bytes.decompress().filter(|point| *point != RistrettoPoint::identity());
        Ok(Self { point: point.ok_or(MalformedEncoding("a session key is not a point"))?, bytes })
    }
}

impl Zeroize for SessionPoint {
    fn zeroize(&mut self) {
        self.point.zeroize();
        self.bytes.zeroize();
    }
}

/// The secret half of a session key, `r_j` or e.
pub(crate) struct SessionSecret(Scalar);

impl Drop for SessionSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl SessionSecret {
    /// The secret derived from 64 uniformly random bytes.
    pub(crate) fn new(bytes: &[u8; 64]) -> Self {
        let secret = Self(Scalar::from_bytes_mod_order_wide(bytes));
        wipe_stack();
        secret
    }

    pub(crate) fn random(generator: &mut RandomGenerator) -> Result<Self, RandomError> {
        let mut bytes = Zeroizing::new([0; 64]);
        generator.fill(&mut *bytes)?;
        Ok(Self::new(&bytes))
    }

    /// The encoding for the store.
    pub(crate) fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// Decodes the output of [`Self::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Result<Self, MalformedEncoding> {
        let scalar = Option::from(Scalar::from_canonical_bytes(*bytes));
        scalar.map(Self).ok_or(MalformedEncoding("a session key is not a scalar"))
    }

    pub(crate) fn public(&self) -> SessionPoint {
        let public = SessionPoint::new(&self.0 * RISTRETTO_BASEPOINT_TABLE);
        wipe_stack();
        public
    }

    /// K, which is secret unless it is published in a complaint.
    pub(crate) fn agree(&self, other: &SessionPoint) -> Zeroizing<SessionPoint> {
        let agreed = Zeroizing::new(SessionPoint::new(self.0 * other.point));
        wipe_stack();
        agreed
    }

    /// Proves that `agreed` is [`Self::agree`] with `other` (Chaum and Pedersen 1992). The proof is
    /// bound to `context`.
    pub(crate) fn prove(
        &self,
        other: &SessionPoint,
        agreed: &SessionPoint,
        context: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<SessionProof, RandomError> {
        let nonce = Self::random(generator)?;
        let commitments = [nonce.public(), *nonce.agree(other)];
        let challenge = challenge(&self.public(), other, agreed, &commitments, context);
        let response = nonce.0 + challenge * self.0;
        wipe_stack();
        Ok(SessionProof { challenge, response })
    }
}

/// A proof that a point K is r E, where R = r B. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionProof {
    challenge: Scalar,
    response: Scalar,
}

impl SessionProof {
    /// Whether the logarithm of `agreed` to the base `other` is that of `public` to the base B.
    pub(crate) fn verify(
        &self,
        public: &SessionPoint,
        other: &SessionPoint,
        agreed: &SessionPoint,
        context: &[u8],
    ) -> bool {
        let commitment = |base: RistrettoPoint, power: RistrettoPoint| {
            SessionPoint::new(self.response * base - self.challenge * power)
        };
        let base = RISTRETTO_BASEPOINT_TABLE.basepoint();
        let commitments = [commitment(base, public.point), commitment(other.point, agreed.point)];
        challenge(public, other, agreed, &commitments, context) == self.challenge
    }

    pub(crate) fn to_bytes(self) -> [u8; PROOF_LEN] {
        let mut bytes = [0; PROOF_LEN];
        bytes[..32].copy_from_slice(self.challenge.as_bytes());
        bytes[32..].copy_from_slice(self.response.as_bytes());
        bytes
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let mut scalar = || {
            let scalar = Scalar::from_canonical_bytes(reader.take()?);
            Option::from(scalar).ok_or(MalformedEncoding("a proof is not a scalar"))
        };
        Ok(Self { challenge: scalar()?, response: scalar()? })
    }
}

fn challenge(
    public: &SessionPoint,
    other: &SessionPoint,
    agreed: &SessionPoint,
    commitments: &[SessionPoint; 2],
    context: &[u8],
) -> Scalar {
    let mut hash = Sha512::new();
    hash.update(b"SNDR-QUORUM-DLEQ\0");
    for point in [public, other, agreed, &commitments[0], &commitments[1]] {
        hash.update(point.as_bytes());
    }
    hash.update(context);
    Scalar::from_bytes_mod_order_wide(&hash.finalize().into())
}

/// The key of the ciphertexts from one dealing to one new server.
pub(crate) struct SessionCipher(ChaCha20Poly1305);

impl SessionCipher {
    /// The key derived from K. `context` names the dealing and the server, so that no other
    /// ciphertext has this key.
    pub(crate) fn new(agreed: &SessionPoint, context: &[u8]) -> Self {
        // HKDF-SHA-256 (RFC 5869) with one block of output.
        let extracted = Zeroizing::new(mac(b"SNDR-QUORUM-SESSION\0", &[agreed.as_bytes()]));
        let key = Zeroizing::new(mac(&*extracted, &[context, &[1]]));
        let cipher = Self(ChaCha20Poly1305::new(&Key::from(*key)));
        wipe_stack();
        cipher
    }

    /// Encrypts the subshares of the share with a label.
    pub(crate) fn seal(&self, label: Label, plaintext: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(plaintext.len() + TAG_LEN);
        buffer.extend(plaintext);
        let sealed = self.0.encrypt_in_place(&nonce(label), &[], &mut buffer);
        sealed.expect("a row is shorter than 256 GiB");
        wipe_stack();
        buffer
    }

    /// Decrypts the subshares of the share with a label. `None` if the ciphertext is invalid.
    pub(crate) fn open(&self, label: Label, ciphertext: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut buffer = Zeroizing::new(ciphertext.to_vec());
        let opened = self.0.decrypt_in_place(&nonce(label), &[], &mut *buffer);
        wipe_stack();
        opened.is_ok().then_some(buffer)
    }
}

/// The nonce of a label. Under a key, each label has only one ciphertext.
fn nonce(label: Label) -> Nonce {
    let mut nonce = [0; 12];
    nonce[10..].copy_from_slice(&label.0.to_be_bytes());
    nonce.into()
}

/// HMAC-SHA-256 of the concatenation of `parts`.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length is accepted");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> [SessionSecret; 2] {
        let mut generator = RandomGenerator::seeded().unwrap();
        [(); 2].map(|()| SessionSecret::random(&mut generator).unwrap())
    }

    #[test]
    fn both_ends_have_the_key_and_another_context_has_another() {
        let [receiver, dealer] = secrets();
        let agreed = dealer.agree(&receiver.public());
        assert_eq!(agreed, receiver.agree(&dealer.public()));
        let sealed = SessionCipher::new(&agreed, b"context").seal(Label(3), b"subshares");
        assert_eq!(sealed.len(), 9 + TAG_LEN);
        let cipher = SessionCipher::new(&agreed, b"context");
        assert_eq!(cipher.open(Label(3), &sealed).unwrap()[..], b"subshares"[..]);
        assert!(cipher.open(Label(4), &sealed).is_none());
        assert!(SessionCipher::new(&agreed, b"other").open(Label(3), &sealed).is_none());
        for i in 0..sealed.len() {
            let mut wrong = sealed.clone();
            wrong[i] ^= 1;
            assert!(cipher.open(Label(3), &wrong).is_none());
        }
    }

    #[test]
    fn a_proof_holds_for_its_points_and_context_only() {
        let [receiver, dealer] = secrets();
        let (public, other) = (receiver.public(), dealer.public());
        let agreed = receiver.agree(&other);
        let mut generator = RandomGenerator::seeded().unwrap();
        let proof = receiver.prove(&other, &agreed, b"context", &mut generator).unwrap();
        let read = SessionProof::read(&mut FieldReader::new(&proof.to_bytes()));
        assert_eq!(read, Ok(proof));
        assert!(proof.verify(&public, &other, &agreed, b"context"));
        assert!(!proof.verify(&public, &other, &agreed, b"another"));
        assert!(!proof.verify(&public, &other, &public, b"context"));
        assert!(!proof.verify(&other, &public, &agreed, b"context"));
        let wrong = receiver.prove(&other, &public, b"context", &mut generator).unwrap();
        assert!(!wrong.verify(&public, &other, &public, b"context"));
    }

    #[test]
    fn a_stored_secret_is_the_same() {
        let [secret, _] = secrets();
        let stored = SessionSecret::from_bytes(&secret.to_bytes()).unwrap();
        assert_eq!(stored.public(), secret.public());
        assert!(SessionSecret::from_bytes(&[0xff; 32]).is_err());
    }

    #[test]
    fn the_neutral_element_is_no_key() {
        assert!(SessionPoint::read(&mut FieldReader::new(&[0; 32])).is_err());
        assert!(SessionPoint::read(&mut FieldReader::new(&[0xff; 32])).is_err());
        assert!(SessionPoint::read(&mut FieldReader::new(&[0; 31])).is_err());
    }
}
