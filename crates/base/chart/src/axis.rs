//! Axes: their ranges, ticks and labels.

use std::ops::{Range, RangeInclusive};

/// An axis and its label.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartAxis {
    label: String,
    range: Range<f64>,
    ticks: Vec<f64>,
    scale: AxisScale,
}

/// How a value is mapped to a position on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AxisScale {
    /// The position is the value. Ticks are labelled with `digits` decimals.
    Linear { digits: usize },
    /// The position is the decimal logarithm, at least `floor`. If `zero`, the position of 0 is
    /// there.
    Logarithmic { floor: f64, zero: bool },
}

impl ChartAxis {
    /// An axis for whole numbers and the values between them. Up to eleven numbers have a tick
    /// each.
    pub fn for_integers(label: &str, numbers: RangeInclusive<u32>) -> Self {
        let (first, last) = numbers.into_inner();
        let step = (last.saturating_sub(first) / 10 + 1) as usize;
        let ticks = (first..=last).step_by(step).map(f64::from).collect();
        let (first, last) = (f64::from(first), f64::from(last));
        // A single number is in the middle of the axis.
        let range = if first < last { first..last } else { first - 0.5..first + 0.5 };
        Self { label: label.to_owned(), range, ticks, scale: AxisScale::Linear { digits: 0 } }
    }

    /// A linear axis from 0, or from the minimum if that is negative, to the maximum.
    pub fn from_zero(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = finite(values).collect();
        let min = values.iter().copied().fold(0.0, f64::min);
        Self::linear(label, min, highest(values.into_iter()))
    }

    /// A linear axis from about the minimum to the maximum. Values must not be negative.
    pub fn from_minimum(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = finite(values).collect();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        Self::linear(label, min, highest(values.into_iter()))
    }

    /// A logarithmic axis if the positive values span two decades, otherwise a linear axis from 0.
    /// Values must not be negative.
    pub fn auto_scaled(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = finite(values).collect();
        let max = highest(values.iter().copied());
        let min = values.iter().copied().filter(|value| *value > 0.0).fold(max, f64::min);
        if max > 0.0 && max >= 100.0 * min {
            Self::logarithmic(label, min, max, values.contains(&0.0))
        } else {
            Self::linear(label, 0.0, max)
        }
    }

    fn linear(label: &str, min: f64, max: f64) -> Self {
        // If all values are equal, the axis extends from 0 to twice that value.
        let (min, max) = if max - min > 1e-6 * max {
            (min, max)
        } else if max > 0.0 {
            (0.0, 2.0 * max)
        } else {
            (0.0, 1.0)
        };
        let rough = (max - min) / 6.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * unit >= rough);
        let step = step.unwrap_or(10.0) * unit;
        let start = (min / step).floor();
        let ticks = (0..=8).map(|i| (start + f64::from(i)) * step);
        let mut ticks: Vec<f64> = ticks.collect();
        let enough = ticks.iter().position(|tick| *tick >= max * (1.0 - 1e-9));
        ticks.truncate(enough.map_or(ticks.len(), |last| last + 1));
        let end = ticks.last().copied().unwrap_or(max);
        let digits = (0..12).find(|digits| step * 10_f64.powi(*digits) > 0.999).unwrap_or(12);
        let digits = usize::try_from(digits).unwrap_or(0);
        let range = start * step..end.max(max);
        Self { label: label.to_owned(), range, ticks, scale: AxisScale::Linear { digits } }
    }

    fn logarithmic(label: &str, min: f64, max: f64, zero: bool) -> Self {
        let highest = max.log10().ceil();
        // Lower values are rounding errors of sums.
        let lowest = min.log10().floor().max(highest - 40.0);
        let step = ((highest - lowest) / 7.0).ceil().max(1.0);
        // The axis ends at a tick.
        let steps = ((highest - lowest) / step).ceil() + if zero { 1.0 } else { 0.0 };
        let floor = highest - steps * step;
        let downwards = (0..=8).map(|i| highest - f64::from(i) * step);
        let ticks = downwards.take_while(|tick| *tick >= floor).collect();
        let scale = AxisScale::Logarithmic { floor, zero };
        Self { label: label.to_owned(), range: floor..highest, ticks, scale }
    }

    /// The measured quantity and its unit.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The first and the last position.
    pub(crate) fn range(&self) -> Range<f64> {
        self.range.clone()
    }

    /// The positions of the ticks.
    pub(crate) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// The position of a value; `None` if it is not finite.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        value.is_finite().then(|| match self.scale {
            AxisScale::Linear { .. } => value,
            AxisScale::Logarithmic { floor, .. } => value.log10().max(floor),
        })
    }

    /// The distance between ticks.
    fn step(&self) -> f64 {
        self.ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }

    /// The label of the tick at a position.
    pub(crate) fn tick_label(&self, position: f64) -> String {
        match self.scale {
            // Zero, up to a rounding error.
            AxisScale::Linear { .. } if position.abs() < self.step() * 1e-6 => String::from("0"),
            AxisScale::Linear { digits } if position.abs() >= 1e7 || digits > 5 => {
                scientific(position)
            }
            AxisScale::Linear { digits } => format!("{position:.digits$}"),
            AxisScale::Logarithmic { floor, zero: true } if position <= floor => String::from("0"),
            AxisScale::Logarithmic { .. } => power_of_ten(position),
        }
    }
}

