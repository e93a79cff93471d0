//! A relay between client and server that causes one fault at one byte of a channel.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The fault of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The channel ends in this direction, as if its sender had ended it.
    End,
    /// The channel is reset.
    Reset,
    /// One bit is changed.
    Flip,
    /// Nothing more is forwarded.
    Silence,
}

/// The direction of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A fault, its direction, and the byte at which it occurs, counted from the connection's first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The direction.
    pub(crate) direction: Direction,
    /// The position of the byte.
    pub(crate) at: usize,
    /// The fault.
    pub(crate) fault: Fault,
}

/// A relay to a server.
pub(crate) struct FaultRelay {
    /// The address to which the client connects.
    pub(crate) address: SocketAddr,
    done: Arc<Notify>,
    connections: Arc<Connections>,
}

/// The connections through a relay, numbered as they were accepted.
#[derive(Default)]
struct Connections {
    accepted: AtomicUsize,
    /// Those with the fault, in the order in which it occurred.
    faulty: Mutex<Vec<usize>>,
}

impl FaultRelay {
    /// Starts a relay to `server`.
    pub(crate) async fn start(server: SocketAddr, plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(Notify::new());
        let connections = Arc::new(Connections::default());
        let shared = (Arc::clone(&done), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A client that has gone before it is served is none of this relay's faults.
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let (done, connections) = shared.clone();
                let number = connections.accepted.fetch_add(1, Ordering::Relaxed);
                let on_fault = move || {
                    connections.faulty.lock().unwrap().push(number);
                    done.notify_one();
                };
                tokio::spawn(carry(client, server, plan, on_fault));
            }
        });
        Self { address, done, connections }
    }

    /// The number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.connections.accepted.load(Ordering::Relaxed)
    }

    /// The numbers, from 0, of the connections in which the fault has occurred, in that order.
    pub(crate) fn faulty(&self) -> Vec<usize> {
        self.connections.faulty.lock().unwrap().clone()
    }

    /// Waits until the fault has occurred.
    pub(crate) async fn done(&self) {
        self.done.notified().await;
    }
}

/// Relays one connection in both directions. A reset of one side becomes a reset of the other.
/// `on_fault` is called when the fault occurs.
async fn carry(mut client: TcpStream, mut server: TcpStream, plan: Plan, on_fault: impl Fn()) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let result = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let at = |direction| (plan.direction == direction).then_some((plan, &on_fault));
        tokio::try_join!(
            pump(from_client, to_server, at(Direction::Up)),
            pump(from_server, to_client, at(Direction::Down)),
        )
    };
    if result.is_err() {
        for stream in [&client, &server] {
            SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }
}

/// Relays one direction to its end. A reset is an error.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    plan: Option<(Plan, &impl Fn())>,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    let mut passed = 0;
    loop {
        let len = from.read(&mut bytes).await?;
        if len == 0 {
            return to.shutdown().await;
        }
        let piece = &mut bytes[..len];
        match plan {
            Some((Plan { at, fault, .. }, on_fault)) if (passed..passed + len).contains(&at) => {
                let place = at - passed;
                if fault == Fault::Flip {
                    piece[place] ^= 1;
                    on_fault();
                    to.write_all(piece).await?;
                } else {
                    to.write_all(&piece[..place]).await?;
                    on_fault();
                    return break_off(fault, from, to).await;
                }
            }
            _ => to.write_all(piece).await?,
        }
        passed += len;
    }
}

async fn break_off(fault: Fault, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
    match fault {
        Fault::End => {
            to.shutdown().await?;
            tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(|_| ())
        }
        Fault::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        Fault::Silence => std::future::pending().await,
        Fault::Flip => unreachable!("goes on"),
    }
}
