//! Pairs of members that talk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mix::chat::ChatEvent;

use super::members::{GroupMemberEvent, GroupMemberId, GroupMemberSessions};
use super::proxy::ProxyProcess;
use super::{MixDeliveryOptions, TIMEOUT};

/// After a message was refused, it is said again after this time.
const REFUSED_WAIT: Duration = Duration::from_millis(50);

/// How often the proxy is looked at, if nothing else happens.
const IDLE: Duration = Duration::from_millis(50);

/// Two members that talk in turn.
struct TalkingPair {
    ends: [GroupMemberId; 2],
    /// The messages that have been delivered.
    delivered: usize,
    state: NextMessageState,
}

/// What happens to the next message.
#[derive(Clone, Copy)]
enum NextMessageState {
    /// It is said at this time.
    Due(Instant),
    /// It was said at this time, and is due again if it was refused.
    Said { since: Instant, again: Option<Instant> },
}

impl TalkingPair {
    /// Who says the next message, and to whom.
    fn direction(&self) -> [GroupMemberId; 2] {
        let [first, second] = self.ends;
        if self.delivered.is_multiple_of(2) { [first, second] } else { [second, first] }
    }
}

/// All pairs, and how long their messages took.
pub(super) struct PairConversations {
    pairs: Vec<TalkingPair>,
    /// The pair of each member that talks.
    of_member: BTreeMap<GroupMemberId, usize>,
    round: Duration,
    /// How many messages of each pair are delivered in all.
    deliveries: usize,
    /// Of the first message of each pair.
    pub(super) first: Vec<Duration>,
    /// Of all others.
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

    /// Lets all pairs talk until so many messages of each have been delivered. Those of which more
    /// have been go on.
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
            // All that has happened is taken before anything else is said.
            while let Some(told) = members.next_until(until)? {
                until = Instant::now();
                if self.take(told)? {
                    deadline = Instant::now() + TIMEOUT;
                }
            }
            if Instant::now() > deadline {
                return Err(format!("no message has arrived within {} s", TIMEOUT.as_secs()));
            }
        }
        Ok(())
    }

    /// Takes what has happened. Whether a message has arrived.
    fn take(
        &mut self,
        GroupMemberEvent { member, at, event }: GroupMemberEvent,
    ) -> Result<bool, String> {
        let pair = self.of_member.get(&member).map(|at| &mut self.pairs[*at]);
        match (event, pair) {
            (ChatEvent::Message { from, text }, Some(pair)) => {
                let ([speaker, listener], NextMessageState::Said { since, .. }) =
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
                if let NextMessageState::Said { again, .. } = &mut pair.state {
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
    /// Says the next message, if it is due. Returns when it is.
    fn send_if_due(&mut self, members: &GroupMemberSessions<'_>) -> Instant {
        let now = Instant::now();
        let (due, since) = match self.state {
            NextMessageState::Due(due) => (due, now),
            NextMessageState::Said { again: Some(again), since } => (again, since),
            NextMessageState::Said { again: None, .. } => return now + IDLE,
        };
        if due > now {
            return due;
        }
        let [speaker, listener] = self.direction();
        members.say(speaker, listener, line(self.delivered));
        self.state = NextMessageState::Said { since, again: None };
        now + IDLE
    }
}

/// The text of a message: as long as what a person types at once.
fn line(number: usize) -> String {
    format!("This is message {number} of a conversation.")
}

/// A random part of a time: people do not wait for rounds.
fn part_of(time: Duration) -> Duration {
    time.mul_f64(fastrand::f64())
}
