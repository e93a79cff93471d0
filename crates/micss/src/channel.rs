//! The n TCP connections of one stream, and moving shares between them and the protocol.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::StreamError;
use crate::config::Channel;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;

/// Connects one channel: from the source address and by the device that it has, if any. With a mark it is
/// not intercepted itself.
pub(crate) async fn connect(channel: &Channel, mark: Option<u32>) -> io::Result<TcpStream> {
    let Channel { server, source, device } = channel;
    let socket = if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(mark) = mark {
        SockRef::from(&socket).set_mark(mark)?;
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(source) = source {
        socket.bind(SocketAddr::new(*source, 0))?;
    }
    let stream = socket.connect(*server).await?;
    prepare(&stream);
    Ok(stream)
}

/// Readies a connection, a channel's or an application's. Small writes go out at once: waiting for
/// more is not ours to add. And a peer that is gone without a word, while nobody has anything to
/// send, is noticed after two minutes, so that it does not hold its stream for ever.
pub(crate) fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    // A connection that takes no options is broken, which the first read or write tells.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Waits until every channel has taken its share of the sealed record.
pub(crate) async fn send<W: AsyncWrite + Unpin>(
    channels: &mut [W],
    outgoing: &mut Outgoing,
) -> Result<(), StreamError> {
    poll_fn(|context| {
        let mut taken = true;
        for (channel, writer) in channels.iter_mut().enumerate() {
            while !outgoing.rest(channel).is_empty() {
                match Pin::new(&mut *writer).poll_write(context, outgoing.rest(channel)) {
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
pub(crate) async fn receive<R: AsyncRead + Unpin>(
    channels: &mut [R],
    incoming: &mut Incoming,
) -> Result<(), StreamError> {
    poll_fn(|context| {
        for channel in incoming.wanted() {
            let mut space = ReadBuf::new(incoming.space(channel));
            match Pin::new(&mut channels[channel]).poll_read(context, &mut space) {
                Poll::Ready(Ok(())) => match space.filled().len() {
                    0 => incoming.close(channel),
                    len => incoming.filled(channel, len),
                },
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
