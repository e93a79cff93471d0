//! A program's end of its stream.
//!
//! It is a TCP connection within this host, because a stream that breaks must be an error for its
//! reader, never an orderly end: closing a TCP connection can say which.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use service::listening::set_options;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::StreamError;
use crate::net::socket::reset_when_dropped;
use crate::net::stream::driver::{StreamDriver, StreamFailureSender};

/// One stream of a program. When it is dropped, data that it has written is still sent, as long as
/// its runtime runs ([`MicssStreamEnd::wait`]).
pub struct MicssStream {
    socket: TcpStream,
    end: MicssStreamEnd,
}

/// How a stream ends, for its program.
#[derive(Clone)]
pub struct MicssStreamEnd(watch::Receiver<Option<String>>);

impl MicssStream {
    /// A new stream, with the other end of its socket and the sender of its failure, which belong
    /// to its driver.
    pub(crate) async fn new() -> Result<(Self, TcpStream, StreamFailureSender), StreamError> {
        let (socket, application) = socket_pair().await.map_err(StreamError::Application)?;
        let (failure, end) = watch::channel(None);
        Ok((Self { socket, end: MicssStreamEnd(end) }, application, failure))
    }

    /// The stream as a socket for programs without a runtime, which is blocking, and its end.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn into_std(self) -> io::Result<(std::net::TcpStream, MicssStreamEnd)> {
        let socket = self.socket.into_std()?;
        socket.set_nonblocking(false)?;
        Ok((socket, self.end))
    }

    /// How it ends.
    pub fn end(&self) -> &MicssStreamEnd {
        &self.end
    }
}

impl MicssStreamEnd {
    /// Why the stream has broken, if it has. An error of its socket appears after this.
    pub fn failure(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits until the stream has ended or has broken, and nothing remains to be sent.
    pub async fn wait(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// An error of the stream's socket, with the reason if the stream has broken.
    fn explain(&self, error: io::Error) -> io::Error {
        match self.failure() {
            Some(reason) => io::Error::new(error.kind(), reason),
            None => error,
        }
    }
}

impl AsyncRead for MicssStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        read.map_err(|error| self.end.explain(error))
    }
}

impl AsyncWrite for MicssStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        written.map_err(|error| self.end.explain(error))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.socket).poll_shutdown(context);
        ended.map_err(|error| self.end.explain(error))
    }
}

/// Passes the streams of a server to a program.
#[derive(Clone)]
pub(crate) struct StreamAcceptor(pub(crate) mpsc::Sender<(MicssStream, SocketAddr)>);

impl StreamAcceptor {
    /// Connects a stream to the program, unless too many wait for it.
    pub(crate) async fn accept(&self, driver: &mut StreamDriver, peer: SocketAddr) -> bool {
        let Ok(permit) = self.0.try_reserve() else { return false };
        let Ok((stream, application, failure)) = MicssStream::new().await else { return false };
        driver.report_failure_to(failure);
        driver.accept(application);
        permit.send((stream, peer));
        true
    }
}

/// Both ends of a connection within this host. The second one is reset unless it ends in order.
async fn socket_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let own = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (other, from) = listener.accept().await?;
        // Another program may have connected.
        if from == own.local_addr()? {
            set_options(&own);
            set_options(&other);
            reset_when_dropped(&other);
            return Ok((own, other));
        }
    }
}
