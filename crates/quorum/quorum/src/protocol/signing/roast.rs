//! The requester of a signature by an Ed25519 key: ROAST's coordinator, which asks the servers with
//! the best recent health first, as the requester with an RSA key does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::IdentityPublicKey;
use schnorr::{NonceCommitments, RoastCoordinator, RoastOutput, SharingCommitment};

use super::SigningEvidence;
use super::health::SignerHealth;
use super::request::SignRequestEvent;
use super::share_evidence::{SignedShare, WrongShareEvidence};
use crate::protocol::combination::ServerIndex;
use crate::protocol::wire::MalformedEncoding;

/// The delay before a busy server is asked again.
const BUSY_DELAY: Duration = Duration::from_millis(100);

/// What a requester asks a server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FrostQuery {
    /// Commitments to nonces.
    Commitments,
    /// The server's share of a signature in this session, encoded.
    Share(Bytes),
}

/// An output of a requester.
pub(crate) enum RoastRequestOutput {
    /// Ask a server, possibly the requester itself.
    Send { to: ServerIndex, query: FrostQuery },
    /// Report an event.
    Event(SignRequestEvent),
}

/// One request for a signature. It starts with the best f+1 servers. Others take the place of those
/// that refuse, or do not answer in time.
pub(crate) struct RoastRequest {
    sharing: Arc<SharingCommitment>,
    coordinator: RoastCoordinator,
    message: Bytes,
    signer_count: usize,
    /// The servers that were not asked yet, best first.
    ranking: VecDeque<ServerIndex>,
    /// Their unused commitments.
    known: BTreeMap<ServerIndex, NonceCommitments>,
    /// What each server owes, since when, and whether it was reported as silent.
    owed: BTreeMap<ServerIndex, OwedAnswer>,
    /// When busy servers are asked again.
    busy: BTreeMap<ServerIndex, Duration>,
    refused: BTreeSet<ServerIndex>,
    hedge_delay: Duration,
    /// When other servers are asked.
    hedge_at: Duration,
    /// When the request fails.
    deadline: Duration,
    has_failed: bool,
    outputs: VecDeque<RoastRequestOutput>,
}

struct OwedAnswer {
    query: FrostQuery,
    since: Duration,
    is_late: bool,
}

impl RoastRequest {
    /// Starts a request that fails at `deadline`. `known` are unused commitments of servers to this
    /// requester.
    pub(crate) fn new(
        sharing: &Arc<SharingCommitment>,
        message: Bytes,
        known: BTreeMap<ServerIndex, NonceCommitments>,
        health: &SignerHealth,
        now: Duration,
        deadline: Duration,
    ) -> Self {
        let signer_count = sharing.size().signer_count();
        let of_request = (**sharing).clone();
        let mut coordinator = RoastCoordinator::new(of_request, message.clone(), BTreeMap::new());
        // It asks all servers at once. This asks them one after the other.
        while coordinator.poll_output().is_some() {}
        let hedge_delay = health.hedge_delay(now);
        let mut request = Self {
            sharing: sharing.clone(),
            coordinator,
            message,
            signer_count,
            ranking: health.ranking(now).into(),
            known,
            owed: BTreeMap::new(),
            busy: BTreeMap::new(),
            refused: BTreeSet::new(),
            hedge_delay,
            hedge_at: now + hedge_delay,
            deadline,
            has_failed: false,
            outputs: VecDeque::new(),
        };
        request.ask_more(now, signer_count);
        request.fail_if_hopeless();
        request
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<RoastRequestOutput> {
        self.outputs.pop_front()
    }

    /// How many servers refuse the message.
    pub(crate) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// The message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// The message of a request that is abandoned.
    pub(crate) fn into_message(self) -> Bytes {
        self.message
    }

    /// The commitments that were not used, for later requests.
    pub(crate) fn into_unused(self) -> BTreeMap<ServerIndex, NonceCommitments> {
        let mut unused = self.known;
        let ready = self.coordinator.into_unused();
        unused.extend(ready.into_iter().map(|(server, it)| (ServerIndex::of(server), it)));
        unused
    }

    /// Whether the request has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.has_failed || self.coordinator.is_signed()
    }

