//! A Monte-Carlo simulation of the single-symbol process (III-C), to check the formulas of IV-A. It
//! draws whether each share is seen and whether it is lost, and shares no code with the formulas.
//!
//! ```
//! use sunder_model::simulate::ScheduleSimulation;
//! use sunder_model::{
//!     ChannelModel, ChannelSet, LossProbability, RiskProbability, ShareSchedule, ShareSelection,
//! };
//!
//! // Two channels; each symbol is one share on both, and either is enough.
//! let channel = ChannelModel::new(RiskProbability(0.5), LossProbability(0.1), 20.0, 1.0)?;
//! let set = ChannelSet::new(vec![channel, channel])?;
//! let schedule = ShareSchedule::constant(ShareSelection::new(1, set.all())?);
//!
//! // Any generator of 64-bit numbers serves. This is SplitMix64.
//! let mut state = 7_u64;
//! let mut random = || {
//!     state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
//!     let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
//!     let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
//!     mixed ^ mixed >> 31
//! };
//! let mut simulation = ScheduleSimulation::new(&set, &schedule);
//! simulation.run(10_000, &mut random);
//!
//! let (found, formulas) = (simulation.estimates(), schedule.averages(&set));
//! assert!(found.risk.contains(formulas.risk), "0.75");
//! assert!(found.loss.contains(formulas.loss), "0.01");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod sample;

use crate::channels::{
    ChannelModel, ChannelSet, ChannelSubset, MAX_CHANNELS, ShareSelection, SharedRiskGroup,
};
use crate::schedules::ShareSchedule;
use sample::ScheduleSampler;

/// How many standard deviations on each side of the mean contain 99% of a normal distribution.
const NORMAL_QUANTILE: f64 = 2.575_829_303_548_901;

/// The relative error of a mean that rounding alone can cause. It prevents the interval of a
/// constant delay from excluding the same delay computed in another order.
const ROUNDING: f64 = 1e-12;

/// Symbols that are sent one by one, and their outcomes.
///
/// For each symbol, it draws a selection, then whether each group of channels is seen or loses its
/// shares, then the same for each share. An adversary who sees at least k shares learns the symbol.
/// The symbol is lost if fewer than k shares arrive. Otherwise its delay is that of the kth share
/// to arrive. Channels of a selection that are not in the set have no risk and deliver nothing.
#[derive(Clone, Debug)]
pub struct ScheduleSimulation<'a> {
    set: &'a ChannelSet,
    schedule: &'a ShareSchedule,
    sampler: ScheduleSampler,
    symbols: u64,
    learnt: u64,
    /// The delays of all symbols that arrived, in milliseconds.
    delivered: RunningMoments,
    /// The same for each entry of the schedule.
    by_entry: Vec<RunningMoments>,
}

/// The results of a [`ScheduleSimulation`] so far, with 99% confidence intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationEstimates {
    /// The number of symbols sent.
    pub symbols: u64,
    /// The proportion of symbols that an adversary learns, Z(p), with its Wilson score interval.
    pub risk: MeanEstimate,
    /// The proportion of symbols that are lost, L(p), with its Wilson score interval.
    pub loss: MeanEstimate,
    /// The delay as the paper defines it, where each (k, M) is weighted by how often it is sent,
    /// whatever arrives: D(p), in milliseconds. It is the mean of the entries' mean delays,
    /// weighted by their proportions. `None` until two symbols of each entry have arrived, because
    /// the variance of an entry's delays is unknown before.
    pub delay_ms: Option<MeanEstimate>,
    /// The mean delay of the symbols that arrived, in milliseconds. `None` until two have arrived.
    pub delivered_delay_ms: Option<MeanEstimate>,
}

/// A mean and its 99% confidence interval.
///
/// The intervals of delays assume a normal distribution with the sample variance, which requires
/// many symbols of each entry. They do not cover delays that are too rare to have occurred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanEstimate {
    /// The sample mean.
    pub mean: f64,
    /// The interval's lower end, at least 0.
    pub low: f64,
    /// The interval's upper end; at most 1 for a proportion.
    pub high: f64,
}

impl<'a> ScheduleSimulation<'a> {
    /// A simulation of symbols sent over `set` by `schedule`. No symbol has been sent yet.
    pub fn new(set: &'a ChannelSet, schedule: &'a ShareSchedule) -> Self {
        Self {
            set,
            schedule,
            sampler: ScheduleSampler::new(schedule),
            symbols: 0,
            learnt: 0,
            delivered: RunningMoments::default(),
            by_entry: vec![RunningMoments::default(); schedule.entries().len()],
        }
    }

