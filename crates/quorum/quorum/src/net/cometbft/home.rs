//! The directory of CometBFT at a server: its configuration, and the sockets between it and the
//! server.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use keys::storage::{self, Durability};

use crate::protocol::cometbft::genesis::genesis;
use crate::protocol::wire::Sha256Digest;

/// The longest path of a Unix socket, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// The tuned configuration. Everything else has CometBFT's default value.
const CONFIG: &str = include_str!("config.toml");

/// The directory of CometBFT at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CometbftHome(PathBuf);

/// Why a directory of CometBFT cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CometbftHomeError {
    /// Its path is too long.
    #[error(
        "cometbft: the path {} is too long for its sockets; choose one of at most {} bytes",
        .0.display(), MAX_SOCKET_PATH - "/signer.sock".len()
    )]
    TooLong(PathBuf),
    /// The path has a character that the configuration of CometBFT cannot have.
    #[error("cometbft: the path {} has quotes or other special characters", .0.display())]
    Characters(PathBuf),
    /// Another configuration exists.
    #[error(
        "{} exists, with other content; remove it, to have it written again", .0.display()
    )]
    Exists(PathBuf),
    /// There is none.
    #[error(
        "cometbft: {} is not a directory of CometBFT; `sunder quorum cometbft-config` writes one",
        .0.display()
    )]
    Missing(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
}

impl CometbftHome {
    /// The directory at this path, which need not exist.
    ///
    /// # Errors
    /// If the path is not suitable.
    pub fn new(path: &Path) -> Result<Self, CometbftHomeError> {
        let failed = |error| CometbftHomeError::File(path.to_owned(), error);
        let path = std::path::absolute(path).map_err(failed)?;
        let home = Self(path);
        if home.signer_socket().as_os_str().len() > MAX_SOCKET_PATH {
            return Err(CometbftHomeError::TooLong(home.0));
        }
        let is_special = |text: &str| text.contains(['"', '\\', '\n', '?', '#', '%', ',']);
        if home.0.to_str().is_none_or(is_special) {
            return Err(CometbftHomeError::Characters(home.0));
        }
        Ok(home)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket on which the server answers CometBFT.
    pub(super) fn abci_socket(&self) -> PathBuf {
        self.0.join("abci.sock")
    }

    /// The socket on which CometBFT waits for the signer of its votes.
    pub(super) fn signer_socket(&self) -> PathBuf {
        self.0.join("signer.sock")
    }

    /// The socket of CometBFT's RPC.
    pub(super) fn rpc_socket(&self) -> PathBuf {
        self.0.join("rpc.sock")
    }

    /// Whether CometBFT has blocks.
    pub(super) fn has_blocks(&self) -> bool {
        self.0.join("data/blockstore.db").exists()
    }

    /// Checks that the directory was written.
    ///
    /// # Errors
    /// If there is no configuration in it.
    pub fn check(&self) -> Result<(), CometbftHomeError> {
        let config = self.0.join("config/config.toml");
        if config.exists() { Ok(()) } else { Err(CometbftHomeError::Missing(self.0.clone())) }
    }

    /// Writes the directory, for a server of the group whose public key has this SHA-256. CometBFT
    /// listens on `listen`, and creates its own keys when it starts.
    ///
    /// # Errors
    /// If a file exists with other content, or the system returns an error.
    pub fn write(&self, key: Sha256Digest, listen: SocketAddr) -> Result<(), CometbftHomeError> {
        let unix = |path: PathBuf| format!("unix://{}", path.display());
        let config = CONFIG
            .replace("@abci@", &unix(self.abci_socket()))
            .replace("@signer@", &unix(self.signer_socket()))
            .replace("@rpc@", &unix(self.rpc_socket()))
            .replace("@listen@", &format!("tcp://{listen}"));
        let folder = self.0.join("config");
        for folder in [&self.0, &folder, &self.0.join("data")] {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.map_err(|error| CometbftHomeError::File(folder.clone(), error))?;
        }
        let files = [("config.toml", config), ("genesis.json", genesis(key))];
        let files = files.map(|(name, content)| (folder.join(name), content));
        for (path, content) in &files {
            if fs::read(path).is_ok_and(|found| found != content.as_bytes()) {
                return Err(CometbftHomeError::Exists(path.clone()));
            }
        }
        for (path, content) in files {
            storage::replace(&path, content.as_bytes(), 0o600, Durability::Synced)
                .map_err(|error| CometbftHomeError::File(path, io::Error::other(error)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_written_once_and_for_its_owner_only() {
        let place = tempfile::tempdir().unwrap();
        let home = CometbftHome::new(&place.path().join("cometbft")).unwrap();
        assert!(matches!(home.check(), Err(CometbftHomeError::Missing(_))));
        let listen = "192.0.2.1:26656".parse().unwrap();
        home.write(Sha256Digest([7; 32]), listen).unwrap();
        home.write(Sha256Digest([7; 32]), listen).unwrap();
        home.check().unwrap();
        let mode = fs::metadata(home.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let config = fs::read_to_string(home.path().join("config/config.toml")).unwrap();
        assert!(config.contains("laddr = \"tcp://192.0.2.1:26656\"") && !config.contains('@'));
        let genesis = fs::read_to_string(home.path().join("config/genesis.json")).unwrap();
        assert!(genesis.contains("sunder-quorum-07070707"));
        // The chain of another group does not replace this one.
        let other = home.write(Sha256Digest([8; 32]), listen);
        assert!(
            matches!(other, Err(CometbftHomeError::Exists(path)) if path.ends_with("genesis.json"))
        );
    }

    #[test]
    fn paths_that_cometbft_cannot_use_are_refused() {
        let refused = |path: &str| CometbftHome::new(Path::new(path)).unwrap_err().to_string();
        assert!(refused(&format!("/{}", "a".repeat(96))).contains("at most 95 bytes"));
        assert!(CometbftHome::new(Path::new(&format!("/{}", "a".repeat(94)))).is_ok());
        assert!(refused("/a\"b").contains("special characters"));
    }
}
