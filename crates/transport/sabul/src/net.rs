//! Runs the protocol over UDP sockets, driven by [`udp::streams`].

mod connection;
mod endpoint;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use udp::streams::{self, UdpStream, UdpStreamAcceptor};
use udp::{SocketBinding, UdpBatchSocket};

use crate::protocol::{SabulClientHandshake, SabulConfig};
use connection::SabulStreamConnection;

pub use endpoint::SabulEndpoint;

/// Connects to a listener and waits for the handshake.
///
/// # Errors
/// If no socket can be opened, or as described by [`ConnectError`](crate::SabulConnectError).
pub fn connect(peer: SocketAddr, config: SabulConfig) -> io::Result<UdpStream> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None })?;
    let word = || getrandom::u32().map_err(io::Error::other);
    let connecting =
        SabulClientHandshake::new(config, peer.ip(), [word()?, word()?], streams::now());
    streams::connect(socket, Box::new(SabulStreamConnection::connecting(connecting, peer)))
}

/// Listens on an address; port 0 chooses any. At most `backlog` connections wait to be accepted.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(
    local: SocketAddr,
    config: SabulConfig,
    backlog: usize,
) -> io::Result<UdpStreamAcceptor> {
    let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None })?;
    UdpStreamAcceptor::new(socket, vec![Box::new(SabulEndpoint::new(config)?)], backlog)
}
