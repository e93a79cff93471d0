//! Limits the connections that a receiver serves at the same time, shared fairly among their
//! sources.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::net::{Connection, ConnectionCloser, source};

/// A limited number of permits for connections. If all are taken, a connection from a source that
/// has fewer than another one gets the newest permit of the source with the most: the connection
/// that held it is closed, and its sender can resume.
#[derive(Debug)]
pub struct TransferLimiter {
    max: usize,
    state: Mutex<TransferLimiterState>,
}

#[derive(Debug, Default)]
struct TransferLimiterState {
    /// The number of the next permit, for unique numbers.
    next: u64,
    /// Oldest first.
    taken: Vec<HeldTransferPermit>,
}

#[derive(Debug)]
struct HeldTransferPermit {
    number: u64,
    source: IpAddr,
    closer: ConnectionCloser,
}

/// The permit of a connection, returned when it is dropped.
#[derive(Debug)]
pub struct TransferPermit {
    places: Arc<TransferLimiter>,
    number: u64,
}

impl TransferLimiter {
    /// Creates a limiter with this many permits.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Takes a permit for a connection. If this returns `None`, tell its sender by
    /// [`Receiver::refuse`](super::FileReceiver::refuse).
    pub fn take(self: &Arc<Self>, connection: &Connection) -> Option<TransferPermit> {
        self.take_for(source(connection.peer_addr().ip()), connection)
    }

    fn take_for(
        self: &Arc<Self>,
        source: IpAddr,
        connection: &Connection,
    ) -> Option<TransferPermit> {
        let mut state = self.lock();
        let mut closed = None;
        if state.taken.len() >= self.max {
            let sources: Vec<IpAddr> = state.taken.iter().map(|taken| taken.source).collect();
            closed = Some(state.taken.remove(permit_to_evict(&sources, source)?));
        }
        let number = state.next;
        state.next += 1;
        state.taken.push(HeldTransferPermit { number, source, closer: connection.closer() });
        drop(state);
        // This may wait for a moment.
        if let Some(closed) = closed {
            closed.closer.close();
        }
        Some(TransferPermit { places: self.clone(), number })
    }

    fn lock(&self) -> MutexGuard<'_, TransferLimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The index of the permit, oldest first, that is to be transferred to a connection from `source`.
fn permit_to_evict(taken: &[IpAddr], source: IpAddr) -> Option<usize> {
    let count = |source: &IpAddr| taken.iter().filter(|taken| *taken == source).count();
    let crowded = taken.iter().max_by_key(|source| count(source))?;
    // With at least two more, two sources do not evict each other endlessly.
    let is_fair = count(&source) + 1 >= count(crowded);
    if is_fair { None } else { taken.iter().rposition(|taken| taken == crowded) }
}

impl Drop for TransferPermit {
    fn drop(&mut self) {
        self.places.lock().taken.retain(|taken| taken.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Listener, connect};
    use crate::options::{ConnectionOptions, ConnectionSecurity, TransportChoice};

    #[test]
    fn a_source_with_fewer_places_gets_the_newest_of_the_one_with_the_most() {
        let of = |numbers: &[u8]| -> Vec<IpAddr> {
            numbers.iter().map(|number| IpAddr::from([192, 0, 2, *number])).collect()
        };
        let new = |number| of(&[number])[0];
        assert_eq!(permit_to_evict(&of(&[1, 1, 1, 1]), new(2)), Some(3));
        assert_eq!(permit_to_evict(&of(&[1, 2, 1, 1]), new(2)), Some(3));
        assert_eq!(permit_to_evict(&of(&[1, 1, 1, 2]), new(3)), Some(2));
        // Otherwise the new source would have as many or more.
        assert_eq!(permit_to_evict(&of(&[1, 1, 2, 2]), new(2)), None);
        assert_eq!(permit_to_evict(&of(&[1, 1, 2, 2]), new(1)), None);
        assert_eq!(permit_to_evict(&of(&[1, 1, 1, 1]), new(1)), None);
        assert_eq!(permit_to_evict(&[], new(1)), None);
    }

    /// A connection that was closed for another one no longer has a permit to return.
    #[test]
    fn there_are_never_more_than_the_maximum() {
        let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
        let listener = Listener::bind("127.0.0.1:0", &options).unwrap();
        let address = listener.local_addr().to_string();
        let options = ConnectionOptions { transport: TransportChoice::Named("tcp"), ..options };
        let connection = connect(&address, &options).unwrap();
        let places = TransferLimiter::new(2);
        let take = |number| places.take_for([192, 0, 2, number].into(), &connection);
        let [first, second] = [take(1), take(1)].map(Option::unwrap);
        let third = take(2).unwrap();
        drop(second);
        assert_eq!(places.lock().taken.len(), 2);
        assert!(take(1).is_none() && take(2).is_none());
        drop((first, third));
        assert!(places.lock().taken.is_empty());
    }
}
