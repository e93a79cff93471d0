//! What programs see of a token: keys and certificates, as lists of attributes.

use cryptoki_sys::*;
use keys::rsa::PUBLIC_EXPONENT_BYTES;
use keys::{AnyPublicKey, Ed25519PublicKey, RsaPublicKey};
use sha2::{Digest as _, Sha256};

use crate::certificate::TokenCertificate;

/// The curve of Ed25519 as `CKA_EC_PARAMS` names it, a `PrintableString` (PKCS #11 3.0, 2.3.5).
const EDWARDS25519: &[u8; 14] = b"\x13\x0cedwards25519";

/// The tag and the length of a point of Ed25519, an `OCTET STRING`.
const ED25519_POINT: [u8; 2] = [0x04, 32];

/// The length of an Ed25519 signature, in bytes.
const ED25519_SIGNATURE_LEN: usize = 64;

/// The mechanisms of a key. Each takes the whole message.
pub fn mechanisms_of(key: &AnyPublicKey) -> &'static [CK_MECHANISM_TYPE] {
    match key {
        AnyPublicKey::Rsa(_) => {
            &[CKM_SHA256_RSA_PKCS, CKM_SHA512_RSA_PKCS, CKM_SHA256_RSA_PKCS_PSS]
        }
        AnyPublicKey::Ed25519(_) => &[CKM_EDDSA],
    }
}

/// The smallest and the largest size of keys of a key's mechanisms, in bits.
pub(crate) fn key_sizes_of(key: &AnyPublicKey) -> (CK_ULONG, CK_ULONG) {
    match key {
        AnyPublicKey::Rsa(_) => (1024, 4096),
        AnyPublicKey::Ed25519(_) => (255, 255),
    }
}

/// The length of a signature by a key, in bytes.
pub(crate) fn signature_len_of(key: &AnyPublicKey) -> usize {
    match key {
        AnyPublicKey::Rsa(key) => key.byte_len(),
        AnyPublicKey::Ed25519(_) => ED25519_SIGNATURE_LEN,
    }
}

/// The length of an identifier, by which programs find the certificate of a key, in bytes.
const ID_LEN: usize = 20;

/// Attributes of a private key that it does not show.
const SENSITIVE: [CK_ATTRIBUTE_TYPE; 7] = [
    CKA_VALUE,
    CKA_PRIVATE_EXPONENT,
    CKA_PRIME_1,
    CKA_PRIME_2,
    CKA_EXPONENT_1,
    CKA_EXPONENT_2,
    CKA_COEFFICIENT,
];

/// A key or a certificate.
#[derive(Clone, Debug)]
pub struct TokenObject {
    class: CK_OBJECT_CLASS,
    attributes: Vec<(CK_ATTRIBUTE_TYPE, Vec<u8>)>,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAttribute<'a> {
    /// The bytes that C has in memory.
    Value(&'a [u8]),
    /// It is secret.
    Sensitive,
    /// The object has none.
    Missing,
}

impl TokenObject {
    /// Whether it is the private key.
    pub fn is_private_key(&self) -> bool {
        self.class == CKO_PRIVATE_KEY
    }

    /// The value of an attribute.
    pub fn attribute(&self, kind: CK_ATTRIBUTE_TYPE) -> TokenAttribute<'_> {
        if let Some((_, value)) = self.attributes.iter().find(|(known, _)| *known == kind) {
            return TokenAttribute::Value(value);
        }
        if self.is_private_key() && SENSITIVE.contains(&kind) {
            return TokenAttribute::Sensitive;
        }
        TokenAttribute::Missing
    }
}

/// The objects of a token: the private key, the public key, and the certificates, of which the
/// first is that of the key.
pub(crate) fn objects_of(
    label: &str,
    key: &AnyPublicKey,
    certificates: &[TokenCertificate],
) -> Vec<TokenObject> {
    let id = &key.digest()[..ID_LEN];
    let subject = certificates.first().map_or(&[][..], |it| &it.subject);
    let own = certificates.iter().take(1).map(|it| certificate(label, id, it));
    let issuers = certificates.iter().skip(1).map(|it| {
        let id = Sha256::digest(&it.public_key);
        certificate(&format!("{label}: issuer"), &id[..ID_LEN], it)
    });
    let keys = [private_key(label, id, key, subject), public_key(label, id, key, subject)];
    keys.into_iter().chain(own).chain(issuers).collect()
}

fn private_key(label: &str, id: &[u8], key: &AnyPublicKey, subject: &[u8]) -> TokenObject {
    let object = key_object(CKO_PRIVATE_KEY, label, id, key, subject);
    object.flags(&[
        (CKA_SENSITIVE, true),
        (CKA_ALWAYS_SENSITIVE, true),
        (CKA_EXTRACTABLE, false),
        (CKA_NEVER_EXTRACTABLE, true),
        (CKA_SIGN, true),
        (CKA_SIGN_RECOVER, false),
        (CKA_DECRYPT, false),
        (CKA_UNWRAP, false),
        (CKA_WRAP_WITH_TRUSTED, false),
        (CKA_ALWAYS_AUTHENTICATE, false),
    ])
}

