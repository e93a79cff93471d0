//! A dealer generates an RSA key of two safe primes. Whoever splits it deletes it then.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, ConcatenatingMul as _};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use keys::rsa::{MODULUS_BITS, PUBLIC_EXPONENT};
use rand_core::utils::next_word_via_fill;
use rand_core::{TryCryptoRng, TryRng};
use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use crate::integer::{SecretInteger, split};
use crate::key::GroupPublicKey;
use crate::modulus::{RsaElement, RsaModulus, RsaModulusError, power};

/// A group's whole key. It exists only during a ceremony.
pub struct DealerKey {
    group: GroupPublicKey,
    private_exponent: SecretInteger,
}

/// The progress of the search for the primes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimeSearchProgress {
    /// The prime that is searched for, 1 or 2.
    pub prime: u8,
    /// The number of candidates tried so far for this prime.
    pub tried: u64,
}

/// Why no key is made.
#[derive(Debug, thiserror::Error)]
pub enum CeremonyError {
    /// The modulus has an unsupported size.
    #[error(transparent)]
    Modulus(#[from] RsaModulusError),
    /// The public exponent has no inverse, or the primes are equal.
    #[error("the primes make no key")]
    Primes,
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl DealerKey {
    /// Generates a key from two random safe primes. With 2048 bits this takes some seconds; the
    /// time varies widely. The numbers that the prime search tries, of which the last ones are the
    /// primes, are not wiped: their tests leave copies in memory that was freed. So end the process
    /// after the ceremony.
    ///
    /// # Errors
    /// If the size is not in [`keys::rsa::MODULUS_BITS`], or there are no random bytes.
    pub fn generate(
        modulus_bits: u32,
        generator: &mut RandomGenerator,
    ) -> Result<Self, CeremonyError> {
        if !MODULUS_BITS.contains(&modulus_bits) {
            return Err(RsaModulusError::Bits(modulus_bits).into());
        }
        let p = safe_prime(modulus_bits / 2, generator, is_safe_prime)?;
        let q = safe_prime(modulus_bits / 2, generator, is_safe_prime)?;
        Self::from_safe_primes(&p, &q, generator)
    }

    /// As [`Self::generate`], on several threads, each with its own generator. `tried` is called
    /// after each candidate for a prime.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn generate_on(
        threads: usize,
        modulus_bits: u32,
        tried: &(dyn Fn(PrimeSearchProgress) + Sync),
    ) -> Result<Self, CeremonyError> {
        if !MODULUS_BITS.contains(&modulus_bits) {
            return Err(RsaModulusError::Bits(modulus_bits).into());
        }
        let p = safe_prime_on(threads, modulus_bits / 2, 1, tried)?;
        let q = safe_prime_on(threads, modulus_bits / 2, 2, tried)?;
        Self::from_safe_primes(&p, &q, &mut RandomGenerator::seeded()?)
    }

    /// The key from two safe primes, big-endian. The primes are not checked.
    ///
    /// # Errors
    /// If the modulus has no size in [`keys::rsa::MODULUS_BITS`], or the primes are equal.
    pub fn from_safe_primes(
        p: &[u8],
        q: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<Self, CeremonyError> {
        let key = Self::danger_of_any_size(p, q, generator)?;
        RsaModulus::from_be_bytes(&key.group.modulus().to_be_bytes())?;
        Ok(key)
    }

    /// As [`Self::from_safe_primes`], with a modulus of any multiple of 64 bits from 256 to 4096.
    /// Small ones are for simulations.
    ///
    /// # Errors
    /// If the modulus has no such size, or the primes are equal.
    pub fn danger_of_any_size(
        p: &[u8],
        q: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<Self, CeremonyError> {
        if p == q {
            return Err(CeremonyError::Primes);
        }
        let [p, q] = [p, q].map(|prime| Zeroizing::new(BoxedUint::from_be_slice_vartime(prime)));
        let modulus = RsaModulus::danger_of_any_size(&p.concatenating_mul(&*q).to_be_bytes())?;
        let halves = [&p, &q].map(|prime| Zeroizing::new(prime.shr(1)));
        let order = Zeroizing::new(halves[0].concatenating_mul(&*halves[1]));
        let private_exponent = private_exponent(order.as_words()).ok_or(CeremonyError::Primes)?;
        let group = GroupPublicKey::new(modulus.clone(), square(&modulus, generator)?)
            .map_err(|_| CeremonyError::Primes)?;
        Ok(Self { group, private_exponent })
    }

    /// The public part.
    pub fn group(&self) -> &GroupPublicKey {
        &self.group
    }

    /// The private exponent, d. Secret.
    pub fn private_exponent(&self) -> &SecretInteger {
        &self.private_exponent
    }
}

/// A random safe prime whose two highest bits are 1, so that the product of two such primes has
/// exactly twice the bits.
fn safe_prime(
    bits: u32,
    generator: &mut RandomGenerator,
    is_chosen: impl Fn(&BoxedUint) -> bool,
) -> Result<Zeroizing<Vec<u8>>, CeremonyError> {
    let mut random = CeremonyRng { generator, failed: None };
    let sieve = SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Safe, bits, SetBits::TwoMsb);
    let sieve = sieve.map_err(|_| CeremonyError::Primes)?;
    let prime = sieve_and_find(&mut random, sieve, |_, it| is_chosen(it));
    if let Some(failed) = random.failed {
        return Err(failed.into());
    }
    let prime = Zeroizing::new(prime.ok().flatten().ok_or(CeremonyError::Primes)?);
    Ok(Zeroizing::new(prime.to_be_bytes().into_vec()))
}

/// The first safe prime that any of the threads finds: the key's first or second.
fn safe_prime_on(
    threads: usize,
    bits: u32,
    number: u8,
    tried: &(dyn Fn(PrimeSearchProgress) + Sync),
) -> Result<Zeroizing<Vec<u8>>, CeremonyError> {
    let (is_found, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let found = Mutex::new(None);
    let search = || {
        let result =
            RandomGenerator::seeded().map_err(CeremonyError::from).and_then(|mut generator| {
                safe_prime(bits, &mut generator, |candidate| {
                    // Any number ends the search of the other threads. It is not used.
                    if is_found.load(Ordering::Relaxed) {
                        return true;
                    }
                    let is_prime = is_safe_prime(candidate);
                    tried(PrimeSearchProgress {
                        prime: number,
                        tried: 1 + count.fetch_add(1, Ordering::Relaxed),
                    });
                    is_prime
                })
            });
        let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !is_found.swap(true, Ordering::Relaxed) {
            *found = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(search);
        }
    });
    found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .unwrap_or(Err(CeremonyError::Primes))
}

/// Whether a number is a safe prime. Nearly all candidates fail Fermat's test, whose powers take
/// less time here than those of the library on some processors.
fn is_safe_prime(candidate: &BoxedUint) -> bool {
    passes_fermats_test(candidate)
        && passes_fermats_test(&Zeroizing::new(candidate.shr(1)))
        && is_prime(Flavor::Safe, candidate)
}

/// Whether 2 to the power of n - 1 is 1 modulo n. All odd primes pass, and even numbers do not. As
/// the library's own tests, it leaves copies of n: the parameters of a modulus are not wiped.
fn passes_fermats_test(n: &BoxedUint) -> bool {
    let Some(modulus) = n.to_odd().into_option() else { return false };
    let one = BoxedMontyForm::one(&BoxedMontyParams::new(modulus));
    let exponent = Zeroizing::new(n.wrapping_sub(BoxedUint::one()));
    power(&one.double(), &exponent, n.bits_precision()) == one
}

/// A generator for the prime search, whose interface has no errors. It keeps the first error.
struct CeremonyRng<'a> {
    generator: &'a mut RandomGenerator,
    failed: Option<RandomError>,
}

impl TryRng for CeremonyRng<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        next_word_via_fill(self)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        next_word_via_fill(self)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.failed = self.failed.or(self.generator.fill(bytes).err());
        Ok(())
    }
}

