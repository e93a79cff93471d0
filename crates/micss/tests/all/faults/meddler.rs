//! Somebody on a channel: a relay between client and server that does one thing at one byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What a meddler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Ends the channel in this direction, as if its sender had.
    End,
    /// Resets the channel.
    Reset,
    /// Changes one bit.
    Flip,
    /// Passes on nothing more, and says nothing.
    Silence,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What a meddler does where: instead of passing on byte `at`, counted from the connection's first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Which way.
    pub(crate) direction: Direction,
    /// At which byte.
    pub(crate) at: usize,
    /// What.
    pub(crate) fault: Fault,
}

/// A relay on the way to a server.
pub(crate) struct Meddler {
    /// Where the client is to connect to.
    pub(crate) address: SocketAddr,
    done: Arc<Notify>,
}

impl Meddler {
    /// Takes up its place before `server`.
    pub(crate) async fn start(server: SocketAddr, plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(Notify::new());
        let tell = Arc::clone(&done);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(carry(client, server, plan, Arc::clone(&tell)));
            }
        });
        Self { address, done }
    }

    /// Waits until it has done what it planned.
    pub(crate) async fn done(&self) {
        self.done.notified().await;
    }
}

/// Carries one connection both ways. A reset of one side becomes a reset of the other.
async fn carry(mut client: TcpStream, mut server: TcpStream, plan: Plan, done: Arc<Notify>) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let result = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let at = |direction| (plan.direction == direction).then_some((plan, &*done));
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

/// Carries one direction to its end. An error is what a reset looks like.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    plan: Option<(Plan, &Notify)>,
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
            Some((Plan { at, fault, .. }, done)) if (passed..passed + len).contains(&at) => {
                let place = at - passed;
                if fault == Fault::Flip {
                    piece[place] ^= 1;
                    done.notify_one();
                    to.write_all(piece).await?;
                } else {
                    to.write_all(&piece[..place]).await?;
                    done.notify_one();
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
