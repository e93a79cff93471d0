//! An eavesdropper on one channel: a relay that passes everything on and keeps what the server
//! sends, which are the shares of the file.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

/// How many bytes are passed on at a time.
const PIECE: usize = 256 << 10;

/// How many pieces may wait for the disk before the channel has to wait, too.
const WAITING: usize = 8;

/// A tap that listens, and passes nothing on yet.
pub(super) struct Tap {
    listener: TcpListener,
    server: SocketAddr,
}

impl Tap {
    /// Listens beside the server's address.
    ///
    /// # Errors
    /// When the system has no port left there.
    pub(super) async fn bind(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((server.ip(), 0)).await?;
        Ok(Self { listener, server })
    }

    /// Where the client is to connect instead of to the server.
    ///
    /// # Errors
    /// When the system does not say.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Passes one connection on until both ends have finished. What the server sent is in
    /// `capture` then.
    ///
    /// # Errors
    /// When the connection breaks, or the capture cannot be written.
    pub(super) async fn run(self, capture: File) -> io::Result<File> {
        let (client, _) = self.listener.accept().await?;
        let server = TcpStream::connect(self.server).await?;
        // The tap must not change the channel's rhythm.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (keep, kept) = channel(WAITING);
        let writing = spawn_blocking(move || write(capture, kept));
        let up = pass_on(from_client, to_server);
        let down = pass_on_and_keep(from_server, to_client, keep);
        let passed = tokio::try_join!(up, down);
        // Why the disk took no more is the reason that explains the others.
        let capture = writing.await.map_err(io::Error::other)??;
        passed.map(|_| capture)
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

async fn pass_on_and_keep(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    keep: Sender<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        if from.read_buf(&mut piece).await? == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece).await?;
        keep.send(piece).await.map_err(|_| io::Error::other("the capture takes no more"))?;
    }
}

fn write(mut capture: File, mut kept: Receiver<Vec<u8>>) -> io::Result<File> {
    while let Some(piece) = kept.blocking_recv() {
        capture.write_all(&piece)?;
    }
    Ok(capture)
}
