//! The party that has waited at the relay.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use udp::UdpBatchSocket;
use udp::streams::{DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamEndpoint, now};

use super::party::PunchingState;
use super::{AGREEMENT_TIMEOUT, DatagramParty, OPEN_TIMEOUT, PathStream, path_of};
use crate::net::connection::Connection;
use crate::options::{ConnectionOptions, ConnectionSecurity, PeerKeyPolicy};
use crate::protocol::direct::{DatagramOffer, PathDecision, punching_key};
use crate::protocol::file::invalid;
use crate::protocol::punching::{PUNCHING_TIMEOUT, PunchingRole};
use crate::stream::{ByteStream, ConnectionPath};
use crate::transports::burst::{BurstAcceptor, BurstTransport};

/// How long the thread that sends pings sleeps at most.
const MAX_SLEEP: Duration = Duration::from_millis(5);

/// What this party has after the agreement.
pub(in crate::net) enum AgreedConnection {
    /// The connection through the relay.
    Relayed(Connection),
    /// A connection over datagrams.
    OverDatagrams(Arc<dyn ByteStream>),
}

/// Agrees with the connecting party on the path, and waits for its connection.
///
/// # Errors
/// If the connection through the relay fails meanwhile, or the other party does not keep to the
/// protocol.
pub(in crate::net) fn accept(
    mut control: Connection,
    party: Option<DatagramParty>,
    options: &ConnectionOptions,
) -> io::Result<AgreedConnection> {
    control.set_timeout(Some(AGREEMENT_TIMEOUT))?;
    let DatagramOffer::Candidates { key, addresses } = DatagramOffer::read(&mut control)? else {
        return Ok(AgreedConnection::Relayed(control));
    };
    let mut party = party;
    let own = match &mut party {
        Some(party) => party.offer()?,
        None => DatagramOffer::None,
    };
    control.write_all(&own.encode())?;
    control.flush()?;
    let (Some(mut party), DatagramOffer::Candidates { key: own, .. }) = (party, own) else {
        return Ok(AgreedConnection::Relayed(control));
    };
    party.begin(PunchingRole::Waiting, &punching_key(&key, &own), &addresses);
    let datagrams = PunchedSocket::start(party, &pinned(options, &control))?;
    control.set_timeout(Some(AGREEMENT_TIMEOUT + PUNCHING_TIMEOUT + OPEN_TIMEOUT))?;
    let mut byte = [0];
    control.read_exact(&mut byte)?;
    let decision = PathDecision::parse(byte[0]);
    let path =
        path_of(decision.ok_or_else(|| invalid("a decision on the path of an unknown kind"))?);
    if path == ConnectionPath::RelayedTcp {
        return Ok(AgreedConnection::Relayed(control));
    }
    let stream = datagrams.accept()?;
    let stream = PathStream::over_datagrams(stream, path, control);
    Ok(AgreedConnection::OverDatagrams(stream))
}

/// The options with which only the other party can connect.
fn pinned(options: &ConnectionOptions, control: &Connection) -> ConnectionOptions {
    let security = match (&options.security, control.peer()) {
        (ConnectionSecurity::Noise { identity, .. }, Some(peer)) => ConnectionSecurity::Noise {
            identity: identity.clone(),
            peers: PeerKeyPolicy::Pinned(vec![peer]),
        },
        (security, _) => security.clone(),
    };
    ConnectionOptions { security, ..options.clone() }
}

/// A socket that answers and sends pings, and accepts a connection.
struct PunchedSocket {
    shared: Arc<PunchedSocketShared>,
}

struct PunchedSocketShared {
    acceptor: BurstAcceptor,
    has_ended: AtomicBool,
}

impl PunchedSocket {
    fn start(party: DatagramParty, options: &ConnectionOptions) -> io::Result<Self> {
        let socket = party.socket.clone();
        let state = Arc::new(Mutex::new(party.state));
        let endpoint = PunchingEndpoint(state.clone());
        let acceptor = BurstTransport.listen_over(party.socket, Box::new(endpoint), options)?;
        let shared = Arc::new(PunchedSocketShared { acceptor, has_ended: AtomicBool::new(false) });
        let sending = shared.clone();
        let work = move || sending.send_pings(&state, &socket);
        thread::Builder::new().name("transport-ping".into()).spawn(work)?;
        Ok(Self { shared })
    }

    /// Waits for the connection, which the other party has opened.
    fn accept(self) -> io::Result<Arc<dyn ByteStream>> {
        self.shared.acceptor.accept()
    }
}

impl Drop for PunchedSocket {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
    }
}

impl PunchedSocketShared {
    /// Sends until the other party has decided. After a limit, nothing is accepted any more.
    fn send_pings(&self, state: &Mutex<PunchingState>, socket: &UdpBatchSocket) {
        let limit = now() + AGREEMENT_TIMEOUT + PUNCHING_TIMEOUT + 2 * OPEN_TIMEOUT;
        while !self.has_ended.load(Ordering::Relaxed) {
            if now() >= limit {
                return self.acceptor.close();
            }
            let next = lock(state).transmit(socket, now());
            thread::sleep(next.saturating_sub(now()).min(MAX_SLEEP));
        }
    }
}

/// Handles the datagrams of punching before those of connections.
struct PunchingEndpoint(Arc<Mutex<PunchingState>>);

impl UdpStreamEndpoint for PunchingEndpoint {
    fn protocol(&self) -> &'static str {
        "punching"
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        _load: ListenerLoad,
    ) -> DatagramRouting {
        let from: SocketAddr = datagram.from;
        match lock(&self.0).handle_datagram(now, from, datagram.bytes) {
            (_, Some(answer)) => DatagramRouting::Answer(answer.to_vec()),
            (true, None) => DatagramRouting::Nothing,
            (false, None) => DatagramRouting::NotMine,
        }
    }

    fn forget(&mut self, _id: u64) {}
}

fn lock(state: &Mutex<PunchingState>) -> MutexGuard<'_, PunchingState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
