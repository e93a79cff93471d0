//! Connections that are made while a transport is chosen.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::stream::ByteStream;
use crate::transports::{self, Transport};

/// How long TCP and the hello are alone, before another transport connects too: on a short path
/// its packets would be in the way.
pub(super) const HEAD_START: Duration = Duration::from_millis(3);

/// Connections that are made at the same time, as long as nothing is known.
pub(super) struct Racing {
    pub(super) tcp: Connecting,
    /// Of [`transports::SECOND`], somewhat later.
    second: Connecting,
}

impl Racing {
    pub(super) fn start(to: SocketAddr, options: &Options) -> Self {
        let (first, second) = (options.clone(), options.clone());
        Self {
            tcp: Connecting::start(Duration::ZERO, move || transports::DEFAULT.connect(to, &first)),
            second: Connecting::start(HEAD_START, move || {
                transports::SECOND.connect_held(to, &second)
            }),
        }
    }

    /// Whether a connection of this transport is being made.
    pub(super) fn has(&self, transport: &str) -> bool {
        transport == transports::DEFAULT.name()
            || (transport == transports::SECOND.name() && self.second.is_begun())
    }

    /// The connection of the chosen transport, if it is being made; the others are closed.
    pub(super) fn take(self, transport: &str) -> Option<io::Result<Arc<dyn ByteStream>>> {
        if !self.has(transport) {
            return None;
        }
        if transport == transports::DEFAULT.name() {
            drop(self.second);
            return self.tcp.take();
        }
        drop(self.tcp);
        // From now on the other end has the connection.
        self.second.take().map(|stream| stream.and_then(|it| it.write(&[]).map(|_| it)))
    }
}

/// A connection that a thread makes.
pub(super) struct Connecting {
    result: Receiver<io::Result<Arc<dyn ByteStream>>>,
    /// Until it is dropped, the thread may begin.
    _wanted: Sender<()>,
    begins_at: Instant,
    started_at: Instant,
    connected: Option<(Duration, io::Result<Arc<dyn ByteStream>>)>,
}

impl Connecting {
    /// Connects after some time, if it is not dropped before.
    fn start(
        after: Duration,
        connect: impl FnOnce() -> io::Result<Arc<dyn ByteStream>> + Send + 'static,
    ) -> Self {
        let ((sender, result), (wanted, is_wanted)) = (channel(), channel::<()>());
        let connecting = move || {
            if after.is_zero() || is_wanted.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let _ = sender.send(connect());
            }
        };
        // Without a thread there is no connection, and the transport connects later.
        let _ = thread::Builder::new().name("auto".into()).spawn(connecting);
        let started_at = Instant::now();
        let begins_at = started_at + after;
        Self { result, _wanted: wanted, begins_at, started_at, connected: None }
    }

    /// Whether it connects by now.
    fn is_begun(&self) -> bool {
        Instant::now() >= self.begins_at
    }

    /// How long connecting took, if it is over.
    pub(super) fn connected_after(&mut self) -> Option<Duration> {
        self.wait(Duration::ZERO);
        match &self.connected {
            Some((after, Ok(_))) => Some(*after),
            // Who cannot connect by TCP needs UDP, and waits for it.
            _ => None,
        }
    }

    /// Whether it connects in this time.
    pub(super) fn connects_within(&mut self, time: Duration) -> bool {
        self.wait(time);
        matches!(&self.connected, Some((_, Ok(_))))
    }

    fn wait(&mut self, time: Duration) {
        if self.connected.is_none()
            && let Ok(result) = self.result.recv_timeout(time)
        {
            self.connected = Some((self.started_at.elapsed(), result));
        }
    }

    /// The connection, once it is there.
    fn take(self) -> Option<io::Result<Arc<dyn ByteStream>>> {
        match self.connected {
            Some((_, result)) => Some(result),
            None => self.result.recv().ok(),
        }
    }
}
