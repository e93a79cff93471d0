//! The rate of a channel that nobody configured, learnt from what arrives.
//!
//! All channels go through the same phases together, since a schedule's proportions are fixed, and
//! one channel alone would get no more to carry: a *probe* of one interval at a quarter more than
//! the rate known, a *drain* at a quarter less, and then a *cruise* a little below it, until the next
//! probe. A channel has been probed if it was given as much as the probe allows.
//!
//! - What drains lose, the channel loses by itself: the least of the last four. So random loss is
//!   told from a full queue, and a rate does not stay low because of it.
//! - A probe that arrives, but for that loss, is followed by another at once, twice as fast: from
//!   10 Mbit/s to 1 Gbit/s takes seven.
//! - A probe that does not shows the rate: what arrived, in the time that it took to arrive, made up
//!   for random loss. The next comes after 8 intervals, and then, as long as it shows the same, after
//!   twice as many, up to 64.
//! - Where three intervals in a row bring less than three quarters of what was sent, and that was half of
//!   the rate known at least, the rate falls at once.

use std::time::Duration;

/// What a rate is before anything is known, in bit/s.
pub const FIRST_RATE_BPS: u64 = 10_000_000;

/// No rate is taken for lower or higher, in bit/s.
const RATES_BPS: (f64, f64) = (64e3, 100e9);

/// How much of the rate known is sent: less in a cruise, so that a queue left behind drains.
const CRUISE: f64 = 0.97;
const PROBE: f64 = 1.25;
const FAST_PROBE: f64 = 2.0;
const DRAIN: f64 = 0.75;

/// From which part of its pace on a channel was busy.
const BUSY: f64 = 0.85;

/// A probe of which as much arrives met no bottleneck.
const FULL: f64 = 0.9;

/// Where less arrives of what was sent, the rate known is too high.
const LOW: f64 = 0.75;

/// From which part of the rate known on it says something that little arrives.
const ENOUGH: f64 = 0.5;

/// So many such intervals in a row are believed.
const LOW_INTERVALS: u64 = 3;

/// How many drains say what is lost at random.
const DRAINS: usize = 4;

/// A rate that changes by less is the same.
const SAME: f64 = 0.05;

/// Of fewer datagrams nothing is concluded.
const FEWEST: u64 = 10;

/// How many intervals there are from one probe to the next.
const SHORTEST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 64;

/// For how many intervals a probe's outcome is waited for. A control share is lost now and then.
const LONGEST_WAIT: u32 = 8;

/// How fast channels are sent on for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A little less than is known to arrive.
    Cruise,
    /// More than that.
    Probe,
    /// Less than that.
    Drain,
}

/// What an interval has shown of a channel, the less remarkable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A probe did not arrive as a whole, and the rate known is right.
    Same,
    /// It did not, or a cruise did not, and the rate known was wrong.
    Moved,
    /// A probe arrived: the channel carries as much at least.
    Full,
}

/// What was sent on a channel between two control messages, and what of it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Datagrams that were sent.
    pub sent: u64,
    /// The bytes of those, as IP packets.
    pub sent_bytes: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// The time from sending one control share to sending the other.
    pub sending: Duration,
    /// The time from the arrival of one to the arrival of the other.
    pub arriving: Duration,
    /// How many messages later the second was sent: more than one if shares between were lost.
    pub messages: u64,
}

/// The phases that all channels are in together.
#[derive(Clone, Debug)]
pub struct Prober {
    /// How many phases have begun. Cruise, probe and drain take turns.
    turn: u64,
    /// For how many intervals more no probe begins.
    rest: u32,
    pause: u32,
    /// The most remarkable that a channel has shown since the last probe.
    verdict: Option<Verdict>,
}

/// One channel's rate.
#[derive(Clone, Debug)]
pub struct Learner {
    /// What arrives at most, with what is lost at random made up for.
    rate: f64,
    /// The parts of the last drains that arrived.
    drains: [f64; DRAINS],
    /// How many drains there were.
    drained: usize,
    /// No bottleneck has been met yet.
    is_growing: bool,
    /// The turn of the last probe, and what came of it.
    probe: Option<(u64, Interval)>,
    /// For how many messages too little has arrived, and the most that has.
    low: u64,
    low_most: f64,
}

impl Prober {
    /// Begins with a probe, as soon as there is something to send.
    pub fn new() -> Self {
        Self { turn: 0, rest: 0, pause: SHORTEST_PAUSE, verdict: None }
    }

