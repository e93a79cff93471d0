//! Servers that are asked one after another, until one answers correctly.

use std::path::PathBuf;
use std::time::Duration;

use console::CommandFailure;
use keys::RsaPublicKey;
use quorum::api::{QuorumApiClient, QuorumApiError};
use tokio::time::sleep;

/// How often all servers are asked, if there are several.
const ROUNDS: usize = 3;

/// How long to wait before all servers are asked again.
const ROUND_DELAY: Duration = Duration::from_secs(1);

/// One running server or several of a group.
#[derive(clap::Args)]
pub(super) struct QuorumServersOptions {
    /// The socket of a server. With several, each is tried until one answers
    #[arg(long = "socket", value_name = "PATH", required = true)]
    sockets: Vec<PathBuf>,
}

/// The group's public key: a file, or what a server says.
#[derive(clap::Args)]
pub(super) struct GroupKeyOptions {
    /// The group's public key, in PEM. Without it, the server is asked and trusted
    #[arg(long, value_name = "FILE")]
    pubkey: Option<PathBuf>,
}

/// Why a server's answer was not taken.
pub(super) enum ServerFailure {
    Api(QuorumApiError),
    /// It answers something wrong: why, in one line.
    Wrong(String),
}

impl From<QuorumApiError> for ServerFailure {
    fn from(error: QuorumApiError) -> Self {
        Self::Api(error)
    }
}

impl ServerFailure {
    /// Whether the same request can succeed later.
    fn is_temporary(&self) -> bool {
        match self {
            Self::Api(QuorumApiError::Refused { status, .. }) => matches!(status, 429 | 503 | 504),
            Self::Api(_) => true,
            Self::Wrong(_) => false,
        }
    }

    fn into_failure(self) -> CommandFailure {
        match self {
            Self::Api(error) if error.is_forbidden() => CommandFailure::Refused(error.to_string()),
            Self::Api(error) => CommandFailure::Failed(error.to_string()),
            Self::Wrong(why) => CommandFailure::Failed(why),
        }
    }
}

impl QuorumServersOptions {
    /// The clients of all servers.
    pub(super) fn clients(&self) -> impl Iterator<Item = QuorumApiClient> {
        self.sockets.iter().map(|socket| QuorumApiClient::new(socket))
    }

    /// The first answer that a server gives. Returns the last server's failure if there is none.
    pub(super) fn ask<T>(
        &self,
        request: impl AsyncFn(&QuorumApiClient) -> Result<T, ServerFailure>,
    ) -> Result<T, CommandFailure> {
        let runtime = service::runtime()?;
        let rounds = if self.sockets.len() > 1 { ROUNDS } else { 1 };
        let asked = runtime.block_on(async {
            let mut last = ServerFailure::Wrong("no server is named".into());
            for round in 0..rounds {
                if round > 0 {
                    sleep(ROUND_DELAY).await;
                }
                let mut can_succeed = false;
                for client in self.clients() {
                    match request(&client).await {
                        Ok(answer) => return Ok(answer),
                        Err(failure) => {
                            can_succeed |= failure.is_temporary();
                            last = failure;
                        }
                    }
                }
                if !can_succeed {
                    break;
                }
            }
            Err(last)
        });
        asked.map_err(ServerFailure::into_failure)
    }
}

impl GroupKeyOptions {
    /// The key in the file, if one is given.
    pub(super) fn in_file(&self) -> Result<Option<RsaPublicKey>, CommandFailure> {
        let key = self.pubkey.as_deref().map(RsaPublicKey::read).transpose();
        key.map_err(|error| CommandFailure::Usage(error.to_string()))
    }

    /// The key in the file, or the one that a server names.
    pub(super) fn key(
        &self,
        servers: &QuorumServersOptions,
    ) -> Result<RsaPublicKey, CommandFailure> {
        if let Some(key) = self.in_file()? {
            return Ok(key);
        }
        servers.ask(async |client| {
            let pem = client.public_key().await?;
            let key = str::from_utf8(&pem).ok().and_then(|pem| RsaPublicKey::from_pem(pem).ok());
            key.ok_or_else(|| ServerFailure::Wrong("the server names no RSA public key".into()))
        })
    }
}
