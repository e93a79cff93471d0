//! Shares of an integer: their length, and how an integer is split (thesis, 3.1).

use keys::rsa::mgf1;
use random::{RandomError, RandomGenerator, wipe_stack};
use rsa_arithmetic::integer::SecretInteger;
use zeroize::{Zeroize, Zeroizing};

use crate::protocol::combination::{CombinatorialSharing, Label};

/// The length in bytes of a [`ShareExpansionSeed`].
pub const SEED_LEN: usize = 32;

/// How many bits the range of shares is longer than the modulus. The distribution of an adversary's
/// view depends on d by at most 2^-`SECURITY_BITS`.
const SECURITY_BITS: u32 = 128;

/// The logarithm of the largest number of shares, 715 with f = 4, rounded up. The range is the same
/// for all groups, so that shares can move to a group of another size.
const LABELS_LOG: u32 = 10;

/// The prefix of what is hashed to expand a share.
const DOMAIN: &[u8] = b"sunder-quorum share from a seed v1\0";

/// Uniformly random bytes from which one share is expanded. Wiped on drop.
#[derive(Clone)]
pub struct ShareExpansionSeed(pub [u8; SEED_LEN]);

impl Drop for ShareExpansionSeed {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The range of the shares of a group (`docs/protocols/quorum.md`, Ranges).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRange {
    /// A share u >= 2 is uniform in [0, 2^`drawn_bits`).
    drawn_bits: u32,
    /// Shares, subshares, and sums of shares with different labels are below 2^`bits` in absolute
    /// value, in every epoch.
    bits: u32,
}

impl ShareRange {
    /// The range for a modulus of `modulus_bits` bits.
    pub fn new(modulus_bits: u32) -> Self {
        Self::drawn_from(modulus_bits + SECURITY_BITS)
    }

    /// A range as wide as in the thesis, [-lN^2, lN^2]. For the laboratory only: it takes twice as
    /// long, and is not more secure.
    pub fn paper(modulus_bits: u32) -> Self {
        Self::drawn_from(2 * modulus_bits + 1)
    }

    fn drawn_from(bits: u32) -> Self {
        // With R = 2^drawn_bits > N and l <= L = 2^LABELS_LOG: |s_u| < L R, and |s_1| <= N + L^2 R.
        // The sum of shares with different labels is at most N + 2 L^2 R.
        let drawn_bits = bits + LABELS_LOG;
        Self { drawn_bits, bits: drawn_bits + 2 * LABELS_LOG + 2 }
    }

    /// The bound on shares, subshares, and sums of shares with different labels, in bits.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The length in bytes of an encoded share.
    pub fn encoded_len(&self) -> usize {
        SecretInteger::encoded_len(self.bits)
    }

    /// The share that `bytes` encode, if it is in the range.
    pub fn parse(&self, bytes: &[u8]) -> Option<SecretInteger> {
        SecretInteger::from_be_bytes(self.bits, bytes)
    }

    /// The sum of shares with different labels, or of the subshares with one label.
    pub fn sum<'a>(&self, shares: impl IntoIterator<Item = &'a SecretInteger>) -> SecretInteger {
        SecretInteger::sum(self.bits, shares)
    }

    /// Expands a share from its seed.
    ///
    /// The expansion is MGF1 with SHA-256, as in PSS, with a prefix that nothing else uses. If
    /// SHA-256 is a random oracle, shares of different seeds are independent and uniform.
    pub fn expand(&self, seed: &ShareExpansionSeed) -> SecretInteger {
        let len = self.drawn_bits.div_ceil(8);
        let mut bytes = Zeroizing::new(vec![0; len as usize]);
        mgf1(&[DOMAIN, &seed.0], &mut bytes);
        bytes[0] &= 0xff >> (len * 8 - self.drawn_bits);
        let share = SecretInteger::from_unsigned(self.bits, &bytes);
        // Wipe what the hash left on the stack.
        wipe_stack();
        share
    }

