//! Sets as numbers: a value is a part of its SHA-256 digest.
//!
//! A number has 62 bits of the digest, and two bits above them that tell values (01) from the
//! numbers that fill the garbler's set (10) and the evaluator's (11). Two different values of sets
//! of a million have the same number with a probability below 2^-20.

use std::collections::{BTreeMap, BTreeSet};

use circuit::{bits, generate};
use compute::ComputeRole;
use console::CommandFailure;
use random::{RandomError, RandomGenerator};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The bits of a number.
pub(super) const NUMBER_BITS: u32 = 64;

/// The bits of a number that are of a digest.
const DIGEST_BITS: u32 = 62;

/// The set of this party.
pub(super) struct PsiOwnSet {
    values: BTreeMap<u64, String>,
    role: ComputeRole,
    size: usize,
}

impl PsiOwnSet {
    /// The set of these values, at most `size`.
    ///
    /// # Errors
    /// If there are more.
    pub(super) fn new(
        values: BTreeSet<String>,
        role: ComputeRole,
        size: usize,
    ) -> Result<Self, CommandFailure> {
        if values.len() > size {
            let message = format!(
                "there are {} values, more than --rows {size}: give a higher --rows at both \
                 parties",
                values.len()
            );
            return Err(CommandFailure::Usage(message));
        }
        let values = values.into_iter().map(|value| (number(&value), value)).collect();
        Ok(Self { values, role, size })
    }

    /// The number of different values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// This party's input of the circuit: its numbers in ascending order; of the garbler, the
    /// control bits of a random order follow.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(super) fn input(&self) -> Result<Zeroizing<Vec<u8>>, CommandFailure> {
        let random = |error: RandomError| CommandFailure::Failed(error.to_string());
        let mut generator = RandomGenerator::seeded().map_err(random)?;
        let tag: u64 = if self.role == ComputeRole::Garbler { 0b10 } else { 0b11 };
        let mut numbers: BTreeSet<u64> = self.values.keys().copied().collect();
        while numbers.len() < self.size {
            let filling = u64::from_le_bytes(generator.array().map_err(random)?);
            numbers.insert(tagged(tag, filling));
        }
        let mut input: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        if self.role == ComputeRole::Garbler {
            let mut order: Vec<usize> = (0..self.size).collect();
            for last in (1..self.size).rev() {
                let drawn = u128::from_le_bytes(generator.array().map_err(random)?);
                let other = drawn % (last as u128 + 1);
                order.swap(last, usize::try_from(other).unwrap_or(last));
            }
            input.extend(bits::to_bytes(&generate::shuffle(&order)));
        }
        Ok(Zeroizing::new(input))
    }

    /// The digests of the values of the numbers that are not 0, in ascending order.
    pub(super) fn digests_of(&self, numbers: &[u8]) -> Vec<u128> {
        let found = parse(numbers).filter_map(|number| self.values.get(&number));
        let found: BTreeSet<u128> = found.map(|value| psi::item(value.as_bytes())).collect();
        found.into_iter().collect()
    }
}

/// Numbers in ascending order.
pub(super) fn sorted(numbers: &[u8]) -> Vec<u8> {
    let mut numbers: Vec<u64> = parse(numbers).collect();
    numbers.sort_unstable();
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn parse(numbers: &[u8]) -> impl Iterator<Item = u64> {
    numbers.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The number of a value.
fn number(value: &str) -> u64 {
    let digest = Sha256::new().chain_update(b"sunder psi 1").chain_update(value).finalize();
    let first = digest[..8].try_into().map_or(0, u64::from_le_bytes);
    tagged(0b01, first)
}

fn tagged(tag: u64, number: u64) -> u64 {
    tag << DIGEST_BITS | (number & ((1 << DIGEST_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[&str], role: ComputeRole, size: usize) -> PsiOwnSet {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        PsiOwnSet::new(values, role, size).unwrap()
    }

    #[test]
    fn inputs_are_full_sorted_and_of_two_kinds() {
        let values = ["a", "b", "c"];
        let inputs = [ComputeRole::Garbler, ComputeRole::Evaluator].map(|role| {
            let input = set(&values, role, 5).input().unwrap();
            let numbers: Vec<u64> = parse(&input[..40]).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b));
            numbers
        });
        let common: Vec<&u64> = inputs[0].iter().filter(|it| inputs[1].contains(it)).collect();
        let mut expected = values.map(number);
        expected.sort_unstable();
        assert_eq!(common, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn numbers_lead_to_their_values() {
        let set = set(&["x", "y", "z"], ComputeRole::Evaluator, 4);
        let numbers = [number("z"), 0, number("other"), number("x")];
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        let mut expected = ["x", "z"].map(|value| psi::item(value.as_bytes()));
        expected.sort_unstable();
        assert_eq!(set.digests_of(&bytes), expected);
        assert_eq!(set.digests_of(&sorted(&bytes)), expected);
        assert_eq!(set.len(), 3);
    }

    #[test]
    fn too_many_values_are_refused() {
        let values = ["a", "b"].map(str::to_owned).into_iter().collect();
        assert!(PsiOwnSet::new(values, ComputeRole::Garbler, 1).is_err());
    }
}
