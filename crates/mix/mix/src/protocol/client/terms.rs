//! The terms that a member agrees to. The proxy states the terms of the group when it greets, and
//! could state others to learn more, or to make its members spend more.

use encoding::FieldReader;

use super::agreed_rounds::AgreedRounds;
use super::report::{DayBytes, MixClientError};
use crate::protocol::cost::MemberCost;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::Invitation;
use crate::protocol::wire::MixTerms;

/// The default of [`AcceptableTerms::max_bytes_per_day`]. A member of a group of 1,024 with rounds
/// of 200 ms, by broadcast, has 128 GB.
pub const MAX_BYTES_PER_DAY: u64 = 200_000_000_000;

/// The default of [`AcceptableTerms::max_change`]: a group may change from one profile to the next.
pub const MAX_TERMS_CHANGE: u32 = 20;

/// What the user of a client accepts of the terms that the proxy states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptableTerms {
    /// The kind of exchange, besides exchanges by broadcast, which are always accepted. `None`: the
    /// one that was agreed to.
    pub exchange: Option<MixExchangeKind>,
    /// Whether the least number of participants may be one of members if the proxy says that it
    /// keeps rounds. `None`: whether it said so when the terms were agreed to.
    pub rounds_kept: Option<bool>,
    /// The maximum of bytes that a member sends and receives in a day: by the terms, if all members
    /// take part; and those of messages that it has counted, because a proxy can make rounds faster
    /// than its terms say.
    pub max_bytes_per_day: u64,
    /// By which factor rounds may be longer or shorter, and the slots of a member have more or
    /// fewer bytes, than by the first terms that were agreed to.
    pub max_change: u32,
}

impl Default for AcceptableTerms {
    fn default() -> Self {
        Self {
            exchange: None,
            rounds_kept: None,
            max_bytes_per_day: MAX_BYTES_PER_DAY,
            max_change: MAX_TERMS_CHANGE,
        }
    }
}

impl AcceptableTerms {
    /// Checks that not too many bytes were sent and received.
    pub(super) fn check_day(&self, today: &DayBytes) -> Result<(), MixClientError> {
        if today.sent.saturating_add(today.received) > self.max_bytes_per_day {
            let max_mb_per_day = self.max_bytes_per_day / 1_000_000;
            return Err(MixClientError::TooMuchToday { max_mb_per_day });
        }
        Ok(())
    }
}

/// What a client has agreed to. It is part of its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AgreedTerms {
    /// None in a state of a version before, which agrees to the next terms.
    exchange: Option<MixExchangeKind>,
    /// Whether the proxy said that it keeps rounds when this client first agreed to its terms.
    is_kept: Option<bool>,
    /// The rounds of the first terms that this client agreed to, with this invitation. None in a
    /// state of a version before, which agrees to the next ones.
    rounds: Option<AgreedRounds>,
    /// Others that were reported since the start. Not stored.
    reported: Option<AgreedRounds>,
    /// Whether it was reported since the start that the proxy now keeps rounds. Not stored.
    is_reported: bool,
}

impl AgreedTerms {
    /// Those of a new client. Unless its user or its invitation says something else, a group makes
    /// its exchanges by broadcast.
    pub(super) fn of_new(accepted: &AcceptableTerms) -> Self {
        let exchange = accepted.exchange.unwrap_or(MixExchangeKind::Broadcast);
        Self { exchange: Some(exchange), ..Self::default() }
    }

    /// The user gives an invitation, which names the kind of exchange if it is not the broadcast.
    pub(super) fn handle_invitation(&mut self, invitation: &Invitation) {
        self.exchange = invitation.exchange().or(self.exchange);
        self.rounds = None;
    }

    /// The kind of exchange, if it is known.
    pub(super) fn exchange(self) -> Option<MixExchangeKind> {
        self.exchange
    }

    /// Agrees to the terms that a proxy states, or refuses them.
    pub(super) fn agree(
        &mut self,
        terms: &MixTerms,
        accepted: &AcceptableTerms,
    ) -> Result<(), MixClientError> {
        let offered = terms.exchange();
        // Nobody learns more by a broadcast than by another exchange.
        if offered != MixExchangeKind::Broadcast
            && let Some(agreed) = accepted.exchange.or(self.exchange)
            && agreed != offered
        {
            return Err(MixClientError::OtherExchange { offered, agreed });
        }
        let cost = MemberCost::new(terms, terms.shape().members());
        let bytes = cost.up_per_day.saturating_add(cost.down_per_day);
        if bytes > accepted.max_bytes_per_day {
            return Err(MixClientError::TooCostly {
                mb_per_day: bytes.div_ceil(1_000_000),
                max_mb_per_day: accepted.max_bytes_per_day / 1_000_000,
            });
        }
        let rounds = AgreedRounds::new(terms);
        let agreed = self.rounds.unwrap_or(rounds);
        rounds.check(agreed, accepted.max_change)?;
        self.rounds = Some(agreed);
        // A broadcast does not change what was agreed to: otherwise a proxy that offers it once
        // would have its members refuse the group's own kind afterwards.
        self.exchange = accepted.exchange.or(self.exchange).or(Some(offered));
        self.is_kept.get_or_insert(!terms.keep().is_zero());
        Ok(())
    }

    /// Whether the least number of participants is one of members, because each of them may read
    /// later.
    pub(super) fn counts_members(self, terms: &MixTerms, accepted: &AcceptableTerms) -> bool {
        !terms.keep().is_zero() && accepted.rounds_kept.or(self.is_kept) == Some(true)
    }

    /// Returns whether to report, once after the start, that the proxy now keeps rounds: this
    /// client has agreed to terms without that, and the user has not said whether it may.
    pub(super) fn report_kept(&mut self, terms: &MixTerms, accepted: &AcceptableTerms) -> bool {
        let is_new = !terms.keep().is_zero() && self.is_kept == Some(false);
        is_new && accepted.rounds_kept.is_none() && !std::mem::replace(&mut self.is_reported, true)
    }

    /// Returns what to report, once after the start, of rounds that differ from those that were
    /// agreed to: those and the proxy's.
    pub(super) fn report_changed(&mut self, terms: &MixTerms) -> Option<(String, String)> {
        let (agreed, now) = (self.rounds?, AgreedRounds::new(terms));
        let is_new = now != agreed && self.reported.replace(now) != Some(now);
        is_new.then(|| (agreed.to_string(), now.to_string()))
    }

    /// Whether there is something that [`AgreedTerms::encode_rounds`] writes.
    pub(super) fn has_rounds(self) -> bool {
        self.rounds.is_some()
    }

    /// Appends the rounds that were agreed to.
    pub(super) fn encode_rounds(self, out: &mut Vec<u8>) {
        self.rounds.into_iter().for_each(|rounds| rounds.encode(out));
    }

    /// Decodes what [`AgreedTerms::encode_rounds`] has written.
    pub(super) fn decode_rounds(&mut self, reader: &mut FieldReader<'_>) -> Option<()> {
        self.rounds = Some(AgreedRounds::decode(reader)?);
        Some(())
    }

    /// Appends two bytes.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(self.exchange.map_or(0, |kind| 1 + kind.number()));
        out.push(self.is_kept.map_or(0, |is_kept| 1 + u8::from(is_kept)));
    }

    /// Decodes what [`AgreedTerms::encode`] has written.
    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let exchange = match reader.u8().ok()? {
            0 => None,
            number => Some(MixExchangeKind::from_number(number - 1)?),
        };
        let is_kept = match reader.u8().ok()? {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return None,
        };
        Some(Self { exchange, is_kept, ..Self::default() })
    }
}
