//! Limits the number of pairs, in total and for each source. If all are taken, a source with few
//! ends gets the place of a pair of the source with the most.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The largest number of pairs.
pub(super) const MAX_PAIRS: usize = 512;

/// The largest number of ends of pairs from one source, which may be a site behind address
/// translation.
pub(super) const MAX_ENDS_OF_SOURCE: usize = 128;

/// How many ends more another source must have, so that one of its pairs is ended. A pair can have
/// two ends from one source: with fewer, two sources could end each other's pairs endlessly.
const MIN_MORE_ENDS: usize = 3;

/// The limiter of pairs.
#[derive(Debug, Default)]
pub(super) struct RelayPairLimiter(Mutex<RelayPairCounts>);

#[derive(Debug, Default)]
struct RelayPairCounts {
    /// The number of the next permit, for unique numbers.
    next: u64,
    /// Oldest first.
    held: Vec<HeldPair>,
    ends: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct HeldPair {
    number: u64,
    /// The sources of its ends.
    sources: Vec<IpAddr>,
    /// The permit sees when this is dropped.
    _kept: oneshot::Sender<()>,
}

/// The permit of a pair, returned when it is dropped.
#[derive(Debug)]
pub(super) struct RelayPairPermit {
    pairs: Arc<RelayPairLimiter>,
    number: u64,
    evicted: oneshot::Receiver<()>,
}

impl RelayPairLimiter {
    fn lock(&self) -> MutexGuard<'_, RelayPairCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current number of pairs.
    pub(super) fn count(&self) -> usize {
        self.lock().held.len()
    }

    /// Whether a source may have another end of a pair.
    pub(super) fn has_room(&self, source: IpAddr) -> bool {
        self.lock().has_room(source)
    }

    /// Takes a permit for a pair with an end from this source; `None` if there is none. If all are
    /// taken, the newest pair of the source with the most ends is evicted, if that has enough more.
    pub(super) fn take(self: &Arc<Self>, source: IpAddr) -> Option<RelayPairPermit> {
        let mut counted = self.lock();
        if !counted.has_room(source) {
            return None;
        }
        if counted.held.len() >= MAX_PAIRS {
            let evicted = counted.pair_to_evict(source)?;
            counted.remove(evicted);
        }
        let (kept, evicted) = oneshot::channel();
        let number = counted.next;
        counted.next += 1;
        counted.held.push(HeldPair { number, sources: Vec::new(), _kept: kept });
        counted.add(number, source);
        drop(counted);
        Some(RelayPairPermit { pairs: self.clone(), number, evicted })
    }
}

impl RelayPairCounts {
    fn has_room(&self, source: IpAddr) -> bool {
        self.ends.get(&source).is_none_or(|ends| *ends < MAX_ENDS_OF_SOURCE)
    }

    /// The pair whose place a new one from this source gets.
    fn pair_to_evict(&self, source: IpAddr) -> Option<u64> {
        let (crowded, most) = self.ends.iter().max_by_key(|(_, ends)| **ends)?;
        let own = self.ends.get(&source).copied().unwrap_or(0);
        if *most < own + MIN_MORE_ENDS {
            return None;
        }
        let newest = self.held.iter().rfind(|pair| pair.sources.contains(crowded));
        newest.map(|pair| pair.number)
    }

    /// Counts an end of a pair from this source.
    fn add(&mut self, number: u64, source: IpAddr) {
        if let Some(pair) = self.held.iter_mut().find(|pair| pair.number == number) {
            pair.sources.push(source);
            *self.ends.entry(source).or_default() += 1;
        }
    }

    /// Removes a pair, unless it was evicted.
    fn remove(&mut self, number: u64) {
        let Some(place) = self.held.iter().position(|pair| pair.number == number) else { return };
        let HeldPair { sources, .. } = self.held.remove(place);
        for source in sources {
            if let Some(ends) = self.ends.get_mut(&source) {
                *ends -= 1;
                if *ends == 0 {
                    self.ends.remove(&source);
                }
            }
        }
    }
}

impl RelayPairPermit {
    /// Counts an end from this source.
    pub(super) fn add(&self, source: IpAddr) {
        self.pairs.lock().add(self.number, source);
    }

    /// Waits until another pair gets the place of this one.
    pub(super) async fn evicted(&mut self) {
        // Nothing is sent: the sender is dropped.
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for RelayPairPermit {
    fn drop(&mut self) {
        self.pairs.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_source_has_its_part_and_places_return() {
        let pairs = Arc::new(RelayPairLimiter::default());
        let mut places: Vec<RelayPairPermit> = Vec::new();
        while let Some(place) = pairs.take(source(1)) {
            places.push(place);
        }
        assert_eq!((places.len(), pairs.has_room(source(1))), (MAX_ENDS_OF_SOURCE, false));
        let of_two = pairs.take(source(2)).unwrap();
        of_two.add(source(3));
        assert_eq!(pairs.count(), MAX_ENDS_OF_SOURCE + 1);
        for last in 4..7 {
            places.extend(std::iter::from_fn(|| pairs.take(source(last))));
        }
        assert_eq!(pairs.count(), MAX_PAIRS);
        drop((places, of_two));
        assert_eq!(pairs.count(), 0);
        assert!(pairs.lock().ends.is_empty(), "nothing is remembered of a source");
    }

    /// Without this, eight sources could keep all others out.
    #[test]
    fn a_source_with_few_ends_gets_the_newest_pairs_of_those_with_the_most() {
        let pairs = Arc::new(RelayPairLimiter::default());
        let taken = |last| std::iter::from_fn(|| pairs.take(source(last))).collect::<Vec<_>>();
        let mut held: Vec<Vec<RelayPairPermit>> = (1..=4).map(taken).collect();
        assert_eq!(pairs.count(), MAX_PAIRS);
        let new = taken(9);
        // A fifth of all, or nearly.
        assert!((95..=102).contains(&new.len()), "{}", new.len());
        assert_eq!(pairs.count(), MAX_PAIRS);
        let mut evicted = 0;
        for of_source in &mut held {
            let mut ends = of_source.iter_mut().map(|it| it.evicted.try_recv());
            let kept = ends.by_ref().take_while(|it| *it == Err(TryRecvError::Empty)).count();
            assert!((100..=105).contains(&kept), "{kept}");
            assert!(ends.all(|it| it == Err(TryRecvError::Closed)), "the oldest ones are kept");
            evicted += of_source.len() - kept;
        }
        assert_eq!(evicted, new.len());
        // An evicted pair does not return its place twice.
        drop(held);
        assert_eq!(pairs.count(), new.len());
        drop(new);
        assert!(pairs.lock().ends.is_empty());
    }
}
