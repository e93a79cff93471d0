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
//! - [`correct_with`] also has a verifier, for example the [`tamper`](crate::tamper) code. Up to
//!   `s - k` shares may be wrong, and the answer is right whenever the verifier is.
//!
//! XOR has no redundancy: all shares are needed, so none can be found wrong.
//!
//! ```
//! use sunder_sharing::locate::correct_with;
//! use sunder_sharing::{RandomGenerator, SharingParameters, tamper};
//!
//! let mut generator = RandomGenerator::seeded()?;
//! let sharing = SharingParameters::shamir(2, 5)?;
//! let sealed = tamper::seal(b"the secret", &mut generator)?;
//! let shares = sharing.split(&sealed, &mut generator)?;
//!
//! // Share 5 is missing. Of the other four, two are wrong: no majority is right.
//! let coordinates: Vec<u8> = shares[..4].iter().map(|share| share.coordinate()).collect();
//! let mut bytes: Vec<Vec<u8>> = shares[..4].iter().map(|share| share.bytes().to_vec()).collect();
//! (bytes[0][7], bytes[2][9]) = (bytes[0][7] ^ 1, bytes[2][9] ^ 1);
//!
//! let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
//! let mut joined = vec![0; bytes[0].len()];
//! let is_sealed = |joined: &[u8]| tamper::open(joined).is_ok();
//! let wrong = correct_with(sharing, &coordinates, &bytes, &mut joined, is_sealed)?;
//! assert_eq!(tamper::open(&joined)?, b"the secret");
//! assert_eq!(wrong, [1, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The work is done on *discrepancies*: the differences between shares and what the others say
//! they should be. They, and all that is computed from them, depend on the errors only and not on
//! the secret (the code is linear, and right shares have no discrepancy). So it reveals nothing of
//! the secret that the branches here depend on them. Unlike the rest of the crate, these functions
//! allocate: bounded working space, which does not grow with the length of the shares.

mod basis;
mod decoder;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::field::multiply;
use crate::scheme::SharingParameters;
use crate::split::{Joiner, ShareJoinError, check_coordinates};
use basis::{CHUNK, ShareBasis};
use decoder::ReedSolomonCode;

/// How many subsets of shares [`correct_with`] tries at most. Where there are fewer, which is so
/// for `s <= 14` whatever `k` is, it tries them all.
pub const MAX_TRIALS: usize = 4096;

/// Why no secret was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareErrorLocationError {
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
    Shares(#[from] ShareJoinError),
    /// More shares are wrong than the others can outvote.
    #[error("too many wrong shares: the others cannot outvote them")]
    TooManyWrong,
    /// No secret that was tried fits its tag.
    #[error("too many wrong shares: no choice of them gives a secret that fits its tag")]
    NoneAccepted,
    /// Two secrets fit their tags: at least `k` shares were forged together.
    #[error("two different secrets fit their tags")]
    Ambiguous {
        /// The coordinates of the shares on the side of one of them.
        first: Vec<u8>,
        /// The coordinates of those on the side of the other.
        second: Vec<u8>,
    },
}

/// Joins `k` or more shares into `secret` although up to `floor((s - k) / 2)` of the `s` are wrong
/// at each byte, and returns the coordinates of all that are wrong anywhere, in the order given.
/// `shares[i]` has the coordinate `coordinates[i]`, and is as long as `secret`.
///
/// # Errors
/// When the arguments do not fit together or too many shares are wrong; `secret` is then zeros or
/// untouched.
pub fn correct(
    sharing: SharingParameters,
    coordinates: &[u8],
    shares: &[&[u8]],
    secret: &mut [u8],
) -> Result<Vec<u8>, ShareErrorLocationError> {
    let mut locator = ShareErrorLocator::new(sharing);
    locator.begin(coordinates, shares, secret.len())?;
    match locator.correct(shares, secret) {
        Ok(()) => Ok(locator.wrong()),
        Err(error) => {
            secret.fill(0);
            Err(error)
        }
    }
}

