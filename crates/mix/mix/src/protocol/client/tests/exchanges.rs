//! The kinds of exchange in simulations, and the settings of a group with them.

use std::time::Duration;

use super::person::group;
use crate::MailboxShape;
use crate::protocol::engine::MixEngineName;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::group::{ArchiveLimits, MIN_AUDIT_ROUNDS, MixGroupSettings};
use crate::protocol::wire::MixTerms;

const INTERVAL: Duration = Duration::from_millis(400);
const LEAST: Duration = Duration::from_millis(40);
/// The length of slots, unless a test changes it.
pub(super) const SLOT_LEN: usize = 96;

/// How exchanges are made, and how long the proxy keeps rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchanges {
    pub(super) kind: MixExchangeKind,
    pub(super) keep: Duration,
}

/// Oblivious exchanges by the engine of real groups.
pub(super) const OBLIVIOUS: Exchanges =
    Exchanges { kind: MixExchangeKind::Oblivious(MixEngineName::Ot), keep: Duration::ZERO };

pub(super) const BROADCAST: Exchanges =
    Exchanges { kind: MixExchangeKind::Broadcast, keep: Duration::ZERO };

/// Broadcasts whose rounds are kept for two days.
pub(super) const KEPT: Exchanges = Exchanges { keep: Duration::from_secs(2 * 86_400), ..BROADCAST };

/// All kinds of exchange.
pub(super) const EXCHANGES: [Exchanges; 3] = [OBLIVIOUS, BROADCAST, KEPT];

/// The calendar when a simulation begins.
pub(super) const SINCE_1970: Duration = Duration::from_secs(1_800_000_000);

/// Of oblivious exchanges.
pub(super) fn settings() -> MixGroupSettings {
    settings_with(OBLIVIOUS, SLOT_LEN)
}

pub(super) fn settings_with(exchange: Exchanges, slot_len: usize) -> MixGroupSettings {
    settings_for(exchange, slot_len, 4)
}

/// Of a group with this maximum number of members.
pub(super) fn settings_for(
    exchange: Exchanges,
    slot_len: usize,
    members: usize,
) -> MixGroupSettings {
    let writes = if exchange == OBLIVIOUS { 1 } else { 2 };
    let shape = MailboxShape::new(members, 2, writes, 3, slot_len).unwrap();
    let Exchanges { kind, keep } = exchange;
    MixGroupSettings {
        name: group().group,
        administrator: group().administrator,
        terms: MixTerms::new(kind, shape, INTERVAL, LEAST).unwrap().with_keep(keep),
        audit_every_rounds: MIN_AUDIT_ROUNDS,
        archive: ArchiveLimits { keep, keep_bytes: 1 << 30 },
    }
}
