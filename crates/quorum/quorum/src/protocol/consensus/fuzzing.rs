//! Checks of the log's messages and records for fuzz targets.

use std::sync::Arc;
use std::time::Duration;

use arc_malachitebft_core_consensus::{LivenessMsg, SignedConsensusMsg};
use bytes::Bytes;
use keys::IdentitySecretKey;
use zeroize::Zeroizing;

use super::codec::{ConsensusMessage, DecidedValue, encode_record, parse_record};
use super::context::ValidatorAddress;
use super::engine::{ConsensusEngine, ConsensusOutput, LogResumePoint, VoteSigner};
use crate::protocol::admission::EntryCheck;
use crate::protocol::log_types::{Height, ServerSet, Voter};
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Sha256Digest;

const LOG: Sha256Digest = Sha256Digest([7; 32]);

/// The faulty server among the four.
const FAULTY: u8 = 3;

/// An event at a server of a log.
#[derive(Clone, Debug)]
pub enum ConsensusFuzzStep {
    /// These bytes arrive from a server. 1 to 3 are the others of its group, and other numbers are
    /// unknown servers.
    Message(u8, Vec<u8>),
    /// These bytes arrive from server 3. If they are a vote or a proposal, server 3 has signed it.
    Signed(Vec<u8>),
    /// The service submits an entry.
    Submit(Vec<u8>),
    /// A link comes up.
    Greet(u8),
    /// This many milliseconds pass.
    Wait(u16),
}

/// Checks that messages, records and committed values have only one encoding.
///
/// # Panics
/// If one has another encoding.
pub fn round_trip(bytes: &[u8]) {
    if let Ok(message) = ConsensusMessage::parse(&Bytes::copy_from_slice(bytes)) {
        assert_eq!(message.to_bytes(), bytes);
    }
    if let Ok(decided) = DecidedValue::parse(bytes) {
        assert_eq!(decided.to_bytes(), bytes);
    }
    if let Ok(input) = parse_record(bytes) {
        assert_eq!(encode_record(&input).as_deref(), Some(bytes));
    }
}

/// Checks that a server with these records in its write-ahead log starts, or reports an error.
pub fn replay(records: Vec<Vec<u8>>) {
    let opening = LogResumePoint { after: Height(0), leader: None, records };
    let (set, check) = (set(), EntryCheck::anything());
    let voters = (&set, Some(voting(0)));
    let opened = ConsensusEngine::open(signer(0), &opening, voters, check, Duration::ZERO);
    if let Ok(mut engine) = opened {
        engine.outputs();
    }
}

/// Checks that one faulty server and unknown servers neither stop server 0 nor commit anything with
/// it.
///
/// # Panics
/// If they do.
pub fn agree(steps: &[ConsensusFuzzStep]) {
    let opening = LogResumePoint { after: Height(0), leader: None, records: Vec::new() };
    let mut now = Duration::ZERO;
    let own = Some(voting(0));
    let check = EntryCheck::anything();
    let opened = ConsensusEngine::open(signer(0), &opening, (&set(), own), check, now);
    let mut engine = opened.expect("an empty log");
    for step in steps {
        match step {
            ConsensusFuzzStep::Message(from, bytes) => {
                if let Ok(message) = ConsensusMessage::parse(&Bytes::copy_from_slice(bytes)) {
                    let from = signer(1 + from % 5).address();
                    engine.receive(from, message, now).expect("it goes on");
                }
            }
            ConsensusFuzzStep::Signed(bytes) => {
                if let Ok(message) = ConsensusMessage::parse(&Bytes::copy_from_slice(bytes)) {
                    let from = signer(FAULTY);
                    engine.receive(from.address(), sign(message, &from), now).expect("it goes on");
                }
            }
            ConsensusFuzzStep::Submit(entry) => {
                if !entry.is_empty() {
                    let submitted = engine.submit(Bytes::copy_from_slice(entry), now);
                    // Too many may be waiting.
                    let _ = submitted.expect("it goes on");
                }
            }
            ConsensusFuzzStep::Greet(server) => {
                engine.handle_link_up(signer(1 + server % 5).address());
            }
            ConsensusFuzzStep::Wait(milliseconds) => {
                now += Duration::from_millis((*milliseconds).into());
                engine.tick(now).expect("it goes on");
            }
        }
        for output in engine.outputs() {
            match output {
                ConsensusOutput::Commit { .. } => panic!("committed with one faulty server"),
                ConsensusOutput::Broadcast(message)
                | ConsensusOutput::Send(_, message)
                | ConsensusOutput::Answer(_, message) => {
                    let bytes = Bytes::from(message.to_bytes());
                    assert_eq!(ConsensusMessage::parse(&bytes), Ok(message), "not to be parsed");
                }
                ConsensusOutput::Append(records) => {
                    for record in &records {
                        round_trip(record);
                    }
                }
                ConsensusOutput::Equivocation(server) | ConsensusOutput::Checked { server, .. } => {
                    assert_eq!(server, signer(FAULTY).address());
                }
                ConsensusOutput::SendCommitted(..)
                | ConsensusOutput::Charged(..)
                | ConsensusOutput::Refused(..) => {}
            }
        }
    }
}