/// Joins `k` or more shares into a `secret` that `accept` accepts, although up to `s - k` of the
/// `s` are wrong, and returns the coordinates of those that disagree with it, in the order given.
/// `shares[i]` has the coordinate `coordinates[i]`, and is as long as `secret`.
///
/// First the answer of [`correct`] is tried, then the subsets of `k` shares, at most
/// [`MAX_TRIALS`]. If `k` or more shares disagree with what was accepted, the same is done with
/// those alone, and if they give another secret that is accepted, it is an error: nobody can say
/// which is right. Each call of `accept` gives an attacker one more chance to be accepted: with the
/// tamper code, `(d + 1) / 2^128` for each, and there are at most `2 (MAX_TRIALS + 1)`.
///
/// The secret is right if `accept` is. The *names* are right too if at most `floor((s - k) / 2)`
/// shares are wrong at each byte; with more, shares that are wrong in concert can be made to
/// give the right secret along a polynomial that the right ones are not on.
///
/// # Errors
/// When the arguments do not fit together, nothing was accepted, or two secrets were; `secret` is
/// then zeros or untouched.
pub fn correct_with(
    sharing: SharingParameters,
    coordinates: &[u8],
    shares: &[&[u8]],
    secret: &mut [u8],
    accept: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<u8>, ShareErrorLocationError> {
    ShareErrorLocator::new(sharing).correct_with(coordinates, shares, secret, accept)
}

/// What is known about the shares of one split, from one call to the next. Holds no secret once a
/// call is over.
pub(crate) struct ShareErrorLocator {
    sharing: SharingParameters,
    /// The coordinates of the shares that were given last.
    coordinates: Vec<u8>,
    code: Option<ReedSolomonCode>,
    basis: Option<ShareBasis>,
    /// At how many bytes each share was wrong in all calls so far, by its coordinate.
    faults: [u64; 256],
    /// The same in this call, by its place.
    counts: Vec<u64>,
    /// How often a basis was made.
    #[cfg(test)]
    bases: usize,
}

impl ShareErrorLocator {
    /// A locator that trusts all shares alike.
    pub(crate) fn new(sharing: SharingParameters) -> Self {
        Self {
            sharing,
            coordinates: Vec::new(),
            code: None,
            basis: None,
            faults: [0; 256],
            counts: Vec::new(),
            #[cfg(test)]
            bases: 0,
        }
    }

    /// Does what the function [`correct_with`] does. Shares that were right in earlier calls are
    /// tried first: one that is wrong all along then costs a search only once.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn correct_with(
        &mut self,
        coordinates: &[u8],
        shares: &[&[u8]],
        secret: &mut [u8],
        mut accept: impl FnMut(&[u8]) -> bool,
    ) -> Result<Vec<u8>, ShareErrorLocationError> {
        self.begin(coordinates, shares, secret.len())?;
        if !self.search(shares, secret, &mut accept)? {
            secret.fill(0);
            return Err(ShareErrorLocationError::NoneAccepted);
        }
        let wrong = self.wrong();
        if wrong.len() >= self.threshold() {
            self.check_for_rival(&wrong, shares, secret, accept)?;
        }
        for (&x, &count) in self.coordinates.iter().zip(&self.counts) {
            self.faults[usize::from(x)] += count;
        }
        Ok(wrong)
    }

    /// Checks the arguments and begins a call.
    fn begin(
        &mut self,
        coordinates: &[u8],
        shares: &[&[u8]],
        len: usize,
    ) -> Result<(), ShareErrorLocationError> {
        let (needed, found) = (self.threshold(), shares.len());
        if found < needed {
            return Err(ShareErrorLocationError::TooFew { needed, found });
        }
        if coordinates.len() != found {
            let coordinates = coordinates.len();
            return Err(ShareErrorLocationError::WrongCount { shares: found, coordinates });
        }
        if shares.iter().any(|share| share.len() != len) {
            return Err(ShareJoinError::WrongLength.into());
        }
        check_coordinates(self.sharing, coordinates)?;
        if self.coordinates != coordinates {
            self.coordinates = coordinates.to_vec();
            (self.code, self.basis) = (None, None);
        }
        self.counts = vec![0; found];
        Ok(())
    }

    fn threshold(&self) -> usize {
        usize::from(self.sharing.threshold())
    }

    /// Up to how many wrong shares at one byte there is only one right answer.
    fn bound(&self) -> usize {
        (self.coordinates.len() - self.threshold()) / 2
    }

    /// The coordinates of the shares found wrong in this call.
    fn wrong(&self) -> Vec<u8> {
        let wrong = self.coordinates.iter().zip(&self.counts).filter(|&(_, &count)| count > 0);
        wrong.map(|(&x, _)| x).collect()
    }

    /// All shares, those found wrong least often first.
    fn ranking(&self) -> Vec<usize> {
        let mut ranking: Vec<usize> = (0..self.coordinates.len()).collect();
        ranking.sort_by_key(|&i| self.faults[usize::from(self.coordinates[i])] + self.counts[i]);
        ranking
    }

    /// Finds a secret that is accepted. Returns whether there is one.
    fn search(
        &mut self,
        shares: &[&[u8]],
        secret: &mut [u8],
        mut accept: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, ShareErrorLocationError> {
        if self.correct(shares, secret).is_ok() {
            if accept(secret) {
                return Ok(true);
            }
            if self.wrong().is_empty() {
                // All agree, so every subset gives what has just been rejected.
                return Ok(false);
            }
        }
        // What was counted is of no worth if the answer was wrong.
        self.counts.fill(0);
        let ranking = self.ranking();
        let mut joiner = Joiner::new(self.sharing);
        for chosen in subsets(ranking.len(), self.threshold()).take(MAX_TRIALS) {
            let mut members: Vec<usize> = chosen.into_iter().map(|place| ranking[place]).collect();
            members.sort_unstable();
            let coordinates: Vec<u8> = members.iter().map(|&i| self.coordinates[i]).collect();
            let values: Vec<&[u8]> = members.iter().map(|&i| shares[i]).collect();
            joiner.join(&coordinates, &values, secret)?;
            if accept(secret) {
                self.count_disagreeing(members, shares);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses if the shares at the coordinates `wrong`, all of which disagree with `secret`, have
    /// an accepted secret of their own.
    fn check_for_rival(
        &self,
        wrong: &[u8],
        shares: &[&[u8]],
        secret: &mut [u8],
        mut accept: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ShareErrorLocationError> {
        let given = self.coordinates.iter().zip(shares);
        let (rivals, rest): (Vec<_>, Vec<_>) = given.partition(|(x, _)| wrong.contains(x));
        let rivals: Vec<&[u8]> = rivals.into_iter().map(|(_, &share)| share).collect();
        let mut other = Zeroizing::new(vec![0; secret.len()]);
        let mut locator = Self::new(self.sharing);
        locator.begin(wrong, &rivals, secret.len())?;
        let accept_other =
            |candidate: &[u8]| !bool::from(candidate.ct_eq(secret)) && accept(candidate);
        if !locator.search(&rivals, &mut other, accept_other)? {
            return Ok(());
        }
        secret.fill(0);
        let against = locator.wrong();
        let second = wrong.iter().copied().filter(|x| !against.contains(x)).collect();
        Err(ShareErrorLocationError::Ambiguous {
            first: rest.into_iter().map(|(&x, _)| x).collect(),
            second,
        })
    }

    /// Corrects all bytes and counts the errors, or finds that too many shares are wrong.
    fn correct(
        &mut self,
        shares: &[&[u8]],
        secret: &mut [u8],
    ) -> Result<(), ShareErrorLocationError> {
        for (index, chunk) in secret.chunks_mut(CHUNK).enumerate() {
            let mut trusted = self.ranking();
            trusted.truncate(self.threshold());
            self.correct_chunk(trusted, shares, index * CHUNK, chunk)?;
        }
        Ok(())
    }

    /// Corrects the bytes from `start` on, at most [`CHUNK`]. A wholly wrong share is decoded away
    /// in one chunk, and from then on is one that is compared, not one that is believed.
    fn correct_chunk(
        &mut self,
        trusted: Vec<usize>,
        shares: &[&[u8]],
        start: usize,
        secret: &mut [u8],
    ) -> Result<(), ShareErrorLocationError> {
        let (bound, len, k) = (self.bound(), secret.len(), self.threshold());
        self.set_basis(trusted);
        let Some(basis) = &mut self.basis else { return Ok(()) };
        if basis.interpolate(shares, start, secret) {
            return Ok(());
        }
        let disagreeing = basis.disagreeing(len);
        let is_right = |count: u8| usize::from(count) <= bound;
        for (i, row) in basis.discrepancies(len) {
            let columns = row.iter().zip(&disagreeing);
            let wrong = columns.filter(|&(&error, &count)| error != 0 && is_right(count)).count();
            self.counts[i] += wrong as u64;
        }
        if disagreeing[..len].iter().all(|&count| is_right(count)) {
            return Ok(());
        }
        let code = self.code.get_or_insert_with(|| ReedSolomonCode::new(&self.coordinates, k));
        let rows = basis.syndromes(code, len);
        let mut corrections = Vec::new();
        for j in (0..len).filter(|&j| !is_right(disagreeing[j])) {
            let syndromes: Vec<u8> = rows.iter().map(|row| row[j]).collect();
            let errors = code.decode(&syndromes).ok_or(ShareErrorLocationError::TooManyWrong)?;
            corrections.extend(errors.into_iter().map(|(i, error)| (j, i, error)));
        }
        for (j, i, error) in corrections {
            secret[j] ^= multiply(basis.secret_weight(i), error);
            self.counts[i] += 1;
        }
        Ok(())
    }

    /// Makes `members` the basis, unless they are it already.
    fn set_basis(&mut self, mut members: Vec<usize>) {
        members.sort_unstable();
        if self.basis.as_ref().is_none_or(|basis| basis.trusted_shares() != members) {
            self.basis = Some(ShareBasis::new(self.sharing, &self.coordinates, members));
            #[cfg(test)]
            {
                self.bases += 1;
            }
        }
    }

    /// Counts the errors of the shares that are not on the polynomial through `members`.
    fn count_disagreeing(&mut self, members: Vec<usize>, shares: &[&[u8]]) {
        self.set_basis(members);
        let Some(basis) = &mut self.basis else { return };
        let len = shares[0].len();
        let mut secret = Zeroizing::new([0; CHUNK]);
        for start in (0..len).step_by(CHUNK) {
            let part = len.min(start + CHUNK) - start;
            basis.interpolate(shares, start, &mut secret[..part]);
            for (i, row) in basis.discrepancies(part) {
                self.counts[i] += row.iter().filter(|&&error| error != 0).count() as u64;
            }
        }
    }
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
    use crate::Splitter;
    use random::RandomGenerator;

    #[test]
    fn subsets_are_all_and_once() {
        let found: Vec<Vec<usize>> = subsets(4, 2).collect();
        assert_eq!(found, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(subsets(14, 7).count(), 3432);
        assert!((1..=14).all(|k| subsets(14, k).count() <= MAX_TRIALS));
        assert_eq!(subsets(255, 255).count(), 1);
    }

    /// Has `locator` correct a secret's shares, with an error at every byte that moves over the
    /// first `wrong` of them.
    fn correct_moving(locator: &mut ShareErrorLocator, len: usize, wrong: usize) {
        let sharing = locator.sharing;
        let secret = vec![9; len];
        let mut shares = vec![vec![0; len]; sharing.shares().into()];
        let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
        let mut generator = RandomGenerator::seeded().unwrap();
        Splitter::new(sharing).split(&secret, &mut views, &mut generator).unwrap();
        for j in 0..if wrong == 0 { 0 } else { len } {
            shares[j % wrong][j] ^= 1;
        }
        let shares: Vec<&[u8]> = shares.iter().map(Vec::as_slice).collect();
        let coordinates: Vec<u8> = (1..=sharing.shares()).collect();
        let mut joined = vec![0; len];
        let accept = |found: &[u8]| found == secret;
        let found = locator.correct_with(&coordinates, &shares, &mut joined, accept).unwrap();
        assert_eq!(found, coordinates[..wrong]);
    }

    #[test]
    fn a_basis_is_made_once_a_chunk_at_most_and_kept_while_it_holds() {
        let mut locator = ShareErrorLocator::new(SharingParameters::shamir(8, 14).unwrap());
        for _ in 0..3 {
            correct_moving(&mut locator, 5 * CHUNK, 0);
            assert_eq!(locator.bases, 1);
        }
        correct_moving(&mut locator, 5 * CHUNK, 7);
        let settled = locator.bases;
        assert!(settled <= 1 + 4, "{settled}");
        for _ in 0..3 {
            // The shares that were always right are trusted from here on.
            correct_moving(&mut locator, 5 * CHUNK, 7);
            assert!(locator.bases <= settled + 1);
        }
    }
}
