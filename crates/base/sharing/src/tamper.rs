//! The tamper code: detects any change to a shared message, without a key.
//!
//! A hash inside a linear sharing protects nothing: an attacker who knows the message and holds one
//! share can add a difference to that share, which adds the same difference to the joined message,
//! and choose it so that the hash fits. This is an *algebraic manipulation detection* code instead
//! (Cramer, Dodis, Fehr, Padró, Wichs: EUROCRYPT 2008, section 4). The message `s` of `d` blocks is
//! shared together with a random block `x` and the tag
//!
//! ```text
//! f(x, s) = x^(d+2) + s_1 x^1 + ... + s_d x^d        over GF(2^128), d odd.
//! ```
//!
//! **Theorem.** Whatever `s` is, and whatever differences an attacker adds to `s`, `x` and the tag,
//! knowing `s` but not `x`: unless all are zero, the tag fits with probability at most
//! `(d + 1) / 2^128` over the choice of `x`. Here is why. Say that `e` is added to `x`, the blocks
//! become `s'`, and `t` is added to the tag. It fits if `x` is a root of
//! `f(x + e, s') + f(x, s) + t`. The `x^(d+2)` cancel, and the coefficient of `x^(d+1)` is
//! `(d + 2) e`, which for odd `d` is `e` itself. If `e` is zero, the coefficients of `x^1 .. x^d`
//! are the differences of the blocks; if those are zero too, `t` is left. So the polynomial is not
//! zero, and has at most `d + 1` roots. Should the change also alter the number of blocks, to `d'`,
//! which is odd too, the leading terms do not cancel, and there are at most `max(d, d') + 2`.
//!
//! **Assumptions.** `x` is uniform, used for one message, and independent of what the attacker
//! sees. The attacker's influence is the addition of differences that do not depend on `x`. Both
//! hold for an attacker who reads and replaces fewer than `k` shares of a linear sharing, all told,
//! and cannot change the coordinates under which shares are joined. No bound on computing is
//! assumed.
//!
//! The blocks are the message, zeros to fill the last block, a block of zeros if that is needed to
//! make `d` odd, and a block with the message's length. So the padding and the length are under
//! the tag. `s_d` is the first block, `s_1` the length. The field is POLYVAL's (RFC 8452) with its
//! product `a * b * x^-128`, which is isomorphic to the usual one.

mod hash;
#[cfg(target_arch = "x86_64")]
mod wide;

use polyval::Polyval;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use hash::BlockHash;
use random::{RandomError, RandomGenerator};

pub use hash::BLOCK;

/// The number of bytes that the code adds to a message: the random point and the tag.
pub const OVERHEAD: usize = 2 * BLOCK;

/// The one of POLYVAL's product, which is the coefficient of `x^(d+2)`.
const ONE: [u8; BLOCK] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xC2];

/// The length in bytes from which a message is worth the powers of the point that [`wide`] needs.
#[cfg(target_arch = "x86_64")]
const MIN_WIDE_LEN: usize = 512;

/// A message, or its point or tag, was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tag does not fit: the data was changed")]
pub struct TamperedMessage;

/// Draws a random point and writes it to `code`, with the tag of the message that consists of
/// `parts`. `code` is to be shared together with the message. How the message is divided into parts
/// makes no difference.
///
/// # Errors
/// If there are no random bytes; the content of `code` is then useless.
pub fn protect_into(
    code: &mut [u8; OVERHEAD],
    parts: &[&[u8]],
    generator: &mut RandomGenerator,
) -> Result<(), RandomError> {
    let (point, tag) = code.split_at_mut(BLOCK);
    generator.fill(point)?;
    let mut copy = Zeroizing::new([0; BLOCK]);
    copy.copy_from_slice(point);
    tag.copy_from_slice(&*Zeroizing::new(self::tag(&copy, parts)));
    Ok(())
}

/// Like [`protect_into`], but returns the code. It is as secret as the message, and the caller must
/// wipe it.
///
/// # Errors
/// If there are no random bytes.
pub fn protect(
    parts: &[&[u8]],
    generator: &mut RandomGenerator,
) -> Result<[u8; OVERHEAD], RandomError> {
    let mut code = [0; OVERHEAD];
    protect_into(&mut code, parts, generator)?;
    Ok(code)
}

/// Verifies the code of the message that consists of `parts`.
///
/// # Errors
/// If the message or its code was changed.
pub fn verify(code: &[u8; OVERHEAD], parts: &[&[u8]]) -> Result<(), TamperedMessage> {
    let ([point, expected], []) = code.as_chunks::<BLOCK>() else { return Err(TamperedMessage) };
    if bool::from(tag(point, parts).ct_eq(expected)) { Ok(()) } else { Err(TamperedMessage) }
}

/// A message with its code in front of it, in one buffer, which is to be shared. [`open`] verifies
/// it.
///
/// # Errors
/// If there are no random bytes.
pub fn seal(
    message: &[u8],
    generator: &mut RandomGenerator,
) -> Result<Zeroizing<Vec<u8>>, RandomError> {
    let mut code = Zeroizing::new([0; OVERHEAD]);
    protect_into(&mut code, &[message], generator)?;
    Ok(Zeroizing::new([&code[..], message].concat()))
}

/// The message in a buffer that [`seal`] made, if neither the message nor its code was changed.
///
/// # Errors
/// If something was changed, or the buffer is too short for a code.
pub fn open(sealed: &[u8]) -> Result<&[u8], TamperedMessage> {
    let (code, message) = sealed.split_first_chunk().ok_or(TamperedMessage)?;
    verify(code, &[message])?;
    Ok(message)
}

