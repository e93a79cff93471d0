//! The keys that answers are proven and checked with.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sharing::wipe_stack;

use super::message::{Proof, Scheme};
use crate::key_file::{KEY_LEN, KeyError, digits, read};

/// A key that peers and those who ask them were given before: 32 random bytes. Secret, and whoever has it
/// can speak for everybody who has it.
#[derive(Clone)]
pub struct SharedKey {
    /// The key is in it already.
    code: Hmac<Sha256>,
}

impl SharedKey {
    /// A key of random bytes.
    #[expect(clippy::missing_panics_doc, reason = "keys of any length are taken")]
    pub fn new(random: &[u8; KEY_LEN]) -> Self {
        let code = Hmac::new_from_slice(random).expect("keys of any length are taken");
        Self { code }
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let key = Self::new(&*read(path)?);
        wipe_stack();
        Ok(key)
    }

    fn prove(&self, statement: &[u8]) -> [u8; 32] {
        self.code.clone().chain_update(statement).finalize().into_bytes().into()
    }

    /// Takes as long for any wrong code.
    fn is_proven(&self, statement: &[u8], code: &[u8; 32]) -> bool {
        self.code.clone().chain_update(statement).verify_slice(code).is_ok()
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

/// A server's own key, of which only its [`PublicKey`] is given to others. Secret.
pub struct SecretKey(SigningKey);

impl SecretKey {
    /// A key of random bytes.
    pub fn new(random: &[u8; KEY_LEN]) -> Self {
        Self(SigningKey::from_bytes(random))
    }

    /// Reads a key from its file.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let key = Self::new(&*read(path)?);
        wipe_stack();
        Ok(key)
    }

    /// What clients are told, to know this server's answers.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    fn prove(&self, statement: &[u8]) -> [u8; 64] {
        self.0.sign(statement).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// A server's public key. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// A text is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a public key: take the 64 digits that the server says when it starts")]
pub struct PublicKeyError;

impl PublicKey {
    fn is_proven(&self, statement: &[u8], signature: &[u8; 64]) -> bool {
        // Strictly: what one implementation takes, all take.
        self.0.verify_strict(statement, &Signature::from_bytes(signature)).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let bytes = digits(text.as_bytes()).ok_or(PublicKeyError)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| PublicKeyError)?;
        // Under a weak key there are signatures that fit many statements.
        if key.is_weak() { Err(PublicKeyError) } else { Ok(Self(key)) }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a client believes an answer by.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The peer has the same key.
    Shared(SharedKey),
    /// The peer has the secret key to this.
    Public(PublicKey),
}

impl Credential {
    /// How answers are to be proven.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Shared(_) => Scheme::Hmac,
            Self::Public(_) => Scheme::Ed25519,
        }
    }

    /// Whether this proves that.
    pub(super) fn is_proven(&self, statement: &[u8], proof: &Proof) -> bool {
        match (self, proof) {
            (Self::Shared(key), Proof::Hmac(code)) => key.is_proven(statement, code),
            (Self::Public(key), Proof::Ed25519(signature)) => key.is_proven(statement, signature),
            _ => false,
        }
    }
}

/// What a server proves its answers with.
#[derive(Debug, Default)]
pub struct ServerKeys {
    /// For those who have it too.
    pub shared: Option<SharedKey>,
    /// For those who have its public key.
    pub secret: Option<SecretKey>,
}

impl ServerKeys {
    /// A proof, if there is a key for it.
    pub(super) fn prove(&self, scheme: Scheme, statement: &[u8]) -> Option<Proof> {
        match scheme {
            Scheme::Hmac => Some(Proof::Hmac(self.shared.as_ref()?.prove(statement))),
            Scheme::Ed25519 => Some(Proof::Ed25519(self.secret.as_ref()?.prove(statement))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, test 2.
    const SECRET: &str = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
    const PUBLIC: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    const SIGNATURE: &str = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";

    #[test]
    fn signatures_are_those_of_rfc_8032() {
        let secret = SecretKey::new(&digits(SECRET.as_bytes()).unwrap());
        assert_eq!(secret.public().to_string(), PUBLIC);
        let (first, second) = SIGNATURE.split_at(64);
        let halves = [first, second].map(|half| *digits(half.as_bytes()).unwrap());
        let signature = secret.prove(&[0x72]);
        assert_eq!(signature[..], halves.concat());
        let public: PublicKey = PUBLIC.parse().unwrap();
        assert!(public.is_proven(&[0x72], &signature));
        assert!(!public.is_proven(&[0x73], &signature));
    }

    /// RFC 4231, test case 1: a key of 20 bytes, which HMAC fills up with zeros.
    #[test]
    fn codes_are_those_of_rfc_4231() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let key = SharedKey::new(&key);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(key.prove(b"Hi There"), *digits(expected.as_bytes()).unwrap());
        assert!(key.is_proven(b"Hi There", &key.prove(b"Hi There")));
        assert!(!key.is_proven(b"Hi there", &key.prove(b"Hi There")));
    }

    #[test]
    fn a_weak_public_key_is_refused() {
        // The neutral element, a point of order 8, no point at all, and what is not 64 digits.
        let neutral = format!("01{}", "00".repeat(31));
        let order_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
        let no_point = format!("02{}", "00".repeat(31));
        for text in [&neutral, order_8, &no_point, &PUBLIC[1..], &PUBLIC.replace('3', "g")] {
            assert_eq!(text.parse::<PublicKey>(), Err(PublicKeyError), "{text}");
        }
    }

    #[test]
    fn a_proof_is_for_one_key() {
        let keys = |byte| ServerKeys {
            shared: Some(SharedKey::new(&[byte; 32])),
            secret: Some(SecretKey::new(&[byte; 32])),
        };
        for scheme in [Scheme::Hmac, Scheme::Ed25519] {
            let credential = match scheme {
                Scheme::Hmac => Credential::Shared(SharedKey::new(&[1; 32])),
                Scheme::Ed25519 => Credential::Public(SecretKey::new(&[1; 32]).public()),
            };
            assert_eq!(credential.scheme(), scheme);
            let proof = |byte| keys(byte).prove(scheme, b"statement").unwrap();
            assert!(credential.is_proven(b"statement", &proof(1)));
            assert!(!credential.is_proven(b"another", &proof(1)));
            assert!(!credential.is_proven(b"statement", &proof(2)));
            assert!(ServerKeys::default().prove(scheme, b"statement").is_none());
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let keys = ServerKeys {
            shared: Some(SharedKey::new(&[0xAB; 32])),
            secret: Some(SecretKey::new(&[0xAB; 32])),
        };
        let shown = "ServerKeys { shared: Some(SharedKey(..)), secret: Some(SecretKey(..)) }";
        assert_eq!(format!("{keys:?}"), shown);
    }
}
