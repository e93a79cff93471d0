//! Listeners that stay open during a reload of the configuration, so that no connection is refused.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::accept::AcceptingSocket;

/// How many connections may wait to be accepted. Beyond that, a Unix socket rejects connections,
/// and a TCP connection waits for a second, until its SYN is retransmitted. The system's limit,
/// `net.core.somaxconn`, may be lower.
const BACKLOG: i32 = 4096;

/// How many unsent bytes of a connection the kernel buffers, in addition to those in flight.
/// Otherwise a peer that does not read would use megabytes; a larger value does not make fast peers
/// faster.
const MAX_UNSENT: u32 = 64 << 10;

/// A listener for an address of a configuration. A clone is the same listener.
#[derive(Clone, Debug)]
pub struct ConfiguredListener {
    /// As in the configuration. Its port may be 0, for any free port.
    configured: SocketAddr,
    listener: Arc<TcpListener>,
}

impl ConfiguredListener {
    /// A listener that exists already. Its connections get [`set_options`].
    pub fn new(configured: SocketAddr, listener: TcpListener) -> Self {
        set_options(&listener);
        Self { configured, listener: Arc::new(listener) }
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AcceptingSocket for ConfiguredListener {
    type Stream = TcpStream;
    type Address = SocketAddr;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.listener.poll_accept(context)
    }
}

/// Listens at these addresses, in their order. Listeners of `before` are used again.
///
/// # Errors
/// If an address cannot be listened on; the error text contains the address.
pub async fn listen(
    addresses: impl IntoIterator<Item = SocketAddr>,
    before: &[ConfiguredListener],
) -> io::Result<Vec<ConfiguredListener>> {
    let mut before: Vec<&ConfiguredListener> = before.iter().collect();
    let mut listening = Vec::new();
    for configured in addresses {
        let known = before.iter().position(|known| known.configured == configured);
        listening.push(match known {
            Some(known) => before.remove(known).clone(),
            None => ConfiguredListener::new(configured, bind(configured).await?),
        });
    }
    Ok(listening)
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let enlarged = bound.and_then(|listener| {
        // Listening again changes the backlog.
        SockRef::from(&listener).listen(BACKLOG)?;
        Ok(listener)
    });
    enlarged.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}

/// Listens at a Unix socket with these permissions, from its creation on.
///
/// # Errors
/// If the system returns an error.
pub fn listen_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // On Linux a socket's file gets the permissions of the unbound socket. This avoids changing the
    // umask, which other threads share.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Sets the options of a connection, or of a listener, whose connections inherit them: small writes
/// are sent at once, few bytes wait to be sent, and keepalive detects within two minutes that an
/// idle peer is gone.
pub fn set_options(socket: &impl AsFd) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    let socket = SockRef::from(socket);
    // If setting an option fails, the connection is broken, and the first read or write reports
    // that.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_notsent_lowat(MAX_UNSENT);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpStream as Connection;

    use super::*;

    /// The backlog of the standard library is 128.
    #[tokio::test]
    async fn many_connections_wait_to_be_accepted() {
        let system = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let many = system.trim().parse::<usize>().unwrap().min(300);
        let any_port = "127.0.0.1:0".parse().unwrap();
        let listening = listen([any_port], &[]).await.unwrap();
        let address = listening[0].address().unwrap();
        let timeout = Duration::from_secs(20);
        let connect = |_| Connection::connect_timeout(&address, timeout).unwrap();
        let waiting: Vec<_> = (0..many).map(connect).collect();
        assert_eq!(waiting.len(), many);
    }

    #[tokio::test]
    async fn accepted_connections_inherit_the_options() {
        let listening = listen(["127.0.0.1:0".parse().unwrap()], &[]).await.unwrap();
        let _connection = Connection::connect(listening[0].address().unwrap()).unwrap();
        let (accepted, _) = listening[0].listener.accept().await.unwrap();
        let socket = SockRef::from(&accepted);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), MAX_UNSENT);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
    }
}
