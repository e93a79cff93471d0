//! Public keys of groups.

use crate::protocol::integer::SecretInteger;
use crate::protocol::rsa::modulus::{Element, FixedBase, Modulus, ModulusError};
use crate::protocol::rsa::pem;

/// The public exponent of every key, e.
pub const PUBLIC_EXPONENT: u64 = 65537;

/// An RSA public key: a modulus N, and the exponent [`PUBLIC_EXPONENT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    modulus: Modulus,
}

/// Why a text or bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// It is no PEM text of an RSA key in the canonical form.
    #[error("this is not an RSA public key in PEM form (\"BEGIN PUBLIC KEY\")")]
    Form,
    /// The exponent is another one.
    #[error("the public exponent is not 65537")]
    Exponent,
    /// The modulus is of a size that is not used.
    #[error(transparent)]
    Modulus(#[from] ModulusError),
    /// `g_0` is not a number modulo N that has an inverse.
    #[error("g_0 is not an invertible number modulo N")]
    Base,
}

impl PublicKey {
    /// The key with a modulus.
    pub fn new(modulus: Modulus) -> Self {
        Self { modulus }
    }

    /// The modulus, N.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// The key as a `SubjectPublicKeyInfo` (RFC 5280) in PEM form, which `openssl` reads.
    pub fn to_pem(&self) -> String {
        pem::encode(&self.to_der())
    }

    /// The key that [`Self::to_pem`] or `openssl pkey -pubout` wrote.
    ///
    /// # Errors
    /// If it is anything else, or not the key of a group.
    pub fn from_pem(text: &str) -> Result<Self, PublicKeyError> {
        let der = pem::decode(text).ok_or(PublicKeyError::Form)?;
        let modulus = pem::modulus_of_key(&der).ok_or(PublicKeyError::Form)?;
        let key = Self::new(Modulus::from_be_bytes(modulus)?);
        // There is one encoding of a key. All other bytes in it are fixed, but for the exponent.
        if key.to_der() == der { Ok(key) } else { Err(PublicKeyError::Exponent) }
    }

    /// The key as a `SubjectPublicKeyInfo` in DER.
    pub fn to_der(&self) -> Vec<u8> {
        pem::key_with_modulus(&self.modulus.to_be_bytes(), PUBLIC_EXPONENT)
    }
}

/// What the members of a group know of its key besides their shares, and may tell anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKey {
    public: PublicKey,
    g_0: Element,
    g: Element,
}

impl GroupKey {
    /// The group key with a random square `g_0`.
    ///
    /// # Errors
    /// If `g_0` has no inverse.
    pub fn new(public: PublicKey, g_0: Element) -> Result<Self, PublicKeyError> {
        g_0.inverse().ok_or(PublicKeyError::Base)?;
        let g = g_0.pow(PUBLIC_EXPONENT.into());
        Ok(Self { public, g_0, g })
    }

    /// The group key that [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PublicKeyError> {
        let (modulus, g_0) = bytes.split_at(bytes.len() / 2);
        let modulus = Modulus::from_be_bytes(modulus)?;
        let g_0 = modulus.element(g_0).ok_or(PublicKeyError::Base)?;
        Self::new(PublicKey::new(modulus), g_0)
    }

    /// N and `g_0`, of [`Modulus::byte_len`] bytes each.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.modulus().to_be_bytes(), self.g_0.to_be_bytes()].concat()
    }

    /// The public key, which verifies signatures.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The modulus, N.
    pub fn modulus(&self) -> &Modulus {
        &self.public.modulus
    }

    /// `g_0` = g^d, the product of all witnesses.
    pub fn g_0(&self) -> &Element {
        &self.g_0
    }

    /// g, which witnesses and proofs are powers of.
    pub fn g(&self) -> &Element {
        &self.g
    }

    /// A table for about `count` powers of g with secret exponents, each with one of the bounds in
    /// `bits` on its length.
    #[expect(clippy::missing_panics_doc, reason = "g has an inverse")]
    pub fn powers_of_g(&self, bits: &[u32], count: usize) -> FixedBase {
        FixedBase::new(self.modulus(), &self.g, bits, count).expect("g has an inverse")
    }

    /// The witness of one share, g^s. For many, [`Self::powers_of_g`] is faster.
    #[expect(clippy::missing_panics_doc, reason = "g has an inverse")]
    pub fn witness(&self, share: &SecretInteger) -> Element {
        self.modulus().pow(&self.g, share).expect("g has an inverse")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use sharing::Generator;

    use super::*;
    use crate::protocol::combination::Combination;
    use crate::protocol::fixture::{large_key, small_key};
    use crate::protocol::share::ShareRange;

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
            assert_eq!(PublicKey::from_pem(&key.to_pem()), Ok(key));
        }
    }

    #[test]
    fn other_keys_are_refused() {
        let key = small_key().group().public().clone();
        let modulus = key.modulus.to_be_bytes();
        let with_3 = pem::encode(&pem::key_with_modulus(&modulus, 3));
        assert_eq!(PublicKey::from_pem(&with_3), Err(PublicKeyError::Exponent));
        let der = key.to_der();
        for len in 0..der.len() {
            assert!(PublicKey::from_pem(&pem::encode(&der[..len])).is_err());
        }
        let longer = pem::encode(&[&der[..], &[0]].concat());
        assert_eq!(PublicKey::from_pem(&longer), Err(PublicKeyError::Exponent));
        assert_eq!(PublicKey::from_pem("a key"), Err(PublicKeyError::Form));
    }

    #[test]
    fn the_product_of_witnesses_is_g_0() {
        let mut generator = Generator::seeded().unwrap();
        let key = small_key();
        let (group, combination) = (key.group(), Combination::new(1).unwrap());
        let range = ShareRange::new(1024);
        let split = key.split(&range, &combination, &mut generator).unwrap();
        let table = group.powers_of_g(&[range.bits()], 4);
        let witnesses = combination.labels().map(|label| {
            let witness = group.witness(&split.share(label));
            assert_eq!(table.pow(&split.share(label)), witness);
            witness
        });
        let witnesses: Vec<Element> = witnesses.collect();
        assert_eq!(group.modulus().product(&witnesses), *group.g_0());
        assert_eq!(GroupKey::from_bytes(&group.to_bytes()).as_ref(), Ok(group));
    }

    #[test]
    fn wrong_group_keys_are_refused() {
        let key = small_key();
        let bytes = key.group().to_bytes();
        let without_base = [&bytes[..128], &[0; 128]].concat();
        assert_eq!(GroupKey::from_bytes(&without_base), Err(PublicKeyError::Base));
        for len in 129..bytes.len() {
            assert!(GroupKey::from_bytes(&bytes[..len]).is_err());
        }
    }
}
