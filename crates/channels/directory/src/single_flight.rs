//! Limits exchanges: one at a time with each peer, and none within 5 s after one that failed.
//! Concurrent connections to a peer thus cause one exchange.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::time::Instant;

use super::exchange::DirectoryExchangeError;

/// How long a failure is remembered.
pub(super) const FAILURE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many peers' failures are remembered.
const MAX_FAILURES: usize = 1024;

/// The flights of the peers that are being asked or have just failed.
#[derive(Debug, Default)]
pub(super) struct DirectorySingleFlight(Mutex<HashMap<IpAddr, PeerRequestFlight>>);

/// The right to ask one peer, for one task at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerRequestFlight(Arc<AsyncMutex<LastExchangeFailure>>);

/// Why the last exchange with a peer failed, if it did, and when.
#[derive(Debug, Default)]
pub(super) struct LastExchangeFailure(Option<(Instant, Arc<DirectoryExchangeError>)>);

impl DirectorySingleFlight {
    /// The flight of this peer.
    pub(super) fn flight(&self, peer: IpAddr) -> PeerRequestFlight {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| flight.is_in_use() || flight.failed_at().is_some());
        if flights.len() >= MAX_FAILURES {
            let failures = flights.iter().filter(|(_, flight)| !flight.is_in_use());
            let oldest =
                failures.min_by_key(|(_, flight)| flight.failed_at()).map(|(peer, _)| *peer);
            oldest.and_then(|peer| flights.remove(&peer));
        }
        flights.entry(peer).or_default().clone()
    }
}

impl PeerRequestFlight {
    /// Waits until this task may ask the peer.
    pub(super) async fn acquire(&self) -> AsyncMutexGuard<'_, LastExchangeFailure> {
        self.0.lock().await
    }

    /// Whether a task holds it or waits for it. Only valid for flights that no task can acquire at
    /// this moment.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// When its exchange failed, unless the failure is too old to count.
    fn failed_at(&self) -> Option<Instant> {
        let last = self.0.try_lock().ok()?;
        last.0.as_ref().map(|(at, _)| *at).filter(|at| at.elapsed() < FAILURE_TIMEOUT)
    }
}

impl LastExchangeFailure {
    /// Why the last exchange failed, if that was less than 5 s ago.
    pub(super) fn recent_failure(&self) -> Option<Arc<DirectoryExchangeError>> {
        let (at, error) = self.0.as_ref()?;
        (at.elapsed() < FAILURE_TIMEOUT).then(|| Arc::clone(error))
    }

    /// Stores how an exchange ended.
    pub(super) fn record<T>(
        &mut self,
        ended: Result<T, DirectoryExchangeError>,
    ) -> Result<T, Arc<DirectoryExchangeError>> {
        let ended = ended.map_err(Arc::new);
        self.0 = ended.as_ref().err().map(|error| (Instant::now(), Arc::clone(error)));
        ended
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::ends::DirectoryAnswerError;
    use super::*;

    fn peer(number: usize) -> IpAddr {
        IpAddr::from(u128::try_from(number).unwrap().to_be_bytes())
    }

    fn failed() -> Result<(), DirectoryExchangeError> {
        let server = "192.0.2.1:1".parse().unwrap();
        Err(DirectoryExchangeError::Answer { server, source: DirectoryAnswerError::Silent })
    }

    async fn fail(flights: &DirectorySingleFlight, number: usize) {
        flights.flight(peer(number)).acquire().await.record(failed()).unwrap_err();
    }

    async fn is_remembered(flights: &DirectorySingleFlight, number: usize) -> bool {
        flights.flight(peer(number)).acquire().await.recent_failure().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_remembered_for_a_while() {
        let flights = DirectorySingleFlight::default();
        assert!(!is_remembered(&flights, 1).await);
        fail(&flights, 1).await;
        assert!(is_remembered(&flights, 1).await);
        assert!(!is_remembered(&flights, 2).await);
        advance(FAILURE_TIMEOUT).await;
        assert!(!is_remembered(&flights, 1).await);
        fail(&flights, 1).await;
        flights.flight(peer(1)).acquire().await.record(Ok(())).unwrap();
        assert!(!is_remembered(&flights, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_failure_is_forgotten_first() {
        let flights = DirectorySingleFlight::default();
        let held = flights.flight(peer(0));
        for number in 1..=MAX_FAILURES {
            fail(&flights, number).await;
            advance(Duration::from_millis(1)).await;
        }
        // A task may hold this one, so it stays.
        let len = || flights.0.lock().unwrap().len();
        assert_eq!(len(), MAX_FAILURES);
        assert!(Arc::ptr_eq(&held.0, &flights.flight(peer(0)).0));
        assert!(is_remembered(&flights, MAX_FAILURES).await);
        assert!(!is_remembered(&flights, 1).await);
        drop(held);
        advance(FAILURE_TIMEOUT).await;
        flights.flight(peer(1));
        assert_eq!(len(), 1);
    }
}
