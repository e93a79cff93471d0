//! Share schedules: the proportion of symbols for each (k, M) (III-C), and averages of schedules
//! (IV-A).

use thiserror::Error;

use crate::channels::{ChannelSet, ShareSelection};

/// By how much the sum of the given probabilities may differ from 1.
const TOLERANCE: f64 = 1e-9;

/// A share schedule p(k, M): selections, each with the proportion of symbols that use it. The
/// proportions are positive and sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareSchedule {
    entries: Vec<(ShareSelection, f64)>,
}

/// Why the entries do not define a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ShareScheduleError {
    /// A proportion is negative or not a number.
    #[error("a proportion of {0} is not within 0 to 1")]
    Proportion(f64),
    /// The proportions do not sum to 1.
    #[error("the proportions sum to {0}, not to 1")]
    Sum(f64),
}

/// Averages of a schedule over many symbols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleAverages {
    /// The mean threshold: kappa.
    pub kappa: f64,
    /// The mean multiplicity: mu.
    pub mu: f64,
    /// The proportion of symbols that an adversary learns: Z(p).
    pub risk: f64,
    /// The proportion of symbols that are lost: L(p).
    pub loss: f64,
    /// The mean of the symbols' delays as the paper defines it, where each (k, M) is weighted by
    /// how often it is sent: D(p), in milliseconds.
    pub delay_ms: f64,
    /// The mean delay of the symbols that arrive, where each (k, M) is weighted by how often it is
    /// delivered, in milliseconds. This is what a receiver measures.
    pub delivered_delay_ms: f64,
    /// The highest rate, at which the first channel is fully used, in symbols per unit of time.
    pub rate: f64,
    /// The price of a GB of symbols: of its shares on all channels, each as long as its symbol.
    pub cost: f64,
}

impl ShareSchedule {
    /// A schedule of the selections in `entries`, each with its proportion of symbols. Entries with
    /// proportion 0 are dropped, equal selections are merged, and the proportions are scaled to sum
    /// to exactly 1.
    ///
    /// # Errors
    /// If a proportion is not within 0 to 1, or they do not sum to 1 within 1e-9.
    pub fn new(
        entries: impl IntoIterator<Item = (ShareSelection, f64)>,
    ) -> Result<Self, ShareScheduleError> {
        let mut entries: Vec<(ShareSelection, f64)> = entries.into_iter().collect();
        let outside = |p: &f64| !(0.0..=1.0 + TOLERANCE).contains(p);
        if let Some(p) = entries.iter().map(|(_, p)| *p).find(outside) {
            return Err(ShareScheduleError::Proportion(p));
        }
        let sum: f64 = entries.iter().map(|(_, p)| p).sum();
        if (sum - 1.0).abs() > TOLERANCE {
            return Err(ShareScheduleError::Sum(sum));
        }
        entries.retain(|(_, p)| *p > 0.0);
        entries.sort_by_key(|(selection, _)| *selection);
        entries.dedup_by(|later, kept| {
            let equal = later.0 == kept.0;
            kept.1 += if equal { later.1 } else { 0.0 };
            equal
        });
        for (_, p) in &mut entries {
            *p /= sum;
        }
        Ok(Self { entries })
    }

    /// The schedule that uses one selection for every symbol.
    pub fn constant(selection: ShareSelection) -> Self {
        Self { entries: vec![(selection, 1.0)] }
    }

    /// The selections with their proportions, ordered by k and then by channels.
    pub fn entries(&self) -> &[(ShareSelection, f64)] {
        &self.entries
    }

    /// The proportion of symbols that have a share on `channel`.
    pub fn channel_usage(&self, channel: usize) -> f64 {
        let using =
            self.entries.iter().filter(|(selection, _)| selection.channels().contains(channel));
        // Not `sum`, which returns -0 for no terms.
        using.fold(0.0, |used, (_, p)| used + p)
    }

    /// The averages of this schedule on `set`.
    #[expect(clippy::cast_precision_loss, reason = "k and m are small")]
    pub fn averages(&self, set: &ChannelSet) -> ScheduleAverages {
        let (mut kappa, mut mu, mut risk, mut loss, mut delay_ms) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut delivered, mut weighted) = (0.0, 0.0);
        for &(selection, p) in &self.entries {
            let properties = set.properties(selection);
            kappa += p * selection.k() as f64;
            mu += p * selection.m() as f64;
            risk += p * properties.risk;
            loss += p * properties.loss;
            delay_ms += p * properties.delay_ms;
            delivered += p * properties.delivered;
            weighted += p * properties.delivered_delay_ms();
        }
        let delivered_delay_ms = if delivered > 0.0 { weighted / delivered } else { delay_ms };
        ScheduleAverages {
            kappa,
            mu,
            risk,
            loss,
            delay_ms,
            delivered_delay_ms,
            rate: self.rate(set),
            cost: self.cost(set),
        }
    }

    /// The price of a GB of symbols.
    fn cost(&self, set: &ChannelSet) -> f64 {
        let channels = set.channels().iter().enumerate();
        channels.fold(0.0, |sum, (i, channel)| sum + self.channel_usage(i) * channel.cost())
    }

    /// The highest rate, at which the first channel is fully used, in symbols per unit of time.
    pub fn rate(&self, set: &ChannelSet) -> f64 {
        let channels = set.channels().iter().enumerate();
        let used = channels.map(|(i, channel)| (channel.rate(), self.channel_usage(i)));
        let used = used.filter(|(_, used)| *used > 0.0);
        used.map(|(rate, used)| rate / used).fold(f64::INFINITY, f64::min)
    }
}
