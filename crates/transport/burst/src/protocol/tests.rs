//! Two ends over a simulated network.

mod faults;
mod hostile;
mod pair;

use std::time::Duration;

use pair::{Pair, Path};
use sim::SeededRng;
use udp::streams::ListenerLoad;

/// A path of 300 ms.
fn long(rate_bps: u64, loss_ppm: u64) -> Path {
    let perfect = Path::perfect(Duration::from_millis(150));
    Path { loss_ppm, rate_bps: Some(rate_bps), ..perfect }
}

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn a_stream_arrives_on_any_path() {
    sim::run_seeds(300, |seed| {
        let mut rng = SeededRng::new(seed);
        let mut pair = Pair::connect(seed, Path::drawn(seed), seed % 2 == 0);
        let lens = [300_000, 300_000].map(|len| if rng.chance(20) { 0 } else { rng.index(len) });
        if rng.chance(30) {
            let at = rng.duration_between(Duration::ZERO, Duration::from_secs(2));
            pair.move_client(at);
        }
        if seed % 2 == 0 && rng.chance(50) {
            pair.attack(hostile::attacker(seed));
        }
        pair.exchange(seed, lens);
    });
}

/// It takes a round trip for the handshake, the transmission time, and one more round trip, with a
/// margin for repairs. `SUNDER_SEEDS=N` runs as many seeds.
#[test]
fn a_long_path_is_full_from_the_first_round_trip_on() {
    let cells = [
        (200_000_000, 32 << 20, 2.4),
        (1_000_000_000, 32 << 20, 1.4),
        (500_000_000, 256 << 20, 5.8),
    ];
    for (rate_bps, len, goal_s) in cells {
        for loss_ppm in [0, 500] {
            sim::run_seeds(1, |seed| {
                let mut pair = Pair::connect(seed, long(rate_bps, loss_ppm), false);
                let took = pair.exchange(seed, [len, 0]);
                println!("{rate_bps} {loss_ppm} {len} {seed}: {took:?} {:?}", pair.statistics()[0]);
                assert!(took.as_secs_f64() < goal_s, "{took:?}");
            });
        }
    }
}

/// The listener sends before it is told how fast its train arrived: it learns that between its
/// first bytes and their first acknowledgement. `SUNDER_SEEDS=N` runs as many seeds.
#[test]
fn a_listener_that_sends_at_once_starts_at_the_rate_of_its_train() {
    sim::run_seeds(4, |seed| {
        let len = 32 << 20;
        let mut pair = Pair::connect(seed, long(1_000_000_000, 0), false);
        let took = pair.exchange(seed, [1, len]);
        assert!(took.as_secs_f64() < 1.4, "{took:?}");
    });
}

/// Packets that a client sends while its address changes are delayed, not lost.
#[test]
fn the_client_changes_its_address() {
    let path = Path::perfect(Duration::from_millis(20));
    for at in [0, 30, 50, 200, 500] {
        let mut pair = Pair::connect(at, Path { rate_bps: Some(10_000_000), ..path }, true);
        pair.move_client(Duration::from_millis(at));
        let took = pair.exchange(at, [1_000_000, 1_000_000]);
        assert!(took < Duration::from_secs(5), "{at}: {took:?}");
    }
}

/// Both ends measure the path to another address anew: packets of the old path do not count, and
/// one second later the rate is the new path's.
#[test]
fn another_address_has_another_path() {
    let path = |rate_bps, ms| {
        let perfect = Path::perfect(Duration::from_millis(ms));
        Path { rate_bps: Some(rate_bps), ..perfect }
    };
    for (old, new) in
        [(path(50_000_000, 20), path(5_000_000, 150)), (path(5_000_000, 150), path(50_000_000, 20))]
    {
        let mut pair = Pair::connect(1, old, true);
        let now = Duration::from_secs(3);
        while pair.now() < now {
            pair.write_much();
            let next = pair.now() + Duration::from_millis(10);
            pair.run_until(next);
        }
        pair.move_client(now);
        pair.change_path(new);
        while pair.now() < now + Duration::from_millis(2500) {
            pair.write_much();
            let next = pair.now() + Duration::from_millis(10);
            pair.run_until(next);
        }
        for statistics in pair.statistics() {
            println!("{:?} {:?}", statistics.round_trip, statistics.rate_bytes_per_s);
        }
        let statistics = pair.statistics();
        let round_trip = statistics[0].round_trip.unwrap();
        assert!(round_trip >= new.min_delay * 2, "{round_trip:?}");
        assert!(round_trip < new.min_delay * 2 + Duration::from_millis(60), "{round_trip:?}");
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let part =
            statistics[0].rate_bytes_per_s.unwrap() as f64 * 8.0 / new.rate_bps.unwrap() as f64;
        assert!((0.7..1.3).contains(&part), "{part}");
    }
}

/// Under load, a handshake takes one round trip more, for a cookie.
#[test]
fn under_load_a_client_proves_its_address() {
    for (load, round_trips) in [(ListenerLoad::Light, 2), (ListenerLoad::Heavy, 3)] {
        let mut pair = Pair::connect(1, Path::perfect(Duration::from_millis(10)), true);
        pair.set_load(load);
        let took = pair.exchange(1, [10_000, 0]);
        let least = Duration::from_millis(20) * round_trips;
        assert!(took >= least && took < least + Duration::from_millis(25), "{load:?} {took:?}");
    }
}
