//! The RSA-based two-lock transfer of the `MIPNet` paper ("RSA-OT", section 5), after the
//! two-lock cryptosystems of Wu, Zhang, Wang 2003. A historical baseline: with 2048 bits 40 times
//! the work of [`super::ristretto`], and 30 times the bytes.
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

use blocks::Block;
use blocks::prg::Prg;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

pub use key::TwoLockSecretKey;

use crate::Error;
use crate::base::modular::{ModulusLen, OtModulus, OtResidue, select};
use crate::bits::{bit, bytes_of};
use crate::error::{check_argument, check_len};

const KEY_DOMAIN: &[u8; 16] = b"sunder ot 2-lock";

/// The length of the sender's first message in bytes, for a number of transfers.
pub const fn locked_len(modulus: ModulusLen, count: usize) -> usize {
    (1 + 2 * count) * modulus.bytes()
}

/// The length of the receiver's message and of the sender's answer in bytes, for a number of
/// transfers.
pub const fn answer_len(modulus: ModulusLen, count: usize) -> usize {
    count * modulus.bytes()
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
        let modulus = self.key.modulus();
        check_len(message, answer_len(modulus.len, self.keys.len() / 2))?;
        let numbers: Vec<OtResidue> = message
            .chunks_exact(modulus.len.bytes())
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
    modulus: OtModulus,
    /// The chosen locked numbers.
    chosen: Vec<OtResidue>,
    /// The inverses of the receiver's locks, without e.
    inverses: Vec<OtResidue>,
}

impl TwoLockReceiver {
    /// The receiver of `count` transfers and its message of [`answer_len`] bytes, from the first
    /// message of a sender whose key has a modulus of this length. The seed is uniformly random,
    /// secret, and used once.
    ///
    /// # Errors
    /// If the number of choices is not `count`, in whole bytes, or the message has not
    /// [`locked_len`] bytes, its modulus another size, or its elements are not invertible numbers
    /// below N.
    pub fn new(
        len: ModulusLen,
        seed: Block,
        choices: &[u8],
        count: usize,
        message: &[u8],
    ) -> Result<(Self, Vec<u8>), Error> {
        check_argument("bytes of choices", choices.len(), bytes_of(count))?;
        check_len(message, locked_len(len, count))?;
        let (modulus, locked) = message.split_at(len.bytes());
        let invalid = Error::Modulus(len.bits());
        let modulus = OtModulus::from_bytes(len, modulus).ok_or(invalid)?;
        let mut chosen = Vec::with_capacity(count);
        for (i, pair) in locked.chunks_exact(2 * len.bytes()).enumerate() {
            let (zero, one) = pair.split_at(len.bytes());
            for (at, bytes) in [zero, one].into_iter().enumerate() {
                modulus.number(bytes).ok_or(Error::Number(2 * i + at))?;
            }
            let bytes = select(zero, one, bit(choices, i));
            chosen.push(modulus.number(&bytes).ok_or(Error::Number(2 * i))?);
        }
        let mut prg = Prg::new(seed);
        let locks: Vec<OtResidue> = chosen.iter().map(|_| modulus.random(&mut prg)).collect();
        let inverses = modulus.inverses(&locks).ok_or(invalid)?;
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
        let len = self.modulus.len;
        check_len(message, answer_len(len, self.chosen.len()))?;
        let parts = message.chunks_exact(len.bytes()).zip(&self.chosen).zip(&self.inverses);
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

fn key_of(modulus: &OtModulus, transfer: usize, number: &OtResidue) -> Block {
    let hash = Sha256::new()
        .chain_update(KEY_DOMAIN)
        .chain_update((transfer as u64).to_be_bytes())
        .chain_update(modulus.to_bytes())
        .chain_update(number.to_bytes())
        .finalize();
    Block::from_bytes(*hash.first_chunk::<16>().expect("a hash has 32 bytes"))
}
