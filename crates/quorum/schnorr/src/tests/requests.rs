//! Requests for signatures: ROAST with signers that are silent or wrong.

use std::collections::BTreeMap;
use std::process::Command;

use curve25519_dalek::scalar::Scalar;
use sim::{SeededRng, run_seeds};

use super::epochs::hand_over;
use super::world::KeyGroup;
use super::{id, size, verifies};
use crate::frost::{EncodedSession, NonceCommitments, SigningSession};
use crate::roast::{RoastCoordinator, RoastOutput};
use crate::sharing::SharingCommitment;
use crate::signer::{FrostSigner, SessionRefusal, SignatureAnswer};
use ::handover::participant::ParticipantId;

/// What a server does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignerConduct {
    Correct,
    Silent,
    CommitsOnly,
    WrongShare,
    OtherSession,
    Garbage,
    Refuses,
    /// Has been restarted once, and has lost its nonces.
    Restarted,
}

fn random_randomness(rng: &mut SeededRng) -> [u8; 64] {
    rng.bytes()
}

/// A group of signers with its sharing.
fn signers(
    faulty: u8,
    rng: &mut SeededRng,
) -> (SharingCommitment, BTreeMap<ParticipantId, FrostSigner>) {
    let KeyGroup { shares } = hand_over(None, size(faulty), rng);
    let sharing = shares.values().next().unwrap().sharing().clone();
    (sharing, shares.into_iter().map(|(it, share)| (it, FrostSigner::new(share))).collect())
}

struct RequestWorld {
    sharing: SharingCommitment,
    signers: BTreeMap<ParticipantId, FrostSigner>,
    conduct: BTreeMap<ParticipantId, SignerConduct>,
    coordinator: ParticipantId,
    rng: SeededRng,
    /// What is on its way to the servers, and from them.
    outgoing: Vec<RoastOutput>,
    answers: Vec<(ParticipantId, SignerMessage)>,
    asked: BTreeMap<ParticipantId, usize>,
}

enum SignerMessage {
    Commitments(NonceCommitments),
    Answer(Vec<u8>),
    Refusal(Option<NonceCommitments>),
}

impl RequestWorld {
    /// Delivers messages in random order until the signature is there. Returns it and the largest
    /// number of sessions that a server was asked for.
    fn run(&mut self, request: &mut RoastCoordinator) -> ([u8; 64], usize) {
        loop {
            while let Some(output) = request.poll_output() {
                match output {
                    RoastOutput::Signed(signature) => {
                        return (signature, self.asked.values().copied().max().unwrap_or(0));
                    }
                    RoastOutput::Faulty { signer, .. } => {
                        assert_eq!(self.conduct[&signer], SignerConduct::WrongShare);
                    }
                    _ => self.outgoing.push(output),
                }
            }
            let pending = self.outgoing.len() + self.answers.len();
            assert_ne!(pending, 0, "the request never ends");
            let place = self.rng.index(pending);
            if place < self.outgoing.len() {
                let output = self.outgoing.swap_remove(place);
                self.serve(output);
            } else {
                let (from, message) = self.answers.swap_remove(place - self.outgoing.len());
                match message {
                    SignerMessage::Commitments(it) => request.handle_commitments(from, it),
                    SignerMessage::Answer(it) => {
                        request.handle_answer(from, &it);
                    }
                    SignerMessage::Refusal(next) => {
                        request.handle_refusal(from, next);
                    }
                }
            }
        }
    }

    fn serve(&mut self, output: RoastOutput) {
        let randomness = random_randomness(&mut self.rng);
        let (to, session) = match output {
            RoastOutput::AskCommitments { to } => (to, None),
            RoastOutput::AskShare { to, session } => (to, Some(session)),
            _ => return,
        };
        let conduct = self.conduct[&to];
        // f servers are without a share.
        let Some(signer) = self.signers.get_mut(&to) else { return };
        let Some(session) = session else {
            if conduct != SignerConduct::Silent {
                let commitments = signer.commit(self.coordinator, &randomness);
                self.answers.push((to, SignerMessage::Commitments(commitments)));
            }
            return;
        };
        *self.asked.entry(to).or_default() += 1;
        let session = SigningSession::from_bytes(&session).unwrap();
        let mut answer = signer.sign(self.coordinator, &session.encoded(), &randomness).unwrap();
        let message = match conduct {
            SignerConduct::Correct => SignerMessage::Answer(answer.to_bytes()),
            SignerConduct::Silent | SignerConduct::CommitsOnly => return,
            SignerConduct::WrongShare => {
                let mut bytes = answer.to_bytes();
                bytes[32..64].copy_from_slice(Scalar::from(self.rng.next_u64()).as_bytes());
                let wrong = SignatureAnswer::from_bytes(&bytes).unwrap();
                assert!(wrong.is_evidence(&self.sharing, &session, to));
                SignerMessage::Answer(bytes)
            }
            SignerConduct::OtherSession => {
                answer.session[0] ^= 1;
                SignerMessage::Answer(answer.to_bytes())
            }
            SignerConduct::Garbage => SignerMessage::Answer(self.rng.bytes::<90>().to_vec()),
            SignerConduct::Refuses => SignerMessage::Refusal(Some(answer.next)),
            SignerConduct::Restarted => {
                self.conduct.insert(to, SignerConduct::Correct);
                SignerMessage::Refusal(Some(answer.next))
            }
        };
        self.answers.push((to, message));
    }
}

