//! The layout of a symbol, and its authentication tag.
//!
//! ```text
//! previous (1) | packets, or a control message | tag (8)
//! ```
//!
//! The guarantee and its proof are in `docs/protocols/remicss.md`, "The tag".

use sharing::keyed::{KeyedHash, TAG_LEN};
use thiserror::Error;

use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::datagram::SymbolKind;
use crate::protocol::wire::keys::TagPoints;

/// The maximum length of a symbol without its tag, in bytes: the tag covers a length of 16 bits.
pub const MAX_SYMBOL_LEN: usize = 65_535;

/// The contents of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolContents<'a> {
    /// The distance to the number of the flow's previous symbol; 0 if there is none that matters,
    /// 255 for 255 or more.
    pub previous: u8,
    /// One or more IP packets, a part of them, or a control message.
    pub content: &'a [u8],
}

/// The symbol was not sent with this kind, threshold and sequence, or is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the symbol's tag does not match")]
pub struct TamperedSymbol;

/// Computes and verifies the tags of one direction, with a separate point for each threshold.
/// Without points there are no tags.
pub struct SymbolTagger(Option<Vec<KeyedHash>>);

impl SymbolTagger {
    /// A tagger with the points of a direction.
    pub fn new(points: Option<&TagPoints>) -> Self {
        let thresholds = (1..).take(MAX_CHANNELS);
        Self(points.map(|points| thresholds.map(|k| KeyedHash::new(points.point(k))).collect()))
    }

    /// The length of a tag in bytes: 8, or 0 without tags.
    pub fn tag_len(&self) -> usize {
        if self.0.is_some() { TAG_LEN } else { 0 }
    }

    /// Appends the tag to a symbol, which consists of its first byte and its content.
    ///
    /// # Panics
    /// If the symbol is longer than [`MAX_SYMBOL_LEN`], or the threshold not from 1 to
    /// [`MAX_CHANNELS`].
    pub fn seal(&self, kind: SymbolKind, threshold: u8, sequence: u32, symbol: &mut Vec<u8>) {
        let Some(hashes) = &self.0 else { return };
        let last =
            last_block(symbol.len(), kind, threshold, sequence).expect("symbols fit 16 bits");
        let tag = hashes[usize::from(threshold) - 1].tag(symbol, last);
        symbol.extend_from_slice(&tag);
    }

    /// Verifies a joined symbol and returns its contents.
    ///
    /// # Errors
    /// If its tag does not match kind, threshold, sequence and bytes, or its length is impossible.
    pub fn open<'a>(
        &self,
        kind: SymbolKind,
        threshold: u8,
        sequence: u32,
        symbol: &'a [u8],
    ) -> Result<SymbolContents<'a>, TamperedSymbol> {
        let message = match &self.0 {
            None => symbol,
            Some(hashes) => {
                let hash =
                    hashes.get(usize::from(threshold).wrapping_sub(1)).ok_or(TamperedSymbol)?;
                let (message, tag) = symbol.split_last_chunk::<TAG_LEN>().ok_or(TamperedSymbol)?;
                let last =
                    last_block(message.len(), kind, threshold, sequence).ok_or(TamperedSymbol)?;
                hash.verify(message, last, *tag).map_err(|_| TamperedSymbol)?;
                message
            }
        };
        let (&previous, content) = message.split_first().ok_or(TamperedSymbol)?;
        Ok(SymbolContents { previous, content })
    }
}

