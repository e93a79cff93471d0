//! The kernel's TCP.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::buffers;
use super::tcp_info::{TcpInfo, is_multipath};
use crate::options::ConnectionOptions;
use crate::stream::{ByteStream, PathStatistics, Transport};

/// A peer whose kernel does not answer for this long is considered gone.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a waiting call checks whether the peer still answers.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How often the first bytes of a connection are peeked at until all have arrived.
const PEEK_INTERVAL: Duration = Duration::from_millis(5);

/// The longest segment in an IPv6 packet of 1,280 bytes, with TCP options.
const SHORT_SEGMENT: u32 = 1220;

/// The kernel's backlog of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// See [the module](self).
pub(super) struct TcpTransport;

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn about(&self) -> &'static str {
        "the kernel's TCP; fastest where the path is short"
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        open(to, options)
    }
}

/// Connects over TCP.
pub(crate) fn open(to: SocketAddr, options: &ConnectionOptions) -> io::Result<Arc<dyn ByteStream>> {
    connect(to, Protocol::TCP, options)
}

/// A connection that the kernel is opening.
pub(crate) struct TcpConnectAttempt {
    socket: Socket,
    to: SocketAddr,
    deadline: Instant,
}

/// Begins to connect over TCP.
pub(crate) fn begin(to: SocketAddr, options: &ConnectionOptions) -> io::Result<TcpConnectAttempt> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    prepare(&socket, options)?;
    limit_segments(&socket, options)?;
    socket.set_nonblocking(true)?;
    let deadline = Instant::now() + options.connect_timeout;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpConnectAttempt { socket, to, deadline }),
    }
}

impl TcpConnectAttempt {
    /// Waits until it is connected or has failed, but at most for `limit`. Returns whether it is
    /// connected.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<bool> {
        let limit = limit.min(self.deadline.saturating_duration_since(Instant::now()));
        let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut events = [PollFd::new(&self.socket, PollFlags::OUT)];
        match poll(&mut events, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => self.socket.take_error()?.map_or(Ok(true), Err),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the connection, within [`ConnectionOptions::connect_timeout`] of the beginning.
    pub(crate) fn finish(self) -> io::Result<Arc<dyn ByteStream>> {
        while !self.wait(Duration::MAX)? {
            if Instant::now() >= self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(Arc::new(TcpByteStream::new(self.socket.into(), self.to)?))
    }
}

/// Connects over TCP or Multipath TCP.
pub(super) fn connect(
    to: SocketAddr,
    protocol: Protocol,
    options: &ConnectionOptions,
) -> io::Result<Arc<dyn ByteStream>> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(protocol))?;
    prepare(&socket, options)?;
    limit_segments(&socket, options)?;
    socket.connect_timeout(&to.into(), options.connect_timeout)?;
    Ok(Arc::new(TcpByteStream::new(socket.into(), to)?))
}

/// Whether the system does not support the protocol.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    let codes = [libc::EPROTONOSUPPORT, libc::ENOPROTOOPT, libc::EINVAL, libc::EPERM];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Accepts connections.
pub(crate) struct TcpTransportListener(Socket);

impl TcpTransportListener {
    pub(crate) fn bind(address: SocketAddr, options: &ConnectionOptions) -> io::Result<Self> {
        // A listener of Multipath TCP also accepts TCP.
        let new =
            |protocol| Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol));
        let socket = new(Protocol::MPTCP).or_else(|_| new(Protocol::TCP))?;
        // The port may still be in use by connections accepted earlier.
        socket.set_reuse_address(true)?;
        prepare(&socket, options)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self(socket))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn accept(&self, options: &ConnectionOptions) -> io::Result<TcpByteStream> {
        let (socket, from) = self.0.accept()?;
        let from = from.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        prepare(&socket, options)?;
        TcpByteStream::new(socket.into(), from)
    }

    /// Stops accepting: [`Self::accept`] fails.
    pub(crate) fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Sets the options of a socket, before it is connected where that matters.
fn prepare(socket: &Socket, options: &ConnectionOptions) -> io::Result<()> {
    // Writes are whole messages or large blocks, so waiting for more data has no benefit.
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE_TIMEOUT / 2)
        .with_interval(SILENCE_TIMEOUT / 6)
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    if let Some(name) = &options.congestion {
        set_congestion(socket, name)?;
    }
    buffers::set(socket, options)
}

/// Limits the segment length in both directions. Before the socket connects, this also sets the
/// announced MSS; later it has no effect.
fn limit_segments(socket: &Socket, options: &ConnectionOptions) -> io::Result<()> {
    max_segment(options).map_or(Ok(()), |max| socket.set_tcp_mss(max))
}

/// The largest segment, if the options limit it.
pub(super) fn max_segment(options: &ConnectionOptions) -> Option<u32> {
    options.has_short_segments.then_some(SHORT_SEGMENT)
}

fn set_congestion(socket: &Socket, name: &str) -> io::Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        let text = format!(
            "no congestion control {name}: {error}; net.ipv4.tcp_allowed_congestion_control has those that are allowed"
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| failed(&error))?;
    let set = congestion(socket);
    if set.as_deref() == Some(name) {
        return Ok(());
    }
    Err(failed(&format!("the kernel uses {}", set.unwrap_or_default())))
}

