//! Counts the traffic of channels and the outcomes of streams, for
//! [`Status`](crate::status::Status).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::net::tcp_info::round_trip;
use crate::protocol::incoming::ChannelLossReason;
use crate::status::{
    BypassStatus, StreamChannelState, StreamChannelStatus, StreamCounts, StreamRedundancy,
    UdpStatus,
};
use crate::{StreamError, StreamProtocolError};
use service::log::LogRateLimiter;

/// The round-trip time is sampled once in this many reads.
const RTT_SAMPLE_INTERVAL: u64 = 64;

/// A counter or a gauge. Nothing depends on the order in which counts change.
#[derive(Debug, Default)]
pub(crate) struct AtomicMetric(AtomicU64);

impl AtomicMetric {
    /// Adds one.
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one.
    pub(crate) fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of one channel, in all streams.
#[derive(Debug, Default)]
pub(crate) struct ChannelMetrics {
    /// Connections that are ready for a stream.
    pub(crate) ready: AtomicMetric,
    /// Established connections.
    pub(crate) connected: AtomicMetric,
    /// Failed connection attempts.
    pub(crate) unconnected: AtomicMetric,
    /// Streams under which a connection of the channel broke.
    broken: AtomicMetric,
    tampered: AtomicMetric,
    /// How often it, or another channel that the stream needed, has fallen silent under a stream.
    silent: AtomicMetric,
    pub(crate) sent: AtomicMetric,
    received: AtomicMetric,
    waited_us: AtomicMetric,
    rtt_us: AtomicMetric,
    reads: AtomicMetric,
    /// Connections that have replaced another in an open stream.
    rejoined: AtomicMetric,
    /// Limit the log lines that a stream continues without it, that it has sent wrong shares, and
    /// that a stream uses it again.
    lost: Mutex<[LogRateLimiter; 3]>,
}

impl ChannelMetrics {
    /// Counts bytes that were read from a connection, and sometimes samples the round-trip time.
    pub(crate) fn read(&self, stream: &TcpStream, bytes: usize) {
        self.received.add(bytes as u64);
        let before = self.reads.0.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(RTT_SAMPLE_INTERVAL)
            && let Some(rtt) = round_trip(stream)
        {
            self.rtt_us.set(rtt.into());
        }
    }

    /// Records that a stream continues without it.
    pub(crate) fn record_loss(&self, why: ChannelLossReason) {
        match why {
            ChannelLossReason::Tampered => self.tampered.increment(),
            ChannelLossReason::Stalled => {
                self.broken.increment();
                self.record_silence();
            }
            ChannelLossReason::Missing
            | ChannelLossReason::Ended
            | ChannelLossReason::Broken
            | ChannelLossReason::Slow => self.broken.increment(),
        }
    }

    /// Records that a stream has just lost it. If that must be logged, returns how often it
    /// happened since the last log line.
    pub(crate) fn loss_log_permit(&self, why: ChannelLossReason) -> Option<u64> {
        let is_lie = matches!(why, ChannelLossReason::Tampered);
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(is_lie)].count_event()
    }

    /// Records that a stream uses it again, or over another connection. If that must be logged,
    /// returns how often it happened since the last log line.
    pub(crate) fn record_rejoin(&self) -> Option<u64> {
        self.rejoined.increment();
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)[2].count_event()
    }

    /// Records that it, or another channel that a stream needed, was silent for too long.
    pub(crate) fn record_silence(&self) {
        self.silent.increment();
    }

    /// How often that happened.
    pub(crate) fn silences(&self) -> u64 {
        self.silent.value()
    }

    /// Counts the time for which a stream waits for it while other channels have brought more,
    /// until the result is dropped.
    pub(crate) fn wait(self: &Arc<Self>) -> ChannelWaitTimer {
        ChannelWaitTimer { metrics: Arc::clone(self), since: Instant::now() }
    }

    /// The counts, as the status of a channel to this server.
    #[expect(clippy::cast_precision_loss, reason = "microseconds are far below 2^53")]
    pub(crate) fn channel(&self, server: String) -> StreamChannelStatus {
        let rtt_us = self.rtt_us.value();
        StreamChannelStatus {
            server,
            state: StreamChannelState::Unknown,
            state_s: None,
            why: None,
            peers: 0,
            peers_down: 0,
            lost: Vec::new(),
            ready: self.ready.value(),
            connected: self.connected.value(),
            unconnected: self.unconnected.value(),
            sent_bytes: self.sent.value(),
            received_bytes: self.received.value(),
            rtt_ms: (rtt_us > 0).then_some(rtt_us as f64 / 1e3),
            waited_s: self.waited_us.value() as f64 / 1e6,
            broken: self.broken.value(),
            tampered: self.tampered.value(),
            rejoined: self.rejoined.value(),
        }
    }
}

