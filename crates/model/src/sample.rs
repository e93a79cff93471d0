//! Which selection (k, M) each symbol is sent with, drawn from a [`Schedule`] (III-C).
//!
//! [`ScheduleSampler`] draws as the paper does, each symbol on its own. [`LowDiscrepancy`] deals the
//! selections out so evenly that no count is ever a whole symbol away from its share.
//!
//! Both hold the proportions as whole numbers of 2^-52. A proportion is thereby exact to 2^-52; one
//! that is smaller still is raised to 2^-52, at the cost of the largest.

use crate::{Schedule, ShareSelection};

/// What the weights of a schedule's entries sum to: 2^52.
const WHOLE: u64 = 1 << WHOLE_BITS;
const WHOLE_BITS: u32 = 52;

/// ScheduleSampler draws from a schedule, as in III-C, by Vose's alias method (1991): a draw is one
/// multiplication, one comparison and two look-ups, however many entries the schedule has.
#[derive(Clone, Debug)]
pub struct ScheduleSampler {
    selections: Vec<ShareSelection>,
    columns: Vec<Column>,
}

/// One of the alias table's columns, all equally likely. Column j gives entry j or one other.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// The entry is the column's own where the fraction, in units of 2^-64, is below this.
    keep: u64,
    other: usize,
}

impl ScheduleSampler {
    /// Draws from `schedule`.
    pub fn new(schedule: &Schedule) -> Self {
        Self { selections: selections(schedule), columns: alias_table(&weights(schedule)) }
    }

    /// The selection that 64 bits choose. Each comes with its proportion in the schedule, to 2^-52,
    /// if `random` is uniform over all 64-bit numbers; equal bits give equal selections.
    pub fn draw(&self, random: u64) -> ShareSelection {
        self.selections[self.draw_index(random)]
    }

    /// Like [`Self::draw`], but gives the selection's place in [`Schedule::entries`].
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the product")]
    pub(crate) fn draw_index(&self, random: u64) -> usize {
        // The product's high half is uniform over the columns, and its low half is how far into the
        // column the bits point: one draw serves for both.
        let product = u128::from(random) * self.columns.len() as u128;
        let (column, fraction) = ((product >> 64) as usize, product as u64);
        let Column { keep, other } = self.columns[column];
        if fraction < keep { column } else { other }
    }
}

/// A fixed sequence of a schedule's selections in which, after every t symbols and for ever, the
/// count of each selection is strictly within one of p t, with p its proportion to 2^-52. The
/// averages of even a short run are then those of the schedule; independent draws are off by about
/// the square root of t. Whoever knows the schedule also knows the sequence.
///
/// This is the chairman assignment problem (Tijdeman 1980), solved as in proportionate progress
/// (Baruah et al. 1996). With uses and symbols both numbered from 0, the ith use of a selection may
/// not come before symbol floor(i / p), and must come before symbol ceil((i + 1) / p): within these
/// windows the count is p t rounded down or up. Of the uses whose window is open the one that closes
/// first is next. Since the proportions sum to 1 this misses no window.
///
/// A symbol costs one scan over the schedule's entries, a comparison or two for each, without
/// allocation, division or floating point. That does not grow with the number of symbols, and a best
/// schedule has at most a few more entries than there are channels; a schedule of very many entries
/// is better served by [`ScheduleSampler`].
#[derive(Clone, Debug)]
pub struct LowDiscrepancy {
    selections: Vec<ShareSelection>,
    quotas: Quotas,
}

impl LowDiscrepancy {
    /// The sequence for `schedule`, from its start.
    pub fn new(schedule: &Schedule) -> Self {
        Self { selections: selections(schedule), quotas: Quotas::new(&weights(schedule)) }
    }

    /// The selection of the next symbol. After 2^52 symbols the sequence starts again, with every
    /// count exact, so that there is no number of symbols it is not good for.
    pub fn next_selection(&mut self) -> ShareSelection {
        self.selections[self.quotas.next_index()]
    }
}

/// Earliest-deadline-first over entries with whole weights.
#[derive(Clone, Debug)]
struct Quotas {
    /// The sum of the weights.
    period: u64,
    /// Symbols so far in this period.
    time: u64,
    windows: Vec<Window>,
}