impl TryCryptoRng for CeremonyRng<'_> {}

/// d with d e = 1 mod 2 p' q', the exponent of the group of invertible numbers. `order` has the
/// limbs of p' q', the number of squares.
fn private_exponent(order: &[u64]) -> Option<SecretInteger> {
    // With k = -1 / (2 p' q') mod e, d = (k 2 p' q' + 1) / e. Below 2 p' q', as k < e.
    let e = u128::from(PUBLIC_EXPONENT);
    let residue = order.iter().rev().fold(0, |rest, &limb| (rest << 64 | u128::from(limb)) % e);
    let mut inverse = 1;
    // By Fermat's theorem: e is prime.
    for _ in 0..PUBLIC_EXPONENT - 2 {
        inverse = inverse * (2 * residue) % e;
    }
    let factor = 2 * (e - inverse);
    let mut limbs = Zeroizing::new(vec![0_u64; order.len() + 1]);
    let mut carry = 1;
    for (limb, &of_order) in limbs.iter_mut().zip(order.iter().chain([&0])) {
        let sum = u128::from(of_order) * factor + carry;
        (*limb, carry) = split(sum);
    }
    let mut rest = 0;
    for limb in limbs.iter_mut().rev() {
        let dividend = rest << 64 | u128::from(*limb);
        (*limb, _) = split(dividend / e);
        rest = dividend % e;
    }
    let bytes: Zeroizing<Vec<u8>> =
        Zeroizing::new(limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect());
    let bits = u32::try_from(bytes.len() * 8).expect("it is short");
    (rest == 0 && residue != 0).then(|| SecretInteger::from_unsigned(bits, &bytes))
}

