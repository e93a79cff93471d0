//! Which shares are wrong, when there are more than are needed.
//!
//! The shares of one byte are the values of a polynomial of degree below `k`: a word of a
//! Reed-Solomon code (`McEliece` and Sarwate, 1981). Of `s` shares, two such polynomials have at
//! most `k - 1` in common, so if at most `e = floor((s - k) / 2)` are wrong, only one polynomial is
//! within `e` of them, and it is the right one.
//!
//! - [`correct`] needs nothing else. It is right where at most `e` shares are wrong at every byte;
//!   they need not be the same ones at every byte. With more, it may report that, or it may find
//!   another polynomial: it cannot know.
//! - [`correct_with`] has a judge besides, the [`tamper`](crate::tamper) code. Up to `s - k` shares
//!   may be wrong, and the answer is right whenever the judge is.
//!
//! XOR has no redundancy: all shares are needed, so none can be found wrong.
//!
//! The work is done on *discrepancies*: the differences between shares and what the others say
//! they should be. They, and all that is computed from them, depend on the errors only and not on
//! the secret (the code is linear, and right shares have no discrepancy). So it reveals nothing of
//! the secret that the branches here depend on them. Unlike the rest of the crate, these functions
//! allocate: bounded working space, which does not grow with the length of the shares.

mod decoder;

use zeroize::Zeroizing;

use crate::field::{lagrange_weights, multiply};
use crate::kernels::Weights;
use crate::split::{check_coordinates, secret_weights};
use crate::{JoinError, Joiner, Sharing};

/// How many subsets of shares [`correct_with`] tries at most. Where there are fewer, which is so for
/// `s <= 14` whatever `k` is, it tries them all.
pub const MAX_TRIALS: usize = 4096;

/// How many bytes of each share are looked at in one go.
const CHUNK: usize = 4096;

/// Why no secret was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// Fewer shares than are needed for any secret.
    #[error("{found} shares, where at least {needed} are needed")]
    TooFew {
        /// The threshold.
        needed: usize,
        /// How many shares there were.
        found: usize,
    },
    /// Not one coordinate for each share.
    #[error("{coordinates} coordinates for {shares} shares")]
    WrongCount {
        /// How many shares there were.
        shares: usize,
        /// How many coordinates.
        coordinates: usize,
    },
    /// A coordinate that is out of range or came twice, or different lengths.
    #[error(transparent)]
    Shares(#[from] JoinError),
    /// More shares are wrong than the others can outvote.
    #[error("too many wrong shares: the others cannot outvote them")]
    TooManyWrong,
    /// No secret that was tried fits its tag.
    #[error("too many wrong shares: no choice of them gives a secret that fits its tag")]
    NoneAccepted,
}

/// Joins `k` or more shares into `secret` although up to `floor((s - k) / 2)` of the `s` are wrong
/// at each byte, and returns the coordinates of all that are wrong anywhere, in the order given.
///
/// # Errors
/// When the arguments do not fit together or too many shares are wrong; `secret` is then zeros or
/// untouched.
pub fn correct(
    sharing: Sharing,
    coordinates: &[u8],
    shares: &[&[u8]],
    secret: &mut [u8],
) -> Result<Vec<u8>, LocateError> {
    let mut case = Case::new(sharing, coordinates, shares, secret.len())?;
    match case.correct(secret) {
        Ok(()) => Ok(case.wrong()),
        Err(error) => {
            secret.fill(0);
            Err(error)
        }
    }
}

