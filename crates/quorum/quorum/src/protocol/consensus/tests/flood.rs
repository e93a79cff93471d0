//! One of four servers fills the log with whatever it can.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::Round;
use bytes::Bytes;
use sim::SeededRng;

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::context::{LogValue, Proposal};
use super::world::{World, ms, set_of, signer};
use crate::protocol::admission::{EntryAdmission, EntryCheck, EntrySlot};
use crate::protocol::log_types::Height;

/// How many entries of each server the service takes.
const QUOTA: u64 = 10;

const LIAR: usize = 3;

/// Entry `number` of a server, one of many for the same slot.
fn entry(server: usize, number: u64, variant: u64) -> Bytes {
    Bytes::from(format!("{server}/{number}/{variant}"))
}

fn slot(entry: &[u8]) -> Option<EntrySlot> {
    let mut numbers = std::str::from_utf8(entry).ok()?.split('/').map(str::parse::<u64>);
    let (server, number) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (server < 4 && number < QUOTA).then_some(EntrySlot(server * QUOTA + number))
}

fn slots(log: &[DecidedValue]) -> Vec<Option<EntrySlot>> {
    log.iter().flat_map(|it| it.value.entries()).map(|entry| slot(&entry)).collect()
}

/// A service that takes each slot once.
fn check(log: &[DecidedValue]) -> EntryCheck {
    let taken: BTreeSet<_> = slots(log).into_iter().collect();
    EntryCheck::new(move |entry| match slot(entry) {
        Some(slot) if !taken.contains(&Some(slot)) => EntryAdmission::Admitted(slot),
        _ => EntryAdmission::Refused,
    })
}

/// What the faulty server sends.
fn attack(world: &World, random: &mut SeededRng) -> ConsensusMessage {
    let junk = |random: &mut SeededRng| match random.below(4) {
        0 => Bytes::from(format!("junk {}", random.below(1 << 40))),
        1 => entry(random.index(3), QUOTA + 1, random.below(1 << 40)),
        2 => entry(LIAR, random.below(QUOTA), random.below(1 << 40)),
        _ => {
            let log = world.log(0);
            let known = random.pick(&log).map(|it| it.value.entries().swap_remove(0));
            known.unwrap_or_else(|| entry(LIAR, QUOTA, 0))
        }
    };
    if random.chance(80) {
        return ConsensusMessage::Entry(junk(random));
    }
    let entries: Vec<_> = (0..=random.below(20)).map(|_| junk(random)).collect();
    let signer = signer(LIAR);
    let proposer = signer.address();
    let proposal = Proposal {
        height: Height(world.committed(0) + random.below(3)),
        round: Round::new(u32::try_from(random.below(4)).unwrap()),
        value: LogValue::new(proposer, &entries).unwrap(),
        pol_round: Round::Nil,
        proposer,
    };
    ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(signer.sign_proposal(proposal)))
}

#[test]
fn a_flood_costs_as_many_entries_as_its_author_has_slots_and_correct_ones_are_committed() {
    for seed in 0..20 {
        let mut world = World::new(4, &[], seed, |_| set_of(&[0, 1, 2, 3]));
        let mut random = SeededRng::new(seed);
        world.set_checks(check);
        // The first height has begun without this check.
        world.submit(0, entry(0, 0, 0));
        while world.committed(0) == 0 {
            world.step(world.now() + ms(100));
        }
        world.corrupt(LIAR);
        let mut waiting = BTreeMap::new();
        let mut next = 1;
        let (mut flooded, mut seen) = (u128::MAX, world.log(0).len());
        while next < QUOTA || !waiting.is_empty() {
            assert!(world.now() < Duration::from_secs(120), "no progress with seed {seed}");
            if waiting.is_empty() {
                for server in 0..3 {
                    waiting.insert(slot(&entry(server, next, 0)), world.committed(0));
                    world.submit(server, entry(server, next, 0));
                }
                next += 1;
            }
            let millisecond = world.now().as_millis();
            if millisecond != flooded {
                flooded = millisecond;
                for _ in 0..20 {
                    let bytes = attack(&world, &mut random).to_bytes();
                    world.inject(LIAR, random.index(3), bytes);
                }
            }
            world.step(world.now() + ms(100));
            let log = world.log(0);
            for decided in &log[seen..] {
                for slot in slots(std::slice::from_ref(decided)) {
                    if let Some(since) = waiting.remove(&slot) {
                        // Its author proposes it itself in its turn, at the latest.
                        assert!(decided.height().0 <= since + 16 + 4, "seed {seed}");
                    }
                }
            }
            seen = log.len();
        }
        world.check();
        // The log has nothing but entries that the service takes, each slot once.
        let slots = slots(&world.log(0));
        assert!(slots.iter().all(Option::is_some), "seed {seed}");
        assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), slots.len(), "seed {seed}");
        assert!(world.refused > 0, "the faulty server was never refused a value");
    }
}
