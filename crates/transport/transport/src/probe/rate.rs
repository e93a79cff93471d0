//! A measured rate.

/// A measured rate, in bytes/s of IP packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRate {
    /// The most likely rate.
    pub rate: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound; infinite if the measurement gives none.
    pub high: f64,
}
