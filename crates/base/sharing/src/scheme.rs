//! The scheme, the threshold and the number of shares.

/// The largest number of shares, `m`: the field has 255 points besides the secret's own.
pub const MAX_SHARES: usize = 255;

/// How shares are computed from a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretSharingScheme {
    /// All shares except one are random, and the last is their exclusive or with the secret. All
    /// shares are needed. No field arithmetic is involved, so every kernel is fast.
    Xor,
    /// Shamir's polynomials over GF(2^8) modulo 0x11B. Share `x` is the polynomial's value at `x`,
    /// and the secret its value at 0.
    Shamir,
}

/// Valid parameters: a scheme, a threshold and a number of shares. `1 <= k <= m <= 255`, and `k =
/// m` for XOR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharingParameters {
    scheme: SecretSharingScheme,
    k: u8,
    m: u8,
}

/// Why numbers are not valid parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharingParametersError {
    /// `k` is zero, so that no share would be needed.
    #[error("the threshold k must be at least 1")]
    ZeroThreshold,
    /// `k` is above `m`, so that the secret could never be joined.
    #[error("the threshold k = {k} is above the number of shares m = {m}")]
    ThresholdAboveShares {
        /// The requested threshold.
        k: u8,
        /// The requested number of shares.
        m: u8,
    },
    /// XOR needs all shares.
    #[error("the xor scheme needs every share: k = {k} must equal m = {m}")]
    XorNeedsAll {
        /// The requested threshold.
        k: u8,
        /// The requested number of shares.
        m: u8,
    },
}

impl SharingParameters {
    /// Parameters for `m` shares of which `k` are needed.
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
    /// If `n` is zero.
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

    /// `k`: the number of shares that are needed.
    pub fn threshold(self) -> u8 {
        self.k
    }

    /// `m`: the number of shares. Their coordinates are `1..=m`, except with a splitter [for other
    /// coordinates](crate::Splitter::for_coordinates).
    pub fn shares(self) -> u8 {
        self.m
    }
}
