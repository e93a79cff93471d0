//! The reference of the tests: the paper's formulas as sums over all subsets, its linear programs
//! with all variables, and a plain simplex method. Independent of the crate, so that the two agree
//! only if they are right.

pub(crate) mod sets;
pub(crate) mod simplex;

use std::ops::RangeInclusive;

use simplex::{Answer, Relation, Row, dot};
use sunder_model::{
    ChannelSet, ChannelSubset, OptimalSchedule, PlanError, PlanRequest, ScheduleAverages,
    ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};

/// A count as `f64`.
pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// The plan for requirements, if they are consistent.
pub(crate) fn plan_for(
    set: &ChannelSet,
    requirements: &ScheduleRequirements,
) -> Result<OptimalSchedule, PlanError> {
    set.plan(&PlanRequest::new(requirements.clone())?)
}

/// Whether two values agree to 1e-9, relative where they are large.
pub(crate) fn agree(a: f64, b: f64) -> bool {
    agree_to(1e-9, a, b)
}

pub(crate) fn agree_to(tolerance: f64, a: f64, b: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
}

/// Every K that is a subset of M, as (members, the others).
pub(crate) fn splits(members: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let splits = (0..1usize << members.len()).map(|bits| {
        let of = |side: usize| {
            let chosen = (0..members.len()).filter(move |place| bits >> place & 1 == side);
            chosen.map(|place| members[place]).collect()
        };
        (of(1), of(0))
    });
    splits.collect()
}

/// The groups' outcomes: which of them are struck, 2^g of them, with the outcome's probability and
/// the channels' probabilities in it.
fn outcomes(own: &[f64], groups: &[(ChannelSubset, f64)]) -> Vec<(f64, Vec<f64>)> {
    let places: Vec<usize> = (0..groups.len()).collect();
    let outcomes = splits(&places).into_iter().map(|(struck, spared)| {
        let struck_too: f64 = struck.iter().map(|g| groups[*g].1).product();
        let spared_too: f64 = spared.iter().map(|g| 1.0 - groups[*g].1).product();
        let hit = |i: usize| struck.iter().any(|g| groups[*g].0.contains(i));
        let hits = own.iter().enumerate().map(|(i, p)| if hit(i) { 1.0 } else { *p });
        (struck_too * spared_too, hits.collect())
    });
    outcomes.collect()
}

/// The product of `p` over K and of `1 - p` over the rest of M.
fn exactly(p: &[f64], inside: &[usize], outside: &[usize]) -> f64 {
    let hit: f64 = inside.iter().map(|i| p[*i]).product();
    hit * outside.iter().map(|j| 1.0 - p[*j]).product::<f64>()
}

fn risks(set: &ChannelSet) -> Vec<(f64, Vec<f64>)> {
    let own: Vec<f64> = set.channels().iter().map(sunder_model::ChannelModel::risk).collect();
    let groups = set.groups().iter().map(|group| (group.channels(), group.risk()));
    outcomes(&own, &groups.collect::<Vec<_>>())
}

fn losses(set: &ChannelSet) -> Vec<(f64, Vec<f64>)> {
    let own: Vec<f64> = set.channels().iter().map(sunder_model::ChannelModel::loss).collect();
    let groups = set.groups().iter().map(|group| (group.channels(), group.loss()));
    outcomes(&own, &groups.collect::<Vec<_>>())
}

/// z(k, M): the sum over the K of at least k members.
pub(crate) fn subset_risk(set: &ChannelSet, selection: ShareSelection) -> f64 {
    let members: Vec<usize> = selection.channels().iter().collect();
    let mut risk = 0.0;
    for (probability, z) in risks(set) {
        for (seen, unseen) in
            splits(&members).iter().filter(|(seen, _)| seen.len() >= selection.k())
        {
            risk += probability * exactly(&z, seen, unseen);
        }
    }
    risk
}

/// l(k, M): the sum over the K of fewer than k members, those that arrive.
pub(crate) fn subset_loss(set: &ChannelSet, selection: ShareSelection) -> f64 {
    let members: Vec<usize> = selection.channels().iter().collect();
    let mut loss = 0.0;
    for (probability, l) in losses(set) {
        for (arrived, lost) in splits(&members).iter().filter(|(k, _)| k.len() < selection.k()) {
            loss += probability * exactly(&l, lost, arrived);
        }
    }
    loss
}

/// 1 - l(k, M), and (1 - l(k, M)) d(k, M), which is the paper's sum over the K of at least k
/// members.
pub(crate) fn delivery(set: &ChannelSet, selection: ShareSelection) -> (f64, f64) {
    let members: Vec<usize> = selection.channels().iter().collect();
    let (mut delivered, mut delayed) = (0.0, 0.0);
    for (probability, l) in losses(set) {
        for (arrived, lost) in splits(&members).iter().filter(|(k, _)| k.len() >= selection.k()) {
            let p = probability * exactly(&l, lost, arrived);
            let mut delays: Vec<f64> =
                arrived.iter().map(|i| set.channels()[*i].delay_ms()).collect();
            delays.sort_by(f64::total_cmp);
            delivered += p;
            delayed += p * delays[selection.k() - 1];
        }
    }
    (delivered, delayed)
}

