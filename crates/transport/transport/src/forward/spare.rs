//! One connection that is opened ahead: the next program does not wait for a handshake, which takes
//! two of the three round trips until a first answer over TCP.

use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::debug;

use super::thread::spawn;
use crate::error::Error;
use crate::net::Connection;

/// How long a connection is kept that no program uses.
const SPARE_LIFETIME: Duration = Duration::from_secs(30);

/// How long the test whether a connection still exists may take.
const TEST_TIME: Duration = Duration::from_millis(1);

/// How long closing the connection may take when the end stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A place for one connection.
#[derive(Default)]
pub(super) struct SpareConnection {
    state: Mutex<SpareState>,
    changed: Condvar,
}

#[derive(Default)]
struct SpareState {
    connection: Option<Connection>,
    /// Whether a thread opens the connection or waits until it is used.
    has_thread: bool,
    is_closed: bool,
}

impl SpareConnection {
    /// The connection, if there is one and it has not ended.
    pub(super) fn take(&self) -> Option<Connection> {
        let mut connection = self.lock().connection.take()?;
        self.changed.notify_all();
        is_open(&mut connection).then_some(connection)
    }

    /// Drops the connection, if there is one.
    pub(super) fn discard(&self) {
        let connection = self.lock().connection.take();
        self.changed.notify_all();
        if let Some(connection) = connection {
            // Ending its stream would wait for the other end.
            connection.closer().close();
        }
    }

    /// Opens the connection in a thread, unless there is one already.
    pub(super) fn refill(
        self: &Arc<Self>,
        connect: impl FnOnce() -> Result<Connection, Error> + Send + 'static,
    ) {
        let mut state = self.lock();
        if state.has_thread || state.connection.is_some() || state.is_closed {
            return;
        }
        state.has_thread = true;
        drop(state);
        let shared = self.clone();
        if spawn(move || shared.keep(connect())).is_err() {
            self.lock().has_thread = false;
        }
    }

    /// Keeps the connection until it is used, or for its lifetime.
    fn keep(&self, connected: Result<Connection, Error>) {
        let mut state = self.lock();
        match connected {
            Ok(connection) => {
                state.connection = Some(connection);
                let is_unused =
                    |state: &mut SpareState| state.connection.is_some() && !state.is_closed;
                let waited = self.changed.wait_timeout_while(state, SPARE_LIFETIME, is_unused);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            // The next program's connection has the same error, and reports it.
            Err(error) => debug!("no connection ahead: {error}"),
        }
        let unused = state.connection.take();
        drop(state);
        // This ends its stream, so that the other end knows that it is not used.
        drop(unused);
        self.lock().has_thread = false;
        self.changed.notify_all();
    }

    /// Closes the connection. No other one is opened.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.changed.notify_all();
        let has_thread = |state: &mut SpareState| state.has_thread;
        drop(self.changed.wait_timeout_while(state, CLOSE_TIMEOUT, has_thread));
    }

    fn lock(&self) -> MutexGuard<'_, SpareState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection of which nothing is expected is still open, as far as this host knows.
fn is_open(connection: &mut Connection) -> bool {
    let read = connection.set_timeout(Some(TEST_TIME)).and_then(|()| connection.read(&mut [0]));
    let is_silent = read.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
    is_silent && connection.set_timeout(None).is_ok()
}
