//! Pairs of members that talk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mix::chat::ChatEvent;

use super::members::{GroupMemberEvent, GroupMemberId, GroupMemberSessions};
use super::proxy::ProxyProcess;
use super::{MixDeliveryOptions, TIMEOUT};

/// The time after which a refused message is sent again.
const REFUSED_WAIT: Duration = Duration::from_millis(50);

/// The interval of status queries while nothing else happens.
const IDLE: Duration = Duration::from_millis(50);

/// Two members that talk in turn.
struct TalkingPair {
    ends: [GroupMemberId; 2],
    /// The number of delivered messages.
    delivered: usize,
    state: NextMessageState,
}

/// The state of the next message.
#[derive(Clone, Copy)]
enum NextMessageState {
    /// It is to be sent at this time.
    Due(Instant),
    /// It was sent at this time. If it was refused, it is to be sent again at `again`.
    Sent { since: Instant, again: Option<Instant> },
}

impl TalkingPair {
    /// The sender and the receiver of the next message.
    fn direction(&self) -> [GroupMemberId; 2] {
        let [first, second] = self.ends;
        if self.delivered.is_multiple_of(2) { [first, second] } else { [second, first] }
    }
}

/// All pairs, and the delivery times of their messages.
pub(super) struct PairConversations {
    pairs: Vec<TalkingPair>,
    /// The pair of each member that talks.
    of_member: BTreeMap<GroupMemberId, usize>,
    round: Duration,
    /// The total number of messages of each pair.
    deliveries: usize,
    /// The delivery times of the first message of each pair.
    pub(super) first: Vec<Duration>,
    /// The delivery times of all others.
    pub(super) later: Vec<Duration>,
}

impl PairConversations {
    pub(super) fn new(options: &MixDeliveryOptions) -> Self {
        let round = Duration::from_millis(options.min_interval_ms);
        let mut talk = Self {
            pairs: Vec::new(),
            of_member: BTreeMap::new(),
            round,
            deliveries: options.deliveries,
            first: Vec::new(),
            later: Vec::new(),
        };
        for group in 0..options.groups {
            for pair in 0..options.pairs {
                let ends = [2 * pair, 2 * pair + 1].map(|number| GroupMemberId { group, number });
                for end in ends {
                    talk.of_member.insert(end, talk.pairs.len());
                }
                let state = NextMessageState::Due(Instant::now() + part_of(round));
                talk.pairs.push(TalkingPair { ends, delivered: 0, state });
            }
        }
        talk
    }

    /// Lets all pairs talk until at least `deliveries` messages of each have been delivered. Pairs
    /// that are ahead continue.
    pub(super) fn run(
        &mut self,
        members: &mut GroupMemberSessions<'_>,
        proxy: &mut ProxyProcess<'_>,
        delivered: usize,
    ) -> Result<(), String> {
        let mut deadline = Instant::now() + TIMEOUT;
        while self.pairs.iter().any(|pair| pair.delivered < delivered) {
            proxy.poll_status()?;
            let mut until = Instant::now() + IDLE;
            for pair in &mut self.pairs {
                if pair.delivered < self.deliveries {
                    until = until.min(pair.send_if_due(members));
                }
            }
            // Handles all events before the next message is sent.
            while let Some(member_event) = members.next_until(until)? {
                until = Instant::now();
                if self.take(member_event)? {
                    deadline = Instant::now() + TIMEOUT;
                }
            }
            if Instant::now() > deadline {
                return Err(format!("no message has arrived within {} s", TIMEOUT.as_secs()));
            }
        }
        Ok(())
    }

    /// Handles an event. Returns whether a message has arrived.
    fn take(
        &mut self,
        GroupMemberEvent { member, at, event }: GroupMemberEvent,
    ) -> Result<bool, String> {
        let pair = self.of_member.get(&member).map(|at| &mut self.pairs[*at]);
        match (event, pair) {
            (ChatEvent::Message { from, text, .. }, Some(pair)) => {
                let ([speaker, listener], NextMessageState::Sent { since, .. }) =
                    (pair.direction(), pair.state)
                else {
                    return Err(format!("{} has a message that nobody has said", member.name()));
                };
                if listener != member || from != speaker.name() || text != line(pair.delivered) {
                    return Err(format!("{} has {text:?} of {from}", member.name()));
                }
                let took = at.saturating_duration_since(since);
                let times = if pair.delivered == 0 { &mut self.first } else { &mut self.later };
                times.push(took);
                pair.delivered += 1;
                pair.state = NextMessageState::Due(at + part_of(self.round));
                Ok(true)
            }
            (ChatEvent::Message { from, .. }, None) => {
                Err(format!("{} has a message of {from}", member.name()))
            }
            (ChatEvent::NotSent { .. }, Some(pair)) => {
                if let NextMessageState::Sent { again, .. } = &mut pair.state {
                    *again = Some(at + REFUSED_WAIT);
                }
                Ok(false)
            }
            (ChatEvent::Ended { why }, _) => {
                Err(format!("{} has ended: {}", member.name(), why.unwrap_or_default()))
            }
            _ => Ok(false),
        }
    }
}

impl TalkingPair {
    /// Sends the next message, if it is due. Returns when it is due.
    fn send_if_due(&mut self, members: &GroupMemberSessions<'_>) -> Instant {
        let now = Instant::now();
        let (due, since) = match self.state {
            NextMessageState::Due(due) => (due, now),
            NextMessageState::Sent { again: Some(again), since } => (again, since),
            NextMessageState::Sent { again: None, .. } => return now + IDLE,
        };
        if due > now {
            return due;
        }
        let [speaker, listener] = self.direction();
        members.say(speaker, listener, line(self.delivered));
        self.state = NextMessageState::Sent { since, again: None };
        now + IDLE
    }
}

/// The text of a message, of a typical length.
fn line(number: usize) -> String {
    format!("This is message {number} of a conversation.")
}

/// A random fraction of a time, because users do not act in step with rounds.
fn part_of(time: Duration) -> Duration {
    time.mul_f64(fastrand::f64())
}
