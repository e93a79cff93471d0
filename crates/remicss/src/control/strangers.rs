//! Who else sends to a channel: datagrams from other addresses than the peer's, or with wrong tokens.
//!
//! They are dropped and change nothing but what is counted here. The log hears of them when they are more
//! than stray ones, and not too often.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::time::Duration;

/// Fewer in all are not worth a word.
const WORTH_TELLING: u64 = 16;

/// How long nothing more is told of a channel.
const SILENCE: Duration = Duration::from_secs(60);

/// For how long after an association begins wrong tokens are not told of: the peer's datagrams of the one
/// before are still on their way.
const SETTLING: Duration = Duration::from_secs(10);

/// What strangers have sent to a channel so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strange {
    /// Datagrams from other addresses than the peer's.
    pub wrong_source: u64,
    /// Datagrams whose token was wrong.
    pub wrong_token: u64,
}

/// What strangers send to all channels.
#[derive(Clone, Debug)]
pub(crate) struct Strangers {
    channels: Vec<Channel>,
    settled_at: Duration,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    counts: Strange,
    /// What was not told yet, and who it was of late.
    untold: Strange,
    from: Option<SocketAddr>,
    silent_until: Duration,
}

/// What there is to tell of a channel. Its text is a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrangersReport {
    /// The channel's index.
    pub channel: usize,
    /// What came since it was last told of.
    pub counts: Strange,
    /// Where the last one came from.
    pub from: SocketAddr,
    /// Where the peer is, if there is one.
    pub peer: Option<SocketAddr>,
}

impl Strangers {
    pub(crate) fn new(channels: usize) -> Self {
        Self { channels: vec![Channel::default(); channels], settled_at: Duration::ZERO }
    }

    /// An association has begun.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.settled_at = now.saturating_add(SETTLING);
    }

    pub(crate) fn count_wrong_source(&mut self, channel: usize, from: SocketAddr) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.counts.wrong_source += 1;
            channel.untold.wrong_source += 1;
            channel.from = Some(from);
        }
    }

    pub(crate) fn count_wrong_token(&mut self, channel: usize, from: SocketAddr, now: Duration) {
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.counts.wrong_token += 1;
            if now >= self.settled_at {
                channel.untold.wrong_token += 1;
                channel.from = Some(from);
            }
        }
    }

    /// What has come so far, by channel.
    pub(crate) fn counts(&self) -> Vec<Strange> {
        self.channels.iter().map(|channel| channel.counts).collect()
    }

    /// What there is to tell now. `peer` says where a channel's peer is.
    pub(crate) fn poll_report(
        &mut self,
        now: Duration,
        peer: impl Fn(usize) -> Option<SocketAddr>,
    ) -> Option<StrangersReport> {
        let worth = |channel: &Channel| {
            let Strange { wrong_source, wrong_token } = channel.untold;
            wrong_source + wrong_token >= WORTH_TELLING && now >= channel.silent_until
        };
        let index = self.channels.iter().position(worth)?;
        let channel = &mut self.channels[index];
        channel.silent_until = now.saturating_add(SILENCE);
        let counts = std::mem::take(&mut channel.untold);
        Some(StrangersReport { channel: index, counts, from: channel.from?, peer: peer(index) })
    }
}

impl Display for StrangersReport {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Strange { wrong_source, wrong_token } = self.counts;
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
            "somebody else sends, or the peer has another address now (see `roaming`)"
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
    fn what_is_more_than_stray_is_told_once_a_minute() {
        let mut strangers = Strangers::new(2);
        let peer = SocketAddr::from(([192, 0, 2, 1], 7000));
        let report = |strangers: &mut Strangers, seconds| {
            strangers.poll_report(at(seconds), |_| Some(peer)).map(|report| report.to_string())
        };
        (0..15).for_each(|_| strangers.count_wrong_source(1, address(4000)));
        assert_eq!(report(&mut strangers, 1), None);
        strangers.count_wrong_source(1, address(4001));
        assert_eq!(
            report(&mut strangers, 1).unwrap(),
            "channel 2: dropped 16 datagrams from other addresses than the peer's (192.0.2.1:7000), the \
             last one from 203.0.113.9:4001: somebody else sends, or the peer has another address now \
             (see `roaming`)"
        );
        (0..100).for_each(|_| strangers.count_wrong_token(1, address(4002), at(2)));
        assert_eq!(report(&mut strangers, 60), None);
        assert_eq!(
            report(&mut strangers, 61).unwrap(),
            "channel 2: dropped 100 datagrams with wrong tokens, the last one from 203.0.113.9:4002: \
             somebody else sends in the peer's name"
        );
        assert_eq!(report(&mut strangers, 200), None);
        let counted = Strange { wrong_source: 16, wrong_token: 100 };
        assert_eq!(strangers.counts(), [Strange::default(), counted]);
    }

    #[test]
    fn what_is_left_of_the_association_before_is_counted_and_not_told() {
        let mut strangers = Strangers::new(1);
        strangers.begin(at(5));
        (0..100).for_each(|_| strangers.count_wrong_token(0, address(1), at(14)));
        assert_eq!(strangers.poll_report(at(20), |_| None), None);
        (0..16).for_each(|_| strangers.count_wrong_token(0, address(1), at(15)));
        assert!(strangers.poll_report(at(20), |_| None).is_some());
        assert_eq!(strangers.counts()[0].wrong_token, 116);
    }
}
