//! What a run is like.

use std::time::Duration;

use association::{COOKIE_LEN, HEADER_LEN};
use sim::SeededRng;

use super::ms;
use crate::protocol::target::ServiceRefusal;

/// How long TCP sends again what is not acknowledged, and probes a peer that is silent.
pub(super) const TCP_TIMEOUT: Duration = Duration::from_secs(900);

/// How long channels fail again and again.
pub(super) const STEADY_TIME: Duration = Duration::from_secs(120);

/// What the attacker does on one direction of a channel, after so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelAttack {
    None,
    /// Acknowledges everything, and passes on nothing.
    Swallow(usize),
    /// Ends the connection, and resets it for the end that sends.
    Cut(usize),
    /// Resets the connection, for both ends.
    Reset(usize),
    /// Changes a bit.
    Change(usize),
    /// Passes on again what was sent in one piece.
    Replay(usize),
    /// Passes on nothing for so long.
    Stall(usize, Duration),
    /// Passes on the next 200 bytes one by one, at this interval.
    Trickle(usize, Duration),
}

/// From when until when nothing crosses a channel: packets are lost, and sent again after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelOutage {
    pub(super) from: Duration,
    /// `None`: for ever.
    pub(super) until: Option<Duration>,
    /// After how long both ends learn of it.
    pub(super) noticed_after: Duration,
}

/// What is done to a channel.
#[derive(Clone, Debug)]
pub(super) struct ChannelScenario {
    /// By the end that a direction leads to.
    pub(super) attacks: [ChannelAttack; 2],
    /// One after another.
    pub(super) outages: Vec<ChannelOutage>,
    pub(super) delay: (Duration, Duration),
}

impl ChannelScenario {
    pub(super) fn is_honest(&self) -> bool {
        self.attacks == [ChannelAttack::None; 2] && self.outages.is_empty()
    }
}

/// What an end and its application do.
#[derive(Clone, Debug)]
pub(super) struct StreamEndScenario {
    /// How many bytes the application says, and when it begins.
    pub(super) says: usize,
    pub(super) begins_at: Duration,
    /// When its connection breaks.
    pub(super) breaks_at: Option<Duration>,
    /// When the end is killed.
    pub(super) killed_at: Option<Duration>,
    /// When it stops taking what it is given, and for how long.
    pub(super) pauses: Option<(Duration, Duration)>,
    /// How many bytes of memory long records may take.
    pub(super) memory: Option<usize>,
}

/// What a run is like.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the conditions are independent")]
pub(super) struct StreamScenario {
    pub(super) n: u8,
    pub(super) k: u8,
    pub(super) channels: Vec<ChannelScenario>,
    pub(super) ends: [StreamEndScenario; 2],
    pub(super) is_reusable: bool,
    pub(super) has_records: bool,
    /// The client's application waits for the answer.
    pub(super) waits: bool,
    pub(super) refusal: Option<ServiceRefusal>,
    /// How long the server takes to connect to the service.
    pub(super) service_delay: Duration,
    /// How long a stream waits for lost channels, if it is not open.
    pub(super) opening_timeout: Duration,
    /// How many bytes a connection holds.
    pub(super) window: usize,
    /// Both applications say something all the time, and what an outage has lost TCP sends again as
    /// long after it as it has lasted.
    pub(super) is_steady: bool,
}

impl StreamScenario {
    pub(super) fn random(rng: &mut SeededRng) -> Self {
        let n = 1 + small(rng.index(5));
        let has_records = rng.chance(85);
        let all = rng.chance(40) || !has_records;
        let k = if all { n } else { 1 + small(rng.index(n.into())) };
        let hostile = if rng.chance(20) { 0 } else { rng.index(usize::from(n)) };
        let mut channels: Vec<ChannelScenario> = (0..n)
            .map(|channel| ChannelScenario::random(rng, usize::from(channel) < hostile))
            .collect();
        rng.shuffle(&mut channels);
        let ends = [StreamEndScenario::random(rng), StreamEndScenario::random(rng)];
        let says_much = ends.iter().any(|end| end.says > 20_000);
        let window = [if says_much { 20_000 } else { 700 }, 65_536][rng.index(2)];
        let refusals = [ServiceRefusal::NotAllowed, ServiceRefusal::Unreachable];
        Self {
            n,
            k,
            channels,
            ends,
            is_reusable: rng.chance(50),
            has_records,
            waits: rng.chance(30),
            refusal: rng.chance(8).then(|| refusals[rng.index(2)]),
            service_delay: ms([9_000, 31_000, rng.below(200)][rng.index(60).min(2)]),
            opening_timeout: ms([0, 90_000][rng.index(2)]),
            window,
            is_steady: false,
        }
    }

