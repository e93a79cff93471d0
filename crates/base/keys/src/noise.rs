//! Handshakes between two ends with identity keys: Noise IK (revision 34) with `snow`, using the
//! versions of the primitives that the rest of the workspace uses.
//!
//! The connecting end knows the key of the other one, and sends its own key encrypted. Each end
//! proves its key. Recorded traffic cannot be decrypted by an attacker who obtains these keys
//! later. Each protocol defines the format around the two messages itself.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use curve25519_dalek::MontgomeryPoint;
use sha2::{Digest, Sha256};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;

use crate::{IdentityPublicKey, IdentitySecretKey};

const NOISE: &str = "Noise_IK_25519_ChaChaPoly_SHA256";
const NOISE_SEALED: &str = "Noise_N_25519_ChaChaPoly_SHA256";
const KEY_LEN: usize = 32;

/// The length of the tag of each encrypted part of a message.
pub const TAG_LEN: usize = 16;

/// The random bytes of an ephemeral key. Secret. Each must be used for one handshake only.
pub struct EphemeralKey(pub Zeroizing<[u8; KEY_LEN]>);

impl std::fmt::Debug for EphemeralKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("EphemeralKey(..)")
    }
}

/// The state of a handshake before its first message: of the end that connects to `peer`, or of the
/// accepting end if there is no `peer`. `prologue` identifies the protocol, and must be the same at
/// both ends.
#[allow(clippy::missing_panics_doc, reason = "the pattern and its primitives are all there")]
pub fn handshake(
    own: &IdentitySecretKey,
    peer: Option<&IdentityPublicKey>,
    prologue: &[u8],
    ephemeral: EphemeralKey,
) -> HandshakeState {
    let params = NOISE.parse().expect("the name of a protocol of Noise");
    let (private, public) = (own.x25519(), peer.map(IdentityPublicKey::x25519));
    let mut builder = Builder::with_resolver(params, Box::new(NoisePrimitives(ephemeral.0)))
        .local_private_key(&*private)
        .and_then(|builder| builder.prologue(prologue))
        .expect("both are set once");
    if let Some(public) = &public {
        builder = builder.remote_public_key(public).expect("it is set once");
    }
    let built =
        if public.is_some() { builder.build_initiator() } else { builder.build_responder() };
    built.expect("all keys and primitives of the pattern are there")
}

/// How much longer a sealed secret is, in bytes: an ephemeral key and a tag.
pub const SEALED_OVERHEAD: usize = KEY_LEN + TAG_LEN;

/// The longest secret that is sealed to an identity, in bytes.
const MAX_SEALED: usize = 1024;

/// Encrypts a short secret so that only `recipient` can decrypt it, with Noise N. It does not show
/// who has encrypted it, and who obtains the recipient's key later can decrypt it. `prologue` names
/// the protocol and what the secret belongs to.
#[expect(clippy::missing_panics_doc, reason = "the pattern and its primitives are all there")]
pub fn seal_to(
    recipient: &IdentityPublicKey,
    prologue: &[u8],
    secret: &[u8; KEY_LEN],
    ephemeral: EphemeralKey,
) -> Vec<u8> {
    let params = NOISE_SEALED.parse().expect("the name of a protocol of Noise");
    let public = recipient.x25519();
    let mut state = Builder::with_resolver(params, Box::new(NoisePrimitives(ephemeral.0)))
        .remote_public_key(&public)
        .and_then(|builder| builder.prologue(prologue)?.build_initiator())
        .expect("all keys and primitives of the pattern are there");
    let mut sealed = vec![0; KEY_LEN + SEALED_OVERHEAD];
    // An identity's key is not of small order.
    let len = state.write_message(secret, &mut sealed).expect("the secret is short");
    sealed.truncate(len);
    sealed
}

/// Decrypts the output of [`seal_to`]. `None` if it is for another recipient, was sealed with
/// another prologue, or was changed.
#[expect(clippy::missing_panics_doc, reason = "the pattern and its primitives are all there")]
pub fn open_sealed(
    own: &IdentitySecretKey,
    prologue: &[u8],
    sealed: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    if sealed.len() > MAX_SEALED {
        return None;
    }
    let params = NOISE_SEALED.parse().expect("the name of a protocol of Noise");
    let private = own.x25519();
    // The recipient draws no ephemeral key.
    let mut state = Builder::with_resolver(params, Box::new(NoisePrimitives(Zeroizing::default())))
        .local_private_key(&*private)
        .and_then(|builder| builder.prologue(prologue)?.build_responder())
        .expect("all keys and primitives of the pattern are there");
    let mut secret = Zeroizing::new(vec![0; MAX_SEALED]);
    let len = state.read_message(sealed, &mut secret).ok()?;
    secret.truncate(len);
    Some(secret)
}

/// Provides the primitives for one handshake, with an ephemeral key that was drawn in advance.
struct NoisePrimitives(Zeroizing<[u8; KEY_LEN]>);

impl CryptoResolver for NoisePrimitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(EphemeralKeyRandom(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<NoiseX25519>::default() as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::<NoiseSha256>::default() as _)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly).then(|| Box::<NoiseChaChaPoly>::default() as _)
    }
}

/// The random bytes for the one key that a handshake draws. Drawing a second one fails.
struct EphemeralKeyRandom(Option<Zeroizing<[u8; KEY_LEN]>>);

