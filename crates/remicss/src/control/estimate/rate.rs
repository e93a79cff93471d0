//! The rate of a channel that nobody configured, learnt from what arrives.
//!
//! A learner is in one of two states.
//!
//! - It has met *no bottleneck*: the rate is what was carried at least. Twice as much is allowed and
//!   planned with, so that a channel which is given its part of the load soon shows what it carries: the
//!   rate doubles with each report. A channel that is given less than it is allowed, since others limit the
//!   load, is not limited by its estimate either. It is known to carry what it was given, and nothing asks
//!   for more.
//! - It has met *the bottleneck*: less arrived than was sent, or it took longer to arrive. What arrived then
//!   is the rate. From here on the channel is probed now and then. A little less than was sent, time and
//!   again, may be a bottleneck or random loss; a drain tells them apart.
//!
//! All channels of the second kind go through the same phases together ([`Prober`]). A channel has been probed
//! if it was given more than it is known to carry.
//!
//! - What drains lose, the channel loses by itself: the mean of the last four. So random loss is told from a
//!   full queue, and a rate does not stay low because of it.
//! - A probe that arrives, but for that loss, is repeated at once, as a policer lets a burst pass. After two
//!   more that arrive there is no bottleneck, and the rate grows, at first by a quarter with each report.
//! - A probe that does not shows the rate: what arrived, in the time that it took to arrive, made up
//!   for random loss. The next comes after 8 intervals, and then, as long as it shows the same, after
//!   twice as many, up to 64.
//! - Where three intervals in a row bring less than three quarters of what was sent, and that was half of
//!   the rate known at least, the rate falls at once.

use std::time::Duration;

use super::prober::{Phase, Prober, Verdict};

/// What a rate is before anything is known, in bit/s.
pub const FIRST_RATE_BPS: u64 = 10_000_000;

/// No rate is taken for lower or higher, in bit/s.
const RATES_BPS: (f64, f64) = (64e3, 100e9);

/// How many times as much as is known to be carried is allowed while no bottleneck was met; where there
/// was one before, it grows to that in steps.
const GROWTH: f64 = 2.0;
const GROWTH_STEP: f64 = 1.25;

/// How much of the rate known is sent: less in a cruise, so that a queue left behind drains.
const CRUISE: f64 = 0.98;
const PROBE: f64 = 1.25;
const DRAIN: f64 = 0.75;

/// From which part of its pace on a channel was busy.
const BUSY: f64 = 0.85;

/// From which part of the rate known on an interval can confirm a probe.
const CONFIRMED: f64 = 1.15;

/// How many intervals have to confirm a probe that arrived.
const CONFIRMATIONS: u32 = 2;

/// What is carried beyond this part of the rate known is more than was known.
const MORE: f64 = 1.1;

/// If as much of it arrives, what was sent met no bottleneck.
const FULL: f64 = 0.9;

/// Where less arrives for so many intervals in a row of what does not grow any more, it may be that there is
/// a bottleneck: a drain will show it.
const NEARLY_FULL: f64 = 0.97;
const NEARLY_FULL_INTERVALS: u64 = 5;

/// Where less arrives of what was sent, the rate known is too high.
const LOW: f64 = 0.75;

/// From which part of the rate known on it says something that little arrives.
const ENOUGH: f64 = 0.5;

/// So many such intervals in a row are believed.
const LOW_INTERVALS: u64 = 3;

/// How many drains say what is lost at random.
const SAMPLES: usize = 4;

/// One of which less than this part of the others arrived has met a full queue.
const OUTLIER: f64 = 0.9;

/// A rate that changes by less is the same.
const SAME: f64 = 0.05;

/// Of fewer datagrams nothing is concluded.
const FEWEST: u64 = 10;

/// Where a rate is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration.
    Configured,
    /// Nothing is known yet.
    Guess,
    /// So much was carried, and nobody knows whether that is all.
    AtLeast,
    /// So much is carried, and no more.
    Measured,
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

/// One channel's rate.
#[derive(Clone, Debug)]
pub struct Learner {
    /// What was carried, with what is lost at random made up for: at most if the bottleneck was met, and
    /// at least if not.
    rate: f64,
    is_guess: bool,
    bottleneck: Bottleneck,
    /// The parts that arrived of the last drains.
    samples: [f64; SAMPLES],
    /// How many there were.
    sampled: usize,
    /// The turn of the last probe, and what came of it.
    probe: Option<(u64, Interval)>,
    /// For how many messages too little has arrived, and the most that has.
    low: u64,
    low_most: f64,
}

/// What is known of a channel's bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bottleneck {
    /// It was not met, and so many times as much is allowed as is known to be carried.
    Unknown(f64),
    /// It was met.
    Met,
    /// It was, but a probe has arrived, which so many intervals still have to confirm.
    Doubtful(u32),
}

