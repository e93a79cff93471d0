//! TCP sockets: connecting, options and closing.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use service::listening::set_options;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::config::StreamChannelConfig;

/// Connects one channel, with its source address and its device, if any. With the mark
/// [`OWN_MARK`](crate::net::intercept::OWN_MARK), the connection itself is not intercepted.
///
/// # Errors
/// If the server's name cannot be looked up, the system refuses one of these, such as the mark
/// without `CAP_NET_ADMIN`, or the connection fails.
pub async fn connect_channel(
    channel: &StreamChannelConfig,
    mark: Option<u32>,
) -> io::Result<TcpStream> {
    let StreamChannelConfig { server, source, device, preamble, max_segment } = channel;
    let attempt = server.attempt(*source).await?;
    let address = attempt.address();
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(mark) = mark {
        SockRef::from(&socket).set_mark(mark)?;
    }
    if let Some(max_segment) = max_segment {
        SockRef::from(&socket).set_tcp_mss(*max_segment)?;
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    if let Some(source) = source {
        socket.bind(SocketAddr::new(*source, 0))?;
    }
    let mut stream = socket.connect(address).await?;
    attempt.succeed();
    set_options(&stream);
    stream.write_all(preamble).await?;
    Ok(stream)
}

/// Ends this direction of a connection.
///
/// # Errors
/// The error of the system, unless the connection is already closed: reading the other direction
/// reports that.
pub(crate) fn end_writing(stream: &TcpStream) -> io::Result<()> {
    match SockRef::from(stream).shutdown(Shutdown::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        ended => ended,
    }
}

/// Closes a connection so that its peer sees an error, not an orderly end.
pub(crate) fn reset(stream: TcpStream) {
    reset_when_dropped(&stream);
    drop(stream);
}

/// Makes a connection's peer see an error, not an orderly end, however this end is closed: even
/// when its task is stopped or panics, and when the process is killed.
pub(crate) fn reset_when_dropped(stream: &TcpStream) {
    // If that fails, the connection is broken already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Restores the orderly end of a connection, after the last byte was sent.
pub(crate) fn end_when_dropped(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}