/// One (k, M) with its properties: a variable of the paper's programs.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) selection: ShareSelection,
    pub(crate) risk: f64,
    pub(crate) loss: f64,
    pub(crate) delay_ms: f64,
    pub(crate) delivered: f64,
    pub(crate) delayed_ms: f64,
    pub(crate) cost: f64,
}

impl Column {
    pub(crate) fn new(set: &ChannelSet, selection: ShareSelection) -> Self {
        let (delivered, delayed_ms) = delivery(set, selection);
        Self {
            selection,
            risk: subset_risk(set, selection),
            loss: subset_loss(set, selection),
            delay_ms: delayed_ms / delivered,
            delivered,
            delayed_ms,
            cost: selection.channels().iter().map(|i| set.channels()[i].cost()).sum(),
        }
    }

    /// The weight whose sum times p is the schedule's average.
    pub(crate) fn of(&self, objective: ScheduleObjective) -> f64 {
        match objective {
            ScheduleObjective::Risk => self.risk,
            ScheduleObjective::Loss => self.loss,
            ScheduleObjective::Delay => self.delay_ms,
            ScheduleObjective::Cost => self.cost,
            ScheduleObjective::DeliveredDelay | ScheduleObjective::Rate => {
                unreachable!("not a weighted average")
            }
        }
    }
}

/// The calligraphic M: every (k, M).
pub(crate) fn selections(n: usize) -> Vec<ShareSelection> {
    let channels: Vec<usize> = (0..n).collect();
    let subsets = splits(&channels).into_iter().map(|(members, _)| members);
    let selections = subsets.flat_map(|members| {
        let m = members.len();
        (1..=m).map(move |k| ShareSelection::new(k, members.iter().copied().collect()).unwrap())
    });
    selections.collect()
}

/// The columns of every (k, M) on `set`.
pub(crate) fn columns(set: &ChannelSet) -> Vec<Column> {
    selections(set.len()).into_iter().map(|selection| Column::new(set, selection)).collect()
}

/// Theorem 4 over every set S.
pub(crate) fn best_rate(set: &ChannelSet, mu: f64) -> f64 {
    let channels: Vec<usize> = (0..set.len()).collect();
    let n = number(set.len());
    let large = splits(&channels).into_iter().map(|(s, _)| s).filter(|s| number(s.len()) > n - mu);
    let rates = large.map(|s| {
        let sum: f64 = s.iter().map(|i| set.channels()[*i].rate()).sum();
        sum / (mu - n + number(s.len()))
    });
    rates.fold(f64::INFINITY, f64::min)
}

/// The averages of a schedule, by the formulas.
pub(crate) fn averages(set: &ChannelSet, schedule: &ShareSchedule) -> ScheduleAverages {
    let columns: Vec<Column> =
        schedule.entries().iter().map(|(selection, _)| Column::new(set, *selection)).collect();
    let weights: Vec<f64> = schedule.entries().iter().map(|(_, p)| *p).collect();
    let mean =
        |of: &dyn Fn(&Column) -> f64| dot(&columns.iter().map(of).collect::<Vec<_>>(), &weights);
    let uses = (0..set.len())
        .map(|i| mean(&|column| if column.selection.channels().contains(i) { 1.0 } else { 0.0 }));
    let rates = set.channels().iter().zip(uses).map(|(channel, used)| channel.rate() / used);
    ScheduleAverages {
        kappa: mean(&|column| number(column.selection.k())),
        mu: mean(&|column| number(column.selection.m())),
        risk: mean(&|column| column.risk),
        loss: mean(&|column| column.loss),
        delay_ms: mean(&|column| column.delay_ms),
        delivered_delay_ms: mean(&|column| column.delayed_ms) / mean(&|column| column.delivered),
        rate: rates.fold(f64::INFINITY, f64::min),
        cost: mean(&|column| column.cost),
    }
}

/// The paper's linear programs in p: one variable for each (k, M).
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    rates: Vec<f64>,
    columns: Vec<Column>,
    /// All but the sum of p.
    rows: Vec<Row>,
}

