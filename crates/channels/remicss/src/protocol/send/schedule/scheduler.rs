//! Chooses the threshold of each symbol.

use std::time::Duration;

use model::{ChannelSubset, ShareSelection};

/// Chooses the threshold of each symbol. The privacy floor is enforced by the sender.
pub trait SymbolScheduler: Send {
    /// The threshold of the next symbol, over channels of `up` only; `None` if none is up.
    ///
    /// The scheduler need not take `channels` into account: the symbol waits until all of its
    /// channels are ready.
    fn next_threshold(
        &mut self,
        up: ChannelSubset,
        channels: &dyn ChannelReadiness,
    ) -> Option<ShareSelection>;

    /// The minimum k of all symbols, as long as enough channels are up.
    fn min_k(&self) -> usize;

    /// The maximum k of all symbols, as long as enough channels are up.
    fn max_k(&self) -> usize;
}

/// When channels can take a symbol's share, and when they will have sent those before it. Computed
/// only for the channels that a scheduler asks for. Zero for a channel that does not exist.
pub trait ChannelReadiness {
    /// The time from which a channel can take the share, in the past or in the future.
    fn ready_at(&self, channel: usize) -> Duration;

    /// How much longer a channel is busy with the datagrams that it was given.
    fn busy_for(&self, channel: usize) -> Duration;
}

/// The readiness of one channel, in tests of schedulers.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(super) struct FixedReadiness {
    pub(super) ready_at: Duration,
    pub(super) busy_for: Duration,
}

#[cfg(test)]
impl<T: AsRef<[FixedReadiness]>> ChannelReadiness for T {
    fn ready_at(&self, channel: usize) -> Duration {
        self.as_ref().get(channel).map_or(Duration::ZERO, |channel| channel.ready_at)
    }

    fn busy_for(&self, channel: usize) -> Duration {
        self.as_ref().get(channel).map_or(Duration::ZERO, |channel| channel.busy_for)
    }
}
