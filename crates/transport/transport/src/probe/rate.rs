//! A rate that was measured.

/// A measured rate, in bytes/s of IP packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRate {
    /// The likely one.
    pub rate: f64,
    /// It is not lower.
    pub low: f64,
    /// It is not higher; infinite if the measurement gives no such bound.
    pub high: f64,
}
