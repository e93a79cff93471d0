//! ROAST (Ruffing, Ronge, Jin, Schneider-Bensch and Schröder, CCS 2022): a coordinator that obtains
//! a signature whatever up to 2f of the 3f+1 servers do, if f+1 correct ones answer.
//!
//! Each server is in at most one session that waits for it. Whenever f+1 servers have answered all
//! their sessions correctly, the coordinator starts another session with them. A faulty server can
//! spoil at most one session by silence, and is not asked again after a wrong answer. The server
//! that wants a signature is its own coordinator, so a faulty coordinator harms only itself.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::frost::{NonceCommitments, SessionValues, SignatureShare, SigningSession};
use crate::sharing::SharingCommitment;
use crate::signer::SignatureAnswer;
use ::handover::participant::{ParticipantId, ParticipantSet};

/// A request for a signature, at the server that coordinates it.
pub struct RoastCoordinator {
    sharing: SharingCommitment,
    message: Bytes,
    /// The servers that wait for no session, with unused commitments, in the order of their
    /// answers.
    ready: Vec<(ParticipantId, NonceCommitments)>,
    /// The session that waits for a server.
    pending: BTreeMap<ParticipantId, usize>,
    sessions: Vec<OpenSession>,
    /// Servers whose commitments have been taken. Their next ones come with answers.
    asked: ParticipantSet,
    /// Servers that have refused once, and may give other commitments once.
    refused: ParticipantSet,
    faulty: ParticipantSet,
    outputs: VecDeque<RoastOutput>,
    is_signed: bool,
}

struct OpenSession {
    session: SigningSession,
    encoded: Bytes,
    digest: [u8; 32],
    values: SessionValues,
    shares: BTreeMap<ParticipantId, SignatureShare>,
}

/// What the coordinator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoastOutput {
    /// Ask a server for commitments ([`crate::FrostSigner::commit`]).
    AskCommitments {
        /// The server.
        to: ParticipantId,
    },
    /// Ask a server for its share of a signature ([`crate::FrostSigner::sign`]).
    AskShare {
        /// The server.
        to: ParticipantId,
        /// The encoded [`SigningSession`].
        session: Bytes,
    },
    /// A server's answer was wrong. It proves the server faulty
    /// ([`SignatureAnswer::is_evidence`]) if it is signed.
    Faulty {
        /// The server.
        signer: ParticipantId,
        /// The encoded [`SigningSession`].
        session: Bytes,
    },
    /// The Ed25519 signature of the message.
    Signed([u8; 64]),
}

impl RoastCoordinator {
    /// A request for a signature of a message. `known` are unused commitments of servers to this
    /// coordinator. The other servers are asked for commitments.
    pub fn new(
        sharing: SharingCommitment,
        message: impl Into<Bytes>,
        known: BTreeMap<ParticipantId, NonceCommitments>,
    ) -> Self {
        let size = sharing.size();
        let mut coordinator = Self {
            sharing,
            message: message.into(),
            ready: Vec::new(),
            pending: BTreeMap::new(),
            sessions: Vec::new(),
            asked: ParticipantSet::default(),
            refused: ParticipantSet::default(),
            faulty: ParticipantSet::default(),
            outputs: VecDeque::new(),
            is_signed: false,
        };
        for server in size.participants().filter(|server| !known.contains_key(server)) {
            coordinator.outputs.push_back(RoastOutput::AskCommitments { to: server });
        }
        for (server, commitments) in known {
            coordinator.handle_commitments(server, commitments);
        }
        coordinator
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<RoastOutput> {
        self.outputs.pop_front()
    }

    /// Whether the signature is known.
    pub fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// The servers whose answers were wrong.
    pub fn faulty(&self) -> ParticipantSet {
        self.faulty
    }

    /// The number of servers that wait for a session.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The unused commitments, for the next request.
    pub fn into_unused(self) -> BTreeMap<ParticipantId, NonceCommitments> {
        self.ready.into_iter().collect()
    }

    /// Takes a server's first commitments.
    pub fn handle_commitments(&mut self, from: ParticipantId, commitments: NonceCommitments) {
        if self.sharing.size().contains(from) && self.asked.insert(from) {
            self.add_ready(from, &commitments);
        }
    }

    /// Takes a server's answer. An answer that is malformed, unexpected or about another session
    /// changes nothing: the session that waits for the server goes on waiting. Returns whether it
    /// was the answer to the session that waits for the server.
    pub fn handle_answer(&mut self, from: ParticipantId, answer: &[u8]) -> bool {
        let Some(&number) = self.pending.get(&from) else { return false };
        let OpenSession { session, encoded, digest, values, shares } = &mut self.sessions[number];
        if self.is_signed || !answer.starts_with(&*digest) {
            return false;
        }
        // Its points are decoded last, because that is costly.
        let Ok(answer) = SignatureAnswer::from_bytes(answer) else { return false };
        self.pending.remove(&from);
        if !session.verify_share(values, &self.sharing, from, answer.share) {
            self.faulty.insert(from);
            let session = encoded.clone();
            self.outputs.push_back(RoastOutput::Faulty { signer: from, session });
            return true;
        }
        shares.insert(from, answer.share);
        if shares.len() == session.signers().len() {
            self.is_signed = true;
            let signature = values.aggregate(shares.values().copied());
            self.outputs.retain(|output| matches!(output, RoastOutput::Faulty { .. }));
            self.outputs.push_back(RoastOutput::Signed(signature));
        }
        self.add_ready(from, &answer.next);
        true
    }

    /// Takes a server's refusal, because it does not know its nonces any more. Once for each
    /// server, other commitments give it another chance: otherwise a faulty server could spoil
    /// sessions for ever. Returns whether it has one. If not, another server has to take its place.
    pub fn handle_refusal(&mut self, from: ParticipantId, next: Option<NonceCommitments>) -> bool {
        let is_pending = self.pending.remove(&from).is_some();
        let next = next.filter(|_| is_pending && self.refused.insert(from));
        if let Some(next) = &next {
            self.add_ready(from, next);
        }
        next.is_some()
    }

    fn add_ready(&mut self, server: ParticipantId, commitments: &NonceCommitments) {
        self.ready.push((server, *commitments));
        let size = self.sharing.size();
        if self.is_signed || self.ready.len() < size.signer_count() {
            return;
        }
        let signers = std::mem::take(&mut self.ready).into_iter().collect();
        let session = SigningSession::new(self.message.clone(), signers);
        // All outputs share these bytes.
        let encoded = Bytes::from(session.to_bytes());
        for &to in session.signers().keys() {
            self.pending.insert(to, self.sessions.len());
            self.outputs.push_back(RoastOutput::AskShare { to, session: encoded.clone() });
        }
        self.sessions.push(OpenSession {
            digest: session.digest(&self.sharing),
            values: session.values(self.sharing.public_key()),
            session,
            encoded,
            shares: BTreeMap::new(),
        });
    }
}