    /// Sends `symbols` more symbols. Each number from `random` must be uniform over all 64-bit
    /// numbers and independent of the others. Several short runs are equivalent to one long run.
    pub fn run(&mut self, symbols: u64, random: &mut impl FnMut() -> u64) {
        for _ in 0..symbols {
            let index = self.sampler.draw(random());
            let (selection, _) = self.schedule.entries()[index];
            self.symbols += 1;
            self.learnt += u64::from(is_learnt(self.set, selection, random));
            if let Some(delay_ms) = delay_ms(self.set, selection, random) {
                self.delivered.add(delay_ms);
                self.by_entry[index].add(delay_ms);
            }
        }
    }

    /// The results of all runs together. Without any symbols, a proportion is only known to be
    /// within 0 to 1.
    pub fn estimates(&self) -> SimulationEstimates {
        SimulationEstimates {
            symbols: self.symbols,
            risk: MeanEstimate::of_proportion(self.learnt, self.symbols),
            loss: MeanEstimate::of_proportion(self.symbols - self.delivered.count, self.symbols),
            delay_ms: self.delay_ms(),
            delivered_delay_ms: MeanEstimate::of_mixture([(&self.delivered, 1.0)]),
        }
    }

    /// D(p), as a stratified estimate: the symbols that arrived are not in the proportions in which
    /// they were sent.
    fn delay_ms(&self) -> Option<MeanEstimate> {
        let proportions = self.schedule.entries().iter().map(|(_, p)| *p);
        MeanEstimate::of_mixture(self.by_entry.iter().zip(proportions))
    }
}

impl MeanEstimate {
    /// Whether the interval includes `value`.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// An estimate of a probability from `hits` in `draws`: Wilson's score interval, which is valid
    /// even near 0 and 1. Without draws, the interval is 0 to 1 and the mean is its middle.
    #[expect(clippy::cast_precision_loss, reason = "the interval is far wider")]
    fn of_proportion(hits: u64, draws: u64) -> Self {
        if draws == 0 {
            return Self { mean: 0.5, low: 0.0, high: 1.0 };
        }
        let (n, mean) = (draws as f64, hits as f64 / draws as f64);
        let square = NORMAL_QUANTILE * NORMAL_QUANTILE / n;
        let centre = (mean + square / 2.0) / (1.0 + square);
        let variance = mean * (1.0 - mean) / n + square / (4.0 * n);
        let half = NORMAL_QUANTILE * variance.sqrt() / (1.0 + square);
        // If nothing or everything was hit, an end is exactly 0 or 1; rounding must not change
        // that.
        let low = if hits == 0 { 0.0 } else { (centre - half).max(0.0) };
        let high = if hits == draws { 1.0 } else { (centre + half).min(1.0) };
        Self { mean, low, high }
    }

    /// The weighted sum of the means of independent `parts`. `None` if one has no variance yet.
    fn of_mixture<'m>(parts: impl IntoIterator<Item = (&'m RunningMoments, f64)>) -> Option<Self> {
        let (mut mean, mut variance) = (0.0, 0.0);
        for (moments, weight) in parts {
            mean += weight * moments.mean;
            variance += weight * weight * moments.variance_of_mean()?;
        }
        let half = NORMAL_QUANTILE * variance.sqrt() + ROUNDING * mean;
        Some(Self { mean, low: (mean - half).max(0.0), high: mean + half })
    }
}

/// Running mean and variance by Welford's method, which avoids the cancellation of a sum of
/// squares.
#[derive(Clone, Copy, Debug, Default)]
struct RunningMoments {
    count: u64,
    mean: f64,
    /// The sum of the squared differences from the mean.
    squares: f64,
}

impl RunningMoments {
    #[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 is out of reach")]
    fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// The sample variance divided by the count. `None` for fewer than two values.
    #[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 is out of reach")]
    fn variance_of_mean(&self) -> Option<f64> {
        let freedom = self.count.checked_sub(1).filter(|freedom| *freedom > 0)?;
        Some(self.squares / freedom as f64 / self.count as f64)
    }
}

