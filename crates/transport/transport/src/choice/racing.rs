//! Connections that are made while a transport is chosen.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::ConnectionOptions;
use crate::stream::ByteStream;
use crate::transports::{self, Transport, tcp};

/// How long TCP and the hello are alone, before another transport connects too: on a short path
/// its packets would be in the way.
pub(super) const HEAD_START: Duration = Duration::from_millis(3);

/// Connections that are made at the same time, as long as nothing is known.
pub(super) struct ConnectionRace {
    pub(super) tcp: RacingConnection,
    /// Of [`transports::SECOND`].
    second: RacingConnection,
}

impl ConnectionRace {
    /// Waits for TCP, which began to connect at `started_at`, and connects by another transport.
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

    /// Whether a connection of this transport is being made.
    pub(super) fn has(transport: &str) -> bool {
        [transports::DEFAULT.name(), transports::SECOND.name()].contains(&transport)
    }

    /// The connection of the chosen transport, if it is being made; the others are closed.
    pub(super) fn take(self, transport: &str) -> Option<io::Result<Arc<dyn ByteStream>>> {
        if !Self::has(transport) {
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

/// Connects by a transport over UDP, and by TCP when that has failed or takes longer than
/// `patience`: the first connection is used. Also what the other one has failed with, if it is one
/// of TCP.
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
            // Who comes too late is not heard, and ends here.
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

/// A connection that a thread makes.
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
        // Without a thread there is no connection, and the transport connects later.
        let _ = thread::Builder::new().name("auto".into()).spawn(move || {
            let _ = sender.send(connect());
        });
        Self { result, started_at, connected: None }
    }

    /// How long connecting took, if it is over.
    pub(super) fn connected_after(&mut self) -> Option<Duration> {
        if self.connected.is_none()
            && let Ok(result) = self.result.try_recv()
        {
            self.connected = Some((self.started_at.elapsed(), result));
        }
        match &self.connected {
            Some((after, Ok(_))) => Some(*after),
            // Who cannot connect by TCP needs UDP, and waits for it.
            _ => None,
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
