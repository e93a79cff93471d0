//! The end to which programs connect.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use service::accept::RoundRobinAcceptor;
use service::listening::{ConfiguredListener, listen};
use tokio::task::spawn_blocking;
use tracing::debug;

use super::MAX_BUFFER;
use super::carry::{CarriedConnection, CarryCounts, CarryFailure, reset_when_closed};
use super::open::{ForwardSlot, OpenForwards, PortForwardStatusSource};
use super::spare::SpareConnection;
use super::thread::spawn;
use crate::address::check;
use crate::error::{ConnectionStep, Error};
use crate::net::{Connection, ConnectionReader, connect};
use crate::options::ConnectionOptions;
use crate::protocol::forward::{ForwardAnswer, MAX_ANSWER_LEN, NotExposing, OPENING};

/// If connecting takes longer, the next connection is opened ahead.
const MIN_SAVED: Duration = Duration::from_millis(10);

/// Accepts TCP connections of programs, and opens a transport's connection for each.
pub struct PortForwarder {
    listening: Vec<ConfiguredListener>,
    shared: Arc<ForwarderCore>,
}

struct ForwarderCore {
    to: String,
    options: ConnectionOptions,
    open: Arc<OpenForwards>,
    spare: Arc<SpareConnection>,
    /// Whether connecting takes so long that it is worth opening a connection ahead.
    is_slow: AtomicBool,
}

impl std::fmt::Debug for PortForwarder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PortForwarder").field("to", &self.shared.to).finish_non_exhaustive()
    }
}

impl PortForwarder {
    /// Listens at an address. Connections go to the exposing end at `to`, which is `HOST:PORT` or
    /// `TOKEN@HOST:PORT`.
    ///
    /// # Errors
    /// If `to` is no such address, or the system returns an error.
    pub async fn bind(
        address: SocketAddr,
        to: &str,
        options: ConnectionOptions,
    ) -> Result<Self, Error> {
        check(to)?;
        let listening = listen([address], &[]).await;
        // The step has the text of the error.
        let failed = |error: io::Error| {
            let place = address.to_string();
            Error::at(ConnectionStep::Listen, &place, error.kind().into(), None)
        };
        let listening = listening.map_err(failed)?;
        let max_buffer = options.max_buffer.or(Some(MAX_BUFFER));
        let options = ConnectionOptions { max_buffer, ..options };
        let core = ForwarderCore {
            to: to.to_owned(),
            options,
            open: Arc::default(),
            spare: Arc::default(),
            is_slow: AtomicBool::new(false),
        };
        Ok(Self { listening, shared: Arc::new(core) })
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listening.first().ok_or(io::ErrorKind::NotConnected)?.address()
    }

    /// A handle that reports its status.
    ///
    /// # Errors
    /// As for [`Self::local_addr`].
    pub fn status_source(&self) -> io::Result<PortForwardStatusSource> {
        let listen = self.local_addr()?.to_string();
        Ok(PortForwardStatusSource::new(self.shared.open.clone(), listen, self.shared.to.clone()))
    }

    /// Forwards until `stop` completes. Then open connections have 10 s to end.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listening, shared } = self;
        let mut round_robin = RoundRobinAcceptor::default();
        let accepting = async {
            loop {
                let (_, stream, from) = round_robin.accept(&listening).await;
                if let Ok(stream) = stream.into_std() {
                    shared.begin(stream, from);
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop => {}
        }
        drop(listening);
        let stopping = move || {
            shared.spare.close();
            shared.open.drain();
        };
        let _ = spawn_blocking(stopping).await;
    }
}

impl ForwarderCore {
    /// Begins to forward a program's connection, in its own thread.
    fn begin(self: &Arc<Self>, local: TcpStream, from: SocketAddr) {
        let Some(slot) = self.open.reserve() else {
            reset_when_closed(&local);
            self.open.record_failure(&from.to_string(), &CarryFailure::TooMany);
            return;
        };
        let (shared, local, slot) = (self.clone(), Arc::new(local), Arc::new(slot));
        let spawned = spawn(move || {
            // A failure is recorded before the program's connection is closed, so that the status
            // has it when the program sees the reset.
            if let Err(failure) = shared.forward(&local, &slot) {
                shared.open.record_failure(&format!("a connection of {from}"), &failure);
                if matches!(failure, CarryFailure::Broken(_)) {
                    // It has the same path.
                    shared.spare.discard();
                }
            }
        });
        if let Err(error) = spawned {
            self.open.record_failure(&from.to_string(), &CarryFailure::System(error));
        }
    }

    fn forward(
        self: &Arc<Self>,
        local: &Arc<TcpStream>,
        slot: &Arc<ForwardSlot>,
    ) -> Result<(), CarryFailure> {
        // Until the target is connected, whatever ends the connection is an error to the program.
        reset_when_closed(local);
        local.set_nonblocking(false).map_err(CarryFailure::System)?;
        let mut connection = match self.spare.take() {
            Some(connection) => connection,
            None => self.connect().map_err(CarryFailure::Unreachable)?,
        };
        let opened = connection.write_all(OPENING).and_then(|()| connection.flush());
        opened.map_err(CarryFailure::Broken)?;
        let carried =
            CarriedConnection::new(local.clone(), &connection).map_err(CarryFailure::System)?;
        let transport = connection.transport();
        slot.add(carried.clone(), transport);
        let counts = CarryCounts {
            sent: self.open.from_clients_bytes.clone(),
            received: self.open.to_clients_bytes.clone(),
        };
        let (shared, opening, answered) = (self.clone(), slot.clone(), carried.clone());
        carried.run(connection, counts, move |reader| {
            wait_for_target(reader)?;
            answered.allow_end();
            opening.record_connected();
            debug!(transport, "forwards a connection");
            if shared.is_slow.load(Ordering::Relaxed) {
                let connecting = shared.clone();
                shared.spare.refill(move || connecting.connect());
            }
            Ok(())
        })
    }

    /// Connects to the other end.
    fn connect(&self) -> Result<Connection, Error> {
        let start = Instant::now();
        let connection = connect(&self.to, &self.options)?;
        self.is_slow.store(start.elapsed() >= MIN_SAVED, Ordering::Relaxed);
        Ok(connection)
    }
}

/// Waits until the exposing end has connected to its target.
fn wait_for_target(reader: &mut ConnectionReader) -> Result<(), CarryFailure> {
    let (mut answer, mut len) = ([0; MAX_ANSWER_LEN], 0);
    loop {
        let parsed = ForwardAnswer::parse(&answer[..len]);
        match parsed.map_err(|error| CarryFailure::Malformed(error.to_string()))? {
            Some(ForwardAnswer::Connected) => return Ok(()),
            Some(ForwardAnswer::Refused(refusal)) => return Err(CarryFailure::Refused(refusal)),
            None => {}
        }
        match reader.read(&mut answer[len..=len]).map_err(CarryFailure::Broken)? {
            0 => return Err(CarryFailure::Malformed(NotExposing.to_string())),
            count => len += count,
        }
    }
}
