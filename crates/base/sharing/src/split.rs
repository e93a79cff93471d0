//! Splits secrets into shares, and joins shares.
//!
//! A textbook Shamir split draws `k - 1` random coefficients and evaluates the polynomial at all
//! `m` coordinates. Given the secret, the coefficients and the values at the first `k - 1`
//! coordinates determine each other, one to one (a Vandermonde matrix is invertible). So drawing
//! those *shares* uniformly and interpolating the others gives the same distribution. [`Splitter`]
//! does this: the random bytes are written once, directly into the shares, and only `m - k + 1`
//! shares are computed. XOR is the same with one computed share whose weights are 1.

use crate::field::lagrange_weights;
use crate::kernels::{FieldKernel, WeightMatrix};
use crate::scheme::{SecretSharingScheme, SharingParameters, SharingParametersError};
use random::{RandomError, RandomGenerator, SharingSeed};

/// The number of subsets of shares whose weights a [`Joiner`] caches.
const MAX_CACHED_SUBSETS: usize = 256;

/// Why shares at these coordinates can be neither made nor joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareCoordinatesError {
    /// The threshold and the number of coordinates are not valid parameters.
    #[error(transparent)]
    Sharing(#[from] SharingParametersError),
    /// A coordinate is zero, which is that of the secret, or occurs twice.
    #[error("share {0} is the secret or came twice")]
    BadCoordinate(u8),
}

/// Why buffers could not be split into shares.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum ShareSplitError {
    /// The number of buffers for shares is wrong.
    #[error("{found} buffers for {expected} shares")]
    WrongCount {
        /// The number of shares of the sharing.
        expected: usize,
        /// The number of buffers.
        found: usize,
    },
    /// The buffer of a share has another length than the secret.
    #[error("a share's buffer is not as long as the secret")]
    WrongLength,
    /// There were no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Why shares could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareJoinError {
    /// The number of shares or of coordinates differs from the threshold.
    #[error("{found} shares, where exactly {expected} are joined")]
    WrongCount {
        /// The threshold.
        expected: usize,
        /// The number of shares.
        found: usize,
    },
    /// The lengths of the shares and of the secret differ.
    #[error("the shares and the secret differ in length")]
    WrongLength,
    /// A coordinate is outside `1..=m`, or occurs twice.
    #[error("share {0} is out of range or came twice")]
    BadCoordinate(u8),
}

/// Splits secrets into shares. It stores no secret, and may be shared between threads.
///
/// ```
/// use random::RandomGenerator;
/// use sunder_sharing::{Joiner, SharingParameters, Splitter};
///
/// let mut generator = RandomGenerator::seeded()?;
/// let sharing = SharingParameters::shamir(2, 3)?;
/// let (splitter, mut joiner) = (Splitter::new(sharing), Joiner::new(sharing));
///
/// // The buffers are the caller's, and serve for every secret.
/// let (mut a, mut b, mut c, mut joined) = ([0; 12], [0; 12], [0; 12], [0; 12]);
/// for secret in [b"first secret", b"other secret"] {
///     splitter.split(secret, &mut [&mut a, &mut b, &mut c], &mut generator)?;
///     joiner.join(&[1, 3], &[&a, &c], &mut joined)?;
///     assert_eq!(&joined, secret);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Splitter {
    sharing: SharingParameters,
    /// The weights that compute the other shares from the secret and the first `k - 1` shares,
    /// which are random.
    weights: WeightMatrix,
}

impl Splitter {
    /// Creates a splitter with the given parameters. The shares have the coordinates `1..=m`.
    pub fn new(sharing: SharingParameters) -> Self {
        let coordinates: Vec<u8> = (1..=sharing.shares()).collect();
        Self::with_coordinates(sharing, &coordinates)
    }

    /// Creates a splitter by Shamir's scheme for shares at these coordinates, any `k` of which
    /// yield the secret. Secrecy is that of [`Self::new`]: it depends on distinct coordinates, not
    /// on their values.
    ///
    /// # Errors
    /// If a coordinate is zero or occurs twice, or unless `1 <= k <= coordinates.len()`.
    pub fn for_coordinates(k: u8, coordinates: &[u8]) -> Result<Self, ShareCoordinatesError> {
        let m = count_valid(coordinates)?;
        Ok(Self::with_coordinates(SharingParameters::shamir(k, m)?, coordinates))
    }

