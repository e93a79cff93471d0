//! Connections over UDP sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use random::RandomGenerator;
use udp::streams::{self, UdpStream};
use udp::{SocketBinding, UdpBatchSocket};

use crate::protocol::{BurstConfig, BurstConnection, BurstSecurity};

/// Connects to a listener and waits for the handshake.
///
/// # Errors
/// If no socket can be opened, or as described by [`Error`](crate::Error).
pub fn connect(
    peer: SocketAddr,
    config: BurstConfig,
    security: &BurstSecurity<'_>,
) -> io::Result<UdpStream> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None })?;
    streams::connect(socket, Box::new(client(peer, config, security)?))
}

/// Like [`connect`], with a socket on which datagrams of the peer have arrived.
///
/// # Errors
/// As described by [`Error`](crate::Error).
pub fn connect_over(
    socket: UdpBatchSocket,
    peer: SocketAddr,
    config: BurstConfig,
    security: &BurstSecurity<'_>,
) -> io::Result<UdpStream> {
    streams::connect_to_reachable(socket, Box::new(client(peer, config, security)?))
}

fn client(
    peer: SocketAddr,
    config: BurstConfig,
    security: &BurstSecurity<'_>,
) -> io::Result<BurstConnection> {
    let mut generator = RandomGenerator::seeded().map_err(io::Error::other)?;
    let now = streams::now();
    BurstConnection::connect(config, peer, security, &mut generator, now).map_err(io::Error::other)
}
