//! Encodes a symbol as datagrams, one in each channel's batch.

use model::ShareSelection;
use random::RandomGenerator;
use sharing::{ShareSplitError, Splitter};

use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::datagram::{HEADER_LEN, SymbolKind, SymbolShareHeader, sequence};
use crate::protocol::wire::keys::DirectionKeys;
use crate::protocol::wire::symbol::SymbolTagger;
use crate::protocol::wire::tokens::ShareTokens;
use udp::DatagramBatch;

/// The maximum number of cached splitters. Only the dynamic scheduler over many channels exceeds
/// it.
const MAX_SPLITTERS: usize = 1024;

/// Appends tags to symbols and splits them directly into the batches.
pub(super) struct SymbolEncoder {
    tokens: ShareTokens,
    tagger: SymbolTagger,
    splitters: SplitterCache,
    generator: RandomGenerator,
}

impl SymbolEncoder {
    pub(super) fn new(direction: &DirectionKeys, generator: RandomGenerator) -> Self {
        Self {
            tokens: ShareTokens::new(&direction.tokens, direction.channels),
            tagger: SymbolTagger::new(direction.points.as_ref()),
            splitters: SplitterCache(Vec::new()),
            generator,
        }
    }

    /// The token generator.
    pub(super) fn tokens(&self) -> &ShareTokens {
        &self.tokens
    }

    /// The length of the datagrams of a symbol that has no tag yet.
    pub(super) fn datagram_len(&self, symbol: &[u8]) -> usize {
        HEADER_LEN + symbol.len() + self.tagger.tag_len()
    }

    /// Appends the tag to a symbol, and adds a share to the batch of each channel of the threshold.
    ///
    /// # Errors
    /// If the random source fails. Nothing is added then.
    pub(super) fn encode(
        &mut self,
        kind: SymbolKind,
        threshold: ShareSelection,
        number: u64,
        symbol: &mut Vec<u8>,
        batches: &mut [DatagramBatch],
    ) -> Result<(), ShareSplitError> {
        let k = byte(threshold.k());
        self.tagger.seal(kind, k, sequence(number), symbol);
        let mut shares: [&mut [u8]; MAX_CHANNELS] = Default::default();
        let used = batches.iter_mut().enumerate();
        let used = used.filter(|(channel, _)| threshold.channels().contains(*channel));
        for (share, (channel, batch)) in shares.iter_mut().zip(used) {
            let header = SymbolShareHeader::new(kind, k, number, channel, &mut self.tokens);
            let datagram = batch.reserve(HEADER_LEN + symbol.len());
            let (head, body) = datagram.split_at_mut(HEADER_LEN);
            head.copy_from_slice(&header.encode());
            *share = body;
        }
        let used = self.splitters.get_or_insert(threshold);
        let split = used.splitter.split(symbol, &mut shares[..threshold.m()], &mut self.generator);
        match split {
            Ok(()) => used.symbols += u64::from(kind != SymbolKind::Control),
            Err(_) => {
                threshold.channels().iter().for_each(|channel| batches[channel].remove_last());
            }
        }
        split
    }

    /// How many symbols of packets each threshold was used for.
    pub(super) fn threshold_uses(&self) -> impl Iterator<Item = (ShareSelection, u64)> {
        self.splitters.0.iter().map(|used| (used.threshold, used.symbols))
    }
}

/// The thresholds that were used, sorted.
struct SplitterCache(Vec<ThresholdUse>);

/// A threshold that was used.
struct ThresholdUse {
    threshold: ShareSelection,
    splitter: Splitter,
    /// The number of symbols of packets.
    symbols: u64,
}

impl SplitterCache {
    fn get_or_insert(&mut self, threshold: ShareSelection) -> &mut ThresholdUse {
        let place = match self.0.binary_search_by_key(&threshold, |used| used.threshold) {
            Ok(place) => place,
            Err(place) => {
                if self.0.len() == MAX_SPLITTERS {
                    self.0.clear();
                }
                let place = place.min(self.0.len());
                let used = ThresholdUse { threshold, splitter: splitter(threshold), symbols: 0 };
                self.0.insert(place, used);
                place
            }
        };
        &mut self.0[place]
    }
}

/// Channel i has the share at coordinate i + 1.
fn splitter(threshold: ShareSelection) -> Splitter {
    let coordinates: Vec<u8> = threshold.channels().iter().map(|i| byte(i) + 1).collect();
    Splitter::for_coordinates(byte(threshold.k()), &coordinates)
        .expect("1 <= k <= m, and no channel twice")
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).expect("channels are 16 at most")
}