fn request(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let faulty = if rng.chance(70) { 1 } else { 3 };
    let (sharing, signers) = signers(faulty, &mut rng);
    // `hand_over` leaves f servers without a share. Of the others, f are faulty.
    let mut order: Vec<_> = signers.keys().copied().collect();
    rng.shuffle(&mut order);
    let conducts = [
        SignerConduct::Silent,
        SignerConduct::CommitsOnly,
        SignerConduct::WrongShare,
        SignerConduct::OtherSession,
        SignerConduct::Garbage,
        SignerConduct::Refuses,
    ];
    let mut conduct: BTreeMap<_, _> =
        sharing.size().participants().map(|it| (it, SignerConduct::Silent)).collect();
    for (place, server) in order.into_iter().enumerate() {
        let is_faulty = place < sharing.size().faulty();
        let restarted = rng.chance(20);
        conduct.insert(
            server,
            match is_faulty {
                true => *rng.pick(&conducts).unwrap(),
                false if restarted => SignerConduct::Restarted,
                false => SignerConduct::Correct,
            },
        );
    }
    let coordinator = sharing.size().participants().last().unwrap();
    let (outgoing, answers, asked) = (Vec::new(), Vec::new(), BTreeMap::new());
    let most = 2 * sharing.size().faulty() + 2 * sharing.size().signer_count();
    let mut world = RequestWorld {
        sharing: sharing.clone(),
        signers,
        conduct,
        coordinator,
        rng: SeededRng::new(rng.next_u64()),
        outgoing,
        answers,
        asked,
    };
    let mut known = BTreeMap::new();
    for message in [&b"first"[..], b"second"] {
        let mut request = RoastCoordinator::new(sharing.clone(), message.to_vec(), known);
        let (signature, sessions) = world.run(&mut request);
        assert!(verifies(&sharing, message, &signature));
        assert!(sessions <= most, "each session is spoiled by another server");
        // Late answers are to the first request, which does not exist any more.
        (world.outgoing, world.answers, world.asked) = (Vec::new(), Vec::new(), BTreeMap::new());
        known = request.into_unused();
    }
}

#[test]
fn a_request_ends_whatever_faulty_signers_do() {
    run_seeds(60, request);
}

#[test]
fn nonces_are_used_once_and_for_their_coordinator_only() {
    let mut rng = SeededRng::new(1);
    let (sharing, mut signers) = signers(1, &mut rng);
    let mut ids = signers.keys().copied().collect::<Vec<_>>().into_iter();
    let (first, second) = (ids.next().unwrap(), ids.next().unwrap());
    let [a, b] = [id(1), id(2)];
    let mut commitments = BTreeMap::new();
    for server in [first, second] {
        let signer = signers.get_mut(&server).unwrap();
        commitments.insert(server, signer.commit(a, &random_randomness(&mut rng)));
    }
    let signer = signers.get_mut(&first).unwrap();
    let session = |message: &[u8]| SigningSession::new(message.to_vec(), commitments.clone());
    let randomness = random_randomness(&mut rng);
    assert_eq!(signer.sign(b, &session(b"m").encoded(), &randomness), Err(SessionRefusal::Nonces));
    let answer = signer.sign(a, &session(b"m").encoded(), &randomness).unwrap();
    for message in [&b"m"[..], b"other"] {
        assert_eq!(
            signer.sign(a, &session(message).encoded(), &randomness),
            Err(SessionRefusal::Nonces)
        );
    }
    // Too few signers, too many, and others than this one.
    let mut wrong = [commitments.clone(), commitments.clone(), commitments.clone()];
    wrong[0].remove(&second);
    wrong[1].insert(ids.next().unwrap(), commitments[&second]);
    wrong[2].remove(&first);
    wrong[2].insert(id(4), commitments[&first]);
    for signers in wrong {
        let mut signers = signers;
        if let Some(own) = signers.get_mut(&first) {
            *own = answer.next;
        }
        let session = SigningSession::new(b"m".to_vec(), signers);
        assert_eq!(signer.sign(a, &session.encoded(), &randomness), Err(SessionRefusal::Signers));
    }
    // A signer that is restarted has none of them: nonces are nowhere but in memory.
    let share = signer.share();
    let bytes = share.to_bytes();
    let share = crate::KeyShare::from_bytes(first, &bytes, sharing).unwrap();
    let mut restarted = FrostSigner::new(share);
    assert_eq!(
        restarted.sign(a, &session(b"m").encoded(), &randomness),
        Err(SessionRefusal::Nonces)
    );
}

