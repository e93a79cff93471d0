//! Ed25519 keys: the identity of one end.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use base16ct::HexDisplay;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use random::{RandomError, RandomGenerator, wipe_stack};
use zeroize::Zeroizing;

use crate::file::{self, KEY_LEN, KeyFileError, parse_digits};

/// The secret key of an end. Other ends get only the [`IdentityPublicKey`].
pub struct IdentitySecretKey(SigningKey);

impl IdentitySecretKey {
    /// A key of random bytes: the seed of RFC 8032.
    pub fn new(random: &[u8; KEY_LEN]) -> Self {
        Self(SigningKey::from_bytes(random))
    }

    /// A random key.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn random() -> Result<Self, RandomError> {
        Ok(Self::of_bytes(&*random_bytes()?))
    }

    /// Makes a random key, and its file, which only its owner can read.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is such a file, and others when it cannot be
    /// written or the operating system provides no random bytes.
    pub fn create(path: &Path) -> io::Result<Self> {
        let bytes = random_bytes().map_err(io::Error::other)?;
        file::create(path, &bytes)?;
        Ok(Self::of_bytes(&bytes))
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    /// When the file cannot be read or contains no key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        Ok(Self::of_bytes(&*file::read(path)?))
    }

    fn of_bytes(bytes: &[u8; KEY_LEN]) -> Self {
        let key = Self::new(bytes);
        wipe_stack();
        key
    }

    /// The key that verifies this key's signatures.
    pub fn public(&self) -> IdentityPublicKey {
        IdentityPublicKey(self.0.verifying_key())
    }

    /// The X25519 private key (RFC 7748) that belongs to [`IdentityPublicKey::x25519`]. Secret.
    /// Using one key for both signatures and key agreement is secure (Thormarker, PKC 2021).
    pub fn x25519(&self) -> Zeroizing<[u8; KEY_LEN]> {
        Zeroizing::new(self.0.to_scalar_bytes())
    }

    /// The signature of a message.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

fn random_bytes() -> Result<Zeroizing<[u8; KEY_LEN]>, RandomError> {
    let mut bytes = Zeroizing::new([0; KEY_LEN]);
    RandomGenerator::system().fill(&mut *bytes)?;
    Ok(bytes)
}

impl fmt::Debug for IdentitySecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdentitySecretKey(..)")
    }
}

/// An end's public key. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityPublicKey(VerifyingKey);

/// A text is not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a public key: use the 64 digits that the server prints when it starts")]
pub struct IdentityPublicKeyError;

impl IdentityPublicKey {
    /// Whether `signature` is this key's signature of the message.
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        // Strict verification, as implementations differ in what else they accept.
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }

    /// The X25519 public key that belongs to the same secret key.
    pub fn x25519(&self) -> [u8; KEY_LEN] {
        self.0.to_montgomery().to_bytes()
    }

    /// The key's encoding (RFC 8032).
    pub fn to_bytes(&self) -> [u8; KEY_LEN] {
        self.0.to_bytes()
    }

    /// Decodes a key.
    ///
    /// # Errors
    /// If the bytes are not a public key, or are a weak one.
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Result<Self, IdentityPublicKeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| IdentityPublicKeyError)?;
        // With a weak key, a signature can be valid for many messages.
        if key.is_weak() { Err(IdentityPublicKeyError) } else { Ok(Self(key)) }
    }
}

impl FromStr for IdentityPublicKey {
    type Err = IdentityPublicKeyError;

    fn from_str(text: &str) -> Result<Self, IdentityPublicKeyError> {
        let bytes = parse_digits(text.as_bytes()).ok_or(IdentityPublicKeyError)?;
        Self::from_bytes(&bytes)
    }
}

impl fmt::Display for IdentityPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", HexDisplay(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// RFC 8032, 7.1, test 2.
    const SECRET: &str = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
    const PUBLIC: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    const SIGNATURE: &str = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";

    #[test]
    fn signatures_are_those_of_rfc_8032() {
        let secret = IdentitySecretKey::new(&parse_digits(SECRET.as_bytes()).unwrap());
        assert_eq!(secret.public().to_string(), PUBLIC);
        let (first, second) = SIGNATURE.split_at(64);
        let halves = [first, second].map(|half| *parse_digits(half.as_bytes()).unwrap());
        let signature = secret.sign(&[0x72]);
        assert_eq!(signature[..], halves.concat());
        let public: IdentityPublicKey = PUBLIC.parse().unwrap();
        assert!(public.verify(&[0x72], &signature));
        assert!(!public.verify(&[0x73], &signature));
    }

    #[test]
    fn a_key_is_made_with_its_file_which_only_its_owner_can_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let made = IdentitySecretKey::create(&path).unwrap().public();
        assert_eq!(IdentitySecretKey::read(&path).unwrap().public(), made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = IdentitySecretKey::create(&path).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(IdentitySecretKey::read(&path).unwrap().public(), made);
        assert_ne!(IdentitySecretKey::random().unwrap().public(), made);
    }

    #[test]
    fn a_weak_public_key_is_refused() {
        // The neutral element, a point of order 8, no point at all, and what is not 64 digits.
        let neutral = format!("01{}", "00".repeat(31));
        let order_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
        let no_point = format!("02{}", "00".repeat(31));
        for text in [&neutral, order_8, &no_point, &PUBLIC[1..], &PUBLIC.replace('3', "g")] {
            assert_eq!(text.parse::<IdentityPublicKey>(), Err(IdentityPublicKeyError), "{text}");
        }
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", IdentitySecretKey::new(&[0xAB; 32])), "IdentitySecretKey(..)");
    }
}
