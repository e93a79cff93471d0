//! The protocol as [`udp::streams`] drives it.

mod connection;
mod endpoint;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use udp::streams::{self, Acceptor, Stream};
use udp::{BindTo, Socket};

use crate::protocol::{Config, Connecting};
use connection::Driven;

pub use endpoint::Endpoint;

/// Connects to a listener and waits for the handshake.
///
/// # Errors
/// If there is no socket, or as [`ConnectError`](crate::ConnectError) says.
pub fn connect(peer: SocketAddr, config: Config) -> io::Result<Stream> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = Socket::bind(&BindTo { local, device: None })?;
    let word = || getrandom::u32().map_err(io::Error::other);
    let connecting = Connecting::new(config, peer.ip(), [word()?, word()?], streams::now());
    streams::connect(socket, Box::new(Driven::connecting(connecting, peer)))
}

/// Listens on an address; port 0 is any. Up to `backlog` connections wait to be accepted.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(local: SocketAddr, config: Config, backlog: usize) -> io::Result<Acceptor> {
    let socket = Socket::bind(&BindTo { local, device: None })?;
    Acceptor::new(socket, vec![Box::new(Endpoint::new(config)?)], backlog)
}