    /// Splits an integer into the shares of a group. The integer is d, or a share of a group of any
    /// size.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn split(
        &self,
        secret: &SecretInteger,
        group: &CombinatorialSharing,
        generator: &mut RandomGenerator,
    ) -> Result<SplitInteger, RandomError> {
        let mut seeds = vec![ShareExpansionSeed([0; SEED_LEN]); group.label_count() - 1];
        for seed in &mut seeds {
            generator.fill(&mut seed.0)?;
        }
        Ok(self.split_with(secret, seeds))
    }

    /// Splits an integer into one share more than there are seeds. The seeds must be uniformly
    /// random and used for nothing else.
    pub fn split_with(
        &self,
        secret: &SecretInteger,
        seeds: Vec<ShareExpansionSeed>,
    ) -> SplitInteger {
        let mut remainder = self.sum([secret]);
        for seed in &seeds {
            remainder.subtract(&self.expand(seed));
        }
        SplitInteger { range: *self, remainder, seeds }
    }
}

/// The shares of one integer, by label.
pub struct SplitInteger {
    range: ShareRange,
    remainder: SecretInteger,
    seeds: Vec<ShareExpansionSeed>,
}

impl SplitInteger {
    /// The share with a label.
    ///
    /// # Panics
    /// If there is no such label.
    pub fn share(&self, label: Label) -> SecretInteger {
        match self.seed(label) {
            Some(seed) => self.range.expand(seed),
            None => self.remainder.clone(),
        }
    }

    /// The seed from which the share with a label is expanded. `None` for the first label, 0: its
    /// share is the remainder.
    ///
    /// # Panics
    /// If there is no such label.
    pub fn seed(&self, label: Label) -> Option<&ShareExpansionSeed> {
        usize::from(label.0).checked_sub(1).map(|at| &self.seeds[at])
    }
}

#[cfg(test)]
mod secrecy;

#[cfg(test)]
mod tests {
    use rsa_arithmetic::fixture::small_key;
    use rsa_arithmetic::modulus::RsaElement;

    use super::*;

    fn combination(faulty: u8) -> CombinatorialSharing {
        CombinatorialSharing::new(faulty).unwrap()
    }

    #[test]
    fn lengths_are_as_specified() {
        for (modulus_bits, bits, len) in [(1024, 1184, 149), (2048, 2208, 277), (4096, 4256, 533)] {
            let range = ShareRange::new(modulus_bits);
            assert_eq!((range.bits(), range.encoded_len()), (bits, len));
        }
    }

    #[test]
    fn shares_sum_to_the_secret_through_epochs() {
        let mut generator = RandomGenerator::seeded().unwrap();
        for range in [ShareRange::new(1024), ShareRange::paper(1024)] {
            let secret = SecretInteger::from_unsigned(1024, &[0xab; 128]);
            let mut shares = vec![secret.clone()];
            for faulty in [1, 2, 1, 2, 2] {
                let group = combination(faulty);
                let splits: Vec<SplitInteger> = shares
                    .iter()
                    .map(|share| range.split(share, &group, &mut generator).unwrap())
                    .collect();
                let sum = |label| {
                    let subshares: Vec<_> = splits.iter().map(|it| it.share(label)).collect();
                    range.sum(&subshares)
                };
                shares = group.labels().map(sum).collect();
                for share in &shares {
                    assert!(range.parse(&share.to_be_bytes()).is_some());
                }
                let sum = range.sum(&shares);
                assert_eq!(sum.to_be_bytes(), range.sum([&secret]).to_be_bytes());
            }
        }
    }

    #[test]
    fn the_product_of_witnesses_is_g_0() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let key = small_key();
        let (group, combination) = (key.group(), CombinatorialSharing::new(1).unwrap());
        let range = ShareRange::new(1024);
        let split = range.split(key.private_exponent(), &combination, &mut generator).unwrap();
        let table = group.powers_of_g(&[range.bits()], 4);
        let witnesses = combination.labels().map(|label| {
            let witness = group.witness(&split.share(label));
            assert_eq!(table.pow(&split.share(label)), witness);
            witness
        });
        let witnesses: Vec<RsaElement> = witnesses.collect();
        assert_eq!(group.modulus().product(&witnesses), *group.g_0());
    }

    #[test]
    fn share_seed_expansion_test_vector() {
        let share = ShareRange::new(1024).expand(&ShareExpansionSeed([7; SEED_LEN])).to_be_bytes();
        // Computed by another implementation of MGF1.
        assert_eq!(share[..8], [0, 0, 0, 1, 78, 7, 181, 218]);
        assert_eq!(share[145..], [124, 98, 36, 193]);
    }
}
