//! Secret integers of public width, with addition and multiplication in constant time.

use crypto_bigint::BoxedUint;
use subtle::Choice;
use zeroize::{Zeroize, Zeroizing};

/// A secret integer v with |v| < 2^`bits`, where `bits` is public. It is wiped when it is dropped,
/// and cannot be printed or compared.
pub struct SecretInteger {
    bits: u32,
    /// Two's complement, the least significant limb first: at least `bits` + 1 bits.
    limbs: Vec<u64>,
}

impl SecretInteger {
    /// Zero, as an integer of at most `bits` bits.
    pub fn zero(bits: u32) -> Self {
        Self { bits, limbs: vec![0; limbs_for(bits)] }
    }

    /// The integer with these big-endian bytes, which are unsigned. It has at most `bits` bits.
    ///
    /// # Panics
    /// If the bytes are longer than `bits` bits.
    pub fn from_unsigned(bits: u32, bytes: &[u8]) -> Self {
        assert!(bytes.len() * 8 <= bits as usize, "{} bytes for {bits} bits", bytes.len());
        let mut integer = Self::zero(bits);
        for (limb, chunk) in integer.limbs.iter_mut().zip(bytes.rchunks(8)) {
            *limb = from_big_endian(chunk, 0);
        }
        integer
    }

    /// Decodes the output of [`Self::to_be_bytes`]. `None` if the length is not that of an integer
    /// of `bits` bits, or if |v| >= 2^`bits`.
    pub fn from_be_bytes(bits: u32, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != Self::encoded_len(bits) {
            return None;
        }
        let fill = if bytes[0] >> 7 == 1 { u64::MAX } else { 0 };
        let mut integer = Self::zero(bits);
        let chunks = bytes.rchunks(8).map(|chunk| from_big_endian(chunk, fill));
        for (limb, value) in integer.limbs.iter_mut().zip(chunks.chain(std::iter::repeat(fill))) {
            *limb = value;
        }
        integer.is_in_range().then_some(integer)
    }

    /// The length in bytes of an encoded integer of at most `bits` bits.
    pub fn encoded_len(bits: u32) -> usize {
        bits as usize / 8 + 1
    }