/// Joins `k` or more shares into a `secret` that `accept` accepts, although up to `s - k` of the `s`
/// are wrong, and returns the coordinates of those that disagree with it, in the order given.
///
/// First the answer of [`correct`] is tried, then the subsets of `k` shares, at most
/// [`MAX_TRIALS`]. Each call of `accept` gives an attacker one more chance to be accepted: with the
/// tamper code, `(d + 1) / 2^128` for each, so at most `2^13 (d + 1) / 2^128` in all.
///
/// The secret is right if `accept` is. The *names* are right too if at most `floor((s - k) / 2)`
/// shares are wrong at each byte; with more, shares that are wrong in concert can be made to
/// give the right secret along a polynomial that the right ones are not on.
///
/// # Errors
/// When the arguments do not fit together or nothing was accepted; `secret` is then zeros or
/// untouched.
pub fn correct_with(
    sharing: Sharing,
    coordinates: &[u8],
    shares: &[&[u8]],
    secret: &mut [u8],
    mut accept: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<u8>, LocateError> {
    let mut case = Case::new(sharing, coordinates, shares, secret.len())?;
    if case.correct(secret).is_ok() {
        if accept(secret) {
            return Ok(case.wrong());
        }
        if case.wrong().is_empty() {
            // All agree, so every subset gives what has just been rejected.
            secret.fill(0);
            return Err(LocateError::NoneAccepted);
        }
    }
    let mut joiner = Joiner::new(sharing);
    for members in subsets(shares.len(), case.threshold()).take(MAX_TRIALS) {
        let chosen: Vec<u8> = members.iter().map(|&i| coordinates[i]).collect();
        let values: Vec<&[u8]> = members.iter().map(|&i| shares[i]).collect();
        joiner.join(&chosen, &values, secret)?;
        if accept(secret) {
            return Ok(case.disagreeing(members));
        }
    }
    secret.fill(0);
    Err(LocateError::NoneAccepted)
}

/// Shares to be looked into, and what has been found out about them.
struct Case<'a> {
    sharing: Sharing,
    coordinates: &'a [u8],
    shares: &'a [&'a [u8]],
    /// At how many bytes each share was found wrong.
    faults: Vec<usize>,
}

impl<'a> Case<'a> {
    fn new(
        sharing: Sharing,
        coordinates: &'a [u8],
        shares: &'a [&'a [u8]],
        len: usize,
    ) -> Result<Self, LocateError> {
        let (needed, found) = (usize::from(sharing.threshold()), shares.len());
        if found < needed {
            return Err(LocateError::TooFew { needed, found });
        }
        if coordinates.len() != found {
            let coordinates = coordinates.len();
            return Err(LocateError::WrongCount { shares: found, coordinates });
        }
        if shares.iter().any(|share| share.len() != len) {
            return Err(JoinError::WrongLength.into());
        }
        check_coordinates(sharing, coordinates)?;
        Ok(Self { sharing, coordinates, shares, faults: vec![0; found] })
    }

    fn threshold(&self) -> usize {
        usize::from(self.sharing.threshold())
    }

    /// Up to how many wrong shares at one byte there is only one right answer.
    fn bound(&self) -> usize {
        (self.shares.len() - self.threshold()) / 2
    }

    /// The coordinates of the shares found wrong so far.
    fn wrong(&self) -> Vec<u8> {
        let faulty = self.coordinates.iter().zip(&self.faults).filter(|&(_, &faults)| faults > 0);
        faulty.map(|(&x, _)| x).collect()
    }

    /// The `k` shares that were found wrong least often: a wholly wrong share is decoded away
    /// once, and from then on is one that is compared, not one that is believed.
    fn most_trusted(&self) -> Vec<usize> {
        let mut members: Vec<usize> = (0..self.shares.len()).collect();
        members.sort_by_key(|&i| self.faults[i]);
        members.truncate(self.threshold());
        members
    }

    fn correct(&mut self, secret: &mut [u8]) -> Result<(), LocateError> {
        let mut basis = Basis::new(self, self.most_trusted());
        let mut start = 0;
        while start < secret.len() {
            let trusted = self.most_trusted();
            if trusted != basis.members {
                basis = Basis::new(self, trusted);
            }
            let end = secret.len().min(start + CHUNK);
            start += self.correct_chunk(&mut basis, start, &mut secret[start..end])?;
        }
        Ok(())
    }

    /// Corrects the bytes from `start` on, up to and including the first that had to be decoded.
    /// Returns how many those are.
    fn correct_chunk(
        &mut self,
        basis: &mut Basis,
        start: usize,
        secret: &mut [u8],
    ) -> Result<usize, LocateError> {
        if basis.interpolate(self, start, secret) {
            return Ok(secret.len());
        }
        let mut discrepancies = vec![0; self.shares.len()];
        for (j, byte) in secret.iter_mut().enumerate() {
            let disagreeing = basis.column(j, &mut discrepancies);
            if disagreeing <= self.bound() {
                self.count(&discrepancies);
                continue;
            }
            let errors = decoder::decode(self.coordinates, &discrepancies, self.threshold())
                .ok_or(LocateError::TooManyWrong)?;
            for (&i, &weight) in basis.members.iter().zip(&basis.secret_weights) {
                *byte ^= multiply(weight, errors[i]);
            }
            self.count(&errors);
            return Ok(j + 1);
        }
        Ok(secret.len())
    }

    /// Counts the shares that are in error at one byte.
    fn count(&mut self, errors: &[u8]) {
        for (faults, &error) in self.faults.iter_mut().zip(errors) {
            *faults += usize::from(error != 0);
        }
    }

    /// The coordinates of the shares that are not on the polynomial through `members`.
    fn disagreeing(&mut self, members: Vec<usize>) -> Vec<u8> {
        self.faults.fill(0);
        let mut basis = Basis::new(self, members);
        let len = self.shares[0].len();
        let mut secret = Zeroizing::new([0; CHUNK]);
        for start in (0..len).step_by(CHUNK) {
            let part = len.min(start + CHUNK) - start;
            basis.interpolate(self, start, &mut secret[..part]);
            for (&i, row) in basis.others.iter().zip(basis.rows()) {
                self.faults[i] += usize::from(any(&row[..part]));
            }
        }
        self.wrong()
    }
}

