//! The requester of a signature, which is a server of the group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::rsa::RsaEncoding;
use rsa_arithmetic::modulus::RsaElement;

use super::SigningEvidence;
use super::answer::{PartialSignQuery, PartialSignatures, QuickSigners, SigningGroup};
use super::evidence::{WrongAnswerEvidence, is_right, right_values};
use super::health::SignerHealth;
use super::partial::PartialSignError;
use crate::protocol::combination::{Label, ServerIndex};

/// The delay before a busy server is asked again.
const BUSY_DELAY: Duration = Duration::from_millis(100);

/// An output of a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignRequestOutput {
    /// Send a request to a server, possibly the requester itself.
    Send {
        /// The server.
        to: ServerIndex,
        /// The request.
        query: PartialSignQuery,
    },
    /// Report an event.
    Event(SignRequestEvent),
}

/// An event of a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignRequestEvent {
    /// The signature is complete.
    Signed(Vec<u8>),
    /// A server has answered.
    Answered {
        /// The server.
        server: ServerIndex,
        /// The time since the server was first asked.
        took: Duration,
    },
    /// A server had not answered when another one was asked in its place.
    Silent(ServerIndex),
    /// A server has answered wrongly.
    Faulty {
        /// The server.
        server: ServerIndex,
        /// The evidence.
        evidence: SigningEvidence,
    },
    /// There is no signature, because too few servers answered correctly in time.
    Failed,
}

/// One request for a signature. It starts with a quick sign, replaces servers that do not answer,
/// and falls back to a full sign.
pub struct SignRequest {
    group: Arc<SigningGroup>,
    query: PartialSignQuery,
    number: RsaElement,
    /// The servers that may be chosen, best first.
    ranking: Vec<ServerIndex>,
    hedge_delay: Duration,
    /// When the request fails.
    deadline: Duration,
    /// When other servers are asked.
    hedge: Option<Duration>,
    asked: BTreeMap<ServerIndex, Duration>,
    /// The servers that answered, in the order of their answers.
    answered: Vec<ServerIndex>,
    refused: BTreeSet<ServerIndex>,
    /// When busy servers are asked again.
    busy: BTreeMap<ServerIndex, Duration>,
    /// The quick signs, latest last.
    quick: Vec<(QuickSigners, BTreeMap<ServerIndex, PartialSignatures>)>,
    /// The answers to the full sign, if there is one.
    full: Option<BTreeMap<ServerIndex, PartialSignatures>>,
    accused: BTreeSet<ServerIndex>,
    signed: bool,
    failed: bool,
    outputs: VecDeque<SignRequestOutput>,
}

