//! What is in a slot, before it is sealed.

use zeroize::Zeroizing;

use crate::pair::TAG_LEN;

/// The longest text of a message in bytes.
pub const MAX_TEXT_LEN: usize = 64 << 10;
/// Bytes before the text.
const HEADER_LEN: usize = 26;
/// Set in the length of the last fragment of a message.
const LAST: u16 = 1 << 15;

/// How many bytes of text a slot carries.
pub(crate) const fn capacity(slot_len: usize) -> usize {
    slot_len - HEADER_LEN - TAG_LEN
}

/// The content of a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content<'a> {
    /// The stream of what the writer sends.
    pub(crate) stream: u64,
    /// The number of the fragment in it, or 0: there is none.
    pub(crate) number: u32,
    /// The stream of what the writer receives, or 0: none yet.
    pub(crate) acknowledged_stream: u64,
    /// All its fragments up to this one have arrived.
    pub(crate) acknowledged: u32,
    /// Whether the fragment ends a message.
    pub(crate) last: bool,
    /// The fragment.
    pub(crate) text: &'a [u8],
}

impl<'a> Content<'a> {
    /// What is in a slot that is for nobody.
    pub(crate) const NOTHING: Self = Self {
        stream: 0,
        number: 0,
        acknowledged_stream: 0,
        acknowledged: 0,
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
        slot.extend_from_slice(&self.acknowledged.to_be_bytes());
        let len = u16::try_from(self.text.len()).expect("a slot is shorter than 2^15 bytes");
        slot.extend_from_slice(&(len | if self.last { LAST } else { 0 }).to_be_bytes());
        slot.extend_from_slice(self.text);
        assert!(slot.len() + TAG_LEN <= slot_len, "the text fits into the slot");
        slot.resize(slot_len, 0);
        slot
    }

    /// The content of a slot that was opened; `None` if it is none.
    pub(crate) fn decode(slot: &'a [u8]) -> Option<Self> {
        let (stream, rest) = slot.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (acknowledged_stream, rest) = rest.split_first_chunk()?;
        let (acknowledged, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = u16::from_be_bytes(*len);
        let text = rest.get(..rest.len().checked_sub(TAG_LEN)?)?.get(..usize::from(len & !LAST))?;
        Some(Self {
            stream: u64::from_be_bytes(*stream),
            number: u32::from_be_bytes(*number),
            acknowledged_stream: u64::from_be_bytes(*acknowledged_stream),
            acknowledged: u32::from_be_bytes(*acknowledged),
            last: len & LAST != 0,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for len in [0, 1, capacity(64)] {
            let text = vec![7; len];
            let content = Content {
                stream: 1,
                number: 2,
                acknowledged_stream: 3,
                acknowledged: 4,
                last: len == 1,
                text: &text,
            };
            let slot = content.encode(64);
            assert_eq!(slot.len(), 64);
            assert_eq!(Content::decode(&slot), Some(content));
        }
        assert_eq!(capacity(64), 22);
    }

    #[test]
    fn what_is_too_long_is_none() {
        let mut slot = [0; 64];
        assert!(Content::decode(&slot).is_some());
        slot[25] = 22;
        assert!(Content::decode(&slot).is_some());
        slot[25] = 23;
        assert_eq!(Content::decode(&slot), None);
        assert!((0..42).all(|len| Content::decode(&slot[..len]).is_none()));
    }
}
