//! Accepts connections from other servers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use service::accept::RoundRobinAcceptor;
use service::connection_limiter::ConnectionLimiter;
use service::listening::{ConfiguredListener, set_options};
use service::log::LogRateLimiter;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::{HANDSHAKE_TIMEOUT, LinkConnectError, LinkHandshakeError, SharedLinks, connection};

/// The largest number of concurrent incoming handshakes.
const MAX_HANDSHAKES: usize = 128;

/// The largest number of them from one source. All servers of two groups may be on one host.
const MAX_HANDSHAKES_OF_SOURCE: usize = 32;

/// The interval at which the log names a server that may not connect, such as one that has left the
/// group.
const NAME_INTERVAL: Duration = Duration::from_secs(3600);

/// The largest number of such servers that are remembered.
const MAX_NAMED: usize = 256;

/// Decides which refused connections are logged.
#[derive(Default)]
struct RefusedConnectionLog {
    lines: LogRateLimiter,
    /// When each server was last named.
    named: HashMap<[u8; 32], Instant>,
}

impl RefusedConnectionLog {
    /// Counts a refused connection. Returns how many connections the line stands for, if one is
    /// due.
    fn refused(&mut self, error: &LinkConnectError) -> Option<u64> {
        if let LinkConnectError::Handshake(LinkHandshakeError::Unknown(key)) = error {
            let key = key.to_bytes();
            if self.named.get(&key).is_some_and(|at| at.elapsed() < NAME_INTERVAL) {
                return None;
            }
            if self.named.len() >= MAX_NAMED {
                self.named.clear();
            }
            self.named.insert(key, Instant::now());
        }
        self.lines.count_event_of(8)
    }
}

/// Accepts connections. A connection that has not proven its key occupies one of a limited number
/// of slots.
pub(super) async fn run(shared: Arc<SharedLinks>, listening: Vec<ConfiguredListener>) {
    // Until then, connections wait in the queue, so that a starting server refuses no server of its
    // group.
    shared.peers_known.notified().await;
    let mut handshakes = ConnectionLimiter::new(MAX_HANDSHAKES, MAX_HANDSHAKES_OF_SOURCE);
    let mut round_robin = RoundRobinAcceptor::default();
    let mut evicted = LogRateLimiter::default();
    let refusals = Arc::new(Mutex::new(RefusedConnectionLog::default()));
    loop {
        tokio::select! {
            (_, stream, address) = round_robin.accept(&listening) => {
                let handshake =
                    shake_hands(Arc::clone(&shared), stream, address, Arc::clone(&refusals));
                if let Some(source) = handshakes.spawn(address.ip(), handshake)
                    && let Some(closed) = evicted.count_event()
                {
                    warn!(
                        %source, closed,
                        "connections closed before their ends were proven: too many at once; a \
                         firewall can keep their source out"
                    );
                }
            }
            () = handshakes.join_next() => {}
        }
    }
}

async fn shake_hands(
    shared: Arc<SharedLinks>,
    stream: TcpStream,
    address: SocketAddr,
    refusals: Arc<Mutex<RefusedConnectionLog>>,
) {
    set_options(&stream);
    let answering = connection::answer(&shared.own, stream, |key| shared.expects(key));
    let answered = timeout(HANDSHAKE_TIMEOUT, answering).await;
    match answered.unwrap_or(Err(LinkConnectError::TimedOut)) {
        Ok((stream, session)) => _ = shared.open(stream, session),
        // This server connects to the other one, which asks for it.
        Err(LinkConnectError::Handshake(LinkHandshakeError::Unknown(key)))
            if shared.knows(&key) =>
        {
            debug!(%address, server = %key, "asked to connect");
        }
        Err(error) => {
            shared.refused_connections.fetch_add(1, Ordering::Relaxed);
            let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(occurrences) = refusals.refused(&error) {
                warn!(%address, %error, occurrences, "connection refused");
            }
        }
    }
}