/// A stream that waits for a channel. The wait is counted when this is dropped.
pub(crate) struct ChannelWaitTimer {
    metrics: Arc<ChannelMetrics>,
    since: Instant,
}

impl Drop for ChannelWaitTimer {
    fn drop(&mut self) {
        let waited = self.since.elapsed().as_micros();
        self.metrics.waited_us.add(u64::try_from(waited).unwrap_or(u64::MAX));
    }
}

/// The outcomes of streams.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    since: Instant,
    under_way: AtomicMetric,
    finished: AtomicMetric,
    refused: AtomicMetric,
    broken: AtomicMetric,
    tampered: AtomicMetric,
    /// Streams that were rejected because there were too many.
    pub(crate) over_limit: AtomicMetric,
    /// How often rules of interception were restored.
    pub(crate) restored: AtomicMetric,
    /// Whether rules are missing and cannot be restored.
    pub(crate) unrestored: AtomicBool,
    /// The datagrams in streams.
    pub(crate) datagrams: DatagramMetrics,
    /// The connections that leave directly.
    pub(crate) bypass: BypassMetrics,
    log_limiters: Mutex<[LogRateLimiter; 6]>,
    /// Open streams by the number of channels that they can still lose. The first entry is the
    /// streams that wait for a channel.
    spare: Mutex<Vec<u64>>,
}

/// The datagrams that streams carry.
#[derive(Debug, Default)]
pub(crate) struct DatagramMetrics {
    open: AtomicMetric,
    opened: AtomicMetric,
    intercepted: AtomicMetric,
    /// Flows that were ended to make room.
    pub(crate) evicted: AtomicMetric,
    pub(crate) to_channels: AtomicMetric,
    pub(crate) from_channels: AtomicMetric,
    pub(crate) dropped: AtomicMetric,
}

impl DatagramMetrics {
    /// Counts a stream of datagrams as open until the result is dropped.
    pub(crate) fn open(&self) -> OpenCount<'_> {
        self.opened.increment();
        OpenCount::new(&self.open)
    }

    /// Counts an intercepted flow as open until the result is dropped.
    pub(crate) fn intercept(&self) -> OpenCount<'_> {
        OpenCount::new(&self.intercepted)
    }

    /// The counts.
    pub(crate) fn status(&self) -> UdpStatus {
        UdpStatus {
            associations: self.open.value(),
            opened: self.opened.value(),
            intercepted: self.intercepted.value(),
            evicted: self.evicted.value(),
            to_channels: self.to_channels.value(),
            from_channels: self.from_channels.value(),
            dropped: self.dropped.value(),
        }
    }
}

/// The connections of applications that leave a client directly.
#[derive(Debug, Default)]
pub(crate) struct BypassMetrics {
    open: AtomicMetric,
    pub(crate) opened: AtomicMetric,
    pub(crate) failed: AtomicMetric,
}

impl BypassMetrics {
    /// Counts a connection as open until the result is dropped.
    pub(crate) fn begin(&self) -> OpenCount<'_> {
        OpenCount::new(&self.open)
    }

    /// The counts.
    pub(crate) fn status(&self) -> BypassStatus {
        BypassStatus {
            open: self.open.value(),
            opened: self.opened.value(),
            failed: self.failed.value(),
        }
    }
}

/// Something open, counted until this is dropped.
pub(crate) struct OpenCount<'a>(&'a AtomicMetric);

impl<'a> OpenCount<'a> {
    fn new(gauge: &'a AtomicMetric) -> Self {
        gauge.increment();
        Self(gauge)
    }
}

impl Drop for OpenCount<'_> {
    fn drop(&mut self) {
        self.0.decrement();
    }
}

/// Events that unauthenticated senders, or an attacker on a channel, can cause as often as they
/// like. Their log lines are limited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LimitedLogEvent {
    /// Something that no valid client does.
    Strange,
    /// An application that does not speak SOCKS5, or requests something that is not supported.
    NotSocks,
    /// A request that is refused.
    Refused,
    /// A request for a service that is not on the allow-list.
    NotAllowed,
    /// A stream that breaks.
    Broken,
    /// A stream whose bytes were changed.
    Tampered,
}

