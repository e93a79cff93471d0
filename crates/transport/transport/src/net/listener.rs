//! Accepts connections.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use service::log::LogRateLimiter;
use tracing::{debug, warn};

use super::accepted::AcceptedConnections;
use super::balancer;
use super::connection::{Connection, PlaintextAnswer};
use super::direct::{self, AgreedConnection, DatagramParty, PathStream};
use super::handshaking;
use super::pending::{HandshakeAdmission, PendingHandshakes};
use super::refusals::RefusalLog;
use crate::address::{may_choose_again, resolve};
use crate::error::{ConnectionStep, Error};
use crate::options::ConnectionOptions;
use crate::process::OwningProcess;
use crate::protocol::relay::RelayToken;
use crate::relay::{RelayRegistration, RelayedStream};
use crate::stream::{ByteStream, TransportAcceptor};
use crate::transports::{self, DatagramListener, micss, tcp};

/// How long a connection in its handshake waits until the program accepts others.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause after the system has failed to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause before a failed relay is contacted again. A connecting end waits 10 s for a
/// listener at the relay.
const MAX_RELAY_PAUSE: Duration = Duration::from_secs(4);

/// The stack size of a handshake's thread.
const STACK_LEN: usize = 256 << 10;

/// Accepts connections of all transports at one address. Dropping it closes it; its connections
/// remain open.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    process: OwningProcess,
    shared: Arc<ListenerCore>,
}

struct ListenerCore {
    options: ConnectionOptions,
    sources: ConnectionSource,
    /// The MICSS server, which starts with the first channel.
    micss: Mutex<Option<Arc<micss::MicssStreamListener>>>,
    pending: PendingHandshakes,
    accepted: AcceptedConnections,
    /// The number of connections of load balancers whose header has not arrived.
    without_header: AtomicUsize,
    /// The number of threads that accept connections.
    accepting: AtomicUsize,
    refusals: RefusalLog,
    is_closed: AtomicBool,
}

/// A connection in its handshake.
struct BegunHandshake {
    stream: Arc<dyn ByteStream>,
    /// Whether the log has why it has failed.
    is_logged: Cell<bool>,
}

/// Where connections arrive.
enum ConnectionSource {
    /// A TCP and a UDP socket with the same port number, and transports that listen by themselves.
    Sockets(tcp::TcpTransportListener, DatagramListener, Vec<Box<dyn TransportAcceptor>>),
    /// A relay.
    Relay(RelayRegistration),
}

