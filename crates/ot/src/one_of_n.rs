//! One of N messages, by random transfers: one for each bit of the choice (Naor, Pinkas 1999).
//!
//! Message i is encrypted with a key that is the sum of block i of the streams of those keys of the
//! transfers that the bits of i select. Who has one key of each transfer can compute one of the N.
//! As in [`crate::messages`], the keys are used once, and nothing of the content is checked.

use blocks::Block;
use blocks::prg::Prg;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::Error;
use crate::error::{check_argument, check_len};
use crate::messages::add_pad;

/// How many transfers a choice among `count` messages takes: the bits of the largest number.
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

/// The ciphertexts of messages of `len` bytes each, of which the receiver gets one, by the keys of
/// [`transfers`]. They are as long as the messages.
///
/// # Errors
/// If the messages are not `count`, or the keys not those of as many transfers as they take.
pub fn encrypt(
    keys: &[[Block; 2]],
    messages: &[u8],
    count: usize,
    len: usize,
) -> Result<Vec<u8>, Error> {
    check_argument("keys", keys.len(), transfers(count))?;
    check_argument("bytes of messages", messages.len(), count.saturating_mul(len))?;
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    let mut message_keys = Zeroizing::new(vec![Block::ZERO; count]);
    let mut stream = Zeroizing::new(vec![Block::ZERO; count]);
    for (bit, pair) in keys.iter().enumerate() {
        for (value, key) in pair.iter().enumerate() {
            Prg::new(*key).fill(&mut stream);
            let with_value = message_keys.iter_mut().zip(stream.iter()).enumerate();
            for (_, (key, block)) in with_value.filter(|(i, _)| i >> bit & 1 == value) {
                *key ^= *block;
            }
        }
    }
    let mut ciphertexts = messages.to_vec();
    let of_keys = message_keys.iter().zip(ciphertexts.chunks_exact_mut(len));
    of_keys.for_each(|(key, message)| add_pad(*key, message));
    Ok(ciphertexts)
}

/// The chosen message, from the chosen keys and the sender's ciphertexts. The choice is hidden from
/// who measures the time: all ciphertexts are read.
///
/// # Errors
/// If the choice is not below `count`, the keys are not those of as many transfers as it takes, or
/// the ciphertexts not `count`.
pub fn decrypt(
    keys: &[Block],
    chosen: usize,
    ciphertexts: &[u8],
    count: usize,
    len: usize,
) -> Result<Vec<u8>, Error> {
    check_choice(chosen, count)?;
    check_argument("keys", keys.len(), transfers(count))?;
    check_len(ciphertexts, count.saturating_mul(len))?;
    if len == 0 {
        return Ok(Vec::new());
    }
    let mut message_key = Zeroizing::new(Block::ZERO);
    let mut stream = Zeroizing::new(vec![Block::ZERO; count]);
    for key in keys {
        Prg::new(*key).fill(&mut stream);
        for (i, block) in stream.iter().enumerate() {
            *message_key ^= *block & Block::mask(i.ct_eq(&chosen).into());
        }
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