impl Learner {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self {
            rate: from_bps(FIRST_RATE_BPS),
            is_guess: true,
            bottleneck: Bottleneck::Unknown(GROWTH),
            samples: [1.0; SAMPLES],
            sampled: 0,
            probe: None,
            low: 0,
            low_most: 0.0,
        }
    }

    /// Whether nothing is known that would limit the channel.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.bottleneck, Bottleneck::Unknown(_))
    }

    /// Whether the channel's pace follows the phases.
    pub fn is_probed(&self) -> bool {
        self.bottleneck == Bottleneck::Met
    }

    /// What the channel is known to carry, in bit/s: what it is given in a cruise, or at least so much.
    pub fn rate_bps(&self) -> u64 {
        to_bps(if self.is_unlimited() { self.rate } else { CRUISE * self.rate })
    }

    /// Where [`Self::rate_bps`] is from.
    pub fn source(&self) -> Source {
        match self.bottleneck {
            Bottleneck::Unknown(_) if self.is_guess => Source::Guess,
            Bottleneck::Unknown(_) => Source::AtLeast,
            Bottleneck::Met | Bottleneck::Doubtful(_) => Source::Measured,
        }
    }

    /// How fast to send in a phase, in bit/s. Unless [`Self::is_probed`] that is the same in each.
    pub fn pace_bps(&self, phase: Phase) -> u64 {
        let part = match (self.bottleneck, phase) {
            (Bottleneck::Unknown(growth), _) => growth,
            (Bottleneck::Doubtful(_), _) | (Bottleneck::Met, Phase::Probe) => PROBE,
            (Bottleneck::Met, Phase::Cruise) => CRUISE,
            (Bottleneck::Met, Phase::Drain) => DRAIN,
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
        match self.bottleneck {
            Bottleneck::Unknown(growth) => return self.grow(interval, growth),
            Bottleneck::Doubtful(left) => return self.confirm(interval, left),
            Bottleneck::Met => {}
        }
        match (turn, turn.map(Prober::phase)) {
            (Some(turn), Some(Phase::Probe)) => {
                self.probe = (interval.sent_bps() > self.rate).then_some((turn, interval));
                None
            }
            (Some(turn), Some(Phase::Drain)) => {
                self.sample(interval);
                let (probed, probe) = self.probe.take()?;
                (probed + 1 == turn).then(|| self.judge(probe))
            }
            _ => self.watch(interval),
        }
    }

    /// An interval on a channel whose bottleneck was not met.
    fn grow(&mut self, interval: Interval, growth: f64) -> Option<Verdict> {
        let (carried, sent) = (self.carried(interval), interval.sent_bps());
        let (is_new, is_known) = (carried > MORE * self.rate, sent < BUSY * self.rate);
        // Beyond what was carried before it is likely that there is a bottleneck, and what is lost
        // until that is certain is much.
        let intervals = match carried / sent {
            _ if is_known && !self.is_low(carried, sent) => 0,
            part if part >= NEARLY_FULL || is_new && part >= FULL => 0,
            part if part >= FULL => NEARLY_FULL_INTERVALS,
            part if part >= LOW && sent > MORE * self.rate => 2,
            _ if sent > MORE * self.rate => 1,
            _ => LOW_INTERVALS,
        };
        if intervals > 0 {
            return self.lower(interval.messages, carried, intervals).then(|| {
                self.bottleneck = Bottleneck::Met;
                Verdict::Met
            });
        }
        if self.is_busy(Phase::Cruise, interval.sent_bytes, interval.sending) {
            self.bottleneck = Bottleneck::Unknown((growth * GROWTH_STEP).min(GROWTH));
        }
        if carried > self.rate {
            self.is_guess = false;
            self.set(carried);
        }
        (self.low, self.low_most) = (0, 0.0);
        None
    }

    /// Whether far too little arrived, of enough.
    fn is_low(&self, carried: f64, sent: f64) -> bool {
        sent >= ENOUGH * self.rate && carried < LOW * sent
    }

    /// What came of a probe. It is judged when its drain has shown what is lost at random.
    fn judge(&mut self, probe: Interval) -> Verdict {
        let carried = self.carried(probe);
        if carried < FULL * probe.sent_bps() {
            return self.correct(carried);
        }
        if carried < MORE * self.rate {
            // Other channels have held the probe back.
            self.set(self.rate.max(carried));
            return Verdict::Same;
        }
        self.bottleneck = Bottleneck::Doubtful(CONFIRMATIONS);
        Verdict::Moved
    }

    /// An interval after a probe that arrived.
    fn confirm(&mut self, interval: Interval, left: u32) -> Option<Verdict> {
        if interval.sent_bps() < CONFIRMED * self.rate {
            return None;
        }
        let carried = self.carried(interval);
        if carried < MORE * self.rate {
            self.bottleneck = Bottleneck::Met;
            self.correct(carried);
            return Some(Verdict::Met);
        }
        self.bottleneck = Bottleneck::Doubtful(left - 1);
        if left == 1 {
            self.bottleneck = Bottleneck::Unknown(GROWTH_STEP);
            self.set(carried);
        }
        None
    }

    /// So much is carried, and no more.
    fn correct(&mut self, carried: f64) -> Verdict {
        let is_same = (carried - self.rate).abs() <= SAME * self.rate;
        // What differs by chance alone evens out.
        self.set(if is_same { self.rate.midpoint(carried) } else { carried });
        if is_same { Verdict::Same } else { Verdict::Moved }
    }

    /// Looks for a rate that has fallen.
    fn watch(&mut self, interval: Interval) -> Option<Verdict> {
        let (carried, sent) = (self.carried(interval), interval.sent_bps().min(self.rate));
        if !self.is_low(carried, sent) {
            (self.low, self.low_most) = (0, 0.0);
            return None;
        }
        self.lower(interval.messages, carried, LOW_INTERVALS).then_some(Verdict::Moved)
    }

    /// Lowers the rate, if so many intervals in a row have shown that it is too high. Where most control
    /// shares are lost, too, an interval is long and counts for as much.
    fn lower(&mut self, messages: u64, carried: f64, intervals: u64) -> bool {
        self.low = self.low.saturating_add(messages);
        self.low_most = self.low_most.max(carried);
        if self.low < intervals {
            return false;
        }
        self.set(self.low_most);
        (self.low, self.low_most) = (0, 0.0);
        true
    }

    /// Notes what arrived of an interval that met no bottleneck.
    fn sample(&mut self, interval: Interval) {
        self.samples[self.sampled % SAMPLES] = interval.arriving_part();
        self.sampled = self.sampled.checked_add(1).unwrap_or(SAMPLES);
    }

    /// The part of what is sent that is not lost at random.
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    fn arriving(&self) -> f64 {
        let samples = &self.samples[..self.sampled.min(SAMPLES)];
        let Some(worst) = samples.iter().copied().reduce(f64::min) else { return 1.0 };
        let (sum, others) = (samples.iter().sum::<f64>(), samples.len() as f64 - 1.0);
        let mean = (sum - worst) / others.max(1.0);
        if worst < OUTLIER * mean { mean } else { sum / (others + 1.0) }
    }

    /// What went through the channel, in bit/s, random loss included.
    fn carried(&self, interval: Interval) -> f64 {
        let arriving = self.arriving().max(f64::EPSILON);
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

    /// An interval of this turn over a channel that loses a part and carries so much of the rest.
    fn send(learner: &mut Learner, turn: u64, capacity_bps: f64, loss: f64) -> Option<Verdict> {
        let pace = learner.pace_bps(Prober::phase(turn));
        let through = (capacity_bps / from_bps(pace)).min(1.0) * (1.0 - loss);
        learner.handle(Some(turn), interval(pace, through))
    }

    /// A probe and its drain.
    fn cycle(learner: &mut Learner, capacity_bps: f64, loss: f64) -> Option<Verdict> {
        assert_eq!(send(learner, 1, capacity_bps, loss), None);
        send(learner, 2, capacity_bps, loss)
    }

    /// Grows for as long as no bottleneck is met, and says for how many intervals that was.
    fn grow(learner: &mut Learner, capacity_bps: f64, loss: f64) -> usize {
        (1..100)
            .find(|_| send(learner, 0, capacity_bps, loss) == Some(Verdict::Met))
            .expect("a bottleneck is met")
    }

    /// One whose bottleneck is known, at so many bit/s.
    fn met(rate: f64) -> Learner {
        Learner { rate, bottleneck: Bottleneck::Met, ..Learner::new() }
    }

    #[test]
    fn doubles_until_it_meets_the_bottleneck_and_stays_there() {
        let mut learner = Learner::new();
        assert_eq!((learner.source(), learner.rate_bps()), (Source::Guess, FIRST_RATE_BPS));
        // From 20 Mbit/s to 1,280, of which too little arrives, but not far too little: that is seen twice.
        assert_eq!(grow(&mut learner, 1e9, 0.0), 8);
        assert_eq!(learner.source(), Source::Measured);
        for _ in 0..20 {
            assert_eq!(cycle(&mut learner, 1e9, 0.0), Some(Verdict::Same));
            assert!((0.97e9..0.99e9).contains(&from_bps(learner.rate_bps())));
        }
    }

    #[test]
    fn what_is_not_asked_for_more_carries_so_much_at_least() {
        let mut learner = Learner::new();
        for _ in 0..10 {
            assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 1.0)), None);
        }
        assert_eq!((learner.source(), learner.rate_bps()), (Source::AtLeast, 50_000_000));
        assert_eq!(learner.pace_bps(Phase::Cruise), 100_000_000);
        assert_eq!(learner.pace_bps(Phase::Drain), 100_000_000, "it is in no phase");
        // An outage of an interval is not a bottleneck.
        assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 0.1)), None);
        assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 1.0)), None);
        assert_eq!(learner.source(), Source::AtLeast);
    }

    #[test]
    fn random_loss_lowers_it_for_a_few_probes_at_most() {
        for loss in [0.05, 0.2, 0.5] {
            let mut learner = Learner::new();
            for _ in 0..60 {
                if learner.is_probed() {
                    cycle(&mut learner, 1e8, loss);
                } else {
                    send(&mut learner, 0, 1e8, loss);
                }
                assert!(learner.rate_bps() >= 4_000_000, "{learner:?}");
            }
            let rate = from_bps(learner.rate_bps());
            assert!((0.93e8..1e8).contains(&rate), "loss {loss}: {rate}");
        }
    }

    #[test]
    fn a_queue_that_grows_is_no_rate() {
        let mut learner = met(1e7);
        let probe = interval(12_500_000, 1.0);
        // All arrives, but later and later: 10 Mbit/s.
        learner.handle(PROBE_TURN, Interval { arriving: TENTH * 5 / 4, ..probe });
        let drain = Interval { arriving: TENTH * 3 / 4, ..interval(7_500_000, 1.0) };
        assert_eq!(learner.handle(DRAIN_TURN, drain), Some(Verdict::Same));
        assert!((9_700_000..=9_800_000).contains(&learner.rate_bps()));
    }

    /// A policer's burst lets a probe pass, and nothing after it.
    #[test]
    fn a_probe_that_arrives_has_to_be_confirmed() {
        let mut learner = met(1e8);
        for _ in 0..2 {
            assert_eq!(cycle(&mut learner, 2e8, 0.0), Some(Verdict::Moved));
            assert!((124_500_000..125_500_000).contains(&learner.pace_bps(Phase::Cruise)));
            assert_eq!(learner.handle(CRUISE_TURN, interval(97_000_000, 1.0)), None, "before");
            assert_eq!(send(&mut learner, 0, 1.25e8, 0.0), None);
            assert_eq!(send(&mut learner, 0, 1e8, 0.0), Some(Verdict::Met));
            assert!((97_000_000..=99_000_000).contains(&learner.rate_bps()));
        }
        assert_eq!(cycle(&mut learner, 2e8, 0.0), Some(Verdict::Moved));
        let before = from_bps(learner.pace_bps(Phase::Cruise));
        for expected in [1.0, 1.25, 1.95, 3.81, 7.63, 15.26] {
            assert_eq!(send(&mut learner, 0, 1e10, 0.0), None);
            let pace = from_bps(learner.pace_bps(Phase::Cruise)) / before;
            assert!((pace / expected - 1.0).abs() < 0.01, "{pace}, not {expected}");
        }
    }

    /// Other channels limit what it is given: a little more than it is known to carry shows little.
    #[test]
    fn a_probe_that_others_hold_back_lifts_a_rate_no_further_than_it_shows() {
        let mut learner = met(1e8);
        let probe = |learner: &mut Learner, mbit: u64| {
            learner.handle(PROBE_TURN, interval(mbit * 1_000_000, 1.0));
            learner.handle(DRAIN_TURN, interval(75_000_000, 1.0))
        };
        assert_eq!(probe(&mut learner, 99), None);
        assert!((97_900_000..=98_000_000).contains(&learner.rate_bps()));
        assert_eq!(probe(&mut learner, 108), Some(Verdict::Same));
        assert!((105_800_000..=105_900_000).contains(&learner.rate_bps()));
        assert_eq!(probe(&mut learner, 120), Some(Verdict::Moved));
    }

    #[test]
    fn a_fall_is_followed_after_three_intervals() {
        let mut learner = met(1e7);
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
        let mut learner = met(1e7);
        let long = interval(FIRST_RATE_BPS * 5, 0.2);
        let long = Interval { sending: TENTH * 5, arriving: TENTH * 5, messages: 5, ..long };
        assert_eq!(learner.handle(None, long), Some(Verdict::Moved));
        assert!((1_900_000..=2_000_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn what_was_not_busy_shows_nothing() {
        let mut learner = met(1e7);
        let half = interval(FIRST_RATE_BPS, 0.5);
        assert_eq!(learner.handle(PROBE_TURN, half), None);
        assert_eq!(learner.handle(DRAIN_TURN, interval(1_000_000, 1.0)), None);
        assert_eq!(learner.handle(CRUISE_TURN, interval(1_000_000, 0.1)), None);
        assert_eq!(learner.rate_bps(), 9_800_000);
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
}
