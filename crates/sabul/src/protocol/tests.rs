//! Two ends over a simulated network.

mod hostile;
mod operations;
mod pair;

use std::time::Duration;

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
