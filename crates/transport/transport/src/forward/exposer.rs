//! The end that connects to the service.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tracing::info;

use super::MAX_BUFFER;
use super::carry::{CarriedConnection, CarryCounts, CarryFailure};
use super::open::{ForwardSlot, OpenForwards, PortForwardStatusSource};
use super::thread::spawn;
use crate::address::{check, resolve};
use crate::error::Error;
use crate::net::{Connection, Listener};
use crate::options::ConnectionOptions;
use crate::protocol::forward::{ForwardAnswer, OPENING, TargetRefusal};
use crate::protocol::relay::RelayToken;

/// How long a connection may wait until a program uses it. The other end keeps it for 30 s.
const OPENING_TIMEOUT: Duration = Duration::from_secs(40);

/// How long connecting to the target may take, for each of its addresses.
const TARGET_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a connection that is refused may take to read the reason.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest number of connections that are told at a time that there are too many.
const MAX_REFUSALS: usize = 64;

/// How often the accepting thread checks whether it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// Accepts connections of [`PortForwarder`](super::PortForwarder)s, and connects each to a target.
pub struct PortExposer {
    listener: Listener,
    shared: Arc<ExposerCore>,
}

struct ExposerCore {
    target: String,
    open: Arc<OpenForwards>,
    refusals: AtomicUsize,
    is_stopping: AtomicBool,
}

impl std::fmt::Debug for PortExposer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PortExposer").field("to", &self.shared.target).finish_non_exhaustive()
    }
}

impl PortExposer {
    /// Listens at `HOST:PORT`. `target` is the service, `HOST:PORT`.
    ///
    /// # Errors
    /// If an address is invalid, or the system returns an error.
    pub fn bind(address: &str, target: &str, options: &ConnectionOptions) -> Result<Self, Error> {
        check(target)?;
        let listener = Listener::bind(address, &limited(options))?;
        Ok(Self::new(listener, target))
    }

    /// Waits for connections at a relay. Also returns the token: others connect to
    /// `TOKEN@HOST:PORT`.
    ///
    /// # Errors
    /// As [`Listener::via`].
    pub fn via(
        relay: &str,
        target: &str,
        options: &ConnectionOptions,
    ) -> Result<(Self, RelayToken), Error> {
        check(target)?;
        let (listener, token) = Listener::via(relay, &limited(options))?;
        Ok((Self::new(listener, target), token))
    }

    fn new(listener: Listener, target: &str) -> Self {
        let core = ExposerCore {
            target: target.to_owned(),
            open: Arc::default(),
            refusals: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        };
        Self { listener, shared: Arc::new(core) }
    }

    /// The listener.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// A handle that reports its status.
    pub fn status_source(&self) -> PortForwardStatusSource {
        let (open, listen) = (self.shared.open.clone(), self.listener.local_addr().to_string());
        PortForwardStatusSource::new(open, listen, self.shared.target.clone())
    }

    /// Connects clients to the target until `stop` completes. Then open connections have 10 s to
    /// end.
    ///
    /// # Errors
    /// If the listener has failed.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { listener, shared } = self;
        let accepting = shared.clone();
        let accepted = spawn_blocking(move || accepting.accept(&listener));
        tokio::pin!(accepted);
        let failed = tokio::select! {
            ended = &mut accepted => ended.unwrap_or(Err(Error::Closed)),
            () = stop => {
                shared.is_stopping.store(true, Ordering::Relaxed);
                // The listener is closed when its thread has ended.
                let _ = accepted.await;
                Ok(())
            }
        };
        let open = shared.open.clone();
        let _ = spawn_blocking(move || open.drain()).await;
        failed
    }
}

/// The options of a listener, with buffers that are limited.
fn limited(options: &ConnectionOptions) -> ConnectionOptions {
    ConnectionOptions { max_buffer: options.max_buffer.or(Some(MAX_BUFFER)), ..options.clone() }
}

impl ExposerCore {
    /// Accepts connections until this end stops.
    fn accept(self: &Arc<Self>, listener: &Listener) -> Result<(), Error> {
        while !self.is_stopping.load(Ordering::Relaxed) {
            if let Some(connection) = listener.accept_timeout(STOP_INTERVAL)? {
                self.begin(connection);
            }
        }
        Ok(())
    }

