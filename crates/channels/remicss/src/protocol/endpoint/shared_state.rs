//! The state that both halves of an end share, changes of channels' states, and when a new plan is
//! needed.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use model::{ChannelModel, ChannelSubset, LossProbability, RiskProbability};

use crate::protocol::control::estimate::{ChannelEstimate, EstimateChangeDetector};
use crate::protocol::control::incoming::ArrivalCounts;
use crate::protocol::control::monitor::ChannelMonitor;
use crate::protocol::control::path_prober::PathMtu;
use crate::protocol::wire::control::TunnelChannelState;
use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::tokens::TokenKeyId;

/// The shared state of both halves.
#[derive(Default)]
pub struct EndpointSharedState {
    /// The monitor; `None` without an association.
    pub monitor: Option<ChannelMonitor>,
    /// The identifier of the keys with which this end sends, which distinguishes its sender from
    /// older ones.
    pub key_id: Option<TokenKeyId>,
    /// The number of verified symbols of packets.
    pub packets: u64,
    /// Counts of what has arrived on each channel.
    pub arrived: Vec<ArrivalCounts>,
    /// The channels whose shares are not used.
    pub quarantined: ChannelSubset,
    /// The channels on which the peer shall send no packets, because their quotas are used up here.
    /// They are reported to it as down.
    pub left_out: ChannelSubset,
    /// The MTU of each channel's path, for what this end sends.
    pub path_mtus: Vec<PathMtu>,
    /// The number of datagrams that were sent on each channel and are longer than what every path
    /// carries.
    pub long_datagrams: [u64; MAX_CHANNELS],
    /// Since when each channel is missing from the association, if it is.
    pub missing: Vec<Option<Duration>>,
    /// Since when each channel is down or in quarantine in a direction, if it is.
    pub not_up: Vec<Option<Duration>>,
    changes: EstimateChangeDetector,
    states: ChannelStates,
}

/// The channels' states in both directions.
#[derive(Debug, Default)]
struct ChannelStates {
    incoming: Vec<TunnelChannelState>,
    outgoing: Vec<TunnelChannelState>,
}

/// A change of a channel's state. Its text is a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelStateChange {
    /// The channel's index.
    pub channel: usize,
    /// Whether it is the incoming direction, as this end sees it, or the outgoing one, as the peer
    /// reports it.
    pub is_incoming: bool,
    /// The old state.
    pub before: TunnelChannelState,
    /// The new state.
    pub now: TunnelChannelState,
}

/// The channels for which a plan is made.
#[derive(Clone, Debug)]
pub struct ChannelSnapshot {
    /// The channels, with rates in Mbit/s.
    pub channels: Vec<ChannelModel>,
    /// Those that are up.
    pub up: ChannelSubset,
}

impl EndpointSharedState {
    /// Whether a channel belongs to the association and is up in both directions.
    pub fn works(&self, channel: usize) -> bool {
        let is_fine = |since: &[Option<Duration>]| since.get(channel).is_some_and(Option::is_none);
        self.monitor.is_some() && is_fine(&self.missing) && is_fine(&self.not_up)
    }

    /// Starts an association with these members of `channels` channels, which the monitor knows.
    /// Learnt rates are kept.
    pub fn begin(
        &mut self,
        mut monitor: ChannelMonitor,
        key_id: TokenKeyId,
        channels: usize,
        members: ChannelSubset,
        now: Duration,
    ) {
        if let Some(before) = &self.monitor {
            monitor.inherit_rates(before);
        }
        let since = |channel| self.missing.get(channel).copied().flatten().unwrap_or(now);
        let missing = |channel| (!members.contains(channel)).then(|| since(channel));
        let missing: Vec<Option<Duration>> = (0..channels).map(missing).collect();
        *self = Self {
            not_up: missing.clone(),
            missing,
            arrived: vec![ArrivalCounts::default(); channels],
            states: ChannelStates::of(channels, members),
            monitor: Some(monitor),
            key_id: Some(key_id),
            packets: 0,
            quarantined: ChannelSubset::EMPTY,
            left_out: self.left_out,
            path_mtus: Vec::new(),
            long_datagrams: [0; MAX_CHANNELS],
            changes: EstimateChangeDetector::default(),
        };
    }

    /// The channels to plan for, if they have changed since the last time. `risks` are the
    /// channels' z.
    pub fn poll_snapshot(&mut self, risks: &[f64], now: Duration) -> Option<ChannelSnapshot> {
        let estimates = self.monitor.as_ref()?.estimates(now);
        self.changes.has_changed(&estimates).then(|| ChannelSnapshot::new(&estimates, risks))
    }

