//! Servers that are asked one after another, until one answers correctly.

use std::path::PathBuf;

use console::CommandFailure;
use keys::AnyPublicKey;
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
    /// Whether the key is in a file, which the user trusts.
    pub(super) fn is_in_file(&self) -> bool {
        self.pubkey.is_some()
    }

    /// The key in the file, or the one that a server names.
    pub(super) fn key(
        &self,
        servers: &QuorumServersOptions,
    ) -> Result<AnyPublicKey, CommandFailure> {
        if let Some(path) = &self.pubkey {
            let key = AnyPublicKey::read(path);
            return key.map_err(|error| CommandFailure::Usage(error.to_string()));
        }
        servers.ask(async |group| group.public_key(|_| Ok(())).await)
    }
}
