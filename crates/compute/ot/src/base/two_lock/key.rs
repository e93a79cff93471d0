//! The sender's RSA key.

use std::convert::Infallible;

use blocks::Block;
use blocks::prg::Prg;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, ConcatenatingMul as _, NonZero, Resize as _};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use rand_core::utils::next_word_via_fill;
use rand_core::{TryCryptoRng, TryRng};
use zeroize::Zeroizing;

use crate::base::modular::{ModulusLen, OtModulus, OtResidue};

/// The public exponent, which is prime.
const PUBLIC_EXPONENT: u64 = 65_537;

/// An RSA key with the public exponent 65537.
pub struct TwoLockSecretKey {
    modulus: OtModulus,
    p: TwoLockPrime,
    q: TwoLockPrime,
    /// The inverse of q modulo p.
    q_inverse: BoxedMontyForm,
}

/// A prime factor of N, and the private exponent modulo p - 1.
struct TwoLockPrime {
    value: Zeroizing<BoxedUint>,
    params: BoxedMontyParams,
    exponent: Zeroizing<BoxedUint>,
}

impl TwoLockSecretKey {
    /// A new key, in about a tenth of a second. The seed is uniformly random, secret, and used
    /// once. The numbers that the search for primes tries are not wiped.
    pub fn generate(len: ModulusLen, seed: Block) -> Self {
        let mut random = PrimeSearchRng(Prg::new(seed));
        loop {
            let primes = [(); 2].map(|()| TwoLockPrime::generate(len.bits() / 2, &mut random));
            if let [Some(p), Some(q)] = primes
                && let Some(key) = Self::of(len, p, q)
            {
                return key;
            }
        }
    }

    /// The key of two primes, unless they are equal.
    fn of(len: ModulusLen, p: TwoLockPrime, q: TwoLockPrime) -> Option<Self> {
        let product = p.value.concatenating_mul(&q.value);
        let modulus = OtModulus::from_bytes(len, &product.to_be_bytes())?;
        let q_inverse = p.reduce(&q.value).invert().into_option()?;
        Some(Self { modulus, p, q, q_inverse })
    }

    /// The length of its modulus.
    pub fn modulus_len(&self) -> ModulusLen {
        self.modulus.len
    }

    pub(crate) fn modulus(&self) -> &OtModulus {
        &self.modulus
    }

    /// The number to the power of the private exponent, by the Chinese remainder theorem.
    pub(crate) fn unlock(&self, number: &OtResidue) -> OtResidue {
        let value = number.value();
        let [of_p, of_q] =
            [&self.p, &self.q].map(|prime| prime.reduce(&value).pow(&prime.exponent));
        let of_q = Zeroizing::new(of_q.retrieve());
        let factor = (of_p - self.p.reduce(&of_q)).mul(&self.q_inverse);
        let factor = Zeroizing::new(factor.retrieve());
        let multiple = Zeroizing::new(factor.concatenating_mul(&self.q.value));
        let power = Zeroizing::new(multiple.wrapping_add(&*of_q));
        // Not zero, as the number is not.
        self.modulus.number(&power.to_be_bytes()).expect("a power of a number below N is below N")
    }
}

impl TwoLockPrime {
    /// A prime with the two highest bits 1, if e is not a factor of the one below it.
    fn generate(bits: u32, random: &mut PrimeSearchRng) -> Option<Self> {
        let sieve = SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Any, bits, SetBits::TwoMsb);
        let value = sieve_and_find(random, sieve.ok()?, |_, it| is_prime(Flavor::Any, it));
        Self::of(value.ok()??)
    }

    fn of(value: BoxedUint) -> Option<Self> {
        let value = Zeroizing::new(value);
        let params = BoxedMontyParams::new(BoxedUint::clone(&value).into_odd().into_option()?);
        let order = NonZero::new(value.wrapping_sub(BoxedUint::one())).into_option()?;
        let public = BoxedUint::from(PUBLIC_EXPONENT).resize(order.bits_precision());
        let exponent = public.invert_mod(&order).into_option()?;
        Some(Self { value, params, exponent: Zeroizing::new(exponent) })
    }

    /// A number modulo this prime.
    fn reduce(&self, value: &BoxedUint) -> BoxedMontyForm {
        BoxedMontyForm::new(value.rem(self.params.modulus().as_nz_ref()), &self.params)
    }
}

/// The random numbers of the search for primes.
struct PrimeSearchRng(Prg);

impl TryRng for PrimeSearchRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        next_word_via_fill(self)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        next_word_via_fill(self)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

impl TryCryptoRng for PrimeSearchRng {}
