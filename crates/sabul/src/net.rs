//! Sockets and threads: moves datagrams between the system and the protocol, and lets programs
//! wait.

mod driver;
mod stream;
mod wake;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use udp::{BindTo, RecvBuffer, Socket};

use crate::protocol::{Config, Connected, Connecting, Connection};
use driver::Driver;
use wake::Wake;

pub use stream::Stream;

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
    let clock = Clock::start();
    let connection = shake_hands(&socket, peer, config, &clock)?;
    let mut driver = Driver::new(socket, clock)?;
    let stream = driver.add(connection, peer);
    driver.spawn()?;
    Ok(stream)
}

fn shake_hands(
    socket: &Socket,
    peer: SocketAddr,
    config: Config,
    clock: &Clock,
) -> io::Result<Connection> {
    let mut connecting = Connecting::new(config, peer.ip(), random()?, clock.now());
    let (mut buffer, mut datagram) = (RecvBuffer::new(), Vec::new());
    loop {
        let now = clock.now();
        connecting
            .handle_timeout(now)
            .map_err(|error| io::Error::new(io::ErrorKind::TimedOut, error))?;
        datagram.clear();
        if connecting.poll_transmit(now, &mut datagram) {
            socket.send_one(&datagram, peer);
        }
        wait(socket, None, connecting.poll_timeout().saturating_sub(now))?;
        buffer.receive(socket)?;
        for (from, datagram) in buffer.datagrams() {
            if from != peer {
                continue;
            }
            match connecting.handle_datagram(clock.now(), datagram) {
                Connected::Yes(connection) => return Ok(*connection),
                Connected::Failed(error) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionRefused, error));
                }
                Connected::NotYet => {}
            }
        }
    }
}

/// Accepts connections. Dropping it ends no connection.
#[derive(Debug)]
pub struct Acceptor {
    local: SocketAddr,
    accepted: Receiver<Stream>,
    wake: Arc<Wake>,
}

impl Acceptor {
    /// Listens on an address; port 0 is any. Up to `backlog` connections wait to be accepted.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn bind(local: SocketAddr, config: Config, backlog: usize) -> io::Result<Self> {
        let socket = Socket::bind(&BindTo { local, device: None })?;
        let local = socket.local_addr()?;
        let mut driver = Driver::new(socket, Clock::start())?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let accepted = driver.listen(config, secret, backlog);
        let wake = driver.wake();
        driver.spawn()?;
        Ok(Self { local, accepted, wake })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// If the socket has failed.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let stream = self.accepted.recv().map_err(|_| io::Error::other("the socket has failed"))?;
        let peer = stream.peer_addr();
        Ok((stream, peer))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.wake.stop_listening();
    }
}

/// The time since it was started.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits until a datagram has arrived, somebody wakes it, or time has passed.
fn wait(socket: &Socket, wake: Option<&Wake>, time: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(time.min(Duration::from_secs(60))).ok();
    let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
    if let Some(wake) = wake {
        fds.push(PollFd::new(wake, PollFlags::IN));
    }
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(wake) = wake {
        wake.clear();
    }
    Ok(())
}

/// Numbers that nobody can guess.
fn random() -> io::Result<[u32; 2]> {
    let word = || getrandom::u32().map_err(io::Error::other);
    Ok([word()?, word()?])
}
