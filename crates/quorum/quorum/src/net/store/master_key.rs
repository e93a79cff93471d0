//! The key that encrypts the keys of epochs.

use std::fmt;
use std::path::{Path, PathBuf};

use keys::file::{KEY_LEN, KeyFileError, exposure};
use keys::trusted::TrustError;
use zeroize::Zeroizing;

/// The key that encrypts the keys of epochs. Secret. It is the same for all epochs.
pub struct MasterKey(Zeroizing<[u8; KEY_LEN]>);

/// Why there is no master key.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// The file contains no key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Other users can read or replace the file.
    #[error("{}, and decrypt the shares: {}", .0.problem(), .0.advice())]
    Exposed(TrustError),
    /// The service manager passed no credentials.
    #[error(
        "credential {name}: the service manager passed none; start this as a unit of systemd with \
         LoadCredentialEncrypted={name}, or give `master_key`, a file"
    )]
    NoCredentials {
        /// The credential's name.
        name: String,
    },
}

impl MasterKey {
    /// A key from random bytes.
    pub fn new(random: Zeroizing<[u8; KEY_LEN]>) -> Self {
        Self(random)
    }

    /// Reads a key from its file, which must be readable by its owner only.
    ///
    /// # Errors
    /// If the file cannot be read or contains no key, or others can read or replace it.
    pub fn read(path: &Path) -> Result<Self, MasterKeyError> {
        let key = keys::file::read(path)?;
        match exposure(path) {
            Some(error) => Err(MasterKeyError::Exposed(error)),
            None => Ok(Self(key)),
        }
    }

    /// Reads a key from a credential that systemd passes to the service. `directory` is the value
    /// of `CREDENTIALS_DIRECTORY`. systemd ensures that only the service can read it.
    ///
    /// # Errors
    /// If there is no such directory, or the credential is missing or contains no key.
    pub fn from_credential(name: &str, directory: Option<PathBuf>) -> Result<Self, MasterKeyError> {
        let missing = || MasterKeyError::NoCredentials { name: name.to_owned() };
        let path = directory.ok_or_else(missing)?.join(name);
        Ok(Self(keys::file::read(&path)?))
    }

    /// The bytes of the key.
    pub(super) fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MasterKey(..)")
    }
}
