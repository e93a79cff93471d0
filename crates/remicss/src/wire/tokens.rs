//! Tokens: what shows that the peer sent a datagram with this header on this channel.
//!
//! Whoever does not have the key can tell no token from random, whichever others they have seen: of other
//! channels, of earlier datagrams, of the same number under another first byte. Nothing but availability and
//! addresses rests on them: secrecy and integrity of packets do not.

use std::fmt;
use std::sync::Arc;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The length of a token, in bytes.
pub const TOKEN_LEN: usize = 8;

/// The length of the key of a direction's tokens, in bytes.
pub const TOKEN_KEY_LEN: usize = 16;

/// For how many numbers, one after the other, the tokens of a channel's shares are prepared at once: one block
/// takes as long as several side by side.
const RUN: usize = 8;

/// The first byte of a block for shares: theirs comes in afterwards.
const SHARE: u8 = 0;

/// The first byte of a block that is no datagram's: what else is made of a key.
const NO_DATAGRAM: u8 = 0xff;

/// The token of one datagram.
#[derive(Clone, Copy, Default)]
pub struct Token([u8; TOKEN_LEN]);

/// What the token of a datagram about a path is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The first byte of the datagram, which is that of no share.
    pub first: u8,
    /// The channel's index.
    pub channel: usize,
    /// The length that it names.
    pub length: u16,
    /// Its identifier.
    pub id: u64,
}

/// Makes the tokens of one direction of an association: the key of AES-128. Secret: it is shared over all
/// channels as the points are, so whoever is on fewer does not have it.
#[derive(Clone)]
pub struct TokenKey {
    /// In one place, however often this is cloned. Wiped in the end.
    cipher: Arc<Aes128>,
    id: KeyId,
}

/// Tells token keys apart. It says nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId([u8; TOKEN_LEN]);

/// Makes the tokens of shares, in runs of 8 numbers a channel.
pub struct ShareTokens {
    key: TokenKey,
    runs: Vec<Run>,
}

/// What tokens are made of for numbers one after the other.
struct Run {
    /// The first of the numbers, a multiple of [`RUN`]; another number if there is nothing yet.
    start: u64,
    /// Of the block of each, the two halves.
    halves: Zeroizing<[[u64; 2]; RUN]>,
}

