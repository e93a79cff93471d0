//! Listening.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::backlog::{AcceptedUdpStream, UdpAcceptBacklog};
use super::connection::UdpStreamEndpoint;
use super::driver::UdpStreamDriver;
use super::wake::UdpDriverWaker;
use crate::socket::UdpBatchSocket;

/// Accepts connections of all protocols that share a socket. Dropping it ends no connection that
/// was accepted.
#[derive(Debug)]
pub struct UdpStreamAcceptor {
    local: SocketAddr,
    backlog: Arc<UdpAcceptBacklog>,
    wake: Arc<UdpDriverWaker>,
}

impl UdpStreamAcceptor {
    /// Listens on a socket. Each datagram belongs to the first endpoint that takes it. Up to
    /// `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// If the system gives no thread or event.
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

    /// The address it listens on.
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

    /// Listens no more. Whoever waits in [`accept`](Self::accept) gets an error.
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
