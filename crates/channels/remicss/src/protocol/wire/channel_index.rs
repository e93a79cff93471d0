//! The two ways to index channels.
//!
//! Sets of channels and plain indices refer to configured channels everywhere in this crate. Only a
//! List of the handshake and a plan of the model index the channels that they contain.

use model::ChannelSubset;

/// A channel by its place in the configuration, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredIndex(pub(crate) usize);

/// A channel by its place among some of the configured channels, from 0: the members of an
/// association, or those that a plan may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveIndex(pub(crate) usize);

impl ConfiguredIndex {
    /// The place of this channel among `live`; `None` if it is not one of them.
    pub(crate) fn live_index(self, live: ChannelSubset) -> Option<LiveIndex> {
        live.iter().position(|channel| channel == self.0).map(LiveIndex)
    }
}

impl LiveIndex {
    /// The channel at this place among `live`; `None` if there are fewer.
    pub(crate) fn configured_index(self, live: ChannelSubset) -> Option<ConfiguredIndex> {
        live.iter().nth(self.0).map(ConfiguredIndex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_channels_are_counted_without_gaps() {
        let live: ChannelSubset = [1, 3, 4].into_iter().collect();
        let among = [0, 1, 2, 3, 4].map(|channel| ConfiguredIndex(channel).live_index(live));
        let expected = [None, Some(0), None, Some(1), Some(2)].map(|place| place.map(LiveIndex));
        assert_eq!(among, expected);
        for place in among.into_iter().flatten() {
            assert_eq!(
                place.configured_index(live).and_then(|channel| channel.live_index(live)),
                Some(place)
            );
        }
        assert_eq!(LiveIndex(3).configured_index(live), None);
    }
}
