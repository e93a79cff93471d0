//! The requester of a signature by an RSA key that is shared by a polynomial. It asks the servers
//! with the best recent health first, as the requester with combinatorial shares does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::IdentityPublicKey;
use keys::rsa::RsaEncoding;
use threshold_rsa::{ThresholdRsaOutput, ThresholdRsaRequest, ThresholdRsaSharing};

use super::SigningEvidence;
use super::health::SignerHealth;
use super::part::{PartQuery, SignedPart, WrongPartEvidence};
use super::partial::PartialSignError;
use super::request::SignRequestEvent;
use crate::protocol::combination::ServerIndex;

/// The delay before a busy server is asked again.
const BUSY_DELAY: Duration = Duration::from_millis(100);

/// An output of a requester.
pub(crate) enum PolynomialRequestOutput {
    /// Ask a server, possibly the requester itself.
    Send { to: ServerIndex, query: PartQuery },
    /// Report an event.
    Event(SignRequestEvent),
}

/// One request for a signature. It starts with the best f+1 servers. Others take the place of those
/// that refuse, or do not answer in time. If their parts do not make a signature, it asks all
/// servers for parts with proofs.
pub(crate) struct PolynomialSignRequest {
    request: ThresholdRsaRequest,
    sharing: Arc<ThresholdRsaSharing>,
    /// What servers are asked first.
    query: PartQuery,
    /// The servers without evidence against them, which are asked for parts with proofs.
    trusted: BTreeSet<ServerIndex>,
    /// The servers that were not asked yet, best first.
    ranking: VecDeque<ServerIndex>,
    /// What each server owes, since when, and whether it was reported as silent.
    owed: BTreeMap<ServerIndex, OwedPart>,
    /// The parts that servers have signed: without a proof, and with one.
    quick: BTreeMap<ServerIndex, SignedPart>,
    proven: BTreeMap<ServerIndex, SignedPart>,
    /// When busy servers are asked again.
    busy: BTreeMap<ServerIndex, Duration>,
    refused: BTreeSet<ServerIndex>,
    wants_proofs: bool,
    hedge_delay: Duration,
    /// When other servers are asked.
    hedge_at: Duration,
    /// When the request fails.
    deadline: Duration,
    is_signed: bool,
    has_failed: bool,
    outputs: VecDeque<PolynomialRequestOutput>,
}

struct OwedPart {
    since: Duration,
    is_late: bool,
}

impl PolynomialSignRequest {
    /// Starts a request that fails at `deadline`.
    ///
    /// # Errors
    /// If the key is too short for the encoding.
    pub(crate) fn new(
        (sharing, epoch): (&Arc<ThresholdRsaSharing>, u64),
        message: Bytes,
        encoding: RsaEncoding,
        health: &SignerHealth,
        now: Duration,
        deadline: Duration,
    ) -> Result<Self, PartialSignError> {
        // It asks all servers in this order. This asks them by itself.
        let (of_request, order) = ((**sharing).clone(), []);
        let request = ThresholdRsaRequest::new(of_request, encoding, message.to_vec(), order);
        let hedge_delay = health.hedge_delay(now);
        let ranking = health.ranking(now);
        let mut request = Self {
            request: request.ok_or(PartialSignError::Number)?,
            sharing: sharing.clone(),
            query: PartQuery { epoch, with_proof: false, encoding, message },
            trusted: ranking.iter().copied().collect(),
            ranking: ranking.into(),
            owed: BTreeMap::new(),
            quick: BTreeMap::new(),
            proven: BTreeMap::new(),
            busy: BTreeMap::new(),
            refused: BTreeSet::new(),
            wants_proofs: false,
            hedge_delay,
            hedge_at: now + hedge_delay,
            deadline,
            is_signed: false,
            has_failed: false,
            outputs: VecDeque::new(),
        };
        request.ask_more(now, request.signer_count());
        request.fail_if_hopeless();
        Ok(request)
    }

    fn signer_count(&self) -> usize {
        self.sharing.size().signer_count()
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<PolynomialRequestOutput> {
        self.outputs.pop_front()
    }

    /// How many servers refuse the message.
    pub(crate) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// The message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.query.message
    }

    /// The message and its encoding, for a request that is abandoned.
    pub(crate) fn into_message(self) -> (Bytes, RsaEncoding) {
        (self.query.message, self.query.encoding)
    }

    /// Whether the request has ended. With the signature it is known which parts were wrong: if the
    /// first ones made none, f+1 parts with proofs have.
    pub(crate) fn is_finished(&self) -> bool {
        self.has_failed || self.is_signed
    }

