//! Shares that own their bytes, and one call each way.

use std::fmt;

use zeroize::Zeroizing;

use crate::scheme::SharingParameters;
use crate::split::{Joiner, ShareCoordinatesError, ShareJoinError, ShareSplitError, Splitter};
use random::RandomGenerator;

/// One share of a secret: a coordinate, and as many bytes as the secret has. Wiped on drop.
#[derive(Clone)]
pub struct Share {
    coordinate: u8,
    bytes: Zeroizing<Vec<u8>>,
}

impl Share {
    /// The share at `coordinate`, 1 to 255, as it was received or read.
    ///
    /// # Errors
    /// When the coordinate is zero, which is the secret's own.
    pub fn new(coordinate: u8, bytes: Vec<u8>) -> Result<Self, ShareCoordinatesError> {
        let bytes = Zeroizing::new(bytes);
        if coordinate == 0 {
            return Err(ShareCoordinatesError::BadCoordinate(coordinate));
        }
        Ok(Self { coordinate, bytes })
    }

    /// The coordinate: not secret, and to be stored or sent with the bytes.
    pub fn coordinate(&self) -> u8 {
        self.coordinate
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share {} of {} bytes", self.coordinate, self.bytes.len())
    }
}

impl SharingParameters {
    /// Splits `secret` into `m` shares with the coordinates `1..=m`. Allocates; for many secrets
    /// use a [`Splitter`].
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn split(
        self,
        secret: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<Vec<Share>, ShareSplitError> {
        let zeros = || Zeroizing::new(vec![0; secret.len()]);
        let shares = (1..=self.shares()).map(|coordinate| Share { coordinate, bytes: zeros() });
        let mut shares: Vec<Share> = shares.collect();
        let mut buffers: Vec<&mut [u8]> =
            shares.iter_mut().map(|share| share.bytes.as_mut_slice()).collect();
        Splitter::new(self).split(secret, &mut buffers, generator)?;
        Ok(shares)
    }

    /// Joins the first `k` of the shares, in any order; more are not looked at. Allocates; for many
    /// secrets use a [`Joiner`].
    ///
    /// Any bytes join to something. To detect changed shares, [seal](crate::tamper::seal) the
    /// secret; to find them among more than `k`, use [`locate`](crate::locate).
    ///
    /// # Errors
    /// When there are fewer than `k` shares, their lengths differ, or a coordinate is above `m` or
    /// came twice.
    pub fn join<'a>(
        self,
        shares: impl IntoIterator<Item = &'a Share>,
    ) -> Result<Zeroizing<Vec<u8>>, ShareJoinError> {
        let shares = shares.into_iter().take(self.threshold().into());
        let (coordinates, bytes): (Vec<u8>, Vec<&[u8]>) =
            shares.map(|share| (share.coordinate, share.bytes())).unzip();
        let len = bytes.first().map_or(0, |bytes| bytes.len());
        let mut secret = Zeroizing::new(vec![0; len]);
        Joiner::new(self).join(&coordinates, &bytes, &mut secret)?;
        Ok(secret)
    }
}
