//! The local API: HTTP/1.1 over a Unix socket, specified in `docs/formats/quorum-api.json`.
//!
//! A server has one to three sockets. Each allows some operations ([`ApiPermissions`]): to sign, to
//! register messages, and to administer, which is to start or cancel a refresh. All allow to read.
//! The permissions of the sockets' files are the only access control.

mod access;
mod client;
mod failover;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod review;
mod route;
mod server;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use keys::AnyPublicKey;
use keys::rsa::RsaEncoding;
use serde::{Deserialize, Serialize};

pub use access::{ApiCaller, ApiPermissions, SocketAccess};
pub use client::{QuorumApiClient, QuorumApiError};
pub use failover::{GroupApiClient, GroupApiError};
pub use review::{
    ListChange, ListChangeKind, ListedServer, PendingRegistration, PendingReview, PendingSource,
    ProposedList,
};
pub use server::ApiSocket;

use crate::protocol::policy::MessageDigest;

/// The longest body of a request, in bytes.
pub const MAX_BODY_LEN: usize = crate::protocol::signing::MAX_MESSAGE_LEN;

/// The document that specifies the API, in JSON.
pub const OPENAPI: &str = include_str!("../../../../../docs/formats/quorum-api.json");

/// How a message is encoded before it is signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiEncoding {
    /// EMSA-PKCS1-v1_5, with SHA-256.
    #[default]
    Pkcs1,
    /// EMSA-PKCS1-v1_5, with SHA-512.
    Pkcs1Sha512,
    /// EMSA-PSS, with SHA-256 and a random salt of 32 bytes.
    Pss,
    /// Ed25519, for a group with such a key.
    Ed25519,
}

impl ApiEncoding {
    /// Its name in a request.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pkcs1 => "pkcs1",
            Self::Pkcs1Sha512 => "pkcs1-sha512",
            Self::Pss => "pss",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Whether `signature` is one of the message by this key, and in this encoding: a signature in
    /// another encoding is wrong, because what it goes into names the encoding.
    pub fn verify(self, key: &AnyPublicKey, message: &[u8], signature: &[u8]) -> bool {
        let key = match key {
            AnyPublicKey::Rsa(key) => key,
            AnyPublicKey::Ed25519(key) => {
                return self == Self::Ed25519 && key.verify(message, signature);
            }
        };
        let is_in = |encoding| key.verify_encoding(&encoding, message, signature);
        match self {
            Self::Pkcs1 => is_in(RsaEncoding::Pkcs1),
            Self::Pkcs1Sha512 => is_in(RsaEncoding::Pkcs1Sha512),
            // What is right in one of the two encodings with SHA-256, and not in the other one.
            Self::Pss => key.verify(message, signature) && !is_in(RsaEncoding::Pkcs1),
            Self::Ed25519 => false,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Pkcs1, Self::Pkcs1Sha512, Self::Pss, Self::Ed25519]
            .into_iter()
            .find(|encoding| encoding.name() == name)
    }
}

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterResponse {
    /// The SHA-256 of the message, in hexadecimal digits.
    pub digest: String,
    /// Whether it was not registered before.
    pub new: bool,
    /// Until when it may be signed (RFC 3339). Empty in answers of earlier versions.
    #[serde(default)]
    pub until: String,
}

/// The witnesses of the current epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochWitnesses {
    /// The epoch.
    pub epoch: u64,
    /// The witness of each share by label, in hexadecimal digits.
    pub witnesses: Vec<String>,
}

/// The status of a refresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshStatus {
    /// The epoch that is to begin.
    pub epoch: u64,
    /// The current step.
    pub step: RefreshStep,
    /// The progress of the step: the number of approvals, session keys, labels with a dealing, or
    /// servers with their shares.
    pub done: u64,
    /// The progress that the next step requires.
    pub of: u64,
    /// The servers that have not done their part in the step: members of the current group while it
    /// approves and deals, otherwise of the new group. Not all of them are needed.
    pub waiting_for: Vec<AwaitedServer>,
    /// How many servers of the current group have cancelled the refresh.
    pub cancelled: u64,
    /// How many cancellations end it, f+1.
    pub cancelled_of: u64,
    /// Why it needs an operator, in one line. Empty if it does not.
    pub problem: String,
    /// What the operator must do. Empty if nothing.
    #[serde(default)]
    pub remedy: String,
}

/// A server for which a refresh waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedServer {
    /// Its number in its group, from 1.
    pub server: u64,
    /// Its identity key, in hexadecimal digits.
    pub identity: String,
    /// Its address.
    pub address: SocketAddr,
    /// Whether the answering server has a link with it, or is it.
    pub connected: bool,
}

