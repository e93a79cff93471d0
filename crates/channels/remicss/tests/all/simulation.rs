//! Two whole ends under random operations: loss, duplicates, reordering, delay, MTUs, changed and
//! invented datagrams, outages of channels, restarts of ends, clocks that jump, a client that
//! moves, and an attacker who forwards what it reads from an address of its own, before the
//! original arrives.
//!
//! In every case, only sent packets are delivered, and none twice; and once the faults stop,
//! packets are delivered again. `SUNDER_SEEDS=N` runs more seeds, `SUNDER_SEED=S` one.

use std::time::Duration;

use crate::scenario::Scenario;
use sim::SeededRng;
use sunder_remicss::endpoint::settings::KeyRenewalLimits;

/// The number of operations of a run.
const OPERATIONS: u64 = 60;

fn run(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let channels = [1, 2, 3, 4][rng.index(4)];
    let floor = [1, 2, 3, 4][rng.index(channels.into())];
    let least = floor + u8::try_from(rng.index(usize::from(channels - floor) + 1)).unwrap();
    let mut scenario = Scenario::new(channels, floor, least, &mut rng);
    for _ in 0..OPERATIONS {
        match rng.index(18) {
            0..4 => scenario.send(rng.index(2), 1 + rng.index(40), &mut rng),
            4..7 => scenario.advance(Duration::from_micros(rng.below(200_000)), &mut rng),
            7 => scenario.conditions(&mut rng).loss_permille = [0, 10, 300, 1000][rng.index(4)],
            8 => scenario.conditions(&mut rng).duplication_permille = [0, 500][rng.index(2)],
            9 => {
                let jitter = Duration::from_micros(rng.below(100_000));
                scenario.set_jitter(jitter, &mut rng);
            }
            10 => scenario.tamper(&mut rng),
            11 => scenario.invent(&mut rng),
            12 => scenario.restart(rng.index(2)),
            13..15 => scenario.copy(&mut rng),
            15 => scenario.move_client(&mut rng),
            16 => {
                let len = [usize::MAX, 1472, 1372, 1252][rng.index(4)];
                scenario.conditions(&mut rng).max_datagram_len = len;
            }
            _ => scenario.jump(rng.index(2), Duration::from_secs(rng.below(100))),
        }
    }
    scenario.end_faults();
    for kind in scenario.stolen() {
        // A Cookie or Confirm, where a Hello or List was forwarded; or a challenge.
        assert!([5, 9, 11].contains(kind), "seed {seed}: kind {kind} was sent elsewhere");
    }
    // Longer than it takes to consider a peer gone, and to end a quarantine.
    scenario.advance(Duration::from_secs(75), &mut rng);
    assert_eq!(
        scenario.members(0),
        usize::from(channels),
        "seed {seed}: not all channels are used"
    );
    for from in 0..2 {
        let before = scenario.delivered(1 - from);
        scenario.send(from, 20, &mut rng);
        scenario.advance(Duration::from_secs(2), &mut rng);
        assert_eq!(
            scenario.delivered(1 - from) - before,
            20,
            "seed {seed}: not recovered, from {from}"
        );
    }
}

#[test]
fn faults_and_attacks_never_deliver_wrong_packets_and_the_tunnel_recovers() {
    sim::run_seeds(150, run);
}

/// A tunnel that needs two of three channels begins with any two, and the third joins without loss
/// of a packet in either direction, late or not.
#[test]
fn no_packet_is_lost_when_a_channel_joins() {
    sim::run_seeds(20, |seed| {
        let mut rng = SeededRng::new(seed);
        let mut scenario = Scenario::new(3, 2, 2, &mut rng);
        scenario.set_goal(2.0, 3.0);
        scenario.set_jitter(Duration::from_millis(rng.below(30)), &mut rng);
        let missing = rng.index(3);
        scenario.set_off(missing, true);
        scenario.advance(Duration::from_secs(2), &mut rng);
        assert_eq!([scenario.members(0), scenario.members(1)], [2, 2], "seed {seed}");
        let mut back = None;
        for step in 0..4_000 {
            if step == 500 {
                scenario.set_off(missing, false);
                back = Some(scenario.now());
            }
            if let Some(since) = back
                && [scenario.members(0), scenario.members(1)] == [3, 3]
            {
                let took = scenario.now().saturating_sub(since);
                assert!(took < Duration::from_secs(2), "seed {seed}: it joined after {took:?}");
                back = None;
            }
            scenario.send(step % 2, 1, &mut rng);
            scenario.advance(Duration::from_millis(1), &mut rng);
        }
        assert_eq!(back, None, "seed {seed}: it has not joined");
        scenario.advance(Duration::from_secs(2), &mut rng);
        assert_eq!([scenario.delivered(0), scenario.delivered(1)], [2_000; 2], "seed {seed}");
    });
}

/// Keys that are too old, or under which an end has seen too many wrong shares, are replaced
/// without loss of a packet in either direction.
#[test]
fn no_packet_is_lost_with_new_keys() {
    sim::run_seeds(15, |seed| {
        let mut rng = SeededRng::new(seed);
        let mut scenario = Scenario::new(3, 2, 2, &mut rng);
        scenario.set_goal(2.0, 3.0);
        let limits =
            KeyRenewalLimits { age: Duration::from_millis(1_500), ..KeyRenewalLimits::default() };
        scenario.set_key_limits([limits; 2]);
        scenario.set_jitter(Duration::from_millis(rng.below(30)), &mut rng);
        for step in 0..4_000 {
            if step == 0 {
                scenario.advance(Duration::from_secs(1), &mut rng);
            }
            scenario.send(step % 2, 1, &mut rng);
            scenario.advance(Duration::from_millis(1), &mut rng);
        }
        scenario.advance(Duration::from_millis(500), &mut rng);
        assert_eq!([scenario.delivered(0), scenario.delivered(1)], [2_000; 2], "seed {seed}");
        let associations = [scenario.associations(0), scenario.associations(1)];
        assert!(associations.iter().all(|count| (3..=5).contains(count)), "{associations:?}");
    });
}

/// Either end may have seen them, and the other end cannot know.
#[test]
fn an_end_with_many_failed_joins_requests_new_keys() {
    for end in 0..2 {
        let mut rng = SeededRng::new(end as u64);
        let mut scenario = Scenario::new(2, 1, 2, &mut rng);
        scenario.set_goal(2.0, 2.0);
        let few = KeyRenewalLimits { failures: 8, ..KeyRenewalLimits::default() };
        let mut limits = [KeyRenewalLimits::default(); 2];
        limits[end] = few;
        scenario.set_key_limits(limits);
        scenario.advance(Duration::from_secs(2), &mut rng);
        assert_eq!([scenario.associations(0), scenario.associations(1)], [1; 2]);
        scenario.tamper_with(1 - end, 0);
        for _ in 0..400 {
            scenario.send(1 - end, 1, &mut rng);
            scenario.advance(Duration::from_millis(5), &mut rng);
        }
        scenario.end_faults();
        scenario.advance(Duration::from_secs(2), &mut rng);
        for end in 0..2 {
            assert!(scenario.associations(end) > 1, "the keys are still the old ones");
        }
    }
}
