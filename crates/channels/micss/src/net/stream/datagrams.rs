//! Moves datagrams between a UDP socket and a stream that carries them.

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

/// How long a stream of datagrams may carry none, in either direction, before it ends.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the peer may take to end its direction after this end has.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Decides about the datagrams of one stream, and translates them.
pub(crate) trait DatagramSide: Sync {
    /// Handles a datagram that has arrived at the socket. Returns what the stream carries: target
    /// and payload. `None` drops it.
    fn handle_from_socket(&self, bytes: &[u8], from: SocketAddr) -> Option<Vec<u8>>;

    /// Handles a datagram that the stream has carried. Returns what is sent from the socket, and to
    /// which address. `None` drops it.
    fn handle_from_stream(
        &self,
        bytes: &[u8],
    ) -> impl Future<Output = Option<(Vec<u8>, SocketAddr)>> + Send;
}

/// Moves datagrams until either direction of the stream ends, it is idle for too long, or `stop`
/// completes. Then it ends the stream in order.
pub(crate) async fn relay_datagrams(
    stream: MicssStream,
    socket: &UdpSocket,
    side: &impl DatagramSide,
    metrics: &DatagramMetrics,
    stop: impl Future<Output = ()>,
) {
    let _open = metrics.open();
    let used = Mutex::new(Instant::now());
    let touch = || *used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let outward = async {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            // An earlier datagram that could not be delivered is not an error of the socket.
            let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
            let carried = side.handle_from_socket(&buffer[..len], from);
            match carried.filter(|carried| carried.len() <= MAX_DATAGRAM) {
                Some(carried) => {
                    touch();
                    write_datagram(&mut writer, &carried).await?;
                    metrics.to_channels.increment();
                }
                None => metrics.dropped.increment(),
            }
        }
    };
    let inward = async {
        let mut buffer = Vec::new();
        while read_datagram(&mut reader, &mut buffer).await? {
            let sent = match side.handle_from_stream(&buffer).await {
                Some((bytes, to)) => socket.send_to(&bytes, to).await.is_ok(),
                None => false,
            };
            if sent {
                touch();
            }
            let count = if sent { &metrics.from_channels } else { &metrics.dropped };
            count.increment();
        }
        Ok(())
    };
    let idle = async {
        loop {
            let deadline = *used.lock().unwrap_or_else(PoisonError::into_inner) + IDLE_TIMEOUT;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = outward => ended,
        ended = inward => ended,
        () = idle => Ok(()),
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
