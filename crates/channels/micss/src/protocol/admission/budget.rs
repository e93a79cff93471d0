//! Limits the number of open streams and the memory for their records.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::SourceUsage;

/// The resource that was exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExhaustedResource {
    /// The number of streams.
    Streams,
    /// The memory for their records.
    Memory,
}

/// The open streams, by number.
#[derive(Debug)]
pub(crate) struct OpenStreamBudget {
    max_streams: usize,
    max_bytes: u64,
    /// One for each stream.
    places: SourceUsage,
    bytes: SourceUsage,
    next: u64,
    evicted: VecDeque<EvictedStream>,
}

/// A stream that was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictedStream {
    /// Its number.
    pub(crate) number: u64,
    /// Its source.
    pub(crate) source: IpAddr,
    /// The resource that was exhausted.
    pub(crate) limit: ExhaustedResource,
}

impl OpenStreamBudget {
    /// No streams, with these limits.
    pub(crate) fn new(max_streams: usize, max_bytes: u64) -> Self {
        let (places, bytes) = Default::default();
        Self { max_streams, max_bytes, places, bytes, next: 0, evicted: VecDeque::new() }
    }

    /// Changes the limits. Open streams stay.
    pub(crate) fn reconfigure(&mut self, max_streams: usize, max_bytes: u64) {
        (self.max_streams, self.max_bytes) = (max_streams, max_bytes);
    }

    /// Opens a stream of this source, which takes `bytes` bytes (at least one) at once. If that
    /// exceeds a limit, evicts the newest streams of the largest source.
    ///
    /// # Errors
    /// The exhausted resource, if the largest source is the stream's own.
    pub(crate) fn open(&mut self, source: IpAddr, bytes: u64) -> Result<u64, ExhaustedResource> {
        let number = self.next;
        self.next += 1;
        self.places.take(number, source, 1);
        self.bytes.take(number, source, bytes);
        match self.evict_for(number) {
            None => Ok(number),
            Some(limit) => {
                self.close(number);
                Err(limit)
            }
        }
    }

    /// Gives a stream more memory. If that exceeds the limit, evicts streams of the source that
    /// holds most, beginning with those that took memory last. Returns false if that is the
    /// stream's own source, or if the stream was evicted before.
    pub(crate) fn take(&mut self, number: u64, bytes: u64) -> bool {
        let Some(source) = self.bytes.source(number) else { return false };
        self.bytes.take(number, source, bytes);
        let may = self.evict_for(number).is_none();
        if may {
            self.bytes.renew(number);
        } else {
            self.bytes.release(number, bytes);
        }
        may
    }

    /// Returns memory of a stream.
    pub(crate) fn release(&mut self, number: u64, bytes: u64) {
        self.bytes.release(number, bytes);
    }

    /// Removes a stream that has ended.
    pub(crate) fn close(&mut self, number: u64) {
        self.places.remove(number);
        self.bytes.remove(number);
    }

    /// The next evicted stream. It is no longer counted.
    pub(crate) fn poll_evicted(&mut self) -> Option<EvictedStream> {
        self.evicted.pop_front()
    }

    /// The source of an open stream.
    pub(crate) fn source(&self, number: u64) -> Option<IpAddr> {
        self.places.source(number)
    }

    /// The number of open streams.
    pub(crate) fn streams(&self) -> u64 {
        self.places.total()
    }

