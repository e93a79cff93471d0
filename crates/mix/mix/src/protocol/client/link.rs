//! A connection to the proxy after the greeting.

mod catch_up;

use std::collections::VecDeque;
use std::time::Duration;

use self::catch_up::CatchUpProgress;
use super::report::MixClientError;
use crate::protocol::engine::{self, MemberEngine, MixEngineError};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::member::MixMember;
use crate::protocol::round::{ReadRound, RoundPosition, RoundStart};
use crate::protocol::wire::{ArchiveRecord, MemberToProxy, MixTerms};

/// The number of exchanges whose durations are averaged.
const EXCHANGES: usize = 16;
/// The maximum number of queued set-up messages.
const MAX_SET_UPS: usize = 64;

/// A connection whose greeting was answered.
#[expect(clippy::struct_excessive_bools, reason = "each is independent of the others")]
pub(super) struct ProxyLink {
    terms: MixTerms,
    exchanges: LinkExchanges,
    /// Whether exchanges or their set-up have begun.
    is_begun: bool,
    /// Whether this client has the proxy's newest announcement. Until then an administrator writes
    /// nothing: its state may be old.
    pub(super) is_current: bool,
    /// Whether the proxy has an announcement for this client, and sends it without waiting for
    /// anybody.
    pub(super) has_announcement: bool,
    /// Whether this client has sent its own newest announcement, which the proxy had lost.
    pub(super) has_restored: bool,
    /// Whether the notice of the current prekey was sent.
    pub(super) has_noticed: bool,
    outstanding: Option<OutstandingExchange>,
    durations: VecDeque<Duration>,
    round: u64,
    /// How many requests in a row were late.
    late: u64,
}

/// How exchanges are made.
enum LinkExchanges {
    Broadcast(BroadcastLink),
    Oblivious {
        engine: Box<dyn MemberEngine>,
        /// Messages of the set-up that arrived before it began.
        set_ups: VecDeque<Vec<u8>>,
    },
}

/// Exchanges by broadcast.
struct BroadcastLink {
    /// The last round that has arrived, in order.
    arrived: RoundPosition,
    /// The round before the last one that the proxy has opened here. Later ones are not over.
    over: RoundPosition,
    /// There while the proxy was asked for rounds that it has kept, and has not sent the last of
    /// them. Until then nothing is read of live rounds but own slots, because they come again.
    catch_up: Option<CatchUpProgress>,
    /// What has arrived and was not read.
    unread: VecDeque<UnreadRound>,
}

/// Something to read.
pub(super) enum UnreadRound {
    /// The mailbox that came with the start of a round, after a byte that is 1 if it is kept.
    Live(ReadRound, Vec<u8>),
    /// The same, of which only the own slots are compared: past rounds have not all come. Also the
    /// number of such rounds.
    WhileCatchingUp(ReadRound, Vec<u8>, u64),
    /// A record of the archive.
    Past(ArchiveRecord),
    /// All records have come.
    CaughtUp,
}

/// An exchange that waits for its answer.
struct OutstandingExchange {
    round: u64,
    sent: Duration,
}

impl ProxyLink {
    pub(super) fn new(terms: MixTerms, seed: [u8; 32]) -> Result<Self, MixClientError> {
        let exchanges = match terms.exchange() {
            MixExchangeKind::Broadcast => LinkExchanges::Broadcast(BroadcastLink {
                arrived: RoundPosition::default(),
                over: RoundPosition::default(),
                catch_up: None,
                unread: VecDeque::new(),
            }),
            MixExchangeKind::Oblivious(engine) => LinkExchanges::Oblivious {
                engine: engine::member(engine, terms.shape(), seed)?,
                set_ups: VecDeque::new(),
            },
        };
        Ok(Self {
            terms,
            exchanges,
            is_begun: false,
            is_current: false,
            has_announcement: false,
            has_restored: false,
            has_noticed: false,
            outstanding: None,
            durations: VecDeque::with_capacity(EXCHANGES),
            round: 0,
            late: 0,
        })
    }

    pub(super) fn terms(&self) -> &MixTerms {
        &self.terms
    }

    /// Begins exchanges or their set-up, unless they have begun: afterwards the proxy expects
    /// exchanges. `arrived` is the last round that has arrived before. Returns messages for the
    /// proxy.
    pub(super) fn begin(&mut self, arrived: RoundPosition) -> Result<Vec<Vec<u8>>, MixClientError> {
        let has_begun = std::mem::replace(&mut self.is_begun, true);
        match &mut self.exchanges {
            LinkExchanges::Oblivious { .. } => self.set_up(),
            LinkExchanges::Broadcast(_) if has_begun => Ok(Vec::new()),
            LinkExchanges::Broadcast(link) => {
                link.arrived = arrived;
                link.catch_up = (!self.terms.keep().is_zero()).then(CatchUpProgress::default);
                Ok(vec![link.past_request()])
            }
        }
    }

