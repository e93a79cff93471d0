//! One direction of a connection or a channel: its delay, its loss and its rate.

use std::time::Duration;

/// The conditions of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedLinkConditions {
    /// The minimum delay of a piece of a stream, or of a datagram.
    pub min_delay: Duration,
    /// The maximum delay. Delays are random, so datagrams are reordered; pieces of a stream never
    /// are.
    pub max_delay: Duration,
    /// How many of 1,000 datagrams are lost. Nothing of a stream is lost.
    pub loss_permille: u64,
    /// The maximum length of datagrams in bytes. Longer ones are lost. Streams are not affected.
    pub max_datagram_len: usize,
    /// How many of 1,000 datagrams are duplicated. Each copy may be lost.
    pub duplication_permille: u64,
    /// The bottleneck of datagrams. `None` if the rate is unlimited, as it is for streams.
    pub bottleneck: Option<LinkBottleneck>,
}

/// A rate, and the queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBottleneck {
    /// The rate in bit/s, at least 1.
    pub rate_bps: u64,
    /// The longest time that a datagram waits in the queue: one that would wait longer is lost.
    pub max_queue: Duration,
    /// Whether the rate is enforced without a queue: a datagram that would wait is sent at once.
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
    /// When the last bytes sent on it arrive, so that later bytes of a stream do not overtake them.
    pub(crate) last_arrival: Duration,
    pub(crate) is_seized: bool,
    pub(crate) is_closed: bool,
    /// Until when the bottleneck is busy with earlier datagrams.
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

    /// When a datagram of `len` bytes leaves the bottleneck; `None` if its queue is full.
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