    /// When to call [`Self::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let hedge = (!self.ranking.is_empty()).then_some(self.hedge_at);
        let first = self.busy.values().copied().chain(hedge).chain([self.deadline]).min();
        first.filter(|_| !self.is_finished())
    }

    /// Handles commitments of a server: its first ones, or others after a refusal because its
    /// nonces are lost. Those of a server that owes nothing are ignored. Another server takes the
    /// place of one that sends malformed ones.
    ///
    /// # Errors
    /// If the server owes a reply, and these are not two points of prime order.
    pub(crate) fn handle_commitments(
        &mut self,
        now: Duration,
        from: ServerIndex,
        commitments: &[u8; 64],
    ) -> Result<(), MalformedEncoding> {
        let Some(participant) = from.participant().filter(|_| !self.is_finished()) else {
            return Ok(());
        };
        let Some(owed) = self.owed.remove(&from) else { return Ok(()) };
        // The points are decoded last, because that is costly: once for each question.
        let decoded = NonceCommitments::from_bytes(commitments);
        let is_taken = match (owed.query, decoded.as_ref().ok()) {
            (FrostQuery::Commitments, Some(first)) => {
                self.coordinator.handle_commitments(participant, *first);
                true
            }
            (FrostQuery::Commitments, None) => false,
            (FrostQuery::Share(_), next) => {
                self.coordinator.handle_refusal(participant, next.copied())
            }
        };
        if !is_taken {
            self.busy.remove(&from);
            self.event(SignRequestEvent::Silent(from));
            self.ask_more(now, 1);
        }
        self.drain(now);
        self.fail_if_hopeless();
        decoded.map(|_| ()).map_err(|why| MalformedEncoding(why.0))
    }

    /// Handles the answer of a server to a session. It is ignored if the server owes none, has not
    /// signed the bytes, or answers something else.
    pub(crate) fn handle_answer(
        &mut self,
        now: Duration,
        from: ServerIndex,
        identity: &IdentityPublicKey,
        bytes: &[u8],
    ) {
        let Some(participant) = from.participant().filter(|_| !self.is_finished()) else { return };
        let owed = self.owed.get(&from);
        if !owed.is_some_and(|owed| matches!(owed.query, FrostQuery::Share(_))) {
            return;
        }
        let Some(share) = SignedShare::parse(bytes, identity) else { return };
        let is_answer = self.coordinator.handle_answer(participant, share.answer());
        if is_answer && let Some(owed) = self.owed.remove(&from) {
            let took = now.saturating_sub(owed.since);
            self.event(SignRequestEvent::Answered { server: from, took });
        }
        self.drain_with(now, Some(&share));
        self.fail_if_hopeless();
    }

    /// Handles the refusal of a server that may not sign the message, or cannot.
    pub(crate) fn handle_refusal(&mut self, now: Duration, from: ServerIndex) {
        if self.is_finished() || self.owed.remove(&from).is_none() {
            return;
        }
        self.busy.remove(&from);
        self.refused.insert(from);
        if let Some(participant) = from.participant() {
            self.coordinator.handle_refusal(participant, None);
        }
        self.ask_more(now, 1);
        self.fail_if_hopeless();
    }

    /// Handles the reply of a busy server, which is asked again after a delay.
    pub(crate) fn handle_busy(&mut self, now: Duration, from: ServerIndex) {
        if !self.is_finished() && self.owed.contains_key(&from) {
            self.busy.insert(from, now + BUSY_DELAY);
        }
    }

    /// There is a link with a server again. What was sent to it before may be lost, so it is asked
    /// again for what it owes.
    pub(crate) fn handle_link_up(&mut self, server: ServerIndex) {
        if !self.is_finished() && self.owed.contains_key(&server) {
            self.busy.remove(&server);
            self.ask_again(server);
        }
    }

    /// Handles the timeout of [`Self::poll_timeout`].
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        if self.is_finished() {
            return;
        }
        while let Some((&server, _)) = self.busy.iter().find(|(_, at)| **at <= now) {
            self.busy.remove(&server);
            self.ask_again(server);
        }
        if now >= self.deadline {
            self.fail();
        } else if now >= self.hedge_at {
            self.hedge_at = now + self.hedge_delay;
            // Another server is asked also in place of one that says that it is busy: otherwise a
            // faulty one could say so for ever.
            let late: Vec<ServerIndex> =
                self.owed.iter().filter(|(_, owed)| !owed.is_late).map(|(it, _)| *it).collect();
            for &server in &late {
                self.owed.entry(server).and_modify(|owed| owed.is_late = true);
                if !self.busy.contains_key(&server) {
                    self.event(SignRequestEvent::Silent(server));
                }
            }
            self.ask_more(now, late.len());
        }
    }

    /// Asks further servers.
    fn ask_more(&mut self, now: Duration, count: usize) {
        for _ in 0..count {
            let Some(server) = self.ranking.pop_front() else { break };
            match (self.known.remove(&server), server.participant()) {
                (Some(commitments), Some(participant)) => {
                    self.coordinator.handle_commitments(participant, commitments);
                }
                (None, Some(_)) => self.ask(now, server, FrostQuery::Commitments),
                (_, None) => {}
            }
        }
        self.drain(now);
    }

    fn ask(&mut self, now: Duration, to: ServerIndex, query: FrostQuery) {
        let owed = OwedAnswer { query: query.clone(), since: now, is_late: false };
        self.owed.insert(to, owed);
        self.outputs.push_back(RoastRequestOutput::Send { to, query });
    }

    /// Asks a server again for what it owes.
    fn ask_again(&mut self, to: ServerIndex) {
        if let Some(owed) = self.owed.get(&to) {
            let query = owed.query.clone();
            self.outputs.push_back(RoastRequestOutput::Send { to, query });
        }
    }

    fn drain(&mut self, now: Duration) {
        self.drain_with(now, None);
    }

    /// Takes over the coordinator's outputs. `answer` is the one that was just handled.
    fn drain_with(&mut self, now: Duration, answer: Option<&SignedShare>) {
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                // Servers are asked by `ask_more`.
                RoastOutput::AskCommitments { .. } => {}
                RoastOutput::AskShare { to, session } => {
                    self.ask(now, ServerIndex::of(to), FrostQuery::Share(session));
                    self.hedge_at = now + self.hedge_delay;
                }
                RoastOutput::Faulty { signer, session } => {
                    let server = ServerIndex::of(signer);
                    if let Some(answer) = answer {
                        let evidence = WrongShareEvidence::new(&self.sharing, session, answer);
                        let evidence = SigningEvidence::Ed25519(evidence);
                        self.event(SignRequestEvent::Faulty { server, evidence });
                    }
                    self.ask_more(now, 1);
                }
                RoastOutput::Signed(signature) => {
                    self.event(SignRequestEvent::Signed(signature.to_vec()));
                }
            }
        }
    }

    fn event(&mut self, event: SignRequestEvent) {
        self.outputs.push_back(RoastRequestOutput::Event(event));
    }

    fn fail(&mut self) {
        self.has_failed = true;
        self.event(SignRequestEvent::Failed);
    }

    /// Fails if fewer than f+1 servers are left.
    fn fail_if_hopeless(&mut self) {
        let waits = self.coordinator.ready_count() + self.owed.len() + self.ranking.len();
        if !self.is_finished() && waits < self.signer_count {
            self.fail();
        }
    }
}
