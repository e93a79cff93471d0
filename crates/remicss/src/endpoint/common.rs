//! What the two halves of an end know together, which channels' states are others than before, and when
//! the schedule has to be planned anew.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use model::{Channel, Subset};

use crate::control::estimate::{Changes, Estimate};
use crate::control::incoming::Came;
use crate::control::monitor::Monitor;
use crate::wire::control::State;
use crate::wire::tokens::KeyId;

/// What both halves know.
#[derive(Default)]
pub struct Common {
    /// What is measured; `None` while there is no association.
    pub monitor: Option<Monitor>,
    /// Which keys this end sends with, by which its senders are told from those of before.
    pub key_id: Option<KeyId>,
    /// How many symbols of packets have verified.
    pub packets: u64,
    /// What has come on each channel.
    pub came: Vec<Came>,
    /// The channels whose shares are not used.
    pub quarantined: Subset,
    /// Since when each channel is missing from the association, if it is.
    pub missing: Vec<Option<Duration>>,
    changes: Changes,
    states: States,
}

/// The channels' states, each way.
#[derive(Debug, Default)]
struct States {
    incoming: Vec<State>,
    outgoing: Vec<State>,
}

/// A channel whose state is another than before. Its text is a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The channel's index.
    pub channel: usize,
    /// Whether this end has seen it, in what it receives; if not, the peer has, and said so.
    pub is_incoming: bool,
    /// What the state was.
    pub before: State,
    /// What it is.
    pub now: State,
}

/// What a plan is to be made for.
#[derive(Clone, Debug)]
pub struct Situation {
    /// The channels, with rates in Mbit/s.
    pub channels: Vec<Channel>,
    /// Those that are up.
    pub up: Subset,
}

impl Common {
    /// Begins anew with an association of these members, of so many channels. What was learnt of rates is
    /// still good.
    pub fn begin(
        &mut self,
        mut monitor: Monitor,
        key_id: KeyId,
        channels: usize,
        members: Subset,
        now: Duration,
    ) {
        monitor.set_members(members);
        if let Some(before) = &self.monitor {
            monitor.learn_from(before);
        }
        let since = |channel| self.missing.get(channel).copied().flatten().unwrap_or(now);
        let missing = |channel| (!members.contains(channel)).then(|| since(channel));
        *self = Self {
            missing: (0..channels).map(missing).collect(),
            came: vec![Came::default(); channels],
            states: States::of(channels, members),
            monitor: Some(monitor),
            key_id: Some(key_id),
            packets: 0,
            quarantined: Subset::EMPTY,
            changes: Changes::default(),
        };
    }

    /// What to plan for, if that is something else than last time. `risks` are the channels' z.
    pub fn poll_situation(&mut self, risks: &[f64], now: Duration) -> Option<Situation> {
        let estimates = self.monitor.as_ref()?.estimates(now);
        self.changes.notice(&estimates).then(|| Situation::new(&estimates, risks))
    }

    /// The states that are others than when this was last asked, or than up if the association is new.
    /// Without one, there are none.
    pub fn poll_changes(&mut self, now: Duration) -> Vec<Change> {
        let Some(monitor) = &self.monitor else { return Vec::new() };
        let outgoing = monitor.estimates(now).iter().map(|estimate| estimate.state).collect();
        let states = States { incoming: monitor.incoming(self.quarantined), outgoing };
        let changes = self.states.changes(&states);
        self.states = states;
        changes
    }
}

impl States {
    /// Of so many channels, the members are up, and nothing is to be said of the others.
    fn of(channels: usize, members: Subset) -> Self {
        let state = |channel| if members.contains(channel) { State::Up } else { State::Down };
        let states: Vec<State> = (0..channels).map(state).collect();
        Self { incoming: states.clone(), outgoing: states }
    }

