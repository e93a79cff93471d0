//! Pieces of the file, and whether they are found somewhere else.

use std::collections::BTreeSet;
use std::io;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use sharing::Generator;

use super::material::Material;

/// How long a piece is, in bytes. That noise contains one by chance has a probability of 2^-90.
pub(super) const SAMPLE: usize = 16;

/// How many pieces are looked for.
const COUNT: usize = 1000;

/// How many different bytes a piece must have: padding and rulers are found everywhere.
const DIFFERENT: usize = 6;

/// How many places are tried for each piece before the file is taken to be too monotonous.
const TRIES: usize = 64;

/// Different pieces from random places of the file, ready to be searched for.
pub(super) struct Samples {
    automaton: AhoCorasick,
}

impl Samples {
    /// Draws pieces from the file. There are fewer, or none, if the file is too short or too
    /// monotonous.
    ///
    /// # Errors
    /// When the file cannot be read, or there are no random bytes.
    pub(super) fn draw(material: &Material) -> io::Result<Self> {
        let mut samples = BTreeSet::new();
        for position in positions(material.len)? {
            let mut sample = [0; SAMPLE];
            std::os::unix::fs::FileExt::read_exact_at(&material.file, &mut sample, position)?;
            if BTreeSet::from(sample).len() >= DIFFERENT {
                samples.insert(sample);
            }
            if samples.len() == COUNT {
                break;
            }
        }
        Self::new(&samples).map_err(io::Error::other)
    }

    fn new(samples: &BTreeSet<[u8; SAMPLE]>) -> Result<Self, aho_corasick::BuildError> {
        let mut builder = AhoCorasick::builder();
        let automaton = builder.kind(Some(AhoCorasickKind::DFA)).build(samples)?;
        Ok(Self { automaton })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.automaton.patterns_len()
    }

    /// Marks in `found`, one place a sample, those that occur in `bytes`.
    pub(super) fn search(&self, bytes: &[u8], found: &mut [bool]) {
        for hit in self.automaton.find_overlapping_iter(bytes) {
            found[hit.pattern().as_usize()] = true;
        }
    }
}

/// Where to look for pieces: everywhere in a short file, at random in a long one.
fn positions(len: u64) -> io::Result<Vec<u64>> {
    let tries = COUNT * TRIES;
    let places = (len + 1).saturating_sub(SAMPLE as u64);
    if places <= tries as u64 {
        return Ok((0..places).collect());
    }
    let mut generator = Generator::seeded().map_err(io::Error::other)?;
    let draw = |_| generator.array().map(|bytes| u64::from_le_bytes(bytes) % places);
    (0..tries).map(draw).collect::<Result<_, _>>().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn draw(bytes: &[u8]) -> Samples {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let len = bytes.len() as u64;
        Samples::draw(&Material { file, len, description: String::new() }).unwrap()
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
