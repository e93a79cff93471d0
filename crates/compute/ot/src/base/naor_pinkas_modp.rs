//! Naor, Pinkas 2001, protocol 3.1, modulo a prime: [`super::naor_pinkas`] in groups of the time of
//! the `MIPNet` paper, whose "NP-OT" is that of Fairplay. A historical baseline, to compare with
//! [`super::two_lock`] of the same length.
//!
//! The sender sends a random element C and g^r. The receiver, with choice c, sends the first of two
//! elements whose product is C, of which it knows the discrete logarithm k of number c. The keys
//! are hashes of these elements to the power of r, of which the receiver knows (g^r)^k. A receiver
//! that knows both keys can compute C^r from g^r and C (the Diffie-Hellman problem). With exponents
//! of full length the receiver's element is uniform for both choices, so the sender cannot learn
//! which one it knows. With short ones this is an assumption: that g^k cannot be distinguished from
//! a uniform element.

mod group;

use blocks::Block;
use blocks::prg::Prg;
use crypto_bigint::BoxedUint;
use zeroize::Zeroizing;

pub use group::ModpGroup;

use crate::Error;
use crate::base::key_derivation::OtKeyDerivation;
use crate::base::modular::{OtResidue, select};
use crate::bits::{bit, bytes_of};
use crate::error::{check_argument, check_len};
use group::ModpArithmetic;

const KEY_DOMAIN: &[u8; 16] = b"sunder ot n-p pK";

/// The length of the sender's message, in bytes.
pub const fn sender_len(group: ModpGroup) -> usize {
    2 * group.modulus_len().bytes()
}

/// The length of the receiver's message in bytes, for a number of transfers.
pub const fn receiver_len(group: ModpGroup, count: usize) -> usize {
    count * group.modulus_len().bytes()
}

/// The sender after its message.
pub struct NaorPinkasModpSender {
    arithmetic: ModpArithmetic,
    secret: Zeroizing<BoxedUint>,
    product: OtResidue,
    message: Vec<u8>,
}

impl NaorPinkasModpSender {
    /// A sender and its message of [`sender_len`] bytes. The seed is uniformly random, secret, and
    /// used once.
    pub fn new(group: ModpGroup, seed: Block) -> (Self, Vec<u8>) {
        let arithmetic = ModpArithmetic::new(group);
        let mut prg = Prg::new(seed);
        let secret = arithmetic.exponent(&mut prg);
        let product = arithmetic.random(&mut prg);
        let mut message = product.to_absolute_bytes().to_vec();
        message.extend(arithmetic.power_of_generator(&secret).to_absolute_bytes().iter());
        (Self { arithmetic, secret, product, message: message.clone() }, message)
    }

    /// The keys of `count` transfers, from the receiver's message.
    ///
    /// # Errors
    /// If the message has not [`receiver_len`] bytes, or its elements are not in the group.
    pub fn receive(self, message: &[u8], count: usize) -> Result<Vec<[Block; 2]>, Error> {
        let arithmetic = &self.arithmetic;
        check_len(message, receiver_len(arithmetic.group, count))?;
        let power = |element: &OtResidue| arithmetic.power(element, &self.secret);
        let powers: Vec<OtResidue> = (0..count)
            .map(|i| Ok(power(&arithmetic.decode(message, i)?)))
            .collect::<Result<_, _>>()?;
        let (product, inverses) = (power(&self.product), arithmetic.inverses(&powers));
        let shared: Vec<Zeroizing<Vec<u8>>> = powers
            .iter()
            .zip(&inverses)
            .flat_map(|(power, inverse)| [power, &product.times(inverse)].map(encode))
            .collect();
        let derivation = OtKeyDerivation::new(KEY_DOMAIN, &[&self.message]);
        let keys = Zeroizing::new(derivation.keys(&shared, message, 2));
        Ok(keys.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
    }
}

/// The chosen keys of `count` transfers, and the receiver's message of [`receiver_len`] bytes, from
/// the sender's. The seed is uniformly random, secret, and used once.
///
/// # Errors
/// If the number of choices is not `count`, in whole bytes, or the message is not two elements of
/// the group, or one is 1.
pub fn receive(
    group: ModpGroup,
    seed: Block,
    choices: &[u8],
    count: usize,
    message: &[u8],
) -> Result<(Vec<Block>, Vec<u8>), Error> {
    check_argument("bytes of choices", choices.len(), bytes_of(count))?;
    check_len(message, sender_len(group))?;
    let arithmetic = ModpArithmetic::new(group);
    let product = arithmetic.decode_nonidentity(message, 0)?;
    let element = arithmetic.decode_nonidentity(message, 1)?;
    let mut prg = Prg::new(seed);
    let secrets: Vec<_> = (0..count).map(|_| arithmetic.exponent(&mut prg)).collect();
    let known: Vec<_> = secrets.iter().map(|it| arithmetic.power_of_generator(it)).collect();
    let inverses = arithmetic.inverses(&known);
    let mut sent = Vec::with_capacity(receiver_len(group, count));
    for (i, (known, inverse)) in known.iter().zip(&inverses).enumerate() {
        let (zero, one) = (encode(known), encode(&product.times(inverse)));
        sent.extend(select(&zero, &one, bit(choices, i)).iter());
    }
    let shared: Vec<_> = secrets.iter().map(|it| encode(&arithmetic.power(&element, it))).collect();
    let keys = OtKeyDerivation::new(KEY_DOMAIN, &[message]).keys(&shared, &sent, 1);
    Ok((keys, sent))
}

/// The encoding of an element.
fn encode(element: &OtResidue) -> Zeroizing<Vec<u8>> {
    element.to_absolute_bytes()
}
