//! Arithmetic modulo N: in constant time for secret exponents, in variable time for public ones.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, CtAssign as _, MontyForm, MontyMultiplier};
use keys::RsaPublicKey;
use keys::rsa::MODULUS_BITS;
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::integer::{SecretInteger, window_of};

type MontgomeryMultiplier<'a> = <BoxedMontyForm as MontyForm>::Multiplier<'a>;

/// An RSA modulus N.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsaModulus(pub(crate) BoxedMontyParams);

/// A public number modulo N that is not zero. All methods take variable time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsaElement(pub(crate) BoxedMontyForm);

/// Why bytes are not a modulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RsaModulusError {
    /// It has an unsupported number of bits.
    #[error("the modulus has {0} bits, not 1024, 2048, 3072 or 4096")]
    Bits(u32),
    /// It is even.
    #[error("the modulus is even")]
    Even,
}

impl RsaModulus {
    /// The modulus with these big-endian bytes.
    ///
    /// # Errors
    /// If it is even, or its number of bits is not in [`MODULUS_BITS`].
    pub fn from_be_bytes(bytes: &[u8]) -> Result<Self, RsaModulusError> {
        let modulus = Self::danger_of_any_size(bytes)?;
        let bits = modulus.bits();
        if MODULUS_BITS.contains(&bits) { Ok(modulus) } else { Err(RsaModulusError::Bits(bits)) }
    }

    /// The modulus of a public key, whose size its type has checked.
    ///
    /// # Errors
    /// If it is even.
    pub fn of(key: &RsaPublicKey) -> Result<Self, RsaModulusError> {
        Self::danger_of_any_size(&key.modulus())
    }

    /// As [`Self::from_be_bytes`], with any multiple of 64 bits from 256 to 4096. Small moduli are
    /// for simulations.
    ///
    /// # Errors
    /// If it is even, or has no such number of bits.
    #[expect(clippy::missing_panics_doc, reason = "the number of bits is its own")]
    pub fn danger_of_any_size(bytes: &[u8]) -> Result<Self, RsaModulusError> {
        let first = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
        let bytes = &bytes[first..];
        let zeros = bytes.first().map_or(0, |byte| byte.leading_zeros());
        let bits = u32::try_from(bytes.len() * 8).unwrap_or(u32::MAX) - zeros;
        if !(256..=4096).contains(&bits) || !bits.is_multiple_of(64) {
            return Err(RsaModulusError::Bits(bits));
        }
        let modulus = BoxedUint::from_be_slice(bytes, bits).expect("it has this many bits");
        let modulus = modulus.into_odd().into_option().ok_or(RsaModulusError::Even)?;
        Ok(Self(BoxedMontyParams::new_vartime(modulus)))
    }

    /// The number of bits of N.
    pub fn bits(&self) -> u32 {
        self.0.bits_precision()
    }

    /// The number of bytes of N.
    pub fn byte_len(&self) -> usize {
        self.bits() as usize / 8
    }

    /// N, big-endian.
    pub fn to_be_bytes(&self) -> Vec<u8> {
        self.0.modulus().as_ref().to_be_bytes().into_vec()
    }

    /// 1.
    pub fn one(&self) -> RsaElement {
        RsaElement(BoxedMontyForm::one(&self.0))
    }

    /// The number with these big-endian bytes. `None` unless there are [`Self::byte_len`] of them,
    /// and the number is neither 0 nor N or more.
    pub fn element(&self, bytes: &[u8]) -> Option<RsaElement> {
        if bytes.len() != self.byte_len() {
            return None;
        }
        let value = BoxedUint::from_be_slice(bytes, self.bits()).ok()?;
        let valid = bool::from(value.is_nonzero()) && value < *self.0.modulus().as_ref();
        valid.then(|| RsaElement(BoxedMontyForm::new(value, &self.0)))
    }