    fn with_coordinates(sharing: SharingParameters, coordinates: &[u8]) -> Self {
        let k = usize::from(sharing.threshold());
        let (random, computed) = coordinates.split_at(k - 1);
        let nodes = [&[0], random].concat();
        let rows = computed.iter().map(|&x| match sharing.scheme() {
            SecretSharingScheme::Xor => vec![1; k],
            SecretSharingScheme::Shamir => lagrange_weights(&nodes, x),
        });
        Self { sharing, weights: WeightMatrix::new(k, rows) }
    }

    /// The same splitter with another of this processor's kernels, for tests and benchmarks.
    ///
    /// # Panics
    /// If the processor does not support it.
    #[must_use]
    pub fn with_kernel(mut self, kernel: FieldKernel) -> Self {
        self.weights = self.weights.with_kernel(kernel);
        self
    }

    /// The parameters of this splitter.
    pub fn sharing(&self) -> SharingParameters {
        self.sharing
    }

    /// Splits `secret` into `shares`, in the order of their coordinates, each as long as the
    /// secret.
    ///
    /// # Errors
    /// If the number or a length of the buffers is wrong, or there are no random bytes. The content
    /// of the buffers is then useless.
    pub fn split(
        &self,
        secret: &[u8],
        shares: &mut [&mut [u8]],
        generator: &mut RandomGenerator,
    ) -> Result<(), ShareSplitError> {
        self.split_with(secret, shares, |share| generator.fill(share))
    }

    /// Like [`Self::split`], with a seed for this secret: the same secret and seed always give the
    /// same shares.
    ///
    /// # Errors
    /// If the number or a length of the buffers is wrong. Their content is then useless.
    pub fn split_from_seed(
        &self,
        secret: &[u8],
        shares: &mut [&mut [u8]],
        seed: &SharingSeed,
    ) -> Result<(), ShareSplitError> {
        let mut fill = seed.keystream();
        self.split_with(secret, shares, |share| {
            fill(share);
            Ok(())
        })
    }

    /// Does the arithmetic of [`Self::split`] only, with the given first `k - 1` shares. This is
    /// for benchmarks; it is secret only if those shares are uniformly random and never used twice.
    ///
    /// # Errors
    /// As for [`Self::split`].
    #[doc(hidden)]
    pub fn danger_split_given_random_shares(
        &self,
        secret: &[u8],
        shares: &mut [&mut [u8]],
    ) -> Result<(), ShareSplitError> {
        self.split_with(secret, shares, |_| Ok(()))
    }

    fn split_with(
        &self,
        secret: &[u8],
        shares: &mut [&mut [u8]],
        mut fill: impl FnMut(&mut [u8]) -> Result<(), RandomError>,
    ) -> Result<(), ShareSplitError> {
        let expected = usize::from(self.sharing.shares());
        if shares.len() != expected {
            return Err(ShareSplitError::WrongCount { expected, found: shares.len() });
        }
        if shares.iter().any(|share| share.len() != secret.len()) {
            return Err(ShareSplitError::WrongLength);
        }
        let (random, computed) = shares.split_at_mut(usize::from(self.sharing.threshold()) - 1);
        if random.is_empty() {
            // k = 1: every share is the secret.
            for share in computed {
                share.copy_from_slice(secret);
            }
            return Ok(());
        }
        for share in random.iter_mut() {
            fill(share)?;
        }
        self.weights.apply(secret, random, computed);
        Ok(())
    }
}

/// Joins shares into secrets, and caches the weights of the subsets of shares that it has joined.
///
/// With Shamir's scheme, `m` is only an upper bound of the coordinates: the result of any `k`
/// shares does not depend on the number of shares. A joiner of `k` and 16 joins all shares of
/// threshold `k` at coordinates up to 16, whatever splitter made them.
#[derive(Clone)]
pub struct Joiner {
    sharing: SharingParameters,
    kernel: FieldKernel,
    /// The coordinates of shares in their order, and their weights. The least recently used are
    /// last, because a sequence of joins usually uses few subsets.
    cache: Vec<(Box<[u8]>, WeightMatrix)>,
}

