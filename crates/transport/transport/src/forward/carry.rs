//! Moves bytes between a TCP connection of this host and a connection of a transport, in both
//! directions.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use records::MAX_CHUNK_LEN;
use socket2::{SockRef, TcpKeepalive};

use super::status::PortForwardFailureCounts;
use super::thread::spawn;
use crate::error::Error;
use crate::net::{Connection, ConnectionCloser, ConnectionReader, ConnectionWriter};
use crate::protocol::forward::TargetRefusal;

/// How often a write to a program that does not read checks whether the connection has failed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// When the kernel begins to check whether an idle program's or service's host still exists.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);

/// Why a forwarded connection has failed.
#[derive(Debug)]
pub(super) enum CarryFailure {
    /// The other end could not be reached.
    Unreachable(Error),
    /// The exposing end reports that it is not connected to its target.
    Refused(TargetRefusal),
    /// This end, which exposes a service, is not connected to its target.
    Target(String, io::Error),
    /// There are too many connections.
    TooMany,
    /// The transport's connection has failed.
    Broken(io::Error),
    /// The program or the service has reset its connection.
    Reset(io::Error),
    /// The other end does not speak this protocol.
    Malformed(String),
    /// The system returned an error.
    System(io::Error),
    /// This end stops.
    Stopped,
}

impl CarryFailure {
    pub(super) fn counter<'a>(&self, counts: &'a mut PortForwardFailureCounts) -> &'a mut u64 {
        match self {
            Self::Unreachable(_) => &mut counts.unreachable,
            Self::Refused(TargetRefusal::Busy) | Self::TooMany => &mut counts.too_many,
            Self::Refused(_) | Self::Target(..) => &mut counts.target,
            Self::Broken(_) | Self::System(_) | Self::Stopped => &mut counts.broken,
            Self::Reset(_) => &mut counts.reset,
            Self::Malformed(_) => &mut counts.malformed,
        }
    }

    /// What to do, if connections fail until it is done.
    pub(super) fn remedy(&self) -> Option<String> {
        match self {
            Self::Unreachable(error) if error.is_security() => {
                Some("compare the keys of both ends".into())
            }
            Self::Unreachable(_) => {
                Some("check that `sunder transport expose` runs there, and the path to it".into())
            }
            Self::Refused(refusal) => Some(refusal.remedy().into()),
            Self::Target(..) => Some("start the service, or correct its address".into()),
            Self::TooMany => Some("end connections that are not needed".into()),
            Self::Malformed(_) => Some("check the address of the other end".into()),
            // Otherwise the other end has closed it, for example as its service was killed.
            Self::Broken(error) if error.kind() == io::ErrorKind::TimedOut => {
                Some("check the path to the other end, and its host".into())
            }
            Self::Broken(_) | Self::Reset(_) | Self::System(_) | Self::Stopped => None,
        }
    }

    /// Whether it occurs in normal operation: programs reset connections that they do not need any
    /// more.
    pub(super) fn is_ordinary(&self) -> bool {
        matches!(self, Self::Reset(_) | Self::Stopped)
    }
}

impl fmt::Display for CarryFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(out, "{error}"),
            Self::Refused(refusal) => write!(out, "the other end refuses: {refusal}"),
            Self::Target(target, error) => match TargetRefusal::of(error) {
                TargetRefusal::NobodyListens => {
                    write!(out, "the target {target}: nobody listens there")
                }
                _ => write!(out, "the target {target}: {error}"),
            },
            Self::TooMany => write!(out, "there are too many connections"),
            Self::Broken(error) => write!(out, "{error}"),
            Self::Reset(error) => write!(out, "the program has closed its connection: {error}"),
            Self::Malformed(what) => write!(out, "{what}"),
            Self::System(error) => write!(out, "the system: {error}"),
            Self::Stopped => write!(out, "ended by the stop"),
        }
    }
}

/// A connection that is forwarded. Its two threads share it.
pub(super) struct CarriedConnection {
    local: Arc<TcpStream>,
    closer: ConnectionCloser,
    has_failed: AtomicBool,
    failure: Mutex<Option<CarryFailure>>,
}

