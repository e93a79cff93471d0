//! Logs of whole groups.

use std::time::Duration;

use bytes::Bytes;

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::context::servers::ConsensusValidatorSet;
use super::super::engine::VoteSigner;
use super::world::{LOG, World, ms, set_of, signer};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

fn entry(number: u64) -> Bytes {
    Bytes::from(format!("entry {number}"))
}

/// Submits one entry after the other, at changing servers, until these have so many heights.
fn drive(
    world: &mut World,
    servers: &[usize],
    heights: u64,
    mut disturb: impl FnMut(&mut World, u64),
) {
    let (mut submitted, mut tries) = (0, 0);
    let mut submitted_at = world.now();
    let limit = world.now() + Duration::from_secs(3600);
    while servers.iter().any(|index| world.committed(*index) < heights) {
        assert!(world.now() < limit, "no progress: {:?}", state(world, servers));
        let committed = servers.iter().map(|index| world.committed(*index)).max().unwrap_or(0);
        // The service submits again what may have been lost with its server.
        let is_due = committed >= submitted && submitted < heights;
        if is_due || world.now() > submitted_at + ms(2000) {
            submitted = if is_due { committed + 1 } else { submitted };
            world.submit(servers[tries % servers.len()], entry(submitted));
            tries += 1;
            submitted_at = world.now();
        }
        disturb(world, committed);
        world.step(submitted_at + ms(3000));
    }
}

fn state(world: &World, servers: &[usize]) -> Vec<(u64, Option<u32>)> {
    servers.iter().map(|index| (world.committed(*index), world.round(*index))).collect()
}

/// The times between commits, in order of length.
fn times(world: &World) -> Vec<Duration> {
    let at = || world.committed_at.values();
    let mut times: Vec<_> = at().zip(at().skip(1)).map(|(one, two)| two.abs_diff(*one)).collect();
    times.sort();
    times
}

#[test]
fn a_round_is_enough_while_all_run() {
    let mut world = World::new(4, &[], 1, |_| set_of(&[0, 1, 2, 3]));
    drive(&mut world, &[0, 1, 2, 3], 200, |_, _| ());
    world.check();
    assert!(world.rounds.values().all(|round| *round == 0));
    assert!(times(&world)[100] < ms(10));
}

#[test]
fn a_silent_server_catches_up_and_a_restarted_one_goes_on() {
    let mut world = World::new(4, &[], 2, |_| set_of(&[0, 1, 2, 3]));
    world.silence(3, true);
    let mut crashed = false;
    drive(&mut world, &[0, 1, 2], 200, |world, committed| {
        // In the middle of a height.
        if committed == 100 && !crashed && world.sent % 7 == 3 {
            world.crash(1, ms(400));
            crashed = true;
        }
    });
    assert!(crashed);
    world.check();
    assert_eq!(world.committed(3), 0);
    world.silence(3, false);
    world.run_until(world.now() + Duration::from_secs(10));
    assert_eq!(world.committed(3), 200);
    world.check();
}

/// The rounds of three heights of 31 servers if a message takes up to 0.8 s, with entries of this
/// length.
fn rounds_on_a_slow_network(len: usize) -> Vec<i64> {
    let all: Vec<usize> = (0..31).collect();
    let set = set_of(&all);
    let mut world = World::new(31, &[], 4, move |_| set.clone());
    world.disturb(0, ms(800));
    for number in 0..3 {
        world.submit(0, vec![number; len].into());
        world.run_until(world.now() + Duration::from_secs(60));
    }
    world.check();
    assert_eq!(world.committed(0), 3);
    world.rounds.values().copied().collect()
}

/// A value that a server needs 2 s to send to 30 others is not proposed again after 0.3 s.
#[test]
fn a_large_value_has_more_time() {
    assert!(rounds_on_a_slow_network(100).iter().any(|round| *round > 0));
    assert_eq!(rounds_on_a_slow_network(1_000_000), [0; 3]);
}

