//! Opens the connection that replaces a silent or broken one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::ConnectionPreferences;
use crate::error::Error;
use crate::net::Connection;

/// The pause after the first failed attempt; it doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// TCP retransmits its first packet after a second.
const FIRST_REPEAT: Duration = Duration::from_millis(900);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(4);

/// A function that opens a connection.
pub(super) trait ConnectFunction:
    Fn(ConnectionPreferences) -> Result<Connection, Error> + Send + Sync + 'static
{
}

impl<C: Fn(ConnectionPreferences) -> Result<Connection, Error> + Send + Sync + 'static>
    ConnectFunction for C
{
}

/// Opens connections in their own threads, one at a time, while the earlier connection may still
/// recover.
pub(super) struct Reconnector<C> {
    connect: Arc<C>,
    pending: Option<Receiver<Result<Connection, Error>>>,
    began_at: Instant,
    failures: u32,
    not_before: Instant,
    /// Whether a connection of this transfer was silent.
    has_short_segments: bool,
}

impl<C: ConnectFunction> Reconnector<C> {
    pub(super) fn new(connect: C) -> Self {
        let connect = Arc::new(connect);
        let now = Instant::now();
        Self {
            connect,
            pending: None,
            began_at: now,
            failures: 0,
            not_before: now,
            has_short_segments: false,
        }
    }

    /// The first connection.
    pub(super) fn first(&self) -> Result<Connection, Error> {
        (self.connect)(ConnectionPreferences::default())
    }

    /// Records a failure. Returns the pause before the next attempt.
    pub(super) fn note_failure(&mut self) -> Duration {
        let pause = (FIRST_PAUSE * 2_u32.pow(self.failures.min(8))).min(MAX_PAUSE);
        self.failures += 1;
        self.not_before = Instant::now() + pause;
        pause
    }

    /// Records progress, which makes pauses short again.
    pub(super) fn note_progress(&mut self) {
        self.failures = 0;
    }

    /// Returns the connection or its error as soon as it is known. Starts to connect if the pause
    /// is over.
    pub(super) fn poll(
        &mut self,
        preferences: ConnectionPreferences,
    ) -> Option<Result<Connection, Error>> {
        if self.pending.is_none() && Instant::now() >= self.not_before {
            self.begin(preferences);
        }
        match self.pending.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => None,
            result => {
                self.pending = None;
                Some(result.unwrap_or(Err(Error::Closed)))
            }
        }
    }

    /// Whether the latest connection was opened without a retransmitted first packet of TCP, so
    /// that the path did not fail altogether.
    pub(super) fn was_quick(&self) -> bool {
        self.began_at.elapsed() < FIRST_REPEAT
    }

    /// Waits for the connection, and for the pause before.
    pub(super) fn wait(&mut self, preferences: ConnectionPreferences) -> Result<Connection, Error> {
        if self.pending.is_none() {
            thread::sleep(self.not_before.saturating_duration_since(Instant::now()));
            self.begin(preferences);
        }
        let pending = self.pending.take();
        pending.and_then(|pending| pending.recv().ok()).unwrap_or(Err(Error::Closed))
    }

    /// Drops the pending connection: the earlier one has recovered.
    pub(super) fn cancel(&mut self) {
        // Dropping it may take as long as its path is broken.
        if let Some(pending) = self.pending.take() {
            let _ = thread::Builder::new().name("close".into()).spawn(|| drop(pending));
        }
    }

    fn begin(&mut self, preferences: ConnectionPreferences) {
        self.has_short_segments |= preferences.has_short_segments;
        let preferences =
            ConnectionPreferences { has_short_segments: self.has_short_segments, ..preferences };
        let (sender, pending) = channel();
        let connect = self.connect.clone();
        // If the thread cannot be started, the channel is closed, and there is no connection.
        let _ = thread::Builder::new().name("connect".into()).spawn(move || {
            let _ = sender.send(connect(preferences));
        });
        (self.pending, self.began_at) = (Some(pending), Instant::now());
    }
}