/// When the next use of an entry is due. The edges are i / p = i period / weight, of which the
/// whole part and the remainder are carried along.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The first symbol that can be this use: floor(i / p).
    release: u64,
    /// The symbol that this use must come before: ceil((i + 1) / p).
    deadline: u64,
    /// The next use's release: floor((i + 1) / p).
    next_release: u64,
    /// What is above the whole part in (i + 1) / p, in units of 1 / weight.
    remainder: u64,
    weight: u64,
    /// The quotient and the remainder of period / weight.
    step: u64,
    step_remainder: u64,
}

impl Quotas {
    /// Entries of these weights, each at least 1.
    fn new(weights: &[u64]) -> Self {
        let period = weights.iter().sum();
        let windows = weights.iter().map(|weight| Window::first(period, *weight)).collect();
        Self { period, time: 0, windows }
    }

    /// The entry whose turn it is.
    fn next_index(&mut self) -> usize {
        let (mut chosen, mut earliest) = (0, u64::MAX);
        for (index, window) in self.windows.iter().enumerate() {
            if window.release <= self.time && window.deadline < earliest {
                (chosen, earliest) = (index, window.deadline);
            }
        }
        self.windows[chosen].advance();
        self.time += 1;
        if self.time == self.period {
            // Every entry has been used exactly as often as its weight says. That is also where it
            // started, so that starting again changes nothing and keeps the numbers small.
            self.time = 0;
            let period = self.period;
            self.windows
                .iter_mut()
                .for_each(|window| *window = Window::first(period, window.weight));
        }
        chosen
    }
}

impl Window {
    /// The window of an entry's first use.
    fn first(period: u64, weight: u64) -> Self {
        let (step, step_remainder) = (period / weight, period % weight);
        let (release, next_release, remainder) = (0, step, step_remainder);
        let deadline = next_release + u64::from(remainder > 0);
        Self { release, deadline, next_release, remainder, weight, step, step_remainder }
    }

    /// Goes on to the next use. No sum here exceeds twice the period by more than 1.
    fn advance(&mut self) {
        self.release = self.next_release;
        self.next_release += self.step;
        self.remainder += self.step_remainder;
        if self.remainder >= self.weight {
            self.remainder -= self.weight;
            self.next_release += 1;
        }
        self.deadline = self.next_release + u64::from(self.remainder > 0);
    }
}

fn selections(schedule: &Schedule) -> Vec<ShareSelection> {
    schedule.entries().iter().map(|(selection, _)| *selection).collect()
}

/// The proportions in units of 1 / [`WHOLE`]: at least 1 each, and [`WHOLE`] in sum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a proportion is within 0 to 1, a weight within 0 to WHOLE"
)]
fn weights(schedule: &Schedule) -> Vec<u64> {
    const FINE: f64 = 18_446_744_073_709_551_616.0; // 2^64, so that rounding here does not count.
    let fine: Vec<u128> = schedule.entries().iter().map(|(_, p)| (p * FINE) as u128).collect();
    let total = fine.iter().sum::<u128>().max(1);
    // Sums are rounded, not the weights themselves, so that what one loses the next one gets: the
    // whole comes out exact and each weight within 1.
    let (mut sum, mut before) = (0, 0);
    let mut weights: Vec<u64> = Vec::with_capacity(fine.len());
    for fine in fine {
        sum += fine;
        let up_to = (sum * u128::from(WHOLE) / total) as u64;
        weights.push(up_to - before);
        before = up_to;
    }
    let mut raised = 0;
    for weight in weights.iter_mut().filter(|weight| **weight == 0) {
        *weight = 1;
        raised += 1;
    }
    // There are fewer than 2^25 selections, so that the largest has far more than it gives.
    if let Some(largest) = weights.iter_mut().max() {
        *largest -= raised;
    }
    weights
}

/// Vose's table for `weights` that sum to [`WHOLE`]: on whole numbers, hence without rounding.
#[expect(clippy::cast_possible_truncation, reason = "a load below WHOLE fits 52 bits")]
fn alias_table(weights: &[u64]) -> Vec<Column> {
    let whole = u128::from(WHOLE);
    // The average load is the whole: one full column for each entry.
    let mut loads: Vec<u128> =
        weights.iter().map(|weight| u128::from(*weight) * weights.len() as u128).collect();
    let mut columns: Vec<Column> =
        (0..weights.len()).map(|own| Column { keep: 0, other: own }).collect();
    let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
        (0..weights.len()).partition(|entry| loads[*entry] < whole);
    // What a poor entry leaves empty of its column a rich one fills. As nothing is rounded, the
    // entries left when no poor one is fill their columns exactly.
    while let (Some(taker), Some(&giver)) = (poor.pop(), rich.last()) {
        let keep = (loads[taker] as u64) << (u64::BITS - WHOLE_BITS);
        columns[taker] = Column { keep, other: giver };
        loads[giver] -= whole - loads[taker];
        if loads[giver] < whole {
            rich.pop();
            poor.push(giver);
        }
    }
    columns
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "counts are small")]
mod tests {
    use proptest::prelude::*;
    use sim::Rng;

