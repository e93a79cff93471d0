//! Naor, Pinkas 2001, protocol 3.1, over Ristretto255: the transfer of Fairplay, and of the
//! `MIPNet` paper's "NP-OT". A historical baseline: [`super::ristretto`] costs the same and needs
//! fewer sequential messages.
//!
//! The sender sends a random point C and rG. The receiver, with choice c, sends the first of two
//! points that add up to C, of which it knows the discrete logarithm k of number c. The keys are
//! hashes of r times these points, of which the receiver knows k rG. The sender cannot learn which
//! of the two the receiver knows, whatever it does. A receiver that knows both keys can compute rC
//! from rG and C.

use blocks::Block;
use blocks::prg::Prg;
use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use subtle::ConditionallySelectable as _;
use zeroize::Zeroizing;

use crate::Error;
use crate::base::key_derivation::OtKeyDerivation;
use crate::base::points::{POINT_LEN, decode, decode_nonzero, encode, hash_to_point, scalar};
use crate::bits::{bit, bytes_of};
use crate::error::{check_argument, check_len};

/// The length of the sender's message, in bytes.
pub const SENDER_LEN: usize = 2 * POINT_LEN;

const POINT_DOMAIN: &[u8; 16] = b"sunder ot n-p  C";
const KEY_DOMAIN: &[u8; 16] = b"sunder ot n-p  K";

/// The length of the receiver's message in bytes, for a number of transfers.
pub const fn receiver_len(count: usize) -> usize {
    count * POINT_LEN
}

/// The sender after its message.
pub struct NaorPinkasSender {
    secret: Zeroizing<Scalar>,
    sum: RistrettoPoint,
    message: [u8; SENDER_LEN],
}

impl NaorPinkasSender {
    /// A sender and its message. The seed is uniformly random, secret, and used once.
    pub fn new(seed: Block) -> (Self, [u8; SENDER_LEN]) {
        let mut prg = Prg::new(seed);
        let secret = scalar(&mut prg);
        let mut random = [0; 32];
        prg.fill_bytes(&mut random);
        let sum = hash_to_point(POINT_DOMAIN, &random);
        let mut message = [0; SENDER_LEN];
        let (first, second) = message.split_at_mut(POINT_LEN);
        first.copy_from_slice(sum.compress().as_bytes());
        second.copy_from_slice(RistrettoPoint::mul_base(&secret).compress().as_bytes());
        (Self { secret, sum, message }, message)
    }

    /// The keys of `count` transfers, from the receiver's message.
    ///
    /// # Errors
    /// If the message has not [`receiver_len`] bytes, or its elements are not points.
    pub fn receive(self, message: &[u8], count: usize) -> Result<Vec<[Block; 2]>, Error> {
        check_len(message, receiver_len(count))?;
        let half = Zeroizing::new(self.secret.div_by_2());
        let sum = Zeroizing::new(self.sum * *half);
        let mut halves = Zeroizing::new(Vec::with_capacity(2 * count));
        for i in 0..count {
            let shared = decode(message, i)? * *half;
            halves.extend([shared, *sum - shared]);
        }
        let derivation = OtKeyDerivation::new(KEY_DOMAIN, &[&self.message]);
        let keys = Zeroizing::new(derivation.keys_of_halves(&halves, message, 2));
        Ok(keys.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
    }
}

/// The chosen keys of `count` transfers, and the receiver's message of [`receiver_len`] bytes, from
/// the sender's. The seed is uniformly random, secret, and used once.
///
/// # Errors
/// If the number of choices is not `count`, in whole bytes, or the message is not two points, or
/// one is the identity.
pub fn receive(
    seed: Block,
    choices: &[u8],
    count: usize,
    message: &[u8],
) -> Result<(Vec<Block>, Vec<u8>), Error> {
    check_argument("bytes of choices", choices.len(), bytes_of(count))?;
    check_len(message, SENDER_LEN)?;
    let (sum, point) = (decode_nonzero(message, 0)?, decode_nonzero(message, 1)?);
    let mut prg = Prg::new(seed);
    let mut halves = Zeroizing::new(Vec::with_capacity(count));
    let mut first = Vec::with_capacity(count);
    for i in 0..count {
        let secret = scalar(&mut prg);
        let known = RistrettoPoint::mul_base(&secret);
        first.push(RistrettoPoint::conditional_select(&known, &(sum - known), bit(choices, i)));
        halves.push(point * *Zeroizing::new(secret.div_by_2()));
    }
    let sent = encode(first.iter());
    let keys = OtKeyDerivation::new(KEY_DOMAIN, &[message]).keys_of_halves(&halves, &sent, 1);
    Ok((keys, sent))
}
