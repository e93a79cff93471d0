//! Points of prime order on edwards25519 and scalars, in their only encodings (RFC 9591, 6.1).

use std::fmt;

use curve25519_dalek::EdwardsPoint;
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use encoding::{FieldError, FieldReader};
use sha2::{Digest as _, Sha512};
use zeroize::{Zeroize, Zeroizing};

/// Bytes are not the encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct MalformedHandoverMessage(pub &'static str);

impl From<FieldError> for MalformedHandoverMessage {
    fn from(error: FieldError) -> Self {
        Self(match error {
            FieldError::Short => "too short",
            FieldError::Long => "too long",
            FieldError::NotText => "not text",
        })
    }
}

/// A point of the subgroup of prime order, together with its encoding of 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrimeOrderPoint {
    point: EdwardsPoint,
    bytes: [u8; 32],
}

impl PrimeOrderPoint {
    /// A point that was computed from points of prime order.
    pub fn new(point: EdwardsPoint) -> Self {
        Self { point, bytes: point.compress().to_bytes() }
    }

    /// The base point times a scalar, in constant time.
    pub fn base(scalar: &Scalar) -> Self {
        Self::new(EdwardsPoint::mul_base(scalar))
    }

    /// The point.
    pub fn point(&self) -> &EdwardsPoint {
        &self.point
    }

    /// The encoding (RFC 8032, 5.1.2).
    pub fn to_bytes(&self) -> [u8; 32] {
        self.bytes
    }

    /// Decodes a point.
    ///
    /// # Errors
    /// If the bytes are not the canonical encoding of a point of prime order. The neutral element
    /// is refused, because no correct server sends it.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, MalformedHandoverMessage> {
        let point = CompressedEdwardsY(bytes).decompress();
        let is_strict = |point: &EdwardsPoint| {
            point.compress().0 == bytes
                && *point != EdwardsPoint::identity()
                && point.is_torsion_free()
        };
        match point.filter(is_strict) {
            Some(point) => Ok(Self { point, bytes }),
            None => Err(MalformedHandoverMessage("not a point of prime order")),
        }
    }

    /// Reads the encoding.
    ///
    /// # Errors
    /// As [`Self::from_bytes`].
    pub fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        Self::from_bytes(reader.take()?)
    }
}

impl fmt::Debug for PrimeOrderPoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl Zeroize for PrimeOrderPoint {
    fn zeroize(&mut self) {
        self.point.zeroize();
        self.bytes.zeroize();
    }
}

/// Reads a scalar, of 32 bytes.
///
/// # Errors
/// If the bytes do not begin with the canonical encoding of a scalar.
pub fn read_scalar(reader: &mut FieldReader<'_>) -> Result<Scalar, MalformedHandoverMessage> {
    let bytes = Zeroizing::new(reader.take()?);
    let scalar: Option<Scalar> = Scalar::from_canonical_bytes(*bytes).into();
    scalar.ok_or(MalformedHandoverMessage("not a scalar"))
}

/// SHA-512 of the concatenation of `parts`. Wiped, because some inputs are secret.
pub fn sha512(parts: &[&[u8]]) -> Zeroizing<[u8; 64]> {
    let mut hash = Sha512::new();
    for part in parts {
        hash.update(part);
    }
    Zeroizing::new(hash.finalize().into())
}

/// The first half of SHA-512 of the concatenation of `parts`.
pub fn half_sha512(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(&sha512(parts)[..32]);
    digest
}

/// A scalar from SHA-512 of the concatenation of `parts`. Its bias is below 2^-250.
pub fn hash_to_scalar(parts: &[&[u8]]) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&sha512(parts))
}

#[cfg(test)]
mod tests {
    use curve25519_dalek::constants::EIGHT_TORSION;

    use super::*;

    #[test]
    fn only_canonical_points_of_prime_order_are_read() {
        let point = PrimeOrderPoint::base(&Scalar::from(5_u8));
        assert_eq!(PrimeOrderPoint::from_bytes(point.to_bytes()), Ok(point));
        for torsion in EIGHT_TORSION {
            let refused = PrimeOrderPoint::from_bytes(torsion.compress().0);
            assert!(refused.is_err(), "a point of small order");
            if torsion != EdwardsPoint::identity() {
                let mixed = point.point + torsion;
                assert!(PrimeOrderPoint::from_bytes(mixed.compress().0).is_err(), "of mixed order");
            }
        }
        // y = p + 1, which is 1 modulo p.
        let mut other_encoding = [0xff; 32];
        (other_encoding[0], other_encoding[31]) = (0xee, 0x7f);
        assert!(PrimeOrderPoint::from_bytes(other_encoding).is_err());
    }

    #[test]
    fn a_scalar_above_the_order_is_refused() {
        let order_minus_1 = (Scalar::ZERO - Scalar::ONE).to_bytes();
        assert!(read_scalar(&mut FieldReader::new(&order_minus_1)).is_ok());
        let mut order = order_minus_1;
        order[0] += 1;
        assert!(read_scalar(&mut FieldReader::new(&order)).is_err());
        assert!(read_scalar(&mut FieldReader::new(&[0; 31])).is_err());
    }
}
