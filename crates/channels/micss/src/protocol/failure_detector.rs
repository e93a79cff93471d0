//! Detects when a channel to one peer is lost.
//! [`on_lost_channel`](crate::protocol::on_lost_channel) decides what streams do then.
//!
//! Pure: the time and observations come in, events and deadlines go out. The caller chooses the
//! epoch of times.
//!
//! A channel is probed when nothing was heard on it for a while: by keepalives on its connections,
//! and by new connections. Packets that the kernel sends or retransmits count as probes as well.
//! The channel is lost when several probes had enough time for an answer, given its round-trip
//! time, and none was answered on any of its connections. A live peer whose application is not
//! reading answers all of these.

use std::collections::VecDeque;
use std::time::Duration;

/// How long a channel in use may be silent before it is probed.
const QUIET_TIMEOUT: Duration = Duration::from_millis(750);

/// The same for a channel on which no stream moves bytes.
const IDLE_QUIET_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval of observations of a channel that was probed and has not answered.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The minimum time for answers.
const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);

/// The time for answers on a channel with an unknown round-trip time.
const INITIAL_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for answers in addition to a round trip, if that is long.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// The maximum time for answers.
const MAX_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of consecutive probes that must be unanswered: if no packet loss is known, and at
/// most.
const MIN_UNANSWERED: u32 = 3;
const MAX_UNANSWERED: u32 = 6;

/// The maximum probability that this many probes on a channel that is not lost are unanswered.
const MAX_CHANCE: f64 = 0.002;

/// The interval of probes of a lost channel: a tenth of the time since its loss, within these
/// limits.
const LOST_POLL_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The minimum interval of reports that the cause of a loss has changed.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The resolution of the kernel's time of the last packet.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(50);

/// Why a channel is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathLossCause {
    /// No probe was answered.
    #[error("no answer")]
    NoAnswer,
    /// The system has no route to the peer.
    #[error("no route to it from this host: {0}")]
    Unreachable(String),
    /// The peer's host answers, but refuses connections. Open connections may still work.
    #[error("nobody listens there: {0}")]
    Refused(String),
}

impl PathLossCause {
    /// The cause that a failed connection attempt indicates, if any.
    pub(crate) fn of(error: &std::io::Error) -> Option<Self> {
        use std::io::ErrorKind::{
            AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable,
        };
        /// Linux's ENODEV: there is no such device to bind to.
        const NO_DEVICE: i32 = 19;
        match error.kind() {
            ConnectionRefused => Some(Self::Refused(error.to_string())),
            AddrNotAvailable | HostUnreachable | NetworkDown | NetworkUnreachable => {
                Some(Self::Unreachable(error.to_string()))
            }
            _ if error.raw_os_error() == Some(NO_DEVICE) => {
                Some(Self::Unreachable(error.to_string()))
            }
            _ => None,
        }
    }

    /// Whether open connections do not work either.
    pub(crate) fn breaks_open_connections(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// The state of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PathState {
    /// Nothing was heard on it yet.
    #[default]
    Unknown,
    /// The peer answers.
    Up {
        /// The start of this state.
        since: Duration,
    },
    /// The peer does not answer.
    Lost(PathLoss),
}

/// A channel that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathLoss {
    /// When the peer was last heard, or when it was first probed.
    pub(crate) since: Duration,
    /// The cause.
    pub(crate) cause: PathLossCause,
}

impl PathState {
    /// The loss, if the channel is lost.
    pub(crate) fn lost(&self) -> Option<&PathLoss> {
        match self {
            Self::Lost(lost) => Some(lost),
            Self::Unknown | Self::Up { .. } => None,
        }
    }

    /// Since when open streams cannot use it, if they cannot.
    pub(crate) fn unusable_since(&self) -> Option<Duration> {
        self.lost().filter(|lost| lost.cause.breaks_open_connections()).map(|lost| lost.since)
    }
}

/// An observation of a channel's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathObservation {
    /// Whether there are connections, or a stream wants one.
    pub(crate) is_wanted: bool,
    /// Whether streams have just moved bytes, or one has just begun.
    pub(crate) in_use: bool,
    /// The time since the last packet on any of the connections that shows that the peer hears this
    /// end.
    pub(crate) since_received: Option<Duration>,
    /// The maximum number of consecutive probes without an answer on a connection: keepalives,
    /// retransmissions, and connection attempts.
    pub(crate) unanswered_probes: u32,
    /// An upper bound of the round-trip time, if it is known.
    pub(crate) round_trip: Option<Duration>,
    /// The fraction of packets that were retransmitted, 0 to 1.
    pub(crate) loss: f64,
}

