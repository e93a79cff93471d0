//! The cipher of records, and its keys.

use hmac::{Hmac, KeyInit as _, Mac as _};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey};
use sha2::Sha256;
use zeroize::Zeroizing;

/// How much longer an encrypted chunk is, in bytes.
pub const TAG_LEN: usize = 16;

/// The bits of a record's number within an epoch, after which the key changes. The 2^34 blocks of
/// 2^22 records give an attacker an advantage of about 2^-61 with AES-256-GCM.
pub(crate) const EPOCH_BITS: u32 = 22;

/// The ciphers that encrypt and authenticate records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordCipher {
    /// AES-256-GCM, the fastest on processors with instructions for it. Others would need tables.
    Aes256Gcm,
    /// ChaCha20-Poly1305, which is fast on any processor.
    ChaCha20Poly1305,
}

impl RecordCipher {
    /// The fastest cipher on this processor.
    pub fn fastest() -> Self {
        if has_aes() { Self::Aes256Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// The cipher to use if these are the fastest ones of the two ends.
    #[must_use]
    pub fn negotiate(self, other: Self) -> Self {
        if self == other { self } else { Self::ChaCha20Poly1305 }
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// The keys of one direction. Each epoch has a key, of which only the current one is kept. The
/// number of a record is its nonce, so no nonce is used twice with a key.
pub(crate) struct RecordKeys {
    cipher: RecordCipher,
    secret: Zeroizing<[u8; 32]>,
    number: u64,
    epoch_key: LessSafeKey,
}

impl RecordKeys {
    pub(crate) fn new(cipher: RecordCipher, secret: &[u8; 32]) -> Self {
        let epoch_key = derive(cipher, secret, 0);
        Self { cipher, secret: Zeroizing::new(*secret), number: 0, epoch_key }
    }

    /// Encrypts the next chunk in place.
    ///
    /// # Panics
    /// After 2^64 records, or if the chunk is longer than any record.
    pub(crate) fn seal(&mut self, chunk: &mut [u8]) -> Tag {
        let nonce = self.nonce();
        let sealed = self.epoch_key.seal_in_place_separate_tag(nonce, Aad::empty(), chunk);
        let tag = sealed.expect("a record is shorter than the cipher's limit");
        self.advance();
        tag
    }

    /// Decrypts the next chunk in place, which is followed by its tag. Returns its length. If it is
    /// not the next one, returns `None` and changes nothing.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Option<usize> {
        let nonce = self.nonce();
        let len = self.epoch_key.open_in_place(nonce, Aad::empty(), record).ok()?.len();
        self.advance();
        Some(len)
    }

    fn nonce(&self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn advance(&mut self) {
        self.number = self.number.checked_add(1).expect("nobody sends 2^64 records");
        if self.number.trailing_zeros() >= EPOCH_BITS {
            self.epoch_key = derive(self.cipher, &self.secret, self.number >> EPOCH_BITS);
        }
    }

    /// Continues as if `number` records had been sealed or opened.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.number = number;
        self.epoch_key = derive(self.cipher, &self.secret, number >> EPOCH_BITS);
    }
}

/// The key of an epoch.
fn derive(cipher: RecordCipher, secret: &[u8; 32], epoch: u64) -> LessSafeKey {
    let mut code = Hmac::<Sha256>::new_from_slice(secret).expect("keys of any length are taken");
    code.update(b"SNDRTRPT records");
    code.update(&epoch.to_be_bytes());
    let key = Zeroizing::new(<[u8; 32]>::from(code.finalize().into_bytes()));
    let algorithm = match cipher {
        RecordCipher::Aes256Gcm => &AES_256_GCM,
        RecordCipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    LessSafeKey::new(UnboundKey::new(algorithm, &*key).expect("both have keys of 32 bytes"))
}
