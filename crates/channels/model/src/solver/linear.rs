//! The parts of a linear program over schedules: columns, linear functions of them, and rows.

use std::ops::RangeInclusive;

use crate::channels::{ChannelSet, MAX_CHANNELS, ShareSelection};
use crate::double_double::DoubleDouble;
use crate::schedules::SelectionProperties;

/// By how much the coefficient of a property is reduced in a reduced cost, relative to the terms
/// that it is the sum of. This exceeds the rounding in a property (at most 250 roundings, for 20
/// channels and 16 scenarios) and in a coefficient (50 roundings), each of 1.1e-16.
pub(crate) const ROUNDING: f64 = 1e-13;

/// A variable of a program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramColumn {
    pub(crate) selection: ShareSelection,
    pub(crate) properties: SelectionProperties,
}

impl ProgramColumn {
    pub(crate) fn new(set: &ChannelSet, selection: ShareSelection) -> Self {
        Self { selection, properties: set.properties(selection) }
    }
}

/// The quantity whose total is 1 in all solutions of a program. Reduced costs refer to one unit of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramUnit {
    /// A symbol that is sent.
    Sent,
    /// A symbol that arrives.
    Delivered,
    /// None: the program maximises the sum of q.
    Rate,
}

/// A linear function of a selection: a coefficient for each quantity of a program. All quantities
/// except the properties are exact, and stay exact.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinearFunction {
    pub(crate) constant: DoubleDouble,
    pub(crate) k: DoubleDouble,
    pub(crate) m: DoubleDouble,
    /// For each channel, the coefficient if it is in M. Empty if no channel matters.
    pub(crate) channels: Vec<DoubleDouble>,
    pub(crate) properties: PropertyWeights,
}

/// A coefficient for each property of a selection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PropertyWeights {
    pub(crate) risk: f64,
    pub(crate) loss: f64,
    pub(crate) delay_ms: f64,
    /// For (1 - l) d, the delay weighted by delivery.
    pub(crate) delivered_delay_ms: f64,
    /// For 1 - l.
    pub(crate) delivered: f64,
}

impl LinearFunction {
    /// The function's value for a column.
    #[expect(clippy::cast_precision_loss, reason = "k and m are small")]
    pub(crate) fn evaluate(&self, column: &ProgramColumn) -> DoubleDouble {
        let ProgramColumn { selection, properties } = column;
        let used = self.channels.iter().enumerate();
        let used = used.filter(|(i, _)| selection.channels().contains(*i)).map(|(_, w)| *w);
        let sum = used.fold(self.constant, |sum, weight| sum + weight);
        let counted =
            self.k * (selection.k() as f64).into() + self.m * (selection.m() as f64).into();
        let weights = self.properties;
        let terms = [
            (weights.risk, properties.risk),
            (weights.loss, properties.loss),
            (weights.delay_ms, properties.delay_ms),
            (weights.delivered_delay_ms, properties.delivered_delay_ms()),
            (weights.delivered, properties.delivered),
        ];
        terms.into_iter().fold(sum + counted, |sum, (a, b)| sum + DoubleDouble::from(a) * b.into())
    }

    /// The same in another unit.
    pub(crate) fn scaled(mut self, factor: f64) -> Self {
        let by = DoubleDouble::from(factor);
        (self.constant, self.k, self.m) = (self.constant * by, self.k * by, self.m * by);
        self.channels.iter_mut().for_each(|weight| *weight = *weight * by);
        self.properties = PropertyWeights::default().plus_scaled(self.properties, factor);
        self
    }
}

impl PropertyWeights {
    /// The sum of these weights and `factor` times `other`.
    pub(crate) fn plus_scaled(self, other: Self, factor: f64) -> Self {
        Self {
            risk: self.risk + factor * other.risk,
            loss: self.loss + factor * other.loss,
            delay_ms: self.delay_ms + factor * other.delay_ms,
            delivered_delay_ms: self.delivered_delay_ms + factor * other.delivered_delay_ms,
            delivered: self.delivered + factor * other.delivered,
        }
    }

    /// The same with the absolute value of each coefficient.
    pub(crate) fn absolute(self) -> Self {
        Self {
            risk: self.risk.abs(),
            loss: self.loss.abs(),
            delay_ms: self.delay_ms.abs(),
            delivered_delay_ms: self.delivered_delay_ms.abs(),
            delivered: self.delivered.abs(),
        }
    }

    /// Whether it depends on delivery or a delay.
    pub(crate) fn needs_delivery(self) -> bool {
        self.delay_ms != 0.0 || self.delivered_delay_ms != 0.0 || self.delivered != 0.0
    }
}

/// A lower bound on the reduced cost of every selection, as a linear function of it.
#[derive(Clone, Debug)]
pub(crate) struct ReducedCost {
    pub(crate) constant: f64,
    /// For each threshold, at index k.
    pub(crate) by_k: [f64; MAX_CHANNELS + 1],
    /// For each channel in M.
    pub(crate) channels: Vec<f64>,
    pub(crate) properties: PropertyWeights,
}

/// How a row's left side relates to its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowRelation {
    /// The sum of q times the row's function is `right`.
    Equal,
    /// It is at most `right`.
    AtMost,
}

/// A row of a program: a linear condition on q.
#[derive(Clone, Debug)]
pub(crate) struct ProgramRow {
    pub(crate) left: LinearFunction,
    pub(crate) relation: RowRelation,
    pub(crate) right: f64,
}

/// The selections that a program may use.
#[derive(Clone, Debug)]
pub(crate) struct SelectionLimits {
    pub(crate) min_k: usize,
    pub(crate) min_m: usize,
    /// The delays that the kth fastest channel may have. `None`: any.
    pub(crate) kth_delay_ms: Option<RangeInclusive<f64>>,
}

impl SelectionLimits {
    pub(crate) fn allow(&self, set: &ChannelSet, selection: ShareSelection) -> bool {
        let (k, channels) = (selection.k(), selection.channels());
        let mut by_delay = set.by_delay().iter().filter(|channel| channels.contains(**channel));
        let kth = by_delay.nth(k - 1).map(|channel| set.channels()[*channel].delay_ms());
        k >= self.min_k && selection.m() >= self.min_m && kth.is_some_and(|ms| self.allow_delay(ms))
    }

    /// Whether the kth fastest channel may have this delay.
    pub(crate) fn allow_delay(&self, delay_ms: f64) -> bool {
        self.kth_delay_ms.as_ref().is_none_or(|delays| delays.contains(&delay_ms))
    }
}

/// Minimise the sum of q times `objective`, subject to `rows`, over all selections within `limits`.
#[derive(Clone, Debug)]
pub(crate) struct LinearProgram {
    pub(crate) objective: LinearFunction,
    pub(crate) rows: Vec<ProgramRow>,
    pub(crate) limits: SelectionLimits,
    /// The quantity whose total is 1. Except for [`ProgramUnit::Rate`], the objective is a
    /// property.
    pub(crate) unit: ProgramUnit,
}
