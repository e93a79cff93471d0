//! An eavesdropper on one channel: a relay that records what the server sends, which is shares of
//! the file.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

/// How many bytes are forwarded at a time.
const PIECE_LEN: usize = 256 << 10;

/// How many pieces may wait for the disk before the channel is slowed down.
const MAX_WAITING_PIECES: usize = 8;

/// A tap that listens, but forwards nothing yet.
pub(super) struct ChannelTap {
    listener: TcpListener,
    server: SocketAddr,
}

impl ChannelTap {
    /// Listens at the server's IP address.
    ///
    /// # Errors
    /// If the system has no free port there.
    pub(super) async fn bind(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((server.ip(), 0)).await?;
        Ok(Self { listener, server })
    }

    /// The address to which the client connects instead of the server's.
    ///
    /// # Errors
    /// If the system does not report it.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Forwards one connection until both ends have finished. `capture` then has what the server
    /// sent.
    ///
    /// # Errors
    /// If the connection breaks, or the capture cannot be written.
    pub(super) async fn run(self, capture: File) -> io::Result<File> {
        let (client, _) = self.listener.accept().await?;
        let server = TcpStream::connect(self.server).await?;
        // The tap must not delay small packets.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (record, recorded) = channel(MAX_WAITING_PIECES);
        let writing = spawn_blocking(move || write(capture, recorded));
        let up = forward(from_client, to_server);
        let down = forward_and_record(from_server, to_client, record);
        let forwarded = tokio::try_join!(up, down);
        // An error of the disk explains the others, so it is reported first.
        let capture = writing.await.map_err(io::Error::other)??;
        forwarded.map(|_| capture)
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

async fn forward_and_record(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    record: Sender<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let mut piece = Vec::with_capacity(PIECE_LEN);
        if from.read_buf(&mut piece).await? == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece).await?;
        record.send(piece).await.map_err(|_| io::Error::other("the capture takes no more"))?;
    }
}

fn write(mut capture: File, mut recorded: Receiver<Vec<u8>>) -> io::Result<File> {
    while let Some(piece) = recorded.blocking_recv() {
        capture.write_all(&piece)?;
    }
    Ok(capture)
}
