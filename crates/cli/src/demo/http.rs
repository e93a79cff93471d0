//! The application: a server of one file over HTTP, and who fetches it through a SOCKS5 proxy.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CONNECTION, HOST};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use micss::socks::NO_AUTHENTICATION;
use micss::target::Target;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

use super::material::{Material, piece_len};

/// How many bytes of the file are read at a time.
const PIECE: usize = 256 << 10;

/// How many pieces may wait to be sent.
const WAITING: usize = 4;

/// Serves the file, whatever is asked for, to everyone who connects.
///
/// # Errors
/// When connections can no longer be accepted.
pub(super) async fn serve(listener: TcpListener, material: Arc<Material>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answer = service_fn(|_| {
            let body = FileBody::new(Arc::clone(&material));
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let http = hyper::server::conn::http1::Builder::new();
        // The one client there is sees for itself when the answer is incomplete.
        let _ = http.serve_connection(TokioIo::new(stream), answer).await;
    }
}

/// The body of an answer: a file, read piece by piece as it is taken.
struct FileBody {
    pieces: Receiver<io::Result<Bytes>>,
    left: u64,
}

impl FileBody {
    fn new(material: Arc<Material>) -> Self {
        let (sender, pieces) = channel(WAITING);
        let left = material.len;
        spawn_blocking(move || {
            let mut position = 0;
            while position < material.len {
                let len = piece_len(material.len - position, PIECE);
                let piece = read_piece(&material.file, position, len);
                if piece.is_err() | sender.blocking_send(piece).is_err() {
                    return;
                }
                position += len as u64;
            }
        });
        Self { pieces, left }
    }
}

fn read_piece(file: &File, position: u64, len: usize) -> io::Result<Bytes> {
    let mut piece = vec![0; len];
    file.read_exact_at(&mut piece, position)?;
    Ok(piece.into())
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = ready!(self.pieces.poll_recv(context));
        if let Some(Ok(piece)) = &piece {
            self.left -= piece.len() as u64;
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// What arrived.
pub(super) struct Fetched {
    /// How many bytes.
    pub(super) len: u64,
    /// Their SHA-256.
    pub(super) sha256: [u8; 32],
}

/// Fetches what the server has, through the proxy, and hashes it as it arrives.
///
/// # Errors
/// When it does not arrive whole.
pub(super) async fn fetch(
    proxy: SocketAddr,
    server: SocketAddr,
    mut arrived: impl FnMut(u64),
) -> io::Result<Fetched> {
    let stream = connect(proxy, server).await?;
    let (mut http, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(other)?;
    let request = Request::get("/")
        .header(HOST, server.to_string())
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(other)?;
    let receive = async {
        let response = http.send_request(request).await.map_err(other)?;
        if response.status() != StatusCode::OK {
            return Err(other(format!("the file server answered {}", response.status())));
        }
        let mut body = response.into_body();
        let (mut hash, mut len) = (Sha256::new(), 0);
        while let Some(frame) = body.frame().await {
            if let Ok(piece) = frame.map_err(other)?.into_data() {
                hash.update(&piece);
                len += piece.len() as u64;
                arrived(piece.len() as u64);
            }
        }
        drop(http);
        Ok(Fetched { len, sha256: hash.finalize().into() })
    };
    let (fetched, ()) = tokio::try_join!(receive, async { connection.await.map_err(other) })?;
    Ok(fetched)
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// Connects to the server through a SOCKS5 proxy.
async fn connect(proxy: SocketAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    stream.read_exact(&mut method).await?;
    if method != NO_AUTHENTICATION {
        return Err(other("the proxy does not speak SOCKS5"));
    }
    let request = [&[5, 1, 0][..], &Target::address(server).encode()].concat();
    stream.write_all(&request).await?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await?;
    match reply[1] {
        0 => Ok(stream),
        code => Err(other(format!("the proxy cannot connect: SOCKS5 error {code}"))),
    }
}
