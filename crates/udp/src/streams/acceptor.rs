//! Listening.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::backlog::{Accepted, Backlog};
use super::connection::Endpoint;
use super::driver::Driver;
use super::wake::Wake;
use crate::socket::Socket;

/// Accepts connections of all protocols that share a socket. Dropping it ends no connection that
/// was accepted.
#[derive(Debug)]
pub struct Acceptor {
    local: SocketAddr,
    backlog: Arc<Backlog>,
    wake: Arc<Wake>,
}

impl Acceptor {
    /// Listens on a socket. Each datagram belongs to the first endpoint that takes it. Up to
    /// `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// If the system gives no thread or event.
    pub fn new(
        socket: Socket,
        endpoints: Vec<Box<dyn Endpoint>>,
        backlog: usize,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let backlog = Arc::new(Backlog::new(backlog));
        let mut driver = Driver::new(socket, endpoints)?;
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
    pub fn accept(&self) -> io::Result<Accepted> {
        self.backlog.pop()
    }

    /// Listens no more. Whoever waits in [`accept`](Self::accept) gets an error.
    pub fn close(&self) {
        self.backlog.close();
        self.wake.wake();
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.close();
    }
}
