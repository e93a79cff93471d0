//! What the choice of a transport depends on.

/// The coming exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes that the end that connects sends.
    pub sent: u64,
    /// Bytes that the end that connects receives.
    pub received: u64,
    /// How often an end waits for the other.
    pub rounds: u32,
}
