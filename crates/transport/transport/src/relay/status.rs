//! What a relay reports to its operator. It names no token and no address of a party.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The status of a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The address where it listens.
    pub listen: String,
    /// The time since the start, in seconds.
    pub uptime_s: f64,
    /// The connections that wait, and the most that may.
    pub waiting: u64,
    /// See `waiting`.
    pub max_waiting: u64,
    /// The pairs that are connected, and the most that may be.
    pub pairs: u64,
    /// See `pairs`.
    pub max_pairs: u64,
    /// The connections that have waited since the start.
    pub waited: u64,
    /// The pairs that were connected since the start.
    pub joined: u64,
    /// The bytes passed on to those who waited, since the start.
    pub to_waiting_bytes: u64,
    /// The bytes passed on from those who waited, since the start.
    pub from_waiting_bytes: u64,
    /// The connections that were refused or ended since the start.
    pub refused: RelayRefusalCounts,
}

/// Connections that a relay has refused or ended, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRefusalCounts {
    /// They asked for nothing in time.
    pub silent: u64,
    /// What they asked for is not a request.
    pub malformed: u64,
    /// Nobody waited under their token.
    pub unknown_token: u64,
    /// There were too many pairs, in all or of their source.
    pub too_many_pairs: u64,
    /// They had asked for nothing yet, or looked for who waits, and others needed the room.
    pub evicted_arriving: u64,
    /// They waited, and others needed the room.
    pub evicted_waiting: u64,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct RelayCounter(AtomicU64);

impl RelayCounter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What has happened since the start.
#[derive(Debug, Default)]
pub(super) struct RelayCounters {
    pub(super) waited: RelayCounter,
    pub(super) joined: RelayCounter,
    pub(super) to_waiting_bytes: RelayCounter,
    pub(super) from_waiting_bytes: RelayCounter,
    pub(super) silent: RelayCounter,
    pub(super) malformed: RelayCounter,
    pub(super) unknown_token: RelayCounter,
    pub(super) too_many_pairs: RelayCounter,
    pub(super) evicted_arriving: RelayCounter,
    pub(super) evicted_waiting: RelayCounter,
}

impl RelayCounters {
    /// A status with these numbers, and nothing else.
    pub(super) fn status(&self) -> RelayStatus {
        let refused = RelayRefusalCounts {
            silent: self.silent.value(),
            malformed: self.malformed.value(),
            unknown_token: self.unknown_token.value(),
            too_many_pairs: self.too_many_pairs.value(),
            evicted_arriving: self.evicted_arriving.value(),
            evicted_waiting: self.evicted_waiting.value(),
        };
        RelayStatus {
            listen: String::new(),
            uptime_s: 0.0,
            waiting: 0,
            max_waiting: 0,
            pairs: 0,
            max_pairs: 0,
            waited: self.waited.value(),
            joined: self.joined.value(),
            to_waiting_bytes: self.to_waiting_bytes.value(),
            from_waiting_bytes: self.from_waiting_bytes.value(),
            refused,
        }
    }
}
