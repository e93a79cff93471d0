//! What a group costs its members and its proxy, and how fast its messages arrive.

use std::fmt;
use std::time::Duration;

use super::exchange::MixExchangeKind;
use super::round::{NONCE_LEN, Participant, ReadRound};
use super::wire::{ArchiveRecord, ArchivedRound, MixTerms, framed};

/// The bytes of a message besides its content, over TCP: its length, and the encryption's header
/// and authenticator.
const MESSAGE_OVERHEAD: usize = 8 + 2 + 16;
/// The content of a packet over TCP, on a network with packets of 1,500 bytes.
const PACKET_LEN: usize = 1_448;
/// The headers of a packet: IPv4, and TCP with time stamps.
const PACKET_OVERHEAD: usize = 52;

/// The costs of a member that is always connected, and the times of its messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberCost {
    /// Bytes that the member sends in a day, with the headers of packets.
    pub up_per_day: u64,
    /// Bytes that it receives in a day.
    pub down_per_day: u64,
    /// The median of the time from when a message of one fragment is entered until its receiver
    /// reads it. Delays of the network are not included.
    pub delivery: Duration,
    /// The time within which 95 % of these messages are read.
    pub delivery_95: Duration,
}

impl MemberCost {
    /// The cost in a group with these terms, in which `participants` members are connected and in
    /// time. Rounds then last the minimum interval.
    pub fn new(terms: &MixTerms, participants: usize) -> Self {
        let lens = terms.exchange().message_lens(terms.shape());
        let start = 1 + 4 + 8 + 8 + 2 + participants * (2 + NONCE_LEN);
        let opening = match terms.exchange() {
            MixExchangeKind::Broadcast => 1 + participants * terms.shape().own_slots_len(),
            MixExchangeKind::Oblivious(_) => lens.opening,
        };
        let request = packets(1 + 8 + NONCE_LEN + lens.request);
        let (round, answer) = (packets(start + opening), packets(1 + 8 + lens.answer));
        // The answer acknowledges the request. A receiver acknowledges every second packet, and at
        // least the last one.
        let acknowledgements = (start + opening + MESSAGE_OVERHEAD).div_ceil(2 * PACKET_LEN);
        let round_ms = terms.least_interval().as_millis();
        let per_day =
            |bytes: usize| u64::try_from(bytes as u128 * 86_400_000 / round_ms).unwrap_or(u64::MAX);
        // A message waits for the next round, in which it is written; the mailbox is read when that
        // round is over.
        let rounds = |count: f64| terms.least_interval().mul_f64(count);
        Self {
            up_per_day: per_day(request + acknowledgements * PACKET_OVERHEAD),
            down_per_day: per_day(round + answer),
            delivery: rounds(1.5),
            delivery_95: rounds(1.95),
        }
    }
}

/// What several groups cost their proxy if all of their members are connected and in time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProxyCost {
    /// The members, each of which has a connection.
    pub connections: usize,
    /// Bytes that the proxy receives in a second, with the headers of packets.
    pub received_per_s: u64,
    /// Bytes that it sends in a second.
    pub sent_per_s: u64,
}

impl ProxyCost {
    /// The cost of groups with these terms.
    pub fn new<'a>(groups: impl IntoIterator<Item = &'a MixTerms>) -> Self {
        groups.into_iter().fold(Self::default(), |sum, terms| {
            let members = terms.shape().members();
            let cost = MemberCost::new(terms, members);
            let of_all = |per_day: u64| (per_day / 86_400).saturating_mul(members as u64);
            Self {
                connections: sum.connections + members,
                received_per_s: sum.received_per_s.saturating_add(of_all(cost.up_per_day)),
                sent_per_s: sum.sent_per_s.saturating_add(of_all(cost.down_per_day)),
            }
        })
    }
}

/// For a person: connections, and rates in megabits, in one line.
impl fmt::Display for ProxyCost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabits = |bytes: u64| {
            let tenths = bytes.div_ceil(12_500);
            format!("{}.{}", tenths / 10, tenths % 10)
        };
        let [received, sent] = [self.received_per_s, self.sent_per_s].map(megabits);
        let connections = self.connections;
        write!(out, "{connections} connections, {received} Mbit/s received, {sent} Mbit/s sent")
    }
}

/// What the closed rounds that are kept take on the proxy's disk, if all members take part in each
/// and are in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveCost {
    /// The bytes of a round.
    round_len: u64,
    /// The duration of a round in ms.
    round_ms: u64,
}

impl ArchiveCost {
    /// The cost in a group with these terms.
    pub fn new(terms: &MixTerms) -> Self {
        let shape = terms.shape();
        let participant = |member| Participant { member, nonce: [0; NONCE_LEN] };
        let members = u16::try_from(shape.members()).unwrap_or(u16::MAX);
        let round = ArchiveRecord::Round(ArchivedRound {
            epoch: 0,
            closed_s: 0,
            slots_per_member: 0,
            slot_len: 0,
            read: ReadRound { round: 0, participants: (0..members).map(participant).collect() },
            // It may be large: its length is added.
            mailbox: Vec::new(),
        });
        let len = framed(&round).len() + shape.members() * shape.own_slots_len();
        let round_ms = u64::try_from(terms.least_interval().as_millis()).unwrap_or(u64::MAX);
        Self { round_len: len as u64, round_ms }
    }

