//! Numbers modulo N or modulo a prime, in constant time.

use blocks::prg::Prg;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, CtLt as _, CtSelect as _, Resize as _};
use subtle::{Choice, ConditionallySelectable as _};
use zeroize::Zeroizing;

/// The length of a modulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModulusLen {
    /// 1024 bits, as was usual until about 2010. Its strength is some 80 bits.
    Bits1024,
    /// 2048 bits. Its strength is some 112 bits (NIST SP 800-57).
    Bits2048,
}

impl ModulusLen {
    /// In bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits1024 => 1024,
            Self::Bits2048 => 2048,
        }
    }

    /// In bytes, the same as of an encoded number.
    pub const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }
}

/// An odd modulus whose highest bit is 1.
pub(crate) struct OtModulus {
    pub(crate) len: ModulusLen,
    params: BoxedMontyParams,
}

/// A number modulo this that is not zero.
#[derive(PartialEq, Eq)]
pub(crate) struct OtResidue(BoxedMontyForm);

impl OtModulus {
    /// The modulus with these big-endian bytes, if it is odd and its highest bit is 1.
    pub(crate) fn from_bytes(len: ModulusLen, bytes: &[u8]) -> Option<Self> {
        let modulus = BoxedUint::from_be_slice(bytes, len.bits()).ok()?;
        (modulus.bits() == len.bits()).then_some(())?;
        Some(Self { len, params: BoxedMontyParams::new(modulus.into_odd().into_option()?) })
    }

    /// The modulus, big-endian.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.params.modulus().as_ref().to_be_bytes().into_vec()
    }

    /// The number with these big-endian bytes, if there are as many as of the modulus, and it is
    /// neither 0 nor the modulus or more.
    pub(crate) fn number(&self, bytes: &[u8]) -> Option<OtResidue> {
        let value = BoxedUint::from_be_slice(bytes, self.len.bits()).ok()?;
        let valid = bytes.len() == self.len.bytes()
            && !bool::from(value.is_zero())
            && value < *self.params.modulus().as_ref();
        valid.then(|| OtResidue(BoxedMontyForm::new(value, &self.params)))
    }

    /// A small number.
    pub(crate) fn small(&self, value: u8) -> OtResidue {
        let value = BoxedUint::from(value).resize(self.len.bits());
        OtResidue(BoxedMontyForm::new(value, &self.params))
    }

    /// A uniform number. It takes two attempts on average at most, whatever the number.
    pub(crate) fn random(&self, prg: &mut Prg) -> OtResidue {
        let mut bytes = Zeroizing::new(vec![0; self.len.bytes()]);
        loop {
            prg.fill_bytes(&mut bytes);
            if let Some(number) = self.number(&bytes) {
                return number;
            }
        }
    }

    /// The inverses of numbers, with one inversion: `None` if one has none.
    pub(crate) fn inverses(&self, numbers: &[OtResidue]) -> Option<Vec<OtResidue>> {
        let mut products = Vec::with_capacity(numbers.len());
        let mut product = OtResidue(BoxedMontyForm::one(&self.params));
        for number in numbers {
            let next = product.times(number);
            products.push(std::mem::replace(&mut product, next));
        }
        let mut inverse = OtResidue(product.0.invert().into_option()?);
        for (number, product) in numbers.iter().zip(&mut products).rev() {
            *product = product.times(&inverse);
            inverse = inverse.times(number);
        }
        Some(products)
    }
}

impl OtResidue {
    /// The number, big-endian.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.value().to_be_bytes().into_vec())
    }

    /// The smaller one of the number and its negative, big-endian.
    pub(crate) fn to_absolute_bytes(&self) -> Zeroizing<Vec<u8>> {
        let [value, negative] = [self.value(), Self(self.0.neg()).value()];
        let smaller = Zeroizing::new(value.ct_select(&negative, negative.ct_lt(&value)));
        Zeroizing::new(smaller.to_be_bytes().into_vec())
    }

    /// The product with another number modulo the same.
    pub(crate) fn times(&self, factor: &Self) -> Self {
        Self(self.0.mul(&factor.0))
    }

    /// The number to the power of an exponent, of which the lowest `bits` bits count. The running
    /// time depends on `bits`.
    pub(crate) fn power(&self, exponent: &BoxedUint, bits: u32) -> Self {
        Self(self.0.pow_bounded_exp(exponent, bits))
    }

    /// The number to the power of e = 65537.
    pub(crate) fn locked(&self) -> Self {
        let mut power = self.0.clone();
        for _ in 0..16 {
            power = power.square();
        }
        Self(power.mul(&self.0))
    }

    /// The number, not in Montgomery's form.
    pub(crate) fn value(&self) -> Zeroizing<BoxedUint> {
        Zeroizing::new(self.0.retrieve())
    }
}

/// The encoding of one of two numbers: of the second one if `choice` is 1.
pub(crate) fn select(zero: &[u8], one: &[u8], choice: Choice) -> Zeroizing<Vec<u8>> {
    let pairs = zero.iter().zip(one);
    Zeroizing::new(pairs.map(|(zero, one)| u8::conditional_select(zero, one, choice)).collect())
}
