//! The body of a loss report: packet numbers. A range is its first number with the highest bit set,
//! followed by its last number (draft-gg-udt-03, section 3.2 and appendix).

use std::ops::RangeInclusive;

use super::number::{self, MAX_WIRE};
use super::ranges::SabulNumberRanges;

const RANGE: u32 = 1 << 31;

/// The validated body of a loss report: each first number of a range is followed by a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossReport<'a>(&'a [u8]);

impl<'a> LossReport<'a> {
    /// `None` if a range has no end, or the body is empty.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let (words, rest) = body.as_chunks::<4>();
        if words.is_empty() || !rest.is_empty() {
            return None;
        }
        let mut in_range = false;
        for word in words {
            let starts = u32::from_be_bytes(*word) & RANGE != 0;
            if in_range && starts {
                return None;
            }
            in_range = starts;
        }
        (!in_range).then_some(Self(body))
    }

    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The ranges: the low 31 bits of their first and last numbers.
    pub(crate) fn ranges(self) -> impl Iterator<Item = RangeInclusive<u32>> {
        let mut words = self.0.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        std::iter::from_fn(move || {
            let first = words.next()?;
            let last = if first & RANGE == 0 { first } else { words.next()? };
            Some(first & MAX_WIRE..=last)
        })
    }
}

/// Removes the first ranges from a set, as many as fit into `max_len` bytes, and encodes them.
pub(crate) fn write_ranges(lost: &mut SabulNumberRanges, max_len: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let mut written = 0;
    for range in lost.iter() {
        if body.len() + 8 > max_len {
            break;
        }
        written = range.end;
        let (first, last) = (number::to_wire(range.start), number::to_wire(range.end - 1));
        if first != last {
            body.extend_from_slice(&(first | RANGE).to_be_bytes());
        }
        body.extend_from_slice(&last.to_be_bytes());
    }
    lost.remove(0..written);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drafts_example() {
        // draft-gg-udt-03, appendix: 3, 4, 5, 7, 9 to 12 are lost.
        let body = [3 | RANGE, 5, 7, 9 | RANGE, 12].map(u32::to_be_bytes).concat();
        let report = LossReport::parse(&body).unwrap();
        assert_eq!(report.ranges().collect::<Vec<_>>(), [3..=5, 7..=7, 9..=12]);

        let mut lost = SabulNumberRanges::default();
        for range in [3..6, 7..8, 9..13] {
            lost.insert(range);
        }
        assert_eq!(write_ranges(&mut lost.clone(), 100), body);
        assert_eq!(write_ranges(&mut lost, 19), body[..12]);
        assert_eq!(write_ranges(&mut lost, 19), body[12..]);
        assert!(lost.is_empty());
    }

    #[test]
    fn a_range_has_an_end() {
        for body in [&[RANGE][..], &[1, 2 | RANGE], &[RANGE, RANGE | 1, 2]] {
            let body: Vec<u8> = body.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(LossReport::parse(&body), None);
        }
        assert_eq!(LossReport::parse(&[]), None);
        assert_eq!(LossReport::parse(&[0; 5]), None);
    }
}
