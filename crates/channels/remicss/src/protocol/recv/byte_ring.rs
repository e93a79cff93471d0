//! A ring buffer of byte strings, in which the oldest are overwritten.

use zeroize::Zeroize;

/// Lengths are rounded up to this number of bytes. With positions of 32 bits, a position is reused
/// after 256 GiB.
const UNIT: usize = 64;

/// The minimum capacity, in bytes: any datagram fits.
const MIN_CAPACITY: usize = 1 << 17;

/// The maximum capacity, in bytes.
const MAX_CAPACITY: usize = 1 << 30;

/// A ring of byte strings, wiped on drop.
pub(crate) struct ByteRing {
    bytes: Box<[u8]>,
    /// The position of the next piece, in units, not reduced modulo the capacity.
    head: u32,
    /// The number of bytes that have ever been written.
    used: usize,
}

/// The position of a piece in a [`ByteRing`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingPosition(u32);

impl ByteRing {
    /// A ring with a capacity in bytes, rounded up to a power of two from 128 KiB to 1 GiB. The
    /// system allocates its pages when they are first written.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(MIN_CAPACITY, MAX_CAPACITY).next_power_of_two();
        Self { bytes: vec![0; capacity].into(), head: 0, used: 0 }
    }

    /// The maximum number of pieces in a ring of this capacity.
    pub(crate) fn max_pieces(capacity: usize) -> usize {
        capacity / UNIT
    }

    /// Adds a piece of at most 64 KiB.
    ///
    /// # Panics
    /// If it is longer than the ring.
    pub(crate) fn push(&mut self, piece: &[u8]) -> RingPosition {
        let place = self.next(piece.len());
        let start = self.start(place);
        let end = start + piece.len();
        self.bytes[start..end].copy_from_slice(piece);
        self.used = self.used.max(end);
        self.head = place.0.wrapping_add(units(piece.len()));
        place
    }

    /// The piece with this position and length, unless it was overwritten.
    pub(crate) fn piece(&self, place: RingPosition, len: usize) -> Option<&[u8]> {
        let start = self.start(place);
        self.holds(place).then(|| self.bytes.get(start..start + len)).flatten()
    }

    /// Whether the piece at a position is still there.
    pub(crate) fn holds(&self, place: RingPosition) -> bool {
        self.head.wrapping_sub(place.0) <= self.units()
    }

    /// Whether the piece at a position will still be there after a piece of length `len` is added.
    pub(crate) fn would_hold(&self, place: RingPosition, len: usize) -> bool {
        let head = self.next(len).0.wrapping_add(units(len));
        self.holds(place) && head.wrapping_sub(place.0) <= self.units()
    }

    /// Continues at the start of the memory. For use when no piece is needed any more.
    pub(crate) fn rewind(&mut self) {
        let behind = self.head % self.units();
        if behind > 0 {
            self.head = self.head.wrapping_add(self.units() - behind);
        }
    }

    /// The position of the next piece: at the start of the memory if it does not fit before its
    /// end.
    fn next(&self, len: usize) -> RingPosition {
        let left = self.units() - self.head % self.units();
        RingPosition(if units(len) > left { self.head.wrapping_add(left) } else { self.head })
    }

    fn start(&self, place: RingPosition) -> usize {
        (place.0 % self.units()) as usize * UNIT
    }

    /// The capacity in units.
    fn units(&self) -> u32 {
        units(self.bytes.len())
    }
}

/// The number of units for this number of bytes.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).expect("a log has less than 2^32 units")
}

impl Drop for ByteRing {
    fn drop(&mut self) {
        self.bytes[..self.used].zeroize();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_pieces_are_overwritten() {
        let mut log = ByteRing::new(1);
        let pieces = [1, 2, 3].map(|byte| vec![byte; MIN_CAPACITY / 2]);
        let places = pieces.each_ref().map(|piece| log.push(piece));
        assert_eq!(log.piece(places[0], MIN_CAPACITY / 2), None);
        assert_eq!(log.piece(places[1], MIN_CAPACITY / 2), Some(&pieces[1][..]));
        assert_eq!(log.piece(places[2], MIN_CAPACITY / 2), Some(&pieces[2][..]));
        assert!(log.would_hold(places[2], MIN_CAPACITY / 2) && !log.would_hold(places[1], 1));
    }

    proptest! {
        #[test]
        fn pieces_are_kept_until_they_are_overwritten(
            lens in prop::collection::vec(1..65_000_usize, 1..60),
            start: u32,
        ) {
            let mut log = ByteRing::new(MIN_CAPACITY);
            log.head = start;
            let mut pieces: Vec<(RingPosition, Vec<u8>)> = Vec::new();
            for (i, len) in lens.into_iter().enumerate() {
                let piece = vec![i.to_le_bytes()[0]; len];
                let kept: Vec<bool> =
                    pieces.iter().map(|(place, _)| log.would_hold(*place, len)).collect();
                pieces.push((log.push(&piece), piece));
                for (i, (place, piece)) in pieces.iter().enumerate() {
                    let expected = log.holds(*place).then_some(&piece[..]);
                    prop_assert_eq!(log.piece(*place, piece.len()), expected);
                    if let Some(kept) = kept.get(i) {
                        prop_assert_eq!(log.holds(*place), *kept);
                    }
                }
                // Two of the longest always fit.
                let live = pieces.iter().filter(|(place, _)| log.holds(*place)).count();
                prop_assert!(live >= pieces.len().min(1));
            }
        }
    }
}
