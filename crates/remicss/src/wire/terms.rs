//! What the ends agree on in the handshake.

use association::{Protocol, Scheme};
use model::Subset;
use thiserror::Error;

use crate::wire::datagram::MAX_CHANNELS;
use crate::wire::options::Options;

/// What the ends agree on: 1 <= floor <= least <= channels <= [`MAX_CHANNELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    channels: u8,
    floor: u8,
    tags: bool,
    least: u8,
}

/// There can be no such terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TermsError {
    /// Too many channels, or none.
    #[error("{0} channels are not 1 to {MAX_CHANNELS}")]
    Channels(u8),
    /// The privacy floor is no threshold.
    #[error("the privacy floor {floor} is not 1 to {channels}, the number of channels")]
    Floor {
        /// The floor asked for.
        floor: u8,
        /// The number of channels.
        channels: u8,
    },
    /// Fewer channels than the floor, or more than there are, cannot be the least to begin with.
    #[error("{least} channels to begin with are not {floor} (the privacy floor) to {channels}")]
    Least {
        /// The number asked for.
        least: u8,
        /// The floor.
        floor: u8,
        /// The number of channels.
        channels: u8,
    },
}

impl Terms {
    /// Terms for so many channels, all of which are needed to begin, with no symbol of a threshold below
    /// `floor`, and `tags` inside symbols that show changes.
    ///
    /// # Errors
    /// Unless 1 <= floor <= channels <= [`MAX_CHANNELS`].
    pub fn new(channels: u8, floor: u8, tags: bool) -> Result<Self, TermsError> {
        if !(1..=MAX_CHANNELS).contains(&usize::from(channels)) {
            return Err(TermsError::Channels(channels));
        }
        if !(1..=channels).contains(&floor) {
            return Err(TermsError::Floor { floor, channels });
        }
        Ok(Self { channels, floor, tags, least: channels })
    }

    /// The same where an association may begin with `least` channels.
    ///
    /// # Errors
    /// Unless floor <= least <= channels.
    pub fn with_least(self, least: u8) -> Result<Self, TermsError> {
        let Self { floor, channels, .. } = self;
        if !(floor..=channels).contains(&least) {
            return Err(TermsError::Least { least, floor, channels });
        }
        Ok(Self { least, ..self })
    }

    /// How many channels there are: n.
    pub fn channels(self) -> u8 {
        self.channels
    }

    /// The privacy floor f.
    pub fn floor(self) -> u8 {
        self.floor
    }

    /// True if symbols have tags.
    pub fn tags(self) -> bool {
        self.tags
    }

    /// How many channels an association must have, at least, to begin.
    pub fn least(self) -> u8 {
        self.least
    }

    /// All channels.
    pub(crate) fn all(self) -> Subset {
        Subset::first(self.channels.into())
    }

    /// As the association of these members has them, of which there are at least as many as the floor.
    pub(crate) fn wire(self, members: Subset) -> association::Terms {
        let count = u8::try_from(members.len()).expect("at most 16 channels");
        let options = Options { tags: self.tags, channels: self.channels, members };
        association::Terms::new(
            Protocol::ReMicssDatagrams,
            Scheme::Shamir,
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
        assert_eq!(Terms::new(0, 1, true), Err(TermsError::Channels(0)));
        assert_eq!(Terms::new(17, 1, true), Err(TermsError::Channels(17)));
        assert_eq!(Terms::new(3, 0, true), Err(TermsError::Floor { floor: 0, channels: 3 }));
        assert_eq!(Terms::new(3, 4, true), Err(TermsError::Floor { floor: 4, channels: 3 }));
        assert!(Terms::new(1, 1, true).is_ok());
        assert!(Terms::new(16, 16, false).is_ok());
        let terms = Terms::new(4, 2, true).unwrap();
        let least = |least| TermsError::Least { least, floor: 2, channels: 4 };
        assert_eq!(terms.least(), 4);
        assert_eq!(terms.with_least(1), Err(least(1)));
        assert_eq!(terms.with_least(5), Err(least(5)));
        assert_eq!(terms.with_least(2).map(Terms::least), Ok(2));
    }
}
