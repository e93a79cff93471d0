//! The status that a relay reports to its operator. It contains no token, and no address of a
//! party.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use service::status::ServiceProblem;

/// The status of a relay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The address where the relay listens.
    pub listen: String,
    /// The uptime in seconds.
    pub uptime_s: f64,
    /// The number of waiting connections, and the limit.
    pub waiting: u64,
    /// See `waiting`.
    pub max_waiting: u64,
    /// The number of connected pairs, and the limit.
    pub pairs: u64,
    /// See `pairs`.
    pub max_pairs: u64,
    /// The number of connections that have begun to wait since the start.
    pub waited: u64,
    /// The number of pairs that were connected since the start.
    pub joined: u64,
    /// The bytes forwarded to parties that had waited, since the start.
    pub to_waiting_bytes: u64,
    /// The bytes forwarded from parties that had waited, since the start.
    pub from_waiting_bytes: u64,
    /// The bytes of datagrams forwarded between parties, since the start.
    pub datagram_bytes: u64,
    /// The datagrams that were dropped since the start: from addresses that are not bound, or above
    /// the limits of a party.
    pub dropped_datagrams: u64,
    /// The connections that were rejected or evicted since the start.
    pub refused: RelayRefusalCounts,
    /// Why datagrams are not forwarded, if they are not.
    pub problem: Option<ServiceProblem>,
}

/// The connections that a relay has rejected or evicted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRefusalCounts {
    /// They sent no request in time.
    pub silent: u64,
    /// Their request was invalid.
    pub malformed: u64,
    /// No party waited under their token.
    pub unknown_token: u64,
    /// There were too many pairs, in total or from their source; or their pair was evicted.
    pub too_many_pairs: u64,
    /// They were evicted before their request, or while they searched for a waiting party.
    pub evicted_arriving: u64,
    /// They were evicted while they waited.
    pub evicted_waiting: u64,
}

/// A counter that only grows.
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

/// The counters since the start.
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
    /// A status that contains these counters only.
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
            datagram_bytes: 0,
            dropped_datagrams: 0,
            refused,
            problem: None,
        }
    }
}