    /// Begins to serve a connection, in its own thread.
    fn begin(self: &Arc<Self>, connection: Connection) {
        let (from, closer) = (name(&connection), connection.closer());
        let Some(slot) = self.open.reserve() else {
            self.open.record_failure(&from, &CarryFailure::TooMany);
            self.refuse_busy(connection);
            return;
        };
        let shared = self.clone();
        let spawned = spawn(move || {
            if let Err(failure) = shared.serve(connection, &slot, &from) {
                shared.open.record_failure(&from, &failure);
            }
        });
        if let Err(error) = spawned {
            closer.close();
            self.open.record_failure("a connection", &CarryFailure::System(error));
        }
    }

    /// Connects to the target and carries the connection. If the target does not accept it, records
    /// that and tells the client.
    fn serve(
        &self,
        mut connection: Connection,
        slot: &ForwardSlot,
        from: &str,
    ) -> Result<(), CarryFailure> {
        let closer = connection.closer();
        match read_opening(&mut connection) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(failure) => {
                closer.close();
                return Err(failure);
            }
        }
        let target = match connect_target(&self.target) {
            Ok(target) => target,
            Err(error) => {
                let reason = TargetRefusal::of(&error);
                let failure = CarryFailure::Target(self.target.clone(), error);
                self.open.record_failure(from, &failure);
                refuse(connection, reason);
                return Ok(());
            }
        };
        let sent = connection.write_all(&ForwardAnswer::Connected.bytes());
        sent.and_then(|()| connection.flush()).map_err(CarryFailure::Broken)?;
        let carried =
            CarriedConnection::new(Arc::new(target), &connection).map_err(CarryFailure::System)?;
        let transport = connection.transport();
        slot.add(carried.clone(), transport);
        slot.record_connected();
        info!("{from} is connected to {} by {transport}", self.target);
        let counts = CarryCounts {
            sent: self.open.to_clients_bytes.clone(),
            received: self.open.from_clients_bytes.clone(),
        };
        carried.run(connection, counts, |_| Ok(()))
    }

    /// Tells a client that there are too many connections.
    fn refuse_busy(self: &Arc<Self>, connection: Connection) {
        let closer = connection.closer();
        if self.refusals.fetch_add(1, Ordering::Relaxed) >= MAX_REFUSALS {
            self.refusals.fetch_sub(1, Ordering::Relaxed);
            closer.close();
            return;
        }
        let shared = self.clone();
        let spawned = spawn(move || {
            refuse(connection, TargetRefusal::Busy);
            shared.refusals.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.refusals.fetch_sub(1, Ordering::Relaxed);
            closer.close();
        }
    }
}

/// The other end of a connection, for the log.
fn name(connection: &Connection) -> String {
    let address = connection.peer_addr();
    match connection.peer() {
        Some(key) => format!("{address} with key {key}"),
        None => format!("{address}, insecure,"),
    }
}

/// Waits for the first bytes of a forward. Returns false if the connection ends without them: it
/// was opened ahead, and no program has used it.
fn read_opening(connection: &mut Connection) -> Result<bool, CarryFailure> {
    let mut opening = [0; OPENING.len()];
    connection.set_timeout(Some(OPENING_TIMEOUT)).map_err(CarryFailure::Broken)?;
    let count = connection.read(&mut opening).map_err(CarryFailure::Broken)?;
    if count == 0 {
        return Ok(false);
    }
    connection.read_exact(&mut opening[count..]).map_err(CarryFailure::Broken)?;
    connection.set_timeout(None).map_err(CarryFailure::Broken)?;
    if opening == *OPENING {
        return Ok(true);
    }
    Err(CarryFailure::Malformed("`sunder transport forward` does not run at the other end".into()))
}

/// Sends a client the reason of a refusal, and closes its connection.
fn refuse(mut connection: Connection, reason: TargetRefusal) {
    let closer = connection.closer();
    let limited = connection.set_timeout(Some(REFUSAL_TIMEOUT));
    let told = limited.and_then(|()| {
        connection.write_all(&ForwardAnswer::Refused(reason).bytes())?;
        connection.finish()
    });
    if told.is_ok() {
        // A kernel that resets the connection because of unread data would lose the reason.
        let mut buffer = vec![0; 1 << 14];
        while connection.read(&mut buffer).is_ok_and(|count| count > 0) {}
    }
    closer.close();
}

/// Connects to the first address of the target that answers.
fn connect_target(target: &str) -> io::Result<TcpStream> {
    let addresses =
        resolve(target).map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?;
    let mut last = io::ErrorKind::NotFound.into();
    for address in addresses {
        match TcpStream::connect_timeout(&address, TARGET_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
