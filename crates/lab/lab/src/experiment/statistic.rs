//! Summaries of the repetitions of a point.

use serde::{Deserialize, Serialize};

/// How tables and graphs summarize the repetitions of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SummaryStatistic {
    /// The median, the minimum and the maximum.
    #[default]
    Range,
    /// The mean over the seeds, and its 95% confidence interval (Student's t).
    Interval,
}

/// The centre and the spread of a set of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleSpread {
    /// The median, or the mean.
    pub middle: f64,
    /// The minimum, or the lower end of the interval.
    pub low: f64,
    /// The maximum, or the upper end of the interval.
    pub high: f64,
}

impl SampleSpread {
    /// Summarizes the numbers; `None` if there are none.
    pub(crate) fn of(statistic: SummaryStatistic, mut numbers: Vec<f64>) -> Option<Self> {
        numbers.sort_by(f64::total_cmp);
        match statistic {
            SummaryStatistic::Range => Self::range(&numbers),
            SummaryStatistic::Interval => Self::interval(&numbers),
        }
    }

    fn range(sorted: &[f64]) -> Option<Self> {
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let middle = f64::midpoint(sorted[half], sorted[(sorted.len() - 1) / 2]);
        Some(Self { middle, low, high })
    }

    /// The mean of independent numbers and its 95% confidence interval. For a single number, the
    /// interval is empty.
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    fn interval(numbers: &[f64]) -> Option<Self> {
        let (least, count) = (*numbers.first()?, numbers.len() as f64);
        let mean = numbers.iter().sum::<f64>() / count;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        if numbers.len() < 2 {
            return Some(Self { middle: mean, low: mean, high: mean });
        }
        let freedom = numbers.len() - 1;
        let off = student(freedom) * (squares / freedom as f64 / count).sqrt();
        // Quantities that are never negative have no negative mean.
        let low = if least >= 0.0 { (mean - off).max(0.0) } else { mean - off };
        Some(Self { middle: mean, low, high: mean + off })
    }
}

/// The 97.5% quantile of Student's t distribution, to 0.5%.
#[expect(clippy::cast_precision_loss, reason = "there are few")]
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    let freedom = freedom.max(1);
    FEW.get(freedom - 1).copied().unwrap_or(1.96 + 2.65 / freedom as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(numbers: &[f64]) -> Option<SampleSpread> {
        SampleSpread::of(SummaryStatistic::Range, numbers.to_vec())
    }

    fn interval(numbers: &[f64]) -> Option<SampleSpread> {
        SampleSpread::of(SummaryStatistic::Interval, numbers.to_vec())
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let median = |numbers: &[f64]| range(numbers).map(|spread| spread.middle);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
        assert_eq!(
            range(&[9.0, 1.0, 2.0]),
            Some(SampleSpread { middle: 2.0, low: 1.0, high: 9.0 })
        );
    }

    /// Three seeds with mean 3 and standard deviation 1: 4.303 / sqrt(3) to either side.
    #[test]
    fn the_interval_uses_students_t() {
        let spread = interval(&[4.0, 2.0, 3.0]).unwrap();
        let off = 4.303 / 3_f64.sqrt();
        assert!((spread.middle - 3.0).abs() < 1e-12);
        assert!((spread.high - 3.0 - off).abs() < 1e-9 && (3.0 - off - spread.low).abs() < 1e-9);
        assert_eq!(interval(&[0.0, 1.0]).map(|spread| spread.low), Some(0.0));
        assert!(interval(&[-1.0, 1.0]).unwrap().low < -12.0);
        assert_eq!(interval(&[5.0]), Some(SampleSpread { middle: 5.0, low: 5.0, high: 5.0 }));
        assert_eq!(interval(&[]), None);
    }

    /// Against tables: 2.228 for 10, 2.086 for 20, 2.000 for 60 and 1.984 for 100.
    #[test]
    fn students_quantiles_match_tables() {
        for (freedom, quantile) in [(10, 2.228), (20, 2.086), (60, 2.0), (100, 1.984)] {
            assert!((student(freedom) / quantile - 1.0).abs() < 0.005, "{freedom}");
        }
    }
}
