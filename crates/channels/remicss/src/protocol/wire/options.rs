//! The option bits of the association's terms: the number of channels, which of them are members,
//! and whether symbols have tags.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | 1: no tags |
//! | 8 to 12 | n, the number of channels that are configured |
//! | 16 to 31 | the members: bit 16 + i for channel i |
//!
//! All others are 0. The association binds them like all of its terms, so both ends agree on the
//! members.

use model::ChannelSubset;

use crate::protocol::wire::datagram::MAX_CHANNELS;

const NO_TAGS: u32 = 1;
const CHANNELS_SHIFT: u32 = 8;
const CHANNELS: u32 = 0x1f << CHANNELS_SHIFT;
const MEMBERS_SHIFT: u32 = 16;

/// The decoded option bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelOptionBits {
    /// Whether symbols have tags.
    pub(crate) tags: bool,
    /// The number n of configured channels.
    pub(crate) channels: u8,
    /// The members of the association.
    pub(crate) members: ChannelSubset,
}

impl TunnelOptionBits {
    /// Encodes the options.
    pub(crate) fn encode(self) -> u32 {
        let members = self.members.iter().fold(0, |bits, channel| bits | 1 << channel);
        let tags = if self.tags { 0 } else { NO_TAGS };
        tags | u32::from(self.channels) << CHANNELS_SHIFT | members << MEMBERS_SHIFT
    }

    /// Decodes option bits. `None` if an unknown bit is set, or the members are not among the
    /// channels.
    pub(crate) fn parse(bits: u32) -> Option<Self> {
        let channels = u8::try_from((bits & CHANNELS) >> CHANNELS_SHIFT).ok()?;
        let members = bits >> MEMBERS_SHIFT;
        let members: ChannelSubset = (0..MAX_CHANNELS).filter(|i| members >> i & 1 == 1).collect();
        let options = Self { tags: bits & NO_TAGS == 0, channels, members };
        let is_one = options.encode() == bits
            && (1..=MAX_CHANNELS).contains(&usize::from(channels))
            && ChannelSubset::first(channels.into()).includes(members);
        is_one.then_some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_as_specified() {
        let members = [0, 2].into_iter().collect();
        let options = TunnelOptionBits { tags: false, channels: 3, members };
        assert_eq!(options.encode(), 0x0005_0301);
        assert_eq!(TunnelOptionBits::parse(0x0005_0301), Some(options));
        let all = TunnelOptionBits { tags: true, channels: 16, members: ChannelSubset::first(16) };
        assert_eq!(all.encode(), 0xffff_1000);
        assert_eq!(TunnelOptionBits::parse(0xffff_1000), Some(all));
    }

    #[test]
    fn bits_without_meaning_are_refused() {
        for bits in [0x0005_0302, 0x0005_2301, 0x0008_0300, 0x0000_0000, 0x0001_1100] {
            assert_eq!(TunnelOptionBits::parse(bits), None, "{bits:#010x}");
        }
    }
}
