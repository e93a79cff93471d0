//! Limits the number of pairs, in total and for each source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest number of pairs.
pub(super) const MAX_PAIRS: usize = 512;

/// The largest number of ends of pairs from one source, which may be a site behind address
/// translation.
pub(super) const MAX_ENDS_OF_SOURCE: usize = 128;

/// The limiter of pairs.
#[derive(Debug, Default)]
pub(super) struct RelayPairLimiter(Mutex<RelayPairCounts>);

#[derive(Debug, Default)]
struct RelayPairCounts {
    pairs: usize,
    ends: HashMap<IpAddr, usize>,
}

/// The permit of a pair, returned when it is dropped.
#[derive(Debug)]
pub(super) struct RelayPairPermit {
    pairs: Arc<RelayPairLimiter>,
    sources: Vec<IpAddr>,
}

impl RelayPairLimiter {
    fn lock(&self) -> MutexGuard<'_, RelayPairCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current number of pairs.
    pub(super) fn count(&self) -> usize {
        self.lock().pairs
    }

    /// Whether a source may have another end of a pair.
    pub(super) fn has_room(&self, source: IpAddr) -> bool {
        self.lock().has_room(source)
    }

    /// Takes a permit for a pair with an end from this source; `None` if there is none.
    pub(super) fn take(self: &Arc<Self>, source: IpAddr) -> Option<RelayPairPermit> {
        let mut counted = self.lock();
        if counted.pairs >= MAX_PAIRS || !counted.has_room(source) {
            return None;
        }
        counted.pairs += 1;
        drop(counted);
        let mut place = RelayPairPermit { pairs: self.clone(), sources: Vec::new() };
        place.add(source);
        Some(place)
    }
}

impl RelayPairCounts {
    fn has_room(&self, source: IpAddr) -> bool {
        self.ends.get(&source).is_none_or(|ends| *ends < MAX_ENDS_OF_SOURCE)
    }
}

impl RelayPairPermit {
    /// Counts an end from this source.
    pub(super) fn add(&mut self, source: IpAddr) {
        *self.pairs.lock().ends.entry(source).or_default() += 1;
        self.sources.push(source);
    }
}

impl Drop for RelayPairPermit {
    fn drop(&mut self) {
        let mut counted = self.pairs.lock();
        counted.pairs -= 1;
        for source in &self.sources {
            if let Some(ends) = counted.ends.get_mut(source) {
                *ends -= 1;
                if *ends == 0 {
                    counted.ends.remove(source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_part_and_places_return() {
        let pairs = Arc::new(RelayPairLimiter::default());
        let source = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut places: Vec<RelayPairPermit> = Vec::new();
        while let Some(place) = pairs.take(source(1)) {
            places.push(place);
        }
        assert_eq!((places.len(), pairs.has_room(source(1))), (MAX_ENDS_OF_SOURCE, false));
        let mut of_two = pairs.take(source(2)).unwrap();
        of_two.add(source(3));
        assert_eq!(pairs.count(), MAX_ENDS_OF_SOURCE + 1);
        for last in 4..8 {
            places.extend(std::iter::from_fn(|| pairs.take(source(last))));
        }
        assert_eq!(pairs.count(), MAX_PAIRS);
        assert!(pairs.has_room(source(9)) && pairs.take(source(9)).is_none());
        drop((places, of_two));
        assert_eq!(pairs.count(), 0);
        assert!(pairs.lock().ends.is_empty(), "nothing is remembered of a source");
    }
}
