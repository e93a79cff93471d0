//! Numbers modulo N, in constant time.

use blocks::prg::Prg;
use crypto_bigint::BoxedUint;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use zeroize::Zeroizing;

/// The number of bits of N.
pub const MODULUS_BITS: u32 = 2048;

/// The length of an encoded number, in bytes.
pub(crate) const NUMBER_LEN: usize = MODULUS_BITS as usize / 8;

/// An odd N of [`MODULUS_BITS`] bits.
pub(crate) struct TwoLockModulus(BoxedMontyParams);

/// A number modulo N that is not zero.
#[derive(PartialEq, Eq)]
pub(crate) struct TwoLockResidue(BoxedMontyForm);

impl TwoLockModulus {
    /// The modulus with these big-endian bytes, if it is odd and its highest bit is 1.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let modulus = BoxedUint::from_be_slice(bytes, MODULUS_BITS).ok()?;
        (bytes.first()? >> 7 == 1).then_some(())?;
        Some(Self(BoxedMontyParams::new(modulus.into_odd().into_option()?)))
    }

    /// N, big-endian.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.modulus().as_ref().to_be_bytes().into_vec()
    }

    /// The number with these big-endian bytes, if it is neither 0 nor N or more.
    pub(crate) fn number(&self, bytes: &[u8]) -> Option<TwoLockResidue> {
        let value = BoxedUint::from_be_slice(bytes, MODULUS_BITS).ok()?;
        let valid = bytes.len() == NUMBER_LEN
            && !bool::from(value.is_zero())
            && value < *self.0.modulus().as_ref();
        valid.then(|| TwoLockResidue(BoxedMontyForm::new(value, &self.0)))
    }

    /// A uniform number. It takes two attempts on average, whatever the number.
    pub(crate) fn random(&self, prg: &mut Prg) -> TwoLockResidue {
        let mut bytes = Zeroizing::new([0; NUMBER_LEN]);
        loop {
            prg.fill_bytes(&mut *bytes);
            if let Some(number) = self.number(&*bytes) {
                return number;
            }
        }
    }

    /// The inverses of numbers, with one inversion: `None` if one has none.
    pub(crate) fn inverses(&self, numbers: &[TwoLockResidue]) -> Option<Vec<TwoLockResidue>> {
        let mut products = Vec::with_capacity(numbers.len());
        let mut product = TwoLockResidue(BoxedMontyForm::one(&self.0));
        for number in numbers {
            let next = product.times(number);
            products.push(std::mem::replace(&mut product, next));
        }
        let mut inverse = TwoLockResidue(product.0.invert().into_option()?);
        for (number, product) in numbers.iter().zip(&mut products).rev() {
            *product = product.times(&inverse);
            inverse = inverse.times(number);
        }
        Some(products)
    }
}

impl TwoLockResidue {
    /// The number, big-endian.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.retrieve().to_be_bytes().into_vec())
    }

    /// The product with another number modulo the same N.
    pub(crate) fn times(&self, factor: &Self) -> Self {
        Self(self.0.mul(&factor.0))
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