    /// The product of numbers.
    pub fn product<'a>(&self, factors: impl IntoIterator<Item = &'a RsaElement>) -> RsaElement {
        let mut multiplier = MontgomeryMultiplier::from(&self.0);
        let mut product = BoxedMontyForm::one(&self.0);
        for factor in factors {
            multiplier.mul_assign(&mut product, &factor.0);
        }
        RsaElement(product)
    }

    /// The product of numbers, each raised to a public exponent (Pippenger's algorithm).
    #[expect(clippy::missing_panics_doc, reason = "there are windows, and digits are small")]
    pub fn product_of_powers(&self, terms: &[(&RsaElement, u128)]) -> RsaElement {
        let mut multiplier = MontgomeryMultiplier::from(&self.0);
        let mut product = BoxedMontyForm::one(&self.0);
        let bits = terms.iter().map(|(_, exponent)| u128::BITS - exponent.leading_zeros()).max();
        let (Some(bits), true) = (bits, !terms.is_empty()) else { return RsaElement(product) };
        // Each window multiplies every term into a bucket, and each bucket twice.
        let cost = |&window: &u32| bits.div_ceil(window) as usize * (terms.len() + (2 << window));
        let window = (1..=12).min_by_key(cost).expect("there are windows");
        let mut buckets: Vec<Option<BoxedMontyForm>> = vec![None; (1 << window) - 1];
        for at in (0..bits.div_ceil(window)).rev() {
            for _ in 0..window {
                multiplier.square_assign(&mut product);
            }
            for (element, exponent) in terms {
                let digit = (exponent >> (at * window)) & ((1 << window) - 1);
                let Some(bucket) = usize::try_from(digit).expect("it is small").checked_sub(1)
                else {
                    continue;
                };
                match &mut buckets[bucket] {
                    Some(bucket) => multiplier.mul_assign(bucket, &element.0),
                    empty => *empty = Some(element.0.clone()),
                }
            }
            // The bucket of digit k counts k times: once in its own step, and once in the step of
            // each lower bucket.
            let mut above: Option<BoxedMontyForm> = None;
            for bucket in buckets.iter_mut().rev() {
                match (&mut above, bucket.take()) {
                    (Some(above), Some(bucket)) => multiplier.mul_assign(above, &bucket),
                    (above @ None, bucket) => *above = bucket,
                    (Some(_), None) => {}
                }
                if let Some(above) = &above {
                    multiplier.mul_assign(&mut product, above);
                }
            }
        }
        RsaElement(product)
    }

    /// The product of numbers, each raised to a public exponent of any length. The exponents have
    /// these limbs, the least significant first.
    pub fn product_of_long_powers(&self, terms: &[(&RsaElement, &[u64])]) -> RsaElement {
        #[cfg(target_arch = "x86_64")]
        {
            let terms: Vec<_> = terms.iter().map(|(base, limbs)| (&base.0, *limbs)).collect();
            if let Some(product) = crate::ifma::product_of_powers(&self.0, &terms) {
                return RsaElement(product);
            }
        }
        // 128 bits of all exponents at a time, the highest first.
        let chunks = terms.iter().map(|(_, limbs)| limbs.len().div_ceil(2)).max().unwrap_or(0);
        let limb = |limbs: &[u64], at| u128::from(limbs.get(at).copied().unwrap_or(0));
        let product = (0..chunks).rev().fold(None::<RsaElement>, |product, chunk| {
            let chunk = |limbs| limb(limbs, 2 * chunk) | limb(limbs, 2 * chunk + 1) << 64;
            let terms: Vec<_> = terms.iter().map(|(base, limbs)| (*base, chunk(limbs))).collect();
            let low = self.product_of_powers(&terms);
            Some(match product {
                Some(high) => (0..128).fold(high, |high, _| high.square()).times(&low),
                None => low,
            })
        });
        product.unwrap_or_else(|| self.one())
    }

    /// `base` to the power of a secret integer. The time depends only on the public bound on the
    /// length of the exponent. `None` if the base has no inverse, which reveals a factor of N.
    pub fn pow(&self, base: &RsaElement, exponent: &SecretInteger) -> Option<RsaElement> {
        Some(Self::pow_of_either(base, &base.inverse()?, exponent))
    }

    /// As [`Self::pow`], with the inverse of the base.
    pub(crate) fn pow_of_either(
        base: &RsaElement,
        inverse: &RsaElement,
        exponent: &SecretInteger,
    ) -> RsaElement {
        let (magnitude, negative) = exponent.magnitude();
        let mut base_or_inverse = base.0.clone();
        let negative = crypto_bigint::Choice::from_u8_lsb(negative.unwrap_u8());
        base_or_inverse.as_montgomery_mut().ct_assign(inverse.0.as_montgomery(), negative);
        RsaElement(power(&base_or_inverse, &magnitude, exponent.bits()))
    }
}

impl RsaElement {
    /// The number as big-endian bytes, of the length of N.
    pub fn to_be_bytes(&self) -> Vec<u8> {
        self.0.retrieve().to_be_bytes().into_vec()
    }

    /// The product with another number modulo the same N.
    #[must_use]
    pub fn times(&self, factor: &Self) -> Self {
        Self(self.0.mul(&factor.0))
    }