impl Joiner {
    /// Creates a joiner with the given parameters.
    pub fn new(sharing: SharingParameters) -> Self {
        Self { sharing, kernel: FieldKernel::best(), cache: Vec::new() }
    }

    /// The same joiner with another of this processor's kernels, for tests and benchmarks.
    ///
    /// # Panics
    /// If the processor does not support it.
    #[must_use]
    pub fn with_kernel(mut self, kernel: FieldKernel) -> Self {
        assert!(FieldKernel::available().contains(&kernel), "this processor lacks {kernel}");
        self.kernel = kernel;
        self.cache.clear();
        self
    }

    /// The parameters of this joiner.
    pub fn sharing(&self) -> SharingParameters {
        self.sharing
    }

    /// Joins exactly `k` shares into `secret`. `shares[i]` has the coordinate `coordinates[i]`, and
    /// the length of `secret`.
    ///
    /// Any bytes can be joined. Only the [`tamper`](crate::tamper) code or further shares show
    /// whether the result is the secret that was split.
    ///
    /// # Errors
    /// If the number, a length or a coordinate is wrong; `secret` is then unchanged.
    pub fn join(
        &mut self,
        coordinates: &[u8],
        shares: &[&[u8]],
        secret: &mut [u8],
    ) -> Result<(), ShareJoinError> {
        let expected = usize::from(self.sharing.threshold());
        for found in [coordinates.len(), shares.len()] {
            if found != expected {
                return Err(ShareJoinError::WrongCount { expected, found });
            }
        }
        if shares.iter().any(|share| share.len() != secret.len()) {
            return Err(ShareJoinError::WrongLength);
        }
        if expected == 1 {
            check_coordinates(self.sharing, coordinates)?;
            secret.copy_from_slice(shares[0]);
            return Ok(());
        }
        self.weights(coordinates)?.apply(shares[0], &shares[1..], &mut [secret]);
        Ok(())
    }

    fn weights(&mut self, coordinates: &[u8]) -> Result<&WeightMatrix, ShareJoinError> {
        if let Some(place) = self.cache.iter().position(|(known, _)| known.iter().eq(coordinates)) {
            self.cache[..=place].rotate_right(1);
        } else {
            check_coordinates(self.sharing, coordinates)?;
            let row = secret_weights(self.sharing, coordinates);
            let weights = WeightMatrix::new(coordinates.len(), [row]).with_kernel(self.kernel);
            self.cache.truncate(MAX_CACHED_SUBSETS - 1);
            self.cache.insert(0, (coordinates.into(), weights));
        }
        Ok(&self.cache[0].1)
    }
}

/// The weights with which the shares at `k` distinct coordinates add up to the secret.
pub(crate) fn secret_weights(sharing: SharingParameters, coordinates: &[u8]) -> Vec<u8> {
    match sharing.scheme() {
        SecretSharingScheme::Xor => vec![1; coordinates.len()],
        SecretSharingScheme::Shamir => lagrange_weights(coordinates, 0),
    }
}

/// Checks that the coordinates are within `1..=m` and distinct.
pub(crate) fn check_coordinates(
    sharing: SharingParameters,
    coordinates: &[u8],
) -> Result<(), ShareJoinError> {
    first_bad(coordinates, sharing.shares())
        .map_or(Ok(()), |x| Err(ShareJoinError::BadCoordinate(x)))
}

/// Counts coordinates, if they are distinct and not zero.
fn count_valid(coordinates: &[u8]) -> Result<u8, ShareCoordinatesError> {
    match first_bad(coordinates, u8::MAX) {
        Some(x) => Err(ShareCoordinatesError::BadCoordinate(x)),
        // There are at most 255 such coordinates.
        None => Ok(u8::try_from(coordinates.len()).unwrap_or(u8::MAX)),
    }
}

/// The first coordinate that is not within `1..=highest` or occurred before.
fn first_bad(coordinates: &[u8], highest: u8) -> Option<u8> {
    // One bit for each coordinate.
    let mut seen = [0u64; 4];
    coordinates.iter().copied().find(|&x| {
        let (word, bit) = (&mut seen[usize::from(x / 64)], 1 << (x % 64));
        let bad = *word & bit != 0 || x == 0 || x > highest;
        *word |= bit;
        bad
    })
}
