//! The channels of a tunnel that share a fate.

use model::{ChannelSubset, MAX_GROUPS, channels_by_name};

/// The channels of each shared fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedFates([ChannelSubset; MAX_GROUPS]);

impl SharedFates {
    /// Those of channels whose fates have these names, in the channels' order. Names beyond
    /// [`MAX_GROUPS`] are ignored, in alphabetical order.
    pub fn new<'a>(names: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut fates = Self::default();
        for (fate, channels) in fates.0.iter_mut().zip(channels_by_name(names).into_values()) {
            *fate = channels;
        }
        fates
    }

    /// The channels of each.
    pub fn sets(&self) -> Vec<ChannelSubset> {
        self.0.iter().copied().filter(|channels| !channels.is_empty()).collect()
    }
}
