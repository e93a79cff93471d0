//! Schedules that are constructed without a linear program: Theorem 5, and a schedule at the
//! optimal rate.

use super::schedule::ShareSchedule;
use crate::channels::{ChannelSet, ChannelSubset, ShareSelection};

impl ChannelSet {
    /// A schedule of mean threshold `kappa` and mean multiplicity `mu` in which no symbol has
    /// k < floor(kappa) or m < floor(mu) (Theorem 5). `None` unless 1 <= kappa <= mu <= n.
    ///
    /// It uses the first channels only; [`ChannelSet::limited_schedule_at_best_rate`] uses all.
    pub fn limited_schedule(&self, kappa: f64, mu: f64) -> Option<ShareSchedule> {
        let valid = kappa >= 1.0 && kappa <= mu && self.multiplicities().contains(&mu);
        let mut left = mu;
        let uses = self.channels().iter().map(|_| {
            let used = left.clamp(0.0, 1.0);
            left -= used;
            used
        });
        valid.then(|| from_uses(kappa, mu, &uses.collect::<Vec<f64>>())).flatten()
    }

    /// As [`ChannelSet::limited_schedule`], but also at the optimal rate `R_C(mu)`: limiting a
    /// schedule never reduces the rate (IV-E).
    pub fn limited_schedule_at_best_rate(&self, kappa: f64, mu: f64) -> Option<ShareSchedule> {
        let valid = kappa >= 1.0 && kappa <= mu;
        let best = self.best_rate(mu).filter(|_| valid)?;
        let uses = self.channels().iter().map(|channel| (channel.rate() / best).min(1.0));
        from_uses(kappa, mu, &uses.collect::<Vec<f64>>())
    }
}

/// The largest distance between two equal ends that rounding can cause, for up to 20 channels.
const MIN_ARC: f64 = 1e-13;

/// A schedule in which channel i carries a share of a fraction `uses[i]` of the symbols. The uses
/// sum to `mu`, the mean threshold is `kappa`, and k and m are the means rounded down or up.
///
/// The uses are laid end to end on a line, and the line is wound around a circle of length 1. Each
/// point of the circle then lies under floor(mu) or ceil(mu) different channels. An arc between two
/// neighbouring ends is the fraction of symbols that use exactly the channels over it. The larger
/// of the two thresholds is assigned to the arcs with the most channels, where it fits because
/// kappa <= mu.
#[expect(clippy::cast_precision_loss, reason = "there are few channels")]
fn from_uses(kappa: f64, mu: f64, uses: &[f64]) -> Option<ShareSchedule> {
    let ends = uses.iter().scan(0.0, |end, used| {
        *end += used;
        Some(*end)
    });
    let ends: Vec<f64> = ends.collect();
    let mut cuts: Vec<f64> = ends.iter().map(|end| end.fract()).chain([0.0, 1.0]).collect();
    cuts.sort_by(f64::total_cmp);
    let arcs = cuts
        .windows(2)
        .map(|cut| (wound_over(f64::midpoint(cut[0], cut[1]), &ends), cut[1] - cut[0]));
    // Only a sliver that rounding causes can have one channel more or less. It is skipped, since
    // the request may exclude its selection.
    let sizes = mu.floor()..=mu.ceil();
    let is_arc = |channels: ChannelSubset, length| {
        length > MIN_ARC && sizes.contains(&(channels.len() as f64))
    };
    let mut arcs: Vec<(ChannelSubset, f64)> =
        arcs.filter(|(channels, length)| is_arc(*channels, *length)).collect();
    arcs.sort_by_key(|(channels, _)| std::cmp::Reverse(channels.len()));

    let (low, mut more) = (kappa.floor(), kappa.fract());
    let mut entries = Vec::new();
    for (channels, length) in arcs {
        let at_high = more.min(length);
        more -= at_high;
        for (k, p) in [(low + 1.0, at_high), (low, length - at_high)] {
            if p > MIN_ARC {
                entries.push((selection(k, channels)?, p));
            }
        }
    }
    ShareSchedule::new(entries).ok()
}

/// The channels that are wound over `point` of the circle. `ends` is where each channel ends on the
/// line.
fn wound_over(point: f64, ends: &[f64]) -> ChannelSubset {
    let covers = |i: &usize| {
        let start = if *i == 0 { 0.0 } else { ends[i - 1] };
        // The first time that the line passes the point at or after the channel's start.
        let pass = point + (start - point).ceil().max(0.0);
        pass < ends[*i]
    };
    (0..ends.len()).filter(covers).collect()
}

/// The selection with the whole number `k`, but at most with the number of channels: if mu is a
/// whole number up to rounding, kappa may be rounded as well.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to n")]
fn selection(k: f64, channels: ChannelSubset) -> Option<ShareSelection> {
    ShareSelection::new((k as usize).min(channels.len()), channels).ok()
}
