//! The n TCP connections of one stream, and moving shares between them and the protocol.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};

use tokio::net::{TcpSocket, TcpStream};

use crate::StreamError;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;

/// Connects one channel: from the given source address and by the given device, if any.
pub(crate) async fn connect(
    server: SocketAddr,
    source: Option<IpAddr>,
    device: Option<&str>,
) -> io::Result<TcpStream> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Waits until every channel has taken its share of the sealed record.
pub(crate) async fn send(
    channels: &[TcpStream],
    outgoing: &mut Outgoing,
) -> Result<(), StreamError> {
    poll_fn(|context| {
        let mut taken = true;
        for (channel, stream) in channels.iter().enumerate() {
            while !outgoing.rest(channel).is_empty() {
                match poll_write(stream, context, outgoing.rest(channel)) {
                    Poll::Ready(Ok(len)) => outgoing.advance(channel, len),
                    Poll::Ready(Err(source)) => {
                        return Poll::Ready(Err(StreamError::Channel { channel, source }));
                    }
                    Poll::Pending => {
                        taken = false;
                        break;
                    }
                }
            }
        }
        if taken { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// Waits for bytes, or the end, of the channel furthest behind of those that have any.
pub(crate) async fn receive(
    channels: &[TcpStream],
    incoming: &mut Incoming,
) -> Result<(), StreamError> {
    poll_fn(|context| {
        for channel in incoming.wanted() {
            match poll_read(&channels[channel], context, incoming.space(channel)) {
                Poll::Ready(Ok(0)) => incoming.close(channel),
                Poll::Ready(Ok(len)) => incoming.filled(channel, len),
                Poll::Ready(Err(source)) => {
                    return Poll::Ready(Err(StreamError::Channel { channel, source }));
                }
                Poll::Pending => continue,
            }
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    })
    .await
}

/// Writes some of `bytes`.
fn poll_write(
    stream: &TcpStream,
    context: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// Reads some bytes; none at the end of the stream.
pub(crate) fn poll_read(
    stream: &TcpStream,
    context: &mut Context<'_>,
    space: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        match stream.try_read(space) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}
