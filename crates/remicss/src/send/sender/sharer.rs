//! From a symbol to datagrams, one in each channel's batch.

use model::Threshold;
use sharing::{Generator, SplitError, Splitter};

use crate::send::batch::Batch;
use crate::wire::datagram::MAX_CHANNELS;
use crate::wire::datagram::{HEADER_LEN, Header, Kind, sequence};
use crate::wire::keys::Direction;
use crate::wire::symbol::Tagger;
use crate::wire::tokens::ShareTokens;

/// How many splitters are kept. Only the first m that are ready of very many channels are more.
const MAX_SPLITTERS: usize = 1024;

/// Seals symbols and splits them, straight into the batches.
pub(super) struct Sharer {
    tokens: ShareTokens,
    tagger: Tagger,
    splitters: Splitters,
    generator: Generator,
}

impl Sharer {
    pub(super) fn new(direction: &Direction, generator: Generator) -> Self {
        Self {
            tokens: ShareTokens::new(&direction.tokens, direction.channels),
            tagger: Tagger::new(direction.points.as_ref()),
            splitters: Splitters(Vec::new()),
            generator,
        }
    }

    /// What makes the tokens.
    pub(super) fn tokens(&self) -> &ShareTokens {
        &self.tokens
    }

    /// How long the datagrams of a symbol are that is not sealed yet.
    pub(super) fn datagram_len(&self, symbol: &[u8]) -> usize {
        HEADER_LEN + symbol.len() + self.tagger.tag_len()
    }

    /// Seals a symbol, and adds a share to the batch of each channel of the threshold.
    ///
    /// # Errors
    /// If there are no random bytes. Nothing is added then.
    pub(super) fn share(
        &mut self,
        kind: Kind,
        threshold: Threshold,
        number: u64,
        symbol: &mut Vec<u8>,
        batches: &mut [Batch],
    ) -> Result<(), SplitError> {
        let k = byte(threshold.k());
        self.tagger.seal(kind, k, sequence(number), symbol);
        let mut shares: [&mut [u8]; MAX_CHANNELS] = Default::default();
        let used = batches.iter_mut().enumerate();
        let used = used.filter(|(channel, _)| threshold.channels().contains(*channel));
        for (share, (channel, batch)) in shares.iter_mut().zip(used) {
            let header = Header::new(kind, k, number, channel, &mut self.tokens);
            let datagram = batch.reserve(HEADER_LEN + symbol.len());
            let (head, body) = datagram.split_at_mut(HEADER_LEN);
            head.copy_from_slice(&header.encode());
            *share = body;
        }
        let used = self.splitters.of(threshold);
        let split = used.splitter.split(symbol, &mut shares[..threshold.m()], &mut self.generator);
        match split {
            Ok(()) => used.symbols += u64::from(kind != Kind::Control),
            Err(_) => threshold.channels().iter().for_each(|channel| batches[channel].withdraw()),
        }
        split
    }

    /// How many symbols of packets each threshold was used for.
    pub(super) fn uses(&self) -> impl Iterator<Item = (Threshold, u64)> {
        self.splitters.0.iter().map(|used| (used.threshold, used.symbols))
    }
}

/// The thresholds that were used, in their order.
struct Splitters(Vec<Used>);

/// A threshold that was used.
struct Used {
    threshold: Threshold,
    splitter: Splitter,
    /// For how many symbols of packets.
    symbols: u64,
}

impl Splitters {
    fn of(&mut self, threshold: Threshold) -> &mut Used {
        let place = match self.0.binary_search_by_key(&threshold, |used| used.threshold) {
            Ok(place) => place,
            Err(place) => {
                if self.0.len() == MAX_SPLITTERS {
                    self.0.clear();
                }
                let place = place.min(self.0.len());
                let used = Used { threshold, splitter: splitter(threshold), symbols: 0 };
                self.0.insert(place, used);
                place
            }
        };
        &mut self.0[place]
    }
}

/// Channel i has the share at i + 1.
fn splitter(threshold: Threshold) -> Splitter {
    let coordinates: Vec<u8> = threshold.channels().iter().map(|i| byte(i) + 1).collect();
    Splitter::at(byte(threshold.k()), &coordinates).expect("1 <= k <= m, and no channel twice")
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).expect("channels are 16 at most")
}
