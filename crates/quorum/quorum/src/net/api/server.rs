//! The server of the local API.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::ALLOW;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use keys::trusted::TrustedFolder;
use service::accept::RoundRobinAcceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::route::{self, ApiOperation, operation};
use super::{ApiRefusal, ApiRefusalKind, LocalService, MAX_BODY_LEN, OPENAPI};

/// The longest path of a Unix socket, in bytes.
const MAX_PATH: usize = 107;

/// The time within which a client must send a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time within which a client must send a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which a connection is asked to close while another one waits for a slot.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// How long a connection without a request keeps its slot, because the next request may be on its
/// way.
const IDLE_TIME: Duration = Duration::from_millis(200);

/// The users who may connect to the socket, and so use the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketAccess {
    /// The user as whom the server runs, and root.
    #[default]
    Owner,
    /// Additionally, the members of the group of the server's process.
    Group,
}

/// A socket on which the API is served. It is removed when this is dropped.
#[derive(Debug)]
pub struct ApiSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        self.task.abort();
        // If the file cannot be removed, connections to it are refused.
        let _ = fs::remove_file(&self.path);
    }
}

impl ApiSocket {
    /// Serves the API on a socket until this is dropped. The number of connections is limited;
    /// others wait in the socket's queue. Must be called in a runtime. A socket that an earlier
    /// process left behind is replaced.
    ///
    /// # Errors
    /// If another process listens there, another user could replace the socket, or the system
    /// reports an error.
    pub fn open(
        path: &Path,
        access: SocketAccess,
        max_connections: usize,
        service: Arc<impl LocalService>,
    ) -> io::Result<Self> {
        let (folder, name) = TrustedFolder::containing(path).map_err(io::Error::other)?;
        let path = folder.path().join(name);
        if path.as_os_str().len() > MAX_PATH {
            let what = format!(
                "socket: {} has more than {MAX_PATH} bytes; choose a shorter path",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if StdUnixStream::connect(&path).is_ok() {
            let what = format!("{} is in use by another process; stop it first", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        // A socket that does not answer was left behind by an earlier process.
        match fs::symlink_metadata(&path) {
            Ok(found) if !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                let what = format!("{} is not a socket; choose another `socket`", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
        let mode = match access {
            SocketAccess::Owner => 0o600,
            SocketAccess::Group => 0o660,
        };
        let listener = service::listening::listen_unix(&path, mode)?;
        let task = tokio::spawn(async move {
            let (listeners, mut round_robin) = ([listener], RoundRobinAcceptor::default());
            let (free, needed) =
                (Arc::new(Semaphore::new(max_connections)), Arc::new(Notify::new()));
            let mut connections = JoinSet::new();
            loop {
                let (_, stream, _) = round_robin.accept(&listeners).await;
                let Some(permit) = place(&free, &needed).await else { return };
                let (service, needed) = (Arc::clone(&service), Arc::clone(&needed));
                connections.spawn(async move {
                    let user = stream.peer_cred().ok().map(|peer| peer.uid());
                    serve(stream, user, service, &needed).await;
                    drop(permit);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { path, task })
    }
}

/// Waits for a slot for a connection. While there is none, asks other connections to close.
async fn place(free: &Arc<Semaphore>, needed: &Notify) -> Option<OwnedSemaphorePermit> {
    let acquiring = Arc::clone(free).acquire_owned();
    tokio::pin!(acquiring);
    loop {
        match timeout(ASK_INTERVAL, acquiring.as_mut()).await {
            Ok(acquired) => return acquired.ok(),
            Err(_) => needed.notify_one(),
        }
    }
}

/// Serves one connection of a user, with any number of requests. If its slot is needed, the
/// connection ends after the current answer, or at once if no request arrives.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    user: Option<u32>,
    service: Arc<impl LocalService>,
    needed: &Notify,
) {
    // The time since when there has been no request.
    let idle_since = Mutex::new(Some(Instant::now()));
    let set_idle = |since| *idle_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    let is_awaited = || {
        let since = *idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < IDLE_TIME)
    };
    let answer = service_fn(|request| {
        let service = Arc::clone(&service);
        async move {
            set_idle(None);
            let answer = answer(request, &*service, user).await;
            set_idle(Some(Instant::now()));
            Ok::<_, Infallible>(answer)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let refusing = Arc::clone(&service);
    let connection = http.serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    let served = loop {
        tokio::select! {
            served = connection.as_mut() => break served,
            () = needed.notified() => if !is_awaited() {
                connection.as_mut().graceful_shutdown();
            },
        }
    };
    // A client that disconnects does not want the answer.
    if served.is_err_and(|error| error.is_parse()) {
        refusing.refused("request", "it is not HTTP/1.1");
    }
}

async fn answer(
    request: Request<Incoming>,
    service: &impl LocalService,
    user: Option<u32>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let operation = match operation(&head.method, head.uri.path(), head.uri.query()) {
        Ok(operation) => operation,
        Err(unknown) => {
            let mut answer = refuse(service, "request", unknown.status, &unknown.reason);
            if let Some(methods) = unknown.allowed {
                answer.headers_mut().insert(ALLOW, methods);
            }
            return answer;
        }
    };
    let body = match read(body).await {
        Ok(body) => body,
        Err((status, reason)) => return refuse(service, operation.name(), status, reason),
    };
    let takes_body = matches!(
        operation,
        ApiOperation::Register | ApiOperation::Sign(_) | ApiOperation::StartRefresh
    );
    if !takes_body && !body.is_empty() {
        let reason = "this request takes no body: leave it out";
        return refuse(service, operation.name(), StatusCode::BAD_REQUEST, reason);
    }
    let answer = perform(operation, body, service, user).await;
    answer.unwrap_or_else(|refusal| route::refusal(&refusal))
}

/// Refuses a request before it reaches the service.
fn refuse(
    service: &impl LocalService,
    request: &'static str,
    status: StatusCode,
    reason: &str,
) -> Response<Full<Bytes>> {
    service.refused(request, reason);
    route::error(status, reason)
}

async fn perform(
    operation: ApiOperation,
    body: Bytes,
    service: &impl LocalService,
    user: Option<u32>,
) -> Result<Response<Full<Bytes>>, ApiRefusal> {
    const OCTETS: &str = "application/octet-stream";
    Ok(match operation {
        ApiOperation::Register => {
            let registered = service.register(body, user).await?;
            let status = if registered.new { StatusCode::CREATED } else { StatusCode::OK };
            route::json(status, &registered)
        }
        ApiOperation::Sign(encoding) => {
            route::answer(StatusCode::OK, OCTETS, service.sign(body, encoding, user).await?)
        }
        ApiOperation::StartRefresh => {
            let malformed = |_| {
                let reason = "the body must be a NODES.toml, text in UTF-8";
                service.refused(operation.name(), reason);
                ApiRefusal::new(ApiRefusalKind::Malformed, reason)
            };
            let nodes = String::from_utf8(body.into()).map_err(malformed)?;
            let refresh = service.start_refresh(nodes, user).await?;
            route::json(StatusCode::ACCEPTED, &refresh)
        }
        ApiOperation::CancelRefresh => {
            route::json(StatusCode::ACCEPTED, &service.cancel_refresh(user).await?)
        }
        ApiOperation::Refresh => match service.refresh() {
            Some(refresh) => route::json(StatusCode::OK, &refresh),
            None => route::error(StatusCode::NOT_FOUND, "there was no refresh yet"),
        },
        ApiOperation::Witnesses => route::json(StatusCode::OK, &service.witnesses()?),
        ApiOperation::PublicKey => {
            route::answer(StatusCode::OK, "application/x-pem-file", service.public_key()?)
        }
        ApiOperation::Headers => route::answer(StatusCode::OK, OCTETS, service.headers()?),
        ApiOperation::Health => {
            let health = service.health();
            let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            route::json(status, &health)
        }
        ApiOperation::Specification => {
            route::answer(StatusCode::OK, "application/json", OPENAPI.as_bytes())
        }
    })
}

/// Reads a body of bounded length within a bounded time.
async fn read(body: Incoming) -> Result<Bytes, (StatusCode, &'static str)> {
    match timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_LEN).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let reason =
                "the body has more than 1048576 bytes: sign a file with its SHA-256 instead";
            Err((StatusCode::PAYLOAD_TOO_LARGE, reason))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body was cut off")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 10 s")),
    }
}