impl CarriedConnection {
    /// A connection of this host, and the transport's connection that carries it.
    ///
    /// # Errors
    /// If the system returns an error.
    pub(super) fn new(local: Arc<TcpStream>, connection: &Connection) -> io::Result<Arc<Self>> {
        local.set_nodelay(true)?;
        local.set_write_timeout(Some(CHECK_INTERVAL))?;
        SockRef::from(&*local).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_TIME))?;
        let (has_failed, failure) = (AtomicBool::new(false), Mutex::new(None));
        Ok(Arc::new(Self { local, closer: connection.closer(), has_failed, failure }))
    }

    /// Ends both connections with a reset. The first failure is the one that is reported.
    pub(super) fn fail(&self, failure: CarryFailure) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
        self.closer.close();
        // The kernel sends a reset when the socket is closed: an end would look like the end of the
        // stream. Shutting down the reading half sends nothing, and wakes the thread that reads.
        reset_when_closed(&self.local);
        let _ = self.local.shutdown(Shutdown::Read);
    }

    /// From now on the program's connection may end without a reset: it is connected.
    pub(super) fn allow_end(&self) {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            let _ = SockRef::from(&*self.local).set_linger(None);
        }
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Carries both directions until both have ended. `open` runs first in the thread that reads
    /// from the transport.
    ///
    /// # Errors
    /// If the connection fails. Then both ends are reset.
    pub(super) fn run(
        self: &Arc<Self>,
        connection: Connection,
        counts: CarryCounts,
        open: impl FnOnce(&mut ConnectionReader) -> Result<(), CarryFailure> + Send + 'static,
    ) -> Result<(), CarryFailure> {
        let (mut reader, mut writer) = connection.split();
        let CarryCounts { sent, received } = counts;
        let (done, ended) = sync_channel(1);
        let receiving = self.clone();
        let spawned = spawn(move || {
            let opened = open(&mut reader);
            let result = opened.and_then(|()| receiving.receive(&mut reader, &received));
            let _ = done.send(match result {
                // The other direction goes on: a service may answer and close before it has read
                // everything.
                Err(CarryFailure::Reset(error)) => Err(CarryFailure::Reset(error)),
                Err(failure) => {
                    receiving.fail(failure);
                    Ok(())
                }
                Ok(()) => Ok(()),
            });
        });
        let sending = match spawned {
            Ok(()) => self.send(&mut writer, &sent),
            Err(error) => Err(CarryFailure::System(error)),
        };
        if let Err(failure) = sending {
            self.fail(failure);
        }
        if let Ok(Err(failure)) = ended.recv() {
            self.fail(failure);
        }
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err)
    }

    /// From the program to the transport.
    fn send(&self, writer: &mut ConnectionWriter, sent: &AtomicU64) -> Result<(), CarryFailure> {
        let mut buffer = vec![0; MAX_CHUNK_LEN];
        loop {
            let count = match (&*self.local).read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(CarryFailure::Reset)?,
            };
            if self.has_failed() {
                return Ok(());
            }
            if count == 0 {
                return writer.finish().map_err(CarryFailure::Broken);
            }
            let written = writer.write_all(&buffer[..count]).and_then(|()| writer.flush());
            written.map_err(CarryFailure::Broken)?;
            sent.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// From the transport to the program.
    fn receive(
        &self,
        reader: &mut ConnectionReader,
        received: &AtomicU64,
    ) -> Result<(), CarryFailure> {
        let mut buffer = vec![0; MAX_CHUNK_LEN];
        loop {
            let count = reader.read(&mut buffer).map_err(CarryFailure::Broken)?;
            if count == 0 {
                // An error: the program has closed its connection, which is the end, too.
                let _ = self.local.shutdown(Shutdown::Write);
                return Ok(());
            }
            self.write_all(&buffer[..count])?;
            received.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    fn write_all(&self, mut bytes: &[u8]) -> Result<(), CarryFailure> {
        while !bytes.is_empty() {
            match (&*self.local).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                // The program does not read.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.has_failed() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CarryFailure::Reset(error)),
            }
        }
        Ok(())
    }
}

/// Where the bytes of a connection are counted.
pub(super) struct CarryCounts {
    /// To the transport.
    pub(super) sent: Arc<AtomicU64>,
    /// From the transport.
    pub(super) received: Arc<AtomicU64>,
}

/// Lets the kernel reset a connection of this host when it is closed, so that its program does not
/// take it for one that has ended.
pub(super) fn reset_when_closed(local: &TcpStream) {
    let _ = SockRef::from(local).set_linger(Some(Duration::ZERO));
}