    /// The integer as [`Self::encoded_len`] bytes: two's complement, big-endian.
    pub fn to_be_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(vec![0; Self::encoded_len(self.bits)]);
        for (chunk, limb) in bytes.rchunks_mut(8).zip(&self.limbs) {
            let len = chunk.len();
            chunk.copy_from_slice(&Zeroizing::new(limb.to_be_bytes())[8 - len..]);
        }
        bytes
    }

    /// The public bound on the value: |v| < 2^`bits`.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The sum of integers. The caller guarantees that its absolute value is below 2^`bits`.
    /// Otherwise the result is wrong.
    pub fn sum<'a>(bits: u32, terms: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::zero(bits);
        for term in terms {
            sum.add(term);
        }
        sum
    }

    /// Adds an integer. The width stays the same, and the sum must be in range.
    pub fn add(&mut self, term: &Self) {
        self.add_word_product(term, 1, 0);
    }

    /// Subtracts an integer. The width stays the same, and the difference must be in range.
    pub fn subtract(&mut self, term: &Self) {
        // -v = !v + 1 in two's complement.
        let mut carry = 1;
        for (i, limb) in self.limbs.iter_mut().enumerate() {
            let sum = u128::from(*limb) + u128::from(!term.limb(i)) + carry;
            (*limb, carry) = split(sum);
        }
        debug_assert!(self.is_in_range(), "the difference is longer than {} bits", self.bits);
    }

    /// Adds `term` times `factor`. The width stays the same, and the sum must be in range.
    pub fn add_product(&mut self, term: &Self, factor: u128) {
        let (low, high) = split(factor);
        self.add_word_product(term, low, 0);
        let (high, _) = split(high);
        self.add_word_product(term, high, 1);
        debug_assert!(self.is_in_range(), "the sum is longer than {} bits", self.bits);
    }

    /// Adds `term` times a public factor, which has these limbs, the least significant first, and
    /// this sign. The width stays the same, and the sum must be in range.
    pub fn add_multiple(&mut self, term: &Self, magnitude: &[u64], is_negative: bool) {
        let mut opposite = Self::zero(term.bits);
        let term = if is_negative {
            opposite.subtract(term);
            &opposite
        } else {
            term
        };
        for (shift, &factor) in magnitude.iter().enumerate() {
            self.add_word_product(term, factor, shift);
        }
        debug_assert!(self.is_in_range(), "the sum is longer than {} bits", self.bits);
    }

    /// Adds `term` times `factor` times 2^(64 `shift`). Carries out of the highest limb are lost.
    fn add_word_product(&mut self, term: &Self, factor: u64, shift: usize) {
        let mut carry = 0;
        for (i, limb) in self.limbs.iter_mut().skip(shift).enumerate() {
            let sum = u128::from(*limb) + u128::from(term.limb(i)) * u128::from(factor) + carry;
            (*limb, carry) = split(sum);
        }
    }

    /// The quotient by a public divisor, which has these limbs, the least significant first, and
    /// divides the integer. `None` if it does not, or if the quotient has more than `bits` bits.
    ///
    /// # Panics
    /// If the divisor is 0.
    pub fn divide_exactly(&self, bits: u32, divisor: &[u64]) -> Option<Self> {
        let twos = divisor.iter().position(|limb| *limb != 0).expect("the divisor is not 0");
        let (limbs, bit) = (twos, divisor[twos].trailing_zeros());
        let shifted = |of: &dyn Fn(usize) -> u64, i: usize| {
            let high = of(i + limbs + 1).checked_shl(64 - bit).unwrap_or(0);
            of(i + limbs) >> bit | high
        };
        let odd = |i| shifted(&|at| divisor.get(at).copied().unwrap_or(0), i);
        let dividend = |i| shifted(&|at| self.limb(at), i);
        // An odd number has an inverse modulo a power of 2, and the quotient is shorter than that.
        let len = limbs_for(bits);
        let inverse = inverse_of_odd(odd, len);
        let mut quotient = Self::zero(bits);
        quotient.limbs = low_product(&dividend, &|i| inverse[i], len);
        if !quotient.is_in_range() {
            return None;
        }
        let mut rest = self.clone();
        rest.subtract_product(&quotient, divisor);
        let nonzero = rest.limbs.iter().fold(0, |any, limb| any | limb);
        (nonzero == 0).then_some(quotient)
    }

    fn subtract_product(&mut self, term: &Self, magnitude: &[u64]) {
        let mut opposite = Self::zero(term.bits);
        opposite.subtract(term);
        for (shift, &factor) in magnitude.iter().enumerate() {
            self.add_word_product(&opposite, factor, shift);
        }
    }

    /// |v|, and whether v < 0.
    pub(crate) fn magnitude(&self) -> (Zeroizing<BoxedUint>, Choice) {
        let negative = self.sign();
        let mut carry = u128::from(negative & 1);
        let mut magnitude = Zeroizing::new(BoxedUint::zero_with_precision(self.precision()));
        for (word, limb) in magnitude.as_mut_words().iter_mut().zip(&self.limbs) {
            (*word, carry) = split(u128::from(limb ^ negative) + carry);
        }
        (magnitude, Choice::from(u8::from(negative & 1 == 1)))
    }

    /// Whether |v| < 2^`bits`, which may be another bound than the public one. The time depends on
    /// both bounds only.
    pub fn is_within(&self, bits: u32) -> bool {
        if bits > self.bits {
            return true;
        }
        // v + 2^bits has at most bits + 1 bits.
        let at = bits as usize + 1;
        let offset = self.plus_power(bits);
        let mut above = offset[at / 64..].iter().skip(1).fold(0, |above, limb| above | limb);
        above |= offset.get(at / 64).map_or(0, |limb| limb >> (at % 64));
        // -2^bits itself is out of range, by one.
        let nonzero = offset.iter().fold(0, |any, limb| any | limb);
        above == 0 && nonzero != 0
    }

    /// v + 2^`bits`, which is positive.
    pub(crate) fn offset(&self) -> Zeroizing<Vec<u64>> {
        self.plus_power(self.bits)
    }

    /// v + 2^`exponent`, which is positive, where `exponent` is the public bound or more.
    pub(crate) fn plus_wide_power(&self, exponent: u32) -> Zeroizing<Vec<u64>> {
        let len = limbs_for(exponent);
        let mut limbs = Zeroizing::new(Vec::with_capacity(len));
        limbs.extend((0..len).map(|i| self.limb(i)));
        add_power_of_2(&mut limbs, exponent);
        limbs
    }

    /// v + 2^`exponent`, in two's complement.
    fn plus_power(&self, exponent: u32) -> Zeroizing<Vec<u64>> {
        let mut limbs = Zeroizing::new(self.limbs.clone());
        add_power_of_2(&mut limbs, exponent);
        limbs
    }

    /// Limb `i` of the infinite two's complement.
    fn limb(&self, i: usize) -> u64 {
        self.limbs.get(i).copied().unwrap_or(self.sign())
    }

    /// All bits 1 if v < 0, otherwise 0.
    fn sign(&self) -> u64 {
        (self.limbs[self.limbs.len() - 1] >> 63).wrapping_neg()
    }

    fn is_in_range(&self) -> bool {
        self.is_within(self.bits)
    }

    fn precision(&self) -> u32 {
        u32::try_from(self.limbs.len() * 64).expect("a width fits")
    }
}

