//! The dealer of a new key, who deletes it.

use handover::participant::GroupSize;
use random::{RandomError, RandomGenerator};
use rsa_arithmetic::{DealerKey, SecretInteger};
use zeroize::Zeroizing;

use crate::key::ThresholdRsaKey;
use crate::sharing::{
    IntegerCommitment, IntegerPolynomial, ThresholdRsaShare, ThresholdRsaSharing, pairs,
};

/// Why a key is not dealt.
#[derive(Debug, thiserror::Error)]
pub enum RsaDealingError {
    /// The group is larger than the largest one, or that is larger than permitted.
    #[error("a group of this size cannot have this key")]
    Size,
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Shares a key among the servers of a group, in the order of their numbers. The key can be handed
/// over to groups of up to `largest.faulty()` faulty servers: shares are longer for a larger one.
///
/// # Errors
/// If the sizes do not fit, or there are no random bytes.
pub fn deal(
    dealer: &DealerKey,
    size: GroupSize,
    largest: GroupSize,
    generator: &mut RandomGenerator,
) -> Result<Vec<ThresholdRsaShare>, RsaDealingError> {
    let key = ThresholdRsaKey::new(dealer.group().clone(), largest);
    let key = key.filter(|key| key.admits(size)).ok_or(RsaDealingError::Size)?;
    let bits = key.row_bits(size);
    let mut secret = SecretInteger::zero(bits);
    secret.add_multiple(dealer.private_exponent(), &key.multiplier().to_u64_digits(), false);
    let mut coefficients = vec![secret];
    for _ in pairs(size).skip(1) {
        let mut bytes = Zeroizing::new(vec![0; key.first_bits().div_ceil(8) as usize]);
        generator.fill(&mut bytes)?;
        coefficients.push(uniform(bits, key.first_bits(), &mut bytes));
    }
    let polynomial = IntegerPolynomial { size, coefficients };
    let commitment = IntegerCommitment::new(size, polynomial.commit(&key));
    let sharing = ThresholdRsaSharing::new(key, commitment);
    let share =
        |server| ThresholdRsaShare::new(server, polynomial.row(server, bits), sharing.clone());
    size.participants().map(share).collect::<Option<_>>().ok_or(RsaDealingError::Size)
}

/// An integer of `drawn` random bits, from so many bytes rounded up, with the bound `bits`.
pub(crate) fn uniform(bits: u32, drawn: u32, bytes: &mut [u8]) -> SecretInteger {
    if !drawn.is_multiple_of(8) {
        bytes[0] &= 0xff >> (8 - drawn % 8);
    }
    SecretInteger::sum(bits, [&SecretInteger::from_unsigned(drawn.next_multiple_of(8), bytes)])
}
