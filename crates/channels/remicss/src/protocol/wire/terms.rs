//! The terms on which the ends agree in the handshake.

use association::{AssociationProtocol, SharingScheme};
use model::ChannelSubset;
use thiserror::Error;

use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::options::TunnelOptionBits;

/// The terms of an association: 1 <= floor <= least <= channels <= [`MAX_CHANNELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelTerms {
    channels: u8,
    floor: u8,
    tags: bool,
    min_channels: u8,
}

/// Invalid terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TunnelTermsError {
    /// Too many channels, or none.
    #[error("{0} channels are not 1 to {MAX_CHANNELS}")]
    Channels(u8),
    /// The privacy floor is not a possible threshold.
    #[error("the privacy floor {floor} is not 1 to {channels}, the number of channels")]
    Floor {
        /// The requested floor.
        floor: u8,
        /// The number of channels.
        channels: u8,
    },
    /// The minimum number of channels is below the floor, or above the number of channels.
    #[error(
        "min_channels = {min_channels} is not within {floor} (the privacy floor) to {channels}"
    )]
    MinChannels {
        /// The requested number.
        min_channels: u8,
        /// The floor.
        floor: u8,
        /// The number of channels.
        channels: u8,
    },
}

impl TunnelTerms {
    /// Terms for `channels` channels, all of which are needed to start, a privacy floor, and
    /// symbols with or without `tags`.
    ///
    /// # Errors
    /// Unless 1 <= floor <= channels <= [`MAX_CHANNELS`].
    pub fn new(channels: u8, floor: u8, tags: bool) -> Result<Self, TunnelTermsError> {
        if !(1..=MAX_CHANNELS).contains(&usize::from(channels)) {
            return Err(TunnelTermsError::Channels(channels));
        }
        if !(1..=channels).contains(&floor) {
            return Err(TunnelTermsError::Floor { floor, channels });
        }
        Ok(Self { channels, floor, tags, min_channels: channels })
    }

    /// The same, but an association may start with `min_channels` channels.
    ///
    /// # Errors
    /// Unless floor <= least <= channels.
    pub fn with_min_channels(self, min_channels: u8) -> Result<Self, TunnelTermsError> {
        let Self { floor, channels, .. } = self;
        if !(floor..=channels).contains(&min_channels) {
            return Err(TunnelTermsError::MinChannels { min_channels, floor, channels });
        }
        Ok(Self { min_channels, ..self })
    }

    /// The number n of channels.
    pub fn channels(self) -> u8 {
        self.channels
    }

    /// The privacy floor f.
    pub fn floor(self) -> u8 {
        self.floor
    }

    /// Whether symbols have tags.
    pub fn tags(self) -> bool {
        self.tags
    }

    /// The minimum number of members of an association.
    pub fn min_channels(self) -> u8 {
        self.min_channels
    }

    /// All channels.
    pub(crate) fn all(self) -> ChannelSubset {
        ChannelSubset::first(self.channels.into())
    }

    /// The terms of an association with these members, of which there are at least as many as the
    /// floor.
    pub(crate) fn association_terms(self, members: ChannelSubset) -> association::AssociationTerms {
        let count = u8::try_from(members.len()).expect("at most 16 channels");
        let options = TunnelOptionBits { tags: self.tags, channels: self.channels, members };
        association::AssociationTerms::new(
            AssociationProtocol::ReMicssDatagrams,
            SharingScheme::Shamir,
            self.floor,
            count,
            options.encode(),
        )
        .expect("a floor of 1 to the number of members")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_must_fit() {
        assert_eq!(TunnelTerms::new(0, 1, true), Err(TunnelTermsError::Channels(0)));
        assert_eq!(TunnelTerms::new(17, 1, true), Err(TunnelTermsError::Channels(17)));
        assert_eq!(
            TunnelTerms::new(3, 0, true),
            Err(TunnelTermsError::Floor { floor: 0, channels: 3 })
        );
        assert_eq!(
            TunnelTerms::new(3, 4, true),
            Err(TunnelTermsError::Floor { floor: 4, channels: 3 })
        );
        assert!(TunnelTerms::new(1, 1, true).is_ok());
        assert!(TunnelTerms::new(16, 16, false).is_ok());
        let terms = TunnelTerms::new(4, 2, true).unwrap();
        let min_channels =
            |min_channels| TunnelTermsError::MinChannels { min_channels, floor: 2, channels: 4 };
        assert_eq!(terms.min_channels(), 4);
        assert_eq!(terms.with_min_channels(1), Err(min_channels(1)));
        assert_eq!(terms.with_min_channels(5), Err(min_channels(5)));
        assert_eq!(terms.with_min_channels(2).map(TunnelTerms::min_channels), Ok(2));
    }
}
