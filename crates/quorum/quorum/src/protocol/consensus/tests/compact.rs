//! Proposals of large values by the digests of their entries.

use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::{NilOrVal, Round, VoteType};
use bytes::Bytes;

use super::super::codec::ConsensusMessage;
use super::super::compact::CompactProposal;
use super::super::context::{LogValue, Proposal, ValidatorAddress, Vote};
use super::super::engine::{ConsensusEngine, ConsensusOutput, LogResumePoint, VoteSigner};
use super::world::{World, ms, set_of, signer, voting};
use crate::protocol::admission::EntryCheck;
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

const SERVERS: usize = 16;
const LEN: usize = 80_000;

fn world(seed: u64) -> World {
    let all: Vec<usize> = (0..SERVERS).collect();
    let set = set_of(&all);
    World::new(SERVERS, &[], seed, move |_| set.clone())
}

fn entry(author: usize, number: usize) -> Bytes {
    let mut entry = vec![0; LEN];
    entry[0] = u8::try_from(author).expect("a server");
    entry[1] = u8::try_from(number).expect("small");
    entry.into()
}

/// The number of entries that server 0 has committed.
fn entries(world: &World) -> usize {
    world.log(0).iter().map(|decided| decided.value.entries().len()).sum()
}

/// Each entry crosses each link from its author once, and no link in a proposal.
#[test]
fn entries_are_not_sent_again_in_proposals() {
    let mut world = world(1);
    (0..4).for_each(|author| world.submit(author, entry(author, 0)));
    world.run_until(ms(900));
    world.check();
    assert_eq!(entries(&world), 4);
    assert!(world.rounds.values().all(|round| *round == 0));
    let least = 4 * (SERVERS - 1) * LEN;
    assert!((least..least + least / 4).contains(&world.sent_bytes), "{}", world.sent_bytes);
}

/// A faulty author withholds its entry from some servers. They get it from the proposer, or the
/// committed value if it has left the height.
#[test]
fn the_proposer_is_asked_for_entries_that_an_author_has_withheld() {
    for withheld_from_all in [true, false] {
        let mut world = world(2);
        world.submit(0, Bytes::from_static(b"first"));
        world.run_until(ms(900));
        assert_eq!(world.log(0).len(), 1);
        let leader = world.log(0)[0].value.leader();
        let leader = (0..SERVERS).find(|index| world.address(*index) == leader).expect("a server");
        let author = (leader + 1) % SERVERS;
        let honest: Vec<_> = (0..SERVERS).filter(|index| *index != author).collect();
        world.corrupt(author);
        let message = ConsensusMessage::Entry(entry(author, 0)).to_bytes();
        // With the leader, 11 of 16 have it: 2f+1, who go on at once.
        let others = honest.iter().filter(|index| **index != leader).copied();
        let more = if withheld_from_all { 0 } else { 10 };
        for to in others.take(more).chain([leader]) {
            world.inject(author, to, message.clone());
        }
        let started = world.now();
        while honest.iter().any(|index| world.log(*index).len() < 2) {
            assert!(world.now() < started + ms(700), "not committed in time");
            world.step(world.now() + ms(20));
        }
        world.check();
        assert_eq!(world.rounds[&2], 0);
    }
}