    /// What is another `now`, what this end sees before what the peer says.
    fn changes(&self, now: &Self) -> Vec<Change> {
        let changes = |is_incoming: bool, before: &[State], now: &[State]| {
            let pairs = before.iter().copied().zip(now.iter().copied()).enumerate();
            let change = |(channel, (before, now))| Change { channel, is_incoming, before, now };
            pairs.map(change).filter(|change| change.before != change.now).collect()
        };
        let incoming: Vec<Change> = changes(true, &self.incoming, &now.incoming);
        [incoming, changes(false, &self.outgoing, &now.outgoing)].concat()
    }
}

impl Display for Change {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let what = match (self.is_incoming, self.now, self.before) {
            (true, State::Down, _) => "nothing arrives from the peer",
            (true, State::Quarantine, _) => "in quarantine, as shares were changed on it",
            (true, State::Up, State::Quarantine) => "no longer in quarantine",
            (true, State::Up, _) => "the peer's datagrams arrive again",
            (false, State::Down, _) => "the peer receives nothing",
            (false, State::Quarantine, _) => {
                "in quarantine at the peer, as shares were changed on it"
            }
            (false, State::Up, State::Quarantine) => "no longer in quarantine at the peer",
            (false, State::Up, _) => "the peer receives again",
        };
        write!(formatter, "channel {}: {what}", self.channel + 1)
    }
}

impl Situation {
    /// Channels of these estimates and risks.
    pub(crate) fn new(estimates: &[Estimate], risks: &[f64]) -> Self {
        let channel = |(estimate, risk): (&Estimate, &f64)| {
            // A channel that carries nothing has no use for a rate, but needs one.
            let estimate = Estimate { rate_bps: estimate.rate_bps.max(1), ..*estimate };
            estimate.channel(*risk).expect("a risk that was checked, and a rate")
        };
        let is_up = |(_, estimate): &(usize, &Estimate)| estimate.state == State::Up;
        Self {
            channels: estimates.iter().zip(risks).map(channel).collect(),
            up: estimates.iter().enumerate().filter(is_up).map(|(channel, _)| channel).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tokens::TokenKey;

    const UP: State = State::Up;
    const DOWN: State = State::Down;
    const QUARANTINE: State = State::Quarantine;

    /// The lines of the log from one state of three channels, coming in and going out, to another.
    fn lines(before: [[State; 3]; 2], now: [[State; 3]; 2]) -> Vec<String> {
        let states = |[incoming, outgoing]: [[State; 3]; 2]| States {
            incoming: incoming.to_vec(),
            outgoing: outgoing.to_vec(),
        };
        let changes = states(before).changes(&states(now));
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_change_is_a_line_at_either_end() {
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
    fn one_that_comes_back_into_its_quarantine_says_so() {
        let (down, quarantined) = ([UP, UP, DOWN], [UP, UP, QUARANTINE]);
        assert_eq!(
            lines([down, down], [quarantined, down]),
            ["channel 3: in quarantine, as shares were changed on it"]
        );
    }

    #[test]
    fn an_association_begins_with_all_channels_up() {
        let mut common = Common::default();
        assert_eq!(common.poll_changes(Duration::ZERO), []);
        let begin = |common: &mut Common| {
            let monitor = Monitor::new(&[None, None], Duration::ZERO);
            let id = TokenKey::new(&[0; 16]).id();
            common.begin(monitor, id, 2, Subset::first(2), Duration::ZERO);
        };
        begin(&mut common);
        assert_eq!(common.poll_changes(Duration::ZERO), []);
        common.quarantined = Subset::EMPTY.with(1);
        let (channel, is_incoming) = (1, true);
        let change = Change { channel, is_incoming, before: UP, now: QUARANTINE };
        assert_eq!(common.poll_changes(Duration::ZERO), [change]);
        assert_eq!(common.poll_changes(Duration::ZERO), [], "it is said once");
        begin(&mut common);
        assert_eq!(common.poll_changes(Duration::ZERO), [], "the next knows nothing of it");
        common.monitor = None;
        assert_eq!(common.poll_changes(Duration::ZERO), [], "nobody is there");
    }
}
