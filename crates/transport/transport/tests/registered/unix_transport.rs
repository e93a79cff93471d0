//! A transport of another crate: Unix-domain sockets, between programs of one host.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sunder_transport::{
    ByteStream, ConnectionOptions, ExchangeProfile, NetworkPath, PathStatistics, Transport,
    TransportAcceptor,
};

/// The longest round trip that is taken for one within this host.
const LOCAL_ROUND_TRIP: Duration = Duration::from_micros(100);

pub(crate) struct UnixTransport;

/// The socket for a listener's port.
fn socket_name(at: SocketAddr) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("sunder-transport-{}", at.port()))
}

impl Transport for UnixTransport {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn about(&self) -> &'static str {
        "Unix-domain sockets; between programs of one host"
    }

    fn connect(
        &self,
        to: SocketAddr,
        _options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let socket = UnixStream::connect_addr(&socket_name(to)?)?;
        Ok(Arc::new(UnixByteStream { socket, peer: to }))
    }

    fn listen(
        &self,
        at: SocketAddr,
        _options: &ConnectionOptions,
    ) -> io::Result<Option<Box<dyn TransportAcceptor>>> {
        let listener = UnixListener::bind_addr(&socket_name(at)?)?;
        Ok(Some(Box::new(UnixAcceptor { listener, at, is_closed: AtomicBool::new(false) })))
    }

    fn latency(
        &self,
        path: &NetworkPath,
        exchange: ExchangeProfile,
        _is_secure: bool,
    ) -> Option<Duration> {
        // Between hosts there are no Unix-domain sockets.
        let is_local = path.round_trip < LOCAL_ROUND_TRIP;
        is_local.then(|| {
            let rounds = path.round_trip / 2 * exchange.rounds;
            rounds + Duration::from_nanos((exchange.sent + exchange.received) / 5)
        })
    }
}

struct UnixAcceptor {
    listener: UnixListener,
    at: SocketAddr,
    is_closed: AtomicBool,
}

impl TransportAcceptor for UnixAcceptor {
    fn accept(&self) -> io::Result<Arc<dyn ByteStream>> {
        let (socket, _) = self.listener.accept()?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(Arc::new(UnixByteStream { socket, peer: self.at }))
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = socket_name(self.at).and_then(|name| UnixStream::connect_addr(&name));
    }
}

struct UnixByteStream {
    socket: UnixStream,
    peer: SocketAddr,
}

impl ByteStream for UnixByteStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(to).map_err(timed_out)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.socket).write(bytes).map_err(timed_out)
    }

    fn finish(&self) -> io::Result<()> {
        // What was written is in the other end's socket already.
        self.socket.shutdown(Shutdown::Write)
    }

    fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn has_threads(&self) -> bool {
        false
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)?;
        self.socket.set_write_timeout(timeout)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn transport(&self) -> &'static str {
        "unix"
    }

    fn statistics(&self) -> PathStatistics {
        PathStatistics::default()
    }
}

/// The error after the limit of [`ByteStream::set_timeout`].
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
