//! 1-of-N oblivious transfer, from one random transfer for each bit of the choice (Naor, Pinkas
//! 1999).
//!
//! The bits of a message's number are split into a low and a high half, recursively down to single
//! bits, whose keys are those of the transfers. With the keys `a` of its low half and `b` of its
//! high half, message i has the key F(a, high half) + F(b, low half) (exclusive or), where F is
//! AES-128. With one key of each transfer, a receiver can compute one of the N keys. The sender
//! computes all of them with 2 N blocks of AES and about 4 times the root of N AES keys.
//!
//! As in [`crate::messages`], the keys must be used once, and the content is not authenticated.

use blocks::Block;
use blocks::aes::Aes128;
use blocks::prg::Prg;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::Error;
use crate::error::{check_argument, check_len};
use crate::messages::add_pad;

/// The number of transfers for a choice among `count` messages: the bits of the largest number.
pub const fn transfers(count: usize) -> usize {
    match count.checked_sub(1) {
        Some(last) => (usize::BITS - last.leading_zeros()) as usize,
        None => 0,
    }
}

/// The packed choices of the transfers for choices among `count` messages, one after the other: the
/// lowest bit of each first.
///
/// # Errors
/// If a choice is `count` or more.
pub fn choices(chosen: &[usize], count: usize) -> Result<Vec<u8>, Error> {
    let bits = transfers(count);
    let mut packed = vec![0; (chosen.len() * bits).div_ceil(8)];
    for (i, &chosen) in chosen.iter().enumerate() {
        check_choice(chosen, count)?;
        for bit in 0..bits {
            let at = i * bits + bit;
            packed[at / 8] |= u8::from(chosen >> bit & 1 == 1) << (at % 8);
        }
    }
    Ok(packed)
}

/// Overwrites `out` with the keys of `out.len()` messages, of which the receiver gets one, from the
/// keys of the [`transfers`]. If there is only one message, its key is zero.
///
/// # Errors
/// If the number of keys is not that of the transfers.
pub fn keys(pairs: &[[Block; 2]], out: &mut [Block]) -> Result<(), Error> {
    check_argument("keys", pairs.len(), transfers(out.len()))?;
    fill(pairs, out);
    Ok(())
}

fn fill(pairs: &[[Block; 2]], out: &mut [Block]) {
    match pairs {
        [] => out.fill(Block::ZERO),
        [pair] => out.copy_from_slice(&pair[..out.len()]),
        _ => {
            let (low, high) = pairs.split_at(pairs.len() / 2);
            let width = 1 << low.len();
            let height = out.len().div_ceil(width);
            let mut of_low = Zeroizing::new(vec![Block::ZERO; width]);
            let mut of_high = Zeroizing::new(vec![Block::ZERO; height]);
            let mut column = Zeroizing::new(vec![Block::ZERO; height]);
            fill(low, &mut of_low);
            fill(high, &mut of_high);
            for (key, row) in of_high.iter().zip(out.chunks_mut(width)) {
                Prg::new(*key).fill(row);
            }
            for (place, key) in of_low.iter().enumerate() {
                Prg::new(*key).fill(&mut column);
                // The last row can be shorter.
                let places = out[place..].iter_mut().step_by(width);
                places.zip(column.iter()).for_each(|(out, block)| *out ^= *block);
            }
        }
    }
}

/// The key of the chosen one of `count` messages, from the chosen keys. No branch or address
/// depends on the choice.
///
/// # Errors
/// If the choice is not below `count`, or the number of keys is wrong.
pub fn key(keys: &[Block], chosen: usize, count: usize) -> Result<Block, Error> {
    check_choice(chosen, count)?;
    check_argument("keys", keys.len(), transfers(count))?;
    Ok(chosen_key(keys, chosen))
}

fn chosen_key(keys: &[Block], chosen: usize) -> Block {
    match keys {
        [] => Block::ZERO,
        [key] => *key,
        _ => {
            let (low, high) = keys.split_at(keys.len() / 2);
            let of_low = chosen & ((1 << low.len()) - 1);
            let of_high = chosen >> low.len();
            block(chosen_key(low, of_low), of_high) ^ block(chosen_key(high, of_high), of_low)
        }
    }
}

/// Block `number` of the stream of a key.
fn block(key: Block, number: usize) -> Block {
    let mut block = [Block::from(number as u128)];
    Aes128::new(key).encrypt(&mut block);
    block[0]
}

/// Encrypts messages of `len` bytes each, of which the receiver gets one, with the keys of the
/// [`transfers`]. The ciphertexts are as long as the messages.
///
/// # Errors
/// If the number of messages is not `count`, or the number of keys is wrong.
pub fn encrypt(
    pairs: &[[Block; 2]],
    messages: &[u8],
    count: usize,
    len: usize,
) -> Result<Vec<u8>, Error> {
    check_argument("keys", pairs.len(), transfers(count))?;
    check_argument("bytes of messages", messages.len(), count.saturating_mul(len))?;
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let mut message_keys = Zeroizing::new(vec![Block::ZERO; count]);
    keys(pairs, &mut message_keys)?;
    let mut ciphertexts = messages.to_vec();
    let of_keys = message_keys.iter().zip(ciphertexts.chunks_exact_mut(len));
    of_keys.for_each(|(key, message)| add_pad(*key, message));
    Ok(ciphertexts)
}

/// The chosen message, from the chosen keys and the sender's ciphertexts. All ciphertexts are read,
/// so the running time does not depend on the choice.
///
/// # Errors
/// If the choice is not below `count`, or the number of keys or of ciphertexts is wrong.
pub fn decrypt(
    keys: &[Block],
    chosen: usize,
    ciphertexts: &[u8],
    count: usize,
    len: usize,
) -> Result<Vec<u8>, Error> {
    let message_key = Zeroizing::new(key(keys, chosen, count)?);
    check_len(ciphertexts, count.saturating_mul(len))?;
    if len == 0 {
        return Ok(Vec::new());
    }
    let mut message = vec![0; len];
    for (i, ciphertext) in ciphertexts.chunks_exact(len).enumerate() {
        let mask = i.ct_eq(&chosen).unwrap_u8().wrapping_neg();
        message.iter_mut().zip(ciphertext).for_each(|(byte, sent)| *byte |= sent & mask);
    }
    add_pad(*message_key, &mut message);
    Ok(message)
}

fn check_choice(chosen: usize, count: usize) -> Result<(), Error> {
    if chosen < count { Ok(()) } else { Err(Error::Choice { chosen, count }) }
}