/// The block B, which holds what the tag covers besides the bytes. `None` if the symbol is too
/// long.
fn last_block(len: usize, kind: SymbolKind, threshold: u8, sequence: u32) -> Option<u64> {
    let len = u16::try_from(len).ok()?;
    Some(
        u64::from(sequence) << 32
            | u64::from(threshold) << 24
            | u64::from(kind as u8) << 16
            | u64::from(len),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points() -> TagPoints {
        TagPoints::new(&std::array::from_fn(|k| [0xA0 + u8::try_from(k).unwrap(); 8]))
    }

    fn kinds() -> impl Strategy<Value = SymbolKind> {
        prop::sample::select(vec![
            SymbolKind::Packet,
            SymbolKind::PartialPacket,
            SymbolKind::Control,
            SymbolKind::Part,
        ])
    }

    /// A point of x^0 = 1 makes the tag the sum of all blocks.
    #[test]
    fn blocks_are_as_specified() {
        let one =
            SymbolTagger::new(Some(&TagPoints::new(&[[1, 0, 0, 0, 0, 0, 0, 0]; MAX_CHANNELS])));
        let mut symbol = vec![1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0x20];
        one.seal(SymbolKind::Control, 3, 0xAABB_CCDD, &mut symbol);
        let blocks = [
            [1, 2, 3, 4, 5, 6, 7, 8],
            [0x10, 0x20, 0, 0, 0, 0, 0, 0],
            // The length, the kind, k and the sequence.
            [10, 0, 2, 3, 0xDD, 0xCC, 0xBB, 0xAA],
        ];
        let sum = blocks.map(u64::from_le_bytes).iter().fold(0, |sum, block| sum ^ block);
        assert_eq!(symbol[10..], sum.to_le_bytes());
    }

    #[test]
    fn without_points_there_is_no_tag() {
        let none = SymbolTagger::new(None);
        let mut symbol = vec![7, 1, 2];
        none.seal(SymbolKind::Packet, 1, 5, &mut symbol);
        assert_eq!((symbol.len(), none.tag_len()), (3, 0));
        let contents = SymbolContents { previous: 7, content: &[1, 2][..] };
        assert_eq!(none.open(SymbolKind::Packet, 1, 5, &symbol), Ok(contents));
        assert_eq!(none.open(SymbolKind::Packet, 1, 5, &[]), Err(TamperedSymbol));
    }

    #[test]
    fn malformed_symbols_are_rejected() {
        let tagger = SymbolTagger::new(Some(&points()));
        for len in [0, 1, 7, 8, 70_000] {
            assert_eq!(tagger.open(SymbolKind::Packet, 1, 0, &vec![0; len]), Err(TamperedSymbol));
        }
        for threshold in [0, 17, 255] {
            assert_eq!(
                tagger.open(SymbolKind::Packet, threshold, 0, &[0; 20]),
                Err(TamperedSymbol)
            );
        }
        // A tag alone, with no first byte before it.
        let mut nothing = Vec::new();
        tagger.seal(SymbolKind::Packet, 1, 0, &mut nothing);
        assert_eq!(tagger.open(SymbolKind::Packet, 1, 0, &nothing), Err(TamperedSymbol));
    }

    proptest! {
        #[test]
        fn only_sealed_symbols_open(
            content in prop::collection::vec(any::<u8>(), 0..80),
            kind in kinds(), threshold in 1..=16_u8, sequence: u32,
            other_kind in kinds(), other_threshold in 1..=16_u8, other_sequence: u32,
            place: prop::sample::Index, bit in 0..8_u8,
        ) {
            let tagger = SymbolTagger::new(Some(&points()));
            let mut symbol = [&[9][..], &content].concat();
            tagger.seal(kind, threshold, sequence, &mut symbol);
            let contents = SymbolContents { previous: 9, content: &content };
            prop_assert_eq!(tagger.open(kind, threshold, sequence, &symbol), Ok(contents));
            let header = (kind, threshold, sequence);
            for (kind, threshold, sequence) in [
                (other_kind, threshold, sequence),
                (kind, other_threshold, sequence),
                (kind, threshold, other_sequence),
            ] {
                if (kind, threshold, sequence) != header {
                    let opened = tagger.open(kind, threshold, sequence, &symbol);
                    prop_assert_eq!(opened, Err(TamperedSymbol));
                }
            }
            prop_assert_eq!(
                tagger.open(kind, threshold, sequence, &symbol[..symbol.len() - 1]),
                Err(TamperedSymbol)
            );
            let place = place.index(symbol.len());
            symbol[place] ^= 1 << bit;
            prop_assert_eq!(tagger.open(kind, threshold, sequence, &symbol), Err(TamperedSymbol));
        }
    }
}
