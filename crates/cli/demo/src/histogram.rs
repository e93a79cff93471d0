//! Tests whether bytes look like noise, with a chi-squared test of their histogram.

use serde::Serialize;

/// The range of chi-squared with 255 degrees of freedom, except for one case in ten million: its
/// quantiles at 5e-8 and 1 - 5e-8. With six captures to test, one demo in 1.6 million fails by
/// chance.
pub(super) const NOISE_RANGE: (f64, f64) = (152.34, 394.06);

/// With fewer bytes, 64 of each value, chi-squared does not follow its distribution at such
/// quantiles.
const MIN_BYTES: u64 = 64 * 256;

/// The result of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NoiseVerdict {
    /// The histogram is typical of uniform bytes.
    Noise,
    /// The histogram is not typical of uniform bytes.
    NotNoise,
    /// There are too few bytes for the test.
    TooShort,
}

/// The frequency of each byte value.
#[derive(Clone)]
pub(super) struct ByteHistogram {
    counts: [u64; 256],
}

impl ByteHistogram {
    /// An empty histogram.
    pub(super) fn new() -> Self {
        Self { counts: [0; 256] }
    }

    /// Counts bytes, fewer than 2^32 at a time.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        // With one table, equal consecutive bytes would wait for each other's count.
        let mut tables = [[0u32; 256]; 4];
        let (fours, rest) = bytes.as_chunks::<4>();
        for &[first, second, third, fourth] in fours {
            tables[0][usize::from(first)] += 1;
            tables[1][usize::from(second)] += 1;
            tables[2][usize::from(third)] += 1;
            tables[3][usize::from(fourth)] += 1;
        }
        for &byte in rest {
            tables[0][usize::from(byte)] += 1;
        }
        for table in tables {
            for (count, more) in self.counts.iter_mut().zip(table) {
                *count += u64::from(more);
            }
        }
    }

    /// Adds another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    /// Chi-squared against uniform bytes; `None` if there are too few bytes.
    pub(super) fn chi_squared(&self) -> Option<f64> {
        let total: u64 = self.counts.iter().sum();
        if total < MIN_BYTES {
            return None;
        }
        Some(chi_squared(&self.counts))
    }
}

/// Chi-squared of how often each byte value occurs, against uniform bytes: 255 degrees of freedom.
pub fn chi_squared(counts: &[u64; 256]) -> f64 {
    let expected = to_f64(counts.iter().sum()) / 256.0;
    let deviations = counts.iter().map(|&count| (to_f64(count) - expected).powi(2));
    deviations.sum::<f64>() / expected
}

/// The result of the test for a value of chi-squared.
pub(super) fn verdict(chi_squared: Option<f64>) -> NoiseVerdict {
    match chi_squared {
        None => NoiseVerdict::TooShort,
        Some(value) if (NOISE_RANGE.0..=NOISE_RANGE.1).contains(&value) => NoiseVerdict::Noise,
        Some(_) => NoiseVerdict::NotNoise,
    }
}

/// Exact up to 2^53, which no file here reaches.
#[expect(clippy::cast_precision_loss)]
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use random::RandomGenerator;

    use super::*;

    fn of_bytes(bytes: &[u8]) -> Option<f64> {
        let mut histogram = ByteHistogram::new();
        histogram.add(bytes);
        histogram.chi_squared()
    }

    #[test]
    fn counts_do_not_depend_on_the_pieces() {
        let bytes: Vec<u8> =
            (0..100_003u32).map(|i| (i.wrapping_mul(i) >> 5).to_le_bytes()[0]).collect();
        let mut histogram = ByteHistogram::new();
        let mut other = ByteHistogram::new();
        for (index, piece) in bytes.chunks(1001).enumerate() {
            if index % 2 == 0 { histogram.add(piece) } else { other.add(piece) }
        }
        histogram.merge(&other);
        let mut expected = [0; 256];
        for byte in bytes {
            expected[usize::from(byte)] += 1;
        }
        assert_eq!(histogram.counts, expected);
    }

    #[test]
    fn chi_squared_matches_known_values() {
        assert_eq!(of_bytes(&[0; 16383]), None);
        let even: Vec<u8> = (0..=255).cycle().take(16384).collect();
        // Bytes that are too evenly distributed are as unlikely as uneven ones.
        assert_eq!(of_bytes(&even), Some(0.0));
        assert_eq!(verdict(Some(0.0)), NoiseVerdict::NotNoise);
        // A single value: (n - n/256)^2 / (n/256) + 255 n/256 = 255 n.
        assert_eq!(of_bytes(&[7; 16384]), Some(255.0 * 16384.0));
        assert_eq!(verdict(None), NoiseVerdict::TooShort);
    }

    #[test]
    fn random_bytes_are_noise_and_text_is_not() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let mut sum = 0.0;
        for _ in 0..1000 {
            let mut bytes = vec![0; 16384];
            generator.fill(&mut bytes).unwrap();
            let value = of_bytes(&bytes).unwrap();
            assert_eq!(verdict(Some(value)), NoiseVerdict::Noise, "{value}");
            sum += value;
        }
        // The mean of chi-squared is 255; the mean of 1000 values has a standard deviation of 0.7.
        assert!((sum / 1000.0 - 255.0).abs() < 5.0, "{sum}");
        let text = include_bytes!("histogram.rs").repeat(10);
        assert_eq!(verdict(of_bytes(&text)), NoiseVerdict::NotNoise);
    }
}
