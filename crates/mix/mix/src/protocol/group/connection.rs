//! One connection: how its member makes exchanges, and the current exchange.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::job::ProxyEngineWork;
use super::rounds::OpenRound;
use crate::Mailbox;
use crate::protocol::engine::ProxyEngine;
use crate::protocol::round::{NONCE_LEN, RoundPosition, RoundStart};
use crate::protocol::wire::ProxyRefusal;

pub(super) struct GroupConnection {
    pub(super) key: IdentityPublicKey,
    exchanges: ConnectionExchanges,
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
    membership_messages: MessageCount,
    /// Requests for kept rounds that did not go on where an answer ended.
    catch_ups: MessageCount,
    /// The last round of the last answer to such a request, if more follow.
    past_until: Option<RoundPosition>,
}

/// Counts the messages of one kind in an interval.
#[derive(Default)]
pub(super) struct MessageCount {
    count: u32,
    since: Duration,
}

/// How exchanges are made over a connection.
enum ConnectionExchanges {
    /// Not at all, because the client is not a member.
    None,
    /// By broadcast. They begin when the member says so.
    Broadcast { has_begun: bool },
    /// By an engine that is idle. A new engine first makes its set-up messages.
    Resting { engine: Box<dyn ProxyEngine>, is_new: bool },
    /// By an engine that is used by a job.
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
            exchanges: ConnectionExchanges::None,
            set_ups: VecDeque::new(),
            set_ups_received: 0,
            exchange: None,
            late_since: None,
            audit_reply: None,
            membership_messages: MessageCount { count: 0, since: now },
            catch_ups: MessageCount { count: 0, since: now },
            past_until: None,
        }
    }

    /// Whether the client was not a member until now.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.exchanges, ConnectionExchanges::None)
    }

    pub(super) fn set_up(&mut self, engine: Box<dyn ProxyEngine>) {
        self.exchanges = ConnectionExchanges::Resting { engine, is_new: true };
    }

    /// Exchanges are made by broadcast, as soon as [`Self::begin_broadcast`] is called.
    pub(super) fn set_up_broadcast(&mut self) {
        self.exchanges = ConnectionExchanges::Broadcast { has_begun: false };
    }

    /// The member says that it has the epoch's key.
    ///
    /// # Errors
    /// If exchanges are not made by broadcast.
    pub(super) fn begin_broadcast(&mut self) -> Result<(), ProxyRefusal> {
        let ConnectionExchanges::Broadcast { has_begun } = &mut self.exchanges else {
            return Err(ProxyRefusal::OutOfTurn);
        };
        *has_begun = true;
        Ok(())
    }

    /// A job returns the engine.
    pub(super) fn return_engine(&mut self, engine: Box<dyn ProxyEngine>) {
        self.exchanges = ConnectionExchanges::Resting { engine, is_new: false };
    }

    /// Whether exchanges have been set up.
    pub(super) fn is_ready(&self) -> bool {
        match &self.exchanges {
            ConnectionExchanges::None => false,
            ConnectionExchanges::Broadcast { has_begun } => *has_begun,
            ConnectionExchanges::Resting { engine, .. } => engine.is_ready(),
            ConnectionExchanges::Working { is_ready } => *is_ready,
        }
    }

    /// Whether an exchange can begin.
    pub(super) fn can_exchange(&self) -> bool {
        self.exchange.is_none()
            && !matches!(self.exchanges, ConnectionExchanges::Working { .. })
            && self.is_ready()
    }

    /// Queues a set-up message for the engine.
    ///
    /// # Errors
    /// If none is due, or more than `most` have arrived.
    pub(super) fn push_set_up(&mut self, message: Vec<u8>, most: u32) -> Result<(), ProxyRefusal> {
        let is_due = match &self.exchanges {
            ConnectionExchanges::None | ConnectionExchanges::Broadcast { .. } => false,
            ConnectionExchanges::Resting { .. } | ConnectionExchanges::Working { .. } => {
                !self.is_ready()
            }
        };
        if !is_due {
            return Err(ProxyRefusal::OutOfTurn);
        }
        self.set_ups_received += 1;
        if self.set_ups_received > most {
            return Err(ProxyRefusal::TooManyMessages);
        }
        self.set_ups.push_back(message);
        Ok(())
    }

    /// A request has arrived. Returns the engine for the answer, if exchanges are made by one.
    ///
    /// # Errors
    /// If no request is due, or the request is for another round.
    pub(super) fn take_request(
        &mut self,
        round: u64,
        nonce: [u8; NONCE_LEN],
    ) -> Result<Option<Box<dyn ProxyEngine>>, ProxyRefusal> {
        let due = self.exchange.as_mut().filter(|it| it.stage == ProxyExchangeStage::Opened);
        let exchange = due.ok_or(ProxyRefusal::OutOfTurn)?;
        if exchange.start.round != round {
            return Err(ProxyRefusal::WrongRound);
        }
        exchange.stage = ProxyExchangeStage::Answering(nonce);
        Ok(self.take_engine())
    }

    /// Begins an exchange by broadcast of `round`, if it can begin. Returns the message that tells
    /// the member of it.
    pub(super) fn begin_round(&mut self, now: Duration, round: &OpenRound) -> Option<Arc<[u8]>> {
        let message = round.message().filter(|_| self.can_exchange())?;
        let (start, stage) = (round.start(), ProxyExchangeStage::Opened);
        self.exchange = Some(ProxyExchange { start, stage, since: now });
        Some(message.clone())
    }

    /// The next work of the engine, if it is idle: its set-up, or an exchange of `round`, which
    /// reads the mailbox.
    pub(super) fn next_work(
        &mut self,
        now: Duration,
        round: Option<(&OpenRound, Arc<Mailbox>)>,
    ) -> Option<(Box<dyn ProxyEngine>, ProxyEngineWork)> {
        let ConnectionExchanges::Resting { is_new, .. } = &self.exchanges else { return None };
        let work = if *is_new {
            ProxyEngineWork::SetUp(None)
        } else if let Some(message) = self.set_ups.pop_front() {
            ProxyEngineWork::SetUp(Some(message))
        } else {
            let (round, read) = round.filter(|_| self.can_exchange())?;
            let start = round.start();
            self.exchange =
                Some(ProxyExchange { start, stage: ProxyExchangeStage::Opening, since: now });
            ProxyEngineWork::Opening(read)
        };
        Some((self.take_engine()?, work))
    }

    fn take_engine(&mut self) -> Option<Box<dyn ProxyEngine>> {
        let is_ready = self.is_ready();
        match std::mem::replace(&mut self.exchanges, ConnectionExchanges::Working { is_ready }) {
            ConnectionExchanges::Resting { engine, .. } => Some(engine),
            other => {
                self.exchanges = other;
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
        self.membership_messages.add(now, interval, most)
    }

    /// Counts a request for the kept rounds after one, unless it goes on where the last answer
    /// ended: a member that catches up sends one for each answer, as fast as it reads.
    ///
    /// # Errors
    /// If there are more than `most` in an interval.
    pub(super) fn count_catch_up(
        &mut self,
        now: Duration,
        interval: Duration,
        after: RoundPosition,
        most: u32,
    ) -> Result<(), ProxyRefusal> {
        if self.past_until.take().is_some_and(|until| after >= until) {
            return Ok(());
        }
        self.catch_ups.add(now, interval, most)
    }

    /// Kept rounds are sent up to this one, and more follow; `None` if they are the last.
    pub(super) fn set_past_until(&mut self, until: Option<RoundPosition>) {
        self.past_until = until;
    }
}

impl MessageCount {
    /// Counts a message.
    ///
    /// # Errors
    /// If there are more than `most` in an interval.
    pub(super) fn add(
        &mut self,
        now: Duration,
        interval: Duration,
        most: u32,
    ) -> Result<(), ProxyRefusal> {
        if now.saturating_sub(self.since) >= interval {
            (self.count, self.since) = (0, now);
        }
        self.count += 1;
        if self.count > most { Err(ProxyRefusal::TooManyMessages) } else { Ok(()) }
    }

    /// When the next interval begins.
    pub(super) fn next_interval(&self, interval: Duration) -> Duration {
        self.since + interval
    }
}