/// It is for programs that verify with it themselves: the module does not.
fn public_key(label: &str, id: &[u8], key: &AnyPublicKey, subject: &[u8]) -> TokenObject {
    let object = key_object(CKO_PUBLIC_KEY, label, id, key, subject);
    let object = match key {
        AnyPublicKey::Rsa(key) => object.number(CKA_MODULUS_BITS, CK_ULONG::from(key.bits())),
        AnyPublicKey::Ed25519(_) => object,
    };
    object.flags(&[
        (CKA_VERIFY, false),
        (CKA_VERIFY_RECOVER, false),
        (CKA_ENCRYPT, false),
        (CKA_WRAP, false),
        (CKA_TRUSTED, false),
    ])
}

/// An object with the attributes that private and public keys have.
fn key_object(
    class: CK_OBJECT_CLASS,
    label: &str,
    id: &[u8],
    key: &AnyPublicKey,
    subject: &[u8],
) -> TokenObject {
    let mechanisms = mechanisms_of(key).iter().flat_map(|it| it.to_ne_bytes());
    let mechanisms: Vec<u8> = mechanisms.collect();
    let object = object(class, label, id);
    let object = match key {
        AnyPublicKey::Rsa(key) => object.rsa_key(key),
        AnyPublicKey::Ed25519(key) => object.ed25519_key(key),
    };
    object
        .number(CKA_KEY_GEN_MECHANISM, CK_UNAVAILABLE_INFORMATION)
        .flags(&[(CKA_LOCAL, false), (CKA_DERIVE, false)])
        .bytes(CKA_PUBLIC_KEY_INFO, &key.to_der())
        .bytes(CKA_SUBJECT, subject)
        .bytes(CKA_START_DATE, &[])
        .bytes(CKA_END_DATE, &[])
        .bytes(CKA_ALLOWED_MECHANISMS, &mechanisms)
}

fn certificate(label: &str, id: &[u8], certificate: &TokenCertificate) -> TokenObject {
    let object = object(CKO_CERTIFICATE, label, id).number(CKA_CERTIFICATE_TYPE, CKC_X_509);
    object
        .number(CKA_CERTIFICATE_CATEGORY, 0)
        .flags(&[(CKA_TRUSTED, false)])
        .bytes(CKA_VALUE, &certificate.whole)
        .bytes(CKA_SUBJECT, &certificate.subject)
        .bytes(CKA_ISSUER, &certificate.issuer)
        .bytes(CKA_SERIAL_NUMBER, &certificate.serial)
        .bytes(CKA_PUBLIC_KEY_INFO, &certificate.public_key)
        .bytes(CKA_START_DATE, &[])
        .bytes(CKA_END_DATE, &[])
}

/// An object with the attributes that all have.
fn object(class: CK_OBJECT_CLASS, label: &str, id: &[u8]) -> TokenObject {
    let object = TokenObject { class, attributes: vec![] }.number(CKA_CLASS, class);
    let object = object.bytes(CKA_LABEL, label.as_bytes()).bytes(CKA_ID, id);
    object.flags(&[
        (CKA_TOKEN, true),
        (CKA_PRIVATE, false),
        (CKA_MODIFIABLE, false),
        (CKA_COPYABLE, false),
        (CKA_DESTROYABLE, false),
    ])
}

impl TokenObject {
    fn rsa_key(self, key: &RsaPublicKey) -> Self {
        self.number(CKA_KEY_TYPE, CKK_RSA)
            .bytes(CKA_MODULUS, &key.modulus())
            .bytes(CKA_PUBLIC_EXPONENT, &PUBLIC_EXPONENT_BYTES)
    }

    fn ed25519_key(self, key: &Ed25519PublicKey) -> Self {
        self.number(CKA_KEY_TYPE, CKK_EC_EDWARDS)
            .bytes(CKA_EC_PARAMS, EDWARDS25519)
            .bytes(CKA_EC_POINT, &[&ED25519_POINT[..], &key.to_bytes()].concat())
    }

    fn bytes(mut self, kind: CK_ATTRIBUTE_TYPE, value: &[u8]) -> Self {
        self.attributes.push((kind, value.to_vec()));
        self
    }

    fn number(self, kind: CK_ATTRIBUTE_TYPE, value: CK_ULONG) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    fn flags(self, values: &[(CK_ATTRIBUTE_TYPE, bool)]) -> Self {
        values.iter().fold(self, |object, &(kind, value)| object.bytes(kind, &[value.into()]))
    }
}
