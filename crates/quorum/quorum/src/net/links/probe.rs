//! Probes whether a server with the expected key answers at an address, without opening a link.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use random::RandomGenerator;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection::ephemeral;
use super::{LinkConnectError, LinkHandshakeError, QuorumPeer};
use crate::protocol::link::backoff::dials;
use crate::protocol::link::handshake::{LinkDialer, REPLY_LEN};

/// The time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a probe.
#[derive(Debug)]
pub enum LinkProbeResult {
    /// A server with the expected key, which accepts this one.
    Answers,
    /// A server with the expected key that expects no connection from this one, because it is the
    /// one that connects.
    Connects,
    /// A server with the expected key that does not know this one.
    Unknown,
    /// A server with another key, or something else. The text says what is wrong, in one line.
    Other(String),
    /// The connection is refused.
    Refused,
    /// There is no answer, for this reason.
    Unreachable(String),
}

/// Connects to a server as `own`, and aborts the handshake before there is a link. An existing link
/// of a running server with this key continues. The other server may log a refused connection. If
/// it is the one that connects, it does so soon.
pub(super) async fn probe(own: &IdentitySecretKey, peer: &QuorumPeer) -> LinkProbeResult {
    let is_dialer = dials(&own.public(), &peer.key);
    match timeout(PROBE_TIMEOUT, greet(own, peer)).await {
        Ok(Ok(())) => LinkProbeResult::Answers,
        Ok(Err(LinkConnectError::Handshake(LinkHandshakeError::NotExpected))) if is_dialer => {
            LinkProbeResult::Unknown
        }
        Ok(Err(LinkConnectError::Handshake(LinkHandshakeError::NotExpected))) => {
            LinkProbeResult::Connects
        }
        Ok(Err(LinkConnectError::Handshake(error))) => LinkProbeResult::Other(error.to_string()),
        Ok(Err(LinkConnectError::Io(error))) => match error.kind() {
            ErrorKind::ConnectionRefused => LinkProbeResult::Refused,
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                LinkProbeResult::Other("what listens there closes the connection".into())
            }
            _ => LinkProbeResult::Unreachable(error.to_string()),
        },
        Ok(Err(error)) => LinkProbeResult::Unreachable(error.to_string()),
        Err(_) => {
            LinkProbeResult::Unreachable(format!("no answer in {} s", PROBE_TIMEOUT.as_secs()))
        }
    }
}

/// Probes the addresses of these servers concurrently. The results are in the same order.
pub async fn probe_all(
    own: &Arc<IdentitySecretKey>,
    peers: Vec<QuorumPeer>,
) -> Vec<(QuorumPeer, LinkProbeResult)> {
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

async fn greet(own: &IdentitySecretKey, peer: &QuorumPeer) -> Result<(), LinkConnectError> {
    let mut stream = peer.address.connect().await?;
    let (dialer, hello) =
        LinkDialer::new(own, &peer.key, ephemeral(&mut RandomGenerator::system())?);
    stream.write_all(&hello).await?;
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply).await?;
    // Without the first record, the other end opens no link.
    dialer.finish(&reply)?;
    Ok(())
}
