//! The queue of connections whose handshake is complete and that the program has not accepted yet.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Connection;

/// When this many connections wait, no further handshake is completed.
const MAX_WAITING: usize = 128;

/// See [the module](self). A handshake only continues while there is room, so the limit is exceeded
/// by at most the number of handshakes.
#[derive(Debug, Default)]
pub(super) struct AcceptedConnections {
    state: Mutex<AcceptedConnectionQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AcceptedConnectionQueue {
    waiting: VecDeque<Connection>,
    is_closed: bool,
}

impl AcceptedConnections {
    /// Adds a connection.
    pub(super) fn push(&self, connection: Connection) {
        let mut state = self.lock();
        if !state.is_closed {
            state.waiting.push_back(connection);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for a connection for at most `limit`. An error means that there will be no more.
    pub(super) fn pop(
        &self,
        limit: Option<Duration>,
    ) -> Result<Option<Connection>, AcceptQueueClosed> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = self.lock();
        loop {
            if let Some(connection) = state.waiting.pop_front() {
                drop(state);
                self.changed.notify_all();
                return Ok(Some(connection));
            }
            if state.is_closed {
                return Err(AcceptQueueClosed);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            state = self.wait(state, left);
        }
    }

    /// Waits for at most `limit` until there is room for another connection. Returns whether there
    /// is.
    pub(super) fn wait_for_room(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while state.waiting.len() >= MAX_WAITING && !state.is_closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.wait(state, Some(left));
        }
        true
    }

    /// Closes the queue: there will be no more connections.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
        self.changed.notify_all();
    }

    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, AcceptedConnectionQueue>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, AcceptedConnectionQueue> {
        match limit {
            Some(limit) => {
                let waited = self.changed.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, AcceptedConnectionQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There will be no more connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptQueueClosed;
