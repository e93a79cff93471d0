//! The public part of a group's key.

use keys::RsaPublicKey;
use keys::rsa::PUBLIC_EXPONENT;

use crate::integer::SecretInteger;
use crate::modulus::{FixedBase, RsaElement, RsaModulus, RsaModulusError};

/// Why bytes are not the key of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupPublicKeyError {
    /// N is not a modulus.
    #[error(transparent)]
    Modulus(#[from] RsaModulusError),
    /// `g_0` is not a number modulo N that has an inverse.
    #[error("g_0 is not an invertible number modulo N")]
    Base,
}

/// The part of a group's key that its members may publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPublicKey {
    public: RsaPublicKey,
    modulus: RsaModulus,
    g_0: RsaElement,
    g: RsaElement,
    g_inverse: RsaElement,
}

impl GroupPublicKey {
    /// The group key with a random square `g_0`.
    ///
    /// # Errors
    /// If `g_0` has no inverse.
    #[expect(clippy::missing_panics_doc, reason = "a modulus is odd, of one of a few sizes")]
    pub fn new(modulus: RsaModulus, g_0: RsaElement) -> Result<Self, GroupPublicKeyError> {
        let inverse = g_0.inverse().ok_or(GroupPublicKeyError::Base)?;
        let [g, g_inverse] = [&g_0, &inverse].map(|it| it.pow(PUBLIC_EXPONENT.into()));
        let public = RsaPublicKey::danger_of_any_size(&modulus.to_be_bytes());
        Ok(Self { public: public.expect("a modulus is a key"), modulus, g_0, g, g_inverse })
    }

    /// The group key that [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// If the bytes are not such a key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GroupPublicKeyError> {
        let (modulus, g_0) = bytes.split_at(bytes.len() / 2);
        let modulus = RsaModulus::from_be_bytes(modulus)?;
        let g_0 = modulus.element(g_0).ok_or(GroupPublicKeyError::Base)?;
        Self::new(modulus, g_0)
    }

    /// N and `g_0`, of [`RsaModulus::byte_len`] bytes each.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.modulus().to_be_bytes(), self.g_0.to_be_bytes()].concat()
    }

    /// The public key, which verifies signatures.
    pub fn public(&self) -> &RsaPublicKey {
        &self.public
    }

    /// The modulus, N.
    pub fn modulus(&self) -> &RsaModulus {
        &self.modulus
    }

    /// `g_0` = g^d, the product of all witnesses.
    pub fn g_0(&self) -> &RsaElement {
        &self.g_0
    }

    /// g, which witnesses and proofs are powers of.
    pub fn g(&self) -> &RsaElement {
        &self.g
    }

    /// A table for about `count` powers of g with secret exponents. `bits` lists the bounds on the
    /// length of the exponents.
    #[expect(clippy::missing_panics_doc, reason = "g has an inverse")]
    pub fn powers_of_g(&self, bits: &[u32], count: usize) -> FixedBase {
        FixedBase::new(self.modulus(), &self.g, bits, count).expect("g has an inverse")
    }

    /// The witness of one share, g^s. For many, [`Self::powers_of_g`] is faster.
    pub fn witness(&self, share: &SecretInteger) -> RsaElement {
        RsaModulus::pow_of_either(&self.g, &self.g_inverse, share)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::fixture::{large_key, small_key};

    #[test]
    fn openssl_reads_the_key_and_writes_the_same() {
        for key in [small_key(), large_key()] {
            let key = key.group().public().clone();
            let mut openssl = Command::new("openssl")
                .args(["pkey", "-pubin", "-pubout"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            openssl.stdin.take().unwrap().write_all(key.to_pem().as_bytes()).unwrap();
            let written = openssl.wait_with_output().unwrap();
            assert_eq!(str::from_utf8(&written.stdout), Ok(&key.to_pem()[..]));
            assert_eq!(RsaPublicKey::from_pem(&key.to_pem()), Ok(key));
        }
    }

    #[test]
    fn wrong_group_keys_are_refused() {
        let key = small_key();
        let bytes = key.group().to_bytes();
        assert_eq!(GroupPublicKey::from_bytes(&bytes).as_ref(), Ok(key.group()));
        let without_base = [&bytes[..128], &[0; 128]].concat();
        assert_eq!(GroupPublicKey::from_bytes(&without_base), Err(GroupPublicKeyError::Base));
        for len in 129..bytes.len() {
            assert!(GroupPublicKey::from_bytes(&bytes[..len]).is_err());
        }
    }
}
