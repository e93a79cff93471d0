//! The paper's linear programs in exact arithmetic: every (k, M) written out, every property a
//! fraction of the channels' numbers as they are in `f64`, and a simplex method over whole numbers
//! that rounds nothing. For few channels; it shares no code with the crate.

pub(crate) mod simplex;

use num_rational::BigRational;
use num_traits::{One, Zero};
use sunder_model::{
    ChannelModel, ChannelSet, ChannelSubset, ScheduleObjective, ScheduleRequirements,
    ShareSchedule, ShareSelection,
};

use simplex::{Relation, Row, minimise};

/// The fraction that an `f64` is.
pub(crate) fn exact(value: f64) -> BigRational {
    BigRational::from_float(value).expect("a finite number")
}

fn whole(value: usize) -> BigRational {
    BigRational::from_integer(value.into())
}

/// One (k, M) with its properties.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) selection: ShareSelection,
    risk: BigRational,
    loss: BigRational,
    delivered: BigRational,
    /// The delay times the probability that the symbol arrives.
    delayed_ms: BigRational,
}

impl Column {
    pub(crate) fn new(set: &ChannelSet, selection: ShareSelection) -> Self {
        let mut members: Vec<ChannelModel> =
            selection.channels().iter().map(|i| set.channels()[i]).collect();
        members.sort_by(|a, b| a.delay_ms().total_cmp(&b.delay_ms()));
        let (mut risk, mut loss) = (BigRational::zero(), BigRational::zero());
        let (mut delivered, mut delayed_ms) = (BigRational::zero(), BigRational::zero());
        for chosen in 0..1_usize << members.len() {
            let is_chosen = |place: usize| chosen >> place & 1 == 1;
            let mut probability = [BigRational::one(), BigRational::one()];
            for (place, channel) in members.iter().enumerate() {
                let seen = exact(channel.risk());
                let arrives = BigRational::one() - exact(channel.loss());
                for (product, p) in probability.iter_mut().zip([seen, arrives]) {
                    *product *= if is_chosen(place) { p } else { BigRational::one() - p };
                }
            }
            let [seen, arrived] = probability;
            let mut places = (0..members.len()).filter(|place| is_chosen(*place));
            match places.nth(selection.k() - 1) {
                Some(last) => {
                    risk += seen;
                    delayed_ms += &arrived * exact(members[last].delay_ms());
                    delivered += arrived;
                }
                None => loss += arrived,
            }
        }
        Self { selection, risk, loss, delivered, delayed_ms }
    }

    /// The total whose mean over symbols sent is the schedule's average.
    fn of(&self, objective: ScheduleObjective) -> BigRational {
        match objective {
            ScheduleObjective::Risk => self.risk.clone(),
            ScheduleObjective::Loss => self.loss.clone(),
            ScheduleObjective::Delay => &self.delayed_ms / &self.delivered,
            ScheduleObjective::DeliveredDelay
            | ScheduleObjective::Rate
            | ScheduleObjective::Cost => {
                unreachable!("not a weighted average")
            }
        }
    }

    fn uses(&self, channel: usize) -> BigRational {
        whole(usize::from(self.selection.channels().contains(channel)))
    }
}

/// Every (k, M) on `set`.
pub(crate) fn columns(set: &ChannelSet) -> Vec<Column> {
    let subsets = (1..1_usize << set.len()).map(|bits| {
        let members = (0..set.len()).filter(move |i| bits >> i & 1 == 1);
        members.collect::<ChannelSubset>()
    });
    let selections = subsets.flat_map(|members| {
        (1..=members.len())
            .map(move |k| ShareSelection::new(k, members).expect("k is within 1 to m"))
    });
    selections.map(|selection| Column::new(set, selection)).collect()
}

/// `R_C(mu)`: Theorem 4 over every number of the slowest channels.
pub(crate) fn best_rate(set: &ChannelSet, mu: &BigRational) -> BigRational {
    let mut rates: Vec<f64> = set.channels().iter().map(ChannelModel::rate).collect();
    rates.sort_by(f64::total_cmp);
    let mut sum = BigRational::zero();
    let quotients = rates.iter().enumerate().filter_map(|(place, rate)| {
        sum += exact(*rate);
        let by = mu + whole(place + 1) - whole(set.len());
        (by > BigRational::zero()).then(|| &sum / by)
    });
    quotients.min().expect("mu is at least 1")
}

