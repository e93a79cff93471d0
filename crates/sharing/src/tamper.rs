//! The tamper code: detects any change to a shared message, without a key.
//!
//! A hash inside a linear sharing protects nothing: whoever knows the message and holds one share
//! can add a difference to that share, which adds the same difference to the joined message, and
//! choose it so that the hash fits. This is an *algebraic manipulation detection* code instead
//! (Cramer, Dodis, Fehr, Padró, Wichs: EUROCRYPT 2008, section 4). The message `s` of `d` blocks is
//! shared together with a random block `x` and the tag
//!
//! ```text
//! f(x, s) = x^(d+2) + s_1 x^1 + ... + s_d x^d        over GF(2^128), d odd.
//! ```
//!
//! **Theorem.** Whatever `s` is, and whatever differences an attacker adds to `s`, `x` and the tag,
//! knowing `s` but not `x`: if the message changes, the tag fits with probability at most
//! `(d + 1) / 2^128` over the choice of `x`. Here is why. The check of the changed message is a
//! polynomial in `x` which must be zero. The `x^(d+2)` cancel, and the coefficient of `x^(d+1)` is
//! `(d + 2) e`, where `e` is the difference added to `x`. For odd `d` that is not zero unless `e`
//! is, and if `e` is zero, the changed blocks remain as coefficients. So the polynomial is not zero,
//! and has at most `d + 1` roots. Should the change also alter the number of blocks, the leading
//! terms do not cancel, and it has at most `max(d, d') + 2`.
//!
//! **Assumptions.** `x` is uniform, used for one message, and independent of what the attacker
//! sees. The attacker's influence is the addition of differences that do not depend on `x`. Both
//! hold for whoever holds fewer than `k` shares of a linear sharing, may replace them at will, and
//! cannot change the coordinates under which shares are joined. No bound on computing is assumed.
//!
//! The blocks are the message, zeros to fill the last block, a block of zeros if that is needed to
//! make `d` odd, and a block with the message's length. So the padding and the length are under
//! the tag. The field is POLYVAL's (RFC 8452) with its product `a * b * x^-128`, which is
//! isomorphic to the usual one.

use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use subtle::ConstantTimeEq;

use crate::{Generator, RandomError};

/// How many bytes the code adds to a message: the random point and the tag.
pub const OVERHEAD: usize = 2 * BLOCK;

/// The length of the random point and of the tag, in bytes.
pub const BLOCK: usize = 16;

/// The one of POLYVAL's product: the coefficient of `x^(d+2)`.
const ONE: [u8; BLOCK] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xC2];

/// A message, or its point or tag, was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tag does not fit: the data was changed")]
pub struct Tampered;

/// Returns a fresh random point and the tag of the message that `parts` make up together: the
/// [`OVERHEAD`] bytes to be shared with it.
///
/// # Errors
/// When there are no random bytes.
pub fn protect(parts: &[&[u8]], generator: &mut Generator) -> Result<[u8; OVERHEAD], RandomError> {
    let point: [u8; BLOCK] = generator.array()?;
    let mut code = [0; OVERHEAD];
    code[..BLOCK].copy_from_slice(&point);
    code[BLOCK..].copy_from_slice(&tag(&point, parts));
    Ok(code)
}

/// Checks the code of a message that `parts` make up together.
///
/// # Errors
/// When the message or its code were changed.
pub fn verify(code: &[u8; OVERHEAD], parts: &[&[u8]]) -> Result<(), Tampered> {
    let (&point, expected) = code.split_first_chunk().unwrap_or((&[0; BLOCK], &[]));
    let found = tag(&point, parts);
    if bool::from(found.ct_eq(expected)) { Ok(()) } else { Err(Tampered) }
}

/// Computes `f(point, parts)`.
fn tag(point: &[u8; BLOCK], parts: &[&[u8]]) -> [u8; BLOCK] {
    // The highest power comes first, and the coefficient of x^(d+1) is zero.
    let mut hash = Polyval::new(point.into());
    hash.update(&[ONE.into(), [0; BLOCK].into()]);

    // Whole blocks go straight from the parts; a block across two parts is put together here.
    let mut block = [0; BLOCK];
    let mut filled = 0;
    let mut blocks: u64 = 0;
    let mut len: u64 = 0;
    for &part in parts {
        len += part.len() as u64;
        let mut rest = part;
        if filled > 0 {
            let head = rest.split_off(..rest.len().min(BLOCK - filled)).expect("within the part");
            block[filled..filled + head.len()].copy_from_slice(head);
            filled += head.len();
        }
        if filled == BLOCK {
            hash.update(&[block.into()]);
            blocks += 1;
            filled = 0;
        }
        if filled == 0 {
            let tail = rest.len() % BLOCK;
            let (whole, tail) = rest.split_at(rest.len() - tail);
            hash.update_padded(whole);
            blocks += (whole.len() / BLOCK) as u64;
            block[..tail.len()].copy_from_slice(tail);
            filled = tail.len();
        }
    }
    if filled > 0 {
        block[filled..].fill(0);
        hash.update(&[block.into()]);
        blocks += 1;
    }
    if blocks % 2 == 1 {
        // With the length's block, d would be even.
        hash.update(&[[0; BLOCK].into()]);
    }
    let mut length = [0; BLOCK];
    length[..8].copy_from_slice(&len.to_le_bytes());
    hash.update(&[length.into()]);
    hash.finalize().into()
}
