//! Pieces of the file, and whether they are found somewhere else.
//!
//! Up to seven times as much as the file is searched, at every position, for a thousand pieces. One
//! bit of a table that fits into the fastest cache rules nearly all positions out. An automaton for
//! so many patterns does not fit, and was several times slower.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::FileExt;

use sharing::Generator;

use super::source::SourceFile;

/// How long a piece is, in bytes. That noise contains one by chance has a probability of 2^-90.
pub(super) const SAMPLE: usize = 16;

/// How many pieces are looked for.
const COUNT: usize = 1000;

/// How many different bytes a piece must have: padding and rulers are found everywhere.
const DIFFERENT: usize = 6;

/// How many places are tried for each piece before the file is taken to be too monotonous.
const TRIES: usize = 64;

/// How many bits the table has, as a power of two: 32 KiB.
const TABLE_BITS: u32 = 18;

/// Different pieces from random places of the file, ready to be searched for.
pub(super) struct Samples {
    /// Every sample's number.
    numbers: HashMap<[u8; SAMPLE], usize>,
    /// One bit for every value of [`slot`]: whether a sample has it.
    table: Vec<u64>,
}

impl Samples {
    /// Draws pieces from the file. There are fewer, or none, if the file is too short or too
    /// monotonous.
    ///
    /// # Errors
    /// When the file cannot be read, or there are no random bytes.
    pub(super) fn draw(source: &SourceFile) -> io::Result<Self> {
        let mut samples = Self { numbers: HashMap::new(), table: vec![0; 1 << (TABLE_BITS - 6)] };
        for position in positions(source.len)? {
            let mut sample = [0; SAMPLE];
            source.file.read_exact_at(&mut sample, position)?;
            if BTreeSet::from(sample).len() >= DIFFERENT {
                samples.insert(sample);
            }
            if samples.len() == COUNT {
                break;
            }
        }
        Ok(samples)
    }

    fn insert(&mut self, sample: [u8; SAMPLE]) {
        let number = self.numbers.len();
        self.numbers.entry(sample).or_insert(number);
        let slot = slot(&sample);
        self.table[slot / 64] |= 1 << (slot % 64);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Marks in `found`, one place a sample, those that occur in `bytes`.
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

/// A number below 2^`TABLE_BITS` that depends on all bytes, so that what files are full of, such as
/// zeros, is not taken for a sample that only begins like it.
fn slot(window: &[u8; SAMPLE]) -> usize {
    let (halves, _) = window.as_chunks::<8>();
    let [low, high] = [halves[0], halves[1]].map(u64::from_le_bytes);
    // The multiplier is 2^64 divided by the golden ratio: it spreads neighbours far apart.
    let spread = (low ^ high.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(spread >> (64 - TABLE_BITS)).expect("18 bits")
}

/// Where to look for pieces: everywhere in a short file, at random in a longer one.
fn positions(len: u64) -> io::Result<Vec<u64>> {
    let places = (len + 1).saturating_sub(SAMPLE as u64);
    if places <= COUNT as u64 {
        return Ok((0..places).collect());
    }
    let mut generator = Generator::seeded().map_err(io::Error::other)?;
    let draw = |_| generator.array().map(|bytes| u64::from_le_bytes(bytes) % places);
    (0..COUNT * TRIES).map(draw).collect::<Result<_, _>>().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn draw(bytes: &[u8]) -> Samples {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let len = bytes.len() as u64;
        Samples::draw(&SourceFile { file, len, description: String::new() }).unwrap()
    }

    fn count(samples: &Samples, bytes: &[u8]) -> usize {
        let mut found = vec![false; samples.len()];
        samples.search(bytes, &mut found);
        found.into_iter().filter(|&found| found).count()
    }

    #[test]
    fn all_pieces_are_found_in_the_file_and_none_in_noise() {
        for len in [16, 17, 1000, 1 << 20] {
            let mut bytes = vec![0; len];
            let mut noise = vec![0; len];
            let mut generator = Generator::seeded().unwrap();
            generator.fill(&mut bytes).unwrap();
            generator.fill(&mut noise).unwrap();
            let samples = draw(&bytes);
            assert_eq!(samples.len(), COUNT.min(len - 15), "{len}");
            assert_eq!(count(&samples, &bytes), samples.len());
            assert_eq!(count(&samples, &noise), 0);
        }
    }

    #[test]
    fn a_short_or_monotonous_file_has_no_pieces() {
        for bytes in [&[][..], &[1], b"123456789012345", &[0; 10_000], &b"abcab".repeat(1000)] {
            assert_eq!(draw(bytes).len(), 0);
        }
    }
}
