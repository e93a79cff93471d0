//! Groups of numbers modulo a safe prime p = 2q + 1, in which x and -x are the same element.
//!
//! Such a group has the prime order q. An element is encoded as the smaller one of x and -x: the
//! numbers from 1 to q are its elements, each once, so a comparison shows whether a number is one.
//! Squaring maps the group to that of the squares modulo p, where telling squares from other
//! numbers would take longer. The map and its inverse are easy to compute, so the Diffie-Hellman
//! problem is as hard in one as in the other.

use blocks::prg::Prg;
use crypto_bigint::BoxedUint;
use zeroize::Zeroizing;

use crate::Error;
use crate::base::modular::{ModulusLen, OtModulus, OtResidue};

/// RFC 2409, 6.2.
const PRIME_1024: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
    020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
    4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
    EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF";

/// RFC 3526, 3.
const PRIME_2048: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
    020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
    4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
    EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
    98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
    9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
    E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
    3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF";

/// The generator. Each element but 1 is one.
const GENERATOR: u8 = 2;

/// The bits of short exponents.
const SHORT_EXPONENT_BITS: u32 = 160;

/// A prime, and the length of exponents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModpGroup {
    /// 2048 bits (RFC 3526, group 14), with exponents of full length.
    Modp2048,
    /// 1024 bits (RFC 2409, group 2), with exponents of full length.
    Modp1024,
    /// The same, with exponents of 160 bits. Fairplay, by its source, computes modulo a prime of
    /// 1024 bits in a subgroup whose order has 160 bits, so that its short exponents give uniform
    /// elements, which they do not here. The cost is the same.
    Modp1024Short,
}

impl ModpGroup {
    /// All groups.
    pub const ALL: [Self; 3] = [Self::Modp2048, Self::Modp1024, Self::Modp1024Short];

    /// The length of its prime.
    pub const fn modulus_len(self) -> ModulusLen {
        match self {
            Self::Modp2048 => ModulusLen::Bits2048,
            Self::Modp1024 | Self::Modp1024Short => ModulusLen::Bits1024,
        }
    }

    /// The length of exponents.
    const fn exponent_bits(self) -> u32 {
        match self {
            Self::Modp2048 | Self::Modp1024 => self.modulus_len().bits(),
            Self::Modp1024Short => SHORT_EXPONENT_BITS,
        }
    }

    /// The prime p.
    fn prime(self) -> OtModulus {
        let len = self.modulus_len();
        let digits = match len {
            ModulusLen::Bits1024 => PRIME_1024,
            ModulusLen::Bits2048 => PRIME_2048,
        };
        let prime = BoxedUint::from_be_hex(digits, len.bits()).into_option();
        let prime = prime.and_then(|it| OtModulus::from_bytes(len, &it.to_be_bytes()));
        prime.expect("an odd number of this length")
    }
}

/// Computes with elements of a group. One of the numbers x and -x represents an element.
pub(super) struct ModpArithmetic {
    pub(super) group: ModpGroup,
    modulus: OtModulus,
    generator: OtResidue,
}

impl ModpArithmetic {
    /// Of a group.
    pub(super) fn new(group: ModpGroup) -> Self {
        let modulus = group.prime();
        let generator = modulus.small(GENERATOR);
        Self { group, modulus, generator }
    }

    /// A uniform exponent, of full length or short.
    pub(super) fn exponent(&self, prg: &mut Prg) -> Zeroizing<BoxedUint> {
        if self.group.exponent_bits() == self.modulus.len.bits() {
            // Modulo q, a uniform number from 1 to p - 1 = 2q is uniform.
            return self.modulus.random(prg).value();
        }
        let mut bytes = Zeroizing::new([0; SHORT_EXPONENT_BITS as usize / 8]);
        prg.fill_bytes(&mut *bytes);
        let exponent = BoxedUint::from_be_slice(&*bytes, SHORT_EXPONENT_BITS);
        Zeroizing::new(exponent.expect("as many bytes"))
    }

    /// A uniform element, whose discrete logarithm nobody knows.
    pub(super) fn random(&self, prg: &mut Prg) -> OtResidue {
        self.modulus.random(prg)
    }

    /// The element to the power of one of the exponents.
    pub(super) fn power(&self, element: &OtResidue, exponent: &BoxedUint) -> OtResidue {
        element.power(exponent, self.group.exponent_bits())
    }

    /// The generator to the power of one of the exponents.
    pub(super) fn power_of_generator(&self, exponent: &BoxedUint) -> OtResidue {
        self.power(&self.generator, exponent)
    }

    /// The inverses of elements, with one inversion.
    pub(super) fn inverses(&self, elements: &[OtResidue]) -> Vec<OtResidue> {
        let inverses = self.modulus.inverses(elements);
        inverses.expect("a number that is not zero has an inverse modulo a prime")
    }

    /// Element `at` of a message.
    pub(super) fn decode(&self, message: &[u8], at: usize) -> Result<OtResidue, Error> {
        let len = self.modulus.len.bytes();
        let encoded = message.get(at * len..(at + 1) * len).ok_or(Error::Number(at))?;
        let number = self.modulus.number(encoded).ok_or(Error::Number(at))?;
        let is_smaller = number.to_absolute_bytes().as_slice() == encoded;
        if is_smaller { Ok(number) } else { Err(Error::Number(at)) }
    }

    /// Element `at` of a message, which is not 1.
    pub(super) fn decode_nonidentity(&self, message: &[u8], at: usize) -> Result<OtResidue, Error> {
        let element = self.decode(message, at)?;
        if element == self.modulus.small(1) { Err(Error::Identity) } else { Ok(element) }
    }
}

#[cfg(test)]
mod tests;
