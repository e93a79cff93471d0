//! A channel's connection, whose bytes are counted and whose path is monitored.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;
use tracing::field::display;
use tracing::warn;

use crate::net::metrics::ChannelMetrics;
use crate::net::paths::path::{MonitoredPath, PathRegistration};
use crate::net::stream::open_count::are_many_open;
use crate::net::tcp_info::set_receive_buffer;
use crate::protocol::incoming::ChannelLossReason;
use crate::protocol::receive_buffer::ReceiveBufferLimiter;

/// How long a connection that is too far behind is still observed: longer than the failure detector
/// needs for a channel in use.
const OBSERVATION: Duration = Duration::from_secs(5);

/// A channel's connection, and the metrics of the channel.
pub(crate) struct ChannelConnection {
    // The first field, so that it is dropped before the connection is closed.
    registration: Option<PathRegistration>,
    socket: TcpStream,
    /// The channel's path to this peer, if it is monitored.
    path: Option<Arc<MonitoredPath>>,
    pub(crate) metrics: Arc<ChannelMetrics>,
    /// The channel's index: at a client among all configured channels, of which a stream may have
    /// fewer.
    pub(crate) channel_index: usize,
    buffer: ReceiveBufferLimiter,
    /// Whether its loss has been counted.
    is_counted: bool,
    /// Whether the stream continues without it, or waits for its replacement.
    is_given_up: bool,
}

impl ChannelConnection {
    /// Counts the bytes that are read and written from now on.
    pub(crate) fn new(
        socket: TcpStream,
        metrics: Arc<ChannelMetrics>,
        channel_index: usize,
    ) -> Self {
        let (is_counted, is_given_up) = (false, false);
        let (registration, path, buffer) = (None, None, ReceiveBufferLimiter::default());
        Self { registration, socket, path, metrics, channel_index, buffer, is_counted, is_given_up }
    }

    /// Registers the connection with its path.
    pub(crate) fn watch(&mut self, path: &Arc<MonitoredPath>) {
        self.registration = Some(path.register(&self.socket));
        self.path = Some(Arc::clone(path));
    }

    /// Its path, if that is monitored.
    pub(crate) fn path(&self) -> Option<&Arc<MonitoredPath>> {
        self.path.as_ref()
    }

    /// The connection itself.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the stream continues without it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Records that the stream has lost it, or breaks because of it and still sends an abort on it.
    /// Returns whether the loss is new.
    pub(crate) fn lose(&mut self, why: ChannelLossReason) -> bool {
        let is_new = !std::mem::replace(&mut self.is_counted, true);
        if is_new {
            self.metrics.record_loss(why);
        }
        is_new
    }

    /// Closes it in both directions and logs that, because the stream continues without it.
    pub(crate) fn give_up(&mut self, why: ChannelLossReason) {
        self.is_given_up = true;
        // An error of a closed connection says nothing about the path.
        self.registration = None;
        let is_observed = why == ChannelLossReason::Slow && self.observe_for_a_while();
        if self.lose(why)
            && let Some(occurrences) = self.metrics.loss_log_permit(why)
        {
            // The system no longer reports the address of a broken connection.
            let peer = self.socket.peer_addr().ok().map(display);
            warn!(channel = self.channel_index + 1, peer, %why, occurrences, "a stream continues without a channel");
        }
        if !is_observed {
            // It may be broken already.
            let _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
        }
    }

    /// Keeps the connection open for some seconds, registered with its path: a channel that is
    /// behind may be lost, which the path detects only by its connections. Returns whether it does.
    fn observe_for_a_while(&self) -> bool {
        let Some(path) = self.path.as_ref() else { return false };
        let Ok(socket) = SockRef::from(&self.socket).try_clone() else { return false };
        let registration = path.register(&socket);
        tokio::spawn(async move {
            sleep(OBSERVATION).await;
            drop(registration);
            let _ = socket.shutdown(Shutdown::Both);
        });
        true
    }

    /// Closes it in both directions, because the stream waits for its replacement.
    pub(crate) fn detach(&mut self) {
        self.is_given_up = true;
        self.registration = None;
        let _ = SockRef::from(&self.socket).shutdown(Shutdown::Both);
    }

