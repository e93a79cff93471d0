//! State that this user's programs keep between runs: its directory, and a key.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use keys::IdentitySecretKey;
use keys::storage::{create_private_directory, state_directory};

/// The directory; `None` without a home directory.
pub(crate) fn directory() -> Option<PathBuf> {
    state_directory("transport")
}

/// Creates the directory, accessible only to its user, because it shows whom the user connects to.
pub(crate) fn create(directory: &Path) -> io::Result<()> {
    create_private_directory(directory)
}

/// This user's key for sending: `identity.key` in the directory, created on first use. By this key,
/// a receiver recognises a sender that was stopped and has started again. `None` without a home
/// directory.
///
/// # Errors
/// If the key cannot be read or created.
pub fn persistent_identity() -> io::Result<Option<IdentitySecretKey>> {
    directory().map(|directory| of_directory(&directory)).transpose()
}

fn of_directory(directory: &Path) -> io::Result<IdentitySecretKey> {
    let path = directory.join("identity.key");
    if !path.try_exists()? {
        create(directory)?;
        match IdentitySecretKey::create(&path) {
            // Another process creates it at the same time. Its key remains.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    IdentitySecretKey::read(&path).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_its_user_only() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("state");
        let keys = thread::scope(|scope| {
            let made: Vec<_> = (0..8).map(|_| scope.spawn(|| of_directory(&directory))).collect();
            made.into_iter().map(|it| it.join().unwrap().unwrap().public()).collect::<Vec<_>>()
        });
        assert_eq!(of_directory(&directory).unwrap().public(), keys[0]);
        assert!(keys.iter().all(|key| *key == keys[0]));
        let files = fs::read_dir(&directory).unwrap().map(Result::unwrap);
        let files: Vec<_> = files.map(|it| (it.file_name(), it.metadata().unwrap())).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].1.permissions().mode() & 0o777, 0o600);
        fs::write(directory.join("identity.key"), "no key").unwrap();
        assert!(of_directory(&directory).is_err());
    }
}
