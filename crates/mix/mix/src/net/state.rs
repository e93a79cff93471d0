//! State files of a proxy or a member. A state folder is locked by one process at a time, and files
//! are replaced atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use keys::IdentitySecretKey;
use keys::trusted::{TrustError, TrustedFolder};
use rustix::fs::{FlockOperation, flock};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The maximum length of a file: a mailbox and the rest of a group's state.
const MAX_LEN: u64 = 256 << 20;

/// Length of a nonce in bytes.
const NONCE_LEN: usize = 24;

/// Separates the key of states from other keys derived from the identity.
const KEY_LABEL: &[u8] = b"sunder mix state 1";

/// Why a state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// Others could change it.
    #[error("state: {0}")]
    Untrusted(#[from] TrustError),
    /// Another process has locked it.
    #[error("state: {} is in use by another process, which must end first", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// An I/O operation failed.
    #[error("state {}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It belongs to another identity, or was changed.
    #[error("state {}: it belongs to another identity, or was changed", .path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A locked directory with the state of this process.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    lock: File,
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        // A child process that is being started may have inherited the file.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl StateFolder {
    /// Opens a directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// When other users can change it, or another process has locked it.
    pub fn open(path: &Path) -> Result<Self, StateFileError> {
        let failed = |source| StateFileError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let folder = TrustedFolder::new(path)?;
        for entry in fs::read_dir(folder.path()).map_err(failed)? {
            folder.check_file(&entry.map_err(failed)?.file_name())?;
        }
        let path = folder.path().to_owned();
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join("lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateFileError::Locked { path }),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Its path, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StateFileError> {
        let path = self.path.join(name);
        let mut content = Zeroizing::new(Vec::new());
        let read = File::open(&path).and_then(|file| {
            let len = file.metadata()?.len();
            // A growing buffer would leave copies of a secret.
            content.reserve_exact(usize::try_from(len.min(MAX_LEN)).unwrap_or(0) + 1);
            file.take(MAX_LEN).read_to_end(&mut content)
        });
        match read {
            Ok(_) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateFileError::Io { path, source }),
        }
    }

    /// Replaces a file atomically: after a crash it has either the old or the new content.
    ///
    /// # Errors
    /// When it cannot be written. The old content is then kept.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StateFileError> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}.new"));
        let written = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        written().map_err(|source| {
            // Frees the space on a full disk.
            let _ = fs::remove_file(&new);
            StateFileError::Io { path: path.clone(), source }
        })
    }
}

/// Encrypts state with a key that is made from an identity.
pub(super) struct StateKey(XChaCha20Poly1305);

impl StateKey {
    /// The key for this identity.
    ///
    /// # Panics
    /// Never: HMAC takes keys of any length.
    pub(super) fn new(identity: &IdentitySecretKey) -> Self {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&*identity.x25519())
            .expect("HMAC takes keys of any length");
        mac.update(KEY_LABEL);
        let key = Zeroizing::new(<[u8; 32]>::from(mac.finalize().into_bytes()));
        Self(XChaCha20Poly1305::new((&*key).into()))
    }

    /// Encrypts a state, for the file of this name.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    ///
    /// # Panics
    /// Never: no state is as long as a cipher's limit.
    pub(super) fn seal(&self, name: &str, state: &[u8]) -> Result<Vec<u8>, StateFileError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(StateFileError::Random)?;
        let payload = Payload { msg: state, aad: name.as_bytes() };
        let sealed = self.0.encrypt(&XNonce::from(nonce), payload).expect("it is short enough");
        Ok([&nonce[..], &sealed].concat())
    }

    /// The state in the content of the file of this name; `None` if it was sealed with another
    /// identity, for another name, or was changed.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let payload = Payload { msg: sealed, aad: name.as_bytes() };
        self.0.decrypt(&XNonce::from(*nonce), payload).ok().map(Zeroizing::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_files_are_replaced_and_the_folder_is_locked() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let folder = StateFolder::open(&path).unwrap();
        assert!(folder.read("x").unwrap().is_none());
        for content in [&b"one"[..], b"a second one"] {
            folder.replace("x", content).unwrap();
            assert_eq!(folder.read("x").unwrap().unwrap()[..], *content);
        }
        assert!(matches!(StateFolder::open(&path), Err(StateFileError::Locked { .. })));
        drop(folder);
        // A file left by an interrupted write is ignored.
        fs::write(path.join("x.new"), "part").unwrap();
        let folder = StateFolder::open(&path).unwrap();
        assert_eq!(folder.read("x").unwrap().unwrap()[..], b"a second one"[..]);
    }

    #[test]
    fn a_sealed_state_opens_only_with_its_identity_and_name() {
        let [own, other] = [1, 2].map(|byte| StateKey::new(&IdentitySecretKey::new(&[byte; 32])));
        let mut sealed = own.seal("state", b"secret").unwrap();
        assert_eq!(own.open("state", &sealed).unwrap()[..], b"secret"[..]);
        assert!(own.open("history", &sealed).is_none());
        assert!(other.open("state", &sealed).is_none());
        assert!(own.open("state", &sealed[..NONCE_LEN - 1]).is_none());
        assert_ne!(own.seal("state", b"secret").unwrap(), sealed);
        *sealed.last_mut().unwrap() ^= 1;
        assert!(own.open("state", &sealed).is_none());
    }
}