/// Whether an adversary sees enough shares of one symbol.
fn is_learnt(
    set: &ChannelSet,
    selection: ShareSelection,
    random: &mut impl FnMut() -> u64,
) -> bool {
    let struck = struck(set, SharedRiskGroup::risk, ChannelModel::risk, random);
    let mut seen = 0;
    for (index, channel) in set.channels().iter().enumerate() {
        if selection.channels().contains(index) {
            // The channel's own draw is in addition to the draws of its groups.
            let own = !has_fate(set, index) && happens(channel.risk(), random);
            seen += usize::from(own || struck.contains(index));
        }
    }
    seen >= selection.k()
}

/// The delay of one symbol, in milliseconds. `None` if it is lost.
fn delay_ms(
    set: &ChannelSet,
    selection: ShareSelection,
    random: &mut impl FnMut() -> u64,
) -> Option<f64> {
    let struck = struck(set, SharedRiskGroup::loss, ChannelModel::loss, random);
    let mut delays = [0.0; MAX_CHANNELS];
    let mut arrived = 0;
    for (index, channel) in set.channels().iter().enumerate() {
        if selection.channels().contains(index) {
            let own = !has_fate(set, index) && happens(channel.loss(), random);
            if !own && !struck.contains(index) {
                delays[arrived] = channel.delay_ms();
                arrived += 1;
            }
        }
    }
    let delays = &mut delays[..arrived];
    delays.sort_unstable_by(f64::total_cmp);
    delays.get(selection.k() - 1).copied()
}

/// The channels of all groups whose shared event occurs, and of all fates with a channel whose own
/// event occurs. These events are independent of each other.
fn struck(
    set: &ChannelSet,
    of_group: impl Fn(&SharedRiskGroup) -> f64,
    of_channel: impl Fn(&ChannelModel) -> f64,
    random: &mut impl FnMut() -> u64,
) -> ChannelSubset {
    let mut struck = ChannelSubset::EMPTY;
    for group in set.groups() {
        if happens(of_group(group), random) {
            struck = group.channels().iter().fold(struck, ChannelSubset::with);
        }
    }
    for fate in set.shared_fates() {
        let hits = fate.iter().filter(|i| happens(of_channel(&set.channels()[*i]), random));
        if hits.count() > 0 {
            struck = fate.iter().fold(struck, ChannelSubset::with);
        }
    }
    struck
}

/// Whether a channel shares its fate with others.
fn has_fate(set: &ChannelSet, channel: usize) -> bool {
    set.shared_fates().iter().any(|fate| fate.contains(channel))
}

