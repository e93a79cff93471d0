//! The content of a slot before it is sealed.

use zeroize::Zeroizing;

use crate::protocol::pair::TAG_LEN;

/// The longest text of a message in bytes.
pub const MAX_TEXT_LEN: usize = 64 << 10;
/// Bytes before the text.
const HEADER_LEN: usize = 34;
/// Set in the length of the last fragment of a message.
const LAST_FRAGMENT_FLAG: u16 = 1 << 15;
/// Set in the length if the acknowledgement is a refusal.
const REFUSED_FLAG: u16 = 1 << 14;
/// The bits of the length itself.
const LEN_MASK: u16 = REFUSED_FLAG - 1;
/// The bytes of a [`ConversationDigest`].
pub(crate) const DIGEST_LEN: usize = 8;

/// The first bytes of a SHA-256 digest, which distinguish two texts of the same partner. A partner
/// gains nothing from a collision, because it chooses both texts anyway.
pub(crate) type ConversationDigest = [u8; DIGEST_LEN];

/// How many bytes of text a slot carries.
pub(crate) const fn capacity(slot_len: usize) -> usize {
    slot_len - HEADER_LEN - TAG_LEN
}

/// What one end has received of the stream of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentAcknowledgement {
    /// The number of the last fragment up to which all have arrived, and the digest of all of them
    /// in order: see [`crate::protocol::conversation::chain`].
    Received(u32, ConversationDigest),
    /// The receiver rejects the rest of the stream, because a message is damaged or may have been
    /// shown before. Contains the greatest stamp of a shown message, or 0.
    Refused(u64),
}

/// The content of a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotContent<'a> {
    /// The number of the writer's stream.
    pub(crate) stream: u64,
    /// The number of the fragment in this stream, or 0 if there is no fragment.
    pub(crate) number: u32,
    /// The number of the partner's stream that is acknowledged, or 0 if there is none yet.
    pub(crate) acknowledged_stream: u64,
    /// The acknowledgement of the partner's stream.
    pub(crate) acknowledged: FragmentAcknowledgement,
    /// Whether the fragment ends a message.
    pub(crate) last: bool,
    /// The fragment.
    pub(crate) text: &'a [u8],
}

impl<'a> SlotContent<'a> {
    /// The content of a slot without a receiver.
    pub(crate) const NOTHING: Self = Self {
        stream: 0,
        number: 0,
        acknowledged_stream: 0,
        acknowledged: FragmentAcknowledgement::Received(0, [0; DIGEST_LEN]),
        last: false,
        text: &[],
    };

    /// The content as bytes of a slot of `slot_len` bytes, with zeros in place of the
    /// authenticator.
    pub(crate) fn encode(&self, slot_len: usize) -> Zeroizing<Vec<u8>> {
        let mut slot = Zeroizing::new(Vec::with_capacity(slot_len));
        slot.extend_from_slice(&self.stream.to_be_bytes());
        slot.extend_from_slice(&self.number.to_be_bytes());
        slot.extend_from_slice(&self.acknowledged_stream.to_be_bytes());
        let (received, value, refused) = match self.acknowledged {
            FragmentAcknowledgement::Received(number, digest) => (number, digest, 0),
            FragmentAcknowledgement::Refused(shown) => (0, shown.to_be_bytes(), REFUSED_FLAG),
        };
        slot.extend_from_slice(&received.to_be_bytes());
        slot.extend_from_slice(&value);
        let len = u16::try_from(self.text.len()).expect("a slot is shorter than 2^14 bytes");
        let last = if self.last { LAST_FRAGMENT_FLAG } else { 0 };
        slot.extend_from_slice(&(len | last | refused).to_be_bytes());
        slot.extend_from_slice(self.text);
        assert!(slot.len() + TAG_LEN <= slot_len, "the text fits into the slot");
        slot.resize(slot_len, 0);
        slot
    }

    /// Decodes the content of an opened slot; `None` if it is malformed.
    pub(crate) fn decode(slot: &'a [u8]) -> Option<Self> {
        let (stream, rest) = slot.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (acknowledged_stream, rest) = rest.split_first_chunk()?;
        let (received, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_first_chunk::<DIGEST_LEN>()?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = u16::from_be_bytes(*len);
        let text =
            rest.get(..rest.len().checked_sub(TAG_LEN)?)?.get(..usize::from(len & LEN_MASK))?;
        let acknowledged = if len & REFUSED_FLAG == 0 {
            FragmentAcknowledgement::Received(u32::from_be_bytes(*received), *value)
        } else {
            FragmentAcknowledgement::Refused(u64::from_be_bytes(*value))
        };
        Some(Self {
            stream: u64::from_be_bytes(*stream),
            number: u32::from_be_bytes(*number),
            acknowledged_stream: u64::from_be_bytes(*acknowledged_stream),
            acknowledged,
            last: len & LAST_FRAGMENT_FLAG != 0,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_content_round_trip() {
        for len in [0, 1, capacity(64)] {
            let text = vec![7; len];
            let content = SlotContent {
                stream: 1,
                number: 2,
                acknowledged_stream: 3,
                acknowledged: if len == 0 {
                    FragmentAcknowledgement::Refused(5)
                } else {
                    FragmentAcknowledgement::Received(4, [6; 8])
                },
                last: len == 1,
                text: &text,
            };
            let slot = content.encode(64);
            assert_eq!(slot.len(), 64);
            assert_eq!(SlotContent::decode(&slot), Some(content));
        }
        assert_eq!(capacity(64), 14);
    }

    #[test]
    fn slot_content_with_too_long_text_is_malformed() {
        let mut slot = [0; 64];
        assert!(SlotContent::decode(&slot).is_some());
        slot[33] = 14;
        assert!(SlotContent::decode(&slot).is_some());
        slot[33] = 15;
        assert_eq!(SlotContent::decode(&slot), None);
        assert!((0..50).all(|len| SlotContent::decode(&slot[..len]).is_none()));
    }
}