fn congestion(socket: &Socket) -> Option<String> {
    let name = socket.tcp_congestion().ok()?;
    let name = name.split(|byte| *byte == 0).next()?;
    String::from_utf8(name.to_owned()).ok()
}

/// A connection.
pub(crate) struct TcpByteStream {
    socket: TcpStream,
    peer: SocketAddr,
    transport: &'static str,
    timeout_ms: AtomicU64,
    /// The statistics from before the end: the kernel drops them once both directions are finished.
    last: OnceLock<PathStatistics>,
}

impl TcpByteStream {
    pub(crate) fn new(socket: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        let transport = if is_multipath(socket.as_raw_fd()) { "mptcp" } else { "tcp" };
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(CHECK_INTERVAL))?;
        socket.set_write_timeout(Some(CHECK_INTERVAL))?;
        Ok(Self { socket, peer, transport, timeout_ms: AtomicU64::new(0), last: OnceLock::new() })
    }

    /// The same connection, of a client that a load balancer has named.
    pub(crate) fn of_client(self, peer: SocketAddr) -> Self {
        Self { peer, ..self }
    }

    /// Whether the first bytes that arrive are these; if so, removes them. Returns false if others
    /// arrive, or if they take longer than `limit`.
    pub(crate) fn begins_with(&self, expected: &[u8], limit: Duration) -> io::Result<bool> {
        let start = Instant::now();
        let mut first = vec![0; expected.len()];
        loop {
            let count = self.wait(|| self.socket.peek(&mut first))?;
            if count == 0 || first[..count] != expected[..count] {
                return Ok(false);
            }
            if count == expected.len() {
                (&self.socket).read_exact(&mut first)?;
                return Ok(true);
            }
            if start.elapsed() >= limit {
                return Ok(false);
            }
            // The rest arrives in another packet, for which peeking does not wait.
            thread::sleep(PEEK_INTERVAL);
        }
    }

    /// A copy of its socket, for another driver.
    pub(crate) fn socket(&self) -> io::Result<TcpStream> {
        self.socket.try_clone()
    }

    /// Repeats a call that waits at most [`CHECK_INTERVAL`], until it succeeds, the time limit is
    /// over, or the peer is gone.
    fn wait(&self, mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let start = Instant::now();
        loop {
            match attempt() {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                done => return done,
            }
            let timeout_ms = self.timeout_ms.load(Ordering::Relaxed);
            if timeout_ms > 0 && start.elapsed() >= Duration::from_millis(timeout_ms) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.check_peer()?;
        }
    }

    fn known(&self) -> PathStatistics {
        let socket = SockRef::from(&self.socket);
        let info = TcpInfo::of(self.socket.as_raw_fd());
        PathStatistics {
            congestion: congestion(&socket),
            send_buffer: socket.send_buffer_size().ok(),
            receive_buffer: socket.recv_buffer_size().ok(),
            ..info.map(TcpInfo::into_statistics).unwrap_or_default()
        }
    }

    /// Fails if the peer's kernel does not acknowledge what was sent. If only the program does not
    /// read, the kernel has acknowledged all that fits into its buffer, and answers window probes.
    fn check_peer(&self) -> io::Result<()> {
        // For Multipath TCP, the kernel's information is that of a single path, and others may
        // work.
        if self.transport == "mptcp" {
            return Ok(());
        }
        let Some(info) = TcpInfo::of(self.socket.as_raw_fd()) else { return Ok(()) };
        if info.is_unanswered && info.last_heard >= SILENCE_TIMEOUT {
            let text = format!("its host has not answered for {} s", info.last_heard.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(())
    }
}

impl ByteStream for TcpByteStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.wait(|| (&self.socket).read(to))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|| (&self.socket).write(bytes))
    }

    /// The kernel sends what was written even if the process ends.
    fn finish(&self) -> io::Result<()> {
        self.last.get_or_init(|| self.known());
        self.socket.shutdown(Shutdown::Write)
    }

    fn close(&self) {
        // An error means that it is closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn has_threads(&self) -> bool {
        false
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ms =
            timeout.map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(0).max(1));
        self.timeout_ms.store(ms, Ordering::Relaxed);
        let slice = slice(timeout);
        self.socket.set_read_timeout(Some(slice))?;
        self.socket.set_write_timeout(Some(slice))
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn transport(&self) -> &'static str {
        self.transport
    }

    fn statistics(&self) -> PathStatistics {
        let known = self.known();
        match self.last.get() {
            Some(last) if known.round_trip.is_none() || known.congestion.is_none() => last.clone(),
            _ => known,
        }
    }
}

/// The shortest wait that is passed to the kernel.
const MIN_SLICE: Duration = Duration::from_millis(1);

/// How long the kernel waits at a time: at most the check interval, and chosen so that a whole
/// number of waits is the limit.
fn slice(limit: Option<Duration>) -> Duration {
    let limit = limit.unwrap_or(CHECK_INTERVAL).max(MIN_SLICE);
    let count = limit.as_nanos().div_ceil(CHECK_INTERVAL.as_nanos());
    limit / u32::try_from(count).unwrap_or(u32::MAX)
}