/// The steps of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefreshStep {
    /// Fewer than f+1 servers have approved it.
    Approving,
    /// New servers register their session keys.
    SessionKeys,
    /// Old servers deal their shares, and new ones confirm them.
    Dealing,
    /// New servers compute their shares.
    Computing,
    /// The new epoch has begun.
    Done,
    /// f+1 servers have cancelled it.
    Cancelled,
}

/// The health of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// Whether the server can sign and follows the agreement log.
    pub ok: bool,
    /// The problem, in one line. Empty if there is none.
    pub problem: String,
    /// How many seconds the problem has lasted. `null` if there is none, or if it has just begun.
    pub problem_s: Option<u64>,
    /// Problems of other servers, while this server can sign. Empty if there are none.
    #[serde(default)]
    pub warning: String,
    /// The epoch. `null` without shares.
    pub epoch: Option<u64>,
    /// The last height of the agreement log that was applied.
    pub height: u64,
    /// How many seconds entries have waited: for the next height, or an entry of this server to be
    /// committed. `null` if none wait.
    pub waiting_s: Option<u64>,
    /// The number of other servers that are connected.
    pub connected: u64,
    /// The number of other servers that must be connected for a signature.
    pub needed: u64,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiRefusalKind {
    /// The request is malformed.
    Malformed,
    /// The policy does not allow it.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It conflicts with a refresh that is open, or with another state of the server.
    Conflict,
    /// Too many requests are running.
    Busy,
    /// The server cannot do it now.
    Unavailable,
    /// Other servers did not answer in time.
    TimedOut,
    /// An internal error, such as a file that cannot be read or written.
    Internal,
}

/// Why a request was refused, in one line that also says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRefusal {
    /// The kind.
    pub kind: ApiRefusalKind,
    /// One line.
    pub reason: String,
}

impl ApiRefusal {
    /// A refusal of this kind.
    pub fn new(kind: ApiRefusalKind, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, reason }
    }
}

impl fmt::Display for ApiRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reason)
    }
}

impl std::error::Error for ApiRefusal {}

/// The service behind the API. Its methods correspond to the operations of the thesis, 4.2 and 4.3.
pub trait LocalService: Send + Sync + 'static {
    /// `register_message`: allows this server to sign a message.
    fn register(
        &self,
        message: Bytes,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<RegisterResponse, ApiRefusal>> + Send;

    /// Withdraws the registration of a message.
    fn withdraw(
        &self,
        digest: MessageDigest,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<(), ApiRefusal>> + Send;

    /// The bytes of a registered message, if they are kept.
    fn registered_message(
        &self,
        digest: MessageDigest,
    ) -> impl Future<Output = Result<Vec<u8>, ApiRefusal>> + Send;

    /// The registrations and the proposed lists of servers that wait.
    fn pending(&self) -> impl Future<Output = Result<PendingReview, ApiRefusal>> + Send;

    /// `sign_message`: requests a signature from f+1 servers, in this encoding, or the usual one of
    /// the group's key.
    fn sign(
        &self,
        message: Bytes,
        encoding: Option<ApiEncoding>,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<Vec<u8>, ApiRefusal>> + Send;

    /// Submits a request to the replicated service. Returns its signed answer.
    fn command(
        &self,
        request: Bytes,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<Vec<u8>, ApiRefusal>> + Send;

    /// `start_refresh`: approves a refresh to the servers that a `NODES.toml` lists.
    fn start_refresh(
        &self,
        nodes: String,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<RefreshStatus, ApiRefusal>> + Send;

    /// Cancels the refresh that is open or approved.
    fn cancel_refresh(
        &self,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<RefreshStatus, ApiRefusal>> + Send;

    /// Submits the withdrawal of this server's approval of a refresh that is not open yet.
    fn withdraw_approval(
        &self,
        caller: ApiCaller,
    ) -> impl Future<Output = Result<(), ApiRefusal>> + Send;

    /// The open refresh, or the last one since the server's start.
    fn refresh(&self) -> Option<RefreshStatus>;

    /// `get_witnesses`.
    ///
    /// # Errors
    /// If the server is in no epoch.
    fn witnesses(&self) -> Result<EpochWitnesses, ApiRefusal>;

    /// The group's public key in PEM.
    ///
    /// # Errors
    /// If the server does not know it.
    fn public_key(&self) -> Result<String, ApiRefusal>;

    /// The headers of all epochs with their signatures, for `sunder quorum verify-epochs`.
    ///
    /// # Errors
    /// If the server knows none.
    fn headers(&self) -> Result<Vec<u8>, ApiRefusal>;

    /// A bundle without shares, from which a server can join the current group by a refresh.
    ///
    /// # Errors
    /// If the server knows no group.
    fn bundle(&self) -> Result<Vec<u8>, ApiRefusal>;

    /// The health of the server.
    fn health(&self) -> NodeHealth;

    /// Records a request that was refused before it reached the service.
    fn refused(&self, request: &'static str, reason: &str, caller: ApiCaller);
}
