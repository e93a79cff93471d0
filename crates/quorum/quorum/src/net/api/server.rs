//! The server of the local API.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::ALLOW;
use hyper::{Request, Response, StatusCode};
use keys::trusted::TrustedFolder;
use service::http::{HttpLimits, HttpServer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::route::{self, ApiOperation, operation};
use super::{
    ApiCaller, ApiPermissions, ApiRefusal, ApiRefusalKind, LocalService, MAX_BODY_LEN, OPENAPI,
    SocketAccess,
};

/// The longest path of a Unix socket, in bytes.
const MAX_PATH: usize = 107;

/// The time within which a client must send a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time within which a client must send a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer waits for a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// If another process listens there, another user could replace the socket, its group cannot be
    /// set, or the system reports an error.
    pub fn open(
        path: &Path,
        access: &SocketAccess,
        allowed: ApiPermissions,
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
        let listener = service::listening::listen_unix(&path, 0o600)?;
        access.apply(&path).inspect_err(|_| {
            // The error that is reported says more than a socket that remains.
            let _ = fs::remove_file(&path);
        })?;
        let server = HttpServer::new(limits(max_connections));
        let task = tokio::spawn(async move {
            let accepted = |stream: UnixStream| {
                let (server, service) = (server.clone(), Arc::clone(&service));
                async move {
                    let caller = stream.peer_cred().map_or_else(
                        |_| ApiCaller::default(),
                        |peer| ApiCaller { uid: Some(peer.uid()), gid: Some(peer.gid()) },
                    );
                    serve(&server, stream, (caller, allowed), service).await;
                }
            };
            server.accept(listener, accepted).await;
        });
        Ok(Self { path, task })
    }
}

/// The limits of the connections to a socket.
pub(super) fn limits(connections: usize) -> HttpLimits {
    HttpLimits { connections, header_timeout: HEADER_TIMEOUT, write_timeout: WRITE_TIMEOUT }
}

/// Serves one connection of a user, with any number of requests.
pub(super) async fn serve(
    server: &HttpServer,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    (caller, allowed): (ApiCaller, ApiPermissions),
    service: Arc<impl LocalService>,
) {
    let answer = |request| {
        let service = Arc::clone(&service);
        async move { answer(request, &*service, caller, allowed).await }
    };
    let served = server.serve(stream, answer).await;
    // A client that disconnects does not want the answer.
    if served.is_err_and(|error| error.is_parse()) {
        service.refused("request", "it is not HTTP/1.1", caller);
    }
}

async fn answer(
    request: Request<Incoming>,
    service: &impl LocalService,
    caller: ApiCaller,
    allowed: ApiPermissions,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let operation = match operation(&head.method, head.uri.path(), head.uri.query()) {
        Ok(operation) => operation,
        Err(unknown) => {
            let mut answer = refuse(service, "request", unknown.status, &unknown.reason, caller);
            if let Some(methods) = unknown.allowed {
                answer.headers_mut().insert(ALLOW, methods);
            }
            return answer;
        }
    };
    // Before the body is read.
    if let Some(reason) = operation.missing_permission(allowed) {
        return refuse(service, operation.name(), StatusCode::FORBIDDEN, reason, caller);
    }
    let body = match read(body).await {
        Ok(body) => body,
        Err((status, reason)) => return refuse(service, operation.name(), status, reason, caller),
    };
    let takes_body = matches!(
        operation,
        ApiOperation::Register
            | ApiOperation::Sign(_)
            | ApiOperation::Command
            | ApiOperation::StartRefresh
    );
    if !takes_body && !body.is_empty() {
        let reason = "this request takes no body: leave it out";
        return refuse(service, operation.name(), StatusCode::BAD_REQUEST, reason, caller);
    }
    let answer = perform(operation, body, service, caller).await;
    answer.unwrap_or_else(|refusal| route::refusal(&refusal))
}

/// Refuses a request before it reaches the service.
fn refuse(
    service: &impl LocalService,
    request: &'static str,
    status: StatusCode,
    reason: &str,
    caller: ApiCaller,
) -> Response<Full<Bytes>> {
    service.refused(request, reason, caller);
    route::error(status, reason)
}

async fn perform(
    operation: ApiOperation,
    body: Bytes,
    service: &impl LocalService,
    caller: ApiCaller,
) -> Result<Response<Full<Bytes>>, ApiRefusal> {
    const OCTETS: &str = "application/octet-stream";
    Ok(match operation {
        ApiOperation::Register => {
            let registered = service.register(body, caller).await?;
            let status = if registered.new { StatusCode::CREATED } else { StatusCode::OK };
            route::json(status, &registered)
        }
        ApiOperation::Withdraw(digest) => {
            service.withdraw(digest, caller).await?;
            empty(StatusCode::NO_CONTENT)
        }
        ApiOperation::Show(digest) => {
            route::answer(StatusCode::OK, OCTETS, service.registered_message(digest).await?)
        }
        ApiOperation::Pending => route::json(StatusCode::OK, &service.pending().await?),
        ApiOperation::Sign(encoding) => {
            route::answer(StatusCode::OK, OCTETS, service.sign(body, encoding, caller).await?)
        }
        ApiOperation::Command => {
            route::answer(StatusCode::OK, OCTETS, service.command(body, caller).await?)
        }
        ApiOperation::StartRefresh => {
            let malformed = |_| {
                let reason = "the body must be a NODES.toml, text in UTF-8";
                service.refused(operation.name(), reason, caller);
                ApiRefusal::new(ApiRefusalKind::Malformed, reason)
            };
            let nodes = String::from_utf8(body.into()).map_err(malformed)?;
            let refresh = service.start_refresh(nodes, caller).await?;
            route::json(StatusCode::ACCEPTED, &refresh)
        }
        ApiOperation::CancelRefresh => {
            route::json(StatusCode::ACCEPTED, &service.cancel_refresh(caller).await?)
        }
        ApiOperation::WithdrawApproval => {
            // It holds once the agreement log has it.
            service.withdraw_approval(caller).await?;
            empty(StatusCode::ACCEPTED)
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
        ApiOperation::Bundle => route::answer(StatusCode::OK, OCTETS, service.bundle()?),
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

/// An answer without content.
fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
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
