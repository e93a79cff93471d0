//! One exchange with a peer at a time, and none so soon after one that failed: connections that come all
//! at once do not become as many exchanges.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::time::Instant;

use super::exchange::ExchangeError;

/// How long a failure is remembered.
pub(super) const MEMORY: Duration = Duration::from_secs(5);

/// How many peers' failures are remembered.
const MAX_FAILURES: usize = 1024;

/// Whose turn it is, for each peer that is asked or has just failed.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<IpAddr, Turn>>);

/// The right to ask a peer, for one at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn(Arc<AsyncMutex<LastFailure>>);

/// Why the last exchange with a peer failed, if it did.
#[derive(Debug, Default)]
pub(super) struct LastFailure(Option<(Instant, Arc<ExchangeError>)>);

impl Turns {
    /// The peer's.
    pub(super) fn of(&self, peer: IpAddr) -> Turn {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.is_waited_for() || turn.failed_at().is_some());
        if turns.len() >= MAX_FAILURES {
            let failures = turns.iter().filter(|(_, turn)| !turn.is_waited_for());
            let oldest = failures.min_by_key(|(_, turn)| turn.failed_at()).map(|(peer, _)| *peer);
            oldest.and_then(|peer| turns.remove(&peer));
        }
        turns.entry(peer).or_default().clone()
    }
}

impl Turn {
    /// Waits until it has come.
    pub(super) async fn come(&self) -> AsyncMutexGuard<'_, LastFailure> {
        self.0.lock().await
    }

    /// Whether anybody has it or waits for it. Asked of turns that nobody can take meanwhile.
    fn is_waited_for(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// When its exchange has failed, if that is to be remembered.
    fn failed_at(&self) -> Option<Instant> {
        let last = self.0.try_lock().ok()?;
        last.0.as_ref().map(|(at, _)| *at).filter(|at| at.elapsed() < MEMORY)
    }
}

impl LastFailure {
    /// Why the last exchange failed, if that was a moment ago.
    pub(super) fn recent(&self) -> Option<Arc<ExchangeError>> {
        let (at, error) = self.0.as_ref()?;
        (at.elapsed() < MEMORY).then(|| Arc::clone(error))
    }

    /// Remembers how an exchange ended.
    pub(super) fn note<T>(
        &mut self,
        ended: Result<T, ExchangeError>,
    ) -> Result<T, Arc<ExchangeError>> {
        let ended = ended.map_err(Arc::new);
        self.0 = ended.as_ref().err().map(|error| (Instant::now(), Arc::clone(error)));
        ended
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::ends::AnswerError;
    use super::*;

    fn peer(number: usize) -> IpAddr {
        IpAddr::from(u128::try_from(number).unwrap().to_be_bytes())
    }

    fn failed() -> Result<(), ExchangeError> {
        let server = "192.0.2.1:1".parse().unwrap();
        Err(ExchangeError::Answer { server, source: AnswerError::Silent })
    }

    async fn fail(turns: &Turns, number: usize) {
        turns.of(peer(number)).come().await.note(failed()).unwrap_err();
    }

    async fn is_remembered(turns: &Turns, number: usize) -> bool {
        turns.of(peer(number)).come().await.recent().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_remembered_for_a_while() {
        let turns = Turns::default();
        assert!(!is_remembered(&turns, 1).await);
        fail(&turns, 1).await;
        assert!(is_remembered(&turns, 1).await);
        assert!(!is_remembered(&turns, 2).await);
        advance(MEMORY).await;
        assert!(!is_remembered(&turns, 1).await);
        fail(&turns, 1).await;
        turns.of(peer(1)).come().await.note(Ok(())).unwrap();
        assert!(!is_remembered(&turns, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_failure_is_forgotten_first() {
        let turns = Turns::default();
        let held = turns.of(peer(0));
        for number in 1..=MAX_FAILURES {
            fail(&turns, number).await;
            advance(Duration::from_millis(1)).await;
        }
        // Somebody may be asking the one that is held, so it stays.
        let len = || turns.0.lock().unwrap().len();
        assert_eq!(len(), MAX_FAILURES);
        assert!(Arc::ptr_eq(&held.0, &turns.of(peer(0)).0));
        assert!(is_remembered(&turns, MAX_FAILURES).await);
        assert!(!is_remembered(&turns, 1).await);
        drop(held);
        advance(MEMORY).await;
        turns.of(peer(1));
        assert_eq!(len(), 1);
    }
}