impl Token {
    /// A token that a datagram has.
    pub fn new(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; TOKEN_LEN] {
        self.0
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        u64::from_ne_bytes(self.0).ct_eq(&u64::from_ne_bytes(other.0)).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl TokenKey {
    /// A key of random bytes.
    pub fn new(random: &[u8; TOKEN_KEY_LEN]) -> Self {
        let cipher = Arc::new(Aes128::new(random.into()));
        let mut key = Self { cipher, id: KeyId([0; TOKEN_LEN]) };
        key.id = KeyId(key.derived(0));
        key
    }

    /// The token of a datagram about a path.
    ///
    /// # Panics
    /// If the channel is above 255.
    pub fn token(&self, stamp: Stamp) -> Token {
        let Stamp { first, channel, length, id } = stamp;
        Token(self.encrypted(block(first, channel, length, id)))
    }

    /// What tells this key from others.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// A number that only those know who have the key.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_be_bytes(self.derived(1))
    }

    fn derived(&self, number: u64) -> [u8; TOKEN_LEN] {
        self.encrypted(block(NO_DATAGRAM, 0, 0, number))
    }

    /// The first bytes of what a block is encrypted to.
    fn encrypted(&self, mut block: Block) -> [u8; TOKEN_LEN] {
        self.cipher.encrypt_block(&mut block);
        *block.first_chunk().expect("a block is longer than a token")
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl ShareTokens {
    /// The tokens of shares on so many channels.
    pub fn new(key: &TokenKey, channels: usize) -> Self {
        let run = || Run { start: u64::MAX, halves: Zeroizing::default() };
        Self { key: key.clone(), runs: (0..channels).map(|_| run()).collect() }
    }

    /// The token of the share of a symbol with this number on a channel. Fast where numbers rise.
    ///
    /// A number has one share on a channel, with one first byte f. Of its block's halves a and b, the token is
    /// a + f·b modulo 2^64, so that the token of any other first byte is unknown to whoever has this one.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn token(&mut self, channel: usize, first: u8, number: u64) -> Token {
        let run = &mut self.runs[channel];
        let start = number - number % RUN as u64;
        if run.start != start {
            run.prepare(&self.key, channel, start);
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is below the length of a run")]
        let [a, b] = run.halves[(number - start) as usize];
        Token(a.wrapping_add(b.wrapping_mul(first.into())).to_be_bytes())
    }

    /// Which key they are made with.
    pub fn id(&self) -> KeyId {
        self.key.id
    }
}

impl fmt::Debug for ShareTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareTokens(..)")
    }
}

impl Run {
    fn prepare(&mut self, key: &TokenKey, channel: usize, start: u64) {
        let mut blocks: [Block; RUN] =
            std::array::from_fn(|i| block(SHARE, channel, 0, start + i as u64));
        key.cipher.encrypt_blocks(&mut blocks);
        for (halves, block) in self.halves.iter_mut().zip(&blocks) {
            let (block, _) = block.as_chunks();
            *halves = [u64::from_be_bytes(block[0]), u64::from_be_bytes(block[1])];
        }
        self.start = start;
    }
}

/// What is encrypted.
fn block(first: u8, channel: usize, length: u16, number: u64) -> Block {
    let mut bytes = [0; 16];
    bytes[0] = first;
    bytes[1] = u8::try_from(channel).expect("channels are 16 at most");
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    bytes.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAMP: Stamp =
        Stamp { first: 0x31, channel: 2, length: 0x0A0B, id: 0x0102_0304_0506_0708 };

    fn byte(number: usize) -> u8 {
        u8::try_from(number).unwrap()
    }

    /// FIPS 197, appendix C.1.
    #[test]
    fn the_cipher_is_the_published_one() {
        let key = TokenKey::new(&std::array::from_fn(byte));
        let plain: [u8; 16] = std::array::from_fn(|i| 0x11 * byte(i));
        assert_eq!(key.encrypted(plain.into()), [0x69, 0xC4, 0xE0, 0xD8, 0x6A, 0x7B, 0x04, 0x30]);
    }

    #[test]
    fn blocks_are_as_specified() {
        let Stamp { first, channel, length, id } = STAMP;
        let bytes: [u8; 16] = block(first, channel, length, id).into();
        assert_eq!(bytes, [0x31, 2, 0x0A, 0x0B, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_token_is_for_one_datagram_and_key() {
        let key = TokenKey::new(&[7; 16]);
        let token = key.token(STAMP);
        assert_eq!(key.token(STAMP), token);
        assert_ne!(TokenKey::new(&[8; 16]).token(STAMP), token);
        for other in [
            Stamp { first: 0x32, ..STAMP },
            Stamp { channel: 1, ..STAMP },
            Stamp { length: 1, ..STAMP },
            Stamp { id: STAMP.id + 1, ..STAMP },
        ] {
            assert_ne!(key.token(other), token);
        }
    }

    #[test]
    fn a_share_has_a_token_of_its_own() {
        let key = TokenKey::new(&[7; 16]);
        let mut tokens = ShareTokens::new(&key, 3);
        let number = STAMP.id;
        let token = tokens.token(2, 0x21, number);
        assert_ne!(tokens.token(2, 0x20, number), token, "the first byte");
        assert_ne!(tokens.token(1, 0x21, number), token, "the channel");
        assert_ne!(tokens.token(2, 0x21, number + 1), token, "the number");
        // The same low 24 bits, which are all that is sent.
        assert_ne!(tokens.token(2, 0x21, number + (1 << 24)), token);
        assert_ne!(ShareTokens::new(&TokenKey::new(&[8; 16]), 3).token(2, 0x21, number), token);
    }

    proptest! {
        /// In runs or one by one.
        #[test]
        fn tokens_of_shares_are_as_specified(
            numbers in prop::collection::vec((0_u64..40, any::<bool>(), 0_u8..0x30, 0_usize..3), 1..60),
        ) {
            let key = TokenKey::new(&[9; 16]);
            let mut tokens = ShareTokens::new(&key, 3);
            for (number, is_high, first, channel) in numbers {
                let number = if is_high { u64::MAX - number } else { number };
                let mut bytes = block(0, channel, 0, number);
                key.cipher.encrypt_block(&mut bytes);
                let half = |place: usize| u64::from_be_bytes(bytes[place..place + 8].try_into().unwrap());
                let expected = u128::from(half(0)) + u128::from(first) * u128::from(half(8));
                let token = tokens.token(channel, first, number).bytes();
                prop_assert_eq!(&token, &expected.to_be_bytes()[8..]);
            }
        }
    }
}
