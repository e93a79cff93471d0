//! Which threshold (k, M) each symbol is sent with.

mod dynamic;
mod planned;

use std::time::Duration;

use model::{Subset, Threshold};

pub use dynamic::{Dynamic, MeansError};
pub use planned::Planned;

/// Chooses a threshold for one symbol after the other. Knows no privacy floor: the sender refuses
/// what is below it.
pub trait Scheduler: Send {
    /// The threshold of the next symbol, over channels of `up` only; `None` if none is up.
    ///
    /// There is an entry of `channels` for every channel of `up`. The scheduler need not heed it: the
    /// symbol waits until all of its channels are ready.
    fn next_threshold(&mut self, up: Subset, channels: &[Readiness]) -> Option<Threshold>;

    /// The least k of all symbols, as long as enough channels are up.
    fn least_k(&self) -> usize;
}

/// When a channel can take a symbol's share, and when it will have sent those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// From this time on it can take the share, which may be past or to come.
    pub ready_at: Duration,
    /// For so long from now on it is busy with what it was given.
    pub busy_for: Duration,
}
