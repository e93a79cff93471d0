//! Moves datagrams between UDP and a stream that carries them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout};

use crate::net::metrics::DatagramMetrics;
use crate::net::stream::program::MicssStream;
use crate::protocol::datagram::MAX_DATAGRAM;

/// How long a stream of datagrams may carry none, in either direction, before it ends, unless its
/// side knows better.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the peer may take to end its direction after this end has.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The datagrams of one stream at the side of UDP: receives and sends them, decides about them, and
/// translates them.
pub(crate) trait DatagramSide: Sync {
    /// Waits for a datagram. The buffer is for the longest one.
    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = DatagramArrival> + Send;

    /// Sends a datagram that the stream has carried: target and payload. Returns whether it was
    /// sent; if not, it is dropped.
    fn deliver(&self, bytes: &[u8]) -> impl Future<Output = bool> + Send;
}

/// What has become of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DatagramArrival {
    /// The stream carries this: target and payload.
    Carried(Vec<u8>),
    /// It is dropped.
    Dropped,
    /// There is none, and no more will come.
    End,
}

/// Receives a datagram at a socket. Returns its length and its sender.
pub(crate) async fn receive_from(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        // An earlier datagram that could not be delivered is not an error of the socket.
        if let Ok(received) = socket.recv_from(buffer).await {
            return received;
        }
    }
}

/// Moves datagrams until either direction of the stream ends, none was carried for the time `idle`,
/// no more come, or `stop` completes. Then it ends the stream in order.
pub(crate) async fn relay_datagrams(
    stream: MicssStream,
    side: &impl DatagramSide,
    metrics: &DatagramMetrics,
    idle: Duration,
    stop: impl Future<Output = ()>,
) {
    let _open = metrics.open();
    let used = Mutex::new(Instant::now());
    let touch = || *used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let outward = async {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            match side.receive(&mut buffer).await {
                DatagramArrival::Carried(carried) if carried.len() <= MAX_DATAGRAM => {
                    touch();
                    write_datagram(&mut writer, &carried).await?;
                    metrics.to_channels.increment();
                }
                DatagramArrival::Carried(_) | DatagramArrival::Dropped => {
                    metrics.dropped.increment();
                }
                DatagramArrival::End => return Ok(()),
            }
        }
    };
    let inward = async {
        let mut buffer = Vec::new();
        while read_datagram(&mut reader, &mut buffer).await? {
            let sent = side.deliver(&buffer).await;
            if sent {
                touch();
            }
            let count = if sent { &metrics.from_channels } else { &metrics.dropped };
            count.increment();
        }
        Ok(())
    };
    let is_idle = async {
        loop {
            let deadline = *used.lock().unwrap_or_else(PoisonError::into_inner) + idle;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = outward => ended,
        ended = inward => ended,
        () = is_idle => Ok(()),
        () = stop => Ok(()),
    };
    // What has arrived and was not read would make the end a reset.
    if ended.is_ok() && writer.shutdown().await.is_ok() {
        let _ = timeout(END_TIMEOUT, tokio::io::copy(&mut reader, &mut tokio::io::sink())).await;
    }
}

async fn write_datagram(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let len = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    writer.write_all(&[&len.to_be_bytes()[..], bytes].concat()).await
}

/// Reads a datagram into the buffer. Returns whether there was one before the stream's end.
async fn read_datagram(
    reader: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut len = [0; 2];
    if reader.read(&mut len[..1]).await? == 0 {
        return Ok(false);
    }
    reader.read_exact(&mut len[1..]).await?;
    buffer.resize(u16::from_be_bytes(len).into(), 0);
    reader.read_exact(buffer).await?;
    Ok(true)
}
