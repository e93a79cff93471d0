//! Pearson's chi-squared test of counts.
//!
//! The statistic is converted to a nearly normal one (Wilson and Hilferty, 1931). It must be
//! neither too great nor too small, as counts that are too even are suspicious, too.

use std::f64::consts::SQRT_2;
use std::iter;

use libm::erfc;

/// Chi-squared of counts, and its degrees of freedom.
#[derive(Clone, Copy, Debug)]
pub struct ChiSquared {
    statistic: f64,
    degrees: f64,
}

impl ChiSquared {
    /// Of counts of which each is expected to be the same, as those of uniform bytes are.
    ///
    /// # Panics
    /// If there are no counts, or all are zero.
    pub fn of_uniform(counts: &[u32]) -> Self {
        let sum: f64 = counts.iter().copied().map(f64::from).sum();
        Self::of_expected(counts, iter::repeat(sum / to_f64(counts.len())))
    }

    /// Of counts, each of which is expected to be as stated.
    ///
    /// # Panics
    /// If there are no counts, or one is expected to be zero.
    pub fn of_expected(counts: &[u32], expected: impl IntoIterator<Item = f64>) -> Self {
        let terms = counts.iter().zip(expected).map(|(&count, expected)| {
            assert!(expected > 0.0, "{expected} are expected");
            (f64::from(count) - expected).powi(2) / expected
        });
        Self { statistic: terms.sum(), degrees: to_f64(counts.len() - 1) }
    }

    /// Of rows of counts that are expected to come from one distribution. Columns of zeros do not
    /// count.
    ///
    /// # Panics
    /// If there are no rows, or one is shorter than the first.
    pub fn of_rows<R: AsRef<[u32]>>(rows: &[R]) -> Self {
        let sum = |row: &R| row.as_ref().iter().copied().map(f64::from).sum::<f64>();
        let row_sums: Vec<f64> = rows.iter().map(sum).collect();
        let total: f64 = row_sums.iter().sum();
        let (mut statistic, mut columns) = (0.0, 0_usize);
        for column in 0..rows[0].as_ref().len() {
            let counts: Vec<f64> = rows.iter().map(|row| f64::from(row.as_ref()[column])).collect();
            let column_sum: f64 = counts.iter().sum();
            if column_sum > 0.0 {
                columns += 1;
                for (count, row_sum) in counts.iter().zip(&row_sums) {
                    let expected = column_sum * row_sum / total;
                    statistic += (count - expected).powi(2) / expected;
                }
            }
        }
        let degrees = to_f64(columns.saturating_sub(1)) * to_f64(rows.len() - 1);
        Self { statistic, degrees }
    }

    /// By how many of its standard deviations the statistic is above its mean.
    pub fn deviations(self) -> f64 {
        if self.degrees < 1.0 {
            return 0.0;
        }
        (self.statistic - self.degrees) / (2.0 * self.degrees).sqrt()
    }

    /// Whether counts are as expected. By chance they are not with the probability `false_alarm`,
    /// or less often: by a seventh with 63 or more degrees of freedom, by a third with 5.
    pub fn passes(self, false_alarm: f64) -> bool {
        self.two_sided_p() >= false_alarm
    }

    /// The probability that chance deviates as far, in either direction.
    fn two_sided_p(self) -> f64 {
        let spread = 2.0 / (9.0 * self.degrees);
        let z = ((self.statistic / self.degrees).cbrt() - (1.0 - spread)) / spread.sqrt();
        erfc(z.abs() / SQRT_2)
    }
}

/// How often each byte value occurs.
pub fn byte_counts(bytes: impl IntoIterator<Item = u8>) -> [u32; 256] {
    let mut counts = [0; 256];
    for byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    counts
}

#[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^53")]
fn to_f64(len: usize) -> f64 {
    len as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRng;

    #[test]
    fn probabilities_are_those_of_tables() {
        // Quantiles of chi-squared at twice these probabilities, above and below its mean.
        for (statistic, degrees, p) in [
            (293.248, 255.0, 0.1),
            (310.457, 255.0, 0.02),
            (67.505, 50.0, 0.1),
            (34.764, 50.0, 0.1),
            (394.06, 255.0, 1e-7),
            (152.34, 255.0, 1e-7),
        ] {
            let found = ChiSquared { statistic, degrees }.two_sided_p();
            assert!((found / p - 1.0).abs() < 0.1, "{found} is not {p}");
        }
    }

    #[test]
    fn statistics_are_those_of_a_calculation_by_hand() {
        let uniform = ChiSquared::of_uniform(&[10, 20, 30]);
        let expected = ChiSquared::of_expected(&[10, 20, 30], [20.0, 10.0, 30.0]);
        // The column of zeros does not count.
        let rows = ChiSquared::of_rows(&[[10_u32, 20, 0], [20, 10, 0]]);
        for (found, statistic, degrees) in
            [(uniform, 10.0, 2.0), (expected, 15.0, 2.0), (rows, 20.0 / 3.0, 1.0)]
        {
            assert!((found.statistic - statistic).abs() < 1e-9, "{found:?}");
            assert!((found.degrees - degrees).abs() < 1e-9, "{found:?}");
            let deviations = (statistic - degrees) / (2.0 * degrees).sqrt();
            assert!((found.deviations() - deviations).abs() < 1e-9, "{found:?}");
        }
        assert!(ChiSquared::of_rows(&[[0_u32; 3]; 2]).deviations().abs() < 1e-9);
    }

    #[test]
    fn random_bytes_pass_and_uneven_and_too_even_ones_do_not() {
        let mut rng = SeededRng::new(1);
        let random = byte_counts(rng.bytes::<16_000>());
        assert!(ChiSquared::of_uniform(&random).passes(1e-3));
        let even = byte_counts((0..=255).cycle().take(20_480));
        assert_eq!(even, [80; 256]);
        let text = byte_counts(include_bytes!("statistics.rs").iter().copied());
        for counts in [even, text] {
            assert!(!ChiSquared::of_uniform(&counts).passes(1e-9));
        }
        assert!(!ChiSquared::of_rows(&[random, text]).passes(1e-9));
        assert!(!ChiSquared::of_rows(&[random, random]).passes(1e-9), "too similar");
    }
}