    /// One in which channels fail again and again for two minutes, and nothing else does.
    pub(super) fn of_outages(rng: &mut SeededRng) -> Self {
        let n = 2 + small(rng.index(4));
        let k = if rng.chance(30) { n } else { 1 + small(rng.index(usize::from(n) - 1)) };
        let mut steady = Self::random(rng);
        let end = StreamEndScenario {
            says: usize::MAX,
            begins_at: ms(0),
            breaks_at: None,
            killed_at: None,
            pauses: None,
            memory: None,
        };
        (steady.n, steady.k, steady.ends) = (n, k, [end.clone(), end]);
        (steady.has_records, steady.is_steady, steady.refusal) = (true, true, None);
        (steady.service_delay, steady.window) = (ms(10), 65_536);
        steady.channels = (0..n).map(|_| ChannelScenario::with_outages(rng)).collect();
        steady
    }

    /// One that reaches what random ones seldom do: a channel that falls silent while the stream
    /// opens, or an application that breaks while nothing can be sent.
    pub(super) fn rare(rng: &mut SeededRng) -> Self {
        let mut rare = Self::random(rng);
        let cookie = HEADER_LEN + COOKIE_LEN;
        let list = HEADER_LEN + 8 + COOKIE_LEN * usize::from(rare.n);
        rare.has_records = true;
        rare.channels.iter_mut().for_each(|channel| {
            (channel.attacks, channel.outages) = ([ChannelAttack::None; 2], Vec::new());
        });
        if rng.chance(50) {
            let behind = rng.index(150);
            rare.refusal = rng.chance(30).then_some(ServiceRefusal::NotAllowed);
            rare.channels[0].attacks = if rng.chance(50) {
                [ChannelAttack::Swallow(cookie + list + behind), ChannelAttack::None]
            } else {
                [ChannelAttack::None, ChannelAttack::Swallow(list + behind)]
            };
            rare.ends.iter_mut().for_each(|end| end.breaks_at = None);
        } else {
            let from = ms(250 + rng.below(500));
            let noticed_after = ms(20_000);
            rare.channels[0].outages = vec![ChannelOutage { from, until: None, noticed_after }];
            rare.ends[rng.index(2)].breaks_at = Some(from + ms(rng.below(2_000)));
            rare.window = 150 + rng.index(400);
        }
        rare
    }

    /// How many channels do what they should.
    fn honest(&self) -> usize {
        self.channels.iter().filter(|channel| channel.is_honest()).count()
    }

    /// Whether both ends and the service let the stream run.
    fn is_undisturbed(&self) -> bool {
        let is_left_alone = |end: &StreamEndScenario| {
            end.breaks_at.is_none() && end.killed_at.is_none() && end.memory.is_none()
        };
        self.service_delay < ms(20_000) && self.ends.iter().all(is_left_alone)
    }

    /// Whether the attacker controls so few channels that the stream goes on: a quorum opens it,
    /// and without records all are needed. See `docs/protocols/micss.md`.
    fn is_served(&self) -> bool {
        let quorum = usize::from(self.k.max(self.n / 2 + 1));
        let needed = if self.has_records { quorum } else { self.n.into() };
        self.is_undisturbed() && self.must_be_exact() && self.honest() >= needed
    }

    /// Whether nothing may be delivered but what was sent: an attacker may change it without
    /// records, or on k channels.
    pub(super) fn must_be_exact(&self) -> bool {
        let changes =
            |attack| matches!(attack, ChannelAttack::Change(_) | ChannelAttack::Replay(_));
        let is_changed = |channel: &&ChannelScenario| channel.attacks.into_iter().any(changes);
        let changed = self.channels.iter().filter(is_changed).count();
        changed == 0 || self.has_records && changed < self.k.into()
    }