/// Thirty servers have what another one has missed, and show that they are ahead. All of them could
/// send it the same values at the same time.
#[test]
fn a_server_that_is_behind_asks_few_servers_for_a_value() {
    let all: Vec<usize> = (0..31).collect();
    let set = set_of(&all);
    let mut world = World::new(31, &[], 3, move |_| set.clone());
    world.silence(30, true);
    drive(&mut world, &all[..30], 20, |_, _| ());
    world.values_sent.clear();
    world.silence(30, false);
    // The others go on meanwhile.
    drive(&mut world, &all, 40, |_, _| ());
    world.check();
    // When it gets links, it asks each server for the first one.
    let most = world.values_sent.range(2..).map(|(_, count)| *count).max();
    assert!((1..=2).contains(&most.unwrap_or(0)), "{:?}", world.values_sent);
}

/// Twelve heights with messages lost, doubled and out of order, crashes after each output, and full
/// disks.
fn troubled(seed: u64, forgets: bool) -> World {
    let mut world = World::new(4, &[], seed, |_| set_of(&[0, 1, 2, 3]));
    let (loss, delay) = (world.random.below(100), world.random.below(30));
    world.disturb(loss, ms(delay));
    world.sudden = world.random.below(4);
    drive(&mut world, &[0, 1, 2, 3], 12, |world, _| {
        let server = world.random.index(4);
        match world.random.below(300) {
            0 | 1 => {
                let down = ms(world.random.below(800));
                world.crash(server, down);
            }
            2 => {
                let writes = u32::try_from(world.random.below(5)).unwrap();
                world.fill_disk(server, writes);
            }
            3 if forgets => world.forget(server),
            _ => {}
        }
    });
    world.check();
    world
}

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn crashes_and_losses_never_make_a_server_vote_twice() {
    let runs = sim::run_seeds(60, |seed| {
        let world = troubled(seed, false);
        [world.replayed, world.rounds.values().filter(|round| **round > 0).count()]
    });
    let [replayed, rounds] = [0, 1].map(|which| runs.iter().map(|run| run[which]).sum::<usize>());
    assert!(
        replayed > 5 * runs.len() && 2 * rounds > runs.len(),
        "{replayed} replayed, {rounds} heights of rounds"
    );
}

#[test]
#[should_panic(expected = "a server signed twice")]
fn without_the_write_ahead_log_a_server_votes_twice() {
    for seed in 0..300 {
        troubled(seed, true);
    }
}

#[test]
fn a_seed_decides_everything() {
    let [one, two] = [11, 11].map(|seed| troubled(seed, false));
    assert_eq!((one.sent, one.now(), one.committed_at), (two.sent, two.now(), two.committed_at));
}

/// A server proposes and votes twice in each round. `SUNDER_SEEDS=N` runs as many seeds.
#[test]
fn two_engines_with_one_key_divide_nobody() {
    let runs = sim::run_seeds(30, |seed| {
        let mut world = World::new(4, &[3], seed, |_| set_of(&[0, 1, 2, 3]));
        let (loss, delay) = (world.random.below(100), world.random.below(10));
        world.disturb(loss, ms(delay));
        drive(&mut world, &[0, 1, 2], 12, |world, height| {
            if world.random.below(60) == 0 {
                let (twin, number) = (3 + world.random.index(2), world.random.below(500));
                world.submit(twin, entry(1000 * height + number));
            }
        });
        world.check();
        world.proofs
    });
    let proofs: usize = runs.iter().sum();
    assert!(10 * proofs > runs.len(), "{proofs} proofs of equivocation");
}

#[test]
fn four_of_thirteen_are_silent() {
    let all: Vec<_> = (0..13).collect();
    let mut world = World::new(13, &[], 7, move |_| set_of(&all));
    (9..13).for_each(|index| world.silence(index, true));
    drive(&mut world, &(0..9).collect::<Vec<_>>(), 30, |_, _| ());
    world.check();
}

#[test]
fn nothing_happens_without_entries() {
    let mut world = World::new(4, &[], 3, |_| set_of(&[0, 1, 2, 3]));
    drive(&mut world, &[0, 1, 2, 3], 3, |_, _| ());
    world.run_until(world.now() + Duration::from_secs(10));
    let before = world.sent;
    world.run_until(world.now() + Duration::from_secs(600));
    assert_eq!(world.sent, before);
    assert!((0..4).all(|index| world.round(index) == Some(0) && world.committed(index) == 3));
    // One comes after ten minutes.
    let submitted = world.now();
    world.submit(2, entry(99));
    while world.committed(2) < 4 {
        assert!(world.step(submitted + Duration::from_secs(60)));
    }
    assert!(world.now() < submitted + ms(20));
}

