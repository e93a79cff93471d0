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

/// The time limit for a signature. The server has a shorter one, `sign_timeout_s`.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);

/// Servers of one group. If one does not answer or cannot do what is asked, the next one is asked.
#[derive(Clone, Debug)]
pub struct GroupApiClient(Vec<QuorumApiClient>);

/// Why no server did what was asked: the error of each, in the order in which they were asked.
#[derive(Debug)]
pub struct GroupApiError(Vec<QuorumApiError>);

impl GroupApiError {
    /// Whether the policy of a server forbids the request.
    pub fn is_forbidden(&self) -> bool {
        self.0.iter().any(QuorumApiError::is_forbidden)
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

    /// The group's public key.
    ///
    /// # Errors
    /// When no server answers with one.
    pub async fn public_key(&self) -> Result<RsaPublicKey, GroupApiError> {
        let mut errors = GroupApiError(vec![]);
        for server in &self.0 {
            match public_key_of(server).await {
                Ok(key) => return Ok(key),
                Err(error) => errors.0.push(error),
            }
        }
        Err(errors)
    }

    /// Requests a signature of a message. A server that hangs is passed over within seconds.
    ///
    /// # Errors
    /// When no server returns one.
    pub async fn sign(
        &self,
        message: Bytes,
        encoding: ApiEncoding,
    ) -> Result<Bytes, GroupApiError> {
        let mut errors = GroupApiError(vec![]);
        for server in &self.0 {
            match sign_at(server, message.clone(), encoding).await {
                Ok(signature) => return Ok(signature),
                Err(error) => {
                    let is_final = is_of_the_group(&error);
                    errors.0.push(error);
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(errors)
    }
}

async fn public_key_of(server: &QuorumApiClient) -> Result<RsaPublicKey, QuorumApiError> {
    let pem = limited(server, ANSWER_TIMEOUT, server.public_key()).await?;
    let key = str::from_utf8(&pem).ok().and_then(|pem| RsaPublicKey::from_pem(pem).ok());
    key.ok_or_else(|| server.stranger("the public key is not one"))
}

async fn sign_at(
    server: &QuorumApiClient,
    message: Bytes,
    encoding: ApiEncoding,
) -> Result<Bytes, QuorumApiError> {
    // A server that hangs does not answer this either.
    limited(server, ANSWER_TIMEOUT, server.health()).await?;
    limited(server, SIGN_TIMEOUT, server.sign(message, encoding)).await
}

/// Whether another server would answer the same: the request itself is wrong, or other servers were
/// asked already.
fn is_of_the_group(error: &QuorumApiError) -> bool {
    matches!(error, QuorumApiError::Refused { status: 400 | 413 | 504, .. })
}

async fn limited<T>(
    server: &QuorumApiClient,
    limit: Duration,
    request: impl Future<Output = Result<T, QuorumApiError>>,
) -> Result<T, QuorumApiError> {
    let late = |_| QuorumApiError::TimedOut { path: server.socket().to_owned(), limit };
    timeout(limit, request).await.map_err(late)?
}
