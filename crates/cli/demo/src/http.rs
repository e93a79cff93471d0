//! The application: an HTTP server of one file, and a client that fetches it through a SOCKS5
//! proxy.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use micss::socks::NO_AUTHENTICATION;
use micss::target::ServiceTarget;
use random::{RandomError, RandomGenerator};
use service::connection_limiter::ConnectionLimiter;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::source::{DemoSourceFile, piece_len};

/// How many bytes of the file are read at a time.
const PIECE_LEN: usize = 256 << 10;

/// How many pieces may wait to be sent.
const MAX_WAITING_PIECES: usize = 4;

/// The maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 64;

/// The path of the file at its server. Every user of this machine can connect to the server, but
/// only those who know the path get the file.
pub(super) struct SecretPath(Zeroizing<String>);

impl SecretPath {
    /// A path with 128 random bits.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(super) fn new() -> Result<Self, RandomError> {
        let bits = Zeroizing::new(u128::from_ne_bytes(RandomGenerator::system().array()?));
        Ok(Self(Zeroizing::new(format!("/{:032x}", *bits))))
    }

    /// Compares in constant time.
    fn matches(&self, path: &str) -> bool {
        self.0.as_bytes().ct_eq(path.as_bytes()).into()
    }
}

/// Serves the file at its path, and nothing else.
///
/// # Errors
/// If connections can no longer be accepted.
pub(super) async fn serve(
    listener: TcpListener,
    source: Arc<DemoSourceFile>,
    path: Arc<SecretPath>,
) -> io::Result<()> {
    let mut connections = ConnectionLimiter::new(MAX_CONNECTIONS, MAX_CONNECTIONS);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = connections.join_next() => continue,
        };
        stream.set_nodelay(true)?;
        let (source, path) = (Arc::clone(&source), Arc::clone(&path));
        connections.spawn(peer.ip(), async move {
            let answer = service_fn(|request: Request<Incoming>| {
                let answer = answer(&request, &source, &path);
                async { Ok::<_, Infallible>(answer) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            // The client detects an incomplete answer itself.
            let _ = http.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    source: &Arc<DemoSourceFile>,
    path: &SecretPath,
) -> Response<FileBody> {
    if request.method() == Method::GET && path.matches(request.uri().path()) {
        return Response::new(FileBody::new(Arc::clone(source)));
    }
    let mut refused = Response::new(FileBody::empty());
    *refused.status_mut() = StatusCode::NOT_FOUND;
    refused
}

/// The body of an answer: a file that is read while it is sent.
struct FileBody {
    pieces: Receiver<io::Result<Bytes>>,
    left: u64,
}

impl FileBody {
    fn new(source: Arc<DemoSourceFile>) -> Self {
        let (sender, pieces) = channel(MAX_WAITING_PIECES);
        let left = source.len;
        spawn_blocking(move || {
            let mut position = 0;
            while position < source.len {
                let len = piece_len(source.len - position, PIECE_LEN);
                let piece = read_piece(&source.file, position, len);
                if piece.is_err() | sender.blocking_send(piece).is_err() {
                    return;
                }
                position += len as u64;
            }
        });
        Self { pieces, left }
    }

    fn empty() -> Self {
        let (_, pieces) = channel(1);
        Self { pieces, left: 0 }
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

/// The data that arrived.
pub(super) struct FetchedFile {
    /// The number of bytes.
    pub(super) len: u64,
    /// Their SHA-256.
    pub(super) sha256: [u8; 32],
}

/// Fetches the file at this path from the server through the proxy, and hashes it as it arrives.
///
/// # Errors
/// If it arrives incomplete.
pub(super) async fn fetch(
    proxy: SocketAddr,
    server: SocketAddr,
    path: &SecretPath,
    mut arrived: impl FnMut(usize),
) -> io::Result<FetchedFile> {
    let stream = connect(proxy, server).await?;
    let (mut http, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(other)?;
    let request = Request::get(path.0.as_str())
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
                arrived(piece.len());
            }
        }
        drop(http);
        Ok(FetchedFile { len, sha256: hash.finalize().into() })
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
    let request = [&[5, 1, 0][..], &ServiceTarget::address(server).encode()].concat();
    stream.write_all(&request).await?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await?;
    match reply[1] {
        0 => Ok(stream),
        code => Err(other(format!("the proxy cannot connect: SOCKS5 error {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const CONTENT: &[u8] = b"only for the user who runs this";

    async fn ask(server: SocketAddr, request: String) -> Vec<u8> {
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_file_is_served_only_at_its_path() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(CONTENT).unwrap();
        let len = CONTENT.len() as u64;
        let source = Arc::new(DemoSourceFile { file, len, description: String::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let path = Arc::new(SecretPath::new().unwrap());
        tokio::spawn(serve(listener, source, Arc::clone(&path)));
        // A client that sends nothing does not block others.
        let _silent = TcpStream::connect(server).await.unwrap();

        let request = |method: &str, path: &str| {
            ask(server, format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        };
        let known = path.0.as_str();
        assert_eq!(known.len(), 33, "128 bits");
        assert!(request("GET", known).await.ends_with(CONTENT));
        let other = SecretPath::new().unwrap();
        for guess in ["/", "/index.html", &known[..32], &format!("{known}0"), other.0.as_str()] {
            let answer = request("GET", guess).await;
            assert!(answer.starts_with(b"HTTP/1.1 404"), "{}", String::from_utf8_lossy(&answer));
            assert!(!answer.ends_with(CONTENT));
        }
        assert!(request("POST", known).await.starts_with(b"HTTP/1.1 404"));
    }
}