/// True with this probability, to within 2^-53. Probabilities of 0 and 1 use no random number.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn happens(probability: f64, random: &mut impl FnMut() -> u64) -> bool {
    const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
    probability > 0.0 && (probability >= 1.0 || (random() >> 11) as f64 * UNIT < probability)
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;
    use crate::channels::{ChannelModel, LossProbability, RiskProbability};

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4
    }

    fn selection(k: usize, channels: &[usize]) -> ShareSelection {
        ShareSelection::new(k, channels.iter().copied().collect()).unwrap()
    }

    /// A fraction of 1 as random bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 to 1")]
    fn bits(fraction: f64) -> u64 {
        (fraction * 2_f64.powi(64)) as u64
    }

    /// Within 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "good enough for a test")]
    fn unit(rng: &mut SeededRng) -> f64 {
        rng.next_u64() as f64 / 2_f64.powi(64)
    }

    #[test]
    fn one_channel_by_hand() {
        let set = ChannelSet::new(vec![
            ChannelModel::new(RiskProbability(0.5), LossProbability(0.25), 10.0, 1.0).unwrap(),
        ])
        .unwrap();
        let schedule = ShareSchedule::constant(selection(1, &[0]));
        let mut simulation = ScheduleSimulation::new(&set, &schedule);
        // Per symbol the selection's draw, the risk's and the loss's.
        let script = [0.9, 0.49, 0.26, 0.0, 0.51, 0.24, 0.5, 0.0, 0.99, 0.1, 0.99, 0.25];
        let mut script = script.into_iter().map(bits);
        simulation.run(4, &mut || script.next().unwrap());
        let found = simulation.estimates();
        assert_eq!(found.symbols, 4);
        // Two of four were learnt and one was lost.
        assert!(near(found.risk.mean, 0.5));
        assert!(near(found.risk.low, 0.10507) && near(found.risk.high, 0.89493));
        assert!(near(found.loss.mean, 0.25));
        assert_eq!(found.delay_ms, found.delivered_delay_ms);
        assert!(found.delay_ms.is_some_and(|delay| delay.contains(10.0) && !delay.contains(10.01)));
    }

    #[test]
    fn two_channels_with_a_shared_risk_group_by_hand() {
        let channels = vec![
            ChannelModel::new(RiskProbability(0.5), LossProbability(0.5), 1.0, 1.0).unwrap(),
            ChannelModel::new(RiskProbability(0.2), LossProbability(0.0), 10.0, 1.0).unwrap(),
        ];
        let group = SharedRiskGroup::new(
            ChannelSubset::first(2),
            RiskProbability(0.1),
            LossProbability(0.2),
        )
        .unwrap();
        let set = ChannelSet::with_groups(channels, vec![group]).unwrap();
        let schedule =
            ShareSchedule::new([(selection(1, &[0, 1]), 0.5), (selection(2, &[0, 1]), 0.5)])
                .unwrap();
        let mut simulation = ScheduleSimulation::new(&set, &schedule);
        let mut rng = SeededRng::new(1);
        simulation.run(200_000, &mut || rng.next_u64());
        let found = simulation.estimates();
        // k = 1: seen 0.1 + 0.9 * 0.6, lost 0.2, and 5.5 ms. k = 2: seen 0.1 + 0.9 * 0.1, lost
        // 0.2 + 0.8 * 0.5, and 10 ms.
        assert!(found.risk.contains(0.5 * 0.64 + 0.5 * 0.19), "{:?}", found.risk);
        assert!(found.loss.contains(0.5 * 0.2 + 0.5 * 0.6), "{:?}", found.loss);
        let (sent, delivered) = (found.delay_ms.unwrap(), found.delivered_delay_ms.unwrap());
        assert!(sent.contains(0.5 * 5.5 + 0.5 * 10.0), "{sent:?}");
        assert!(delivered.contains((0.8 * 5.5 + 0.4 * 10.0) / 1.2), "{delivered:?}");
        assert!(!sent.contains(delivered.mean));
    }

    #[test]
    fn without_evidence_nothing_is_claimed() {
        let set = ChannelSet::new(vec![
            ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), 3.0, 1.0).unwrap(),
        ])
        .unwrap();
        // The second entry needs a channel that there is not.
        let schedule =
            ShareSchedule::new([(selection(1, &[0]), 0.5), (selection(2, &[0, 7]), 0.5)]).unwrap();
        let mut simulation = ScheduleSimulation::new(&set, &schedule);
        let none = simulation.estimates();
        assert!(none.risk.contains(0.0) && none.risk.contains(1.0));
        assert_eq!((none.risk, none.delay_ms, none.delivered_delay_ms), (none.loss, None, None));
        let mut rng = SeededRng::new(2);
        simulation.run(1000, &mut || rng.next_u64());
        let some = simulation.estimates();
        assert!(some.risk.contains(0.0) && !some.risk.contains(0.01));
        assert!(some.loss.contains(0.5));
        assert_eq!(some.delay_ms, None);
        assert!(some.delivered_delay_ms.is_some_and(|delay| delay.contains(3.0)));
    }

    #[test]
    fn certainties_are_certain() {
        let channels = vec![
            ChannelModel::new(RiskProbability(1.0), LossProbability(0.0), 0.0, 1.0)
                .unwrap();
            MAX_CHANNELS
        ];
        let set = ChannelSet::new(channels).unwrap();
        let all = ShareSelection::new(MAX_CHANNELS, set.all()).unwrap();
        let schedule = ShareSchedule::constant(all);
        for random in [0, u64::MAX] {
            let mut simulation = ScheduleSimulation::new(&set, &schedule);
            simulation.run(10, &mut || random);
            let found = simulation.estimates();
            assert!(found.risk.contains(1.0) && found.risk.low > 0.5);
            assert!(found.loss.contains(0.0) && found.loss.high < 0.5);
            assert_eq!(found.delay_ms, Some(MeanEstimate { mean: 0.0, low: 0.0, high: 0.0 }));
        }
    }

    #[test]
    fn pieces_add_up() {
        let mut rng = SeededRng::new(3);
        let (set, schedule) = (random_set(&mut rng, 4, true), random_schedule(&mut rng, 4));
        let (mut whole, mut pieces) = (SeededRng::new(4), SeededRng::new(4));
        let mut at_once = ScheduleSimulation::new(&set, &schedule);
        at_once.run(1000, &mut || whole.next_u64());
        let mut in_pieces = ScheduleSimulation::new(&set, &schedule);
        for symbols in [0, 1, 99, 900] {
            in_pieces.run(symbols, &mut || pieces.next_u64());
        }
        assert_eq!(at_once.estimates(), in_pieces.estimates());
    }

    #[test]
    fn delays_have_the_sample_variance() {
        let mut moments = RunningMoments::default();
        // A large offset, to which a sum of squares would lose the variance.
        for value in [1.0, 2.0, 3.0, 6.0] {
            moments.add(1e9 + value);
        }
        assert!(near(moments.mean, 1e9 + 3.0));
        assert!(
            moments.variance_of_mean().is_some_and(|variance| near(variance, 14.0 / 3.0 / 4.0))
        );
    }

    #[test]
    fn the_formulas_hold() {
        let (mut compared, mut missed) = (0, 0);
        for seed in 0..20 {
            let mut rng = SeededRng::new(seed);
            let n = 1 + rng.index(6);
            let set = random_set(&mut rng, n, seed % 2 == 0 && n > 1);
            let schedule = random_schedule(&mut rng, n);
            let mut simulation = ScheduleSimulation::new(&set, &schedule);
            simulation.run(100_000, &mut || rng.next_u64());
            let (found, formulas) = (simulation.estimates(), schedule.averages(&set));
            let pairs = [
                (Some(found.risk), formulas.risk),
                (Some(found.loss), formulas.loss),
                (found.delay_ms, formulas.delay_ms),
                (found.delivered_delay_ms, formulas.delivered_delay_ms),
            ];
            for (estimate, formula) in pairs {
                let estimate = estimate.expect("enough symbols arrive");
                compared += 1;
                missed += usize::from(!estimate.contains(formula));
                let wide = widened(estimate, 5.0 / NORMAL_QUANTILE);
                assert!(wide.contains(formula), "seed {seed}: {formula} is not in {wide:?}");
            }
        }
        // Of 80 comparisons at 99% more than five miss once in a few thousand times.
        assert!(missed <= 5, "{missed} of {compared} are outside");
    }

    /// With probabilities at which every event occurs often.
    fn random_set(rng: &mut SeededRng, n: usize, grouped: bool) -> ChannelSet {
        let channel = |rng: &mut SeededRng| {
            let (risk, loss) = (0.05 + 0.5 * unit(rng), 0.02 + 0.4 * unit(rng));
            ChannelModel::new(RiskProbability(risk), LossProbability(loss), 200.0 * unit(rng), 1.0)
                .unwrap()
        };
        let channels = (0..n).map(|_| channel(rng)).collect();
        let group = |rng: &mut SeededRng, members| {
            SharedRiskGroup::new(
                members,
                RiskProbability(0.3 * unit(rng)),
                LossProbability(0.3 * unit(rng)),
            )
            .unwrap()
        };
        // Two groups that overlap.
        let members = [ChannelSubset::first(2), (1..n).collect(), ChannelSubset::first(n)];
        let members = members.into_iter().filter(|members| grouped && members.len() > 1).take(2);
        let groups = members.map(|members| group(rng, members)).collect();
        ChannelSet::with_groups(channels, groups).unwrap()
    }

    /// Up to five entries, none of them rare.
    fn random_schedule(rng: &mut SeededRng, n: usize) -> ShareSchedule {
        let entries = (0..=rng.index(5)).map(|_| {
            let first = rng.index(n);
            let channels = (0..n)
                .filter(|channel| *channel == first || rng.chance(60))
                .collect::<ChannelSubset>();
            let k = 1 + rng.index(channels.len());
            (ShareSelection::new(k, channels).unwrap(), 0.2 + unit(rng))
        });
        let entries: Vec<(ShareSelection, f64)> = entries.collect();
        let total: f64 = entries.iter().map(|(_, part)| part).sum();
        ShareSchedule::new(entries.into_iter().map(|(t, part)| (t, part / total))).unwrap()
    }

    fn widened(estimate: MeanEstimate, factor: f64) -> MeanEstimate {
        let middle = f64::midpoint(estimate.low, estimate.high);
        let half = (estimate.high - estimate.low) / 2.0 * factor;
        MeanEstimate { low: middle - half, high: middle + half, ..estimate }
    }
}