    /// The changes of states since the last call, or from up if the association is new. None
    /// without an association.
    pub fn poll_changes(&mut self, now: Duration) -> Vec<ChannelStateChange> {
        let Some(monitor) = &self.monitor else { return Vec::new() };
        let outgoing = monitor.estimates(now).iter().map(|estimate| estimate.state).collect();
        let states = ChannelStates { incoming: monitor.incoming(self.quarantined), outgoing };
        let changes = self.states.changes(&states);
        for (channel, since) in self.not_up.iter_mut().enumerate() {
            *since = (!states.is_up(channel)).then(|| since.unwrap_or(now));
        }
        self.states = states;
        changes
    }
}

impl ChannelStates {
    /// The initial states of `channels` channels: members are up.
    fn of(channels: usize, members: ChannelSubset) -> Self {
        let state = |channel| {
            if members.contains(channel) {
                TunnelChannelState::Up
            } else {
                TunnelChannelState::Down
            }
        };
        let states: Vec<TunnelChannelState> = (0..channels).map(state).collect();
        Self { incoming: states.clone(), outgoing: states }
    }

    /// Whether a channel is up in both directions.
    fn is_up(&self, channel: usize) -> bool {
        let states = [&self.incoming, &self.outgoing];
        states.iter().all(|states| states.get(channel) == Some(&TunnelChannelState::Up))
    }

    /// The changes to `now`, those of the incoming direction first.
    fn changes(&self, now: &Self) -> Vec<ChannelStateChange> {
        let changes = |is_incoming: bool,
                       before: &[TunnelChannelState],
                       now: &[TunnelChannelState]| {
            let pairs = before.iter().copied().zip(now.iter().copied()).enumerate();
            let change =
                |(channel, (before, now))| ChannelStateChange { channel, is_incoming, before, now };
            pairs.map(change).filter(|change| change.before != change.now).collect()
        };
        let incoming: Vec<ChannelStateChange> = changes(true, &self.incoming, &now.incoming);
        [incoming, changes(false, &self.outgoing, &now.outgoing)].concat()
    }
}

impl Display for ChannelStateChange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let what = match (self.is_incoming, self.now, self.before) {
            (true, TunnelChannelState::Down, _) => "nothing arrives from the peer",
            (true, TunnelChannelState::Quarantine, _) => {
                "in quarantine, as shares were changed on it"
            }
            (true, TunnelChannelState::Up, TunnelChannelState::Quarantine) => {
                "no longer in quarantine"
            }
            (true, TunnelChannelState::Up, _) => "the peer's datagrams arrive again",
            (false, TunnelChannelState::Down, _) => "the peer receives nothing",
            (false, TunnelChannelState::Quarantine, _) => {
                "in quarantine at the peer, as shares were changed on it"
            }
            (false, TunnelChannelState::Up, TunnelChannelState::Quarantine) => {
                "no longer in quarantine at the peer"
            }
            (false, TunnelChannelState::Up, _) => "the peer receives again",
        };
        write!(formatter, "channel {}: {what}", self.channel + 1)
    }
}

impl ChannelSnapshot {
    /// The same channels with other risks and prices of a GB.
    pub(crate) fn with_settings(&self, risks: &[f64], costs: &[f64]) -> Self {
        let channel = |((channel, risk), cost): ((&ChannelModel, &f64), &f64)| {
            let (loss, delay_ms, rate) = (channel.loss(), channel.delay_ms(), channel.rate());
            ChannelModel::new(RiskProbability(*risk), LossProbability(loss), delay_ms, rate)
                .and_then(|channel| channel.with_cost(*cost))
                .expect("a risk and a price that were checked, and the values of a channel")
        };
        let channels = self.channels.iter().zip(risks).zip(costs);
        Self { channels: channels.map(channel).collect(), up: self.up }
    }

    /// The same without these channels among those that are up.
    pub(crate) fn without(self, left_out: ChannelSubset) -> Self {
        let up = self.up.iter().filter(|channel| !left_out.contains(*channel)).collect();
        Self { up, ..self }
    }