    /// Whether rounds of an epoch may arrive after its end: at least the last one, because the
    /// mailbox of a round comes with the start of the next one.
    pub(super) fn keeps_rounds(&self) -> bool {
        matches!(self.exchanges, LinkExchanges::Broadcast(_)) && !self.terms.keep().is_zero()
    }

    /// Whether rounds since the last connection have not arrived yet.
    pub(super) fn is_catching_up(&self) -> bool {
        matches!(&self.exchanges, LinkExchanges::Broadcast(link) if link.catch_up.is_some())
    }

    /// Rounds that the proxy has kept have arrived, of epochs up to the newest one that this client
    /// has heard of: a position beyond it would hide later rounds from this client, also those of
    /// another proxy. For the same reason, a gap ends with the last round that is over. Returns the
    /// message that asks for the next.
    pub(super) fn handle_past(
        &mut self,
        is_last: bool,
        records: Vec<ArchiveRecord>,
        newest: u32,
    ) -> Result<Option<Vec<u8>>, MixClientError> {
        let LinkExchanges::Broadcast(link) = &mut self.exchanges else {
            return Err(MixClientError::OutOfTurn("past rounds where there are none"));
        };
        let Some(catch_up) = &mut link.catch_up else {
            return Err(MixClientError::OutOfTurn("past rounds without a request"));
        };
        catch_up.handle_past();
        let before = link.arrived;
        for record in records {
            let position = record.position();
            if position.is_some_and(|position| position <= link.arrived) {
                return Err(MixClientError::OutOfTurn("past rounds in another order"));
            }
            if position.is_some_and(|position| position.epoch > newest) {
                return Err(MixClientError::OutOfTurn("past rounds of an epoch to come"));
            }
            let record = match record {
                ArchiveRecord::Gap(position) => {
                    ArchiveRecord::Gap(position.min(link.over).max(link.arrived))
                }
                other => other,
            };
            link.arrived = record.position().unwrap_or(link.arrived);
            link.unread.push_back(UnreadRound::Past(record));
        }
        if is_last {
            link.catch_up = None;
            link.unread.push_back(UnreadRound::CaughtUp);
            return Ok(None);
        }
        if link.arrived == before {
            return Err(MixClientError::OutOfTurn("no past rounds, and not the last ones"));
        }
        Ok(Some(link.past_request()))
    }

    /// The epoch that was read was replaced by this one, whose number is not greater.
    pub(super) fn forget_position(&mut self, epoch: u32) {
        if let LinkExchanges::Broadcast(link) = &mut self.exchanges {
            link.arrived = link.arrived.min(RoundPosition { epoch, round: 0 });
        }
    }

    /// Whether the proxy is to send the newest announcement: after the greeting, or after this
    /// client has given it its own.
    pub(super) fn owes_announcement(&self) -> bool {
        (self.has_announcement || self.has_restored) && !self.is_current
    }