impl Clone for SecretInteger {
    fn clone(&self) -> Self {
        Self { bits: self.bits, limbs: self.limbs.clone() }
    }
}

impl Drop for SecretInteger {
    fn drop(&mut self) {
        self.limbs.zeroize();
    }
}

/// Adds 2^`exponent`. A carry out of the highest limb is lost.
fn add_power_of_2(limbs: &mut [u64], exponent: u32) {
    let at = exponent as usize;
    let mut carry = 1u128 << (at % 64);
    for limb in &mut limbs[at / 64..] {
        (*limb, carry) = split(u128::from(*limb) + carry);
    }
}

/// The number of limbs for `bits` bits, a sign, and the sum with 2^`bits`.
fn limbs_for(bits: u32) -> usize {
    (bits as usize + 2).div_ceil(64)
}

/// The lowest `len` limbs of a product of two numbers, in a time that depends on `len`.
fn low_product(a: &dyn Fn(usize) -> u64, b: &dyn Fn(usize) -> u64, len: usize) -> Vec<u64> {
    let mut product = vec![0; len];
    for i in 0..len {
        let (factor, mut carry) = (a(i), 0);
        for j in 0..len - i {
            let sum = u128::from(product[i + j]) + u128::from(factor) * u128::from(b(j)) + carry;
            (product[i + j], carry) = split(sum);
        }
    }
    product
}

/// The inverse of an odd number modulo 2^(64 `len`), by Newton's method.
fn inverse_of_odd(odd: impl Fn(usize) -> u64, len: usize) -> Vec<u64> {
    let first = odd(0);
    // Each step doubles the number of right bits, from 3.
    let word = (0..5).fold(first, |x, _| x.wrapping_mul(2_u64.wrapping_sub(first.wrapping_mul(x))));
    let mut inverse = vec![0; len];
    inverse[0] = word;
    let mut right = 1;
    while right < len {
        right = (2 * right).min(len);
        // x (2 - odd x)
        let product = low_product(&odd, &|i| inverse[i], right);
        let mut carry = 1;
        let mut factor: Vec<u64> = product.iter().map(|limb| !limb).collect();
        let mut add = 2_u128;
        for limb in &mut factor {
            (*limb, carry) = split(u128::from(*limb) + carry + add);
            add = 0;
        }
        let next = low_product(&|i| inverse[i], &|i| factor[i], right);
        inverse[..right].copy_from_slice(&next);
    }
    inverse
}

/// The low and the high half of a sum. The high one is the carry.
#[allow(clippy::cast_possible_truncation)] // The low half is meant.
pub(crate) fn split(sum: u128) -> (u64, u128) {
    (sum as u64, sum >> 64)
}

/// The `window` bits of a number from bit `at` on. Bits past its end are 0.
pub(crate) fn window_of(words: &[u64], at: u32, window: u32) -> u64 {
    let (word, bit) = (at as usize / 64, at % 64);
    let low = words.get(word).map_or(0, |word| word >> bit);
    let high = words.get(word + 1).map_or(0, |word| word.checked_shl(64 - bit).unwrap_or(0));
    (low | high) & ((1 << window) - 1)
}