/// A value is proposed again by digests. This server knows it from the whole proposal of an earlier
/// round, which comes before or after the other, and its entries do not wait here.
#[test]
fn a_known_value_that_is_proposed_again_needs_no_entries() {
    for is_known_before in [true, false] {
        // The proposers of the first rounds are the first servers in the order of addresses.
        let mut numbers: Vec<usize> = (0..SERVERS).collect();
        let set = set_of(&numbers);
        numbers.sort_by_key(|number| signer(*number).address());
        let own = numbers.pop().expect("a server");
        let others: Vec<VoteSigner> = numbers.into_iter().map(signer).collect();
        let opening = LogResumePoint { after: Height(0), leader: None, records: Vec::new() };
        let (voters, check) = ((&set, Some(voting(own))), EntryCheck::anything());
        let engine = ConsensusEngine::open(signer(own), &opening, voters, check, Duration::ZERO);
        let mut engine = engine.expect("an empty log");

        let entries = [entry(0, 0), entry(1, 0)];
        let value = LogValue::new(others[0].address(), &entries).expect("a small value");
        let propose = |proposer: &VoteSigner, round, pol_round| {
            proposer.sign_proposal(Proposal {
                height: Height(1),
                round: Round::new(round),
                value: value.clone(),
                pol_round,
                proposer: proposer.address(),
            })
        };
        let whole = SignedConsensusMsg::Proposal(propose(&others[0], 0, Round::Nil));
        let again = CompactProposal::of(&propose(&others[1], 1, Round::new(0)));
        let mut messages = [
            (others[0].address(), ConsensusMessage::Consensus(whole)),
            (others[1].address(), ConsensusMessage::Compact(again)),
        ];
        if !is_known_before {
            messages.reverse();
        }
        for (from, message) in messages {
            engine.receive(from, message, ms(1)).expect("it goes on");
        }
        engine.tick(ms(200)).expect("it goes on");
        for (kind, round) in [(VoteType::Prevote, 0), (VoteType::Precommit, 1)] {
            for signer in &others[..11] {
                let (voter, value) = (signer.address(), NilOrVal::Val(value.id()));
                let (height, round) = (Height(1), Round::new(round));
                let vote = signer.sign_vote(Vote { kind, height, round, value, voter });
                let message = ConsensusMessage::Consensus(SignedConsensusMsg::Vote(vote));
                engine.receive(voter, message, ms(200)).expect("it goes on");
            }
        }
        let (mut charged, mut committed) = (Vec::new(), Vec::new());
        for output in engine.outputs() {
            match output {
                ConsensusOutput::Send(_, ConsensusMessage::AskEntries(..)) => {
                    panic!("asked for entries of a known value");
                }
                ConsensusOutput::Charged(server, len) => charged.push((server, len)),
                ConsensusOutput::Commit(decided) => committed.push(decided.value),
                _ => {}
            }
        }
        assert_eq!(charged, [(others[1].address(), value.encoded().len())]);
        assert_eq!(committed, [value]);
    }
}

/// A proposal that names an entry again and again, or too many large ones, costs no memory.
#[test]
fn a_value_is_not_longer_than_the_largest_one() {
    let large = Bytes::from(vec![0; crate::protocol::log_types::MAX_ENTRY_LEN]);
    let leader = ValidatorAddress([1; 32]);
    assert_eq!(LogValue::new(leader, &vec![large; 256]), None);
    let round = Round::new(0);
    let ask = |digests| ConsensusMessage::AskEntries(Height(1), round, digests).to_bytes().into();
    let [one, two] = [1, 2].map(|byte| Sha256Digest([byte; 32]));
    assert!(ConsensusMessage::parse(&ask(vec![one, two])).is_ok());
    assert!(ConsensusMessage::parse(&ask(vec![one, two, one])).is_err());
    assert!(ConsensusMessage::parse(&ask(vec![])).is_err());
}

/// Messages are lost, doubled and late, and servers crash. Whoever lacks entries asks for them, or
/// for what is committed.
#[test]
fn large_values_are_committed_in_spite_of_losses_and_crashes() {
    let mut rounds = 0;
    for seed in 0..6 {
        let mut world = world(seed);
        let (loss, delay) = (world.random.below(60), world.random.below(40));
        world.disturb(loss, ms(delay));
        for number in 0..3 {
            (0..3).for_each(|author| world.submit(author, entry(author, number)));
            let limit = world.now() + Duration::from_secs(300);
            while entries(&world) < 3 * (number + 1) {
                assert!(world.now() < limit, "no progress with seed {seed}");
                if world.random.below(2000) == 0 {
                    // Not an author: what it has submitted would be lost.
                    let server = 3 + world.random.index(SERVERS - 3);
                    world.crash(server, ms(300));
                }
                world.step(world.now() + ms(100));
            }
        }
        world.check();
        rounds += world.rounds.values().filter(|round| **round > 0).count();
    }
    assert!(rounds > 0, "no round was lost");
}
