//! Opens connections.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::connection::UdpStreamConnection;
use super::driver::{SINGLE_CONNECTION_KEY, UdpStreamDriver};
use super::now;
use super::stream::UdpStream;
use crate::socket::{UdpBatchSocket, is_full};

/// How long an ICMP error is ignored before it ends the attempt to connect. ICMP errors are not
/// authenticated.
const ICMP_ERROR_WAIT: Duration = Duration::from_secs(1);

/// A datagram that no protocol accepts.
const UNKNOWN_DATAGRAM: [u8; 1] = [0];

/// Drives a connection on its own socket, and waits until it is open.
///
/// # Errors
/// If the socket fails; if the host reports that the port is closed and nothing else arrives for a
/// second; or if the connection fails before it is open.
pub fn connect(
    socket: UdpBatchSocket,
    connection: Box<dyn UdpStreamConnection>,
) -> io::Result<UdpStream> {
    let mut reachability = PeerReachability::check(connection.peer_addr())?;
    open(socket, connection, || reachability.poll())
}

/// Like [`connect`], to a peer from which datagrams have arrived on this socket: ICMP errors are
/// ignored, as a NAT reports them to other sockets only.
///
/// # Errors
/// If the socket fails, or the connection before it is open.
pub fn connect_to_reachable(
    socket: UdpBatchSocket,
    connection: Box<dyn UdpStreamConnection>,
) -> io::Result<UdpStream> {
    open(socket, connection, || Ok(()))
}

fn open(
    socket: UdpBatchSocket,
    connection: Box<dyn UdpStreamConnection>,
    check: impl FnMut() -> io::Result<()>,
) -> io::Result<UdpStream> {
    let mut driver = UdpStreamDriver::new(socket, Vec::new())?;
    let stream = driver.add(SINGLE_CONNECTION_KEY, connection);
    driver.spawn()?;
    stream.wait_until_open(check)?;
    Ok(stream)
}

/// Detects ICMP errors for the peer's port. The kernel reports them only to a connected socket. The
/// socket of a connection is not connected, because the peer may migrate.
struct PeerReachability {
    socket: UdpSocket,
    failed: Option<(Duration, io::Error)>,
}

impl PeerReachability {
    /// Sends a datagram that the peer ignores.
    ///
    /// # Errors
    /// If there is no route to the peer, or a firewall rule of this host blocks it.
    fn check(peer: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        socket.connect(peer)?;
        match socket.send(&UNKNOWN_DATAGRAM) {
            // A full buffer says nothing about the peer.
            Err(error) if !error.raw_os_error().is_some_and(is_full) => return Err(error),
            _ => {}
        }
        Ok(Self { socket, failed: None })
    }

    /// # Errors
    /// If ICMP reported the port as unreachable long enough ago.
    fn poll(&mut self) -> io::Result<()> {
        if self.failed.is_none()
            && let Err(error) = self.socket.recv(&mut [0])
            && error.kind() != io::ErrorKind::WouldBlock
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.failed = Some((now(), error));
        }
        match self.failed.take_if(|(at, _)| now() >= *at + ICMP_ERROR_WAIT) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}