    /// The channels with these estimates and risks.
    pub(crate) fn new(estimates: &[ChannelEstimate], risks: &[f64]) -> Self {
        let channel = |(estimate, risk): (&ChannelEstimate, &f64)| {
            // The model requires a rate above 0.
            let estimate = ChannelEstimate { rate_bps: estimate.rate_bps.max(1), ..*estimate };
            estimate.channel(*risk).expect("a risk that was checked, and a rate")
        };
        let is_up =
            |(_, estimate): &(usize, &ChannelEstimate)| estimate.state == TunnelChannelState::Up;
        Self {
            channels: estimates.iter().zip(risks).map(channel).collect(),
            up: estimates.iter().enumerate().filter(is_up).map(|(channel, _)| channel).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::tokens::TokenKey;

    const UP: TunnelChannelState = TunnelChannelState::Up;
    const DOWN: TunnelChannelState = TunnelChannelState::Down;
    const QUARANTINE: TunnelChannelState = TunnelChannelState::Quarantine;

    /// The lines of the log from one state of three channels, coming in and going out, to another.
    fn lines(
        before: [[TunnelChannelState; 3]; 2],
        now: [[TunnelChannelState; 3]; 2],
    ) -> Vec<String> {
        let states = |[incoming, outgoing]: [[TunnelChannelState; 3]; 2]| ChannelStates {
            incoming: incoming.to_vec(),
            outgoing: outgoing.to_vec(),
        };
        let changes = states(before).changes(&states(now));
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_change_has_a_line_at_either_end() {
        let all_up = [UP; 3];
        let some = [UP, QUARANTINE, DOWN];
        assert_eq!(lines([all_up, all_up], [all_up, all_up]), [""; 0]);
        assert_eq!(lines([some, some], [some, some]), [""; 0]);
        assert_eq!(
            lines([all_up, all_up], [some, all_up]),
            [
                "channel 2: in quarantine, as shares were changed on it",
                "channel 3: nothing arrives from the peer",
            ]
        );
        assert_eq!(
            lines([some, all_up], [all_up, all_up]),
            ["channel 2: no longer in quarantine", "channel 3: the peer's datagrams arrive again"]
        );
        assert_eq!(
            lines([all_up, all_up], [all_up, some]),
            [
                "channel 2: in quarantine at the peer, as shares were changed on it",
                "channel 3: the peer receives nothing",
            ]
        );
        assert_eq!(
            lines([all_up, some], [all_up, all_up]),
            [
                "channel 2: no longer in quarantine at the peer",
                "channel 3: the peer receives again"
            ]
        );
    }

    #[test]
    fn a_channel_that_returns_into_quarantine_is_logged() {
        let (down, quarantined) = ([UP, UP, DOWN], [UP, UP, QUARANTINE]);
        assert_eq!(
            lines([down, down], [quarantined, down]),
            ["channel 3: in quarantine, as shares were changed on it"]
        );
    }

    #[test]
    fn an_association_begins_with_all_channels_up() {
        let mut shared = EndpointSharedState::default();
        assert_eq!(shared.poll_changes(Duration::ZERO), []);
        let begin = |shared: &mut EndpointSharedState| {
            let monitor = ChannelMonitor::new(&[None, None], Duration::ZERO);
            let id = TokenKey::new(&[0; 16]).id();
            shared.begin(monitor, id, 2, ChannelSubset::first(2), Duration::ZERO);
        };
        begin(&mut shared);
        assert_eq!(shared.poll_changes(Duration::ZERO), []);
        shared.quarantined = ChannelSubset::EMPTY.with(1);
        let (channel, is_incoming) = (1, true);
        let change = ChannelStateChange { channel, is_incoming, before: UP, now: QUARANTINE };
        assert_eq!(shared.poll_changes(Duration::ZERO), [change]);
        assert_eq!(shared.poll_changes(Duration::ZERO), [], "it is said once");
        let seconds = Duration::from_secs;
        assert_eq!(shared.not_up, [None, Some(seconds(0))]);
        shared.quarantined = ChannelSubset::EMPTY.with(0);
        shared.poll_changes(seconds(3));
        shared.quarantined = ChannelSubset::first(2);
        shared.poll_changes(seconds(5));
        assert_eq!(shared.not_up, [Some(seconds(3)), Some(seconds(5))], "since the first change");
        begin(&mut shared);
        assert_eq!(shared.poll_changes(Duration::ZERO), [], "the next knows nothing of it");
        assert_eq!(shared.not_up, [None, None]);
        shared.monitor = None;
        assert_eq!(shared.poll_changes(Duration::ZERO), [], "nobody is there");
    }
}
