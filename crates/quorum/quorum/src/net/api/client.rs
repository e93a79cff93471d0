//! A client of a server's local API.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::{
    ApiEncoding, EpochWitnesses, NodeHealth, PendingReview, RefreshStatus, RegisterResponse,
};
use crate::protocol::policy::MessageDigest;

/// The longest answer that is read, in bytes: the headers of 80,000 epochs.
const MAX_ANSWER_LEN: usize = 64 << 20;

/// A client of one server's API.
#[derive(Clone, Debug)]
pub struct QuorumApiClient {
    socket: PathBuf,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum QuorumApiError {
    /// No server listens on the socket.
    #[error(
        "no server answers at {}: {source}; is `sunder quorum node` running, and is this its \
         `socket`?", .path.display()
    )]
    Unconnected {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server accepted the connection, and has not answered in time.
    #[error("no answer from {} within {} s: is the server stopped?", .path.display(), .limit.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// The time limit.
        limit: Duration,
    },
    /// This user may not use the socket.
    #[error(
        "this user may not use {}: become a member of the socket's group{}, and log in again",
        .path.display(), .group.map_or_else(String::new, |it| format!(" (number {it})"))
    )]
    Denied {
        /// The socket.
        path: PathBuf,
        /// The number of its group, if it can be read.
        group: Option<u32>,
        /// The system's error.
        source: io::Error,
    },
    /// The server closed the connection, or its answer does not match the specification.
    #[error("{} answers, but not as `sunder quorum node`: {what}", .path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The server answered in the right form, but its answer is false.
    #[error("the server at {} answers falsely: {what}", .path.display())]
    Wrong {
        /// The socket.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The server refused the request.
    #[error("{reason}")]
    Refused {
        /// The status code.
        status: u16,
        /// Why: one line.
        reason: String,
    },
}

impl QuorumApiError {
    /// Whether the server's policy forbids the request.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { status: 403, .. })
    }
}

