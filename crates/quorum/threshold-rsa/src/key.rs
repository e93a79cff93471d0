//! A key that is shared by polynomials, and the widths of all integers
//! (`docs/protocols/quorum-rsa-polynomial.md`, Widths).

use std::sync::Arc;

use handover::participant::GroupSize;
use num_bigint::BigUint;
use rsa_arithmetic::{BaseComb, GroupPublicKey, RsaElement, SecretInteger};

use crate::lagrange::factorial;

/// The largest number of faulty servers for which a key may be dealt: 49 servers.
pub const MAX_FAULTY_RSA: u8 = 16;

/// The distance between what an adversary sees in all epochs, and what does not depend on d, is at
/// most 2^-`SECURITY_BITS`.
const SECURITY_BITS: u32 = 128;

/// The logarithm of the largest number of handovers of a key, including those that fail.
const HANDOVERS_LOG: u32 = 40;

/// The bits of the challenge of a proof.
pub(crate) const CHALLENGE_BITS: u32 = 128;

/// The bits by which the nonce of a proof is longer than the product of a challenge and the secret:
/// 2^64 proofs have a distance of at most 2^-128 from simulated ones.
pub(crate) const HIDING_BITS: u32 = 192;

/// The public part of a key that is shared by polynomials. It stays the same in all epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdRsaKey(Arc<KeyParameters>);

#[derive(Debug, PartialEq, Eq)]
struct KeyParameters {
    group: GroupPublicKey,
    largest: GroupSize,
    /// L, the factorial of the number of servers of the largest group.
    scale: BigUint,
    /// M = L^4.
    multiplier: BigUint,
    /// `g_0`^M = g^(M d).
    constant: RsaElement,
    g_squared: RsaElement,
    /// Powers of g, where they are faster with a table.
    powers_of_g: Option<BaseComb>,
}

impl ThresholdRsaKey {
    /// The key whose groups tolerate at most `largest.faulty()` faulty servers. `None` if that is
    /// more than [`MAX_FAULTY_RSA`].
    pub fn new(group: GroupPublicKey, largest: GroupSize) -> Option<Self> {
        if largest.faulty() > MAX_FAULTY_RSA.into() {
            return None;
        }
        let scale = factorial(largest.participants().count());
        let multiplier = scale.pow(4);
        let exponent = multiplier.to_u64_digits();
        let constant = group.modulus().product_of_long_powers(&[(group.g_0(), &exponent)]);
        let g_squared = group.g().square();
        let mut key = Self(Arc::new(KeyParameters {
            group,
            largest,
            scale,
            multiplier,
            constant,
            g_squared,
            powers_of_g: None,
        }));
        let longest = response_bits(key.row_bits(largest));
        let powers = BaseComb::new(key.group().modulus(), key.group().g(), longest);
        Arc::get_mut(&mut key.0)?.powers_of_g = powers;
        Some(key)
    }

    /// N, g and e.
    pub fn group(&self) -> &GroupPublicKey {
        &self.0.group
    }

    /// The size of the largest group that may have this key.
    pub fn largest(&self) -> GroupSize {
        self.0.largest
    }

    /// Whether a group of this size may have this key.
    pub fn admits(&self, size: GroupSize) -> bool {
        size.faulty() <= self.largest().faulty()
    }

    /// L.
    pub(crate) fn scale(&self) -> &BigUint {
        &self.0.scale
    }

    /// M. The shared secret is M d.
    pub(crate) fn multiplier(&self) -> &BigUint {
        &self.0.multiplier
    }

    /// g^(M d), the commitment to the shared secret.
    pub(crate) fn constant(&self) -> &RsaElement {
        &self.0.constant
    }

    /// g to the power of a secret integer.
    pub(crate) fn power_of_g(&self, exponent: &SecretInteger) -> RsaElement {
        match &self.0.powers_of_g {
            Some(powers) if exponent.bits() <= powers.bits() => powers.pow(exponent),
            _ => self.group().witness(exponent),
        }
    }

    /// g^2, the base of all proofs.
    pub(crate) fn g_squared(&self) -> &RsaElement {
        &self.0.g_squared
    }

    fn scale_bits(&self) -> u32 {
        u32::try_from(self.scale().bits()).expect("the largest group has 49 servers")
    }

    /// The coefficients of a dealing are uniform in [0, 2^`drawn_bits`).
    pub(crate) fn drawn_bits(&self) -> u32 {
        let f = self.largest().faulty();
        let servers = u32::try_from(3 * f + 1).expect("the largest group has 49 servers");
        self.group().modulus().bits()
            + 3 * self.scale_bits()
            + (servers - 1)
            + 2 * bit_len(f + 1)
            + bit_len(2 * f + 1)
            + HANDOVERS_LOG
            + SECURITY_BITS
    }

    /// The coefficients of the dealer's first sharing are uniform in [0, 2^`first_bits`).
    pub(crate) fn first_bits(&self) -> u32 {
        self.drawn_bits() + self.scale_bits()
    }

    /// A coefficient of a row that a dealer sends. A longer one proves the dealer faulty, and no
    /// server says that it holds a longer one.
    pub(crate) fn dealt_row_bits(&self, size: GroupSize) -> u32 {
        self.drawn_bits() + span(size)
    }

    /// A coefficient of a row of a dealing, whether the dealer is correct or not, and whether the
    /// row was sent or repaired: the value of an interpolation of f'+1 rows that may be held.
    pub(crate) fn held_row_bits(&self, size: GroupSize) -> u32 {
        self.dealt_row_bits(size) + span(size)
    }

    /// A coefficient of a row of a group's polynomial.
    pub(crate) fn row_bits(&self, size: GroupSize) -> u32 {
        self.held_row_bits(size) + self.scale_bits() + span(self.largest()) + 2
    }

    /// The correction of a dealing by a server of a group.
    pub(crate) fn correction_bits(&self, dealers: GroupSize) -> u32 {
        self.row_bits(dealers) + 1
    }

    /// The length of a share of a group of this size in bytes: it is the same in each epoch.
    pub fn share_len(&self, size: GroupSize) -> usize {
        size.signer_count() * SecretInteger::encoded_len(self.row_bits(size))
    }
}

/// The bound on the response of a proof for a secret with this bound, in bits.
pub(crate) fn response_bits(bits: u32) -> u32 {
    bits + CHALLENGE_BITS + HIDING_BITS + 1
}

/// The logarithm of the largest factor by which an interpolation, or the value of a polynomial at a
/// server, is longer than what it is computed from: (f+1) n^f.
pub(crate) fn span(size: GroupSize) -> u32 {
    let f = size.faulty();
    u32::try_from(f).expect("f is at most 33") * bit_len(3 * f + 1) + bit_len(f + 1)
}

/// The number of bits of a number.
fn bit_len(number: usize) -> u32 {
    usize::BITS - number.leading_zeros()
}

#[cfg(test)]
mod tests {
    use rsa_arithmetic::fixture::{large_key, tiny_key};

    use super::*;

    #[test]
    fn widths_are_as_specified() {
        for (faulty, drawn, share) in [(1, 2240, 2262), (4, 2337, 2429), (10, 2598, 2875)] {
            let size = GroupSize::of_faulty(faulty).unwrap();
            let key = ThresholdRsaKey::new(large_key().group().clone(), size).unwrap();
            assert_eq!((key.drawn_bits(), key.row_bits(size)), (drawn, share), "f = {faulty}");
        }
        let too_large = GroupSize::of_faulty(MAX_FAULTY_RSA + 1).unwrap();
        assert!(ThresholdRsaKey::new(tiny_key().group().clone(), too_large).is_none());
    }
}