impl Programs {
    /// The rows of IV-B for the request's kappa and mu, those of IV-D if it asks for the full rate,
    /// over the (k, M) that IV-E leaves. The request's bounds are left out.
    pub(crate) fn new(set: &ChannelSet, all: &[Column], request: &ScheduleRequirements) -> Self {
        let kept = |column: &&Column| {
            let (k, channels) = (column.selection.k(), column.selection.channels());
            let mut delays: Vec<f64> =
                channels.iter().map(|channel| set.channels()[channel].delay_ms()).collect();
            delays.sort_by(f64::total_cmp);
            let is_limited = |limit: &RangeInclusive<f64>| !limit.contains(&delays[k - 1]);
            k >= request.min_k
                && column.selection.m() >= request.min_m
                && !request.kth_delay_ms.as_ref().is_some_and(is_limited)
        };
        let columns = all.iter().filter(kept).cloned().collect();
        let rates = set.channels().iter().map(sunder_model::ChannelModel::rate).collect();
        let mut programs = Self { rates, columns, rows: Vec::new() };
        if let Some(kappa) = request.kappa {
            programs.add(Relation::Equal, 0.0, |column| number(column.selection.k()) - kappa);
        }
        if let Some(mu) = request.mu {
            programs.add(Relation::Equal, 0.0, |column| number(column.selection.m()) - mu);
        }
        if let (true, Some(mu)) = (request.full_rate, request.mu) {
            let best = best_rate(set, mu);
            for i in 0..set.len() {
                let share = f64::min(programs.rates[i] / best, 1.0);
                programs.add(Relation::Equal, share, |column| uses(column, i));
            }
        }
        programs
    }

    fn add(&mut self, relation: Relation, right: f64, left: impl Fn(&Column) -> f64) {
        self.rows.push((self.columns.iter().map(left).collect(), relation, right));
    }

    /// Bounds the rate from below: no channel has a share of more symbols than it can carry.
    pub(crate) fn keep_rate(&mut self, rate: f64) {
        for i in 0..self.rates.len() {
            self.add(Relation::AtMost, self.rates[i] / rate, |column| uses(column, i));
        }
    }

    /// Bounds a property from above.
    pub(crate) fn keep_at_most(&mut self, objective: ScheduleObjective, value: f64) {
        if objective == ScheduleObjective::DeliveredDelay {
            self.add(Relation::AtMost, 0.0, |column| column.delayed_ms - value * column.delivered);
        } else {
            self.add(Relation::AtMost, value, |column| column.of(objective));
        }
    }

    /// The best value of a property; `None` if no p keeps the rows.
    pub(crate) fn best(&self, objective: ScheduleObjective) -> Option<f64> {
        match objective {
            ScheduleObjective::Rate => self.highest_rate(),
            ScheduleObjective::DeliveredDelay => self.least_delivered_delay(),
            _ => self.extreme(objective, 1.0),
        }
    }

    /// The highest value of an average.
    pub(crate) fn worst(&self, objective: ScheduleObjective) -> Option<f64> {
        self.extreme(objective, -1.0)
    }

    fn extreme(&self, objective: ScheduleObjective, sign: f64) -> Option<f64> {
        let costs: Vec<f64> =
            self.columns.iter().map(|column| sign * column.of(objective)).collect();
        let mut rows = self.rows.clone();
        rows.push((vec![1.0; self.columns.len()], Relation::Equal, 1.0));
        solve(&costs, &rows).map(|value| sign * value)
    }

    /// A ratio of two sums, made linear by scaling p so that the lower one is 1 (Charnes and
    /// Cooper).
    fn least_delivered_delay(&self) -> Option<f64> {
        let costs: Vec<f64> = self.columns.iter().map(|column| column.delayed_ms).collect();
        let mut rows = self.homogeneous();
        let delivered = self.columns.iter().map(|column| column.delivered).collect();
        rows.push((delivered, Relation::Equal, 1.0));
        solve(&costs, &rows)
    }

    /// In q = p R, of which the sum is the rate.
    fn highest_rate(&self) -> Option<f64> {
        let mut rows = self.homogeneous();
        for (i, rate) in self.rates.iter().enumerate() {
            let left = self.columns.iter().map(|column| uses(column, i)).collect();
            rows.push((left, Relation::AtMost, *rate));
        }
        // No symbol at all keeps homogeneous rows too: then there is no schedule.
        let highest = solve(&vec![-1.0; self.columns.len()], &rows).map(|value| -value);
        highest.filter(|rate| *rate > 1e-9)
    }

    /// The rows, with the sum of p, which is 1, times the right side brought to the left.
    fn homogeneous(&self) -> Vec<Row> {
        let moved = self.rows.iter().map(|(left, relation, right)| {
            (left.iter().map(|value| value - right).collect(), *relation, 0.0)
        });
        moved.collect()
    }
}

fn uses(column: &Column, channel: usize) -> f64 {
    if column.selection.channels().contains(channel) { 1.0 } else { 0.0 }
}

fn solve(costs: &[f64], rows: &[Row]) -> Option<f64> {
    match simplex::minimise(costs, rows) {
        Answer::Optimum { value, x } => {
            // The textbook's own rounding must be far below what the tests look for.
            for (left, relation, right) in rows {
                let scale = left.iter().fold(right.abs(), |most, value| most.max(value.abs()));
                let over = (dot(left, &x) - right) / scale.max(f64::MIN_POSITIVE);
                let mass = x.iter().sum::<f64>().max(1.0);
                let within = over <= 1e-10 * mass
                    && (*relation == Relation::AtMost || over >= -1e-10 * mass);
                assert!(within, "the textbook's solution is {over} off a row");
            }
            Some(value)
        }
        Answer::Infeasible => None,
        Answer::Unbounded => panic!("no program of the paper is unbounded"),
    }
}
