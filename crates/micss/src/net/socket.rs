//! TCP sockets: how they connect, their options, and how they close.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

use crate::config::Channel;

/// Connects one channel: from the source address and by the device that it has, if any. With the mark
/// [`OWN_MARK`](crate::net::intercept::OWN_MARK) it is not intercepted itself.
///
/// # Errors
/// When the system refuses one of these, the mark for want of `CAP_NET_ADMIN`, or nobody listens.
pub async fn connect(channel: &Channel, mark: Option<u32>) -> io::Result<TcpStream> {
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

/// Readies a connection, a channel's or an application's, or a listener, whose connections are as it is.
/// Small writes go out at once: waiting for more is not ours to add. And a peer that is gone without a word,
/// while nobody has anything to send, is noticed after two minutes, so that it does not hold its stream for
/// ever.
pub(crate) fn prepare(socket: &impl AsFd) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15))
        .with_retries(4);
    let socket = SockRef::from(socket);
    // A connection that takes no options is broken, which the first read or write tells.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

/// Closes a connection such that its peer sees an error, not an end.
pub(crate) fn reset(stream: TcpStream) {
    reset_when_dropped(&stream);
    drop(stream);
}

/// Has a connection's peer see an error, not an end, however this end of it is closed: also when
/// its task is stopped or panics, and when the whole process is killed.
pub(crate) fn reset_when_dropped(stream: &TcpStream) {
    // If that fails the connection is broken already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Has a connection end as usual again, now that all has been said.
pub(crate) fn end_when_dropped(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}