impl SignRequest {
    /// Starts a quick sign. The request fails at `deadline`.
    ///
    /// # Errors
    /// If the key is too short for the encoding.
    pub fn new(
        group: Arc<SigningGroup>,
        message: impl Into<Bytes>,
        encoding: RsaEncoding,
        health: &SignerHealth,
        now: Duration,
        deadline: Duration,
    ) -> Result<Self, PartialSignError> {
        let (epoch, message) = (group.epoch, message.into());
        let query = PartialSignQuery { epoch, signers: None, encoding, message };
        let number = query.number(&group).ok_or(PartialSignError::Number)?;
        let mut request = Self {
            group,
            query,
            number,
            ranking: health.ranking(now),
            hedge_delay: health.hedge_delay(now),
            deadline,
            hedge: None,
            asked: BTreeMap::new(),
            answered: Vec::new(),
            refused: BTreeSet::new(),
            busy: BTreeMap::new(),
            quick: Vec::new(),
            full: None,
            accused: BTreeSet::new(),
            signed: false,
            failed: false,
            outputs: VecDeque::new(),
        };
        request.ask_more(now);
        Ok(request)
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<SignRequestOutput> {
        self.outputs.pop_front()
    }

    /// The message and its encoding, for a request that is abandoned.
    pub fn into_message(self) -> (Bytes, RsaEncoding) {
        (self.query.message, self.query.encoding)
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Duration> {
        let hedge = self.hedge.filter(|_| !self.signed && self.full.is_none());
        let busy = self.busy.values().copied();
        let first = busy.chain(hedge).chain([self.deadline]).min();
        first.filter(|_| !self.is_finished())
    }

    /// Whether the request has ended. After a wrong answer, it continues past its signature until
    /// the servers that answered wrongly are identified, or its deadline has passed.
    pub fn is_finished(&self) -> bool {
        self.failed || self.signed && !self.is_attributing()
    }

    /// Handles an answer of a server. Bytes that are not an answer to this request are ignored.
    pub fn handle_answer(&mut self, now: Duration, from: ServerIndex, bytes: &[u8]) {
        if self.is_finished() {
            return;
        }
        let Some(answer) = PartialSignatures::parse(&self.group, bytes) else { return };
        if answer.server() != from || !answer.is_about(&self.number) {
            return;
        }
        let answers = match answer.signers {
            None => self.full.as_mut(),
            Some(signers) => {
                self.quick.iter_mut().find(|(quick, _)| *quick == signers).map(|(_, it)| it)
            }
        };
        let Some(answers) = answers else { return };
        if answers.contains_key(&from) {
            return;
        }
        let signers = answer.signers;
        answers.insert(from, answer);
        if let Some(&at) = self.asked.get(&from)
            && !self.answered.contains(&from)
        {
            self.answered.push(from);
            let took = now.saturating_sub(at);
            self.outputs.push_back(SignRequestOutput::Event(SignRequestEvent::Answered {
                server: from,
                took,
            }));
        }
        match signers {
            Some(signers) => self.combine_quick(now, signers),
            None => self.combine_full(from),
        }
        self.attribute();
        self.fail_if_hopeless();
    }

    /// Handles the refusal of a server at which the message is not registered.
    pub fn handle_refusal(&mut self, now: Duration, from: ServerIndex) {
        if self.is_finished() || !self.asked.contains_key(&from) || !self.refused.insert(from) {
            return;
        }
        self.ranking.retain(|&server| server != from);
        if !self.signed && self.full.is_none() {
            self.ask_more(now);
        }
        self.fail_if_hopeless();
    }

    /// Handles the reply of a busy server, which is asked again after a delay.
    pub fn handle_busy(&mut self, now: Duration, from: ServerIndex) {
        if !self.is_finished() && self.asked.contains_key(&from) {
            self.busy.insert(from, now + BUSY_DELAY);
        }
    }

    /// There is a link with a server again. What was sent to it before may be lost, so it is asked
    /// again for the answers that it still owes.
    pub fn handle_link_up(&mut self, now: Duration, server: ServerIndex) {
        if !self.is_finished() && self.ranking.contains(&server) {
            self.busy.remove(&server);
            self.ask_again(now, server);
        }
    }

    /// How many servers refuse the message.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// The message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.query.message
    }

    /// Asks a server again for the answers that it still owes.
    fn ask_again(&mut self, now: Duration, server: ServerIndex) {
        let quick = self.quick.iter().filter(|(signers, answers)| {
            signers.servers().contains(&server) && !answers.contains_key(&server)
        });
        let quick: Vec<QuickSigners> = quick.map(|(signers, _)| *signers).collect();
        for signers in quick {
            self.ask(now, Some(signers), &[server]);
        }
        if self.full.as_ref().is_some_and(|answers| !answers.contains_key(&server)) {
            self.ask(now, None, &[server]);
        }
    }

    /// Handles the timeout of [`Self::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.is_finished() {
            return;
        }
        while let Some((&server, _)) = self.busy.iter().find(|(_, at)| **at <= now) {
            self.busy.remove(&server);
            self.ask_again(now, server);
        }
        if now >= self.deadline {
            if !self.signed {
                self.outputs.push_back(SignRequestOutput::Event(SignRequestEvent::Failed));
            }
            self.failed = true;
        } else if self.hedge.is_some_and(|at| now >= at) && !self.signed && self.full.is_none() {
            if let Some((signers, answers)) = self.quick.last() {
                let is_silent =
                    |it: &ServerIndex| !answers.contains_key(it) && !self.busy.contains_key(it);
                let silent = signers.servers().into_iter().filter(is_silent);
                let silent =
                    silent.map(|server| SignRequestOutput::Event(SignRequestEvent::Silent(server)));
                self.outputs.extend(silent);
            }
            self.ask_more(now);
        }
    }

    /// Starts a quick sign with the servers that answered fastest, and others in place of the rest.
    /// Starts a full sign if there are no others.
    fn ask_more(&mut self, now: Duration) {
        let count = self.group.combination.signer_count();
        let answered = self.answered.iter().filter(|it| !self.refused.contains(it));
        let answered = answered.take(count - 1).copied();
        let new = self.ranking.iter().filter(|it| !self.asked.contains_key(it)).copied();
        let chosen: Vec<ServerIndex> = answered.chain(new).take(count).collect();
        match QuickSigners::new(&self.group.combination, chosen) {
            Some(signers) if !self.quick.iter().any(|(quick, _)| *quick == signers) => {
                self.quick.push((signers, BTreeMap::new()));
                self.hedge = Some(now + self.hedge_delay);
                self.ask(now, Some(signers), &signers.servers());
            }
            _ => self.begin_full(now),
        }
    }

    fn begin_full(&mut self, now: Duration) {
        if self.full.is_none() {
            self.full = Some(BTreeMap::new());
            self.ask(now, None, &self.ranking.clone());
        }
    }

    fn ask(&mut self, now: Duration, signers: Option<QuickSigners>, servers: &[ServerIndex]) {
        for &to in servers {
            self.asked.entry(to).or_insert(now);
            let query = PartialSignQuery { signers, ..self.query.clone() };
            self.outputs.push_back(SignRequestOutput::Send { to, query });
        }
    }

    /// Multiplies the answers of a quick sign, if it has all of them.
    fn combine_quick(&mut self, now: Duration, signers: QuickSigners) {
        let group = &*self.group;
        let Some((_, answers)) = self.quick.iter().find(|(quick, _)| *quick == signers) else {
            return;
        };
        if answers.len() < group.combination.signer_count() || self.signed {
            return;
        }
        let product = group.key.modulus().product(answers.values().flat_map(|it| &it.values));
        if !self.accept(&product) {
            self.begin_full(now);
        }
    }

    /// Tries the products that a new answer to the full sign makes possible.
    fn combine_full(&mut self, new: ServerIndex) {
        let (group, Some(full)) = (self.group.clone(), &self.full) else { return };
        if self.signed {
            return;
        }
        let (modulus, combination) = (group.key.modulus(), &group.combination);
        let right = right_values(&group, full.values());
        if right.len() == combination.label_count() && self.accept(&modulus.product(right.values()))
        {
            return;
        }
        let Some(full) = &self.full else { return };
        // Any f+1 servers that answered correctly suffice.
        let answers: BTreeMap<ServerIndex, BTreeMap<Label, &RsaElement>> = full
            .values()
            .filter(|answer| is_right(&group, &right, answer) != Some(false))
            .map(|it| (it.server, it.labels(combination).into_iter().zip(&it.values).collect()))
            .collect();
        if !answers.contains_key(&new) {
            return;
        }
        let others: Vec<ServerIndex> = answers.keys().copied().filter(|it| *it != new).collect();
        let mut products = Vec::new();
        for chosen in 0_u16..1 << others.len() {
            if chosen.count_ones() as usize == combination.faulty() {
                let chosen = (0..).zip(&others).filter(|(at, _)| chosen >> at & 1 == 1);
                let chosen = chosen.map(|(_, server)| *server).chain([new]);
                let values: BTreeMap<Label, &RsaElement> =
                    chosen.flat_map(|server| answers[&server].clone()).collect();
                products.push(modulus.product(values.into_values()));
            }
        }
        products.iter().any(|product| self.accept(product));
    }

    /// Checks whether a product is the signature. If so, reports it.
    fn accept(&mut self, product: &RsaElement) -> bool {
        let signature = product.to_be_bytes();
        let PartialSignQuery { encoding, message, .. } = &self.query;
        let right = self.group.key.public().verify_encoding(encoding, message, &signature);
        if right && !self.signed {
            self.signed = true;
            self.outputs.push_back(SignRequestOutput::Event(SignRequestEvent::Signed(signature)));
        }
        right
    }

    /// Reports the servers whose answers differ from the values of f+1 servers.
    fn attribute(&mut self) {
        let (group, Some(full)) = (&*self.group, &self.full) else { return };
        let right = right_values(group, full.values());
        let quick = self.quick.iter().flat_map(|(_, answers)| answers.values());
        for answer in quick.chain(full.values()) {
            let server = answer.server;
            if is_right(group, &right, answer) == Some(false) && self.accused.insert(server) {
                let evidence = WrongAnswerEvidence::new(group, answer, full.values());
                let evidence = SigningEvidence::Rsa(evidence);
                self.outputs.push_back(SignRequestOutput::Event(SignRequestEvent::Faulty {
                    server,
                    evidence,
                }));
            }
        }
    }

    /// Whether there are answers that cannot be judged yet, and servers that have not answered.
    fn is_attributing(&self) -> bool {
        let Some(full) = &self.full else { return false };
        let awaited = |server: &ServerIndex| !full.contains_key(server);
        let right = right_values(&self.group, full.values());
        let quick = self
            .quick
            .iter()
            .filter(|(_, answers)| answers.len() == self.group.combination.signer_count());
        let mut answers = quick.flat_map(|(_, answers)| answers.values()).chain(full.values());
        self.ranking.iter().any(awaited)
            && answers.any(|answer| is_right(&self.group, &right, answer).is_none())
    }

    /// Fails if all servers have answered or refused.
    fn fail_if_hopeless(&mut self) {
        let Some(full) = &self.full else { return };
        if !self.signed && self.ranking.iter().all(|server| full.contains_key(server)) {
            self.failed = true;
            self.outputs.push_back(SignRequestOutput::Event(SignRequestEvent::Failed));
        }
    }
}
