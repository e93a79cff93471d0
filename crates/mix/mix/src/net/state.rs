//! State files of a proxy or a member. A state folder is locked by one process at a time, and files
//! are replaced atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use keys::IdentitySecretKey;
use keys::sealed::SealedKey;
use keys::storage::{self, Durability};
use keys::trusted::{TrustError, TrustedFolder};
use random::RandomError;
use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

/// The maximum length of a file: a mailbox and the rest of a group's state.
const MAX_LEN: u64 = 256 << 20;

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
    #[error("state {}: {source}{}", .path.display(), advice(.source))]
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
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The end of an error's text: what to do if the disk is full.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room there",
        _ => "",
    }
}

/// A locked directory with the state of this process.
#[derive(Debug)]
pub struct StateFolder {
    folder: TrustedFolder,
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
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(folder.path().join("lock")).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder, lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(StateFileError::Locked { path: folder.path().to_owned() })
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Its path, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Checks a file, which may have been moved here since the folder was opened.
    ///
    /// # Errors
    /// When other users can change it.
    pub(super) fn check(&self, name: &str) -> Result<(), StateFileError> {
        Ok(self.folder.check_file(name.as_ref())?)
    }

    /// The content of a file; `None` if it does not exist.
    ///
    /// # Errors
    /// When other users can change it, it cannot be read, or is longer than a mailbox and the rest
    /// of a group's state.
    pub fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StateFileError> {
        self.check(name)?;
        let path = self.path().join(name);
        let mut content = Zeroizing::new(Vec::new());
        let read = File::open(&path).and_then(|file| {
            let len = file.metadata()?.len();
            if len > MAX_LEN {
                let what = format!("it has more than {MAX_LEN} bytes");
                return Err(io::Error::new(ErrorKind::FileTooLarge, what));
            }
            // A growing buffer would leave copies of a secret.
            content.reserve_exact(usize::try_from(len).unwrap_or(0) + 1);
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
        let path = self.path().join(name);
        let replaced = storage::replace(&path, content, 0o600, Durability::Synced);
        replaced.map_err(|source| StateFileError::Io { path, source })
    }
}

/// The key that encrypts the state of a member with this identity. The context of a file is its
/// name.
pub(super) fn state_key(identity: &IdentitySecretKey) -> SealedKey {
    SealedKey::of_identity(identity, KEY_LABEL)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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

    /// As those of a group that is moved to a proxy that runs.
    #[test]
    fn a_file_that_others_can_change_is_not_read_even_if_it_came_later() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(&place.path().join("state")).unwrap();
        folder.replace("x", b"one").unwrap();
        let path = folder.path().join("x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(folder.read("x"), Err(StateFileError::Untrusted(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(folder.read("x").unwrap().unwrap()[..], *b"one");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read_in_part() {
        let place = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(place.path()).unwrap();
        let file = File::create(place.path().join("x")).unwrap();
        // A file with a hole, which takes no space.
        file.set_len(MAX_LEN + 1).unwrap();
        let error = folder.read("x").err().unwrap();
        assert!(matches!(error, StateFileError::Io { .. }), "{error}");
    }

    #[test]
    fn error_of_a_full_disk_names_the_file_and_what_to_do() {
        let source = ErrorKind::StorageFull.into();
        let error = StateFileError::Io { path: "/var/lib/mix/friends.group".into(), source };
        let shown = error.to_string();
        assert!(shown.starts_with("state /var/lib/mix/friends.group: "), "{shown}");
        assert!(shown.ends_with("; make room there"), "{shown}");
    }

    /// Computed by another program. The nonce is 0, 1, 2 ... 23.
    #[test]
    fn a_state_that_an_older_version_has_sealed_opens() {
        let mut sealed: Vec<u8> = (0..24).collect();
        sealed.extend(b"\x5b\x41\x28\x15\xa9\xc0\x55\x71\xd4\x07\x58");
        sealed.extend(b"\x22\x46\xdd\x7b\xe4\xef\x0a\x4c\x5e\x5f\x06");
        let key = state_key(&IdentitySecretKey::new(&[7; 32]));
        assert_eq!(key.open(b"state", &sealed).unwrap()[..], b"secret"[..]);
        assert!(key.open(b"history 0", &sealed).is_none());
    }
}