/// The message, signed by this server.
fn sign(message: ConsensusMessage, signer: &VoteSigner) -> ConsensusMessage {
    match message {
        ConsensusMessage::Consensus(SignedConsensusMsg::Vote(mut vote)) => {
            vote.message.voter = signer.address();
            ConsensusMessage::Consensus(SignedConsensusMsg::Vote(signer.sign_vote(vote.message)))
        }
        ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(mut proposal)) => {
            proposal.message.proposer = signer.address();
            let signed = signer.sign_proposal(proposal.message);
            ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(signed))
        }
        ConsensusMessage::Liveness(LivenessMsg::Vote(mut vote)) => {
            vote.message.voter = signer.address();
            ConsensusMessage::Liveness(LivenessMsg::Vote(signer.sign_vote(vote.message)))
        }
        other => other,
    }
}

/// Messages and records of a running log, for mutation.
pub fn examples() -> Vec<Vec<u8>> {
    let vote = |kind: u8, id: &[u8], address: ValidatorAddress| {
        let mut bytes = vec![2, kind];
        bytes.extend(1_u64.to_be_bytes());
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(id);
        bytes.extend(address.0);
        bytes.extend([0; 64]);
        bytes
    };
    let address = signer(FAULTY).address();
    let mut value = address.0.to_vec();
    value.extend(5_u32.to_be_bytes());
    value.extend(b"entry");
    let id = [&[1][..], &[8; 32]].concat();
    let signature = [&1_u32.to_be_bytes()[..], &address.0, &[0; 64]].concat();
    let place = [&1_u64.to_be_bytes()[..], &[0; 4]].concat();
    let nil = u32::MAX.to_be_bytes();
    let by = [&address.0[..], &[0; 64]].concat();
    vec![
        b"\x01entry".to_vec(),
        vote(1, &id, address),
        vote(2, &[0], address),
        [&[4][..], &vote(1, &[0], address)[1..]].concat(),
        [&[3][..], &place, &nil, &by, &value].concat(),
        [&[5][..], &place, &[8; 32], &signature].concat(),
        [&[6][..], &place, &[1], &1_u32.to_be_bytes(), &[1], &id, &by].concat(),
        [&[7][..], &1_u64.to_be_bytes()].concat(),
        [&[8][..], &place, &signature, &value].concat(),
        // Records.
        [&[1][..], &vote(1, &id, address)[1..]].concat(),
        [&[2][..], &place, &nil, &by, &value].concat(),
        vec![3, 1, 0, 0, 0, 0],
        [&[4][..], &place, &nil, &address.0, &[1], &value].concat(),
        [&[5][..], &place, &[8; 32], &signature].concat(),
    ]
}

fn signer(number: u8) -> VoteSigner {
    let mut signer = VoteSigner::new(&secret(number).public(), LOG);
    signer.set_key(Some(voting(number)));
    signer
}

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number + 1; 32])
}

fn voting(number: u8) -> Arc<VotingSecret> {
    Arc::new(VotingSecret::from_bytes(Zeroizing::new([number + 101; 32])))
}

fn set() -> ServerSet {
    let voter =
        |number| Voter { identity: secret(number).public(), key: Some(voting(number).public()) };
    ServerSet::new((0..4).map(voter)).expect("four servers")
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;
    use crate::fuzzing::changed;

    #[test]
    fn examples_are_messages_or_records() {
        for (i, bytes) in examples().into_iter().enumerate() {
            let is_message = ConsensusMessage::parse(&Bytes::from(bytes.clone())).is_ok();
            assert!(is_message || parse_record(&bytes).is_ok(), "example {i}");
            assert_eq!(is_message && i < 9, i < 9, "example {i}");
        }
    }

    #[test]
    fn a_value_in_the_write_ahead_log_is_valid_or_not() {
        let record = &examples()[12];
        assert_eq!((record[0], record[49]), (4, 1));
        for (byte, is_read) in [(0, true), (1, true), (2, false), (255, false)] {
            let mut record = record.clone();
            record[49] = byte;
            assert_eq!(parse_record(&record).is_ok(), is_read, "{byte}");
            round_trip(&record);
        }
    }

    #[test]
    fn changed_messages_and_records_have_one_encoding_and_stop_nothing() {
        let examples = examples();
        sim::run_seeds(400, |seed| {
            let mut random = SeededRng::new(seed);
            let mut bytes = || {
                let example = &examples[random.index(examples.len())];
                changed(example, &mut random)
            };
            let all: Vec<Vec<u8>> = (0..10).map(|_| bytes()).collect();
            for bytes in &all {
                round_trip(bytes);
            }
            replay(all[..2].to_vec());
            let steps: Vec<ConsensusFuzzStep> = (0..20)
                .map(|_| match random.below(8) {
                    0 => ConsensusFuzzStep::Wait(400),
                    1 => ConsensusFuzzStep::Submit(b"entry".to_vec()),
                    2 => ConsensusFuzzStep::Greet(2),
                    3 => ConsensusFuzzStep::Message(
                        u8::try_from(random.below(5)).unwrap_or(0),
                        all[random.index(all.len())].clone(),
                    ),
                    _ => {
                        ConsensusFuzzStep::Signed(changed(&examples[random.index(9)], &mut random))
                    }
                })
                .collect();
            agree(&steps);
        });
    }
}
