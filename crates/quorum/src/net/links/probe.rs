//! Whether a server with the right key answers at an address, without a link with it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use keys::SecretKey;
use sharing::Generator;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::ephemeral;
use super::{ConnectError, HandshakeError, Peer};
use crate::protocol::link::backoff::dials;
use crate::protocol::link::handshake::{Dialer, REPLY_LEN};

/// How long a server may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is at an address.
#[derive(Debug)]
pub enum Probe {
    /// The server with the expected key, which accepts this one.
    Answers,
    /// A server that understands the expected key, and expects no connection from this one: it is
    /// the one that connects.
    Connects,
    /// A server that understands the expected key, and does not know this one.
    Unknown,
    /// A server with another key, or something else: what is wrong, in one line.
    Other(String),
    /// The connection is refused.
    Refused,
    /// There is no answer, for this reason.
    Unreachable(String),
}

/// Connects to a server as `own`, and ends the handshake before there is a link: a link that a
/// running server with this key has goes on. The other server may log a refused connection; if it
/// is the one that connects, it does so soon.
pub(super) async fn probe(own: &SecretKey, peer: &Peer) -> Probe {
    let is_dialer = dials(&own.public(), &peer.key);
    match timeout(PROBE_TIMEOUT, greet(own, peer)).await {
        Ok(Ok(())) => Probe::Answers,
        Ok(Err(ConnectError::Handshake(HandshakeError::NotExpected))) if is_dialer => {
            Probe::Unknown
        }
        Ok(Err(ConnectError::Handshake(HandshakeError::NotExpected))) => Probe::Connects,
        Ok(Err(ConnectError::Handshake(error))) => Probe::Other(error.to_string()),
        Ok(Err(ConnectError::Io(error))) => match error.kind() {
            ErrorKind::ConnectionRefused => Probe::Refused,
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                Probe::Other("what listens there closes the connection".into())
            }
            _ => Probe::Unreachable(error.to_string()),
        },
        Ok(Err(error)) => Probe::Unreachable(error.to_string()),
        Err(_) => Probe::Unreachable(format!("no answer in {} s", PROBE_TIMEOUT.as_secs())),
    }
}

/// What is at the addresses of these servers, in their order: all are asked at once.
pub async fn probe_all(own: &Arc<SecretKey>, peers: Vec<Peer>) -> Vec<(Peer, Probe)> {
    let mut probing = JoinSet::new();
    for (place, peer) in peers.into_iter().enumerate() {
        let own = Arc::clone(own);
        probing.spawn(async move {
            let found = probe(&own, &peer).await;
            (place, peer, found)
        });
    }
    let mut found = probing.join_all().await;
    found.sort_by_key(|(place, ..)| *place);
    found.into_iter().map(|(_, peer, found)| (peer, found)).collect()
}

async fn greet(own: &SecretKey, peer: &Peer) -> Result<(), ConnectError> {
    let mut stream = peer.address.connect().await?;
    let (dialer, hello) = Dialer::new(own, &peer.key, ephemeral(&mut Generator::system())?);
    stream.write_all(&hello).await?;
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply).await?;
    // Without the first record the other end has no link.
    dialer.finish(&reply)?;
    Ok(())
}
