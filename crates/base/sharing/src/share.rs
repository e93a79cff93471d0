//! Shares that own their bytes, and functions to split and join a single secret.

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
    /// Creates the share at `coordinate`, 1 to 255, from received or stored bytes.
    ///
    /// # Errors
    /// If the coordinate is zero, which is that of the secret.
    pub fn new(coordinate: u8, bytes: Vec<u8>) -> Result<Self, ShareCoordinatesError> {
        let bytes = Zeroizing::new(bytes);
        if coordinate == 0 {
            return Err(ShareCoordinatesError::BadCoordinate(coordinate));
        }
        Ok(Self { coordinate, bytes })
    }

    /// The coordinate. It is not secret, and must be stored or sent with the bytes.
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
    /// If there are no random bytes.
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

    /// Joins the first `k` of the shares, in any order, and ignores the rest. Allocates; for many
    /// secrets use a [`Joiner`].
    ///
    /// Any bytes can be joined. To detect changed shares, [seal](crate::tamper::seal) the secret;
    /// to find them among more than `k`, use [`locate`](crate::locate).
    ///
    /// # Errors
    /// If there are fewer than `k` shares, their lengths differ, or a coordinate is above `m` or
    /// occurs twice.
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
