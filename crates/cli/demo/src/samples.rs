//! Samples of the file, and the search for them in captures.
//!
//! Up to seven times the length of the file is searched, at every position, for a thousand samples.
//! One bit in a table that fits into the first-level cache excludes nearly all positions. An
//! automaton for so many patterns does not fit into it, and was several times slower.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::FileExt;

use random::RandomGenerator;

use super::source::DemoSourceFile;

/// The length of a sample, in bytes. Random bytes contain one by chance with probability 2^-90.
pub(super) const SAMPLE_LEN: usize = 16;

/// The number of samples.
const MAX_SAMPLES: usize = 1000;

/// The minimum number of distinct bytes in a sample: padding and rulers occur everywhere.
const MIN_DISTINCT_BYTES: usize = 6;

/// The number of positions to try for each sample before the file counts as too monotonous.
const MAX_TRIES: usize = 64;

/// The number of bits in the table, as a power of two: 32 KiB.
const TABLE_BITS: u32 = 18;

/// Distinct samples from random positions of the file.
pub(super) struct FileSamples {
    /// The number of each sample.
    numbers: HashMap<[u8; SAMPLE_LEN], usize>,
    /// One bit for each value of [`slot`]: whether a sample has it.
    table: Vec<u64>,
}

impl FileSamples {
    /// Draws samples from the file. There are fewer or none if the file is too short or too
    /// monotonous.
    ///
    /// # Errors
    /// If the file cannot be read, or there are no random bytes.
    pub(super) fn draw(source: &DemoSourceFile) -> io::Result<Self> {
        let mut samples = Self { numbers: HashMap::new(), table: vec![0; 1 << (TABLE_BITS - 6)] };
        for position in positions(source.len)? {
            let mut sample = [0; SAMPLE_LEN];
            source.file.read_exact_at(&mut sample, position)?;
            if BTreeSet::from(sample).len() >= MIN_DISTINCT_BYTES {
                samples.insert(sample);
            }
            if samples.len() == MAX_SAMPLES {
                break;
            }
        }
        Ok(samples)
    }

    fn insert(&mut self, sample: [u8; SAMPLE_LEN]) {
        let number = self.numbers.len();
        self.numbers.entry(sample).or_insert(number);
        let slot = slot(&sample);
        self.table[slot / 64] |= 1 << (slot % 64);
    }

    /// The number of samples.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Sets the entry in `found` of each sample that occurs in `bytes`.
    pub(super) fn search(&self, bytes: &[u8], found: &mut [bool]) {
        let mut rest = bytes;
        while let Some(window) = rest.first_chunk() {
            let slot = slot(window);
            if self.table[slot / 64] >> (slot % 64) & 1 == 1
                && let Some(&number) = self.numbers.get(window)
            {
                found[number] = true;
            }
            rest = &rest[1..];
        }
    }
}

/// A number below 2^`TABLE_BITS` that depends on all bytes. So frequent bytes in files, such as
/// zeros, do not match a sample that only begins like them.
fn slot(window: &[u8; SAMPLE_LEN]) -> usize {
    let (halves, _) = window.as_chunks::<8>();
    let (low, high) = (u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1]));
    // The multiplier is 2^64 divided by the golden ratio (Fibonacci hashing).
    let spread = (low ^ high.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(spread >> (64 - TABLE_BITS)).expect("18 bits")
}

/// The positions of candidates: all in a short file, random ones in a longer file.
fn positions(len: u64) -> io::Result<Vec<u64>> {
    let count = (len + 1).saturating_sub(SAMPLE_LEN as u64);
    if count <= MAX_SAMPLES as u64 {
        return Ok((0..count).collect());
    }
    let mut generator = RandomGenerator::seeded().map_err(io::Error::other)?;
    let draw = |_| generator.array().map(|bytes| u64::from_le_bytes(bytes) % count);
    (0..MAX_SAMPLES * MAX_TRIES).map(draw).collect::<Result<_, _>>().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn draw(bytes: &[u8]) -> FileSamples {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let len = bytes.len() as u64;
        FileSamples::draw(&DemoSourceFile { file, len, description: String::new() }).unwrap()
    }

    fn count(samples: &FileSamples, bytes: &[u8]) -> usize {
        let mut found = vec![false; samples.len()];
        samples.search(bytes, &mut found);
        found.into_iter().filter(|&found| found).count()
    }

    #[test]
    fn samples_are_found_in_the_file_and_not_in_noise() {
        for len in [16, 17, 1000, 1 << 20] {
            let mut bytes = vec![0; len];
            let mut noise = vec![0; len];
            let mut generator = RandomGenerator::seeded().unwrap();
            generator.fill(&mut bytes).unwrap();
            generator.fill(&mut noise).unwrap();
            let samples = draw(&bytes);
            assert_eq!(samples.len(), MAX_SAMPLES.min(len - 15), "{len}");
            assert_eq!(count(&samples, &bytes), samples.len());
            assert_eq!(count(&samples, &noise), 0);
        }
    }

    #[test]
    fn a_short_or_monotonous_file_has_no_samples() {
        for bytes in [&[][..], &[1], b"123456789012345", &[0; 10_000], &b"abcab".repeat(1000)] {
            assert_eq!(draw(bytes).len(), 0);
        }
    }
}