    /// Whether exchanges or their set-up have begun.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Takes a message of the engine's set-up. Returns messages for the proxy.
    pub(super) fn handle_set_up(
        &mut self,
        message: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, MixClientError> {
        let LinkExchanges::Oblivious { set_ups, .. } = &mut self.exchanges else {
            return Err(MixClientError::OutOfTurn("a set-up where there is none"));
        };
        if set_ups.len() >= MAX_SET_UPS {
            return Err(MixClientError::OutOfTurn("too many messages of the set-up"));
        }
        set_ups.push_back(message);
        if self.is_begun { self.set_up() } else { Ok(Vec::new()) }
    }

    fn set_up(&mut self) -> Result<Vec<Vec<u8>>, MixClientError> {
        let LinkExchanges::Oblivious { engine, set_ups } = &mut self.exchanges else {
            return Ok(Vec::new());
        };
        while let Some(message) = set_ups.pop_front() {
            engine.handle_set_up(&message)?;
        }
        let messages = std::iter::from_fn(|| engine.poll_set_up());
        Ok(messages.map(|message| MemberToProxy::SetUp(message).encode()).collect())
    }

    /// Whether exchanges can be made.
    pub(super) fn is_ready(&self) -> bool {
        let is_set_up = match &self.exchanges {
            LinkExchanges::Broadcast(_) => true,
            LinkExchanges::Oblivious { engine, .. } => engine.is_ready(),
        };
        self.is_begun && is_set_up
    }

    /// The member's request in a round. `is_stored`: see [`MixMember::handle_round`].
    pub(super) fn handle_round(
        &mut self,
        now: Duration,
        start: &RoundStart,
        opening: Vec<u8>,
        member: &mut MixMember,
        is_stored: bool,
    ) -> Result<Vec<u8>, MixClientError> {
        if !self.is_ready() {
            return Err(MixClientError::OutOfTurn("a round before the set-up"));
        }
        let (nonce, body) = match &mut self.exchanges {
            LinkExchanges::Oblivious { engine, .. } => {
                let exchange = member.handle_round(start, is_stored)?;
                let body = engine.request(&opening, &exchange.update, &exchange.reads)?;
                (exchange.nonce, body)
            }
            LinkExchanges::Broadcast(link) => {
                let slots_len = self.terms.shape().own_slots_len();
                let of = |read: &ReadRound| 1 + read.participants.len() * slots_len;
                let (expected, len) = (start.read.as_ref().map_or(0, of), opening.len());
                if len != expected {
                    return Err(MixEngineError::Length { expected, len }.into());
                }
                let catch_up = link.catch_up.as_mut();
                let while_catching_up = catch_up
                    .map(|it| it.handle_round(now, start.round, link.arrived.round, &self.terms))
                    .transpose()?;
                let exchange = member.handle_broadcast_round(start, is_stored)?;
                let before = start.round.saturating_sub(1);
                link.over = RoundPosition { epoch: start.epoch, round: before };
                match (start.read.clone(), while_catching_up) {
                    (Some(read), Some(rounds)) => {
                        let unread = UnreadRound::WhileCatchingUp(read, opening, rounds);
                        link.unread.push_back(unread);
                    }
                    (Some(read), None) => {
                        let position = RoundPosition { epoch: start.epoch, round: read.round };
                        if position > link.arrived {
                            link.arrived = position;
                            link.unread.push_back(UnreadRound::Live(read, opening));
                        }
                    }
                    (None, _) => {}
                }
                (exchange.nonce, exchange.slots)
            }
        };
        self.outstanding = Some(OutstandingExchange { round: start.round, sent: now });
        Ok(MemberToProxy::Request { round: start.round, nonce, body }.encode())
    }

    /// The next mailbox that has arrived in an exchange by broadcast.
    pub(super) fn take_unread(&mut self) -> Option<UnreadRound> {
        match &mut self.exchanges {
            LinkExchanges::Broadcast(link) => link.unread.pop_front(),
            LinkExchanges::Oblivious { .. } => None,
        }
    }

    /// The proxy has answered. The member handles the slots that it has read by an engine.
    pub(super) fn handle_answer(
        &mut self,
        now: Duration,
        round: u64,
        answer: &[u8],
        member: &mut MixMember,
    ) -> Result<(), MixClientError> {
        let asked = self.outstanding.take().filter(|asked| asked.round == round);
        let asked = asked.ok_or(MixClientError::OutOfTurn("an answer to no request"))?;
        match &mut self.exchanges {
            LinkExchanges::Oblivious { engine, .. } => {
                member.handle_slots(&engine.slots(answer)?);
            }
            LinkExchanges::Broadcast(_) if answer.is_empty() => member.handle_answered(),
            LinkExchanges::Broadcast(_) => {
                return Err(MixEngineError::Length { expected: 0, len: answer.len() }.into());
            }
        }
        self.late = 0;
        self.durations.truncate(EXCHANGES - 1);
        self.durations.push_front(now.saturating_sub(asked.sent));
        self.round = round;
        Ok(())
    }

    /// The proxy did not take the request of a round. In an exchange by broadcast, the member may
    /// have missed rounds meanwhile: returns the message that asks for them. If nothing was asked
    /// in this round, nothing happens.
    pub(super) fn handle_late(&mut self, round: u64) -> Option<Vec<u8>> {
        self.outstanding.take_if(|asked| asked.round == round)?;
        self.late += 1;
        let LinkExchanges::Broadcast(link) = &mut self.exchanges else { return None };
        if self.terms.keep().is_zero() || link.catch_up.is_some() {
            return None;
        }
        link.catch_up = Some(CatchUpProgress::default());
        Some(link.past_request())
    }

    /// How many requests in a row were late.
    pub(super) fn late(&self) -> u64 {
        self.late
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

impl BroadcastLink {
    /// The message that asks for the rounds after the last one that has arrived.
    fn past_request(&self) -> Vec<u8> {
        MemberToProxy::CatchUp(self.arrived).encode()
    }
}
