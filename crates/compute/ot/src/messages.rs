//! Transfers of messages of any length, by random transfers: the sender encrypts both messages of a
//! transfer with its two keys, and the receiver decrypts the one that it chose.
//!
//! The keys come from [`crate::base`], [`crate::extension::OtExtensionSender::random`] and
//! [`crate::extension::OtExtensionReceiver::random`], and must be used for nothing else. All
//! messages of a call have the same length. Their content is not authenticated: an attacker who can
//! change ciphertexts can change messages.

use blocks::Block;
use blocks::prg::Prg;
use subtle::ConditionallySelectable as _;
use zeroize::Zeroize as _;

use crate::Error;
use crate::bits::{bit, bytes_of};
use crate::error::{check_argument, check_len};

/// Encrypts the messages of all transfers, of `len` bytes each. A ciphertext is as long as its
/// message. `messages` has the two messages of the first transfer, then those of the second, and so
/// on.
///
/// # Errors
/// If there are not two messages for each pair of keys.
pub fn encrypt(keys: &[[Block; 2]], messages: &[u8], len: usize) -> Result<Vec<u8>, Error> {
    check_argument("bytes of messages", messages.len(), pairs_len(keys.len(), len))?;
    let mut ciphertexts = messages.to_vec();
    if len > 0 {
        let of_keys = keys.as_flattened().iter().zip(ciphertexts.chunks_exact_mut(len));
        of_keys.for_each(|(key, message)| add_pad(*key, message));
    }
    Ok(ciphertexts)
}

/// The chosen messages, of `len` bytes each, from the chosen keys, the packed choices, and the
/// sender's ciphertexts.
///
/// # Errors
/// If there is not one choice (in whole bytes) and two ciphertexts for each key.
pub fn decrypt(
    keys: &[Block],
    choices: &[u8],
    ciphertexts: &[u8],
    len: usize,
) -> Result<Vec<u8>, Error> {
    check_argument("bytes of choices", choices.len(), bytes_of(keys.len()))?;
    check_len(ciphertexts, pairs_len(keys.len(), len))?;
    let mut messages = vec![0; ciphertexts.len() / 2];
    if !messages.is_empty() {
        let pairs = ciphertexts.chunks_exact(2 * len).zip(messages.chunks_exact_mut(len));
        for (i, (key, (pair, message))) in keys.iter().zip(pairs).enumerate() {
            let choice = bit(choices, i);
            let (zero, one) = pair.split_at(len);
            for (byte, (zero, one)) in message.iter_mut().zip(zero.iter().zip(one)) {
                *byte = u8::conditional_select(zero, one, choice);
            }
            add_pad(*key, message);
        }
    }
    Ok(messages)
}

/// The length of two messages for each key.
fn pairs_len(keys: usize, len: usize) -> usize {
    keys.saturating_mul(2).saturating_mul(len)
}

/// Encrypts or decrypts a message by a key that is used once. A message of at most the key's length
/// is masked with the key itself.
pub fn add_pad(key: Block, message: &mut [u8]) {
    let mut pad = [Block::ZERO; 64];
    let mut prg = (message.len() > 16).then(|| Prg::new(key));
    for piece in message.chunks_mut(16 * pad.len()) {
        let pad = &mut pad[..piece.len().div_ceil(16)];
        match &mut prg {
            Some(prg) => prg.fill(pad),
            None => pad[0] = key,
        }
        piece.iter_mut().zip(Block::bytes_of(pad)).for_each(|(byte, pad)| *byte ^= pad);
    }
    pad.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pad_is_the_key_or_its_stream() {
        let key = Block::from(7);
        let mut short = [0; 16];
        add_pad(key, &mut short);
        assert_eq!(short, key.to_bytes());
        for len in [17, 1024, 1025, 5000] {
            let (mut long, mut expected) = (vec![0; len], vec![0; len]);
            add_pad(key, &mut long);
            Prg::new(key).fill_bytes(&mut expected);
            assert_eq!(long, expected);
        }
        add_pad(key, &mut []);
    }
}
