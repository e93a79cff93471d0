//! A connection as programs use it.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Clock;
use super::wake::Wake;
use crate::protocol::{Connection, ConnectionError, Read as Outcome, Statistics};

/// A connection, to read from and write to. Clones are the same connection. It is closed when the
/// last one is dropped, after what was written has arrived.
#[derive(Debug)]
pub struct Stream {
    slot: Arc<Slot>,
    wake: Arc<Wake>,
    clock: Clock,
}

/// A connection that a program and the driver share.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) peer: SocketAddr,
    state: Mutex<State>,
    /// Something can be read or written, or the connection is over.
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) connection: Connection,
    /// Whether the driver sleeps and has to be woken for it.
    pub(super) driver_sleeps: bool,
    users: usize,
}

impl Slot {
    pub(super) fn new(connection: Connection, peer: SocketAddr) -> Self {
        let state = State { connection, driver_sleeps: false, users: 1 };
        Self { peer, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A program's thread that panics does so outside of the protocol.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes programs that wait, if they have something to do.
    pub(super) fn notify(&self, state: &State) {
        let connection = &state.connection;
        if connection.readable() > 0 || connection.writable() > 0 || connection.is_over() {
            self.changed.notify_all();
        }
    }
}

impl Stream {
    pub(super) fn new(slot: Arc<Slot>, wake: Arc<Wake>, clock: Clock) -> Self {
        Self { slot, wake, clock }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.slot.peer
    }

    /// What the connection has done so far.
    pub fn statistics(&self) -> Statistics {
        self.slot.lock().connection.statistics()
    }

    /// The mean round-trip time.
    pub fn round_trip(&self) -> Duration {
        self.slot.lock().connection.round_trip()
    }

    /// Closes the connection after what was written has arrived, and waits for that.
    ///
    /// # Errors
    /// If the connection fails before.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.slot.lock();
        loop {
            if let Some(error) = state.connection.error() {
                return Err(io_error(error));
            }
            if state.connection.is_flushed() {
                state.connection.close(self.clock.now());
                self.wake(&mut state);
                return Ok(());
            }
            if state.connection.is_over() {
                return Err(io_error(ConnectionError::Closed));
            }
            state = self.slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.driver_sleeps) {
            self.wake.wake();
        }
    }
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        self.slot.lock().users += 1;
        Self { slot: self.slot.clone(), wake: self.wake.clone(), clock: self.clock }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.slot.lock();
        state.users -= 1;
        if state.users == 0 {
            state.connection.close(self.clock.now());
            self.wake(&mut state);
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        let mut state = self.slot.lock();
        loop {
            match state.connection.read(to, self.clock.now()).map_err(io_error)? {
                Outcome::Bytes(count) => {
                    self.wake(&mut state);
                    return Ok(count);
                }
                Outcome::End => return Ok(0),
                Outcome::Nothing => {
                    state = self.slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.slot.lock();
        loop {
            let count = state.connection.write(bytes).map_err(io_error)?;
            if count > 0 || bytes.is_empty() {
                self.wake(&mut state);
                return Ok(count);
            }
            state = self.slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Bytes are sent as soon as the path takes them: there is nothing to flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn io_error(error: ConnectionError) -> io::Error {
    let kind = match error {
        ConnectionError::Silent(_) => io::ErrorKind::TimedOut,
        ConnectionError::Truncated => io::ErrorKind::UnexpectedEof,
        ConnectionError::Closed => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}
