//! One direction of one connection or channel: how long it takes, what it loses, and what it can
//! carry.

use std::time::Duration;

/// What a link does to what is sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedLinkConditions {
    /// The least time that a piece of a stream, or a datagram, takes.
    pub min_delay: Duration,
    /// The time that it takes at most. Each takes a random time, so datagrams are reordered; pieces
    /// of a stream never are.
    pub max_delay: Duration,
    /// How many of 1,000 datagrams are lost. Nothing of a stream is.
    pub loss_permille: u64,
    /// The maximum length of datagrams in bytes. Longer ones are lost. Nothing of a stream is.
    pub max_datagram_len: usize,
    /// How many of 1,000 datagrams are sent twice. Each copy may be lost.
    pub duplication_permille: u64,
    /// The rate of datagrams. `None` if it is unlimited, as it is for streams.
    pub bottleneck: Option<LinkBottleneck>,
}

/// A rate, and the queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBottleneck {
    /// The rate in bit/s, at least 1.
    pub rate_bps: u64,
    /// The time that a datagram waits at most for those before it: one that would have to wait
    /// longer is lost.
    pub max_queue: Duration,
    /// Whether the rate is enforced without a queue: a datagram that would wait leaves at once.
    pub is_policed: bool,
}

impl SimulatedLinkConditions {
    /// A delay from `min` to `max`; nothing is lost or duplicated, and the rate is unlimited.
    pub fn delayed(min: Duration, max: Duration) -> Self {
        Self {
            min_delay: min,
            max_delay: max,
            loss_permille: 0,
            max_datagram_len: usize::MAX,
            duplication_permille: 0,
            bottleneck: None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct SimulatedLink {
    pub(crate) conditions: SimulatedLinkConditions,
    /// When the last bytes sent on it arrive: a stream's later bytes never overtake them.
    pub(crate) last_arrival: Duration,
    pub(crate) is_seized: bool,
    pub(crate) is_closed: bool,
    /// When the bottleneck has sent what it was given so far.
    busy_until: Duration,
}

impl SimulatedLink {
    pub(crate) fn new(conditions: SimulatedLinkConditions) -> Self {
        Self {
            conditions,
            last_arrival: Duration::ZERO,
            is_seized: false,
            is_closed: false,
            busy_until: Duration::ZERO,
        }
    }

    /// When a datagram of so many bytes leaves the bottleneck; `None` if its queue is full.
    pub(crate) fn departure(&mut self, now: Duration, len: usize) -> Option<Duration> {
        let Some(LinkBottleneck { rate_bps, max_queue, is_policed }) = self.conditions.bottleneck
        else {
            return Some(now);
        };
        if self.busy_until.saturating_sub(now) > max_queue {
            return None;
        }
        let sending = Duration::from_nanos(len as u64 * 8 * 1_000_000_000 / rate_bps);
        self.busy_until = self.busy_until.max(now) + sending;
        Some(if is_policed { now } else { self.busy_until })
    }
}