/// What the caller must do or log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureDetectorEvent {
    /// Probe the peer.
    Probe {
        /// Whether to probe by a new connection too.
        connect: bool,
    },
    /// Open connections no longer work.
    Cut,
    /// The channel is lost, or its loss has another cause now, which is reported at most once a
    /// minute: a host may refuse some attempts and not answer others.
    Lost(PathLoss),
    /// The channel is no longer lost.
    Recovered {
        /// The duration of the loss.
        after: Duration,
    },
}

/// A report that a channel is lost.
#[derive(Clone, Copy, Debug)]
struct PathLossReport {
    is_cut: bool,
    /// When a change of the cause was reported, after the first report.
    changed_at: Option<Duration>,
}

/// Monitors one channel to one peer.
#[derive(Debug, Default)]
pub(crate) struct FailureDetector {
    state: PathState,
    heard_at: Option<Duration>,
    /// The time of the first probe since the peer was heard.
    probing_since: Option<Duration>,
    /// When the loss was detected.
    lost_at: Duration,
    /// The last report of this loss.
    reported: Option<PathLossReport>,
    /// The last probe by a new connection.
    attempted_at: Duration,
    /// The next one, while the channel is lost.
    attempt_at: Duration,
    round_trip: Option<Duration>,
    poll_at: Option<Duration>,
    events: VecDeque<FailureDetectorEvent>,
}

impl FailureDetector {
    /// The channel's state.
    pub(crate) fn state(&self) -> &PathState {
        &self.state
    }

    /// Whether the peer was probed and has not answered.
    pub(crate) fn is_probing(&self) -> bool {
        self.awaits_answer() || self.state.unusable_since().is_some()
    }