    /// The square of the number.
    #[must_use]
    pub fn square(&self) -> Self {
        Self(self.0.square())
    }

    /// The inverse, if there is one. A number without an inverse reveals a factor of N.
    pub fn inverse(&self) -> Option<Self> {
        self.0.invert_vartime().into_option().map(Self)
    }

    /// The number to the power of a public exponent.
    #[must_use]
    pub fn pow(&self, exponent: u128) -> Self {
        let mut power = BoxedMontyForm::one(self.0.params());
        let mut multiplier = MontgomeryMultiplier::from(self.0.params());
        for at in (0..u128::BITS - exponent.leading_zeros()).rev() {
            multiplier.square_assign(&mut power);
            if exponent >> at & 1 == 1 {
                multiplier.mul_assign(&mut power, &self.0);
            }
        }
        Self(power)
    }

    /// Whether two numbers have the same square. Witnesses and proofs are compared this way,
    /// because the group of squares has no elements of small order.
    pub fn has_same_square(&self, other: &Self) -> bool {
        self.square() == other.square()
    }
}

/// Powers of one base with many secret exponents, in constant time. With a table for thousands,
/// each power takes less than a fifth of the time of a single power without vectors.
pub struct FixedBase {
    modulus: RsaModulus,
    /// The number of exponent bits that select one power of the table.
    window: u32,
    /// base^(d 2^(`window` i)) in Montgomery form, by window i and digit d.
    powers: Vec<u64>,
    /// base^-(2^b) for each bound b on the length of exponents.
    corrections: Vec<(u32, RsaElement)>,
}

impl FixedBase {
    /// Whether a table for this number of exponents is faster than single powers. For 2048 bits
    /// with vectors, 3 and 15 single powers take 3.5 and 17 ms, and a table 9.8 and 23 ms. 84
    /// single powers take 98 ms, and a table 73 ms.
    pub fn is_worthwhile(count: usize) -> bool {
        #[cfg(target_arch = "x86_64")]
        if crate::ifma::is_available() {
            return count > 32;
        }
        count > 0
    }

    /// A table for about `count` exponents. `bits` lists the bounds on their length. `None` if the
    /// base has no inverse, which reveals a factor of N.
    #[expect(clippy::missing_panics_doc, reason = "there are windows")]
    pub fn new(
        modulus: &RsaModulus,
        base: &RsaElement,
        bits: &[u32],
        count: usize,
    ) -> Option<Self> {
        let most = bits.iter().max().map_or(1, |bits| bits + 1);
        // The table costs one product per power. An exponent costs one product per window, and
        // reads all powers of the window, each of which takes 1/128 of the time of a product.
        let cost = |&window: &u32| {
            let (windows, powers) = (most.div_ceil(window) as usize, 1_usize << window);
            windows * (powers + count + count * powers / 128)
        };
        let window = (2..=6).min_by_key(cost).expect("there are windows");
        let len = modulus.byte_len() / 8;
        let mut table = Self {
            modulus: modulus.clone(),
            window,
            powers: Vec::with_capacity((most.div_ceil(window) as usize * len) << window),
            corrections: Vec::new(),
        };
        let mut multiplier = MontgomeryMultiplier::from(&modulus.0);
        let mut step = base.0.clone();
        for _ in 0..most.div_ceil(window) {
            let mut power = BoxedMontyForm::one(&modulus.0);
            for _ in 0..1 << window {
                table.powers.extend_from_slice(power.as_montgomery().as_words());
                multiplier.mul_assign(&mut power, &step);
            }
            step = power;
        }
        for &bits in bits {
            let first = ((((bits / window) as usize) << window) + (1 << (bits % window))) * len;
            let power = table.powers[first..first + len].iter().copied();
            let power = BoxedUint::from_words(power);
            let power = RsaElement(BoxedMontyForm::from_montgomery(power, &modulus.0));
            table.corrections.push((bits, power.inverse()?));
        }
        Some(table)
    }

