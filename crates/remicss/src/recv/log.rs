//! A ring of bytes in which what came last is kept, and what came first gives way.

use zeroize::Zeroize;

/// What a piece's length is rounded up to, in bytes. With places of 32 bits, one means something
/// else only after 256 GiB.
const UNIT: usize = 64;

/// The least capacity, in bytes: any datagram fits.
const LEAST: usize = 1 << 17;

/// The greatest, in bytes.
const MOST: usize = 1 << 30;

/// Pieces of bytes in the order in which they came. Wiped when it is dropped.
pub(crate) struct Log {
    bytes: Box<[u8]>,
    /// Where the next piece is put, in units, as if there were no end.
    head: u32,
    /// How many of the bytes have ever been written to.
    used: usize,
}

/// Where in a [`Log`] a piece is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place(u32);

impl Log {
    /// A log of a capacity in bytes, rounded up to a power of two from 128 KiB to 1 GiB. Takes its
    /// memory now, or as the system has it, when it is first written to.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(LEAST, MOST).next_power_of_two();
        Self { bytes: vec![0; capacity].into(), head: 0, used: 0 }
    }

    /// How many pieces there can be at most in a log of a capacity.
    pub(crate) fn most_pieces(capacity: usize) -> usize {
        capacity / UNIT
    }

    /// Adds a piece, of 64 KiB at most.
    ///
    /// # Panics
    /// If it is longer than the log is.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Place {
        let place = self.next(piece.len());
        let start = self.start(place);
        let end = start + piece.len();
        self.bytes[start..end].copy_from_slice(piece);
        self.used = self.used.max(end);
        self.head = place.0.wrapping_add(units(piece.len()));
        place
    }

    /// The piece of a length at a place, unless others have taken its room.
    pub(crate) fn piece(&self, place: Place, len: usize) -> Option<&[u8]> {
        let start = self.start(place);
        self.holds(place).then(|| self.bytes.get(start..start + len)).flatten()
    }

    /// Whether the piece at a place is still there.
    pub(crate) fn holds(&self, place: Place) -> bool {
        self.head.wrapping_sub(place.0) <= self.units()
    }

    /// Whether the piece at a place will still be there when another of a length has been added.
    pub(crate) fn would_hold(&self, place: Place, len: usize) -> bool {
        let head = self.next(len).0.wrapping_add(units(len));
        self.holds(place) && head.wrapping_sub(place.0) <= self.units()
    }

    /// Goes on at the beginning, where the first piece was. For when no piece is needed any more.
    pub(crate) fn rewind(&mut self) {
        let behind = self.head % self.units();
        if behind > 0 {
            self.head = self.head.wrapping_add(self.units() - behind);
        }
    }

    /// Where the next piece goes: at the beginning if it does not fit before the end.
    fn next(&self, len: usize) -> Place {
        let left = self.units() - self.head % self.units();
        Place(if units(len) > left { self.head.wrapping_add(left) } else { self.head })
    }

    fn start(&self, place: Place) -> usize {
        (place.0 % self.units()) as usize * UNIT
    }

    /// The capacity.
    fn units(&self) -> u32 {
        units(self.bytes.len())
    }
}

/// How many units so many bytes take.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).expect("a log has less than 2^32 units")
}

impl Drop for Log {
    fn drop(&mut self) {
        self.bytes[..self.used].zeroize();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_give_way() {
        let mut log = Log::new(1);
        let pieces = [1, 2, 3].map(|byte| vec![byte; LEAST / 2]);
        let places = pieces.each_ref().map(|piece| log.push(piece));
        assert_eq!(log.piece(places[0], LEAST / 2), None);
        assert_eq!(log.piece(places[1], LEAST / 2), Some(&pieces[1][..]));
        assert_eq!(log.piece(places[2], LEAST / 2), Some(&pieces[2][..]));
        assert!(log.would_hold(places[2], LEAST / 2) && !log.would_hold(places[1], 1));
    }

    proptest! {
        #[test]
        fn what_is_there_is_what_was_put_there(
            lens in prop::collection::vec(1..65_000_usize, 1..60),
            start: u32,
        ) {
            let mut log = Log::new(LEAST);
            log.head = start;
            let mut pieces: Vec<(Place, Vec<u8>)> = Vec::new();
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
