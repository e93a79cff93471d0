//! A sender, a receiver and the delivered packets.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use random::RandomGenerator;
use sharing::Splitter;
use sunder_remicss::recv::receiver::{SymbolReceiver, SymbolReceiverLimits};
use sunder_remicss::recv::symbol_sink::{ControlShare, SymbolSink};
use sunder_remicss::wire::datagram::{HEADER_LEN, SymbolKind, first, sequence};
use sunder_remicss::wire::keys::{DirectionKeys, TagPoints};
use sunder_remicss::wire::symbol::SymbolTagger;
use sunder_remicss::wire::tokens::{ShareTokens, TokenKey};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Both ends of a direction.
pub(crate) struct Scenario {
    pub(crate) keys: DirectionKeys,
    tagger: SymbolTagger,
    generator: RandomGenerator,
    splitters: HashMap<(u8, Vec<u8>), Splitter>,
    pub(crate) receiver: SymbolReceiver,
    pub(crate) out: Sink,
    pub(crate) now: Duration,
}

/// A symbol to send.
#[derive(Clone, Copy)]
pub(crate) struct Symbol<'a> {
    pub(crate) number: u64,
    pub(crate) kind: SymbolKind,
    pub(crate) k: u8,
    pub(crate) channels: &'a [usize],
    pub(crate) previous: u8,
    pub(crate) content: &'a [u8],
}

/// Everything that was delivered.
#[derive(Default)]
pub(crate) struct Sink {
    pub(crate) packets: Vec<(SymbolKind, Vec<u8>)>,
    pub(crate) controls: Vec<(u64, Vec<u8>)>,
    pub(crate) control_shares: Vec<ControlShare>,
}

impl SymbolSink for Sink {
    fn packets(&mut self, kind: SymbolKind, packets: &[u8]) {
        self.packets.push((kind, packets.to_vec()));
    }

    fn control(&mut self, number: u64, message: &[u8]) {
        self.controls.push((number, message.to_vec()));
    }

    fn control_share(&mut self, share: ControlShare) {
        assert!(
            self.controls.iter().any(|(number, _)| *number == share.number),
            "before its message"
        );
        self.control_shares.push(share);
    }
}

impl Scenario {
    pub(crate) fn new(n: usize, floor: u8) -> Self {
        Self::with(n, floor, true, small())
    }

    pub(crate) fn with(n: usize, floor: u8, tags: bool, limits: SymbolReceiverLimits) -> Self {
        let byte = |i: usize| u8::try_from(i).unwrap();
        let keys = DirectionKeys {
            channels: n,
            tokens: TokenKey::new(&[0x78; 16]),
            points: tags.then(|| {
                TagPoints::new(&std::array::from_fn(|k| [0x35, 1, 2, 3, 4, 5, 6, byte(k)]))
            }),
        };
        Self {
            tagger: SymbolTagger::new(keys.points.as_ref()),
            generator: RandomGenerator::seeded().unwrap(),
            splitters: HashMap::new(),
            receiver: SymbolReceiver::new(&keys, floor, limits),
            out: Sink::default(),
            now: Duration::ZERO,
            keys,
        }
    }

    /// A symbol's datagrams, in the order of its channels.
    pub(crate) fn datagrams(&mut self, symbol: Symbol<'_>) -> Vec<Vec<u8>> {
        let Symbol { number, kind, k, channels, previous, content } = symbol;
        let mut whole = [&[previous][..], content].concat();
        self.tagger.seal(kind, k, sequence(number), &mut whole);
        let coordinates: Vec<u8> = channels.iter().map(|&i| i as u8 + 1).collect();
        let splitter = self
            .splitters
            .entry((k, coordinates.clone()))
            .or_insert_with(|| Splitter::for_coordinates(k, &coordinates).unwrap());
        let mut shares = vec![vec![0; whole.len()]; channels.len()];
        let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
        splitter.split(&whole, &mut views, &mut self.generator).unwrap();
        let header = |i: usize| header(&self.keys, first(kind, k), i, number);
        channels.iter().zip(shares).map(|(&i, share)| [&header(i)[..], &share].concat()).collect()
    }

    pub(crate) fn arrive(&mut self, channel: usize, datagram: &[u8]) {
        self.receiver.handle_share(channel, from(channel), datagram, self.now, &mut self.out);
    }

    /// Sends a packet with a number and k of all channels, through `change`, in the channels'
    /// order.
    pub(crate) fn send(&mut self, number: u64, k: u8, mut change: impl FnMut(usize, &mut Vec<u8>)) {
        let channels: Vec<usize> = (0..self.keys.channels).collect();
        let content = content(number);
        for (i, mut datagram) in
            self.datagrams(packet(number, k, &channels, &content)).into_iter().enumerate()
        {
            change(i, &mut datagram);
            if !datagram.is_empty() {
                self.arrive(i, &datagram);
            }
        }
    }

    pub(crate) fn quarantined(&self) -> Vec<usize> {
        self.receiver.quarantined().iter().collect()
    }
}

/// The source address of a channel's datagrams.
pub(crate) fn from(channel: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 7000 + channel as u16))
}

/// The header of a share with this first byte, as the peer or another holder of the key would send
/// it.
pub(crate) fn header(
    keys: &DirectionKeys,
    first: u8,
    channel: usize,
    number: u64,
) -> [u8; HEADER_LEN] {
    let token = ShareTokens::new(&keys.tokens, keys.channels).token(channel, first, number);
    let [_, s0, s1, s2] = sequence(number).to_be_bytes();
    [&[first, s0, s1, s2][..], &token.bytes()].concat().try_into().unwrap()
}

/// Small, so that the limits are reached.
pub(crate) fn small() -> SymbolReceiverLimits {
    SymbolReceiverLimits {
        window: 1 << 10,
        share_bytes: 1 << 17,
        held_bytes: 1 << 17,
        ..SymbolReceiverLimits::default()
    }
}

pub(crate) fn packet<'a>(
    number: u64,
    k: u8,
    channels: &'a [usize],
    content: &'a [u8],
) -> Symbol<'a> {
    Symbol { number, kind: SymbolKind::Packet, k, channels, previous: 0, content }
}

/// Bytes that are unique to a number.
pub(crate) fn content(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(1 + number as usize % 5)
}
