//! A keyed hash: short tags for very many messages under one secret point.
//!
//! A message is divided into `d` blocks of 8 bytes, little-endian, the last padded with zeros. They
//! and a last block `B`, which the caller provides, are the coefficients of a polynomial, and the
//! tag is its value at the point `r`:
//!
//! ```text
//! m_1 r^(d+1) + m_2 r^d + ... + m_d r^2 + B r     over GF(2^64) modulo x^64 + x^4 + x^3 + x + 1.
//! ```
//!
//! Bit `i` of a block is the coefficient of `x^i`.
//!
//! **Promise.** Message and tag are shared together with threshold `k`. An attacker who reads, or
//! replaces with anything, fewer than `k` shares of each message, those of both kinds together, and
//! cannot change the coordinates under which they are joined, has a changed message accepted with
//! probability at most `(d + 1) / 2^64` for each attempt, however many messages there are. Theorem
//! and proof are in `docs/protocols/remicss.md`, "The tag".
//!
//! **Assumptions.** `r` is uniform, and only the two ends know it. `B` is the same at both ends
//! whatever the attacker does, is never zero, and contains the message's length in bytes: otherwise
//! the tag does not cover the padding of the last block. The attacker's computing power is not
//! bounded.
//!
//! **Not promised.** A tag is as secret as the point. An attacker who reads a message and its tag
//! learns `r` by solving the polynomial, and can forge everything under that point from then on
//! (`tests/all/keyed.rs` demonstrates this). So this is not a message authentication code that may
//! be sent in the clear, and messages of different thresholds need different points.
//!
//! ```
//! use sunder_sharing::keyed::{KeyedHash, POINT_LEN};
//! use random::RandomGenerator;
//! use sunder_sharing::SharingParameters;
//!
//! // Both ends derive the point from their key.
//! let mut generator = RandomGenerator::seeded()?;
//! let hash = KeyedHash::new(generator.array::<POINT_LEN>()?);
//!
//! // The last block: never zero, the length of the message, known to both ends.
//! let message = b"a packet";
//! let last = 1 << 63 | message.len() as u64;
//! let protected = [&hash.tag(message, last)[..], message].concat();
//! let shares = SharingParameters::xor(3)?.split(&protected, &mut generator)?;
//!
//! let joined = SharingParameters::xor(3)?.join(&shares)?;
//! let (tag, message) = joined.split_first_chunk().ok_or("too short")?;
//! hash.verify(message, last, *tag)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The [`tamper`](crate::tamper) code needs no key and promises 2^-128, for 32 bytes in each
//! message and more computation; this hash is for packets between two ends that share a key.

mod kernel;
mod portable;

#[cfg(target_arch = "x86_64")]
mod clmul;
#[cfg(target_arch = "aarch64")]
mod pmull;
#[cfg(target_arch = "x86_64")]
mod wide;

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use crate::tamper::TamperedMessage;
use portable::BLOCK;

pub use kernel::HashKernel;

/// The length of the secret point, in bytes.
pub const POINT_LEN: usize = 8;

/// The length of a tag, in bytes.
pub const TAG_LEN: usize = 8;

/// The number of blocks that are multiplied and added before the sum is reduced: enough for most
/// packets.
const GROUP: usize = 256;

/// The keyed hash at one point. Wiped on drop. May be shared between threads.
pub struct KeyedHash {
    /// The powers of the point, from the highest down to the point itself.
    powers: Box<Zeroizing<[u64; GROUP + 1]>>,
    kernel: HashKernel,
}

impl KeyedHash {
    /// The hash at a point of uniformly random bytes. Computing its powers takes longer than
    /// hashing a packet.
    pub fn new(point: [u8; POINT_LEN]) -> Self {
        let kernel = HashKernel::best();
        let point = u64::from_le_bytes(point);
        let mut powers = Box::new(Zeroizing::new([0; GROUP + 1]));
        let mut power = point;
        for entry in powers.iter_mut().rev() {
            *entry = power;
            power = reduce(kernel.multiply(power, point));
        }
        Self { powers, kernel }
    }

    /// The same hash with another of this processor's kernels, for tests and benchmarks.
    ///
    /// # Panics
    /// If the processor does not support it.
    #[must_use]
    pub fn with_kernel(mut self, kernel: HashKernel) -> Self {
        assert!(HashKernel::available().contains(&kernel), "this processor lacks {kernel}");
        self.kernel = kernel;
        self
    }

    /// The tag of a message of any length, with `last` as the last block. It is as secret as the
    /// point.
    pub fn tag(&self, message: &[u8], last: u64) -> [u8; TAG_LEN] {
        self.value(message, last).to_le_bytes()
    }