    use super::*;
    use crate::ChannelSubset;

    /// A schedule of as many different selections as there are `parts`, in these proportions.
    fn schedule(parts: &[f64]) -> Schedule {
        let total: f64 = parts.iter().sum();
        let entries = parts.iter().enumerate().map(|(i, part)| {
            let channels =
                (0..6).filter(|channel| (i + 1) >> channel & 1 == 1).collect::<ChannelSubset>();
            (ShareSelection::new(1 + i % channels.len(), channels).unwrap(), part / total)
        });
        Schedule::new(entries).unwrap()
    }

    fn parts() -> impl Strategy<Value = Vec<f64>> {
        let part = prop_oneof![
            4 => 0.01..1.0,
            1 => Just(1.0),
            1 => Just(1e-9),
            1 => Just(1e-18),
            1 => 1e-9..1e-3,
        ];
        prop_oneof![
            prop::collection::vec(part, 1..=25)
                .prop_filter("nothing to scale", |parts| parts.iter().sum::<f64>() > 1e-3),
            (1_usize..=25).prop_map(|n| vec![1.0; n]),
        ]
    }

    fn place(schedule: &Schedule, selection: ShareSelection) -> usize {
        schedule.entries().iter().position(|(t, _)| *t == selection).expect("is in the schedule")
    }

    proptest! {
        #[test]
        fn weights_are_the_proportions(parts in parts()) {
            let schedule = schedule(&parts);
            let weights = weights(&schedule);
            prop_assert_eq!(weights.iter().sum::<u64>(), WHOLE);
            for (weight, (_, p)) in weights.iter().zip(schedule.entries()) {
                prop_assert!(*weight > 0);
                // Up to 24 tiny entries may be raised at the cost of the largest.
                let slack = if *p < 0.01 { 1.01 } else { 26.0 };
                prop_assert!((*weight as f64 - p * WHOLE as f64).abs() < slack);
            }
        }

        #[test]
        fn the_alias_table_has_the_exact_probabilities(parts in parts()) {
            let schedule = schedule(&parts);
            let weights = weights(&schedule);
            let mut shares = vec![0_u128; weights.len()];
            for (own, column) in alias_table(&weights).iter().enumerate() {
                shares[own] += u128::from(column.keep);
                shares[column.other] += (1 << 64) - u128::from(column.keep);
            }
            for ((share, weight), (_, p)) in shares.iter().zip(&weights).zip(schedule.entries()) {
                let exact = u128::from(*weight) * weights.len() as u128;
                prop_assert_eq!(*share, exact << (u64::BITS - WHOLE_BITS));
                let chance = *share as f64 / 2_f64.powi(64) / weights.len() as f64;
                let slack = if parts.iter().all(|part| *part >= 1e-9) { 1e-15 } else { 1e-14 };
                prop_assert!((chance - p).abs() < slack, "{chance} is not {p}");
            }
        }

        #[test]
        fn every_count_is_within_one_of_its_quota(parts in parts()) {
            let schedule = schedule(&parts);
            let weights = weights(&schedule);
            let mut sequence = LowDiscrepancy::new(&schedule);
            let mut counts = vec![0_u64; weights.len()];
            for t in 1..=3000_u64 {
                counts[place(&schedule, sequence.next_selection())] += 1;
                for ((count, weight), (_, p)) in counts.iter().zip(&weights).zip(schedule.entries()) {
                    let used = u128::from(*count) * u128::from(WHOLE);
                    let quota = u128::from(*weight) * u128::from(t);
                    prop_assert!(used.abs_diff(quota) < u128::from(WHOLE));
                    prop_assert!((*count as f64 - p * t as f64).abs() < 1.0 + 1e-9);
                }
            }
        }

        #[test]
        fn averages_of_short_runs_are_near(parts in parts(), symbols in 1..500_u16) {
            let schedule = schedule(&parts);
            let mut sequence = LowDiscrepancy::new(&schedule);
            let (mut k, mut m) = (0.0, 0.0);
            for _ in 0..symbols {
                let selection = sequence.next_selection();
                k += selection.k() as f64;
                m += selection.m() as f64;
            }
            // Each count is off by less than one, and all of them by nothing together.
            let (mut quota_k, mut quota_m, mut slack_k, mut slack_m) = (0.0, 0.0, 1e-9, 1e-9);
            for (selection, p) in schedule.entries() {
                quota_k += p * f64::from(symbols) * selection.k() as f64;
                quota_m += p * f64::from(symbols) * selection.m() as f64;
                slack_k += selection.k() as f64 - 1.0;
                slack_m += selection.m() as f64 - 1.0;
            }
            prop_assert!((k - quota_k).abs() <= slack_k);
            prop_assert!((m - quota_m).abs() <= slack_m);
        }

        /// With weights small enough to see the end of a period, and what comes after it.
        #[test]
        fn it_goes_on_for_ever(weights in prop::collection::vec(1..40_u64, 1..=12)) {
            let period = weights.iter().sum::<u64>();
            let mut quotas = Quotas::new(&weights);
            let mut counts = vec![0_u64; weights.len()];
            for t in 1..=5 * period {
                counts[quotas.next_index()] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    prop_assert!((count * period).abs_diff(weight * t) < period);
                }
            }
        }