/// A random square modulo N. With overwhelming probability, it generates the group of squares.
fn square(
    modulus: &RsaModulus,
    generator: &mut RandomGenerator,
) -> Result<RsaElement, RandomError> {
    let mut bytes = vec![0; modulus.byte_len()];
    loop {
        generator.fill(&mut bytes)?;
        if let Some(root) = modulus.element(&bytes) {
            return Ok(root.square());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SHORT_PRIMES, small_key};

    #[test]
    fn the_private_exponent_inverts_the_public_one() {
        let key = small_key();
        let modulus = key.group().modulus();
        // Among three numbers one is not a square.
        for number in 2..5 {
            let x = modulus.element(&[&[0; 127][..], &[number]].concat()).unwrap();
            let signature = modulus.pow(&x, &key.private_exponent).unwrap();
            assert_eq!(signature.pow(PUBLIC_EXPONENT.into()), x);
        }
    }

    #[test]
    fn safe_primes_are_recognized() {
        let [p, q] = SHORT_PRIMES.map(|hex| BoxedUint::from_be_hex(hex, 256).unwrap());
        assert!(is_safe_prime(&p) && is_safe_prime(&q));
        // Primes that are not safe, products and even numbers are none.
        assert!(!is_safe_prime(&p.shr(1)) && !is_safe_prime(&p.concatenating_mul(&q)));
        let next = p.wrapping_add(BoxedUint::one());
        assert!(!is_safe_prime(&next) && !is_safe_prime(&next.wrapping_add(BoxedUint::one())));
    }

    #[test]
    fn a_new_key_has_its_size_and_signs() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let key = DealerKey::generate(1024, &mut generator).unwrap();
        let modulus = key.group().modulus();
        assert_eq!(modulus.bits(), 1024);
        let x = modulus.element(&[&[0; 127][..], &[2]].concat()).unwrap();
        let signature = modulus.pow(&x, &key.private_exponent).unwrap();
        assert_eq!(signature.pow(PUBLIC_EXPONENT.into()), x);
        let other = DealerKey::generate(1000, &mut generator).err();
        assert!(matches!(other, Some(CeremonyError::Modulus(RsaModulusError::Bits(1000)))));
    }

    #[test]
    fn invalid_primes_are_rejected() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let mut key = |p: &[u8], q: &[u8]| DealerKey::from_safe_primes(p, q, &mut generator).err();
        assert!(matches!(key(&[0xff; 64], &[0xff; 64]), Some(CeremonyError::Primes)));
        assert!(matches!(key(&[7], &[11]), Some(CeremonyError::Modulus(_))));
        assert!(matches!(key(&[], &[0]), Some(CeremonyError::Modulus(_))));
    }
}