    /// The phase's number. An interval belongs to it as a whole if this is the same at both its ends.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The phase that this turn is.
    pub fn phase(turn: u64) -> Phase {
        match turn % 3 {
            0 => Phase::Cruise,
            1 => Phase::Probe,
            _ => Phase::Drain,
        }
    }

    /// An interval is over, in which some channel that learns was `busy` or none was.
    pub fn advance(&mut self, busy: bool) {
        match Self::phase(self.turn) {
            Phase::Cruise => {
                self.rest = self.rest.saturating_sub(1);
                if self.rest > 0 || !busy {
                    return;
                }
                self.verdict = None;
            }
            Phase::Probe => {}
            Phase::Drain => self.rest = LONGEST_WAIT,
        }
        self.turn += 1;
    }

    /// A channel has shown something in an interval of this turn. The most remarkable decides when
    /// the next probe is.
    pub fn handle_verdict(&mut self, turn: u64, verdict: Verdict) {
        // A probe's drain and the cruise behind it are its cycle.
        let is_over = turn.div_ceil(3) != self.turn.div_ceil(3);
        if is_over || self.verdict >= Some(verdict) {
            return;
        }
        self.verdict = Some(verdict);
        (self.rest, self.pause) = match verdict {
            Verdict::Same => (self.pause, (2 * self.pause).min(LONGEST_PAUSE)),
            Verdict::Moved => (SHORTEST_PAUSE, SHORTEST_PAUSE),
            Verdict::Full => (0, SHORTEST_PAUSE),
        };
    }
}

impl Default for Prober {
    fn default() -> Self {
        Self::new()
    }
}

impl Learner {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self {
            rate: from_bps(FIRST_RATE_BPS),
            drains: [1.0; DRAINS],
            drained: 0,
            is_growing: true,
            probe: None,
            low: 0,
            low_most: 0.0,
        }
    }

    /// What the channel carries, in bit/s: what it is given in a cruise.
    pub fn rate_bps(&self) -> u64 {
        self.pace_bps(Phase::Cruise)
    }

    /// How fast to send in a phase, in bit/s.
    pub fn pace_bps(&self, phase: Phase) -> u64 {
        let part = match phase {
            Phase::Cruise => CRUISE,
            Phase::Probe if self.is_growing => FAST_PROBE,
            Phase::Probe => PROBE,
            Phase::Drain => DRAIN,
        };
        to_bps(self.rate * part)
    }

    /// True if so many bytes in so long a time are about what the channel may be given in a phase.
    pub fn is_busy(&self, phase: Phase, bytes: u64, time: Duration) -> bool {
        bits_per_second(bytes, time) >= BUSY * from_bps(self.pace_bps(phase))
    }

    /// What came of an interval, and the turn that it was in, if that was one.
    pub fn handle(&mut self, turn: Option<u64>, interval: Interval) -> Option<Verdict> {
        if interval.sent < FEWEST {
            return None;
        }
        match (turn, turn.map(Prober::phase)) {
            (Some(turn), Some(Phase::Probe)) => {
                let is_busy = self.is_busy(Phase::Probe, interval.sent_bytes, interval.sending);
                self.probe = is_busy.then_some((turn, interval));
                None
            }
            (Some(turn), Some(Phase::Drain)) => {
                self.drains[self.drained % DRAINS] = interval.arriving_part();
                self.drained = self.drained.wrapping_add(1);
                let (probed, probe) = self.probe.take()?;
                (probed + 1 == turn).then(|| self.judge(probe))
            }
            _ => self.watch(interval),
        }
    }

    fn judge(&mut self, probe: Interval) -> Verdict {
        let carried = self.carried(probe);
        if carried >= FULL * probe.sent_bps() {
            self.is_growing = true;
            self.set(self.rate.max(carried));
            Verdict::Full
        } else {
            self.is_growing = false;
            let is_same = (carried - self.rate).abs() <= SAME * self.rate;
            // What differs by chance alone evens out.
            self.set(if is_same { self.rate.midpoint(carried) } else { carried });
            if is_same { Verdict::Same } else { Verdict::Moved }
        }
    }

    /// Looks for a rate that has fallen. Where most control shares are lost, too, an interval is long
    /// and counts for as much.
    fn watch(&mut self, interval: Interval) -> Option<Verdict> {
        let (carried, sent) = (self.carried(interval), interval.sent_bps().min(self.rate));
        if sent < ENOUGH * self.rate || carried >= LOW * sent {
            (self.low, self.low_most) = (0, 0.0);
            return None;
        }
        self.low = self.low.saturating_add(interval.messages);
        self.low_most = self.low_most.max(carried);
        if self.low < LOW_INTERVALS {
            return None;
        }
        self.is_growing = false;
        self.set(self.low_most);
        (self.low, self.low_most) = (0, 0.0);
        Some(Verdict::Moved)
    }

    /// What went through the channel, in bit/s, random loss included.
    fn carried(&self, interval: Interval) -> f64 {
        let arriving = self.drains.iter().copied().fold(f64::EPSILON, f64::max);
        (interval.arrived_bps() / arriving).min(interval.sent_bps())
    }

    fn set(&mut self, rate: f64) {
        let (lowest, highest) = RATES_BPS;
        self.rate = rate.clamp(lowest, highest);
    }
}

