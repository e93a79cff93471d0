//! Accepts connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::backlog::{AcceptedUdpStream, UdpAcceptBacklog};
use super::connection::UdpStreamEndpoint;
use super::driver::UdpStreamDriver;
use super::wake::UdpDriverWaker;
use crate::socket::UdpBatchSocket;

/// Accepts connections of all protocols that share a socket. Dropping it does not end accepted
/// connections.
#[derive(Debug)]
pub struct UdpStreamAcceptor {
    local: SocketAddr,
    backlog: Arc<UdpAcceptBacklog>,
    wake: Arc<UdpDriverWaker>,
}

impl UdpStreamAcceptor {
    /// Listens on a socket. Each datagram belongs to the first endpoint that accepts it. At most
    /// `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// If the system cannot create a thread or an event.
    pub fn new(
        socket: UdpBatchSocket,
        endpoints: Vec<Box<dyn UdpStreamEndpoint>>,
        backlog: usize,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let backlog = Arc::new(UdpAcceptBacklog::new(backlog));
        let mut driver = UdpStreamDriver::new(socket, endpoints)?;
        driver.listen(backlog.clone());
        let wake = driver.wake();
        driver.spawn()?;
        Ok(Self { local, backlog, wake })
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// If the socket has failed, or the acceptor was closed.
    pub fn accept(&self) -> io::Result<AcceptedUdpStream> {
        self.backlog.pop()
    }

    /// Stops listening. A waiting [`accept`](Self::accept) returns an error.
    pub fn close(&self) {
        self.backlog.close();
        self.wake.wake();
    }
}

impl Drop for UdpStreamAcceptor {
    fn drop(&mut self) {
        self.close();
    }
}
