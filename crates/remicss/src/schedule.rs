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
    /// Channel i can take the symbol's share from `ready[i]` on, which may be past or to come, and
    /// there is an entry for every channel of `up`. The scheduler need not heed it: the symbol waits
    /// until all of its channels are ready.
    fn next_threshold(&mut self, up: Subset, ready: &[Duration]) -> Option<Threshold>;

    /// The least k of all symbols, as long as enough channels are up.
    fn least_k(&self) -> usize;
}