/// Computes `f(point, parts)`.
fn tag(point: &[u8; BLOCK], parts: &[&[u8]]) -> [u8; BLOCK] {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    #[cfg(target_arch = "x86_64")]
    if len >= MIN_WIDE_LEN
        && let Some(hash) = wide::WideBlockHash::new(point)
    {
        return tag_by(hash, parts, len);
    }
    tag_by(Polyval::new(point.into()), parts, len)
}

/// Computes the tag of `len` bytes with the hash at a given point.
fn tag_by(mut hash: impl BlockHash, parts: &[&[u8]], len: usize) -> [u8; BLOCK] {
    // The highest power comes first, and the coefficient of x^(d+1) is zero.
    hash.update(&[ONE, [0; BLOCK]]);
    let mut blocks = BlockBuffer { hash, block: Zeroizing::new([0; BLOCK]), filled: 0 };
    for part in parts {
        blocks.add(part);
    }
    blocks.fill_up();
    let ending = [[0; BLOCK], (len as u128).to_le_bytes()];
    // If the number of blocks is odd without the length's block, a block of zeros makes `d` odd.
    let needed = if len.div_ceil(BLOCK) % 2 == 1 { &ending[..] } else { &ending[1..] };
    blocks.hash.update(needed);
    blocks.hash.finish()
}

/// A hash whose input consists of pieces of any length.
struct BlockBuffer<H> {
    hash: H,
    /// The block that is being assembled from pieces, and the number of its bytes.
    block: Zeroizing<[u8; BLOCK]>,
    filled: usize,
}

impl<H: BlockHash> BlockBuffer<H> {
    /// Whole blocks of a piece are hashed without a copy.
    fn add(&mut self, piece: &[u8]) {
        let missing = (BLOCK - self.filled) % BLOCK;
        let (head, rest) = piece.split_at(missing.min(piece.len()));
        self.keep(head);
        let (whole, tail) = rest.as_chunks::<BLOCK>();
        self.hash.update(whole);
        self.keep(tail);
    }

    /// Copies at most as many bytes as the block needs, and hashes the block when it is complete.
    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.block[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        if self.filled == BLOCK {
            self.hash.update(&[*self.block]);
            self.filled = 0;
        }
    }

    /// Pads the block with zeros, if it has any bytes.
    fn fill_up(&mut self) {
        self.keep(&[0; BLOCK][..(BLOCK - self.filled) % BLOCK]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic bytes.
    pub(super) fn bytes(len: usize) -> Vec<u8> {
        (0u32..).map(|i| (i.wrapping_mul(2_654_435_761) >> 11).to_le_bytes()[0]).take(len).collect()
    }

    /// The blocks of `f(x, s)` exactly as documented.
    fn documented_blocks(message: &[u8]) -> Vec<[u8; BLOCK]> {
        let mut blocks: Vec<[u8; BLOCK]> = message
            .chunks(BLOCK)
            .map(|chunk| std::array::from_fn(|i| chunk.get(i).copied().unwrap_or(0)))
            .collect();
        if blocks.len() % 2 == 1 {
            blocks.push([0; BLOCK]);
        }
        blocks.push((message.len() as u128).to_le_bytes());
        blocks
    }

    fn polyval(point: &[u8; BLOCK], blocks: &[[u8; BLOCK]]) -> [u8; BLOCK] {
        let mut hash = Polyval::new(point.into());
        BlockHash::update(&mut hash, blocks);
        hash.finish()
    }

    #[test]
    fn the_number_of_blocks_is_odd_and_the_tag_as_documented() {
        let point = *b"any random point";
        for len in (0..=200).chain([1408, 4096, 4097, 70_000]) {
            let message = bytes(len);
            let blocks = documented_blocks(&message);
            assert_eq!(blocks.len() % 2, 1, "d is odd for {len} bytes");
            let expected = polyval(&point, &[&[ONE, [0; BLOCK]], &blocks[..]].concat());
            assert_eq!(tag(&point, &[&message]), expected, "{len} bytes");
        }
    }

    #[test]
    fn one_is_one() {
        let point = *b"any random point";
        assert_eq!(polyval(&point, &[ONE]), point, "1 * x = x");
        assert_eq!(polyval(&ONE, &[point]), point, "x * 1 = x");
    }

    #[test]
    fn how_a_message_is_cut_makes_no_difference() {
        let point = *b"any random point";
        for len in (0..200).chain([1500, 9000]) {
            let message = bytes(len);
            let whole = tag(&point, &[&message]);
            for cut in (0..=len).step_by(1 + len / 40) {
                let (a, b) = message.split_at(cut);
                assert_eq!(tag(&point, &[a, b]), whole, "{len} bytes, cut at {cut}");
                let (b, c) = b.split_at(b.len() / 3);
                assert_eq!(tag(&point, &[a, b, &[], c]), whole, "{len} bytes, cut at {cut} twice");
            }
            let single: Vec<&[u8]> = message.chunks(1).collect();
            assert_eq!(tag(&point, &single), whole, "{len} bytes, one by one");
        }
    }

    #[test]
    fn what_is_protected_verifies() {
        let mut generator = RandomGenerator::seeded().unwrap();
        for len in (0..100).chain([1408, 65_536]) {
            let message = bytes(len);
            let mut code = protect(&[&message], &mut generator).unwrap();
            assert_eq!(verify(&code, &[&message]), Ok(()));
            code[len % OVERHEAD] ^= 0x10;
            assert_eq!(verify(&code, &[&message]), Err(TamperedMessage));

            let mut sealed = seal(&message, &mut generator).unwrap();
            assert_eq!(open(&sealed), Ok(&message[..]));
            sealed[len / 2] ^= 1;
            assert_eq!(open(&sealed), Err(TamperedMessage));
            assert_eq!(open(&sealed[..len.min(OVERHEAD - 1)]), Err(TamperedMessage));
        }
    }
}