/// At most 8 big-endian bytes, with the bits of `fill` before them.
fn from_big_endian(chunk: &[u8], fill: u64) -> u64 {
    chunk.iter().fold(fill, |limb, &byte| limb << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn integer(bits: u32, value: i128) -> SecretInteger {
        let len = SecretInteger::encoded_len(bits);
        let mut bytes = vec![if value < 0 { 255 } else { 0 }; len.max(16)];
        let end = bytes.len();
        bytes[end - 16..].copy_from_slice(&value.to_be_bytes());
        SecretInteger::from_be_bytes(bits, &bytes[end - len..]).expect("it is in range")
    }

    fn value(integer: &SecretInteger) -> i128 {
        let bytes = integer.to_be_bytes();
        let mut wide = [if bytes[0] >> 7 == 1 { 255 } else { 0 }; 16];
        let len = bytes.len().min(16);
        wide[16 - len..].copy_from_slice(&bytes[bytes.len() - len..]);
        i128::from_be_bytes(wide)
    }

    proptest! {
        #[test]
        fn computes_as_machine_integers_do(
            a in -(1i128 << 60)..1 << 60, b in -(1i128 << 60)..1 << 60, r in any::<u32>(), width in 100u32..300
        ) {
            let (x, y) = (integer(60, a), integer(61, b));
            prop_assert_eq!(value(&SecretInteger::sum(width, [&x, &y])), a + b);
            let mut z = SecretInteger::sum(width, [&x]);
            z.subtract(&y);
            prop_assert_eq!(value(&z), a - b);
            z.add_product(&x, r.into());
            prop_assert_eq!(value(&z), a - b + a * i128::from(r));
            let (magnitude, negative) = z.magnitude();
            let magnitude = i128::from(magnitude.as_words()[0]) + (i128::from(magnitude.as_words()[1]) << 64);
            prop_assert_eq!(if bool::from(negative) { -magnitude } else { magnitude }, value(&z));
        }
    }

    proptest! {
        #[test]
        fn a_multiple_is_divided_exactly(
            bytes in any::<[u8; 40]>(), negative in any::<bool>(),
            divisor in prop::collection::vec(any::<u64>(), 1..4), twos in 0..100_u32
        ) {
            prop_assume!(divisor[0] != 0);
            // The divisor times a power of 2.
            let mut limbs = vec![0; divisor.len() + 3];
            for (i, limb) in divisor.iter().enumerate() {
                let at = i + twos as usize / 64;
                let wide = u128::from(*limb) << (twos % 64);
                let (low, high) = split(wide);
                limbs[at] |= low;
                limbs[at + 1] |= split(high).0;
            }
            let quotient = SecretInteger::from_unsigned(320, &bytes);
            let mut multiple = SecretInteger::zero(900);
            multiple.add_multiple(&quotient, &limbs, negative);
            let divided = multiple.divide_exactly(330, &limbs).unwrap();
            let mut sum = SecretInteger::sum(340, [&divided]);
            if negative { sum.add(&quotient) } else { sum.subtract(&quotient) }
            prop_assert!(sum.limbs.iter().all(|limb| *limb == 0));
            prop_assume!(bytes[0] > 0);
            prop_assert!(multiple.divide_exactly(300, &limbs).is_none(), "too long");
            let one = SecretInteger::from_unsigned(8, &[1]);
            multiple.add(&one);
            prop_assert!(limbs == [1] || multiple.divide_exactly(330, &limbs).is_none() || divisor == [1] && twos == 0);
        }
    }

    #[test]
    fn factors_have_128_bits() {
        let mut z = SecretInteger::zero(300);
        let x = integer(70, -3);
        z.add_product(&x, u128::MAX);
        z.add_product(&x, 1);
        // -3 * 2^128
        let mut expected = vec![255; SecretInteger::encoded_len(300)];
        let end = expected.len();
        expected[end - 16..].fill(0);
        expected[end - 17] = 253;
        assert_eq!(*z.to_be_bytes(), expected);
    }

    #[test]
    fn secret_integers_out_of_range_are_rejected() {
        for bits in [6, 7, 8, 62, 63, 64, 65, 100] {
            let most = (1i128 << bits) - 1;
            assert_eq!(value(&integer(bits, most)), most);
            assert_eq!(value(&integer(bits, -most)), -most);
            assert_eq!(value(&integer(bits, -1)), -1);
            let len = SecretInteger::encoded_len(bits);
            for wrong in [most + 1, -most - 1] {
                let bytes = &wrong.to_be_bytes()[16 - len..];
                assert!(SecretInteger::from_be_bytes(bits, bytes).is_none(), "{wrong} of {bits}");
            }
            for (value, is_within) in [(most, true), (-most, true), (most + 1, false)] {
                for wide in [bits + 1, bits + 20] {
                    assert_eq!(integer(wide, value).is_within(bits), is_within, "{value}");
                    assert_eq!(integer(wide, -value).is_within(bits), is_within, "-{value}");
                    assert!(integer(wide, value).is_within(wide + 70));
                }
            }
            assert!(SecretInteger::from_be_bytes(bits, &vec![0; len + 1]).is_none());
            assert!(SecretInteger::from_be_bytes(bits, &vec![0; len - 1]).is_none());
        }
    }
}
