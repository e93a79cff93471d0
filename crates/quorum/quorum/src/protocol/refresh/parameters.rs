//! Precomputed values of the public key that all checks of a refresh use.

use random::{RandomError, RandomGenerator};
use rsa_arithmetic::integer::SecretInteger;
use rsa_arithmetic::key::GroupPublicKey;
use rsa_arithmetic::modulus::{FixedBase, RsaElement, RsaModulus};

use crate::protocol::share::ShareRange;

/// The bits of the coefficients of random combinations.
const COEFFICIENT_BITS: u32 = 128;

/// How many bits the sum of all subshares of a server is longer than one subshare: 715 * 495 <
/// 2^20.
const COUNT_BITS: u32 = 20;

/// The modulus, powers of g, and the ranges of exponents.
pub struct RefreshParameters {
    pub(crate) modulus: RsaModulus,
    pub(crate) range: ShareRange,
    powers: FixedBase,
}

impl RefreshParameters {
    /// The parameters for a key. This takes as long as some hundred exponentiations.
    pub fn new(key: &GroupPublicKey, range: ShareRange) -> Self {
        let widths = [range.bits(), combined_bits(range), response_bits(range)];
        // In a refresh of seven servers, each server has about this many exponentiations.
        let powers = key.powers_of_g(&widths, 1000);
        Self { modulus: key.modulus().clone(), range, powers }
    }

    /// The length of an encoded number modulo N in bytes.
    pub(crate) fn element_len(&self) -> usize {
        self.modulus.byte_len()
    }

    /// g to the power of a share, of a combination, or of the response of a proof of possession,
    /// in constant time.
    pub(crate) fn power(&self, exponent: &SecretInteger) -> RsaElement {
        self.powers.pow(exponent)
    }

    /// Whether each number is g to the power of its share, checked by one random combination. Wrong
    /// numbers pass with a probability of 2^-128.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub(crate) fn are_proofs_of(
        &self,
        terms: &[(&RsaElement, &SecretInteger)],
        generator: &mut RandomGenerator,
    ) -> Result<bool, RandomError> {
        let mut sum = SecretInteger::zero(self.combined_bits());
        let mut powers = Vec::with_capacity(terms.len());
        for (proof, share) in terms {
            let coefficient = u128::from_be_bytes(generator.array()?);
            sum.add_product(share, coefficient);
            powers.push((*proof, coefficient));
        }
        Ok(self.power(&sum).has_same_square(&self.modulus.product_of_powers(&powers)))
    }

    /// The bound on sums of shares with 128-bit coefficients.
    pub(crate) fn combined_bits(&self) -> u32 {
        combined_bits(self.range)
    }

    /// The bound on responses of proofs of possession.
    pub(crate) fn response_bits(&self) -> u32 {
        response_bits(self.range)
    }
}

fn combined_bits(range: ShareRange) -> u32 {
    range.bits() + COEFFICIENT_BITS + COUNT_BITS
}

/// The product of a 128-bit challenge and a combination, plus a mask that is 128 bits longer than
/// it.
fn response_bits(range: ShareRange) -> u32 {
    combined_bits(range) + 2 * COEFFICIENT_BITS + 1
}