    /// The bytes of the rounds of a period.
    pub fn bytes(&self, period: Duration) -> u64 {
        let rounds = period.as_millis().div_ceil(u128::from(self.round_ms));
        u64::try_from(rounds.saturating_mul(self.round_len.into())).unwrap_or(u64::MAX)
    }

    /// The period whose rounds have this number of bytes.
    pub fn period(&self, bytes: u64) -> Duration {
        Duration::from_millis((bytes / self.round_len).saturating_mul(self.round_ms))
    }
}

/// The bytes of the packets of a message.
fn packets(len: usize) -> usize {
    let len = len + MESSAGE_OVERHEAD;
    len + len.div_ceil(PACKET_LEN) * PACKET_OVERHEAD
}

/// Bytes in millions, rounded.
fn megabytes(bytes: u64) -> u64 {
    bytes.saturating_add(500_000) / 1_000_000
}

/// For a person: bytes of a day and seconds, in one line.
impl fmt::Display for MemberCost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [up, down] = [self.up_per_day, self.down_per_day].map(megabytes);
        let [half, most] = [self.delivery, self.delivery_95].map(|time| time.as_secs_f64());
        write!(
            out,
            "{up} MB sent and {down} MB received a day, 50 % of messages within {half:.1} s, \
             95 % within {most:.1} s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::GroupProfile;

    #[test]
    fn a_messenger_group_of_16_is_cheap_and_fast_enough() {
        let cost = |profile: GroupProfile| MemberCost::new(&profile.terms(16).unwrap(), 16);
        let messenger = cost(GroupProfile::Messenger);
        assert!(messenger.up_per_day + messenger.down_per_day <= 300_000_000, "{messenger}");
        assert!(messenger.delivery_95 <= Duration::from_secs(8), "{messenger}");
        assert!(cost(GroupProfile::Interactive).delivery_95 < Duration::from_millis(500));
        assert!(cost(GroupProfile::Mail).down_per_day < cost(GroupProfile::Messenger).down_per_day);
    }

    #[test]
    fn the_cost_of_a_proxy_is_that_of_all_members() {
        let terms = [4, 16].map(|members| GroupProfile::Messenger.terms(members).unwrap());
        let each = terms.map(|terms| {
            let members = terms.shape().members();
            MemberCost::new(&terms, members).down_per_day * members as u64 / 86_400
        });
        let cost = ProxyCost::new(&terms);
        assert_eq!(cost.connections, 20);
        assert!(cost.sent_per_s.abs_diff(each.iter().sum()) < 20, "{cost:?}");
        let cost = ProxyCost { received_per_s: 125_000, sent_per_s: 1_260_000, ..cost };
        assert_eq!(cost.to_string(), "20 connections, 1.0 Mbit/s received, 10.1 Mbit/s sent");
    }

    #[test]
    fn kept_rounds_have_the_bytes_of_their_records() {
        let terms = |profile: GroupProfile| profile.terms(16).unwrap();
        let cost = ArchiveCost::new(&terms(GroupProfile::Interactive));
        let participants = (0..16).map(|member| Participant { member, nonce: [1; NONCE_LEN] });
        let record = framed(&ArchiveRecord::Round(ArchivedRound {
            epoch: 1,
            closed_s: 2,
            slots_per_member: 1,
            slot_len: 256,
            read: ReadRound { round: 3, participants: participants.collect() },
            mailbox: vec![4; 16 * 256],
        }));
        assert_eq!(cost.bytes(Duration::from_secs(2)), 10 * record.len() as u64);
        let hour = Duration::from_secs(3600);
        assert_eq!(cost.period(cost.bytes(hour)), hour);
        // With the defaults, `keep_mb` lasts for half a day, and for a week by `messenger`.
        assert_eq!(cost.period(1_000_000_000).as_secs() / 3600, 12);
        let messenger = ArchiveCost::new(&terms(GroupProfile::Messenger));
        assert_eq!(messenger.period(1_000_000_000).as_secs() / 86_400, 7);
    }

    /// By the engine `ot`, an update and an answer have the length of the mailbox, and more.
    #[test]
    fn an_oblivious_group_costs_many_times_as_much() {
        use crate::MailboxShape;
        use crate::engine::MixEngineName;
        let broadcast = GroupProfile::Interactive.terms(16).unwrap();
        let shape = MailboxShape::new(16, 2, 1, 10, 256).unwrap();
        let (interval, least) = (broadcast.interval(), broadcast.least_interval());
        let oblivious = MixTerms::new(MixEngineName::Ot, shape, interval, least).unwrap();
        let [broadcast, oblivious] = [broadcast, oblivious].map(|terms| {
            let cost = MemberCost::new(&terms, 16);
            cost.up_per_day + cost.down_per_day
        });
        assert!((9_000_000_000..11_000_000_000).contains(&oblivious), "{oblivious}");
        assert!(oblivious > 4 * broadcast, "{oblivious} {broadcast}");
    }
}