    /// Whether both ends must finish with all bytes.
    pub(super) fn must_succeed(&self) -> bool {
        self.is_served() && self.refusal.is_none()
    }

    /// How long a stream takes at most that must succeed: less than TCP takes to find out that a
    /// channel is dead, unless an attacker lets bytes pass one by one.
    pub(super) fn must_finish_within(&self) -> Duration {
        let trickles = |attack| matches!(attack, ChannelAttack::Trickle(..));
        let mut attacks = self.channels.iter().flat_map(|channel| channel.attacks);
        if attacks.any(trickles) { Duration::MAX } else { TCP_TIMEOUT }
    }

    /// Why the client must have been refused, if it must.
    pub(super) fn must_refuse(&self) -> Option<ServiceRefusal> {
        self.refusal.filter(|_| self.is_served())
    }

    /// Whether the stream must end. Bytes on fewer than k channels have no timeout if not all are
    /// needed: an attacker may have added them.
    pub(super) fn must_end(&self) -> bool {
        let needed = if self.k == self.n { 1 } else { self.k.into() };
        self.honest() >= needed
    }
}

impl ChannelScenario {
    /// One that is out again and again, after the stream has opened.
    fn with_outages(rng: &mut SeededRng) -> Self {
        let mut channel = Self::random(rng, false);
        let mut from = ms(5_000 + rng.below(30_000));
        while from < STEADY_TIME {
            let until = from + ms([500, 3_000, 10_000, 60_000][rng.index(4)] + rng.below(500));
            let noticed_after = ms(2_250 + rng.below(500));
            channel.outages.push(ChannelOutage { from, until: Some(until), noticed_after });
            from = until + ms(1_000 + rng.below(30_000));
        }
        channel
    }

    fn random(rng: &mut SeededRng, is_hostile: bool) -> Self {
        let delay = ms(1 + rng.below(50));
        let mut channel = Self {
            attacks: [ChannelAttack::None; 2],
            outages: Vec::new(),
            delay: (delay, delay + ms(rng.below(20))),
        };
        if is_hostile && rng.chance(25) {
            let from = ms([rng.below(300), rng.below(3_000), rng.below(30_000)][rng.index(3)]);
            let lasts = [ms(rng.below(4_000)), ms(rng.below(200_000))][rng.index(2)];
            let until = rng.chance(50).then_some(from + lasts);
            let noticed_after = ms(2_250 + rng.below(8_000));
            channel.outages = vec![ChannelOutage { from, until, noticed_after }];
        } else if is_hostile {
            channel.attacks = [ChannelAttack::random(rng), ChannelAttack::random(rng)];
        }
        channel
    }
}

impl ChannelAttack {
    fn random(rng: &mut SeededRng) -> Self {
        let place = [rng.index(60), rng.index(200), rng.index(3_000), rng.index(40_000)];
        let place = place[rng.index(4)];
        match rng.index(10) {
            0..2 => Self::None,
            2 => Self::Swallow(place),
            3 => Self::Cut(place),
            4 => Self::Reset(place),
            5 => Self::Change(place),
            6 => Self::Replay(place),
            7 | 8 => Self::Stall(place, ms([3_000, 9_000, 20_000, 125_000][rng.index(4)])),
            _ => Self::Trickle(place, ms([50, 900, 9_500][rng.index(3)])),
        }
    }
}

impl StreamEndScenario {
    fn random(rng: &mut SeededRng) -> Self {
        // The last is more than a long record.
        let long = if rng.chance(20) { 60_000 } else { 12_000 };
        let says = [0, 1, 300, 3_000, long];
        let time = |rng: &mut SeededRng| ms([rng.below(400), rng.below(20_000)][rng.index(2)]);
        Self {
            says: says[rng.index(5)],
            begins_at: ms([0, rng.below(400), rng.below(40_000)][rng.index(4).saturating_sub(1)]),
            breaks_at: rng.chance(7).then(|| time(rng)),
            killed_at: rng.chance(4).then(|| time(rng)),
            pauses: rng.chance(15).then(|| (time(rng), ms(rng.below(30_000)))),
            memory: rng.chance(5).then(|| rng.index(400_000)),
        }
    }
}

fn small(value: usize) -> u8 {
    u8::try_from(value).expect("at most 255")
}
