//! How long a symbol of 1,400 bytes takes from its bytes to datagrams in batches.
//!
//! `cargo bench -p sunder-remicss --bench symbols` prints ns a symbol, the median of many slices.

use std::hint::black_box;
use std::time::{Duration, Instant};

use model::{ChannelSubset, ShareSchedule, ShareSelection};
use random::RandomGenerator;
use sunder_remicss::send::schedule::{DynamicScheduler, PlannedScheduler, SymbolScheduler};
use sunder_remicss::send::sender::SymbolSender;
use sunder_remicss::wire::datagram::SymbolKind;
use sunder_remicss::wire::keys::{DirectionKeys, TagPoints};
use sunder_remicss::wire::tokens::TokenKey;
use udp::{DatagramBatch, TokenBucketPacer};

const PACKET: usize = 1400;

/// How many symbols a slice has: what a superpacket gives.
const SLICE: u32 = 45;

const SLICES: usize = 2001;

fn main() {
    println!("ns for a symbol of {PACKET} bytes, sending side: tag, shares, batches");
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10}",
        "(k,m)", "planned", "dynamic", "no tag", "no pace"
    );
    for (k, m) in [(1, 1), (2, 3), (3, 5)] {
        let threshold = ShareSelection::new(k, ChannelSubset::first(m)).expect("valid");
        let planned = || Box::new(PlannedScheduler::new(&ShareSchedule::constant(threshold), &[]));
        let (kappa, mu) = (small(k), small(m));
        let dynamic = Box::new(DynamicScheduler::new(kappa, mu).expect("valid"));
        // A rate that is never reached: what keeping it costs.
        let rate = Some(1_000_000_000_000);
        let times = [
            measure(m, planned(), rate, true),
            measure(m, dynamic, rate, true),
            measure(m, planned(), rate, false),
            measure(m, planned(), None, true),
        ];
        let [planned, dynamic, no_tag, no_pace] = times;
        let name = format!("({k},{m})");
        println!("{name:>8} {planned:>10.0} {dynamic:>10.0} {no_tag:>10.0} {no_pace:>10.0}");
    }
}

/// The median time of a symbol, in ns.
fn measure(n: usize, scheduler: Box<dyn SymbolScheduler>, rate: Option<u64>, has_tag: bool) -> f64 {
    let points = has_tag.then(|| TagPoints::new(&[[7; 8]; 16]));
    let direction = DirectionKeys { channels: n, tokens: TokenKey::new(&[7; 16]), points };
    let pacers = vec![TokenBucketPacer::new(rate, 1500, 28); n];
    let generator = RandomGenerator::seeded().expect("random bytes");
    let mut sender = SymbolSender::new(&direction, 1, pacers, scheduler, generator).expect("valid");
    let mut batches: Vec<DatagramBatch> = (0..n).map(|_| DatagramBatch::default()).collect();
    let packet = [0x5A; PACKET];
    let start = Instant::now();
    let mut slices: Vec<Duration> = (0..SLICES)
        .map(|_| {
            batches.iter_mut().for_each(DatagramBatch::clear);
            let before = Instant::now();
            let now = before - start;
            for _ in 0..SLICE {
                sender.begin().extend_from_slice(black_box(&packet));
                sender.finish(SymbolKind::Packet, 1, now, &mut batches).expect("never waits");
            }
            before.elapsed()
        })
        .collect();
    slices.sort();
    slices[SLICES / 2].as_secs_f64() * 1e9 / f64::from(SLICE)
}

fn small(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("small"))
}
