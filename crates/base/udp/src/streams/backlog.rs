//! Connections that wait to be accepted.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::stream::UdpStream;

/// A connection that is open.
#[derive(Debug)]
pub struct AcceptedUdpStream {
    /// The connection.
    pub stream: UdpStream,
    /// The name of its protocol.
    pub protocol: &'static str,
}

/// The queue of connections that wait to be accepted.
#[derive(Debug)]
pub(super) struct UdpAcceptBacklog {
    state: Mutex<AcceptBacklogState>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct AcceptBacklogState {
    accepted: VecDeque<AcceptedUdpStream>,
    is_closed: bool,
    has_failed: bool,
}

impl UdpAcceptBacklog {
    pub(super) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), capacity: capacity.max(1) }
    }

    /// Adds a connection. Returns it if the acceptor is closed. The queue may exceed its capacity
    /// by connections whose handshake was in progress when it became full, because their peers may
    /// consider them open.
    pub(super) fn push(&self, accepted: AcceptedUdpStream) -> Option<AcceptedUdpStream> {
        let mut state = self.lock();
        if state.is_closed {
            return Some(accepted);
        }
        state.accepted.push_back(accepted);
        self.changed.notify_one();
        None
    }

    pub(super) fn has_room(&self) -> bool {
        let state = self.lock();
        !state.is_closed && state.accepted.len() < self.capacity
    }

    pub(super) fn is_open(&self) -> bool {
        !self.lock().is_closed
    }

    /// Records that the socket has failed.
    pub(super) fn fail(&self) {
        self.lock().has_failed = true;
        self.changed.notify_all();
    }

    /// Waits for a connection.
    pub(super) fn pop(&self) -> io::Result<AcceptedUdpStream> {
        let mut state = self.lock();
        loop {
            if let Some(accepted) = state.accepted.pop_front() {
                return Ok(accepted);
            }
            if state.is_closed {
                return Err(io::Error::other("the listener was closed"));
            }
            if state.has_failed {
                return Err(io::Error::other("the listener's socket has failed"));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes the queue, and the connections in it.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let unaccepted = std::mem::take(&mut state.accepted);
        drop(state);
        drop(unaccepted);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, AcceptBacklogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
