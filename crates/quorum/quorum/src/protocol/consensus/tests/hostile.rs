//! One of four servers sends anything, well signed or not.

use std::time::Duration;

use arc_malachitebft_core_consensus::{LivenessMsg, SignedConsensusMsg};
use arc_malachitebft_core_types::{
    CommitCertificate, NilOrVal, PolkaCertificate, Round, RoundCertificate, RoundCertificateType,
    SignedVote, VoteType,
};
use bytes::Bytes;
use sim::SeededRng;

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::compact::CompactProposal;
use super::super::context::{
    ConsensusContext, LogValue, Proposal, ValidatorAddress, ValueId, Vote,
};
use super::super::engine::VoteSigner;
use super::world::{World, identity_as_voting_key, ms, set_of, signer, signer_with};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

/// Makes up messages of a server.
struct Liar {
    signer: VoteSigner,
    random: SeededRng,
}

impl Liar {
    fn address(&self) -> ValidatorAddress {
        self.signer.address()
    }

    fn height(&mut self, world: &World) -> Height {
        Height((world.committed(0) + self.random.below(4)).saturating_sub(1))
    }

    fn round(&mut self) -> Round {
        match self.random.below(10) {
            0 => Round::Nil,
            1 => Round::new(u32::MAX - 1),
            2 => Round::new(u32::try_from(self.random.below(20)).unwrap()),
            _ => Round::new(u32::try_from(self.random.below(3)).unwrap()),
        }
    }

    fn value(&mut self, world: &World) -> LogValue {
        let known = world.log(0);
        if let Some(decided) = self.random.pick(&known)
            && self.random.chance(50)
        {
            return decided.value.clone();
        }
        let entry = Bytes::from(format!("entry of a liar {}", self.random.below(5)));
        let leader =
            if self.random.chance(50) { self.address() } else { ValidatorAddress([9; 32]) };
        LogValue::new(leader, &[entry]).expect("a small value")
    }

    fn id(&mut self, world: &World) -> NilOrVal<ValueId> {
        match (self.random.below(4), self.random.pick(&world.seen)) {
            (0, _) | (2.., None) => NilOrVal::Nil,
            (1, _) => NilOrVal::Val(self.value(world).id()),
            (_, Some(vote)) => vote.message.value,
        }
    }

    fn vote(&mut self, world: &World) -> SignedVote<ConsensusContext> {
        let kind = if self.random.chance(50) { VoteType::Prevote } else { VoteType::Precommit };
        let (height, round) = (self.height(world), self.round());
        let (value, voter) = (self.id(world), self.address());
        self.signer.sign_vote(Vote { kind, height, round, value, voter })
    }

    /// A message that is signed as it should be, or put together of votes of others.
    fn message(&mut self, world: &World) -> ConsensusMessage {
        let (height, round) = (self.height(world), self.round());
        let seen = world.seen.iter();
        let mut votes: Vec<_> = seen
            .filter(|vote| vote.message.height == height && vote.message.round == round)
            .cloned()
            .collect();
        votes.push(self.vote(world));
        match self.random.below(11) {
            0 | 1 => ConsensusMessage::Consensus(SignedConsensusMsg::Vote(self.vote(world))),
            2 | 3 => {
                let (value, pol_round, proposer) =
                    (self.value(world), self.round(), self.address());
                let proposal = Proposal { height, round, value, pol_round, proposer };
                let signed = self.signer.sign_proposal(proposal);
                ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(signed))
            }
            4 => ConsensusMessage::Liveness(LivenessMsg::Vote(self.vote(world))),
            5 => {
                let NilOrVal::Val(id) = self.id(world) else {
                    return ConsensusMessage::Want(height);
                };
                let certificate = PolkaCertificate::new(height, round, id, votes);
                ConsensusMessage::Liveness(LivenessMsg::PolkaCertificate(certificate))
            }
            6 => {
                let kind = if self.random.chance(50) {
                    RoundCertificateType::Skip
                } else {
                    RoundCertificateType::Precommit
                };
                votes.dedup_by_key(|vote| vote.message.voter);
                let certificate = RoundCertificate::new_from_votes(height, round, kind, votes);
                ConsensusMessage::Liveness(LivenessMsg::SkipRoundCertificate(certificate))
            }
            7 => ConsensusMessage::Entry(Bytes::from(format!("junk {}", self.random.below(1000)))),
            8 => {
                let (value, pol_round, proposer) =
                    (self.value(world), self.round(), self.address());
                let mut entries = digests(&value);
                if self.random.chance(20) {
                    entries.push(Sha256Digest([7; 32]));
                }
                let (id, leader) = (value.id(), value.leader());
                let proposal = Proposal { height, round, value, pol_round, proposer };
                let signature = self.signer.sign_proposal(proposal).signature;
                let value = id;
                ConsensusMessage::Compact(CompactProposal {
                    height,
                    round,
                    pol_round,
                    proposer,
                    signature,
                    value,
                    leader,
                    entries,
                })
            }
            9 => {
                let value = self.value(world);
                ConsensusMessage::AskEntries(height, round, digests(&value))
            }
            _ => {
                let value = self.value(world);
                let certificate = CommitCertificate::new(height, round, value.id(), votes);
                ConsensusMessage::Decided(DecidedValue { value, certificate })
            }
        }
    }
}