#[test]
fn a_silent_leader_costs_one_round_once() {
    let mut world = World::new(4, &[], 4, |_| set_of(&[0, 1, 2, 3]));
    drive(&mut world, &[0, 1, 2, 3], 5, |_, _| ());
    let leader = world.log(0).last().map(|decided| decided.value.leader()).expect("committed");
    let silent = (0..4).find(|index| world.address(*index) == leader).expect("one of the four");
    world.silence(silent, true);
    let others: Vec<_> = (0..4).filter(|index| *index != silent).collect();
    drive(&mut world, &others, 30, |_, _| ());
    assert_eq!(world.rounds.values().filter(|round| **round > 0).count(), 1);
    assert!(times(&world).last().is_some_and(|longest| *longest < ms(600)));
}

#[test]
fn other_groups_take_over() {
    // One stays, with three others; then seven.
    let sets = |height: Height| match height.0 {
        0..=20 => set_of(&[0, 1, 2, 3]),
        21..=40 => set_of(&[3, 4, 5, 6]),
        _ => set_of(&[0, 4, 5, 6, 7, 8, 9]),
    };
    let mut world = World::new(10, &[], 5, sets);
    drive(&mut world, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 60, |_, _| ());
    world.check();
}

#[test]
fn certificates_are_checked() {
    let four = ConsensusValidatorSet::new(&set_of(&[0, 1, 2, 3]), Height(1), None);
    let mut world = World::new(4, &[], 6, |_| set_of(&[0, 1, 2, 3]));
    drive(&mut world, &[0, 1, 2, 3], 2, |_, _| ());
    let decided = world.log(0).pop().expect("committed");
    let certificate = &decided.certificate;
    let verifier = signer(0).verifier();
    assert!(verifier.commit(certificate, &four).is_ok());
    let identity = keys::IdentitySecretKey::new(&[1; 32]).public();
    let other_log = VoteSigner::new(&identity, Sha256Digest([8; 32])).verifier();
    assert_ne!(LOG, Sha256Digest([8; 32]));
    assert!(other_log.commit(certificate, &four).is_err());
    let others = ConsensusValidatorSet::new(&set_of(&[3, 4, 5, 6]), Height(1), None);
    assert!(verifier.commit(certificate, &others).is_err());

    let mut few = certificate.clone();
    few.commit_signatures.truncate(2);
    assert!(verifier.commit(&few, &four).is_err());

    let mut twice = certificate.clone();
    twice.commit_signatures[1] = twice.commit_signatures[0].clone();
    assert!(verifier.commit(&twice, &four).is_err());

    let mut other = certificate.clone();
    other.height = Height(1);
    assert!(verifier.commit(&other, &four).is_err());

    let mut damaged = certificate.clone();
    damaged.commit_signatures[0].signature.0[5] ^= 1;
    assert!(verifier.commit(&damaged, &four).is_err());
}

#[test]
fn messages_have_one_encoding() {
    let mut world = World::new(4, &[], 6, |_| set_of(&[0, 1, 2, 3]));
    drive(&mut world, &[0, 1, 2, 3], 2, |_, _| ());
    let decided = world.log(0).pop().expect("committed");
    let bytes = decided.to_bytes();
    assert_eq!(DecidedValue::parse(&bytes), Ok(decided));
    let message = ConsensusMessage::committed(&bytes);
    for len in 0..message.len() {
        assert!(ConsensusMessage::parse(&Bytes::copy_from_slice(&message[..len])).is_err());
    }
    for place in 0..message.len() {
        let mut changed = message.clone();
        changed[place] ^= 1;
        if let Ok(parsed) = ConsensusMessage::parse(&changed.clone().into()) {
            assert_eq!(parsed.to_bytes(), changed);
        }
    }
}
