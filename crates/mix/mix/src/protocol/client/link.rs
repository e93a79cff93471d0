//! A connection to the proxy after the greeting.

use std::collections::VecDeque;
use std::time::Duration;

use super::report::MixClientError;
use crate::protocol::engine::{self, MemberEngine};
use crate::protocol::member::MixMember;
use crate::protocol::round::RoundStart;
use crate::protocol::wire::{MemberToProxy, MixTerms};

/// The number of exchanges whose durations are averaged.
const EXCHANGES: usize = 16;
/// The maximum number of queued set-up messages.
const MAX_SET_UPS: usize = 64;

/// A connection whose greeting was answered.
pub(super) struct ProxyLink {
    terms: MixTerms,
    engine: Box<dyn MemberEngine>,
    /// Whether the engine's set-up has begun. Until then its messages are queued.
    is_begun: bool,
    set_ups: VecDeque<Vec<u8>>,
    outstanding: Option<OutstandingExchange>,
    durations: VecDeque<Duration>,
    round: u64,
}

/// An exchange that waits for its answer.
struct OutstandingExchange {
    round: u64,
    sent: Duration,
}

impl ProxyLink {
    pub(super) fn new(terms: MixTerms, seed: [u8; 32]) -> Result<Self, MixClientError> {
        let engine = engine::member(terms.engine(), terms.shape(), seed)?;
        Ok(Self {
            terms,
            engine,
            is_begun: false,
            set_ups: VecDeque::new(),
            outstanding: None,
            durations: VecDeque::with_capacity(EXCHANGES),
            round: 0,
        })
    }

    pub(super) fn terms(&self) -> &MixTerms {
        &self.terms
    }

    /// Begins the engine's set-up, unless it has begun: afterwards the proxy expects exchanges.
    /// Returns messages for the proxy.
    pub(super) fn begin(&mut self) -> Result<Vec<Vec<u8>>, MixClientError> {
        self.is_begun = true;
        self.set_up()
    }

    /// Whether the engine's set-up has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Takes a message of the engine's set-up. Returns messages for the proxy.
    pub(super) fn handle_set_up(
        &mut self,
        message: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, MixClientError> {
        if self.set_ups.len() >= MAX_SET_UPS {
            return Err(MixClientError::OutOfTurn("too many messages of the set-up"));
        }
        self.set_ups.push_back(message);
        if self.is_begun { self.set_up() } else { Ok(Vec::new()) }
    }

    fn set_up(&mut self) -> Result<Vec<Vec<u8>>, MixClientError> {
        while let Some(message) = self.set_ups.pop_front() {
            self.engine.handle_set_up(&message)?;
        }
        let messages = std::iter::from_fn(|| self.engine.poll_set_up());
        Ok(messages.map(|message| MemberToProxy::SetUp(message).encode()).collect())
    }

    /// Whether exchanges can be made.
    pub(super) fn is_ready(&self) -> bool {
        self.is_begun && self.engine.is_ready()
    }

    /// The member's request in a round. `is_stored`: see [`MixMember::handle_round`].
    pub(super) fn handle_round(
        &mut self,
        now: Duration,
        start: &RoundStart,
        opening: &[u8],
        member: &mut MixMember,
        is_stored: bool,
    ) -> Result<Vec<u8>, MixClientError> {
        if !self.is_ready() {
            return Err(MixClientError::OutOfTurn("a round before the set-up"));
        }
        let exchange = member.handle_round(start, is_stored)?;
        let body = self.engine.request(opening, &exchange.update, &exchange.reads)?;
        self.outstanding = Some(OutstandingExchange { round: start.round, sent: now });
        Ok(MemberToProxy::Request { round: start.round, nonce: exchange.nonce, body }.encode())
    }

    /// The slots that the member has read.
    pub(super) fn handle_answer(
        &mut self,
        now: Duration,
        round: u64,
        answer: &[u8],
    ) -> Result<Vec<Vec<u8>>, MixClientError> {
        let asked = self.outstanding.take().filter(|asked| asked.round == round);
        let asked = asked.ok_or(MixClientError::OutOfTurn("an answer to no request"))?;
        let slots = self.engine.slots(answer)?;
        self.durations.truncate(EXCHANGES - 1);
        self.durations.push_front(now.saturating_sub(asked.sent));
        self.round = round;
        Ok(slots)
    }

    /// The proxy did not take the request of a round.
    pub(super) fn handle_late(&mut self, round: u64) {
        self.outstanding = self.outstanding.take().filter(|asked| asked.round != round);
    }

    /// The last round with an answer, or 0.
    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// The mean time from request to answer.
    pub(super) fn latency(&self) -> Option<Duration> {
        let count = u32::try_from(self.durations.len()).ok().filter(|&count| count > 0)?;
        Some(self.durations.iter().sum::<Duration>() / count)
    }
}