    /// The number of bytes that they hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.total()
    }

    /// Evicts streams until the limits have room for this stream, or its own source is the largest.
    /// In the latter case returns the exhausted resource.
    fn evict_for(&mut self, stream: u64) -> Option<ExhaustedResource> {
        loop {
            let (limit, sources) = if self.places.total() > self.max_streams as u64 {
                (ExhaustedResource::Streams, &self.places)
            } else if self.bytes.total() > self.max_bytes {
                (ExhaustedResource::Memory, &self.bytes)
            } else {
                return None;
            };
            let newest = sources.newest_of_largest();
            let newest = newest.filter(|&newest| !sources.is_same_source(newest, stream));
            let newest = newest.and_then(|newest| Some((newest, sources.source(newest)?)));
            let Some((number, source)) = newest else { return Some(limit) };
            self.close(number);
            self.evicted.push_back(EvictedStream { number, source, limit });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn evicted(budget: &mut OpenStreamBudget) -> Vec<(u64, ExhaustedResource)> {
        let evicted = std::iter::from_fn(|| budget.poll_evicted());
        evicted.map(|evicted| (evicted.number, evicted.limit)).collect()
    }

    #[test]
    fn one_source_does_not_take_the_places_of_another() {
        let mut budget = OpenStreamBudget::new(10, 1000);
        for _ in 0..10 {
            budget.open(ip(1), 1).unwrap();
        }
        assert_eq!(
            budget.open(ip(1), 1),
            Err(ExhaustedResource::Streams),
            "its own newest is the newcomer"
        );
        assert_eq!(evicted(&mut budget), []);
        let opened: Vec<u64> = (0..5).map(|_| budget.open(ip(2), 1).unwrap()).collect();
        let gone = evicted(&mut budget);
        assert_eq!(gone, [9, 8, 7, 6, 5].map(|number| (number, ExhaustedResource::Streams)));
        assert!(budget.open(ip(2), 1).is_err(), "it has half of them");
        assert!(budget.open(ip(3), 1).is_ok());
        assert_eq!(evicted(&mut budget).len(), 1);
        assert_eq!((budget.streams(), budget.bytes()), (10, 10));
        for number in opened {
            budget.close(number);
        }
        assert!(budget.streams() < 10);
    }

    /// If as many sources as the limit have one stream each, the first ones stay.
    #[test]
    fn the_new_stream_is_evicted_among_equal_sources() {
        let mut budget = OpenStreamBudget::new(3, 1000);
        for last in 1..=3 {
            budget.open(ip(last), 1).unwrap();
        }
        assert_eq!(budget.open(ip(0), 1), Err(ExhaustedResource::Streams));
        assert_eq!(budget.open(ip(9), 1), Err(ExhaustedResource::Streams));
        assert_eq!(evicted(&mut budget), []);
    }

    #[test]
    fn memory_is_taken_from_the_source_that_has_most() {
        let mut budget = OpenStreamBudget::new(100, 1000);
        let large: Vec<u64> = (0..3).map(|_| budget.open(ip(1), 10).unwrap()).collect();
        assert!(large.iter().all(|&stream| budget.take(stream, 300)));
        let small = budget.open(ip(2), 10).unwrap();
        assert!(!budget.take(large[0], 100), "its source has most");
        assert_eq!((budget.bytes(), evicted(&mut budget)), (940, vec![]));
        assert!(budget.take(small, 300));
        assert_eq!(
            evicted(&mut budget),
            [(large[2], ExhaustedResource::Memory)],
            "it has taken some last"
        );
        assert!(!budget.take(large[2], 1), "it is over");
        assert!(!budget.take(small, 2000), "more than there is");
        budget.release(small, 300);
        budget.close(large[1]);
        budget.close(small);
        assert!(budget.take(large[0], 500));
        assert_eq!(budget.bytes(), 810);
    }

    #[test]
    fn a_stream_that_does_not_fit_into_memory_is_refused() {
        let mut budget = OpenStreamBudget::new(100, 100);
        assert_eq!(budget.open(ip(1), 101), Err(ExhaustedResource::Memory));
        assert_eq!((budget.streams(), budget.bytes()), (0, 0));
        budget.open(ip(1), 100).unwrap();
        budget.reconfigure(100, 50);
        assert_eq!(budget.streams(), 1, "what is open stays");
        assert_eq!(budget.open(ip(1), 1), Err(ExhaustedResource::Memory));
    }
}