impl std::fmt::Debug for ListenerCore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ListenerCore").finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens at `HOST:PORT`; port 0 chooses any free port. The transport in the options is
    /// ignored.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn bind(address: &str, options: &ConnectionOptions) -> Result<Self, Error> {
        let failed = |error| Error::at(ConnectionStep::Listen, address, error, None);
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for candidate in resolve(address)? {
            match bind_shared_port(candidate, options, |at| DatagramListener::bind(at, options)) {
                Ok((tcp, udp)) => return Self::start(tcp, udp, options.clone()).map_err(failed),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Waits for connections at a relay. Also returns the token: others connect to
    /// `TOKEN@HOST:PORT`.
    ///
    /// # Errors
    /// If the relay's address is invalid, or the system provides no random bytes or threads. A
    /// relay that does not answer is contacted again and again.
    pub fn via(relay: &str, options: &ConnectionOptions) -> Result<(Self, RelayToken), Error> {
        let addresses = resolve(relay)?;
        let address = addresses.first().copied().unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
        let registration = RelayRegistration::new(addresses, &options.security)?;
        let token = registration.token();
        let listener = Self::new(address, ConnectionSource::Relay(registration), options.clone());
        let shared = listener.shared.clone();
        let accepting = shared.accepting(ListenerCore::accept_relayed);
        let spawned = thread::Builder::new().name("transport-relay".into()).spawn(accepting);
        spawned.map_err(|error| Error::at(ConnectionStep::Listen, relay, error, None))?;
        Ok((listener, token))
    }

    fn new(address: SocketAddr, sources: ConnectionSource, options: ConnectionOptions) -> Self {
        let shared = Arc::new(ListenerCore {
            options,
            sources,
            micss: Mutex::default(),
            pending: PendingHandshakes::default(),
            accepted: AcceptedConnections::default(),
            without_header: AtomicUsize::new(0),
            accepting: AtomicUsize::new(0),
            refusals: RefusalLog::default(),
            is_closed: AtomicBool::new(false),
        });
        Self { address, process: OwningProcess::current(), shared }
    }

    fn start(
        tcp: tcp::TcpTransportListener,
        udp: DatagramListener,
        options: ConnectionOptions,
    ) -> io::Result<Self> {
        let address = tcp.local_addr()?;
        let mut others = Vec::new();
        for transport in transports::registered() {
            others.extend(transport.listen(address, &options)?);
        }
        let count = others.len();
        let listener = Self::new(address, ConnectionSource::Sockets(tcp, udp, others), options);
        let shared = listener.shared.clone();
        for index in 0..count {
            let accepting = shared.accepting(move |shared| shared.accept_registered(index));
            thread::Builder::new().name("transport-other".into()).spawn(accepting)?;
        }
        let accepting = shared.accepting(ListenerCore::accept_datagrams);
        thread::Builder::new().name("transport-udp".into()).spawn(accepting)?;
        let accepting = shared.accepting(ListenerCore::accept);
        thread::Builder::new().name("transport-tcp".into()).spawn(accepting)?;
        Ok(listener)
    }

    /// Waits for the next connection whose handshake is complete.
    ///
    /// # Errors
    /// If the listener has failed.
    pub fn accept(&self) -> Result<Connection, Error> {
        self.check_process()?;
        let accepted = self.shared.accepted.pop(None);
        accepted.ok().flatten().ok_or(Error::Closed)
    }

    /// Like [`Self::accept`], but returns `None` after `limit`.
    ///
    /// # Errors
    /// If the listener has failed.
    pub fn accept_timeout(&self, limit: Duration) -> Result<Option<Connection>, Error> {
        self.check_process()?;
        self.shared.accepted.pop(Some(limit)).map_err(|_| Error::Closed)
    }

    /// Returns an error in a forked child.
    fn check_process(&self) -> Result<(), Error> {
        if self.process.is_other() { Err(Error::Closed) } else { Ok(()) }
    }

    /// The address where it listens, or the address of the relay.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// Opens a TCP socket, and with `bind_udp` a UDP socket with the same port number.
pub(super) fn bind_shared_port<U>(
    address: SocketAddr,
    options: &ConnectionOptions,
    bind_udp: impl Fn(SocketAddr) -> io::Result<U>,
) -> io::Result<(tcp::TcpTransportListener, U)> {
    let mut attempts = 0;
    loop {
        let tcp = tcp::TcpTransportListener::bind(address, options)?;
        match bind_udp(tcp.local_addr()?) {
            Ok(udp) => return Ok((tcp, udp)),
            Err(error) if may_choose_again(&error, address, attempts) => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.process.is_other() {
            // In a forked child the sockets are the parent's, and the threads do not exist.
            return;
        }
        self.shared.is_closed.store(true, Ordering::Relaxed);
        match &self.shared.sources {
            ConnectionSource::Sockets(tcp, udp, others) => {
                tcp.close();
                udp.close();
                for other in others {
                    other.close();
                }
            }
            ConnectionSource::Relay(registration) => registration.close(),
        }
        if let Some(micss) = &*self.shared.micss.lock().unwrap_or_else(PoisonError::into_inner) {
            micss.close();
        }
        self.shared.pending.close();
        self.shared.accepted.close();
    }
}

impl ListenerCore {
    /// The body of a thread that accepts connections by `work`. When the last such thread ends, the
    /// queue is closed.
    fn accepting<W: FnOnce(&Arc<Self>)>(self: &Arc<Self>, work: W) -> impl FnOnce() + use<W> {
        let shared = self.clone();
        shared.accepting.fetch_add(1, Ordering::Relaxed);
        move || {
            work(&shared);
            if shared.accepting.fetch_sub(1, Ordering::Relaxed) == 1 {
                shared.accepted.close();
            }
        }
    }

    /// Accepts TCP connections until the listener is closed.
    fn accept(self: &Arc<Self>) {
        let ConnectionSource::Sockets(tcp, ..) = &self.sources else { return };
        let mut failures = LogRateLimiter::default();
        while !self.is_closed.load(Ordering::Relaxed) {
            match tcp.accept(&self.options) {
                Ok(stream) => {
                    let from = stream.peer_addr().ip().to_canonical();
                    if self.options.balancers.iter().any(|it| it.to_canonical() == from) {
                        self.begin_of_balancer(stream);
                    } else {
                        self.begin_tcp(stream);
                    }
                }
                Err(_) if self.is_closed.load(Ordering::Relaxed) => return,
                Err(error) => {
                    // Usually too many files are open; an immediate retry would fail again.
                    if let Some(occurrences) = failures.count_event() {
                        warn!(%error, occurrences, "cannot accept connections for a moment");
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn begin_tcp(self: &Arc<Self>, stream: tcp::TcpByteStream) {
        let stream = Arc::new(stream);
        let shared: Arc<dyn ByteStream> = stream.clone();
        self.begin(&shared, Some(stream));
    }

    /// Begins to handle a connection that a load balancer passes on, when the balancer has stated
    /// whose it is. From then on, it is one of that client.
    fn begin_of_balancer(self: &Arc<Self>, stream: tcp::TcpByteStream) {
        if self.without_header.fetch_add(1, Ordering::Relaxed) >= balancer::MAX_WITHOUT_HEADER {
            self.without_header.fetch_sub(1, Ordering::Relaxed);
            return self.refusals.log_busy(&stream);
        }
        let (shared, name) = (self.clone(), stream.peer_addr().to_string());
        let is_begun = spawn(move || {
            let read = balancer::read_client(&stream, shared.options.handshake_timeout);
            shared.without_header.fetch_sub(1, Ordering::Relaxed);
            match read {
                Ok(Some(client)) if !shared.is_closed.load(Ordering::Relaxed) => {
                    shared.begin_tcp(stream.of_client(client));
                }
                Ok(_) => debug!(peer = name, "closed before the handshake began"),
                Err(error) => shared.refusals.log(&Error::from_io(&name, error)),
            }
        });
        if !is_begun {
            self.without_header.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Accepts connections of a transport that the program has added, until the listener is closed.
    fn accept_registered(self: &Arc<Self>, index: usize) {
        let ConnectionSource::Sockets(_, _, others) = &self.sources else { return };
        let mut failures = LogRateLimiter::default();
        while !self.is_closed.load(Ordering::Relaxed) {
            match others[index].accept() {
                Ok(stream) => self.begin(&stream, None),
                Err(_) if self.is_closed.load(Ordering::Relaxed) => return,
                Err(error) => {
                    if let Some(occurrences) = failures.count_event() {
                        warn!(%error, occurrences, "cannot accept connections for a moment");
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Accepts connections over UDP until the listener is closed or its socket has failed.
    fn accept_datagrams(self: &Arc<Self>) {
        let ConnectionSource::Sockets(_, udp, _) = &self.sources else { return };
        loop {
            match udp.accept() {
                Ok(stream) => {
                    // If the transport has its own handshake, the peer already considers the
                    // connection open. Then it waits for room, and so do later ones in the backlog;
                    // when that is full, endpoints reject connections. For other transports, the
                    // handshake reports whether there is room.
                    let is_open = stream.peer().is_some();
                    while is_open && !self.accepted.wait_for_room(ROOM_TIMEOUT) {}
                    self.begin(&stream, None);
                }
                Err(_) if self.is_closed.load(Ordering::Relaxed) => return,
                Err(error) => {
                    warn!(%error, "connections over UDP are not accepted any more");
                    return;
                }
            }
        }
    }

    /// Accepts connections through a relay until the listener is closed.
    fn accept_relayed(self: &Arc<Self>) {
        let ConnectionSource::Relay(registration) = &self.sources else { return };
        let mut pause = PAUSE;
        while !self.is_closed.load(Ordering::Relaxed) {
            match registration.accept(&self.options) {
                Ok(relayed) => {
                    pause = PAUSE;
                    self.begin_relayed(relayed);
                }
                Err(_) if self.is_closed.load(Ordering::Relaxed) => return,
                Err(error) => {
                    warn!("the relay {}: {error}; asking again in {pause:?}", registration.relay());
                    thread::sleep(pause);
                    pause = (2 * pause).min(MAX_RELAY_PAUSE);
                }
            }
        }
    }

    /// Accepts MICSS streams until the listener is closed.
    fn accept_joined(self: &Arc<Self>, micss: &Arc<micss::MicssStreamListener>) {
        while let Ok(stream) = micss.accept() {
            self.begin(&stream, None);
        }
    }

    /// Begins to handle a connection: with the handshake, or as a MICSS channel if it is one over
    /// TCP. A connection whose transport has its own handshake is accepted at once.
    fn begin(self: &Arc<Self>, stream: &Arc<dyn ByteStream>, tcp: Option<Arc<tcp::TcpByteStream>>) {
        if stream.peer().is_some() {
            let name = stream.peer_addr().to_string();
            self.hand_to_program(Connection::plain(stream.clone(), name, PlaintextAnswer::Nothing));
            return;
        }
        self.begin_handshake(stream, move |shared, begun| {
            let is_channel = tcp.is_some_and(|tcp| shared.hand_over(&tcp));
            if is_channel { None } else { shared.handshake(&begun.stream, begun) }
        });
    }

    /// Begins to handle a connection through a relay, which one over datagrams may replace.
    fn begin_relayed(self: &Arc<Self>, relayed: RelayedStream) {
        let RelayedStream { stream, relay, grant } = relayed;
        // The relay answers during the handshake.
        let party = DatagramParty::bind(relay, &grant).ok();
        let stream = PathStream::relayed_tcp(stream);
        self.begin_handshake(&stream, move |shared, begun| {
            let control = shared.handshake(&begun.stream, begun)?;
            let name = begun.stream.peer_addr().to_string();
            match direct::accept(control, party, &shared.options) {
                Ok(AgreedConnection::Relayed(connection)) => Some(connection),
                Ok(AgreedConnection::OverDatagrams(stream)) if stream.peer().is_some() => {
                    Some(Connection::plain(stream, name, PlaintextAnswer::Nothing))
                }
                Ok(AgreedConnection::OverDatagrams(stream)) => shared.handshake(&stream, begun),
                Err(error) => {
                    shared.log_failure(begun, &Error::from_io(&name, error));
                    None
                }
            }
        });
    }

    /// Performs a handshake in a thread of its own, and hands the connection to the program.
    fn begin_handshake(
        self: &Arc<Self>,
        stream: &Arc<dyn ByteStream>,
        handshake: impl FnOnce(&Arc<Self>, &BegunHandshake) -> Option<Connection> + Send + 'static,
    ) {
        let (shared, begun) = (self.clone(), stream.clone());
        let is_begun = match self.pending.add(stream) {
            HandshakeAdmission::Admitted => spawn(move || {
                let begun = BegunHandshake { stream: begun, is_logged: Cell::new(false) };
                let connection = handshake(&shared, &begun);
                // Before the program gets the connection, which closing the listener does not end.
                let was_pending = shared.pending.remove(&begun.stream);
                let is_known = was_pending || begun.is_logged.get();
                match connection {
                    Some(connection) => shared.hand_to_program(connection),
                    None if is_known || shared.is_closed.load(Ordering::Relaxed) => {}
                    // It was evicted.
                    None => shared.refusals.log_busy(&*begun.stream),
                }
            }),
            HandshakeAdmission::Busy => spawn(move || {
                shared.refusals.log_busy(&*begun);
                handshaking::refuse_busy(&*begun);
                shared.pending.refused();
            }),
            HandshakeAdmission::Closed => {
                self.refusals.log_busy(&**stream);
                false
            }
        };
        if !is_begun {
            self.pending.remove(stream);
            stream.close();
        }
    }

    /// Whether the connection is a MICSS channel; if so, passes it to the MICSS server.
    fn hand_over(self: &Arc<Self>, stream: &tcp::TcpByteStream) -> bool {
        let limit = self.options.handshake_timeout;
        // If this fails, so does the handshake, which reports the step.
        let _ = stream.set_timeout(Some(limit));
        if !stream.begins_with(micss::PREAMBLE, limit).unwrap_or(false) {
            return false;
        }
        let handed =
            self.micss().and_then(|server| server.hand_over(stream.socket()?, stream.peer_addr()));
        if let Err(error) = handed {
            warn!(%error, "cannot accept a channel of micss");
        }
        true
    }

    /// The MICSS server, started with the first channel.
    fn micss(self: &Arc<Self>) -> io::Result<Arc<micss::MicssStreamListener>> {
        let mut server = self.micss.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(server.clone());
        }
        let started = Arc::new(micss::MicssStreamListener::start()?);
        let (shared, accepting) = (self.clone(), started.clone());
        let work = move || shared.accept_joined(&accepting);
        thread::Builder::new().name("transport-micss".into()).spawn(work)?;
        *server = Some(started.clone());
        Ok(started)
    }

    /// Performs the handshake on a stream, which is that of `begun` or has taken its place.
    fn handshake(
        &self,
        stream: &Arc<dyn ByteStream>,
        begun: &BegunHandshake,
    ) -> Option<Connection> {
        let name = stream.peer_addr().to_string();
        let has_room = || {
            self.pending.requested(stream);
            self.accepted.wait_for_room(ROOM_TIMEOUT)
        };
        handshaking::respond(stream, &name, &self.options, has_room, |error| {
            self.log_failure(begun, error);
        })
    }

    /// Logs why a handshake has failed, unless it was evicted, which is logged in its place.
    fn log_failure(&self, begun: &BegunHandshake, error: &Error) {
        if self.pending.has(&begun.stream) {
            begun.is_logged.set(true);
            self.refusals.log(error);
        }
    }

    /// Hands a connection to the program.
    fn hand_to_program(&self, connection: Connection) {
        if connection.set_timeout(self.options.timeout).is_ok() {
            self.accepted.push(connection);
        }
    }
}

/// Runs work on one connection in its own thread. Returns whether the thread was started.
fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
    let builder = thread::Builder::new().name("transport-shake".into()).stack_size(STACK_LEN);
    builder.spawn(work).is_ok()
}
