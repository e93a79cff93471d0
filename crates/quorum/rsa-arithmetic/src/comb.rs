//! Powers of one base with secret exponents of all widths up to a bound.

#[cfg(target_arch = "x86_64")]
use crate::ifma::comb;
use crate::integer::SecretInteger;
use crate::modulus::{RsaElement, RsaModulus};

/// Other processors have no such vectors.
#[cfg(not(target_arch = "x86_64"))]
mod comb {
    use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};

    pub(super) fn spacing(_: u32) -> u32 {
        0
    }

    pub(super) fn tables(_: &BoxedMontyParams, _: &BoxedMontyForm, _: u32) -> Option<Vec<u64>> {
        None
    }

    pub(super) fn pow(
        _: &BoxedMontyParams,
        _: &[u64],
        _: u32,
        _: &[u64],
    ) -> Option<BoxedMontyForm> {
        None
    }
}

/// Precomputed powers of one base. They take 82 KB with a modulus of 2048 bits, and the time of two
/// single powers. Then a power takes a fourth of the time of a single one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseComb {
    modulus: RsaModulus,
    bits: u32,
    spacing: u32,
    tables: Vec<u64>,
    /// base^-(2^`bits`)
    correction: RsaElement,
}

impl BaseComb {
    /// The powers for exponents of at most `bits` bits. `None` if the processor has no vectors that
    /// make it worthwhile, or if the base has no inverse, which reveals a factor of N.
    pub fn new(modulus: &RsaModulus, base: &RsaElement, bits: u32) -> Option<Self> {
        let spacing = comb::spacing(bits + 1);
        let tables = comb::tables(&modulus.0, &base.0, spacing)?;
        let mut power = vec![0; bits as usize / 64 + 1];
        power[bits as usize / 64] = 1 << (bits % 64);
        let power = modulus.product_of_long_powers(&[(base, &power)]);
        let correction = power.inverse()?;
        Some(Self { modulus: modulus.clone(), bits, spacing, tables, correction })
    }

    /// The longest exponents, in bits.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The base to the power of a secret integer. The time depends only on the bound of the comb.
    ///
    /// # Panics
    /// If the public bound on the exponent is more than that of the comb.
    pub fn pow(&self, exponent: &SecretInteger) -> RsaElement {
        assert!(exponent.bits() <= self.bits, "{} bits of {}", exponent.bits(), self.bits);
        let positive = exponent.plus_wide_power(self.bits);
        let power = comb::pow(&self.modulus.0, &self.tables, self.spacing, &positive);
        RsaElement(power.expect("there are tables")).times(&self.correction)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{large_key, small_key, tiny_key};
    use crate::modulus::tests::moduli_of_every_length;

    fn has_vectors() -> bool {
        #[cfg(target_arch = "x86_64")]
        if crate::ifma::is_available() {
            return true;
        }
        eprintln!("SKIPPED: this processor has no AVX-512 IFMA");
        false
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn powers_of_a_comb_are_single_powers(
            bytes in any::<[u8; 40]>(), bits in 320u32..400, negative in any::<bool>(),
            more in 0u32..100
        ) {
            if !has_vectors() {
                return Ok(());
            }
            for key in [tiny_key(), small_key(), large_key()] {
                let (modulus, g) = (key.group().modulus(), key.group().g());
                let comb = BaseComb::new(modulus, g, bits + more).unwrap();
                let magnitude = SecretInteger::from_unsigned(320, &bytes);
                let mut exponent = SecretInteger::zero(bits);
                if negative { exponent.subtract(&magnitude) } else { exponent.add(&magnitude) }
                prop_assert_eq!(comb.pow(&exponent), modulus.pow(g, &exponent).unwrap());
                prop_assert_eq!(comb.pow(&SecretInteger::zero(bits)), modulus.one());
            }
        }
    }

    /// The exponents are longer than some moduli, and shorter than others.
    #[test]
    fn powers_of_a_comb_at_the_ends_of_the_range_for_moduli_of_every_length() {
        if !has_vectors() {
            return;
        }
        let bits = 2_583;
        let most = || {
            let mut bytes = vec![0xff; SecretInteger::encoded_len(bits)];
            bytes[0] = 0x7f;
            SecretInteger::from_be_bytes(bits, &bytes).unwrap()
        };
        let mut least = SecretInteger::zero(bits);
        least.subtract(&most());
        let exponents = [SecretInteger::zero(bits), most(), least];
        for modulus in moduli_of_every_length() {
            // 2 has an inverse, because the modulus is odd.
            let mut two = vec![0; modulus.byte_len()];
            two[modulus.byte_len() - 1] = 2;
            let two = modulus.element(&two).unwrap();
            for base in [two.inverse().unwrap(), two] {
                let comb = BaseComb::new(&modulus, &base, bits).unwrap();
                for exponent in &exponents {
                    assert_eq!(comb.pow(exponent), modulus.pow(&base, exponent).unwrap());
                }
            }
        }
    }
}
