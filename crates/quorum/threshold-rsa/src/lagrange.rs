//! Public integers of interpolation. All are computed with L = `n_max`!, which every denominator
//! divides: those at k are products of different differences of numbers up to `n_max`.

use handover::participant::ParticipantId;
use num_bigint::{BigInt, BigUint};
use rsa_arithmetic::SecretInteger;

/// n!.
pub(crate) fn factorial(n: usize) -> BigUint {
    (1..=n).map(BigUint::from).product()
}

/// L times the Lagrange coefficient of each server for the value at 0.
pub(crate) fn weights(scale: &BigUint, servers: &[ParticipantId]) -> Vec<BigInt> {
    basis(scale, servers).into_iter().map(|mut polynomial| polynomial.swap_remove(0)).collect()
}

/// For each server, the coefficients of the polynomial that is L there and 0 at the others, the
/// lowest first.
pub(crate) fn basis(scale: &BigUint, servers: &[ParticipantId]) -> Vec<Vec<BigInt>> {
    let number = |server: &ParticipantId| BigInt::from(server.number());
    let of = |server: &ParticipantId| {
        let mut polynomial = vec![BigInt::from(scale.clone())];
        let mut denominator = BigInt::from(1);
        for other in servers.iter().filter(|other| *other != server) {
            // Times v - other.
            polynomial.insert(0, BigInt::ZERO);
            for place in 0..polynomial.len() - 1 {
                let higher = &polynomial[place + 1] * number(other);
                polynomial[place] -= higher;
            }
            denominator *= number(server) - number(other);
        }
        polynomial.into_iter().map(|coefficient| coefficient / &denominator).collect()
    };
    servers.iter().map(of).collect()
}

/// Adds a secret integer times a public one.
pub(crate) fn add_multiple(sum: &mut SecretInteger, term: &SecretInteger, factor: &BigInt) {
    let is_negative = factor.sign() == num_bigint::Sign::Minus;
    sum.add_multiple(term, &factor.magnitude().to_u64_digits(), is_negative);
}

/// A public integer of this width. `None` if it is longer.
pub(crate) fn of_width(bits: u32, value: &BigInt) -> Option<SecretInteger> {
    SecretInteger::from_be_bytes(bits, &to_bytes(bits, value)?)
}

/// The encoding of a public integer of this width, as that of a [`SecretInteger`].
pub(crate) fn to_bytes(bits: u32, value: &BigInt) -> Option<Vec<u8>> {
    if value.bits() > bits.into() {
        return None;
    }
    let short = value.to_signed_bytes_be();
    let fill = if value.sign() == num_bigint::Sign::Minus { 0xff } else { 0 };
    let mut bytes = vec![fill; SecretInteger::encoded_len(bits).checked_sub(short.len())?];
    bytes.extend(short);
    Some(bytes)
}

/// Decodes a public integer of this width.
pub(crate) fn from_bytes(bits: u32, bytes: &[u8]) -> Option<BigInt> {
    if bytes.len() != SecretInteger::encoded_len(bits) {
        return None;
    }
    Some(BigInt::from_signed_bytes_be(bytes)).filter(|value| value.bits() <= bits.into())
}

#[cfg(test)]
mod tests {
    use handover::participant::GroupSize;

    use super::*;

    #[test]
    fn basis_polynomials_are_integral_and_interpolate() {
        for (faulty, largest) in [(1, 1), (1, 4), (2, 4), (4, 4), (10, 10)] {
            let size = GroupSize::of_faulty(faulty).unwrap();
            let scale = factorial(GroupSize::of_faulty(largest).unwrap().participants().count());
            for skip in 0..size.quorum() {
                let servers: Vec<_> =
                    size.participants().skip(skip).take(size.signer_count()).collect();
                let polynomials = basis(&scale, &servers);
                assert_eq!(weights(&scale, &servers).len(), servers.len());
                for (at, polynomial) in polynomials.iter().enumerate() {
                    for (k, server) in servers.iter().enumerate() {
                        let v = BigInt::from(server.number());
                        let value =
                            polynomial.iter().rev().fold(BigInt::ZERO, |sum, it| sum * &v + it);
                        let expected =
                            if k == at { BigInt::from(scale.clone()) } else { BigInt::ZERO };
                        assert_eq!(value, expected, "the divisions were exact");
                    }
                }
            }
        }
    }

    #[test]
    fn public_integers_have_the_encoding_of_secret_ones() {
        for value in [-256, -255, -1, 0, 1, 127, 128, 255, 256].map(BigInt::from) {
            let bytes = to_bytes(8, &value);
            assert_eq!(bytes.is_some(), value.bits() <= 8);
            let Some(bytes) = bytes else { continue };
            assert_eq!(from_bytes(8, &bytes), Some(value.clone()));
            assert_eq!(*of_width(8, &value).unwrap().to_be_bytes(), bytes);
        }
        assert_eq!(from_bytes(8, &[0xff, 0]), None, "-2^8 is out of range");
        assert_eq!(from_bytes(8, &[0]), None);
    }
}