    /// Whether the peer was probed, and may still answer.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.probing_since.is_some()
    }

    /// The time of the next observation, if there is one.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.poll_at
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<FailureDetectorEvent> {
        self.events.pop_front()
    }

    /// Handles an observation of the channel. Must be called at [`Self::poll_timeout`], and when
    /// the channel comes into use.
    pub(crate) fn handle_observation(&mut self, now: Duration, seen: &PathObservation) {
        if let Some(age) = seen.since_received {
            self.hear(now, now.saturating_sub(age));
        }
        if seen.round_trip.is_some() {
            self.round_trip = seen.round_trip;
        }
        self.report(now);
        let is_cut = self.state.unusable_since().is_some();
        if let PathState::Lost(PathLoss { since, .. }) = self.state
            && (is_cut || now >= self.attempt_at)
        {
            self.probe(now, true);
            let pause =
                (now.saturating_sub(since) / 10).clamp(LOST_POLL_INTERVAL.0, LOST_POLL_INTERVAL.1);
            self.attempt_at = now + pause;
        }
        if is_cut {
            self.poll_at = Some(self.attempt_at);
            return;
        }
        self.check_silence(now, seen);
        if self.state.lost().is_some() {
            let poll_at = self.poll_at.map_or(self.attempt_at, |at| at.min(self.attempt_at));
            self.poll_at = Some(poll_at);
        }
    }

    /// Probes a channel that is wanted and on which nothing was heard for a while. It is lost if
    /// there is no answer. While new connections are refused, open ones are checked.
    fn check_silence(&mut self, now: Duration, seen: &PathObservation) {
        if !seen.is_wanted {
            // Streams that found the channel silent for so long have given up its last connection.
            let waited = self.probing_since.map(|since| now.saturating_sub(since));
            if waited.is_some_and(|waited| waited >= self.answer_timeout()) {
                self.lose(now, PathLossCause::NoAnswer);
            } else {
                (self.probing_since, self.poll_at) = (None, None);
            }
            return;
        }
        let quiet = if seen.in_use { QUIET_TIMEOUT } else { IDLE_QUIET_TIMEOUT };
        let due = self.heard_at.map_or(now, |heard| heard + quiet);
        if self.probing_since.is_none() && now < due {
            self.poll_at = Some(due);
            return;
        }
        let probing_since = *self.probing_since.get_or_insert(now);
        let waited = now.saturating_sub(probing_since);
        if waited >= self.answer_timeout() && seen.unanswered_probes >= min_unanswered(seen.loss) {
            self.lose(now, PathLossCause::NoAnswer);
        } else {
            let is_late = waited + ANSWER_MARGIN >= self.answer_timeout();
            self.probe(now, is_late && self.state.lost().is_none());
            self.poll_at = Some(now + POLL_INTERVAL);
        }
    }

    /// Records that a connection was established.
    pub(crate) fn handle_connected(&mut self, now: Duration) {
        if let PathState::Lost(PathLoss { cause: PathLossCause::Refused(_), .. }) = self.state {
            self.recover(now);
        }
        self.hear(now, now);
    }

    /// Records that a connection attempt has failed, or that the system no longer has a route to
    /// the peer.
    pub(crate) fn handle_failure(&mut self, now: Duration, cause: PathLossCause) {
        match &mut self.state {
            PathState::Lost(lost)
                if lost.cause.breaks_open_connections() == cause.breaks_open_connections() =>
            {
                lost.cause = cause;
            }
            // It is lost from now on, or whether open streams can use it has changed.
            PathState::Unknown | PathState::Up { .. } | PathState::Lost(_) => self.lose(now, cause),
        }
    }

    /// Records that a connection has ended unexpectedly: the peer may no longer accept any.
    pub(crate) fn handle_suspicion(&mut self, now: Duration) {
        if self.state.lost().is_none() {
            self.probe(now, true);
        }
    }

    /// Records that a stream is waiting for the channel. A lost channel is then probed soon,
    /// however long it has been lost.
    pub(crate) fn handle_demand(&mut self) {
        if self.state.lost().is_some() {
            self.attempt_at = self.attempt_at.min(self.attempted_at + LOST_POLL_INTERVAL.0);
            self.poll_at = self.poll_at.map(|poll_at| poll_at.min(self.attempt_at));
        }
    }

    fn hear(&mut self, now: Duration, at: Duration) {
        self.heard_at = self.heard_at.max(Some(at));
        if self.probing_since.is_some_and(|asked| at >= asked) {
            self.probing_since = None;
        }
        match &self.state {
            PathState::Unknown => self.state = PathState::Up { since: at },
            PathState::Lost(PathLoss {
                cause: PathLossCause::NoAnswer | PathLossCause::Unreachable(_),
                ..
            }) if at > self.lost_at + CLOCK_RESOLUTION => {
                self.recover(now);
            }
            PathState::Up { .. } | PathState::Lost(_) => {}
        }
    }

    fn recover(&mut self, now: Duration) {
        if let PathState::Lost(PathLoss { since, .. }) = self.state {
            self.events
                .push_back(FailureDetectorEvent::Recovered { after: now.saturating_sub(since) });
            self.state = PathState::Up { since: now };
            self.reported = None;
            (self.probing_since, self.poll_at) = (None, Some(now + QUIET_TIMEOUT));
        }
    }

    fn lose(&mut self, now: Duration, cause: PathLossCause) {
        let since = match cause {
            PathLossCause::NoAnswer => self.heard_at.or(self.probing_since).unwrap_or(now),
            PathLossCause::Unreachable(_) | PathLossCause::Refused(_) => now,
        };
        if cause.breaks_open_connections() {
            self.events.push_back(FailureDetectorEvent::Cut);
        }
        self.state = PathState::Lost(PathLoss { since, cause });
        self.report(now);
        self.attempt_at = now + LOST_POLL_INTERVAL.0;
        (self.lost_at, self.probing_since, self.poll_at) = (now, None, Some(self.attempt_at));
    }

    /// Reports the state of a lost channel, unless the last report was the same, or a change was
    /// reported recently.
    fn report(&mut self, now: Duration) {
        let PathState::Lost(lost) = &self.state else { return };
        let is_cut = lost.cause.breaks_open_connections();
        let changed_at = match self.reported {
            None => None,
            Some(PathLossReport { is_cut: before, changed_at })
                if before != is_cut && changed_at.is_none_or(|at| now >= at + REPORT_INTERVAL) =>
            {
                Some(now)
            }
            Some(_) => return,
        };
        self.reported = Some(PathLossReport { is_cut, changed_at });
        self.events.push_back(FailureDetectorEvent::Lost(lost.clone()));
    }

    fn probe(&mut self, now: Duration, connect: bool) {
        if connect {
            self.attempted_at = now;
        }
        let queued = self.events.iter_mut().find_map(|event| match event {
            FailureDetectorEvent::Probe { connect } => Some(connect),
            FailureDetectorEvent::Cut
            | FailureDetectorEvent::Lost(_)
            | FailureDetectorEvent::Recovered { .. } => None,
        });
        match queued {
            Some(queued) => *queued |= connect,
            None => self.events.push_back(FailureDetectorEvent::Probe { connect }),
        }
    }

    /// The time for answers.
    fn answer_timeout(&self) -> Duration {
        let of = |round_trip: Duration| {
            (round_trip + ANSWER_MARGIN).clamp(MIN_ANSWER_TIMEOUT, MAX_ANSWER_TIMEOUT)
        };
        self.round_trip.map_or(INITIAL_ANSWER_TIMEOUT, of)
    }
}

/// How many consecutive probes must be unanswered on a channel that loses this fraction of packets.
/// A probe is unanswered if either it or its answer is lost.
fn min_unanswered(loss: f64) -> u32 {
    let chance = 1.0 - (1.0 - loss).powi(2);
    let is_enough = |count: &u32| chance.powf(f64::from(*count)) <= MAX_CHANCE;
    (MIN_UNANSWERED..MAX_UNANSWERED).find(is_enough).unwrap_or(MAX_UNANSWERED)
}

#[cfg(test)]
#[expect(clippy::unchecked_time_subtraction, reason = "what is out of order fails the test")]
mod tests;
