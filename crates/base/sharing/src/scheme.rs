//! The scheme, the threshold and the number of shares.

/// The largest number of shares, `m`: the field has 255 points besides the secret's own.
pub const MAX_SHARES: usize = 255;

/// How a secret is turned into shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretSharingScheme {
    /// All but one share are random, and the last is their exclusive or with the secret. All are
    /// needed. Needs no field arithmetic, so every implementation is fast.
    Xor,
    /// Shamir's polynomials over GF(2^8) modulo 0x11B. Share `x` is the value at `x`, and the
    /// secret the value at 0.
    Shamir,
}

/// A valid choice of scheme, threshold and number of shares. `1 <= k <= m <= 255`, and `k = m`
/// for XOR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharingParameters {
    scheme: SecretSharingScheme,
    k: u8,
    m: u8,
}

/// These numbers make no sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharingParametersError {
    /// `k` is zero: a secret that needs no share is none.
    #[error("the threshold k must be at least 1")]
    ZeroThreshold,
    /// `k` is above `m`: the secret could never be put together again.
    #[error("the threshold k = {k} is above the number of shares m = {m}")]
    ThresholdAboveShares {
        /// The threshold asked for.
        k: u8,
        /// The number of shares asked for.
        m: u8,
    },
    /// XOR needs all shares.
    #[error("the xor scheme needs every share: k = {k} must equal m = {m}")]
    XorNeedsAll {
        /// The threshold asked for.
        k: u8,
        /// The number of shares asked for.
        m: u8,
    },
}

impl SharingParameters {
    /// Shares of which `k` of `m` are needed, by the given scheme.
    ///
    /// # Errors
    /// Unless `1 <= k <= m`, with `k = m` for [`SecretSharingScheme::Xor`].
    pub fn new(scheme: SecretSharingScheme, k: u8, m: u8) -> Result<Self, SharingParametersError> {
        match scheme {
            _ if k == 0 => Err(SharingParametersError::ZeroThreshold),
            _ if k > m => Err(SharingParametersError::ThresholdAboveShares { k, m }),
            SecretSharingScheme::Xor if k != m => Err(SharingParametersError::XorNeedsAll { k, m }),
            _ => Ok(Self { scheme, k, m }),
        }
    }

    /// XOR over `n` shares, all of which are needed.
    ///
    /// # Errors
    /// When `n` is zero.
    pub fn xor(n: u8) -> Result<Self, SharingParametersError> {
        Self::new(SecretSharingScheme::Xor, n, n)
    }

    /// Shamir's scheme: `k` of `m` shares are needed.
    ///
    /// # Errors
    /// Unless `1 <= k <= m`.
    pub fn shamir(k: u8, m: u8) -> Result<Self, SharingParametersError> {
        Self::new(SecretSharingScheme::Shamir, k, m)
    }

    /// The scheme.
    pub fn scheme(self) -> SecretSharingScheme {
        self.scheme
    }

    /// `k`: how many shares are needed.
    pub fn threshold(self) -> u8 {
        self.k
    }

    /// `m`: how many shares there are. Their coordinates are `1..=m`, but for a splitter
    /// [at others](crate::Splitter::for_coordinates).
    pub fn shares(self) -> u8 {
        self.m
    }
}
