//! Connections over UDP sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use sharing::Generator;
use udp::streams::{self, Stream};
use udp::{BindTo, Socket};

use crate::protocol::{Config, Connection, Security};

/// Connects to a listener and waits for the handshake.
///
/// # Errors
/// If there is no socket, or as [`Error`](crate::Error) says.
pub fn connect(peer: SocketAddr, config: Config, security: &Security<'_>) -> io::Result<Stream> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = Socket::bind(&BindTo { local, device: None })?;
    let mut generator = Generator::seeded().map_err(io::Error::other)?;
    let now = streams::now();
    let connection = Connection::connect(config, peer, security, &mut generator, now);
    streams::connect(socket, Box::new(connection.map_err(io::Error::other)?))
}
