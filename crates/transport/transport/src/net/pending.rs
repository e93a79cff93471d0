//! Connections in their handshake. Their number is limited, in total and for each source, so that
//! connections that never complete the handshake do not keep out others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stream::ByteStream;

/// The largest number of connections in their handshake.
const MAX_PENDING: usize = 1024;

/// The largest number from one source.
const MAX_OF_SOURCE: usize = MAX_PENDING / 2;

/// The largest number of connections that are being told that the listener is busy.
const MAX_REFUSED: usize = 512;

/// How long a connection may be silent before another one from its source may replace it. This is
/// longer than the first message takes on most paths.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// The connections in their handshake.
#[derive(Default)]
pub(super) struct PendingHandshakes(Mutex<PendingHandshakeQueue>);

#[derive(Default)]
struct PendingHandshakeQueue {
    /// Oldest first.
    entries: VecDeque<PendingHandshake>,
    refused: usize,
}

struct PendingHandshake {
    source: IpAddr,
    stream: Arc<dyn ByteStream>,
    since: Instant,
    /// Whether its first message has arrived.
    is_requested: bool,
}

/// Whether a new connection is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeAdmission {
    /// Its handshake may begin.
    Admitted,
    /// It is to be told that the listener is busy; then [`PendingHandshakes::refused`] is to be
    /// called.
    Busy,
    /// It is to be closed: too many connections are already being told that.
    Closed,
}

impl PendingHandshakes {
    /// Adds a connection. If there are too many, one whose first message has not arrived is
    /// evicted: one from the source with the most connections if the new one's source has fewer,
    /// otherwise one from the same source that has been silent for a while. If there is none, the
    /// new one is not admitted.
    pub(super) fn add(&self, stream: &Arc<dyn ByteStream>) -> HandshakeAdmission {
        let source = source(stream.peer_addr().ip());
        let mut state = self.lock();
        if let Some(full) = state.source_to_evict_from(source) {
            let min_age = if full == source { SILENCE_TIMEOUT } else { Duration::ZERO };
            if !state.evict_silent(full, min_age) {
                if state.refused >= MAX_REFUSED {
                    return HandshakeAdmission::Closed;
                }
                state.refused += 1;
                return HandshakeAdmission::Busy;
            }
        }
        let entry = PendingHandshake {
            source,
            stream: stream.clone(),
            since: Instant::now(),
            is_requested: false,
        };
        state.entries.push_back(entry);
        HandshakeAdmission::Admitted
    }

    /// Records that the first message of a connection has arrived: it is not evicted any more.
    pub(super) fn requested(&self, stream: &Arc<dyn ByteStream>) {
        let mut state = self.lock();
        let own = state.entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.stream, stream));
        if let Some(entry) = own {
            entry.is_requested = true;
        }
    }

    /// Whether a connection has neither been evicted nor closed with all.
    pub(super) fn has(&self, stream: &Arc<dyn ByteStream>) -> bool {
        self.lock().entries.iter().any(|entry| Arc::ptr_eq(&entry.stream, stream))
    }

    /// Removes a connection whose handshake has ended. Returns false if it was evicted, or all were
    /// closed.
    pub(super) fn remove(&self, stream: &Arc<dyn ByteStream>) -> bool {
        let mut state = self.lock();
        let own = state.entries.iter().position(|entry| Arc::ptr_eq(&entry.stream, stream));
        own.and_then(|own| state.entries.remove(own)).is_some()
    }

    /// Records that a connection has been told that the listener is busy.
    pub(super) fn refused(&self) {
        let mut state = self.lock();
        state.refused = state.refused.saturating_sub(1);
    }

    /// Closes all of them.
    pub(super) fn close(&self) {
        self.lock().entries.drain(..).for_each(|entry| entry.stream.close());
    }

    fn lock(&self) -> MutexGuard<'_, PendingHandshakeQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingHandshakeQueue {
    /// The source of which a connection must be evicted before one from `source` is added, if any.
    fn source_to_evict_from(&self, source: IpAddr) -> Option<IpAddr> {
        let mut counts = HashMap::new();
        for entry in &self.entries {
            *counts.entry(entry.source).or_insert(0) += 1;
        }
        let own = counts.get(&source).copied().unwrap_or(0);
        if own >= MAX_OF_SOURCE {
            return Some(source);
        }
        if self.entries.len() < MAX_PENDING {
            return None;
        }
        let (crowded, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        Some(if most > own { crowded } else { source })
    }

    /// Evicts the oldest connection of a source that has been waiting for its first message for at
    /// least `min_age`. Returns whether there was one.
    fn evict_silent(&mut self, source: IpAddr, min_age: Duration) -> bool {
        let silent = self.entries.iter().position(|entry| {
            entry.source == source && !entry.is_requested && entry.since.elapsed() >= min_age
        });
        let ended = silent.and_then(|oldest| self.entries.remove(oldest));
        // Its thread gets an error and ends.
        ended.inspect(|entry| entry.stream.close()).is_some()
    }
}