fn finite(values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    values.filter(|value| value.is_finite())
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// A number as a multiple of a power of ten, to four digits: `2.5×10⁹`.
fn scientific(number: f64) -> String {
    let written = format!("{number:.3e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let power = raised_ten(exponent);
    match digits.trim_end_matches('0').trim_end_matches('.') {
        "1" => power,
        "-1" => format!("-{power}"),
        digits => format!("{digits}\u{d7}{power}"),
    }
}

/// The label for a power of ten.
fn power_of_ten(exponent: f64) -> String {
    if (-3.0..=0.0).contains(&exponent) {
        return 10_f64.powf(exponent).to_string();
    }
    raised_ten(&format!("{exponent:.0}"))
}

/// Ten with a superscript exponent.
fn raised_ten(exponent: &str) -> String {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}',
        '\u{2078}', '\u{2079}',
    ];
    let raised = exponent.chars().map(|c| match c.to_digit(10) {
        Some(digit) => DIGITS[digit as usize],
        None => '\u{207b}',
    });
    format!("10{}", raised.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &ChartAxis) -> Vec<String> {
        axis.ticks.iter().map(|tick| axis.tick_label(*tick)).collect()
    }

    #[test]
    fn the_range_includes_negative_values() {
        let axis = ChartAxis::from_zero("z", [-1.6, 0.4].into_iter());
        assert!(axis.range.start <= -1.6 && axis.range.end >= 0.4, "{:?}", axis.range);
        assert!(axis.ticks.iter().any(|tick| tick.abs() < 1e-9), "{:?}", axis.ticks);
        assert!(ChartAxis::from_zero("z", [1.0, 2.5].into_iter()).range.start.abs() < 1e-9);
    }

    #[test]
    fn axes_are_logarithmic_if_values_span_decades() {
        let axis = ChartAxis::auto_scaled("", [1e-4, 0.5, 0.0].into_iter());
        assert_eq!(labels(&axis), ["1", "0.1", "0.01", "0.001", "10\u{207b}\u{2074}", "0"]);
        assert_eq!(axis.position(0.0), Some(axis.range.start));
        assert!(axis.position(1e-4) > Some(axis.range.start));
        let zero = ChartAxis::auto_scaled("", [0.0, 0.0].into_iter());
        assert_eq!(zero.range, 0.0..1.0);
        let near = ChartAxis::auto_scaled("", [0.02, 0.3].into_iter());
        assert_eq!(near.scale, AxisScale::Linear { digits: 2 });
    }

    #[test]
    fn a_logarithmic_axis_ends_at_a_tick() {
        for decades in 2..60 {
            let min = 10_f64.powi(-decades);
            for values in [[1.0, min], [0.0, 1.0]] {
                let axis = ChartAxis::auto_scaled("", values.into_iter().chain([min]));
                assert_eq!(axis.ticks.last(), Some(&axis.range.start), "{decades}");
                assert!(axis.ticks.len() >= 3 && axis.ticks.len() <= 9, "{axis:?}");
            }
        }
    }

    #[test]
    fn linear_axes_have_few_round_ticks() {
        assert_eq!(
            labels(&ChartAxis::from_zero("", [3.0, 250.0].into_iter())),
            ["0", "50", "100", "150", "200", "250"]
        );
        let around = ChartAxis::from_minimum("", [10.03, 10.11].into_iter());
        assert_eq!(labels(&around), ["10.02", "10.04", "10.06", "10.08", "10.10", "10.12"]);
        let equal = ChartAxis::from_minimum("", [5.0, 5.0].into_iter());
        assert_eq!(equal.range, 0.0..10.0);
    }

    #[test]
    fn tick_labels_are_short() {
        assert_eq!(
            labels(&ChartAxis::from_zero("", [2.5e9].into_iter())),
            [
                "0",
                "5\u{d7}10\u{2078}",
                "10\u{2079}",
                "1.5\u{d7}10\u{2079}",
                "2\u{d7}10\u{2079}",
                "2.5\u{d7}10\u{2079}"
            ]
        );
        assert_eq!(
            labels(&ChartAxis::from_zero("", [0.01].into_iter())),
            ["0", "0.002", "0.004", "0.006", "0.008", "0.010"]
        );
        let small = labels(&ChartAxis::from_zero("", [-2e-9, 2e-9].into_iter()));
        assert_eq!(
            small,
            [
                "-2\u{d7}10\u{207b}\u{2079}",
                "-10\u{207b}\u{2079}",
                "0",
                "10\u{207b}\u{2079}",
                "2\u{d7}10\u{207b}\u{2079}"
            ]
        );
        let huge = ChartAxis::for_integers("", 0..=u32::MAX);
        assert_eq!(huge.tick_label(0.0), "0");
    }

    #[test]
    fn whole_numbers_have_a_tick_each_while_they_are_few() {
        assert_eq!(labels(&ChartAxis::for_integers("", 1..=5)), ["1", "2", "3", "4", "5"]);
        assert_eq!(
            labels(&ChartAxis::for_integers("", 0..=20)),
            ["0", "3", "6", "9", "12", "15", "18"]
        );
        let one = ChartAxis::for_integers("", 3..=3);
        assert_eq!((labels(&one), one.range), (vec![String::from("3")], 2.5..3.5));
    }

    #[test]
    fn values_that_are_not_finite_have_no_position() {
        let values = [f64::NAN, f64::INFINITY, 1.0];
        let axis = ChartAxis::from_zero("", values.into_iter());
        assert_eq!(axis, ChartAxis::from_zero("", [1.0].into_iter()));
        assert_eq!(values.map(|value| axis.position(value)), [None, None, Some(1.0)]);
        assert_eq!(ChartAxis::from_minimum("", [].into_iter()).range, 0.0..1.0);
    }
}