    /// When to call [`Self::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let waits = !self.ranking.is_empty() || self.owed.values().any(|owed| !owed.is_late);
        let hedge = waits.then_some(self.hedge_at);
        let first = self.busy.values().copied().chain(hedge).chain([self.deadline]).min();
        first.filter(|_| !self.is_finished())
    }

    /// Handles the answer of a server. It is ignored if the server owes none, has not signed the
    /// bytes, or answers something else.
    pub(crate) fn handle_answer(
        &mut self,
        now: Duration,
        from: ServerIndex,
        identity: &IdentityPublicKey,
        bytes: &[u8],
    ) {
        let Some(participant) = from.participant().filter(|_| !self.is_finished()) else { return };
        if !self.owed.contains_key(&from) {
            return;
        }
        let part = SignedPart::parse(bytes, identity);
        let is_asked = |it: &SignedPart| it.has_proof(&self.sharing) == self.wants_proofs;
        let Some(part) = part.filter(is_asked) else { return };
        let parts = if self.wants_proofs { &mut self.proven } else { &mut self.quick };
        parts.insert(from, part.clone());
        if !self.request.handle_answer(participant, part.part()) {
            parts.remove(&from);
            return;
        }
        self.busy.remove(&from);
        if let Some(owed) = self.owed.remove(&from) {
            let took = now.saturating_sub(owed.since);
            self.event(SignRequestEvent::Answered { server: from, took });
        }
        self.drain(now);
        self.fail_if_hopeless();
    }

    /// Handles the refusal of a server that may not sign the message, or cannot.
    pub(crate) fn handle_refusal(&mut self, now: Duration, from: ServerIndex) {
        if self.is_finished() || self.owed.remove(&from).is_none() {
            return;
        }
        self.busy.remove(&from);
        self.refused.insert(from);
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
            self.send(server);
        }
    }

    /// Handles the timeout of [`Self::poll_timeout`].
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        if self.is_finished() {
            return;
        }
        while let Some((&server, _)) = self.busy.iter().find(|(_, at)| **at <= now) {
            self.busy.remove(&server);
            self.send(server);
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
            self.ask(now, server);
        }
    }

    fn ask(&mut self, now: Duration, server: ServerIndex) {
        self.owed.insert(server, OwedPart { since: now, is_late: false });
        self.send(server);
    }

    fn send(&mut self, to: ServerIndex) {
        let query = PartQuery { with_proof: self.wants_proofs, ..self.query.clone() };
        self.outputs.push_back(PolynomialRequestOutput::Send { to, query });
    }

    /// Takes over what the request wants done.
    fn drain(&mut self, now: Duration) {
        while let Some(output) = self.request.poll_output() {
            match output {
                // Parts without proofs are asked for by `ask_more`.
                ThresholdRsaOutput::Ask { with_proof: false, .. } => {}
                ThresholdRsaOutput::Ask { to, with_proof: true } => {
                    if !self.wants_proofs {
                        self.wants_proofs = true;
                        self.owed.clear();
                        self.busy.clear();
                        self.ranking.clear();
                        // They may have the message by now.
                        self.refused.clear();
                        self.hedge_at = now + self.hedge_delay;
                    }
                    let server = ServerIndex::of(to);
                    if self.trusted.contains(&server) {
                        self.ask(now, server);
                    }
                }
                ThresholdRsaOutput::Faulty { signer } => self.accuse(ServerIndex::of(signer)),
                ThresholdRsaOutput::Signed(signature) => {
                    self.is_signed = true;
                    self.event(SignRequestEvent::Signed(signature));
                }
            }
        }
    }

    /// Reports a server whose part was wrong. Before there is a signature, its part with a proof
    /// was, which is evidence by itself. Afterwards its part without a proof was, which differs
    /// from the proven ones.
    fn accuse(&mut self, server: ServerIndex) {
        let evidence = if self.is_signed {
            let proven = self.proven.iter().map(|(it, part)| (*it, part));
            let wrong = self.quick.get(&server);
            wrong.map(|wrong| WrongPartEvidence::new(&self.sharing, &self.query, wrong, proven))
        } else {
            let wrong = self.proven.remove(&server);
            wrong.map(|wrong| WrongPartEvidence::new(&self.sharing, &self.query, &wrong, []))
        };
        if let Some(evidence) = evidence {
            let evidence = SigningEvidence::RsaPolynomial(evidence);
            self.event(SignRequestEvent::Faulty { server, evidence });
        }
    }

    fn event(&mut self, event: SignRequestEvent) {
        self.outputs.push_back(PolynomialRequestOutput::Event(event));
    }

    fn fail(&mut self) {
        self.has_failed = true;
        self.event(SignRequestEvent::Failed);
    }

    /// Fails if fewer than f+1 servers are left.
    fn fail_if_hopeless(&mut self) {
        let answered = if self.wants_proofs { self.proven.len() } else { self.quick.len() };
        let left = answered + self.owed.len() + self.ranking.len();
        if !self.is_finished() && left < self.signer_count() {
            self.fail();
        }
    }
}
