//! Items as points of Ristretto255 (RFC 9496), and their multiples.

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity as _;
use sha2::{Digest as _, Sha256, Sha512};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::hello::PsiRunDigest;

/// The length of an encoded point, in bytes.
pub(crate) const POINT_LEN: usize = 32;

/// The block size of SHA-512, in bytes.
const SHA512_BLOCK: usize = 128;

/// Separates these points from all others (RFC 9380, section 3.1).
const DOMAIN: &[u8] = b"SNDRPSI-V02-CS01-with-ristretto255_XMD:SHA-512_R255MAP_RO_";

/// The point of an item, whose discrete logarithm nobody knows.
pub(crate) fn point_of_item(item: &[u8; 16]) -> RistrettoPoint {
    hash_to_point(DOMAIN, item)
}

/// Hashes a message to a point (RFC 9380, appendix B, with `expand_message_xmd` and SHA-512).
fn hash_to_point(domain: &[u8], message: &[u8]) -> RistrettoPoint {
    #[expect(clippy::cast_possible_truncation, reason = "domains are constants of below 256 bytes")]
    let domain_len = [domain.len() as u8];
    let first = Sha512::new()
        .chain_update([0; SHA512_BLOCK])
        .chain_update(message)
        .chain_update(64_u16.to_be_bytes())
        .chain_update([0])
        .chain_update(domain)
        .chain_update(domain_len)
        .finalize();
    let uniform = Sha512::new()
        .chain_update(first)
        .chain_update([1])
        .chain_update(domain)
        .chain_update(domain_len)
        .finalize();
    RistrettoPoint::from_uniform_bytes(&uniform.into())
}

/// A secret factor.
pub(crate) fn scalar(uniform: &[u8; 64]) -> Zeroizing<Scalar> {
    Zeroizing::new(Scalar::from_bytes_mod_order_wide(uniform))
}

/// The encodings of twice these points.
pub(crate) fn encode_doubled(halves: &[RistrettoPoint]) -> Vec<[u8; POINT_LEN]> {
    let encoded = RistrettoPoint::double_and_compress_batch(halves);
    encoded.iter().map(CompressedRistretto::to_bytes).collect()
}

/// The encoding of a point.
pub(crate) fn encode(point: &RistrettoPoint) -> [u8; POINT_LEN] {
    point.compress().to_bytes()
}

/// A point that the other party has sent.
///
/// # Errors
/// If it is none, or is the identity.
pub(crate) fn decode(encoded: &[u8; POINT_LEN]) -> Result<RistrettoPoint, Error> {
    let point = any_point(encoded)?;
    if point.is_identity() {
        return Err(Error::Malformed("the identity as a point"));
    }
    Ok(point)
}

/// A point that may be the identity.
///
/// # Errors
/// If it is none.
pub(crate) fn any_point(encoded: &[u8; POINT_LEN]) -> Result<RistrettoPoint, Error> {
    let point = CompressedRistretto(*encoded).decompress();
    point.ok_or(Error::Malformed("bytes that are not a point"))
}

/// The hash of an encoded point, of which the masks are parts.
pub(crate) fn mask_of_point(run: &PsiRunDigest, encoded: &[u8; POINT_LEN]) -> [u8; 16] {
    let digest = Sha256::new().chain_update(run.bytes()).chain_update(encoded).finalize();
    *digest.first_chunk().expect("a digest is longer")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9497, appendix A.1.1 (`OPRF(ristretto255, SHA-512)`), test vectors 1 and 2: the blinded
    /// elements of inputs.
    #[test]
    fn points_are_those_of_rfc_9497() {
        let blind = "64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706";
        let mut bytes = [0; 32];
        base16ct::lower::decode(blind, &mut bytes).unwrap();
        let blind = Scalar::from_canonical_bytes(bytes).unwrap();
        let domain = b"HashToGroup-OPRFV1-\x00-ristretto255-SHA512";
        for (input, blinded) in [
            (&[0_u8; 1][..], "609a0ae68c15a3cf6903766461307e5c8bb2f95e7e6550e1ffa2dc99e412803c"),
            (&[0x5a; 17], "da27ef466870f5f15296299850aa088629945a17d1f5b7f5ff043f76b3c06418"),
        ] {
            let point = hash_to_point(domain, input) * blind;
            assert_eq!(base16ct::lower::encode_string(&encode(&point)), blinded);
        }
    }

    #[test]
    fn what_is_no_point_is_refused() {
        assert!(decode(&[0; 32]).is_err());
        assert!(any_point(&[0; 32]).is_ok());
        assert!(any_point(&[0xFF; 32]).is_err());
        assert!(decode(&encode(&point_of_item(&[1; 16]))).is_ok());
    }
}
