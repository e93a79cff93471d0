//! Sums of encrypted numbers: `ElGamal`'s encryption over Ristretto255, with the number in the
//! exponent.
//!
//! With the generator G, a secret key x and the public key P = xG, the encryption of t is (rG, rP +
//! tG) for a random r. The sum of encryptions is one of the sum. Its decryption is tG, of which
//! [`discrete_logarithm`] finds t, because t is small.

use std::collections::HashMap;

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity as _;
use subtle::{Choice, ConditionallySelectable as _};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::points::{POINT_LEN, any_point, decode, encode, encode_doubled, scalar};

/// The length of an encryption, in bytes.
pub(crate) const ENCRYPTION_LEN: usize = 2 * POINT_LEN;

/// The maximum sum of the absolute values of the sender's numbers.
pub const MAX_SUM: i64 = (1 << 42) - 1;

/// How many multiples of G are compared at a time with the point whose logarithm is found: with t
/// of them, it is found between -t^2 and t^2. First few, because most sums are small.
const TABLES: [u32; 3] = [1 << 10, 1 << 16, 1 << 21];

/// The number of points that are encoded at a time.
const PIECE_POINTS: usize = 1 << 12;

/// The key of the party that has the numbers.
pub(crate) struct SumKey {
    secret: Zeroizing<Scalar>,
}

/// The public key, of the other party.
pub(crate) struct SumPublicKey(RistrettoPoint);

/// An encryption.
#[derive(Clone, Copy)]
pub(crate) struct EncryptedSum([RistrettoPoint; 2]);

impl SumKey {
    pub(crate) fn new(uniform: &[u8; 64]) -> Self {
        Self { secret: scalar(uniform) }
    }

    pub(crate) fn public(&self) -> [u8; POINT_LEN] {
        encode(&RistrettoPoint::mul_base(&self.secret))
    }

    /// The halves of the points of encryptions, one after the other, and uniform bytes for each.
    pub(crate) fn encrypt_half(&self, number: i64, uniform: &[u8; 64]) -> [RistrettoPoint; 2] {
        let random = scalar(uniform);
        let masked = Zeroizing::new(*self.secret * *random + scalar_of(number).div_by_2());
        [RistrettoPoint::mul_base(&random), RistrettoPoint::mul_base(&masked)]
    }

    /// G times the number of an encryption.
    ///
    /// # Errors
    /// If it is malformed.
    pub(crate) fn decrypt(
        &self,
        encryption: &[u8; ENCRYPTION_LEN],
    ) -> Result<[u8; POINT_LEN], Error> {
        let EncryptedSum([random, masked]) = EncryptedSum::from_bytes(encryption)?;
        Ok(encode(&(masked - random * *self.secret)))
    }
}

impl SumPublicKey {
    /// # Errors
    /// If it is no point, or the identity.
    pub(crate) fn from_bytes(bytes: &[u8; POINT_LEN]) -> Result<Self, Error> {
        decode(bytes).map(Self)
    }

    /// An encryption of a sum plus `blinding`, which does not show of which encryptions it is.
    pub(crate) fn blind(
        &self,
        EncryptedSum([random, masked]): EncryptedSum,
        blinding: &Scalar,
        uniform: &[u8; 64],
    ) -> [u8; ENCRYPTION_LEN] {
        let fresh = scalar(uniform);
        let random = random + RistrettoPoint::mul_base(&fresh);
        let masked = masked + self.0 * *fresh + RistrettoPoint::mul_base(blinding);
        let mut bytes = [0; ENCRYPTION_LEN];
        bytes[..POINT_LEN].copy_from_slice(&encode(&random));
        bytes[POINT_LEN..].copy_from_slice(&encode(&masked));
        bytes
    }
}

impl EncryptedSum {
    /// An encryption of zero.
    pub(crate) fn zero() -> Self {
        Self([RistrettoPoint::identity(); 2])
    }

    /// # Errors
    /// If these are no points.
    pub(crate) fn from_bytes(bytes: &[u8; ENCRYPTION_LEN]) -> Result<Self, Error> {
        let (points, _) = bytes.as_chunks::<POINT_LEN>();
        Ok(Self([any_point(&points[0])?, any_point(&points[1])?]))
    }

    /// Adds another one if that is chosen, which the time does not show.
    pub(crate) fn add_if(&mut self, other: &Self, is_chosen: Choice) {
        for (sum, other) in self.0.iter_mut().zip(&other.0) {
            let with = *sum + other;
            sum.conditional_assign(&with, is_chosen);
        }
    }
}

/// The sum of which G times the sum plus `blinding` was decrypted. `None` if its absolute value is
/// above [`MAX_SUM`].
///
/// # Errors
/// If this is no point.
pub(crate) fn unblind(
    decrypted: &[u8; POINT_LEN],
    blinding: &Scalar,
) -> Result<Option<i64>, Error> {
    let point = any_point(decrypted)? - RistrettoPoint::mul_base(blinding);
    Ok(discrete_logarithm(&point))
}

