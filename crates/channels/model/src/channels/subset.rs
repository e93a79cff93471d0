//! Sets of channels, and a selection of shares on one: the pair (k, M) of the paper's III-C.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

/// The largest number of channels in a plan.
pub const MAX_CHANNELS: usize = 20;

/// A set M of channels of a [`crate::ChannelSet`], by index.
///
/// ```
/// use sunder_model::ChannelSubset;
///
/// let channels: ChannelSubset = [4, 0, 2].into_iter().collect();
/// assert_eq!(channels.to_string(), "{0, 2, 4}");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelSubset(u32);

impl ChannelSubset {
    /// No channel.
    pub const EMPTY: Self = Self(0);

    /// The first `n` channels, or all channels if `n` is larger than [`MAX_CHANNELS`].
    pub fn first(n: usize) -> Self {
        (0..n.min(MAX_CHANNELS)).collect()
    }

    /// This set with `channel` added. A channel that is not below [`MAX_CHANNELS`] is ignored.
    #[must_use]
    pub fn with(self, channel: usize) -> Self {
        if channel < MAX_CHANNELS { Self(self.0 | 1 << channel) } else { self }
    }

    /// Whether `channel` is in it.
    pub fn contains(self, channel: usize) -> bool {
        channel < MAX_CHANNELS && self.0 >> channel & 1 == 1
    }

    /// Whether every channel of `other` is in it.
    pub fn includes(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The number of channels: |M|.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The channels' indices, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        // For each symbol that a tunnel sends, this runs several times: visit the set bits only.
        std::iter::from_fn(move || {
            let channel = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(channel)
        })
    }
}

/// The channels' indices in braces, ascending.
impl fmt::Display for ChannelSubset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Debug for ChannelSubset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromIterator<usize> for ChannelSubset {
    fn from_iter<I: IntoIterator<Item = usize>>(channels: I) -> Self {
        channels.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// The channels that have each name, of the names of all channels in their order.
pub fn channels_by_name<'a>(
    names: impl IntoIterator<Item = Option<&'a str>>,
) -> BTreeMap<&'a str, ChannelSubset> {
    let mut channels = BTreeMap::new();
    for (channel, name) in names.into_iter().enumerate() {
        if let Some(name) = name {
            let named = channels.entry(name).or_insert(ChannelSubset::EMPTY);
            *named = named.with(channel);
        }
    }
    channels
}

/// How one symbol is sent: one share on each channel of M, any k of which reconstruct it (III-C).
/// The paper calls the set of all selections the calligraphic M.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareSelection {
    k: usize,
    channels: ChannelSubset,
}

/// The threshold is not within 1 to |M|.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a threshold of {k} is not within 1 to {m}, the number of channels used")]
pub struct ShareSelectionError {
    k: usize,
    m: usize,
}

impl ShareSelection {
    /// A selection with one share on each of `channels` and the threshold `k`.
    ///
    /// # Errors
    /// Unless 1 <= k <= |M|.
    pub fn new(k: usize, channels: ChannelSubset) -> Result<Self, ShareSelectionError> {
        let m = channels.len();
        if k < 1 || k > m { Err(ShareSelectionError { k, m }) } else { Ok(Self { k, channels }) }
    }

    /// The number of shares that reconstruct the symbol: k.
    pub fn k(self) -> usize {
        self.k
    }

    /// The number of shares: m.
    pub fn m(self) -> usize {
        self.channels.len()
    }

    /// The channels that carry one share each: M.
    pub fn channels(self) -> ChannelSubset {
        self.channels
    }
}