fn digests(value: &LogValue) -> Vec<Sha256Digest> {
    value.entries().iter().map(|entry| Sha256Digest::of(&[entry])).collect()
}

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn a_faulty_server_stops_and_divides_nobody() {
    let runs = sim::run_seeds(30, |seed| {
        let mut world = World::new(4, &[], seed, |_| set_of(&[0, 1, 2, 3]));
        world.corrupt(3);
        let mut liar = Liar { signer: signer(3), random: SeededRng::new(seed) };
        let (mut submitted, mut last) = (0, Duration::ZERO);
        let mut injected = u128::MAX;
        while (0..3).any(|index| world.committed(index) < 10) {
            assert!(world.now() < Duration::from_secs(600), "no progress with seed {seed}");
            if world.committed(0) >= submitted || world.now() > last + ms(2000) {
                submitted = world.committed(0) + 1;
                last = world.now();
                let honest = liar.random.index(3);
                world.submit(honest, Bytes::from(format!("entry {submitted}")));
            }
            // So many in each millisecond.
            let millisecond = world.now().as_millis();
            let number = if millisecond == injected { 0 } else { liar.random.below(8) };
            injected = millisecond;
            for _ in 0..number {
                let to = liar.random.index(3);
                let mut bytes = liar.message(&world).to_bytes();
                // Some of them damaged.
                if liar.random.chance(20) && !bytes.is_empty() {
                    let place = liar.random.index(bytes.len());
                    bytes[place] ^= 1 << liar.random.below(8);
                    bytes.truncate(bytes.len() - liar.random.index(2));
                }
                world.inject(3, to, bytes);
            }
            if seed % 3 == 0 && liar.random.below(400) == 0 {
                world.crash(liar.random.index(3), ms(200));
            }
            world.step(world.now() + ms(100));
        }
        world.check();
        world.proofs
    });
    let proofs: usize = runs.iter().sum();
    assert!(2 * proofs > runs.len(), "{proofs} proofs of equivocation");
}

/// Who has all identity keys of an ended epoch, and the voting keys that f faulty servers have,
/// forges no log for a server that was cut off, nor for one that waits at the begin.
#[test]
fn identity_keys_forge_no_log() {
    for committed in [0, 3] {
        let mut world = World::new(4, &[], 7, |_| set_of(&[0, 1, 2, 3]));
        for height in 1..=committed {
            world.submit(0, Bytes::from(format!("entry {height}")));
            while world.committed(0) < height {
                world.step(world.now() + ms(100));
            }
        }
        (1..4).for_each(|index| world.corrupt(index));
        let (height, round) = (Height(committed + 1), Round::new(0));
        let stolen = [1, 2].map(|number| signer_with(number, identity_as_voting_key(number)));
        let kept = signer(3);
        let entry = Bytes::from_static(b"a false group");
        let value = LogValue::new(kept.address(), &[entry]).unwrap();
        let sign = |signer: &VoteSigner| {
            let (kind, value) = (VoteType::Precommit, NilOrVal::Val(value.id()));
            signer.sign_vote(Vote { kind, height, round, value, voter: signer.address() })
        };
        let forge = |signers: &[&VoteSigner]| {
            let votes = signers.iter().map(|signer| sign(signer)).collect();
            let certificate = CommitCertificate::new(height, round, value.id(), votes);
            ConsensusMessage::Decided(DecidedValue { value: value.clone(), certificate })
        };
        let forged = forge(&[&stolen[0], &stolen[1], &kept]);
        world.inject(3, 0, forged.to_bytes());
        world.run_until(world.now() + ms(10_000));
        assert_eq!(world.committed(0), committed);
        // With voting keys, it would be right.
        let right = forge(&[&signer(1), &signer(2), &kept]);
        world.inject(3, 0, right.to_bytes());
        world.run_until(world.now() + ms(10_000));
        assert_eq!(world.committed(0), committed + 1);
    }
}

/// A server with another voting key than the one that the others know, or none, does not vote; with
/// the one of three that vote, a height is committed.
#[test]
fn without_its_voting_key_a_server_has_no_vote() {
    let mut world = World::new(4, &[], 8, |_| set_of(&[0, 1, 2, 3]));
    world.silence(3, true);
    world.lose_key(2, true);
    world.submit(0, Bytes::from_static(b"entry"));
    world.run_until(Duration::from_secs(30));
    assert!((0..3).all(|index| world.committed(index) == 0 && world.votes(index) == (index < 2)));
    // One that has voted at this height starts without its key, and then with it.
    world.lose_key(1, true);
    world.run_until(world.now() + ms(5000));
    assert!(!world.votes(1) && world.replayed > 0);
    world.lose_key(1, false);
    world.lose_key(2, false);
    let found = world.now();
    while (0..3).any(|index| world.committed(index) == 0) {
        world.step(world.now() + ms(1000));
        assert!(world.now() < found + Duration::from_secs(30), "no progress");
    }
}

#[test]
fn a_divided_group_commits_when_it_is_one_again() {
    // While two are silent, no side has 2f+1.
    let mut world = World::new(4, &[], 1, |_| set_of(&[0, 1, 2, 3]));
    world.silence(2, true);
    world.silence(3, true);
    world.submit(0, Bytes::from_static(b"entry"));
    world.run_until(Duration::from_secs(60));
    assert!((0..4).all(|index| world.committed(index) == 0));
    world.silence(2, false);
    world.silence(3, false);
    let healed = world.now();
    while (0..4).any(|index| world.committed(index) == 0) {
        world.step(world.now() + ms(1000));
        assert!(world.now() < healed + Duration::from_secs(30), "no progress");
    }
}
