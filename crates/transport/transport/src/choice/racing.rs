//! Connections that are opened while a transport is being chosen.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::ConnectionOptions;
use crate::stream::{ByteStream, Transport};
use crate::transports::{self, tcp};

/// The time that TCP and the hello have before another transport starts to connect: on a short
/// path, its packets would delay them.
pub(super) const HEAD_START: Duration = Duration::from_millis(3);

/// Connections that are opened at the same time while nothing is known of the path.
pub(super) struct ConnectionRace {
    pub(super) tcp: RacingConnection,
    /// The connection over [`transports::SECOND`].
    second: RacingConnection,
}

impl ConnectionRace {
    /// Continues with `tcp`, which began to connect at `started_at`, and starts to connect over
    /// another transport.
    pub(super) fn start(
        started_at: Instant,
        tcp: io::Result<tcp::TcpConnectAttempt>,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> Self {
        let options = options.clone();
        Self {
            tcp: RacingConnection::start(started_at, move || tcp?.finish()),
            second: RacingConnection::start(Instant::now(), move || {
                transports::SECOND.connect_deferred(to, &options)
            }),
        }
    }

    /// Whether a connection over this transport is being opened.
    pub(super) fn has(transport: &str) -> bool {
        [transports::DEFAULT.name(), transports::SECOND.name()].contains(&transport)
    }

    /// The connection over the chosen transport, if it is being opened; the others are closed.
    pub(super) fn take(self, transport: &str) -> Option<io::Result<Arc<dyn ByteStream>>> {
        if !Self::has(transport) {
            return None;
        }
        if transport == transports::DEFAULT.name() {
            drop(self.second);
            return self.tcp.take();
        }
        drop(self.tcp);
        // Only this write opens the connection at the other end.
        self.second.take().map(|stream| stream.and_then(|it| it.write(&[]).map(|_| it)))
    }
}

/// Connects over a transport that uses UDP, and over TCP once that has failed or takes longer than
/// `patience`. Returns the first connection, and if it is TCP's, also the error of the other
/// transport.
pub(crate) fn connect_or_tcp(
    transport: &'static dyn Transport,
    to: SocketAddr,
    options: &ConnectionOptions,
    patience: Duration,
) -> io::Result<(Arc<dyn ByteStream>, Option<io::Error>)> {
    let (sender, results) = channel();
    let connect = |transport: &'static dyn Transport| {
        let (sender, options) = (sender.clone(), options.clone());
        thread::Builder::new().name("connect".into()).spawn(move || {
            // If the other transport was faster, nothing receives this result, and the connection
            // is dropped.
            let _ = sender.send((transport.name(), transport.connect(to, &options)));
        })
    };
    connect(transport)?;
    let mut reason = match results.recv_timeout(patience) {
        Ok((_, Ok(stream))) => return Ok((stream, None)),
        Ok((_, Err(error))) => error,
        Err(_) => {
            let what = format!("nothing for {:.1} s", patience.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, what)
        }
    };
    connect(transports::DEFAULT)?;
    drop(sender);
    let mut failed = None;
    while let Ok((name, result)) = results.recv() {
        match result {
            Ok(stream) if name == transport.name() => return Ok((stream, None)),
            Ok(stream) => return Ok((stream, Some(reason))),
            Err(error) if name == transport.name() => reason = error,
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::TimedOut.into()))
}

/// A connection that a thread opens.
pub(super) struct RacingConnection {
    result: Receiver<io::Result<Arc<dyn ByteStream>>>,
    started_at: Instant,
    connected: Option<(Duration, io::Result<Arc<dyn ByteStream>>)>,
}

impl RacingConnection {
    fn start(
        started_at: Instant,
        connect: impl FnOnce() -> io::Result<Arc<dyn ByteStream>> + Send + 'static,
    ) -> Self {
        let (sender, result) = channel();
        // If the thread cannot be started, the transport connects later.
        let _ = thread::Builder::new().name("auto".into()).spawn(move || {
            let _ = sender.send(connect());
        });
        Self { result, started_at, connected: None }
    }

    /// How long connecting took, if it has finished.
    pub(super) fn connected_after(&mut self) -> Option<Duration> {
        if self.connected.is_none()
            && let Ok(result) = self.result.try_recv()
        {
            self.connected = Some((self.started_at.elapsed(), result));
        }
        match &self.connected {
            Some((after, Ok(_))) => Some(*after),
            // If TCP cannot connect, the caller needs UDP and waits for it.
            _ => None,
        }
    }

    /// The connection, once it is open.
    fn take(self) -> Option<io::Result<Arc<dyn ByteStream>>> {
        match self.connected {
            Some((_, result)) => Some(result),
            None => self.result.recv().ok(),
        }
    }
}
