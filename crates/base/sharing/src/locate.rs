//! Finds out which shares are wrong, if there are more than are needed.
//!
//! The shares of one byte are the values of a polynomial of degree below `k`: a word of a
//! Reed-Solomon code (`McEliece` and Sarwate, 1981). Of `s` shares, two such polynomials have at
//! most `k - 1` in common, so if at most `e = floor((s - k) / 2)` are wrong, only one polynomial is
//! within `e` of them, and it is the right one.
//!
//! - [`correct`] needs nothing else. It is right if at most `e` shares are wrong at each byte,
//!   which may be different ones at different bytes. If more are wrong, it either reports that or
//!   finds another polynomial: without a verifier the result is ambiguous.
//! - [`correct_with`] also has a verifier, such as the [`tamper`](crate::tamper) code. Up to `s -
//!   k` shares may be wrong, and the result is right if the verifier is.
//!
//! XOR has no redundancy: all shares are needed, so no wrong share can be found.
//!
//! ```
//! use sunder_sharing::locate::correct_with;
//! use random::RandomGenerator;
//! use sunder_sharing::{SharingParameters, tamper};
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
//! All computations use *discrepancies*: the differences between shares and the values that follow
//! from the other shares. They, and everything computed from them, depend on the errors only and
//! not on the secret, because the code is linear and right shares have no discrepancy. So branches
//! that depend on them reveal nothing about the secret. Unlike the rest of the crate, these
//! functions allocate, but only a bounded amount that does not grow with the length of the shares.

mod basis;
mod decoder;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::field::multiply;
use crate::scheme::SharingParameters;
use crate::split::{Joiner, ShareJoinError, check_coordinates};
use basis::{CHUNK, ShareBasis};
use decoder::ReedSolomonCode;

/// The largest number of subsets of shares that [`correct_with`] tries. If there are fewer, which
/// is the case for `s <= 14` and any `k`, it tries all of them.
pub const MAX_TRIALS: usize = 4096;

/// Why no secret was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareErrorLocationError {
    /// There are fewer shares than needed for any secret.
    #[error("{found} shares, where at least {needed} are needed")]
    TooFew {
        /// The threshold.
        needed: usize,
        /// The number of shares.
        found: usize,
    },
    /// The number of coordinates differs from the number of shares.
    #[error("{coordinates} coordinates for {shares} shares")]
    WrongCount {
        /// The number of shares.
        shares: usize,
        /// The number of coordinates.
        coordinates: usize,
    },
    /// A coordinate is out of range or occurs twice, or lengths differ.
    #[error(transparent)]
    Shares(#[from] ShareJoinError),
    /// Too many shares are wrong to be corrected.
    #[error("too many wrong shares: the others cannot outvote them")]
    TooManyWrong,
    /// The verifier accepts none of the secrets that were tried.
    #[error("too many wrong shares: no choice of them gives a secret that fits its tag")]
    NoneAccepted,
    /// The verifier accepts two secrets: at least `k` shares were forged together.
    #[error("two different secrets fit their tags")]
    Ambiguous {
        /// The coordinates of the shares that agree with one of them.
        first: Vec<u8>,
        /// The coordinates of the shares that agree with the other.
        second: Vec<u8>,
    },
}

/// Joins `k` or more shares into `secret`, although up to `floor((s - k) / 2)` of the `s` shares
/// may be wrong at each byte. Returns the coordinates of all shares with errors, in the order
/// given. `shares[i]` has the coordinate `coordinates[i]`, and the length of `secret`.
///
/// # Errors
/// If the arguments are inconsistent or too many shares are wrong; `secret` is then zeros or
/// unchanged.
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
/// `s` shares may be wrong. Returns the coordinates of those that disagree with it, in the order
/// given. `shares[i]` has the coordinate `coordinates[i]`, and the length of `secret`.
///
/// First the result of [`correct`] is tried, then the subsets of `k` shares, at most
/// [`MAX_TRIALS`]. If `k` or more shares disagree with the accepted secret, the same is done with
/// those alone, and if they yield another accepted secret, that is an error, as the two cannot be
/// told apart. Each call of `accept` gives an attacker another chance of acceptance: with the
/// tamper code `(d + 1) / 2^128` for each, in at most `2 (MAX_TRIALS + 1)` calls.
///
/// The secret is right if `accept` is. The returned *coordinates* are right, too, if at most
/// `floor((s - k) / 2)` shares are wrong at each byte. If more are wrong, colluding wrong shares
/// can yield the right secret on a polynomial that does not contain the right shares.
///
/// # Errors
/// If the arguments are inconsistent, no secret was accepted, or two were; `secret` is then zeros
/// or unchanged.
pub fn correct_with(
    sharing: SharingParameters,
    coordinates: &[u8],
    shares: &[&[u8]],
    secret: &mut [u8],
    accept: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<u8>, ShareErrorLocationError> {
    ShareErrorLocator::new(sharing).correct_with(coordinates, shares, secret, accept)
}

/// The state about the shares of one split between calls. It contains no secret after a call.
pub(crate) struct ShareErrorLocator {
    sharing: SharingParameters,
    /// The coordinates of the shares in the last call.
    coordinates: Vec<u8>,
    code: Option<ReedSolomonCode>,
    basis: Option<ShareBasis>,
    /// For each coordinate, at how many bytes the share was wrong in all calls so far.
    faults: [u64; 256],
    /// For each share of this call, by index, at how many bytes it was wrong.
    counts: Vec<u64>,
    /// How many bases were computed.
    #[cfg(test)]
    bases: usize,
}

impl ShareErrorLocator {
    /// Creates a locator that treats all shares alike.
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

    /// Like the function [`correct_with`], but tries shares first that were right in earlier calls.
    /// So a share that is always wrong costs only one search.
    ///
    /// # Errors
    /// As for that function.
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

    /// The number of wrong shares at a byte up to which the right result is unique.
    fn bound(&self) -> usize {
        (self.coordinates.len() - self.threshold()) / 2
    }

    /// The coordinates of the shares that were wrong in this call.
    fn wrong(&self) -> Vec<u8> {
        let wrong = self.coordinates.iter().zip(&self.counts).filter(|&(_, &count)| count > 0);
        wrong.map(|(&x, _)| x).collect()
    }

    /// The indices of all shares, those that were wrong least often first.
    fn ranking(&self) -> Vec<usize> {
        let mut ranking: Vec<usize> = (0..self.coordinates.len()).collect();
        ranking.sort_by_key(|&i| self.faults[usize::from(self.coordinates[i])] + self.counts[i]);
        ranking
    }

    /// Searches for a secret that is accepted. Returns whether one was found.
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
                // All shares agree, so every subset yields what has just been rejected.
                return Ok(false);
            }
        }
        // If the result was wrong, its counts are useless.
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

    /// Returns an error if the shares at the coordinates `wrong`, all of which disagree with
    /// `secret`, yield another accepted secret.
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

    /// Corrects all bytes and counts the errors, or reports that too many shares are wrong.
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

    /// Corrects the bytes from `start` on, at most [`CHUNK`]. A completely wrong share is decoded
    /// in one chunk only; afterwards it is not part of the basis, and is only compared.
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

    /// Makes `members` the basis, unless they are already.
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
        // Advances the last member that can be, and places the later ones directly after it.
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

    /// Corrects the shares of a secret with `locator`. Each byte has an error in one of the first
    /// `wrong` shares, in turn.
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
            // From here on, the shares that were always right are trusted.
            correct_moving(&mut locator, 5 * CHUNK, 7);
            assert!(locator.bases <= settled + 1);
        }
    }
}