impl QuorumApiClient {
    /// A client of the server with this socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Registers a message.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn register(&self, message: Bytes) -> Result<RegisterResponse, QuorumApiError> {
        self.json(Method::POST, "/v1/messages", message).await
    }

    /// Withdraws the registration of a message.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn withdraw(&self, digest: MessageDigest) -> Result<(), QuorumApiError> {
        self.ask(Method::DELETE, &format!("/v1/messages/{digest}"), Bytes::new()).await.map(drop)
    }

    /// The bytes of a registered message.
    ///
    /// # Errors
    /// When the server does not answer, or does not have them.
    pub async fn registered_message(&self, digest: MessageDigest) -> Result<Bytes, QuorumApiError> {
        self.ask(Method::GET, &format!("/v1/messages/{digest}"), Bytes::new()).await
    }

    /// The registrations and the proposed lists of servers that wait.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn pending(&self) -> Result<PendingReview, QuorumApiError> {
        self.json(Method::GET, "/v1/pending", Bytes::new()).await
    }

    /// Requests a signature of a message.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn sign(
        &self,
        message: Bytes,
        encoding: ApiEncoding,
    ) -> Result<Bytes, QuorumApiError> {
        let path = format!("/v1/signatures?encoding={}", encoding.name());
        self.ask(Method::POST, &path, message).await
    }

    /// Submits a request to the replicated service
    /// ([`ServiceRequest::as_bytes`](crate::replication::ServiceRequest::as_bytes)). Returns its
    /// answer, which the client must verify.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn command(&self, request: Bytes) -> Result<Bytes, QuorumApiError> {
        self.ask(Method::POST, "/v1/commands", request).await
    }

    /// Approves a refresh to the servers that a `NODES.toml` lists.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn start_refresh(&self, nodes: String) -> Result<RefreshStatus, QuorumApiError> {
        self.json(Method::POST, "/v1/refreshes", nodes.into()).await
    }

    /// Cancels the refresh that is open or approved. It ends when f+1 servers have cancelled it.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn cancel_refresh(&self) -> Result<RefreshStatus, QuorumApiError> {
        self.json(Method::DELETE, "/v1/refreshes", Bytes::new()).await
    }

    /// Withdraws the server's approval of a refresh that is not open yet.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn withdraw_approval(&self) -> Result<(), QuorumApiError> {
        self.ask(Method::DELETE, "/v1/refreshes/approval", Bytes::new()).await.map(drop)
    }

    /// A bundle without shares, from which a server can join the current group by a refresh.
    ///
    /// # Errors
    /// When the server does not answer, or knows no group.
    pub async fn bundle(&self) -> Result<Bytes, QuorumApiError> {
        self.ask(Method::GET, "/v1/bundle", Bytes::new()).await
    }

    /// The open refresh, or the last one.
    ///
    /// # Errors
    /// When the server does not answer, or there was none.
    pub async fn refresh(&self) -> Result<RefreshStatus, QuorumApiError> {
        self.json(Method::GET, "/v1/refreshes", Bytes::new()).await
    }

    /// The witnesses of the current epoch.
    ///
    /// # Errors
    /// When the server does not answer, or has none.
    pub async fn witnesses(&self) -> Result<EpochWitnesses, QuorumApiError> {
        self.json(Method::GET, "/v1/witnesses", Bytes::new()).await
    }

    /// The group's public key in PEM.
    ///
    /// # Errors
    /// When the server does not answer, or does not have it.
    pub async fn public_key(&self) -> Result<Bytes, QuorumApiError> {
        self.ask(Method::GET, "/v1/public-key", Bytes::new()).await
    }

    /// The headers of all epochs with their signatures.
    ///
    /// # Errors
    /// When the server does not answer, or has none.
    pub async fn headers(&self) -> Result<Bytes, QuorumApiError> {
        self.ask(Method::GET, "/v1/headers", Bytes::new()).await
    }

    /// The health of the server.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn health(&self) -> Result<NodeHealth, QuorumApiError> {
        let (_, body) = self.answer(Method::GET, "/v1/health", Bytes::new()).await?;
        self.parse(&body)
    }

    /// The socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, QuorumApiError> {
        self.parse(&self.ask(method, path, body).await?)
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, QuorumApiError> {
        serde_json::from_slice(body).map_err(|error| self.stranger(&error.to_string()))
    }

    /// The body of a successful answer.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, QuorumApiError> {
        let (status, body) = self.answer(method, path, body).await?;
        if status.is_success() {
            return Ok(body);
        }
        let document: serde_json::Value = self.parse(&body)?;
        let reason = document["error"].as_str().ok_or_else(|| self.stranger("no reason"))?;
        Err(QuorumApiError::Refused { status: status.as_u16(), reason: reason.to_owned() })
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), QuorumApiError> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|source| self.unconnected(source))?;
        let stranger = |error: &dyn std::fmt::Display| self.stranger(&error.to_string());
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| stranger(&error))?;
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        let request = request.body(Full::new(body)).map_err(|error| stranger(&error))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| stranger(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_LEN).collect().await;
            Ok((status, body.map_err(|error| stranger(&error))?.to_bytes()))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // If the connection ends before the answer, it has failed.
            ended = connection => match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(stranger(&error)),
            },
        }
    }

    fn unconnected(&self, source: io::Error) -> QuorumApiError {
        let path = self.socket.clone();
        if source.kind() != io::ErrorKind::PermissionDenied {
            return QuorumApiError::Unconnected { path, source };
        }
        let group = std::fs::metadata(&path).ok().map(|found| found.gid());
        QuorumApiError::Denied { path, group, source }
    }

    /// The error for an answer that is false, for [`ask`](super::GroupApiClient::ask).
    pub(super) fn wrong(&self, what: &str) -> QuorumApiError {
        QuorumApiError::Wrong { path: self.socket.clone(), what: what.to_owned() }
    }

    pub(super) fn stranger(&self, what: &str) -> QuorumApiError {
        QuorumApiError::Stranger { path: self.socket.clone(), what: what.to_owned() }
    }
}