impl Default for Learner {
    fn default() -> Self {
        Self::new()
    }
}

impl Interval {
    fn sent_bps(self) -> f64 {
        bits_per_second(self.sent_bytes, self.sending)
    }

    /// What arrived, in the time that it took to leave or to arrive, whichever was longer: so that
    /// what a queue held back and lets go at once is no rate.
    fn arrived_bps(self) -> f64 {
        let time = self.sending.max(self.arriving);
        bits_per_second(self.sent_bytes, time) * self.arriving_part()
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn arriving_part(self) -> f64 {
        (self.received as f64 / self.sent.max(1) as f64).min(1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    // A microsecond is the least there is in control messages.
    8.0 * bytes as f64 / time.as_secs_f64().max(1e-6)
}

#[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
fn from_bps(bps: u64) -> f64 {
    bps as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within RATES_BPS")]
fn to_bps(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);
    const PROBE_TURN: Option<u64> = Some(1);
    const DRAIN_TURN: Option<u64> = Some(2);
    const CRUISE_TURN: Option<u64> = Some(3);

    /// A tenth of a second at this part of a pace, of which a part arrives.
    fn interval(pace_bps: u64, arriving: f64) -> Interval {
        let sent = pace_bps / 8 / 10 / 1000;
        Interval {
            sent,
            sent_bytes: sent * 1000,
            received: to_bps(from_bps(sent) * arriving),
            sending: TENTH,
            arriving: TENTH,
            messages: 1,
        }
    }

    /// A probe and its drain over a channel that loses a part and carries so much of the rest.
    fn cycle(learner: &mut Learner, capacity_bps: f64, loss: f64) -> Option<Verdict> {
        let send = |learner: &mut Learner, turn: Option<u64>| {
            let pace = learner.pace_bps(Prober::phase(turn.unwrap()));
            let through = (capacity_bps / from_bps(pace)).min(1.0) * (1.0 - loss);
            learner.handle(turn, interval(pace, through))
        };
        assert_eq!(send(learner, PROBE_TURN), None);
        send(learner, DRAIN_TURN)
    }

    #[test]
    fn doubles_until_it_meets_the_bottleneck_and_stays_there() {
        let mut learner = Learner::new();
        let mut probes = 0;
        while cycle(&mut learner, 1e9, 0.0) == Some(Verdict::Full) {
            probes += 1;
        }
        assert_eq!(probes, 6);
        for _ in 0..20 {
            assert_eq!(cycle(&mut learner, 1e9, 0.0), Some(Verdict::Same));
            assert!((0.96e9..0.98e9).contains(&from_bps(learner.rate_bps())));
        }
    }

    #[test]
    fn random_loss_lowers_it_for_four_probes_at_most() {
        for loss in [0.05, 0.2, 0.5] {
            let mut learner = Learner::new();
            for _ in 0..60 {
                cycle(&mut learner, 1e8, loss);
                assert!(learner.rate_bps() >= 1_000_000, "{learner:?}");
            }
            let rate = from_bps(learner.rate_bps());
            assert!((0.93e8..1e8).contains(&rate), "loss {loss}: {rate}");
        }
    }

    #[test]
    fn a_queue_that_grows_is_no_rate() {
        let mut learner = Learner { is_growing: false, ..Learner::new() };
        let probe = interval(12_500_000, 1.0);
        // All arrives, but later and later: 10 Mbit/s.
        learner.handle(PROBE_TURN, Interval { arriving: TENTH * 5 / 4, ..probe });
        let drain = Interval { arriving: TENTH * 3 / 4, ..interval(7_500_000, 1.0) };
        assert_eq!(learner.handle(DRAIN_TURN, drain), Some(Verdict::Same));
        assert!((9_600_000..=9_700_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn a_fall_is_followed_after_three_intervals() {
        let mut learner = Learner::new();
        let cruise = |learner: &mut Learner, part| {
            let pace = learner.pace_bps(Phase::Cruise);
            learner.handle(CRUISE_TURN, interval(pace, part))
        };
        assert_eq!(cruise(&mut learner, 0.2), None);
        assert_eq!(cruise(&mut learner, 0.95), None, "a burst of loss");
        assert_eq!([0.2, 0.25].map(|part| cruise(&mut learner, part)), [None, None]);
        assert_eq!(cruise(&mut learner, 0.2), Some(Verdict::Moved));
        assert!((2_300_000..=2_500_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn a_fall_that_loses_control_shares_too_is_followed() {
        let mut learner = Learner::new();
        let long = interval(FIRST_RATE_BPS * 5, 0.2);
        let long = Interval { sending: TENTH * 5, arriving: TENTH * 5, messages: 5, ..long };
        assert_eq!(learner.handle(None, long), Some(Verdict::Moved));
        assert!((1_900_000..=2_000_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn what_was_not_busy_shows_nothing() {
        let mut learner = Learner::new();
        let half = interval(FIRST_RATE_BPS, 0.5);
        assert_eq!(learner.handle(PROBE_TURN, half), None);
        assert_eq!(learner.handle(DRAIN_TURN, interval(1_000_000, 1.0)), None);
        assert_eq!(learner.handle(CRUISE_TURN, interval(1_000_000, 0.1)), None);
        assert_eq!(learner.rate_bps(), 9_700_000);
    }

    #[test]
    fn a_rate_stays_within_bounds() {
        let mut learner = Learner::new();
        let zero = Interval {
            sending: Duration::ZERO,
            arriving: Duration::ZERO,
            ..interval(1 << 40, 1.0)
        };
        for turn in 0..60 {
            learner.handle(Some(turn), Interval { sent_bytes: u64::MAX, ..zero });
        }
        assert!(learner.rate_bps() <= 100_000_000_000);
        for turn in 0..600 {
            learner.handle(Some(turn), Interval { received: 0, arriving: Duration::MAX, ..zero });
        }
        assert!(learner.rate_bps() >= 62_000);
    }

    #[test]
    fn probes_that_fail_come_less_often() {
        let mut prober = Prober::new();
        assert_eq!(Prober::phase(prober.turn()), Phase::Cruise);
        prober.advance(false);
        assert_eq!(prober.turn(), 0, "there is nothing to probe with");
        for pause in [8, 16, 32, 64, 64] {
            prober.advance(true);
            prober.advance(true);
            prober.advance(true);
            let drain = prober.turn() - 1;
            assert_eq!(Prober::phase(drain), Phase::Drain);
            prober.handle_verdict(drain, Verdict::Same);
            prober.handle_verdict(drain, Verdict::Same);
            let cruise = (0..100).take_while(|_| {
                prober.advance(true);
                Prober::phase(prober.turn()) == Phase::Cruise
            });
            assert_eq!(cruise.count() + 1, pause);
            prober.turn -= 1;
            prober.rest = 1;
        }
        prober.handle_verdict(prober.turn(), Verdict::Moved);
        assert_eq!((prober.rest, prober.pause), (SHORTEST_PAUSE, SHORTEST_PAUSE));
    }

    #[test]
    fn one_channel_that_grows_is_enough_for_another_probe() {
        for verdicts in [[Verdict::Full, Verdict::Same], [Verdict::Same, Verdict::Full]] {
            let mut prober = Prober::new();
            (0..3).for_each(|_| prober.advance(true));
            for verdict in verdicts {
                prober.handle_verdict(2, verdict);
            }
            prober.advance(true);
            assert_eq!(Prober::phase(prober.turn()), Phase::Probe);
            prober.handle_verdict(2, Verdict::Same);
            assert_eq!(prober.pause, SHORTEST_PAUSE, "that was the last probe's");
        }
    }
}
