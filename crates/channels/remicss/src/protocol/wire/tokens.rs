//! Tokens: they show that the peer sent a datagram with this header on this channel.
//!
//! Without the key, a token cannot be distinguished from random bytes, whatever other tokens are
//! known: of other channels, of earlier datagrams, of the same number with another first byte.
//! Availability and addresses rest on tokens; secrecy and integrity of packets do not.

use std::fmt;
use std::sync::Arc;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The length of a token, in bytes.
pub const TOKEN_LEN: usize = 8;

/// The length of a token key, in bytes.
pub const TOKEN_KEY_LEN: usize = 16;

/// The number of consecutive symbol numbers for which a channel's tokens are prepared at once:
/// several blocks take hardly longer than one.
const RUN: usize = 8;

/// The first byte of a block for shares. The share's own first byte is used afterwards.
const SHARE: u8 = 0;

/// The first byte of a block from which other values are derived; no datagram has it.
const NO_DATAGRAM: u8 = 0xff;

/// The token of one datagram.
#[derive(Clone, Copy, Default)]
pub struct DatagramToken([u8; TOKEN_LEN]);

/// The fields that the token of a path datagram covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathTokenInput {
    /// The first byte of the datagram.
    pub first: u8,
    /// The channel's index.
    pub channel: usize,
    /// Its length field.
    pub length: u16,
    /// Its identifier.
    pub id: u64,
}

/// The AES-128 key of the tokens of one direction of an association. Secret: it is shared over all
/// channels like the points, so an attacker on fewer channels does not have it.
#[derive(Clone)]
pub struct TokenKey {
    /// One copy for all clones, wiped when the last one is dropped.
    cipher: Arc<Aes128>,
    id: TokenKeyId,
}

/// Identifies a token key without revealing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenKeyId([u8; TOKEN_LEN]);

/// Computes the tokens of shares, eight numbers of a channel at a time.
pub struct ShareTokens {
    key: TokenKey,
    runs: Vec<TokenRun>,
}

/// Prepared values for consecutive numbers.
struct TokenRun {
    /// The first of the numbers, a multiple of [`RUN`]; `u64::MAX` if nothing is prepared.
    start: u64,
    /// The two halves of each number's encrypted block.
    halves: Zeroizing<[[u64; 2]; RUN]>,
}

impl DatagramToken {
    /// A token with these bytes.
    pub fn new(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; TOKEN_LEN] {
        self.0
    }
}

impl PartialEq for DatagramToken {
    fn eq(&self, other: &Self) -> bool {
        u64::from_ne_bytes(self.0).ct_eq(&u64::from_ne_bytes(other.0)).into()
    }
}

impl Eq for DatagramToken {}

impl fmt::Debug for DatagramToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatagramToken(..)")
    }
}

impl TokenKey {
    /// A key of random bytes.
    pub fn new(random: &[u8; TOKEN_KEY_LEN]) -> Self {
        let cipher = Arc::new(Aes128::new(random.into()));
        let mut key = Self { cipher, id: TokenKeyId([0; TOKEN_LEN]) };
        key.id = TokenKeyId(key.derived(0));
        key
    }

    /// The token of a path datagram.
    ///
    /// # Panics
    /// If the channel is above 255.
    pub fn token(&self, stamp: PathTokenInput) -> DatagramToken {
        let PathTokenInput { first, channel, length, id } = stamp;
        DatagramToken(self.encrypted(block(first, channel, length, id)))
    }

    /// The key's identifier.
    pub fn id(&self) -> TokenKeyId {
        self.id
    }

    /// A pseudorandom number derived from the key.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_be_bytes(self.derived(1))
    }

    fn derived(&self, number: u64) -> [u8; TOKEN_LEN] {
        self.encrypted(block(NO_DATAGRAM, 0, 0, number))
    }

    /// The first bytes of the encrypted block.
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
    /// Tokens for shares on the given number of channels.
    pub fn new(key: &TokenKey, channels: usize) -> Self {
        let run = || TokenRun { start: u64::MAX, halves: Zeroizing::default() };
        Self { key: key.clone(), runs: (0..channels).map(|_| run()).collect() }
    }

    /// The token of the share of a symbol with this number on a channel. Fast for ascending
    /// numbers.
    ///
    /// A number has one share on a channel, with one first byte f. The token is a + f·b modulo
    /// 2^64, with a and b the halves of its encrypted block. So this token does not reveal the
    /// token of another first byte.
    ///
    /// # Panics
    /// If there is no such channel.
    #[inline]
    pub fn token(&mut self, channel: usize, first: u8, number: u64) -> DatagramToken {
        let run = &mut self.runs[channel];
        let place = number % RUN as u64;
        let start = number - place;
        if run.start != start {
            run.prepare(&self.key, channel, start);
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is below the length of a run")]
        let [a, b] = run.halves[place as usize];
        DatagramToken(a.wrapping_add(b.wrapping_mul(first.into())).to_be_bytes())
    }

    /// The identifier of the key.
    pub fn id(&self) -> TokenKeyId {
        self.key.id
    }
}

impl fmt::Debug for ShareTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareTokens(..)")
    }
}

impl TokenRun {
    // Called once in eight numbers. Inlined, it would slow the other seven down.
    #[inline(never)]
    fn prepare(&mut self, key: &TokenKey, channel: usize, start: u64) {
        let mut blocks = [block(SHARE, channel, 0, start); RUN];
        for (i, block) in blocks.iter_mut().enumerate() {
            block[8..].copy_from_slice(&(start + i as u64).to_be_bytes());
        }
        key.cipher.encrypt_blocks(&mut blocks);
        for (halves, block) in self.halves.iter_mut().zip(&blocks) {
            let (block, _) = block.as_chunks();
            *halves = [u64::from_be_bytes(block[0]), u64::from_be_bytes(block[1])];
        }
        self.start = start;
    }
}

/// The block that is encrypted for a token.
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

    const STAMP: PathTokenInput =
        PathTokenInput { first: 0x31, channel: 2, length: 0x0A0B, id: 0x0102_0304_0506_0708 };

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
        let PathTokenInput { first, channel, length, id } = STAMP;
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
            PathTokenInput { first: 0x32, ..STAMP },
            PathTokenInput { channel: 1, ..STAMP },
            PathTokenInput { length: 1, ..STAMP },
            PathTokenInput { id: STAMP.id + 1, ..STAMP },
        ] {
            assert_ne!(key.token(other), token);
        }
    }

    #[test]
    fn each_share_has_its_own_token() {
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
