//! Counts datagrams that are not from the peer: from other addresses, or with wrong tokens.
//!
//! They are dropped and change nothing but these counts. They are reported if there are more than a
//! few, at most once a minute.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::time::Duration;

/// Fewer datagrams are not reported.
const MIN_REPORTED: u64 = 16;

/// The minimum interval of reports on a channel.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// For this time after an association begins, wrong tokens are not reported: the peer's datagrams
/// of the previous association are still in flight.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Counts of datagrams on a channel that were not from the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnverifiedCounts {
    /// Datagrams from other addresses than the peer's.
    pub wrong_source: u64,
    /// Datagrams whose token was wrong.
    pub wrong_token: u64,
}

/// The datagrams on all channels that were not from the peer.
#[derive(Clone, Debug)]
pub(crate) struct UnverifiedDatagrams {
    channels: Vec<UnverifiedChannelLog>,
    settled_at: Duration,
}

#[derive(Clone, Debug, Default)]
struct UnverifiedChannelLog {
    counts: UnverifiedCounts,
    /// What was not reported yet, and its last source.
    unreported: UnverifiedCounts,
    from: Option<SocketAddr>,
    quiet_until: Duration,
}

/// A report on a channel. Its text is a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnverifiedReport {
    /// The channel's index.
    pub channel: usize,
    /// The counts since the last report.
    pub counts: UnverifiedCounts,
    /// The last source address.
    pub from: SocketAddr,
    /// The peer's address, if there is a peer.
    pub peer: Option<SocketAddr>,
}

impl UnverifiedDatagrams {
    pub(crate) fn new(channels: usize) -> Self {
        Self {
            channels: vec![UnverifiedChannelLog::default(); channels],
            settled_at: Duration::ZERO,
        }
    }

    /// An association has begun.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.settled_at = now.saturating_add(SETTLE_TIME);
    }

    pub(crate) fn count_wrong_source(&mut self, channel: usize, from: SocketAddr) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.counts.wrong_source += 1;
            channel.unreported.wrong_source += 1;
            channel.from = Some(from);
        }
    }

    pub(crate) fn count_wrong_token(&mut self, channel: usize, from: SocketAddr, now: Duration) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.counts.wrong_token += 1;
            if now >= self.settled_at {
                channel.unreported.wrong_token += 1;
                channel.from = Some(from);
            }
        }
    }

    /// The counts so far, by channel.
    pub(crate) fn counts(&self) -> Vec<UnverifiedCounts> {
        self.channels.iter().map(|channel| channel.counts).collect()
    }

    /// The next report that is due. `peer` returns the peer's address on a channel.
    pub(crate) fn poll_report(
        &mut self,
        now: Duration,
        peer: impl Fn(usize) -> Option<SocketAddr>,
    ) -> Option<UnverifiedReport> {
        let is_due = |channel: &UnverifiedChannelLog| {
            let UnverifiedCounts { wrong_source, wrong_token } = channel.unreported;
            wrong_source + wrong_token >= MIN_REPORTED && now >= channel.quiet_until
        };
        let index = self.channels.iter().position(is_due)?;
        let channel = &mut self.channels[index];
        channel.quiet_until = now.saturating_add(LOG_INTERVAL);
        let counts = std::mem::take(&mut channel.unreported);
        Some(UnverifiedReport { channel: index, counts, from: channel.from?, peer: peer(index) })
    }
}

impl Display for UnverifiedReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let UnverifiedCounts { wrong_source, wrong_token } = self.counts;
        write!(formatter, "channel {}: dropped ", self.channel + 1)?;
        if wrong_source > 0 {
            write!(formatter, "{wrong_source} datagrams from other addresses than the peer's")?;
            if let Some(peer) = self.peer {
                write!(formatter, " ({peer})")?;
            }
        }
        if wrong_token > 0 {
            let and = if wrong_source > 0 { " and " } else { "" };
            let datagrams = if wrong_source > 0 { "" } else { "datagrams " };
            write!(formatter, "{and}{wrong_token} {datagrams}with wrong tokens")?;
        }
        write!(formatter, ", the last one from {}: ", self.from)?;
        formatter.write_str(if wrong_source > 0 {
            "somebody else sends to this channel, or the peer's address has changed (see `roaming`)"
        } else {
            "somebody else sends in the peer's name"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, 9], port))
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn unverified_datagrams_are_reported_once_a_minute() {
        let mut unverified = UnverifiedDatagrams::new(2);
        let peer = SocketAddr::from(([192, 0, 2, 1], 7000));
        let report = |unverified: &mut UnverifiedDatagrams, seconds| {
            unverified.poll_report(at(seconds), |_| Some(peer)).map(|report| report.to_string())
        };
        (0..15).for_each(|_| unverified.count_wrong_source(1, address(4000)));
        assert_eq!(report(&mut unverified, 1), None);
        unverified.count_wrong_source(1, address(4001));
        assert_eq!(
            report(&mut unverified, 1).unwrap(),
            "channel 2: dropped 16 datagrams from other addresses than the peer's (192.0.2.1:7000), the \
             last one from 203.0.113.9:4001: somebody else sends to this channel, or the peer's \
             address has changed (see `roaming`)"
        );
        (0..100).for_each(|_| unverified.count_wrong_token(1, address(4002), at(2)));
        assert_eq!(report(&mut unverified, 60), None);
        assert_eq!(
            report(&mut unverified, 61).unwrap(),
            "channel 2: dropped 100 datagrams with wrong tokens, the last one from 203.0.113.9:4002: \
             somebody else sends in the peer's name"
        );
        assert_eq!(report(&mut unverified, 200), None);
        let counted = UnverifiedCounts { wrong_source: 16, wrong_token: 100 };
        assert_eq!(unverified.counts(), [UnverifiedCounts::default(), counted]);
    }

    #[test]
    fn wrong_tokens_after_a_new_association_are_counted_and_not_reported() {
        let mut unverified = UnverifiedDatagrams::new(1);
        unverified.begin(at(5));
        (0..100).for_each(|_| unverified.count_wrong_token(0, address(1), at(14)));
        assert_eq!(unverified.poll_report(at(20), |_| None), None);
        (0..16).for_each(|_| unverified.count_wrong_token(0, address(1), at(15)));
        assert!(unverified.poll_report(at(20), |_| None).is_some());
        assert_eq!(unverified.counts()[0].wrong_token, 116);
    }
}