    /// The base to the power of a secret integer, in constant time.
    ///
    /// # Panics
    /// If the table was not built for exponents with this bound.
    pub fn pow(&self, exponent: &SecretInteger) -> RsaElement {
        let bits = exponent.bits();
        let correction = self.corrections.iter().find(|(width, _)| *width == bits);
        let (_, correction) = correction.expect("the table is for exponents of this width");
        let exponent = exponent.offset();
        let len = self.modulus.byte_len() / 8;
        let mut multiplier = MontgomeryMultiplier::from(&self.modulus.0);
        let mut product = correction.0.clone();
        let mut power = Zeroizing::new(product.clone());
        let windows = self.powers.chunks_exact(len << self.window);
        for (i, powers) in (0..).zip(windows.take((bits + 1).div_ceil(self.window) as usize)) {
            let digit = window_of(&exponent, i * self.window, self.window);
            let power_words = power.as_montgomery_mut().as_mut_words();
            for (at, candidate) in (0_u64..).zip(powers.chunks_exact(len)) {
                let chosen = at.ct_eq(&digit);
                for (word, candidate) in power_words.iter_mut().zip(candidate) {
                    word.conditional_assign(candidate, chosen);
                }
            }
            multiplier.mul_assign(&mut product, &power);
        }
        RsaElement(product)
    }
}

