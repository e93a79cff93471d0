//! Connections of applications that leave directly, because the configuration lets them bypass the
//! channels.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use service::listening::set_options;
use socket2::SockRef;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tracing::{debug, info};

use crate::net::metrics::{LimitedLogEvent, StreamMetrics};
use crate::net::socket::{end_when_dropped, reset_when_dropped};
use crate::protocol::socks;
use crate::protocol::target::{ServiceRefusal, ServiceTarget, TargetHost};

/// The time limit for the destination to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects an application to its destination, and moves bytes to the end of both directions. With
/// the mark, the connection is not intercepted.
pub(super) async fn connect_directly(
    stream_metrics: &StreamMetrics,
    target: &ServiceTarget,
    mark: Option<u32>,
    is_socks: bool,
    mut application: TcpStream,
) {
    let metrics = &stream_metrics.bypass;
    let _open = metrics.begin();
    // Without a reply, only a reset tells the application of an error.
    if !is_socks {
        reset_when_dropped(&application);
    }
    let connected = timeout(CONNECT_TIMEOUT, connect(target, mark)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut destination = match connected {
        Ok(destination) => destination,
        Err(error) => {
            metrics.failed.increment();
            if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::Broken) {
                info!(%target, %error, occurrences, "not connected directly");
            }
            if is_socks {
                let refusal = match error.kind() {
                    io::ErrorKind::ConnectionRefused => ServiceRefusal::ConnectionRefused,
                    _ => ServiceRefusal::Unreachable,
                };
                // The outcome is the same whether the reply arrives or not.
                let _ = application.write_all(&socks::reply(Err(refusal))).await;
            }
            return;
        }
    };
    metrics.opened.increment();
    debug!(%target, "connected directly");
    if is_socks && application.write_all(&socks::reply(Ok(()))).await.is_err() {
        return;
    }
    // One end learns of an error at the other.
    reset_when_dropped(&application);
    reset_when_dropped(&destination);
    if copy_bidirectional(&mut application, &mut destination).await.is_ok() {
        end_when_dropped(&application);
        end_when_dropped(&destination);
    }
}

/// Connects to one of the destination's addresses.
async fn connect(target: &ServiceTarget, mark: Option<u32>) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = match target.host() {
        TargetHost::Address(address) => vec![SocketAddr::new(*address, target.port())],
        TargetHost::Name(name) => {
            tokio::net::lookup_host((name.as_str(), target.port())).await?.collect()
        }
    };
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if let Some(mark) = mark {
            SockRef::from(&socket).set_mark(mark)?;
        }
        match socket.connect(address).await {
            Ok(connected) => {
                set_options(&connected);
                return Ok(connected);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
