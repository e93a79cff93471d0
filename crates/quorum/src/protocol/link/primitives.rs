//! The primitives of the Noise handshake, for `snow`: those of the versions that the rest of the
//! workspace uses.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use curve25519_dalek::MontgomeryPoint;
use sha2::{Digest, Sha256};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

const KEY_LEN: usize = 32;
const TAG_LEN: usize = 16;

/// Gives the primitives of one handshake, whose ephemeral key is drawn already.
pub(super) struct Primitives(pub(super) Zeroizing<[u8; KEY_LEN]>);

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Drawn(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519>::default() as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::<Sha>::default() as _)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly).then(|| Box::<ChaChaPoly>::default() as _)
    }
}

/// Random bytes for the one key that a handshake draws. There are none for another.
struct Drawn(Option<Zeroizing<[u8; KEY_LEN]>>);

impl Random for Drawn {
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
struct X25519 {
    private: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
}

impl Dh for X25519 {
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
        // Of a point of small order: it does not depend on the private key.
        if shared == [0; KEY_LEN] {
            return Err(Error::Dh);
        }
        out.get_mut(..KEY_LEN).ok_or(Error::Dh)?.copy_from_slice(&shared);
        Ok(())
    }
}

/// SHA-256.
#[derive(Default)]
struct Sha(Sha256);

impl Hash for Sha {
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
struct ChaChaPoly(ChaCha20Poly1305);

impl Default for ChaChaPoly {
    fn default() -> Self {
        Self(ChaCha20Poly1305::new(&[0; KEY_LEN].into()))
    }
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

impl Cipher for ChaChaPoly {
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
