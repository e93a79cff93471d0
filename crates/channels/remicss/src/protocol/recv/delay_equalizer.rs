//! Delays that are equal: how long a symbol that came over fast channels is delayed, so that it
//! takes as long as those over the slowest channels in use.
//!
//! A flow in order has the delay of its slowest symbols while it is busy, and that of any symbol
//! while it is not. TCP takes the shortest round trip that it has measured for that of the path,
//! and BBR keeps no more in flight than twice what fits into it. With equal delays it measures the
//! delay that it will have, and fills the channels.
//!
//! The sender's plan is not known here. But the receiver knows by how much each channel is later
//! than the fastest ([`ChannelLateness`]), and which channels complete symbols with their kth
//! shares. A slow channel that completes few symbols carries redundant shares, which are needed
//! only after a loss: such symbols are late, and others do not wait for them.

use std::time::Duration;

use crate::protocol::wire::datagram::MAX_CHANNELS;

/// The number of symbols after which older ones count half.
const MAX_SYMBOLS: u32 = 512;

/// With fewer symbols it is not known which channels complete them.
const MIN_SYMBOLS: u32 = 32;

/// How often the delay is computed, in symbols.
const INTERVAL: u32 = 16;

/// The slowest symbols do not count if they are less than one in this number. A plan that is in
/// order uses slow channels only for more than a tenth of the rate.
const MIN_PART: u32 = 20;

/// By how much the channels of a direction are later than the fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelLateness {
    /// Of each channel. `None` if it is down or not measured.
    pub channels: Vec<Option<Duration>>,
    /// The lateness up to which delays are similar: TCP fills the channels in spite of it.
    pub tolerated: Duration,
}

/// The delays of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayEqualizer {
    lateness: [Duration; MAX_CHANNELS],
    tolerated: Duration,
    /// The number of recent symbols that each channel has completed, and of all.
    completed: [u32; MAX_CHANNELS],
    symbols: u32,
    /// The lateness that all symbols have.
    target: Duration,
}

impl DelayEqualizer {
    /// Sets the channels' lateness.
    pub(crate) fn set_lateness(&mut self, lateness: &ChannelLateness) {
        for channel in 0..MAX_CHANNELS {
            let own = lateness.channels.get(channel).copied().flatten();
            self.lateness[channel] = own.unwrap_or_default();
            if own.is_none() {
                self.completed[channel] = 0;
            }
        }
        self.tolerated = lateness.tolerated;
        self.update_target();
    }

    /// A symbol is complete by a share on this channel. Returns how long it is delayed.
    pub(crate) fn delay(&mut self, channel: usize) -> Duration {
        self.completed[channel] += 1;
        self.symbols += 1;
        if self.symbols.is_multiple_of(INTERVAL) {
            if self.symbols >= MAX_SYMBOLS {
                self.completed.iter_mut().for_each(|count| *count /= 2);
                self.symbols /= 2;
            }
            self.update_target();
        }
        self.target.saturating_sub(self.lateness[channel])
    }

    /// Computes the lateness of the slowest channels in use; before that is known, of all.
    fn update_target(&mut self) {
        let needed = if self.symbols < MIN_SYMBOLS {
            0
        } else {
            self.completed.iter().sum::<u32>() / MIN_PART + 1
        };
        let mut slowest_first: [usize; MAX_CHANNELS] = std::array::from_fn(|channel| channel);
        slowest_first.sort_unstable_by_key(|channel| std::cmp::Reverse(self.lateness[*channel]));
        let mut count = 0;
        let slowest = slowest_first.into_iter().find(|channel| {
            count += self.completed[*channel];
            count >= needed
        });
        let lateness = slowest.map_or(Duration::ZERO, |channel| self.lateness[channel]);
        self.target = if lateness > self.tolerated { lateness } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Three channels, of which the second is 3 ms later than the first, and the third 20 ms.
    fn equalizer() -> DelayEqualizer {
        let mut equalizer = DelayEqualizer::default();
        equalizer.set_lateness(&lateness([Some(0), Some(3), Some(20)]));
        equalizer
    }

    fn lateness(ms: [Option<u32>; 3]) -> ChannelLateness {
        ChannelLateness { channels: ms.map(|ms| ms.map(|ms| ms * MS)).to_vec(), tolerated: 5 * MS }
    }

    /// The delays of a symbol of each channel, after `symbols` symbols of which one in `every` is
    /// completed by the third channel.
    fn delays_ms(equalizer: &mut DelayEqualizer, symbols: u32, every: u32) -> [u128; 3] {
        for symbol in 0..symbols {
            equalizer.delay(if symbol % every == 0 { 2 } else { 0 });
        }
        [0, 1, 2].map(|channel| equalizer.clone().delay(channel).as_millis())
    }

    #[test]
    fn all_symbols_have_the_delay_of_the_slowest_channel_that_completes_many() {
        for every in [1, 2, 10] {
            assert_eq!(delays_ms(&mut equalizer(), 2000, every), [20, 17, 0], "one in {every}");
        }
        for every in [30, 100, 3000] {
            assert_eq!(delays_ms(&mut equalizer(), 2000, every), [0, 0, 0], "one in {every}");
        }
    }

    #[test]
    fn the_first_symbols_have_the_delay_of_the_slowest_channel() {
        assert_eq!(delays_ms(&mut equalizer(), 30, 100), [20, 17, 0]);
        assert_eq!(delays_ms(&mut equalizer(), 64, 100), [0, 0, 0]);
    }

    #[test]
    fn delays_follow_the_channels_in_use() {
        let mut equalizer = equalizer();
        assert_eq!(delays_ms(&mut equalizer, 2000, 3), [20, 17, 0]);
        assert_eq!(delays_ms(&mut equalizer, 2000, 3000), [0, 0, 0]);
        assert_eq!(delays_ms(&mut equalizer, 200, 3), [20, 17, 0]);
        // Nothing comes over the third channel any more.
        equalizer.set_lateness(&lateness([Some(0), Some(3), None]));
        assert_eq!(delays_ms(&mut equalizer, 0, 1), [0, 0, 0]);
    }

    #[test]
    fn similar_delays_are_left_as_they_are() {
        let mut equalizer = equalizer();
        let similar = ChannelLateness { tolerated: 20 * MS, ..lateness([Some(0), None, Some(20)]) };
        equalizer.set_lateness(&similar);
        assert_eq!(delays_ms(&mut equalizer, 2000, 2), [0, 0, 0]);
    }
}
