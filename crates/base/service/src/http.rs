//! Serves HTTP/1.1 over a bounded number of connections, of which a slow client keeps none.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::accept::{AcceptingSocket, RoundRobinAcceptor};

/// The limits of an HTTP server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// How many connections are served at a time. Others wait in the listener's queue.
    pub connections: usize,
    /// The time within which a client must send the header of its first request, and of each
    /// further request after an answer.
    pub header_timeout: Duration,
    /// How long an answer waits for a client that does not read.
    pub write_timeout: Duration,
}

/// Serves HTTP/1.1 with limits. A clone serves with the same ones.
#[derive(Clone, Debug)]
pub struct HttpServer {
    limits: HttpLimits,
    free: Arc<Semaphore>,
    /// A connection waits for a slot.
    needed: Arc<Notify>,
}

/// The interval at which a connection is asked to close while another one waits for a slot.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// How long a connection without a request keeps its slot, because the next request may be on its
/// way.
const IDLE_TIME: Duration = Duration::from_millis(200);

/// The maximum length of a request's header, and of the part of an answer that waits to be sent.
const MAX_BUFFER: usize = 64 << 10;

impl HttpServer {
    /// A server with these limits.
    pub fn new(limits: HttpLimits) -> Self {
        let free = Arc::new(Semaphore::new(limits.connections));
        Self { limits, free, needed: Arc::default() }
    }

    /// Accepts connections, and calls `serve` for each, which calls [`HttpServer::serve`]. All
    /// connections end when the future is dropped.
    pub async fn accept<L: AcceptingSocket, F: Future<Output = ()> + Send + 'static>(
        &self,
        listener: L,
        serve: impl Fn(L::Stream) -> F,
    ) {
        let (listeners, mut acceptor) = ([listener], RoundRobinAcceptor::default());
        let mut connections = JoinSet::new();
        loop {
            let (_, stream, _) = acceptor.accept(&listeners).await;
            let Some(slot) = self.slot().await else { return };
            let serving = serve(stream);
            connections.spawn(async move {
                serving.await;
                drop(slot);
            });
            while connections.try_join_next().is_some() {}
        }
    }

    /// Waits for a slot for a connection. While there is none, asks other connections to close.
    async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let acquiring = Arc::clone(&self.free).acquire_owned();
        tokio::pin!(acquiring);
        loop {
            match timeout(ASK_INTERVAL, acquiring.as_mut()).await {
                Ok(acquired) => return acquired.ok(),
                Err(_) => self.needed.notify_one(),
            }
        }
    }

    /// Serves one connection, with any number of requests. If its slot is needed, the connection
    /// ends after the current answer, or at once if no request arrives.
    ///
    /// # Errors
    /// If the client disconnects, is too slow, or does not send HTTP/1.1.
    pub async fn serve<F, B>(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        answer: impl Fn(Request<Incoming>) -> F,
    ) -> hyper::Result<()>
    where
        F: Future<Output = Response<B>>,
        B: Body + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        // The time since when there has been no request.
        let idle_since = Mutex::new(Some(Instant::now()));
        let set_idle = |since| *idle_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
        let is_awaited = || {
            let since = *idle_since.lock().unwrap_or_else(PoisonError::into_inner);
            since.is_some_and(|since| since.elapsed() < IDLE_TIME)
        };
        let service = service_fn(|request| {
            let answering = answer(request);
            async move {
                set_idle(None);
                let answer = answering.await;
                set_idle(Some(Instant::now()));
                Ok::<_, Infallible>(answer)
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new());
        http.header_read_timeout(self.limits.header_timeout).max_buf_size(MAX_BUFFER);
        let stream = WriteTimeoutStream::new(stream, self.limits.write_timeout);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let mut is_closing = false;
        loop {
            tokio::select! {
                served = connection.as_mut() => return served,
                () = self.needed.notified(), if !is_closing => if !is_awaited() {
                    connection.as_mut().graceful_shutdown();
                    is_closing = true;
                },
            }
        }
    }
}

/// A stream on which a write fails when the peer has not read for some time.
struct WriteTimeoutStream<S> {
    stream: S,
    timeout: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeoutStream<S> {
    fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, waiting: None }
    }

    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.limited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limited(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::{Bytes, Frame};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    use super::*;

    /// An answer that never ends.
    struct Endless;

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1000])))))
        }
    }

    const LIMITS: HttpLimits = HttpLimits {
        connections: 4,
        header_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(30),
    };

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// A connection that is served in the background, with answers that do not end.
    fn connect() -> (DuplexStream, JoinHandle<hyper::Result<()>>) {
        let (client, stream) = duplex(1 << 10);
        let server = HttpServer::new(LIMITS);
        let served =
            tokio::spawn(
                async move { server.serve(stream, async |_| Response::new(Endless)).await },
            );
        (client, served)
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_trickles_in_times_out() {
        let (mut client, served) = connect();
        let begin = Instant::now();
        // A byte each second, each in time.
        for byte in REQUEST {
            if client.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        assert!(served.await.unwrap().is_err());
        let waited = begin.elapsed();
        assert!(waited < LIMITS.header_timeout + Duration::from_secs(2), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_times_out() {
        let (_client, served) = connect();
        let begin = Instant::now();
        // With or without an error.
        let _ = served.await.unwrap();
        assert!(begin.elapsed() < LIMITS.header_timeout + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_times_out() {
        let (mut client, served) = connect();
        client.write_all(REQUEST).await.unwrap();
        // It reads for longer than the limit, and then no more.
        let begin = Instant::now();
        while begin.elapsed() < 2 * LIMITS.write_timeout {
            assert!(client.read(&mut [0; 100]).await.unwrap() > 0);
            sleep(Duration::from_secs(1)).await;
        }
        let stopped = Instant::now();
        assert!(served.await.unwrap().is_err());
        let waited = stopped.elapsed();
        assert!(waited <= LIMITS.write_timeout + Duration::from_secs(1), "{waited:?}");
    }

    #[tokio::test]
    async fn idle_connections_make_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            let server = HttpServer::new(LIMITS);
            let serve = |stream| {
                let server = server.clone();
                async move {
                    let _ = server.serve(stream, async |_| Response::new(Endless)).await;
                }
            };
            server.accept(listener, serve).await;
        });
        let mut idle = Vec::new();
        for _ in 0..LIMITS.connections {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        // Without the server, no connection goes on.
        accepting.abort();
        assert!(accepting.await.unwrap_err().is_cancelled());
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
    }
}
