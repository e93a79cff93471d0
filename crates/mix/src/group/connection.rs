//! One connection: the engine of its member, and the exchange that is going on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::PublicKey;

use super::job::Work;
use super::rounds::OpenRound;
use crate::engine::ProxyEngine;
use crate::round::{NONCE_LEN, RoundStart};
use crate::wire::Refusal;

pub(super) struct Connection {
    pub(super) key: PublicKey,
    engine: Engine,
    /// Set-up messages that the engine has not taken yet.
    set_ups: VecDeque<Vec<u8>>,
    /// How many set-up messages have come.
    set_ups_received: u32,
    /// What is going on. A member has one exchange at a time, also if its round is over.
    pub(super) exchange: Option<Exchange>,
    /// When the first exchange began that was not done in time, if the last one was not.
    pub(super) late_since: Option<Instant>,
    /// The message of an audit that is due.
    audit_reply: Option<AuditReply>,
    letters: u32,
    letters_since: Instant,
}

enum Engine {
    /// Who is no member has none.
    None,
    /// With no work. Before anything else a new one makes its first set-up messages.
    Resting { engine: Box<dyn ProxyEngine>, is_new: bool },
    /// In a job.
    Working { is_ready: bool },
}

pub(super) struct Exchange {
    pub(super) start: Arc<RoundStart>,
    pub(super) stage: Stage,
    /// When it began.
    pub(super) since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The engine makes the opening.
    Opening,
    /// The member has been told; its request is due.
    Opened,
    /// The request has come, with this nonce, and the engine makes the answer.
    Answering([u8; NONCE_LEN]),
}

/// Which message of an audit is due from a connection. One that comes too late for its inquiry is
/// taken, and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditReply {
    SetUp,
    Tables,
}

impl Connection {
    pub(super) fn new(key: PublicKey, now: Instant) -> Self {
        Self {
            key,
            engine: Engine::None,
            set_ups: VecDeque::new(),
            set_ups_received: 0,
            exchange: None,
            late_since: None,
            audit_reply: None,
            letters: 0,
            letters_since: now,
        }
    }

    pub(super) fn needs_engine(&self) -> bool {
        matches!(self.engine, Engine::None)
    }

    pub(super) fn set_up(&mut self, engine: Box<dyn ProxyEngine>) {
        self.engine = Engine::Resting { engine, is_new: true };
    }

    /// The engine comes back from a job.
    pub(super) fn rest(&mut self, engine: Box<dyn ProxyEngine>) {
        self.engine = Engine::Resting { engine, is_new: false };
    }

    /// Whether the engine is set up.
    pub(super) fn is_ready(&self) -> bool {
        match &self.engine {
            Engine::None => false,
            Engine::Resting { engine, .. } => engine.is_ready(),
            Engine::Working { is_ready } => *is_ready,
        }
    }

    /// Whether an exchange can begin.
    pub(super) fn can_exchange(&self) -> bool {
        self.exchange.is_none() && matches!(self.engine, Engine::Resting { .. }) && self.is_ready()
    }

    /// Takes in a set-up message for the engine.
    ///
    /// # Errors
    /// If none is due, or more than `most` have come.
    pub(super) fn push_set_up(&mut self, message: Vec<u8>, most: u32) -> Result<(), Refusal> {
        if self.needs_engine() || self.is_ready() {
            return Err(Refusal::OutOfTurn);
        }
        self.set_ups_received += 1;
        if self.set_ups_received > most {
            return Err(Refusal::TooManyMessages);
        }
        self.set_ups.push_back(message);
        Ok(())
    }

    /// Takes the engine for the answer to a request.
    ///
    /// # Errors
    /// If no request is due, or one for another round.
    pub(super) fn take_request(
        &mut self,
        round: u64,
        nonce: [u8; NONCE_LEN],
    ) -> Result<Box<dyn ProxyEngine>, Refusal> {
        let due = self.exchange.as_mut().filter(|it| it.stage == Stage::Opened);
        let exchange = due.ok_or(Refusal::OutOfTurn)?;
        if exchange.start.round != round {
            return Err(Refusal::WrongRound);
        }
        exchange.stage = Stage::Answering(nonce);
        self.take_engine().ok_or(Refusal::OutOfTurn)
    }

    /// The next work of the engine, if it rests: its set-up, or an exchange of `round`.
    pub(super) fn next_work(
        &mut self,
        now: Instant,
        round: Option<&OpenRound>,
    ) -> Option<(Box<dyn ProxyEngine>, Work)> {
        let Engine::Resting { is_new, .. } = &self.engine else { return None };
        let work = if *is_new {
            Work::SetUp(None)
        } else if let Some(message) = self.set_ups.pop_front() {
            Work::SetUp(Some(message))
        } else {
            let round = round.filter(|_| self.can_exchange())?;
            let start = round.start();
            self.exchange = Some(Exchange { start, stage: Stage::Opening, since: now });
            Work::Opening(round.read())
        };
        Some((self.take_engine()?, work))
    }

    fn take_engine(&mut self) -> Option<Box<dyn ProxyEngine>> {
        let is_ready = self.is_ready();
        match std::mem::replace(&mut self.engine, Engine::Working { is_ready }) {
            Engine::Resting { engine, .. } => Some(engine),
            other => {
                self.engine = other;
                None
            }
        }
    }

    /// Whether it owes no message of an earlier audit, which would be taken for one of the next.
    pub(super) fn can_audit(&self) -> bool {
        self.audit_reply.is_none()
    }

    /// A message of an audit is due from now on.
    pub(super) fn ask_audit(&mut self, reply: AuditReply) {
        self.audit_reply = Some(reply);
    }

    /// A message of an audit has come.
    ///
    /// # Errors
    /// If it is not due.
    pub(super) fn take_audit_reply(&mut self, reply: AuditReply) -> Result<(), Refusal> {
        let due = self.audit_reply.take();
        if due == Some(reply) { Ok(()) } else { Err(Refusal::OutOfTurn) }
    }

    /// Counts a message to the administrator or of it.
    ///
    /// # Errors
    /// If these are more than `most` in an interval.
    pub(super) fn count_letter(
        &mut self,
        now: Instant,
        interval: Duration,
        most: u32,
    ) -> Result<(), Refusal> {
        if now.saturating_duration_since(self.letters_since) >= interval {
            (self.letters, self.letters_since) = (0, now);
        }
        self.letters += 1;
        if self.letters > most { Err(Refusal::TooManyMessages) } else { Ok(()) }
    }
}