/// The source of an address: an IPv4 address, or the first 48 bits of an IPv6 address, which belong
/// to one site.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 80 << 80).into()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::stream::PathStatistics;

    struct Fake(SocketAddr, AtomicBool);

    impl ByteStream for Fake {
        fn read(&self, _to: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn finish(&self) -> io::Result<()> {
            Ok(())
        }

        fn close(&self) {
            self.1.store(true, Ordering::Relaxed);
        }

        fn set_timeout(&self, _timeout: Option<Duration>) -> io::Result<()> {
            Ok(())
        }

        fn peer_addr(&self) -> SocketAddr {
            self.0
        }

        fn transport(&self) -> &'static str {
            "tcp"
        }

        fn statistics(&self) -> PathStatistics {
            PathStatistics::default()
        }
    }

    /// A connection from a source, and the same as the listener sees it.
    fn of(source: u8) -> (Arc<Fake>, Arc<dyn ByteStream>) {
        let fake = Arc::new(Fake(([192, 0, 2, source], 7).into(), AtomicBool::new(false)));
        (fake.clone(), fake)
    }

    fn is_closed(fake: &Fake) -> bool {
        fake.1.load(Ordering::Relaxed)
    }

    /// Has no connection be silent for long, however slow the test is.
    fn forget_silence(pending: &PendingHandshakes) {
        for entry in &mut pending.lock().entries {
            entry.since = Instant::now() + Duration::from_secs(3600);
        }
    }

    #[test]
    fn a_crowd_of_one_source_is_refused_as_busy() {
        let pending = PendingHandshakes::default();
        let (first, stream) = of(1);
        assert_eq!(pending.add(&stream), HandshakeAdmission::Admitted);
        for _ in 1..MAX_OF_SOURCE {
            assert_eq!(pending.add(&of(1).1), HandshakeAdmission::Admitted);
        }
        forget_silence(&pending);
        for _ in 0..MAX_REFUSED {
            assert_eq!(pending.add(&of(1).1), HandshakeAdmission::Busy);
        }
        assert_eq!(pending.add(&of(1).1), HandshakeAdmission::Closed);
        pending.refused();
        assert_eq!(pending.add(&of(1).1), HandshakeAdmission::Busy);
        assert!(!is_closed(&first));
        // Other sources are not affected.
        assert_eq!(pending.add(&of(2).1), HandshakeAdmission::Admitted);
    }

    #[test]
    fn a_source_with_few_takes_the_place_of_a_silent_one_of_the_source_with_the_most() {
        let pending = PendingHandshakes::default();
        let (asked, silent) = (of(1), of(1));
        assert_eq!(pending.add(&asked.1), HandshakeAdmission::Admitted);
        assert_eq!(pending.add(&silent.1), HandshakeAdmission::Admitted);
        pending.requested(&asked.1);
        for _ in 2..MAX_OF_SOURCE {
            assert_eq!(pending.add(&of(1).1), HandshakeAdmission::Admitted);
        }
        for _ in 0..MAX_OF_SOURCE {
            assert_eq!(pending.add(&of(2).1), HandshakeAdmission::Admitted);
        }
        forget_silence(&pending);
        // The limit is reached, and both sources have the same number.
        assert_eq!(pending.add(&of(1).1), HandshakeAdmission::Busy);
        assert!(pending.remove(&asked.1));
        assert_eq!(pending.add(&asked.1), HandshakeAdmission::Admitted);
        pending.requested(&asked.1);
        let many: Vec<_> = (0..MAX_OF_SOURCE / 2).map(|_| of(3)).collect();
        for (_, stream) in &many {
            assert_eq!(pending.add(stream), HandshakeAdmission::Admitted);
        }
        assert!(is_closed(&silent.0) && !is_closed(&asked.0));
        assert!(pending.has(&asked.1) && !pending.has(&silent.1));
        assert!(!pending.remove(&silent.1), "it was evicted");
        assert!(many.iter().all(|(fake, _)| !is_closed(fake)));
        // Connections whose first message has arrived are not evicted, and the source with the most
        // has no others.
        for entry in &mut pending.lock().entries {
            entry.is_requested = true;
        }
        assert_eq!(pending.add(&of(4).1), HandshakeAdmission::Busy);
    }
}