impl Random for EphemeralKeyRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let drawn = self.0.take().ok_or(Error::Rng)?;
        if dest.len() != KEY_LEN {
            return Err(Error::Rng);
        }
        dest.copy_from_slice(&*drawn);
        Ok(())
    }
}

/// X25519 (RFC 7748).
#[derive(Default)]
struct NoiseX25519 {
    private: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
}

impl Dh for NoiseX25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = MontgomeryPoint::mul_base_clamped(*self.private).to_bytes();
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut private = Zeroizing::new([0; KEY_LEN]);
        rng.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = *public.first_chunk().ok_or(Error::Dh)?;
        let shared = MontgomeryPoint(public).mul_clamped(*self.private).to_bytes();
        // The peer's point is of small order: the result does not depend on the private key.
        if shared == [0; KEY_LEN] {
            return Err(Error::Dh);
        }
        out.get_mut(..KEY_LEN).ok_or(Error::Dh)?.copy_from_slice(&shared);
        Ok(())
    }
}

/// SHA-256.
#[derive(Default)]
struct NoiseSha256(Sha256);

impl Hash for NoiseSha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Sha256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

/// ChaCha20-Poly1305 (RFC 8439), with Noise's nonces.
struct NoiseChaChaPoly(ChaCha20Poly1305);

impl Default for NoiseChaChaPoly {
    fn default() -> Self {
        Self(ChaCha20Poly1305::new(&[0; KEY_LEN].into()))
    }
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

impl Cipher for NoiseChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; KEY_LEN]) {
        self.0 = ChaCha20Poly1305::new(&(*key).into());
    }

    /// # Panics
    /// If `out` is shorter than the plaintext and its tag.
    fn encrypt(&self, counter: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out[..plaintext.len() + TAG_LEN].split_at_mut(plaintext.len());
        let buffer = InOutBuf::new(plaintext, text).expect("the lengths are equal");
        let made = self.0.encrypt_inout_detached(&nonce(counter).into(), authtext, buffer);
        tag.copy_from_slice(&made.expect("a message of Noise is short"));
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        counter: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = ciphertext.split_last_chunk::<TAG_LEN>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        let buffer = InOutBuf::new(text, out).map_err(|_| Error::Decrypt)?;
        self.0
            .decrypt_inout_detached(&nonce(counter).into(), authtext, buffer, &(*tag).into())
            .map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_know_each_other_and_have_the_same_keys() {
        let (one, two) = (IdentitySecretKey::new(&[1; 32]), IdentitySecretKey::new(&[2; 32]));
        let ephemeral = |byte| EphemeralKey(Zeroizing::new([byte; KEY_LEN]));
        let mut dialer = handshake(&one, Some(&two.public()), b"test", ephemeral(3));
        let mut acceptor = handshake(&two, None, b"test", ephemeral(4));
        let (mut message, mut text) = ([0; 200], [0; 200]);
        let len = dialer.write_message(&[], &mut message).unwrap();
        assert_eq!(len, 2 * KEY_LEN + 2 * TAG_LEN);
        acceptor.read_message(&message[..len], &mut text).unwrap();
        assert_eq!(acceptor.get_remote_static(), Some(&one.public().x25519()[..]));
        let len = acceptor.write_message(&[], &mut message).unwrap();
        dialer.read_message(&message[..len], &mut text).unwrap();
        let dialer = dialer.into_stateless_transport_mode().unwrap();
        let acceptor = acceptor.into_stateless_transport_mode().unwrap();
        let len = dialer.write_message(7, b"there", &mut message).unwrap();
        assert_eq!(acceptor.read_message(7, &message[..len], &mut text).unwrap(), 5);
        assert_eq!(text[..5], *b"there");
        assert!(acceptor.read_message(8, &message[..len], &mut text).is_err());
    }

    #[test]
    fn a_sealed_secret_is_for_its_recipient_and_prologue_only() {
        let (one, two) = (IdentitySecretKey::new(&[1; 32]), IdentitySecretKey::new(&[2; 32]));
        let ephemeral = || EphemeralKey(Zeroizing::new([3; KEY_LEN]));
        let sealed = seal_to(&one.public(), b"test", &[9; KEY_LEN], ephemeral());
        assert_eq!(sealed.len(), KEY_LEN + SEALED_OVERHEAD);
        assert_eq!(open_sealed(&one, b"test", &sealed).unwrap()[..], [9; KEY_LEN]);
        assert!(open_sealed(&two, b"test", &sealed).is_none());
        assert!(open_sealed(&one, b"text", &sealed).is_none());
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert!(open_sealed(&one, b"test", &changed).is_none(), "byte {index}");
            assert!(open_sealed(&one, b"test", &sealed[..index]).is_none(), "{index} bytes");
        }
        assert!(open_sealed(&one, b"test", &vec![0; 70_000]).is_none());
    }

    #[test]
    fn another_protocol_is_refused() {
        let (one, two) = (IdentitySecretKey::new(&[1; 32]), IdentitySecretKey::new(&[2; 32]));
        let ephemeral = |byte| EphemeralKey(Zeroizing::new([byte; KEY_LEN]));
        let mut dialer = handshake(&one, Some(&two.public()), b"test", ephemeral(3));
        let mut acceptor = handshake(&two, None, b"text", ephemeral(4));
        let mut message = [0; 200];
        let len = dialer.write_message(&[], &mut message).unwrap();
        assert!(acceptor.read_message(&message[..len], &mut [0; 200]).is_err());
    }
}
