//! A client of several servers of one group, which are asked in turn.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use keys::RsaPublicKey;
use tokio::time::timeout;

use super::{ApiEncoding, QuorumApiClient, QuorumApiError};

/// The time limit for an answer that needs no other server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit for an answer. For a signature, the server has a shorter one, `sign_timeout_s`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Servers of one group. If one does not answer, answers falsely or refuses, the next one is asked.
#[derive(Clone, Debug)]
pub struct GroupApiClient(Vec<QuorumApiClient>);

/// Why no server did what was asked: the error of each, in the order in which they were asked.
#[derive(Debug)]
pub struct GroupApiError(Vec<QuorumApiError>);

impl GroupApiError {
    /// Whether the servers' policy forbids the request: more than f of them say so, if the servers
    /// that were asked are a group of 3f+1. So as long as at most f of these are faulty, a correct
    /// server says so. Of one to three servers, f is taken for 0.
    pub fn is_forbidden(&self) -> bool {
        let faulty = self.0.len().saturating_sub(1) / 3;
        self.0.iter().filter(|error| error.is_forbidden()).count() > faulty
    }
}

impl From<QuorumApiError> for GroupApiError {
    /// The error of the only server that was asked.
    fn from(error: QuorumApiError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for GroupApiError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        // Servers that refuse for the same reason say the same.
        texts.dedup();
        out.write_str(&texts.join("; "))
    }
}

impl std::error::Error for GroupApiError {}

impl GroupApiClient {
    /// A client of the servers with these sockets, of which the first is asked first.
    pub fn new(sockets: &[PathBuf]) -> Self {
        Self(sockets.iter().map(|socket| QuorumApiClient::new(socket)).collect())
    }

    /// The group's public key. A key that `check` refuses, with the reason in one line, is passed
    /// over.
    ///
    /// # Errors
    /// When no server answers with one.
    pub async fn public_key(
        &self,
        check: impl Fn(&RsaPublicKey) -> Result<(), String>,
    ) -> Result<RsaPublicKey, GroupApiError> {
        let check = &check;
        self.ask(|server| async move {
            let pem = limited(&server, ANSWER_TIMEOUT, server.public_key()).await?;
            let key = str::from_utf8(&pem).ok().and_then(|pem| RsaPublicKey::from_pem(pem).ok());
            let key = key.ok_or_else(|| server.stranger("the public key is not one"))?;
            check(&key).map_err(|why| server.wrong(&why))?;
            Ok(key)
        })
        .await
    }

    /// Requests a signature of a message. A wrong one is passed over if the key is known.
    ///
    /// # Errors
    /// When no server returns one.
    pub async fn sign(
        &self,
        message: &Bytes,
        encoding: ApiEncoding,
        key: Option<&RsaPublicKey>,
    ) -> Result<Bytes, GroupApiError> {
        self.ask(|server| async move {
            let signature = server.sign(message.clone(), encoding).await?;
            if key.is_none_or(|key| encoding.verify(key, message, &signature)) {
                Ok(signature)
            } else {
                Err(server.wrong("the signature is not by the group's key"))
            }
        })
        .await
    }

    /// The headers of all epochs with their signatures, which are not verified.
    ///
    /// # Errors
    /// When no server returns them.
    pub async fn headers(&self) -> Result<Bytes, GroupApiError> {
        self.ask(|server| async move { server.headers().await }).await
    }

    /// The first right answer of a server. `request` verifies the answer, and returns an error for
    /// a wrong one. No refusal ends the search, because a faulty server can refuse for any reason.
    /// A server that hangs is passed over within seconds, and one that is slow within a minute.
    ///
    /// # Errors
    /// When no server gives a right answer.
    async fn ask<T, F: Future<Output = Result<T, QuorumApiError>>>(
        &self,
        request: impl Fn(QuorumApiClient) -> F,
    ) -> Result<T, GroupApiError> {
        let mut errors = GroupApiError(vec![]);
        for server in &self.0 {
            let asked = async {
                // A server that hangs does not answer this either.
                limited(server, ANSWER_TIMEOUT, server.health()).await?;
                limited(server, REQUEST_TIMEOUT, request(server.clone())).await
            };
            match asked.await {
                Ok(answer) => return Ok(answer),
                Err(error) => errors.0.push(error),
            }
        }
        Err(errors)
    }
}

async fn limited<T>(
    server: &QuorumApiClient,
    limit: Duration,
    request: impl Future<Output = Result<T, QuorumApiError>>,
) -> Result<T, QuorumApiError> {
    let late = |_| QuorumApiError::TimedOut { path: server.socket().to_owned(), limit };
    timeout(limit, request).await.map_err(late)?
}
