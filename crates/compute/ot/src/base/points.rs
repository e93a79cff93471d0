//! Common parts of the transfers over Ristretto255 (RFC 9496).

use blocks::Block;
use blocks::prg::Prg;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::IsIdentity as _;
use sha2::{Digest as _, Sha512};
use zeroize::Zeroizing;

use crate::Error;
use crate::base::key_derivation::OtKeyDerivation;

/// The length of an encoded point, in bytes.
pub(crate) const POINT_LEN: usize = 32;

/// A uniform scalar.
pub(crate) fn scalar(prg: &mut Prg) -> Zeroizing<Scalar> {
    let mut wide = Zeroizing::new([0; 64]);
    prg.fill_bytes(&mut *wide);
    Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide))
}

/// A uniform point, whose discrete logarithm nobody knows (RFC 9496, 4.3.4).
pub(crate) fn hash_to_point(domain: &[u8], input: &[u8]) -> RistrettoPoint {
    let hash = Sha512::new().chain_update(domain).chain_update(input).finalize();
    RistrettoPoint::from_uniform_bytes(&hash.into())
}

/// Encodes points, one after the other.
#[cfg(feature = "lab")]
pub(crate) fn encode<'a>(points: impl Iterator<Item = &'a RistrettoPoint>) -> Vec<u8> {
    points.flat_map(|point| point.compress().to_bytes()).collect()
}

/// Point `at` of a message.
pub(crate) fn decode(message: &[u8], at: usize) -> Result<RistrettoPoint, Error> {
    let encoded = message.get(at * POINT_LEN..(at + 1) * POINT_LEN).ok_or(Error::Point(at))?;
    let encoded = CompressedRistretto::from_slice(encoded).map_err(|_| Error::Point(at))?;
    encoded.decompress().ok_or(Error::Point(at))
}

/// Point `at` of a message, which is not the identity.
pub(crate) fn decode_nonzero(message: &[u8], at: usize) -> Result<RistrettoPoint, Error> {
    let point = decode(message, at)?;
    if point.is_identity() { Err(Error::Identity) } else { Ok(point) }
}

impl OtKeyDerivation {
    /// The keys of shared points given by their halves, for which encoding takes one inversion in
    /// all: `count` for each transfer, in order. `sent` are the receiver's points.
    pub(crate) fn keys_of_halves(
        &self,
        halves: &[RistrettoPoint],
        sent: &[u8],
        count: usize,
    ) -> Vec<Block> {
        let encoded = Zeroizing::new(RistrettoPoint::double_and_compress_batch(halves));
        let shared: Vec<&[u8; POINT_LEN]> =
            encoded.iter().map(CompressedRistretto::as_bytes).collect();
        self.keys(&shared, sent, count)
    }
}

#[cfg(test)]
mod tests;
