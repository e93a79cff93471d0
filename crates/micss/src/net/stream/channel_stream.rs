//! A channel's connection, whose bytes are counted and whose path is watched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::net::metrics::ChannelMetrics;
use crate::net::paths::path::{Path, Registration};
use crate::protocol::incoming::Loss;

/// A channel's connection, or a half of it, and what counts its bytes.
pub(crate) struct ChannelStream<S> {
    // First: it is gone before the connection is closed. The halves have none.
    registration: Option<Registration>,
    inner: S,
    /// What the channel is to this peer, if that is watched.
    pub(crate) path: Option<Arc<Path>>,
    pub(crate) metrics: Arc<ChannelMetrics>,
    /// The channel's index: at a client among all that are configured, of which a stream may have fewer.
    pub(crate) place: usize,
    /// Whether the stream goes on without it. The halves know the same.
    lost: Arc<AtomicBool>,
}

impl<S> ChannelStream<S> {
    /// From here on, what is read and written is counted.
    pub(crate) fn new(inner: S, metrics: Arc<ChannelMetrics>, place: usize) -> Self {
        Self { registration: None, inner, path: None, metrics, place, lost: Arc::default() }
    }

    /// The stream goes on without it. Counts that, and returns whether it was not known yet.
    pub(crate) fn lose(&self, why: Loss) -> bool {
        let is_new = !self.lost.swap(true, Ordering::Relaxed);
        if is_new {
            self.metrics.lost(why);
        }
        is_new
    }

    /// The connection, which is not counted any more.
    pub(crate) fn into_inner(self) -> (S, Arc<ChannelMetrics>) {
        (self.inner, self.metrics)
    }
}

impl ChannelStream<TcpStream> {
    /// From here on, the path that it is on is watched by it, too.
    pub(crate) fn watch(&mut self, path: &Arc<Path>) {
        self.registration = Some(path.register(&self.inner));
        self.path = Some(Arc::clone(path));
    }

    /// Its halves, which count as it does.
    pub(crate) fn split(&mut self) -> (ChannelStream<ReadHalf<'_>>, ChannelStream<WriteHalf<'_>>) {
        let Self { inner, path, metrics, place, lost, .. } = self;
        let (reader, writer) = inner.split();
        let path = path.as_ref();
        (half(reader, path, metrics, *place, lost), half(writer, path, metrics, *place, lost))
    }
}

fn half<S>(
    inner: S,
    path: Option<&Arc<Path>>,
    metrics: &Arc<ChannelMetrics>,
    place: usize,
    lost: &Arc<AtomicBool>,
) -> ChannelStream<S> {
    let (path, metrics, lost) = (path.map(Arc::clone), Arc::clone(metrics), Arc::clone(lost));
    ChannelStream { registration: None, inner, path, metrics, place, lost }
}

impl<S: AsRef<TcpStream>> AsRef<TcpStream> for ChannelStream<S> {
    fn as_ref(&self) -> &TcpStream {
        self.inner.as_ref()
    }
}

impl<S: AsyncRead + AsRef<TcpStream> + Unpin> AsyncRead for ChannelStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        this.metrics.read(this.inner.as_ref(), buffer.filled().len() - before);
        if let Some(path) = &this.path {
            path.mark_used();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ChannelStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(context, bytes))?;
        this.metrics.sent.add(written as u64);
        if let Some(path) = &this.path {
            path.mark_used();
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The half that reads learns of it, and later the half that writes.
    #[tokio::test]
    async fn a_channel_is_lost_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let metrics = Arc::<ChannelMetrics>::default();
        let mut channel_stream = ChannelStream::new(stream, Arc::clone(&metrics), 0);
        let (reader, writer) = channel_stream.split();
        assert!(reader.lose(Loss::Stalled) && !writer.lose(Loss::Broken));
        assert!(!channel_stream.lose(Loss::Tampered));
        let channel = metrics.channel(String::new());
        assert_eq!((channel.broken, channel.tampered), (1, 0));
    }
}