impl StreamMetrics {
    /// All counts at zero.
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            under_way: AtomicMetric::default(),
            finished: AtomicMetric::default(),
            refused: AtomicMetric::default(),
            broken: AtomicMetric::default(),
            tampered: AtomicMetric::default(),
            over_limit: AtomicMetric::default(),
            restored: AtomicMetric::default(),
            unrestored: AtomicBool::default(),
            datagrams: DatagramMetrics::default(),
            bypass: BypassMetrics::default(),
            log_limiters: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Counts an open stream by the number of channels that it can lose, until the result is
    /// dropped.
    pub(crate) fn count_spare(self: &Arc<Self>) -> RedundancyGauge {
        RedundancyGauge { metrics: Arc::clone(self), place: None }
    }

    /// The open streams, by the number of channels that they can still lose.
    pub(crate) fn redundancy(&self) -> StreamRedundancy {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let (waiting, spare) = spare.split_first().unwrap_or((&0, &[]));
        StreamRedundancy { waiting: *waiting, spare: spare.to_vec() }
    }

    fn move_spare(&self, from: Option<usize>, to: Option<usize>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(to) = to {
            let len = spare.len().max(to + 1);
            spare.resize(len, 0);
            spare[to] += 1;
        }
        if let Some(from) = from {
            spare[from] -= 1;
        }
    }

    /// Counts an event. If it must be logged, returns how often it happened since the last log
    /// line.
    pub(crate) fn log_permit(&self, what: LimitedLogEvent) -> Option<u64> {
        // The reason of each broken stream is logged as long as there are few.
        let most = if matches!(what, LimitedLogEvent::Broken | LimitedLogEvent::Tampered) {
            16
        } else {
            1
        };
        self.log_limiters.lock().unwrap_or_else(PoisonError::into_inner)[what as usize]
            .count_event_of(most)
    }

    /// The time since the counts began.
    pub(crate) fn uptime(&self) -> Duration {
        self.since.elapsed()
    }

    /// Counts a new stream as open until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> ActiveStream {
        self.under_way.increment();
        ActiveStream(Arc::clone(self))
    }

    /// Records that a stream did not open. Without a verified client, wrong bytes do not yet
    /// indicate tampering.
    pub(crate) fn record_unopened(&self, error: &StreamError) {
        match error {
            StreamError::Protocol(StreamProtocolError::Refused(_)) => self.refused.increment(),
            _ => self.broken.increment(),
        }
    }

    /// Records that a stream has ended.
    pub(crate) fn end(&self, error: Option<&StreamError>) {
        match error {
            None => self.finished.increment(),
            Some(StreamError::Protocol(StreamProtocolError::Refused(_))) => {
                self.refused.increment();
            }
            Some(error) if error.is_tampering() => self.tampered.increment(),
            Some(_) => self.broken.increment(),
        }
    }

    /// The counts.
    pub(crate) fn streams(&self) -> StreamCounts {
        StreamCounts {
            under_way: self.under_way.value(),
            finished: self.finished.value(),
            refused: self.refused.value(),
            broken: self.broken.value(),
            tampered: self.tampered.value(),
            over_limit: self.over_limit.value(),
        }
    }
}

/// An open stream, counted by the number of channels that it can lose.
pub(crate) struct RedundancyGauge {
    metrics: Arc<StreamMetrics>,
    /// Zero while it waits for a channel, otherwise one more than the number of channels it can
    /// lose.
    place: Option<usize>,
}

impl RedundancyGauge {
    /// Sets the number of channels that it can lose. `None`: it waits for one.
    pub(crate) fn set(&mut self, spare: Option<usize>) {
        let place = Some(spare.map_or(0, |spare| spare + 1));
        if place != self.place {
            self.metrics.move_spare(self.place, place);
            self.place = place;
        }
    }
}

impl Drop for RedundancyGauge {
    fn drop(&mut self) {
        self.metrics.move_spare(self.place, None);
    }
}

/// An open stream.
pub(crate) struct ActiveStream(Arc<StreamMetrics>);

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.0.under_way.decrement();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn losses_are_rate_limited_in_the_log_and_tampering_has_its_own_limit() {
        let (metrics, other) = (ChannelMetrics::default(), ChannelMetrics::default());
        assert_eq!(metrics.loss_log_permit(ChannelLossReason::Ended), Some(1));
        assert_eq!(
            (0..100).filter_map(|_| metrics.loss_log_permit(ChannelLossReason::Broken)).count(),
            0
        );
        assert_eq!(
            (
                metrics.loss_log_permit(ChannelLossReason::Tampered),
                other.loss_log_permit(ChannelLossReason::Ended)
            ),
            (Some(1), Some(1))
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(metrics.loss_log_permit(ChannelLossReason::Stalled), Some(101));
    }
}
