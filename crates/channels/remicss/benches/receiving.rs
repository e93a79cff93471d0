//! How long the receiving end takes for a symbol with a packet of 1400 bytes.
//!
//! `cargo bench -p sunder-remicss --bench receiving`. Datagrams come in batches of 64 a channel,
//! one channel after the other, and are made just before each batch, so that they are in the cache
//! as if they had just been received. Making them is not measured.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use random::RandomGenerator;
use sharing::Splitter;
use sunder_remicss::recv::receiver::{SymbolReceiver, SymbolReceiverLimits};
use sunder_remicss::recv::symbol_sink::{ControlShare, SymbolSink};
use sunder_remicss::wire::datagram::{SymbolKind, SymbolShareHeader};
use sunder_remicss::wire::keys::{DirectionKeys, TagPoints};
use sunder_remicss::wire::symbol::SymbolTagger;
use sunder_remicss::wire::tokens::{ShareTokens, TokenKey};

const PACKET: usize = 1400;
const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7000);
const BATCH: u32 = 64;
const ROUNDS: u32 = 2000;

fn main() {
    println!("ns for a symbol of {PACKET} bytes, one core: median, tenth, ninetieth percentile.\n");
    println!("{:<44}{:>8}{:>8}{:>8}", "", "median", "10 %", "90 %");
    row("k = 1, m = 1", Case::new(1, 1));
    row("k = 1, m = 2", Case::new(1, 2));
    row("k = 2, m = 3", Case::new(2, 3));
    row("k = 3, m = 5", Case::new(3, 5));
    row("k = 5, m = 5", Case::new(5, 5));
    row("k = 2, m = 3, first channel 1,024 ahead", Case { ahead: 16, ..Case::new(2, 3) });
    row("k = 1, m = 1, every second one has to wait", Case { waits: true, ..Case::new(1, 1) });
}

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    k: u8,
    m: u8,
    /// How many batches the first channel is ahead of the others.
    ahead: u32,
    /// Symbols come in the wrong order.
    waits: bool,
}

impl Case {
    fn new(k: u8, m: u8) -> Self {
        Self { k, m, ahead: 0, waits: false }
    }
}

/// Takes what comes, and does nothing with it.
struct Nothing;

impl SymbolSink for Nothing {
    fn packets(&mut self, _: SymbolKind, packets: &[u8]) {
        black_box(packets);
    }

    fn control(&mut self, _: u64, _: &[u8]) {}

    fn control_share(&mut self, _: ControlShare) {}
}

fn row(name: &str, case: Case) {
    let points = TagPoints::new(&std::array::from_fn(|k| [u8::try_from(k).expect("16") + 1; 8]));
    let tokens = TokenKey::new(&[7; 16]);
    let keys = DirectionKeys { channels: case.m.into(), tokens, points: Some(points) };
    let mut receiver = SymbolReceiver::new(&keys, case.k, SymbolReceiverLimits::default());
    if case.waits {
        receiver.set_window(Duration::from_secs(1));
    }
    let mut maker = Maker::new(case, &keys);
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let batches = maker.make(round);
            let start = Instant::now();
            for (channel, batch) in batches.iter().enumerate() {
                for datagram in batch {
                    receiver.handle_share(channel, FROM, datagram, Duration::ZERO, &mut Nothing);
                }
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
        })
        .collect();
    let counts = receiver.counts();
    assert_eq!(counts.symbols, u64::from((ROUNDS - case.ahead) * BATCH), "each is verified");
    assert_eq!(counts.released.held, u64::from(ROUNDS * BATCH / 2 * u32::from(case.waits)));
    times.sort_by(f64::total_cmp);
    let [median, low, high] = [50, 10, 90].map(|percent| times[times.len() * percent / 100]);
    println!("{name:<44}{median:>8.0}{low:>8.0}{high:>8.0}");
}

/// Makes datagrams.
struct Maker {
    case: Case,
    tokens: ShareTokens,
    tagger: SymbolTagger,
    splitter: Splitter,
    generator: RandomGenerator,
    /// The batches of the later channels that are on their way.
    behind: VecDeque<Vec<Vec<Vec<u8>>>>,
}

impl Maker {
    fn new(case: Case, keys: &DirectionKeys) -> Self {
        let coordinates: Vec<u8> = (1..=case.m).collect();
        Self {
            case,
            tagger: SymbolTagger::new(keys.points.as_ref()),
            tokens: ShareTokens::new(&keys.tokens, keys.channels),
            splitter: Splitter::for_coordinates(case.k, &coordinates).expect("k <= m"),
            generator: RandomGenerator::seeded().expect("random bytes"),
            behind: VecDeque::new(),
        }
    }

    /// A batch of datagrams for each channel.
    fn make(&mut self, round: u32) -> Vec<Vec<Vec<u8>>> {
        let mut batches = vec![Vec::new(); usize::from(self.case.m)];
        for i in 0..BATCH {
            // The later one of two comes first.
            let sequence = round * BATCH + if self.case.waits { i ^ 1 } else { i };
            let previous = u8::from(sequence % 2 == 1 && self.case.waits);
            let mut symbol = vec![previous];
            symbol.resize(1 + PACKET, 0x5A);
            self.tagger.seal(SymbolKind::Packet, self.case.k, sequence, &mut symbol);
            let mut shares = vec![vec![0; symbol.len()]; batches.len()];
            let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
            self.splitter.split(&symbol, &mut views, &mut self.generator).expect("random bytes");
            for (channel, share) in shares.iter().enumerate() {
                let (number, tokens) = (sequence.into(), &mut self.tokens);
                let header = SymbolShareHeader::new(
                    SymbolKind::Packet,
                    self.case.k,
                    number,
                    channel,
                    tokens,
                );
                batches[channel].push([&header.encode()[..], share].concat());
            }
        }
        let others = batches.split_off(1);
        self.behind.push_back(others);
        if self.behind.len() > self.case.ahead as usize
            && let Some(others) = self.behind.pop_front()
        {
            // Copied, so that they are in the cache.
            batches.extend_from_slice(&others);
        }
        batches
    }
}