    /// Verifies a message's tag, in a time that does not depend on where it is wrong.
    ///
    /// # Errors
    /// If the message, the last block or the tag was changed.
    pub fn verify(
        &self,
        message: &[u8],
        last: u64,
        tag: [u8; TAG_LEN],
    ) -> Result<(), TamperedMessage> {
        let fits = self.value(message, last).ct_eq(&u64::from_le_bytes(tag));
        if bool::from(fits) { Ok(()) } else { Err(TamperedMessage) }
    }

    /// Computes the polynomial's value, by Horner's rule with a group of blocks at each step.
    fn value(&self, message: &[u8], last: u64) -> u64 {
        let mut value = 0;
        for group in message.chunks(GROUP * BLOCK) {
            let blocks = group.len().div_ceil(BLOCK);
            // r^(blocks + 1) .. r^2, r
            let powers = &self.powers[GROUP - blocks..];
            let before = self.kernel.multiply(value, powers[1]);
            value = reduce(before ^ self.kernel.sum(group, &powers[..blocks]));
        }
        value ^ reduce(self.kernel.multiply(last, self.powers[GROUP]))
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedHash").finish_non_exhaustive()
    }
}

/// The remainder modulo `x^64 + x^4 + x^3 + x + 1`.
#[allow(clippy::cast_possible_truncation)] // The halves are meant.
fn reduce(product: u128) -> u64 {
    let (low, high) = (product as u64, (product >> 64) as u64);
    // x^64 is x^4 + x^3 + x + 1, and the bits that this shifts out are reduced again.
    let again = high ^ high >> 60 ^ high >> 61 ^ high >> 63;
    low ^ again ^ again << 1 ^ again << 3 ^ again << 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product in the field by definition: doubles for each bit, and adds.
    fn by_definition(a: u64, b: u64) -> u64 {
        let (mut power, mut product) = (a, 0);
        for bit in 0..64 {
            if b >> bit & 1 == 1 {
                product ^= power;
            }
            power = power << 1 ^ if power >> 63 == 1 { 0x1B } else { 0 };
        }
        product
    }

    fn numbers() -> Vec<u64> {
        let units = (0..64).map(|bit| 1 << bit);
        let any = (1u64..30).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
        units.chain(any).chain([0, u64::MAX, u64::MAX << 32, 0x1111_1111_1111_1111]).collect()
    }

    #[test]
    fn every_kernel_multiplies_as_defined() {
        for kernel in HashKernel::available() {
            for a in numbers() {
                for b in numbers() {
                    let product = reduce(kernel.multiply(a, b));
                    assert_eq!(product, by_definition(a, b), "{kernel}: {a:#x} * {b:#x}");
                }
            }
        }
    }

    /// The modulus is irreducible by Rabin's test: x^(2^64) = x, and x^(2^32) + x has an inverse.
    #[test]
    fn it_is_a_field() {
        let square = |a| by_definition(a, a);
        let frobenius = |times| (0..times).fold(2, |a, _| square(a));
        assert_eq!(frobenius(64), 2);
        let difference = frobenius(32) ^ 2;
        let inverse = (1..64).fold((difference, 1), |(power, inverse), _| {
            let power = square(power);
            (power, by_definition(inverse, power))
        });
        assert_eq!(by_definition(difference, inverse.1), 1);
    }

    /// Sums are not reduced, so all of their 128 bits can be compared.
    #[test]
    fn every_kernel_sums_alike() {
        let bytes: Vec<u8> = numbers().into_iter().flat_map(u64::to_le_bytes).collect();
        let powers = numbers();
        for kernel in HashKernel::available() {
            for len in 0..bytes.len() {
                let powers = &powers[..len.div_ceil(BLOCK)];
                let block =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |b, &x| b << 8 | u64::from(x));
                let terms = bytes[..len].chunks(BLOCK).map(block).zip(powers);
                let expected = terms.fold(0, |sum, (a, &b)| sum ^ portable::multiply(a, b));
                assert_eq!(kernel.sum(&bytes[..len], powers), expected, "{kernel}, {len} bytes");
            }
        }
    }

    #[test]
    fn powers_are_in_order() {
        let point = 0x0123_4567_89AB_CDEF_u64;
        let hash = KeyedHash::new(point.to_le_bytes());
        assert_eq!(hash.powers[GROUP], point);
        for pair in hash.powers.windows(2) {
            assert_eq!(pair[0], by_definition(pair[1], point));
        }
    }
}
