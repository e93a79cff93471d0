//! The RSA-based two-lock transfer of the `MIPNet` paper ("RSA-OT", section 5), after the
//! two-lock cryptosystems of Wu, Zhang, Wang 2003. A historical baseline: 40 times the work of
//! [`super::ristretto`], and 30 times the bytes.
//!
//! The sender locks two random numbers x with its RSA key: it sends x^e modulo N. The receiver
//! multiplies the chosen number with its own lock, the power r^e of a random r (blinding), and
//! returns the product. The sender removes its lock with its private exponent, which leaves x r.
//! The receiver divides by r. The keys are hashes of the x. The product is uniform for both choices
//! if e has no common factor with the order of the group; the receiver trusts the sender for that.
//! Learning both x of one transfer means solving the one-more-RSA-inversion problem. Textbook RSA
//! is malleable, but the keys are hashes of random numbers, so an attacker cannot derive related
//! keys.

mod key;
mod number;

use blocks::Block;
use blocks::prg::Prg;
use sha2::{Digest as _, Sha256};
use subtle::ConditionallySelectable as _;
use zeroize::Zeroizing;

pub use key::TwoLockSecretKey;
pub use number::MODULUS_BITS;

use crate::Error;
use crate::bits::{bit, bytes_of};
use crate::error::{check_argument, check_len};
use number::{NUMBER_LEN, TwoLockModulus, TwoLockResidue};

const KEY_DOMAIN: &[u8; 16] = b"sunder ot 2-lock";

/// The length of the sender's first message in bytes, for a number of transfers.
pub const fn locked_len(count: usize) -> usize {
    NUMBER_LEN + 2 * count * NUMBER_LEN
}

/// The length of the receiver's message and of the sender's answer in bytes, for a number of
/// transfers.
pub const fn answer_len(count: usize) -> usize {
    count * NUMBER_LEN
}

/// The sender after its first message.
pub struct TwoLockSender<'a> {
    key: &'a TwoLockSecretKey,
    keys: Zeroizing<Vec<Block>>,
}

impl<'a> TwoLockSender<'a> {
    /// The sender of `count` transfers, and its message of [`locked_len`] bytes. The seed is
    /// uniformly random, secret, and used once.
    pub fn new(key: &'a TwoLockSecretKey, seed: Block, count: usize) -> (Self, Vec<u8>) {
        let mut prg = Prg::new(seed);
        let modulus = key.modulus();
        let mut message = modulus.to_bytes();
        let mut keys = Zeroizing::new(Vec::with_capacity(2 * count));
        for i in 0..2 * count {
            let number = modulus.random(&mut prg);
            message.extend(number.locked().to_bytes().iter());
            keys.push(key_of(modulus, i / 2, &number));
        }
        (Self { key, keys }, message)
    }

    /// The keys of all transfers and the answer of [`answer_len`] bytes, from the receiver's
    /// message.
    ///
    /// # Errors
    /// If the message has not [`answer_len`] bytes, or its elements are not numbers below N.
    pub fn receive(self, message: &[u8]) -> Result<(Vec<[Block; 2]>, Vec<u8>), Error> {
        check_len(message, answer_len(self.keys.len() / 2))?;
        let modulus = self.key.modulus();
        let numbers: Vec<TwoLockResidue> = message
            .chunks_exact(NUMBER_LEN)
            .enumerate()
            .map(|(i, bytes)| modulus.number(bytes).ok_or(Error::Number(i)))
            .collect::<Result<_, _>>()?;
        let answer =
            numbers.iter().flat_map(|number| self.key.unlock(number).to_bytes().to_vec()).collect();
        Ok((self.keys.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect(), answer))
    }
}

/// The receiver after its message.
pub struct TwoLockReceiver {
    modulus: TwoLockModulus,
    /// The chosen locked numbers.
    chosen: Vec<TwoLockResidue>,
    /// The inverses of the receiver's locks, without e.
    inverses: Vec<TwoLockResidue>,
}

impl TwoLockReceiver {
    /// The receiver of `count` transfers and its message of [`answer_len`] bytes, from the sender's
    /// first message. The seed is uniformly random, secret, and used once.
    ///
    /// # Errors
    /// If the number of choices is not `count`, in whole bytes, or the message has not
    /// [`locked_len`] bytes, its modulus another size, or its elements are not invertible numbers
    /// below N.
    pub fn new(
        seed: Block,
        choices: &[u8],
        count: usize,
        message: &[u8],
    ) -> Result<(Self, Vec<u8>), Error> {
        check_argument("bytes of choices", choices.len(), bytes_of(count))?;
        check_len(message, locked_len(count))?;
        let (modulus, locked) = message.split_at(NUMBER_LEN);
        let modulus = TwoLockModulus::from_bytes(modulus).ok_or(Error::Modulus(MODULUS_BITS))?;
        let mut chosen = Vec::with_capacity(count);
        for (i, pair) in locked.chunks_exact(2 * NUMBER_LEN).enumerate() {
            let (zero, one) = pair.split_at(NUMBER_LEN);
            for (at, bytes) in [zero, one].into_iter().enumerate() {
                modulus.number(bytes).ok_or(Error::Number(2 * i + at))?;
            }
            let choice = bit(choices, i);
            let bytes: Zeroizing<Vec<u8>> = Zeroizing::new(
                zero.iter().zip(one).map(|(a, b)| u8::conditional_select(a, b, choice)).collect(),
            );
            chosen.push(modulus.number(&bytes).ok_or(Error::Number(2 * i))?);
        }
        let mut prg = Prg::new(seed);
        let locks: Vec<TwoLockResidue> = chosen.iter().map(|_| modulus.random(&mut prg)).collect();
        let inverses = modulus.inverses(&locks).ok_or(Error::Modulus(MODULUS_BITS))?;
        let message = chosen
            .iter()
            .zip(&locks)
            .flat_map(|(chosen, lock)| chosen.times(&lock.locked()).to_bytes().to_vec())
            .collect();
        Ok((Self { modulus, chosen, inverses }, message))
    }

    /// The chosen keys, from the sender's answer.
    ///
    /// # Errors
    /// If the answer has not [`answer_len`] bytes, or its elements are not what the sender locked.
    pub fn receive(self, message: &[u8]) -> Result<Vec<Block>, Error> {
        check_len(message, answer_len(self.chosen.len()))?;
        let parts = message.chunks_exact(NUMBER_LEN).zip(&self.chosen).zip(&self.inverses);
        parts
            .enumerate()
            .map(|(i, ((bytes, chosen), inverse))| {
                let answer = self.modulus.number(bytes).ok_or(Error::Number(i))?;
                let number = answer.times(inverse);
                if number.locked() != *chosen {
                    return Err(Error::Number(i));
                }
                Ok(key_of(&self.modulus, i, &number))
            })
            .collect()
    }
}

fn key_of(modulus: &TwoLockModulus, transfer: usize, number: &TwoLockResidue) -> Block {
    let hash = Sha256::new()
        .chain_update(KEY_DOMAIN)
        .chain_update((transfer as u64).to_be_bytes())
        .chain_update(modulus.to_bytes())
        .chain_update(number.to_bytes())
        .finalize();
    Block::from_bytes(*hash.first_chunk::<16>().expect("a hash has 32 bytes"))
}
