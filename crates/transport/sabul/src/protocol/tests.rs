//! Two ends over a simulated network.

mod hostile;
mod operations;
mod pair;

use std::collections::HashSet;
use std::time::Duration;

use super::SabulReadOutcome;
use pair::{Pair, Path};

#[test]
fn a_stream_arrives_on_any_path() {
    for seed in 0..60 {
        let mut pair = Pair::connect(seed, Path::drawn(seed));
        pair.transfer(seed, 300_000);
    }
}

#[test]
fn a_long_and_fast_path_is_filled() {
    let mut path = Path::perfect(Duration::from_millis(150));
    path.rate_bps = Some(100_000_000);
    let mut pair = Pair::connect(1, path);
    let began = pair.now();
    pair.transfer(1, 32 << 20);
    let took = pair.now().saturating_sub(began);
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn random_losses_cost_few_packets_and_little_time() {
    let mut path = Path::perfect(Duration::from_millis(150));
    path.rate_bps = Some(1_000_000_000);
    path.loss_permille = 1;
    let mut pair = Pair::connect(1, path);
    let began = pair.now();
    pair.send(1, 32 << 20);
    let took = pair.now().saturating_sub(began);
    assert!(took < Duration::from_secs(6), "{took:?}");
    let [sender, _] = pair.statistics();
    assert!(sender.repeated < sender.sent / 20, "{sender:?}");
}

/// A peer that is too busy to answer acknowledgements receives them at growing intervals. If
/// hundreds of connections sent theirs each round trip, it would stay busy forever.
#[test]
fn an_acknowledgement_without_an_answer_is_repeated_with_growing_pauses() {
    let mut pair = Pair::connect(1, Path::perfect(Duration::from_micros(20)));
    let (mut now, mut datagram) = (pair.network.now(), Vec::new());
    let [receiver, sender] = &mut pair.ends;
    sender.write(b"bytes").unwrap();
    while sender.poll_transmit(now, &mut datagram) {
        receiver.handle_datagram(now, &datagram);
        datagram.clear();
    }
    assert_eq!(receiver.read(&mut [0; 9], now), Ok(SabulReadOutcome::Bytes(5)));
    let (end, mut sent) = (now + Duration::from_secs(10), 0);
    while now < end {
        now = receiver.poll_timeout().unwrap().max(now);
        receiver.handle_timeout(now);
        while receiver.poll_transmit(now, &mut datagram) {
            datagram.clear();
            sent += 1;
        }
    }
    assert!((10..40).contains(&sent), "{sent} datagrams in 10 s");
}

/// `SUNDER_SEEDS=N` runs as many seeds.
#[test]
fn a_receiver_that_reports_a_loss_once_is_sent_what_it_lacks() {
    let mut path = Path::perfect(Duration::from_millis(150));
    path.rate_bps = Some(100_000_000);
    path.loss_permille = 10;
    // If a report is lost, the sender retransmits everything after a while; that is rare.
    let runs = sim::run_seeds(20, |seed| {
        let mut pair = Pair::connect(seed, path);
        pair.filter(as_udt4_reports());
        let began = pair.now();
        pair.send(seed, 8 << 20);
        let took = pair.now().saturating_sub(began);
        let [sender, _] = pair.statistics();
        let is_costly = took > Duration::from_secs(8) || sender.repeated > sender.sent / 8;
        (seed, is_costly)
    });
    let costly: Vec<u64> = runs.iter().filter(|run| run.1).map(|run| run.0).collect();
    assert!(10 * costly.len() <= runs.len(), "{costly:?}");
}

/// Behaves as UDT4: reports each loss once, and a smoothed round-trip time that starts at 100 ms.
fn as_udt4_reports() -> pair::Filter {
    let (mut reported, mut mean) = (HashSet::new(), 100_000);
    Box::new(move |datagram| {
        let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap());
        match word(0) >> 16 {
            0x8003 => reported.insert(word(16)),
            0x8002 if datagram.len() > 20 => {
                mean = (mean * 7 + word(20)) / 8;
                datagram[20..24].copy_from_slice(&mean.to_be_bytes());
                true
            }
            _ => true,
        }
    })
}
