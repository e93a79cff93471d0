//! One connection: the engine of its member, and the current exchange.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::job::ProxyEngineWork;
use super::rounds::OpenRound;
use crate::protocol::engine::ProxyEngine;
use crate::protocol::round::{NONCE_LEN, RoundStart};
use crate::protocol::wire::ProxyRefusal;

pub(super) struct GroupConnection {
    pub(super) key: IdentityPublicKey,
    engine: ConnectionEngine,
    /// Set-up messages that the engine has not handled yet.
    set_ups: VecDeque<Vec<u8>>,
    /// The number of set-up messages received.
    set_ups_received: u32,
    /// The current exchange. A member has one exchange at a time, even after its round is over.
    pub(super) exchange: Option<ProxyExchange>,
    /// If the last exchange was late: when the first of the consecutive late exchanges began.
    pub(super) late_since: Option<Duration>,
    /// The audit message that the member must send next.
    audit_reply: Option<AuditReply>,
    membership_messages: u32,
    membership_messages_since: Duration,
}

enum ConnectionEngine {
    /// None, because the client is not a member.
    None,
    /// Idle. A new engine first makes its set-up messages.
    Resting { engine: Box<dyn ProxyEngine>, is_new: bool },
    /// Used by a job.
    Working { is_ready: bool },
}

pub(super) struct ProxyExchange {
    pub(super) start: Arc<RoundStart>,
    pub(super) stage: ProxyExchangeStage,
    /// When it began.
    pub(super) since: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyExchangeStage {
    /// The engine is computing the opening.
    Opening,
    /// The member has been told of the round. Its request is due.
    Opened,
    /// The request with this nonce has arrived, and the engine is computing the answer.
    Answering([u8; NONCE_LEN]),
}

/// The audit message that is due from a connection. A message that is too late for its inquiry is
/// accepted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditReply {
    SetUp,
    Tables,
}

impl GroupConnection {
    pub(super) fn new(key: IdentityPublicKey, now: Duration) -> Self {
        Self {
            key,
            engine: ConnectionEngine::None,
            set_ups: VecDeque::new(),
            set_ups_received: 0,
            exchange: None,
            late_since: None,
            audit_reply: None,
            membership_messages: 0,
            membership_messages_since: now,
        }
    }

    pub(super) fn needs_engine(&self) -> bool {
        matches!(self.engine, ConnectionEngine::None)
    }

    pub(super) fn set_up(&mut self, engine: Box<dyn ProxyEngine>) {
        self.engine = ConnectionEngine::Resting { engine, is_new: true };
    }

    /// A job returns the engine.
    pub(super) fn return_engine(&mut self, engine: Box<dyn ProxyEngine>) {
        self.engine = ConnectionEngine::Resting { engine, is_new: false };
    }

    /// Whether the engine is set up.
    pub(super) fn is_ready(&self) -> bool {
        match &self.engine {
            ConnectionEngine::None => false,
            ConnectionEngine::Resting { engine, .. } => engine.is_ready(),
            ConnectionEngine::Working { is_ready } => *is_ready,
        }
    }

    /// Whether an exchange can begin.
    pub(super) fn can_exchange(&self) -> bool {
        self.exchange.is_none()
            && matches!(self.engine, ConnectionEngine::Resting { .. })
            && self.is_ready()
    }

    /// Queues a set-up message for the engine.
    ///
    /// # Errors
    /// If none is due, or more than `most` have arrived.
    pub(super) fn push_set_up(&mut self, message: Vec<u8>, most: u32) -> Result<(), ProxyRefusal> {
        if self.needs_engine() || self.is_ready() {
            return Err(ProxyRefusal::OutOfTurn);
        }
        self.set_ups_received += 1;
        if self.set_ups_received > most {
            return Err(ProxyRefusal::TooManyMessages);
        }
        self.set_ups.push_back(message);
        Ok(())
    }

    /// Takes the engine for the answer to a request.
    ///
    /// # Errors
    /// If no request is due, or the request is for another round.
    pub(super) fn take_request(
        &mut self,
        round: u64,
        nonce: [u8; NONCE_LEN],
    ) -> Result<Box<dyn ProxyEngine>, ProxyRefusal> {
        let due = self.exchange.as_mut().filter(|it| it.stage == ProxyExchangeStage::Opened);
        let exchange = due.ok_or(ProxyRefusal::OutOfTurn)?;
        if exchange.start.round != round {
            return Err(ProxyRefusal::WrongRound);
        }
        exchange.stage = ProxyExchangeStage::Answering(nonce);
        self.take_engine().ok_or(ProxyRefusal::OutOfTurn)
    }

    /// The next work of the engine, if it is idle: its set-up, or an exchange of `round`.
    pub(super) fn next_work(
        &mut self,
        now: Duration,
        round: Option<&OpenRound>,
    ) -> Option<(Box<dyn ProxyEngine>, ProxyEngineWork)> {
        let ConnectionEngine::Resting { is_new, .. } = &self.engine else { return None };
        let work = if *is_new {
            ProxyEngineWork::SetUp(None)
        } else if let Some(message) = self.set_ups.pop_front() {
            ProxyEngineWork::SetUp(Some(message))
        } else {
            let round = round.filter(|_| self.can_exchange())?;
            let start = round.start();
            self.exchange =
                Some(ProxyExchange { start, stage: ProxyExchangeStage::Opening, since: now });
            ProxyEngineWork::Opening(round.read())
        };
        Some((self.take_engine()?, work))
    }

    fn take_engine(&mut self) -> Option<Box<dyn ProxyEngine>> {
        let is_ready = self.is_ready();
        match std::mem::replace(&mut self.engine, ConnectionEngine::Working { is_ready }) {
            ConnectionEngine::Resting { engine, .. } => Some(engine),
            other => {
                self.engine = other;
                None
            }
        }
    }

    /// Whether no message of an earlier audit is due. It would be mistaken for one of the next
    /// audit.
    pub(super) fn can_audit(&self) -> bool {
        self.audit_reply.is_none()
    }

    /// From now on this audit message is due.
    pub(super) fn ask_audit(&mut self, reply: AuditReply) {
        self.audit_reply = Some(reply);
    }

    /// An audit message has arrived.
    ///
    /// # Errors
    /// If it is not due.
    pub(super) fn take_audit_reply(&mut self, reply: AuditReply) -> Result<(), ProxyRefusal> {
        let due = self.audit_reply.take();
        if due == Some(reply) { Ok(()) } else { Err(ProxyRefusal::OutOfTurn) }
    }

    /// Counts a membership message.
    ///
    /// # Errors
    /// If there are more than `most` in an interval.
    pub(super) fn count_membership_message(
        &mut self,
        now: Duration,
        interval: Duration,
        most: u32,
    ) -> Result<(), ProxyRefusal> {
        if now.saturating_sub(self.membership_messages_since) >= interval {
            (self.membership_messages, self.membership_messages_since) = (0, now);
        }
        self.membership_messages += 1;
        if self.membership_messages > most { Err(ProxyRefusal::TooManyMessages) } else { Ok(()) }
    }
}
