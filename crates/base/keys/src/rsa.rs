//! RSA public keys, and the verification of signatures: PKCS #1 v1.5 and PSS (RFC 8017), both with
//! SHA-256, and the first with SHA-512. There are no private keys here: a group of servers signs.

mod encoding;
pub(crate) mod pem;

use std::path::Path;

use crypto_bigint::BoxedUint;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use sha2::{Digest as _, Sha256};

pub use encoding::{RsaEncoding, SALT_LEN, mgf1};

use crate::file::{KeyFileError, read_into};

/// The public exponent of every key, e: 2^16 + 1.
pub const PUBLIC_EXPONENT: u64 = 65537;

/// [`PUBLIC_EXPONENT`] as bytes, big-endian, without leading zeros.
pub const PUBLIC_EXPONENT_BYTES: [u8; 3] = {
    let [.., high, middle, low] = PUBLIC_EXPONENT.to_be_bytes();
    [high, middle, low]
};

/// The allowed sizes of a modulus, in bits. 1024 bits are not secure; they are for the laboratory,
/// to compare with the thesis of the protocol.
pub const MODULUS_BITS: [u32; 4] = [1024, 2048, 3072, 4096];

/// The longest key file, in bytes. The file of a 4096-bit key has 800 bytes.
pub(crate) const MAX_FILE: usize = 4096;

/// An RSA public key: a modulus N, and the exponent [`PUBLIC_EXPONENT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsaPublicKey(BoxedMontyParams);

/// Why a text or bytes are not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RsaKeyError {
    /// It is not a PEM text of an RSA key in canonical form.
    #[error("this is not an RSA public key in PEM form (\"BEGIN PUBLIC KEY\")")]
    Form,
    /// The exponent is not [`PUBLIC_EXPONENT`].
    #[error("the public exponent is not 65537")]
    Exponent,
    /// The modulus has another number of bits.
    #[error("the modulus has {0} bits, not 1024, 2048, 3072 or 4096")]
    Bits(u32),
    /// The modulus is even.
    #[error("the modulus is even")]
    Even,
}

impl RsaPublicKey {
    /// The key with a modulus, big-endian.
    ///
    /// # Errors
    /// If the modulus is even, or if its number of bits is none of [`MODULUS_BITS`].
    pub fn new(modulus: &[u8]) -> Result<Self, RsaKeyError> {
        let key = Self::danger_of_any_size(modulus)?;
        if MODULUS_BITS.contains(&key.bits()) {
            Ok(key)
        } else {
            Err(RsaKeyError::Bits(key.bits()))
        }
    }

    /// The key with a modulus of any size, big-endian. Short ones are for tests of protocols.
    ///
    /// # Errors
    /// If the modulus is even, or if its number of bits is 0 or not a multiple of 64.
    #[expect(clippy::missing_panics_doc, reason = "the number of bits is its own")]
    pub fn danger_of_any_size(modulus: &[u8]) -> Result<Self, RsaKeyError> {
        let first = modulus.iter().position(|&byte| byte != 0).unwrap_or(modulus.len());
        let modulus = &modulus[first..];
        let zeros = modulus.first().map_or(0, |byte| byte.leading_zeros());
        let bits = u32::try_from(modulus.len() * 8).unwrap_or(u32::MAX) - zeros;
        if bits == 0 || !bits.is_multiple_of(64) {
            return Err(RsaKeyError::Bits(bits));
        }
        let modulus = BoxedUint::from_be_slice(modulus, bits).expect("it has this many bits");
        let modulus = modulus.into_odd().into_option().ok_or(RsaKeyError::Even)?;
        Ok(Self(BoxedMontyParams::new_vartime(modulus)))
    }

    /// The key in a `SubjectPublicKeyInfo` (RFC 5280) in PEM form, as written by [`Self::to_pem`]
    /// or `openssl pkey -pubout`.
    ///
    /// # Errors
    /// If the text is anything else, or a key with another exponent or of another size.
    pub fn from_pem(text: &str) -> Result<Self, RsaKeyError> {
        let der = pem::decode(text).ok_or(RsaKeyError::Form)?;
        let key = Self::new(pem::modulus_of_key(&der).ok_or(RsaKeyError::Form)?)?;
        // A key has only one encoding, in which all other bytes except the exponent are fixed.
        if key.to_der() == der { Ok(key) } else { Err(RsaKeyError::Exponent) }
    }

    /// Reads a key from its file, which is in PEM form.
    ///
    /// # Errors
    /// When the file cannot be read or contains no such key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        // Bounded: the path may be a disk by mistake.
        let mut text = [0; MAX_FILE];
        let len = read_into(path, &mut text, || "copy it from where it is".into())?;
        let key = str::from_utf8(&text[..len]).ok().and_then(|text| Self::from_pem(text).ok());
        key.ok_or_else(|| KeyFileError::Rsa { path: path.to_owned() })
    }

    /// The key as a `SubjectPublicKeyInfo` in PEM form, which `openssl` reads.
    pub fn to_pem(&self) -> String {
        pem::encode(&self.to_der())
    }

    /// The key as a `SubjectPublicKeyInfo` in DER.
    pub fn to_der(&self) -> Vec<u8> {
        pem::key_with_modulus(&self.modulus(), PUBLIC_EXPONENT)
    }

    /// The SHA-256 of [`Self::to_der`].
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_der()).into()
    }

    /// The modulus N, big-endian, without leading zeros.
    pub fn modulus(&self) -> Vec<u8> {
        self.0.modulus().as_ref().to_be_bytes().into_vec()
    }

    /// The number of bits of N.
    pub fn bits(&self) -> u32 {
        self.0.bits_precision()
    }

    /// The number of bytes of N, and of a signature.
    pub fn byte_len(&self) -> usize {
        self.bits() as usize / 8
    }

    /// Whether `signature` is this key's signature of the message with SHA-256, and with PKCS #1
    /// v1.5, or with PSS and a salt of [`SALT_LEN`] bytes.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let Some(encoded) = self.raise(signature) else { return false };
        let is_by = |encoding: RsaEncoding| {
            encoding.encode(message, self.byte_len()).as_ref() == Some(&encoded)
        };
        is_by(RsaEncoding::Pkcs1) || RsaEncoding::pss_of(&encoded).is_some_and(is_by)
    }

    /// Whether `signature` is this key's signature of the message in this encoding.
    pub fn verify_encoding(
        &self,
        encoding: &RsaEncoding,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let encoded = encoding.encode(message, self.byte_len());
        encoded.is_some() && self.raise(signature) == encoded
    }

    /// A number to the power of e. `None` if it is not below N or has another length.
    fn raise(&self, number: &[u8]) -> Option<Vec<u8>> {
        if number.len() != self.byte_len() {
            return None;
        }
        let number = BoxedUint::from_be_slice(number, self.bits()).ok()?;
        if number >= *self.0.modulus().as_ref() {
            return None;
        }
        let number = BoxedMontyForm::new(number, &self.0);
        let power = (0..PUBLIC_EXPONENT.ilog2()).fold(number.clone(), |power, _| power.square());
        Some(power.mul(&number).retrieve().to_be_bytes().into_vec())
    }
}

#[cfg(test)]
mod tests;
