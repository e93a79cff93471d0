//! Servers that are asked one after another, until one answers correctly.

use std::path::PathBuf;

use console::CommandFailure;
use keys::RsaPublicKey;
use quorum::api::{GroupApiClient, GroupApiError};

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

impl QuorumServersOptions {
    /// The client of the servers.
    pub(super) fn group(&self) -> GroupApiClient {
        GroupApiClient::new(&self.sockets)
    }

    /// Asks the servers.
    pub(super) fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&GroupApiClient) -> Result<T, GroupApiError>,
    ) -> Result<T, CommandFailure> {
        service::runtime()?.block_on(request(&self.group())).map_err(failure)
    }
}

/// The failure of a command whose servers did not do what it asked: refused if their policy forbids
/// it.
pub(super) fn failure(error: impl Into<GroupApiError>) -> CommandFailure {
    let error = error.into();
    let message = error.to_string();
    if error.is_forbidden() {
        CommandFailure::Refused(message)
    } else {
        CommandFailure::Failed(message)
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
        servers.ask(async |group| group.public_key(|_| Ok(())).await)
    }
}
