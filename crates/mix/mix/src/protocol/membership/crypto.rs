//! Cryptography of the membership messages.

use chacha20poly1305::aead::Aead;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce};
use curve25519_dalek::MontgomeryPoint;
use hmac::{Hmac, Mac};
use keys::{IdentityPublicKey, IdentitySecretKey};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The number of bytes that sealing adds.
pub(super) const TAG_LEN: usize = 16;

/// HMAC-SHA-256 under `label` of the concatenation of `parts`, of which only the last may vary in
/// its length: the extraction of HKDF (RFC 5869).
pub(super) fn derive(label: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(label.as_bytes());
    let mac = mac.expect("keys of any length are taken");
    let mac = parts.iter().fold(mac, Mac::chain_update);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// X25519 (RFC 7748). `None` if `public` is a point of small order, for which the result does not
/// depend on the secret.
pub(super) fn agree(secret: &[u8; 32], public: &[u8; 32]) -> Option<Zeroizing<[u8; 32]>> {
    let agreed = Zeroizing::new(MontgomeryPoint(*public).mul_clamped(*secret).to_bytes());
    (*agreed != [0; 32]).then_some(agreed)
}

/// The public key of X25519 that belongs to a secret one.
pub(super) fn x25519_public(secret: &[u8; 32]) -> [u8; 32] {
    MontgomeryPoint::mul_base_clamped(*secret).to_bytes()
}

/// The shared secret of two identities.
pub(super) fn agree_with(
    own: &IdentitySecretKey,
    other: &IdentityPublicKey,
) -> Zeroizing<[u8; 32]> {
    agree(&own.x25519(), &other.x25519()).expect("a public key is of no small order")
}

/// Encrypts and authenticates a text. The key must not be used for another text.
pub(super) fn seal(key: &[u8; 32], text: &[u8]) -> Vec<u8> {
    let sealed = ChaCha20Poly1305::new(&(*key).into()).encrypt(&Nonce::from([0; 12]), text);
    sealed.expect("texts are shorter than 256 GiB")
}

/// Decrypts a text. `None` if it was not sealed with this key.
pub(super) fn open(key: &[u8; 32], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = ChaCha20Poly1305::new(&(*key).into()).decrypt(&Nonce::from([0; 12]), sealed);
    text.ok().map(Zeroizing::new)
}

/// The identifier of a group, made from its founder and its name. All keys and signatures of the
/// group are bound to it.
pub(crate) fn group_id(founder: &IdentityPublicKey, group: &str) -> [u8; 32] {
    *derive("sunder mix group 1", &[&founder.to_bytes(), group.as_bytes()])
}