/// `base` to the power of an exponent whose bits from `bits` on are 0, in constant time.
pub(crate) fn power(base: &BoxedMontyForm, exponent: &BoxedUint, bits: u32) -> BoxedMontyForm {
    #[cfg(target_arch = "x86_64")]
    if let Some(power) = crate::ifma::pow(base.params(), base, exponent, bits) {
        return power;
    }
    base.pow_bounded_exp(exponent, bits)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::small_key;
    use crate::integer::split;

    fn modulus() -> RsaModulus {
        small_key().group().modulus().clone()
    }

    fn element(bytes: &[u8]) -> RsaElement {
        modulus().element(&[&[0; 64], bytes].concat()).expect("it is below N")
    }

    /// The base to the power of an exponent, bit by bit.
    fn slow_power(base: &RsaElement, exponent: &SecretInteger) -> RsaElement {
        let (magnitude, negative) = exponent.magnitude();
        let mut power = modulus().one();
        for bit in (0..magnitude.bits_precision()).rev() {
            power = power.square();
            if magnitude.bit_vartime(bit) {
                power = power.times(base);
            }
        }
        if bool::from(negative) { power.inverse().unwrap() } else { power }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn powers_are_those_of_the_schoolbook(
            base in any::<[u8; 64]>(), bytes in any::<[u8; 40]>(), bits in 310u32..330,
            negative in any::<bool>(), count in 1usize..300
        ) {
            prop_assume!(base != [0; 64]);
            let base = element(&base);
            let magnitude = SecretInteger::from_unsigned(320, &bytes);
            let mut exponent = SecretInteger::zero(bits.max(321));
            if negative { exponent.subtract(&magnitude) } else { exponent.add(&magnitude) }
            let expected = slow_power(&base, &exponent);
            prop_assert_eq!(modulus().pow(&base, &exponent).unwrap(), expected.clone());
            let widths = [100, exponent.bits(), 400];
            let table = FixedBase::new(&modulus(), &base, &widths, count).unwrap();
            prop_assert_eq!(table.pow(&exponent), expected);
        }

        #[test]
        fn products_of_powers_are_those_of_the_schoolbook(
            terms in prop::collection::vec((any::<[u8; 64]>(), any::<u128>(), 0u32..128), 0..100)
        ) {
            prop_assume!(terms.iter().all(|(base, ..)| *base != [0; 64]));
            let terms: Vec<(RsaElement, u128)> =
                terms.iter().map(|(base, exponent, cut)| (element(base), exponent >> cut)).collect();
            let powers: Vec<RsaElement> =
                terms.iter().map(|(base, exponent)| base.pow(*exponent)).collect();
            let terms: Vec<(&RsaElement, u128)> = terms.iter().map(|(base, e)| (base, *e)).collect();
            prop_assert_eq!(modulus().product_of_powers(&terms), modulus().product(&powers));
            // An exponent in several limbs, of which the highest are 0.
            let limbs: Vec<[u64; 4]> =
                terms.iter().map(|(_, e)| [split(*e).0, split(split(*e).1).0, 0, 0]).collect();
            let long: Vec<_> =
                terms.iter().zip(&limbs).map(|((base, _), limbs)| (*base, &limbs[..])).collect();
            prop_assert_eq!(modulus().product_of_long_powers(&long), modulus().product(&powers));
            for ((base, e), power) in terms.iter().zip(&powers) {
                let e = SecretInteger::from_unsigned(128, &e.to_be_bytes());
                prop_assert_eq!(power, &slow_power(base, &e));
            }
        }
    }

    /// Bytes that look random, and are always the same.
    fn fixed_bytes() -> impl FnMut(usize) -> Vec<u8> {
        let mut seed = 1_u64;
        move |len| {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_be_bytes()[0]
            };
            (0..len).map(|_| next()).collect()
        }
    }

    /// Moduli of every length: large ones, small ones, and others.
    pub(crate) fn moduli_of_every_length() -> Vec<RsaModulus> {
        let mut bytes = fixed_bytes();
        let mut modulus = |bits: usize, ends: Option<[u8; 2]>| {
            let len = bits / 8;
            let mut modulus = bytes(len);
            if let Some([first, other]) = ends {
                modulus.fill(other);
                modulus[0] = first;
            }
            modulus[0] |= 0x80;
            modulus[len - 1] |= 1;
            RsaModulus::danger_of_any_size(&modulus).unwrap()
        };
        let ends = [None, Some([0xff; 2]), Some([0x80, 0x00])];
        let lengths = [256, 512, 1024, 2048, 3072, 4096];
        let kinds = lengths.into_iter().flat_map(|bits| ends.map(|ends| (bits, ends)));
        kinds.map(|(bits, ends)| modulus(bits, ends)).collect()
    }

    /// AVX-512 arithmetic yields the same results as ordinary arithmetic, for moduli of every
    /// length.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn ifma_powers_equal_ordinary_powers() {
        let mut bytes = fixed_bytes();
        for modulus in moduli_of_every_length() {
            let minus_1 = modulus.to_be_bytes();
            let len = minus_1.len();
            let minus_1 = [&minus_1[..len - 1], &[minus_1[len - 1] - 1]].concat();
            let one = [&vec![0; len - 1][..], &[1]].concat();
            let mut any = bytes(len);
            any[0] &= 0x7f;
            for base in [any, one, minus_1] {
                let base = modulus.element(&base).unwrap().0;
                for exponent in [vec![0; 16], vec![0xff; 16], bytes(len + 24), vec![0, 7]] {
                    let bits = u32::try_from(exponent.len()).unwrap() * 8;
                    let exponent = BoxedUint::from_be_slice(&exponent, bits).unwrap();
                    let Some(power) = crate::ifma::pow(&modulus.0, &base, &exponent, bits) else {
                        eprintln!("SKIPPED: this processor has no AVX-512 IFMA");
                        return;
                    };
                    assert_eq!(power, base.pow_bounded_exp(&exponent, bits));
                }
            }
        }
    }

    #[test]
    fn exponents_at_the_ends_of_their_range() {
        let base = element(&[3; 64]);
        for bits in 120..140 {
            let mut most = SecretInteger::zero(bits);
            most.add_product(
                &SecretInteger::from_unsigned(8, &[1]),
                u128::MAX >> 128_u32.saturating_sub(bits),
            );
            let mut least = SecretInteger::zero(bits);
            least.subtract(&most);
            for exponent in [most, least, SecretInteger::zero(bits)] {
                let expected = slow_power(&base, &exponent);
                assert_eq!(modulus().pow(&base, &exponent), Some(expected.clone()));
                let table = FixedBase::new(&modulus(), &base, &[bits], 1).unwrap();
                assert_eq!(table.pow(&exponent), expected);
            }
        }
    }

    #[test]
    fn numbers_outside_the_modulus_are_refused() {
        let modulus = modulus();
        let mut bytes = modulus.to_be_bytes();
        assert_eq!(modulus.element(&bytes), None);
        assert_eq!(modulus.element(&[0; 128]), None);
        assert_eq!(modulus.element(&[1; 127]), None);
        assert_eq!(modulus.element(&[1; 129]), None);
        bytes[127] -= 1;
        let minus_1 = modulus.element(&bytes).unwrap();
        assert_eq!(minus_1.square(), modulus.one());
        assert!(minus_1.has_same_square(&modulus.one()));
        assert_eq!(minus_1.to_be_bytes(), bytes);
    }

    #[test]
    fn moduli_of_other_sizes_are_refused() {
        let bytes = modulus().to_be_bytes();
        assert_eq!(RsaModulus::from_be_bytes(&[&[0], &bytes[..]].concat()), Ok(modulus()));
        assert_eq!(
            RsaModulus::from_be_bytes(&bytes[1..]).unwrap_err().to_string(),
            "the modulus has 1016 bits, not 1024, 2048, 3072 or 4096"
        );
        assert_eq!(RsaModulus::from_be_bytes(&[]), Err(RsaModulusError::Bits(0)));
        let mut even = bytes;
        even[127] -= 1;
        assert_eq!(RsaModulus::from_be_bytes(&even), Err(RsaModulusError::Even));
    }
}