/// Points are decoded only in a session with nonces that this signer has given to the coordinator,
/// and each time costs it these nonces.
#[test]
fn malformed_commitments_cost_the_coordinator_its_nonces() {
    let mut rng = SeededRng::new(5);
    let (_, mut signers) = signers(1, &mut rng);
    let [a, b] = [id(1), id(2)];
    let mut ids = signers.keys().copied().collect::<Vec<_>>().into_iter();
    let (first, second) = (ids.next().unwrap(), ids.next().unwrap());
    let mut commitments = BTreeMap::new();
    for server in [first, second] {
        let signer = signers.get_mut(&server).unwrap();
        commitments.insert(server, signer.commit(a, &random_randomness(&mut rng)));
    }
    let session = SigningSession::new(b"m".to_vec(), commitments).encoded();
    let mut bytes = session.to_bytes();
    // After the number of signers, and the first one with its commitments, the second one.
    bytes[67..131].fill(0xff);
    assert!(SigningSession::from_bytes(&bytes).is_err());
    let wrong = EncodedSession::parse(&bytes.into()).unwrap();
    let signer = signers.get_mut(&first).unwrap();
    let randomness = random_randomness(&mut rng);
    assert_eq!(signer.sign(b, &wrong, &randomness), Err(SessionRefusal::Nonces));
    assert_eq!(signer.sign(a, &wrong, &randomness), Err(SessionRefusal::Commitments));
    for session in [wrong, session] {
        assert_eq!(signer.sign(a, &session, &randomness), Err(SessionRefusal::Nonces));
    }
}

/// A message of 1 MiB is not copied for each server of a session.
#[test]
fn servers_of_a_session_get_the_same_bytes() {
    let mut rng = SeededRng::new(6);
    let (sharing, mut signers) = signers(1, &mut rng);
    let known = signers.iter_mut().take(2);
    let known = known.map(|(&it, signer)| (it, signer.commit(id(1), &random_randomness(&mut rng))));
    let mut request = RoastCoordinator::new(sharing, b"m".to_vec(), known.collect());
    let mut sessions = Vec::new();
    while let Some(output) = request.poll_output() {
        let RoastOutput::AskShare { session, .. } = output else { continue };
        let message = EncodedSession::parse(&session).unwrap();
        let end = session.as_ptr_range().end;
        assert_eq!(message.message().as_ptr_range().end, end, "the message is a part of them");
        sessions.push(session);
    }
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0].as_ptr(), sessions[1].as_ptr());
}

#[test]
fn a_signature_is_verified_by_openssl() {
    let mut rng = SeededRng::new(3);
    let (sharing, signers) = signers(1, &mut rng);
    let conduct = sharing.size().participants().map(|it| (it, SignerConduct::Correct)).collect();
    let message = b"addresses: 192.0.2.1";
    let mut world = RequestWorld {
        sharing: sharing.clone(),
        signers,
        conduct,
        coordinator: id(1),
        rng,
        outgoing: Vec::new(),
        answers: Vec::new(),
        asked: BTreeMap::new(),
    };
    let mut request = RoastCoordinator::new(sharing.clone(), message.to_vec(), BTreeMap::new());
    let (signature, _) = world.run(&mut request);
    let folder = tempfile::tempdir().unwrap();
    // RFC 8410: the header of an Ed25519 public key.
    let header = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
    let key = [&header[..], &sharing.public_key().to_bytes()].concat();
    for (name, bytes) in [("key", &key[..]), ("message", message), ("signature", &signature)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let arguments =
        "pkeyutl -verify -pubin -keyform DER -inkey key -rawin -in message -sigfile signature";
    let openssl =
        Command::new("openssl").args(arguments.split(' ')).current_dir(folder.path()).output();
    match openssl {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(why) => println!("skipped: openssl: {why}"),
    }
}

/// A late answer to an earlier request must not make a correct signer look faulty.
#[test]
fn an_answer_to_another_request_changes_nothing() {
    let mut rng = SeededRng::new(4);
    let (sharing, mut signers) = signers(1, &mut rng);
    let coordinator = id(1);
    let mut request = |message: &[u8]| {
        let known = signers.iter_mut().take(2).map(|(&server, signer)| {
            (server, signer.commit(coordinator, &random_randomness(&mut rng)))
        });
        let known = known.collect();
        let mut request = RoastCoordinator::new(sharing.clone(), message.to_vec(), known);
        let mut answers = Vec::new();
        while let Some(output) = request.poll_output() {
            let RoastOutput::AskShare { to, session } = output else { continue };
            let session = SigningSession::from_bytes(&session).unwrap();
            let signer = signers.get_mut(&to).unwrap();
            let randomness = random_randomness(&mut rng);
            answers.push((to, signer.sign(coordinator, &session.encoded(), &randomness).unwrap()));
        }
        (request, answers)
    };
    let (_, earlier) = request(b"earlier");
    let (mut later, answers) = request(b"later");
    for (from, answer) in earlier.into_iter().chain(answers) {
        later.handle_answer(from, &answer.to_bytes());
    }
    assert!(later.faulty().is_empty());
    assert!(later.is_signed());
}