    /// Its two halves, which count bytes for it.
    pub(crate) fn split(&mut self) -> (ChannelReader<'_>, ChannelWriter<'_>) {
        let Self { socket, path, metrics, buffer, .. } = self;
        let (metrics, path) = (&*metrics, path.as_deref());
        let (reader, writer) = socket.split();
        (
            ChannelReader { half: reader, metrics, path, buffer },
            ChannelWriter { half: writer, metrics, path },
        )
    }

    /// The connection, which no longer counts bytes, and the metrics.
    pub(crate) fn into_inner(self) -> (TcpStream, Arc<ChannelMetrics>) {
        (self.socket, self.metrics)
    }
}

/// The read half of a channel's connection.
pub(crate) struct ChannelReader<'a> {
    half: ReadHalf<'a>,
    pub(crate) metrics: &'a Arc<ChannelMetrics>,
    path: Option<&'a MonitoredPath>,
    buffer: &'a mut ReceiveBufferLimiter,
}

impl ChannelReader<'_> {
    /// Reads into `space`, and returns the number of bytes: zero at the connection's end.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(space);
        ready!(Pin::new(&mut self.half).poll_read(context, &mut buffer))?;
        let len = buffer.filled().len();
        self.metrics.read(self.half.as_ref(), len);
        self.mark_used();
        if let Some(size) = self.buffer.handle_read(len, are_many_open()) {
            set_receive_buffer(self.half.as_ref(), size);
        }
        Poll::Ready(Ok(len))
    }

    /// Records that the stream moves bytes, or waits for some.
    pub(crate) fn mark_used(&self) {
        self.path.into_iter().for_each(MonitoredPath::mark_used);
    }

    /// The connection itself.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.half.as_ref()
    }
}

/// The write half of a channel's connection.
pub(crate) struct ChannelWriter<'a> {
    half: WriteHalf<'a>,
    metrics: &'a Arc<ChannelMetrics>,
    path: Option<&'a MonitoredPath>,
}

impl ChannelWriter<'_> {
    /// Writes as many of these bytes as the connection takes, and returns their number.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let len = ready!(Pin::new(&mut self.half).poll_write(context, bytes))?;
        self.metrics.sent.add(len as u64);
        self.path.into_iter().for_each(MonitoredPath::mark_used);
        Poll::Ready(Ok(len))
    }

    /// The connection itself.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.half.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::StreamChannelConfig;
    use crate::net::paths::path::PathNotifier;

    async fn connection() -> (ChannelConnection, Arc<ChannelMetrics>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let metrics = Arc::<ChannelMetrics>::default();
        (ChannelConnection::new(stream, Arc::clone(&metrics), 0), metrics)
    }

    #[tokio::test]
    async fn a_channel_is_lost_once() {
        let (mut connection, metrics) = connection().await;
        assert!(
            connection.lose(ChannelLossReason::Stalled)
                && !connection.lose(ChannelLossReason::Broken)
        );
        assert!(!connection.lose(ChannelLossReason::Tampered));
        let channel = metrics.channel(String::new());
        assert_eq!((channel.broken, channel.tampered), (1, 0));
    }

    async fn watched_connection() -> (ChannelConnection, Arc<MonitoredPath>) {
        let (mut connection, _) = connection().await;
        let server = ([127, 0, 0, 1], 9).into();
        let route = StreamChannelConfig::to(server);
        let events = Arc::new(PathNotifier::new());
        let path = Arc::new(MonitoredPath::new((0, "channel 1".into()), None, route, events));
        connection.watch(&path);
        (connection, path)
    }

    #[tokio::test]
    async fn a_closed_connection_does_not_affect_its_path() {
        let (mut connection, path) = watched_connection().await;
        assert_eq!(path.connection_count(), 1);
        connection.give_up(ChannelLossReason::Stalled);
        assert_eq!(path.connection_count(), 0);
    }

    #[tokio::test]
    async fn a_connection_that_is_too_far_behind_is_observed() {
        let (mut connection, path) = watched_connection().await;
        connection.give_up(ChannelLossReason::Slow);
        drop(connection);
        assert_eq!(path.connection_count(), 1);
    }
}