/// `k` shares that are believed, for as long as the others do not contradict them.
struct Basis {
    members: Vec<usize>,
    others: Vec<usize>,
    /// What the members' bytes are multiplied by to add up to the secret's.
    secret_weights: Vec<u8>,
    /// From the members to the secret (the first row) and to the others.
    weights: Weights,
    /// By how much the others differ from what the members say: [`CHUNK`] bytes for each. While
    /// they are being computed, they hold shares.
    discrepancies: Zeroizing<Vec<u8>>,
}

impl Basis {
    fn new(case: &Case<'_>, members: Vec<usize>) -> Self {
        let others: Vec<usize> = (0..case.shares.len()).filter(|i| !members.contains(i)).collect();
        let nodes: Vec<u8> = members.iter().map(|&i| case.coordinates[i]).collect();
        let secret_weights = secret_weights(case.sharing, &nodes);
        let rows = others.iter().map(|&i| lagrange_weights(&nodes, case.coordinates[i]));
        let weights = Weights::new(nodes.len(), [secret_weights.clone()].into_iter().chain(rows));
        let discrepancies = Zeroizing::new(vec![0; others.len() * CHUNK]);
        Self { members, others, secret_weights, weights, discrepancies }
    }

    /// Computes what the members say of the secret's bytes from `start` on, and the others'
    /// discrepancies. Returns whether there are none.
    fn interpolate(&mut self, case: &Case<'_>, start: usize, secret: &mut [u8]) -> bool {
        let len = secret.len();
        let part = |&i: &usize| &case.shares[i][start..start + len];
        let inputs: Vec<&[u8]> = self.members.iter().map(part).collect();
        let rows = self.discrepancies.chunks_exact_mut(CHUNK).map(|row| &mut row[..len]);
        let mut outputs: Vec<&mut [u8]> = [secret].into_iter().chain(rows).collect();
        self.weights.apply(inputs[0], &inputs[1..], &mut outputs);

        let mut agreed = true;
        for (row, share) in outputs[1..].iter_mut().zip(self.others.iter().map(part)) {
            row.iter_mut().zip(share).for_each(|(value, &found)| *value ^= found);
            agreed &= !any(row);
        }
        agreed
    }

    /// The others' discrepancies, [`CHUNK`] bytes each.
    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.discrepancies.chunks_exact(CHUNK)
    }

    /// Puts the discrepancies at byte `j` into their shares' places, and returns how many there are.
    fn column(&self, j: usize, column: &mut [u8]) -> usize {
        column.fill(0);
        let mut disagreeing = 0;
        for (&i, row) in self.others.iter().zip(self.rows()) {
            column[i] = row[j];
            disagreeing += usize::from(row[j] != 0);
        }
        disagreeing
    }
}

/// Whether any byte is not zero.
fn any(bytes: &[u8]) -> bool {
    // Without an early end, so that it is done in vectors.
    bytes.iter().fold(0, |sum, byte| sum | byte) != 0
}

/// All ways to choose `k` of `0..s`, in lexicographic order. `1 <= k <= s`.
fn subsets(s: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
    let first: Vec<usize> = (0..k).collect();
    std::iter::successors(Some(first), move |last| {
        // The last member that can move up does, and those behind it follow closely.
        let i = (0..k).rfind(|&i| last[i] < s - k + i)?;
        let mut next = last.clone();
        for (step, member) in next[i..].iter_mut().enumerate() {
            *member = last[i] + 1 + step;
        }
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_and_once() {
        let found: Vec<Vec<usize>> = subsets(4, 2).collect();
        assert_eq!(found, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(subsets(14, 7).count(), 3432);
        assert!((1..=14).all(|k| subsets(14, k).count() <= MAX_TRIALS));
        assert_eq!(subsets(255, 255).count(), 1);
    }
}