        /// Starting again is the same as going on.
        #[test]
        fn a_period_ends_where_it_began(weight in 1..1000_u64, rest in 0..1000_u64) {
            let period = weight + rest;
            let start = Window::first(period, weight);
            let mut window = start;
            (0..weight).for_each(|_| window.advance());
            prop_assert_eq!(window.release, start.release + period);
            prop_assert_eq!(window.deadline, start.deadline + period);
            prop_assert_eq!(window.next_release, start.next_release + period);
            prop_assert_eq!(window.remainder, start.remainder);
        }
    }

    #[test]
    fn draws_come_with_their_frequencies() {
        const DRAWS: u32 = 1_000_000;
        let schedule = schedule(&[0.4, 0.3, 0.001, 0.199, 0.05, 0.05]);
        let independent = ScheduleSampler::new(&schedule);
        let mut rng = Rng::new(11);
        let mut counts = [0.0; 6];
        for _ in 0..DRAWS {
            counts[place(&schedule, independent.draw(rng.next_u64()))] += 1.0;
        }
        let excess = counts.iter().zip(schedule.entries()).map(|(count, (_, p))| {
            let expected = p * f64::from(DRAWS);
            (count - expected) * (count - expected) / expected
        });
        // Chi-square with five degrees of freedom is above 20.5 once in a thousand times.
        let chi_square: f64 = excess.sum();
        assert!(chi_square < 20.5, "{chi_square}");
    }

    #[test]
    fn the_ends_of_the_random_numbers_are_good() {
        for n in 1..=25 {
            let schedule = schedule(&vec![1.0; n]);
            let independent = ScheduleSampler::new(&schedule);
            assert_eq!(independent.draw(0), independent.draw(0));
            assert!(independent.draw_index(0) < n);
            assert!(independent.draw_index(u64::MAX) < n);
        }
    }

    #[test]
    fn one_entry_is_always_the_next() {
        let only = ShareSelection::new(2, ChannelSubset::first(3)).unwrap();
        let schedule = Schedule::constant(only);
        let independent = ScheduleSampler::new(&schedule);
        let mut sequence = LowDiscrepancy::new(&schedule);
        for random in [0, 1, 1 << 63, u64::MAX] {
            assert_eq!(independent.draw(random), only);
            assert_eq!(sequence.next_selection(), only);
        }
    }

    #[test]
    fn a_simple_sequence_is_as_expected() {
        // Windows: the first entry's are [0, 2) [2, 4) ..., the others' [0, 4) [4, 8) ...
        let mut quotas = Quotas::new(&[2, 1, 1]);
        let sequence: Vec<usize> = (0..8).map(|_| quotas.next_index()).collect();
        assert_eq!(sequence, [0, 1, 0, 2, 0, 1, 0, 2]);
    }
}