fn scalar_of(number: i64) -> Zeroizing<Scalar> {
    let positive = Zeroizing::new(Scalar::from(number.unsigned_abs()));
    let negative = Zeroizing::new(-*positive);
    #[expect(clippy::cast_sign_loss, reason = "one bit is left")]
    let is_negative = Choice::from((number >> 63) as u8 & 1);
    Zeroizing::new(Scalar::conditional_select(&positive, &negative, is_negative))
}

/// The number whose product with G a point is (Shanks: baby steps and giant steps).
fn discrete_logarithm(point: &RistrettoPoint) -> Option<i64> {
    TABLES.into_iter().find_map(|table| find_logarithm(point, table))
}

/// The logarithm, if it is between the negative square of `steps` and its square.
fn find_logarithm(point: &RistrettoPoint, steps: u32) -> Option<i64> {
    let half = Scalar::ONE.div_by_2();
    let mut baby_steps = HashMap::with_capacity(steps as usize);
    let generator = RistrettoPoint::mul_base(&half);
    for_each_encoding(RistrettoPoint::identity(), generator, steps, |step, encoded| {
        baby_steps.insert(encoded, step);
        None::<()>
    });
    let giant = RistrettoPoint::mul_base(&(half * Scalar::from(steps)));
    let halved = *point * half;
    let found = |sign: i64| {
        let (baby_steps, steps) = (&baby_steps, i64::from(steps));
        move |step: u32, encoded: [u8; 8]| {
            let baby = baby_steps.get(&encoded)?;
            let number = sign * i64::from(step) * steps + i64::from(*baby);
            // A part of an encoding can be that of another point.
            (RistrettoPoint::mul_base(&scalar_of(number)) == *point).then_some(number)
        }
    };
    for_each_encoding(halved, -giant, steps, found(1))
        .or_else(|| for_each_encoding(halved, giant, steps + 1, found(-1)))
}

/// Calls `look` with parts of the encodings of twice `first`, twice `first + step` and so on, until
/// it returns something.
fn for_each_encoding<T>(
    first: RistrettoPoint,
    step: RistrettoPoint,
    count: u32,
    mut look: impl FnMut(u32, [u8; 8]) -> Option<T>,
) -> Option<T> {
    let mut point = first;
    let mut number = 0;
    while number < count {
        #[expect(clippy::cast_possible_truncation, reason = "at most 4,096")]
        let len = (PIECE_POINTS as u32).min(count - number);
        let mut halves = Vec::with_capacity(len as usize);
        for _ in 0..len {
            halves.push(point);
            point += step;
        }
        for encoded in encode_doubled(&halves) {
            let part = *encoded.first_chunk().expect("an encoding is longer");
            if let Some(found) = look(number, part) {
                return Some(found);
            }
            number += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_found_up_to_the_bound_of_a_table() {
        for number in [0, 1, -1, 1_023, -1_024, 1 << 20, -(1 << 20), (1 << 20) - 1, 1 << 24] {
            let point = RistrettoPoint::mul_base(&scalar_of(number));
            assert_eq!(discrete_logarithm(&point), Some(number));
        }
        let point = RistrettoPoint::mul_base(&scalar_of((1 << 20) + 5));
        assert_eq!(find_logarithm(&point, 1 << 10), None);
    }

    /// Takes seconds: the largest table.
    #[test]
    #[ignore = "takes half a minute without optimisation"]
    fn the_largest_sums_are_found() {
        for number in [MAX_SUM, -MAX_SUM] {
            let point = RistrettoPoint::mul_base(&scalar_of(number));
            assert_eq!(discrete_logarithm(&point), Some(number));
        }
    }

    #[test]
    fn chosen_numbers_are_summed() {
        let key = SumKey::new(&[7; 64]);
        let public = SumPublicKey::from_bytes(&key.public()).unwrap();
        let mut sum = EncryptedSum::zero();
        for (number, is_chosen) in [(5, true), (-3_000, true), (100, false), (0, true)] {
            let points = encode_doubled(&key.encrypt_half(number, &[number.to_le_bytes()[0]; 64]));
            let encryption = points.as_flattened().try_into().unwrap();
            let encryption = EncryptedSum::from_bytes(encryption).unwrap();
            sum.add_if(&encryption, Choice::from(u8::from(is_chosen)));
        }
        let blinding = scalar(&[9; 64]);
        let sent = public.blind(sum, &blinding, &[3; 64]);
        // Blinded and fresh: neither part is that of the sum.
        assert_ne!(EncryptedSum::from_bytes(&sent).unwrap().0[0], sum.0[0]);
        let decrypted = key.decrypt(&sent).unwrap();
        assert_eq!(unblind(&decrypted, &blinding).unwrap(), Some(-2_995));
    }
}
