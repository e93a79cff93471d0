//! Replaces a connection through a relay by one over datagrams: between the two parties if their
//! NATs let datagrams through, or else forwarded by the relay. Specified in
//! `docs/protocols/direct.md`.

mod connecting;
mod party;
mod waiting;

pub(super) use connecting::connect;
pub(super) use party::DatagramParty;
pub(super) use waiting::{AgreedConnection, accept};

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::connection::Connection;
use crate::protocol::direct::PathDecision;
use crate::stream::{ByteStream, ConnectionPath, PathStatistics};

/// How long one party waits for a message of the other about datagrams. Meanwhile the other one
/// waits for the relay.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a party waits for the relay's answer to its datagrams, after the handshake.
const OBSERVATION_TIMEOUT: Duration = Duration::from_millis(1200);

/// How long a connection over a verified path may take to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// The path that a decision stands for.
fn path_of(decision: PathDecision) -> ConnectionPath {
    match decision {
        PathDecision::RelayedTcp => ConnectionPath::RelayedTcp,
        PathDecision::Direct => ConnectionPath::Direct,
        PathDecision::RelayedDatagrams => ConnectionPath::RelayedDatagrams,
    }
}

/// A transport's stream, and how it reaches the other end.
pub(super) struct PathStream {
    inner: Arc<dyn ByteStream>,
    path: ConnectionPath,
    /// The connection through the relay, which the relay requires while it forwards datagrams.
    relayed: Option<Mutex<Connection>>,
}

impl PathStream {
    /// A TCP connection through a relay.
    pub(super) fn relayed_tcp(inner: Arc<dyn ByteStream>) -> Arc<dyn ByteStream> {
        Arc::new(Self { inner, path: ConnectionPath::RelayedTcp, relayed: None })
    }

    /// A connection over datagrams. A direct one does not need the connection through the relay,
    /// which ends.
    fn over_datagrams(
        inner: Arc<dyn ByteStream>,
        path: ConnectionPath,
        relayed: Connection,
    ) -> Arc<dyn ByteStream> {
        let relayed = if path == ConnectionPath::RelayedDatagrams {
            Some(Mutex::new(relayed))
        } else {
            // Ending it takes a round trip.
            let _ = thread::Builder::new().name("close".into()).spawn(|| drop(relayed));
            None
        };
        Arc::new(Self { inner, path, relayed })
    }
}

impl Drop for PathStream {
    fn drop(&mut self) {
        if let Some(relayed) = &self.relayed {
            relayed.lock().unwrap_or_else(PoisonError::into_inner).closer().close();
        }
    }
}

impl ByteStream for PathStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.inner.read(to)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn finish(&self) -> io::Result<()> {
        self.inner.finish()
    }

    fn close(&self) {
        self.inner.close();
    }

    fn has_threads(&self) -> bool {
        self.inner.has_threads()
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.set_timeout(timeout)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.inner.peer_addr()
    }

    fn transport(&self) -> &'static str {
        self.inner.transport()
    }

    fn statistics(&self) -> PathStatistics {
        self.inner.statistics()
    }

    fn path(&self) -> ConnectionPath {
        self.path
    }

    fn peer(&self) -> Option<IdentityPublicKey> {
        self.inner.peer()
    }
}