/// The average of a schedule that `objective` is about. Its proportions are taken as fractions of
/// their sum.
pub(crate) fn average(
    set: &ChannelSet,
    schedule: &ShareSchedule,
    objective: ScheduleObjective,
) -> BigRational {
    let entries: Vec<(Column, BigRational)> =
        schedule.entries().iter().map(|(t, p)| (Column::new(set, *t), exact(*p))).collect();
    let sum = |of: &dyn Fn(&Column) -> BigRational| {
        entries.iter().fold(BigRational::zero(), |sum, (column, p)| sum + of(column) * p)
    };
    let all = sum(&|_| BigRational::one());
    match objective {
        ScheduleObjective::DeliveredDelay => {
            sum(&|column| column.delayed_ms.clone()) / sum(&|column| column.delivered.clone())
        }
        ScheduleObjective::Rate => {
            let rates = set.channels().iter().enumerate().filter_map(|(i, channel)| {
                let used = sum(&|column| column.uses(i)) / &all;
                (!used.is_zero()).then(|| exact(channel.rate()) / used)
            });
            rates.min().expect("some channel is used")
        }
        _ => sum(&|column| column.of(objective)) / all,
    }
}

/// The best value of `objective` for the request's kappa, mu, rate, limits and bounds on risk and
/// loss; `None` if no schedule meets them.
pub(crate) fn best(
    set: &ChannelSet,
    all: &[Column],
    request: &ScheduleRequirements,
    objective: ScheduleObjective,
) -> Option<BigRational> {
    let is_kept = |column: &&Column| {
        column.selection.k() >= request.min_k && column.selection.m() >= request.min_m
    };
    let columns: Vec<&Column> = all.iter().filter(is_kept).collect();
    let row = |left: &dyn Fn(&Column) -> BigRational, relation, right| Row {
        left: columns.iter().map(|column| left(column)).collect(),
        relation,
        right,
    };
    // Homogeneous rows, so that they are the same for every multiple of the proportions.
    let zero = BigRational::zero;
    let mut rows = Vec::new();
    if let Some(kappa) = request.kappa.map(exact) {
        rows.push(row(&|c| whole(c.selection.k()) - &kappa, Relation::Equal, zero()));
    }
    if let Some(mu) = request.mu.map(exact) {
        rows.push(row(&|c| whole(c.selection.m()) - &mu, Relation::Equal, zero()));
    }
    let full_rate = request.mu.filter(|_| request.full_rate).map(|mu| best_rate(set, &exact(mu)));
    for rate in full_rate.into_iter().chain(request.min_rate.map(exact)) {
        for (i, channel) in set.channels().iter().enumerate() {
            let most = exact(channel.rate()) / &rate;
            rows.push(row(&|c| c.uses(i) - &most, Relation::AtMost, zero()));
        }
    }
    if let Some(most) = request.max_risk.map(exact) {
        rows.push(row(&|c| &c.risk - &most, Relation::AtMost, zero()));
    }
    if let Some(most) = request.max_loss.map(exact) {
        rows.push(row(&|c| &c.loss - &most, Relation::AtMost, zero()));
    }
    let costs = |of: &dyn Fn(&Column) -> BigRational| -> Vec<BigRational> {
        columns.iter().map(|column| of(column)).collect()
    };
    match objective {
        ScheduleObjective::Rate => {
            for (i, channel) in set.channels().iter().enumerate() {
                rows.push(row(&|c| c.uses(i), Relation::AtMost, exact(channel.rate())));
            }
            let value = minimise(&costs(&|_| -BigRational::one()), &rows)?;
            // No symbol at all keeps these rows too: then there is no schedule.
            (!value.is_zero()).then_some(-value)
        }
        ScheduleObjective::DeliveredDelay => {
            rows.push(row(&|c| c.delivered.clone(), Relation::Equal, BigRational::one()));
            minimise(&costs(&|c| c.delayed_ms.clone()), &rows)
        }
        _ => {
            rows.push(row(&|_| BigRational::one(), Relation::Equal, BigRational::one()));
            minimise(&costs(&|c| c.of(objective)), &rows)
        }
    }
}
