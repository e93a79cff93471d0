//! Directories for files that must be on a disk. [`SCRATCH`](crate::sandbox::SCRATCH) is in memory.
//!
//! A run that a signal ends is killed, and cannot remove its directory. A directory is locked while
//! it is used, so that one which is left can be recognised and removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::process::geteuid;
use tempfile::TempDir;

/// Where the directories are.
const DISK: &str = "/var/tmp";

/// The beginning of their names. Directories of versions that do not lock them begin otherwise.
const PREFIX: &str = "sunder-lab-";

/// A locked directory on a disk. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct DiskDirectory {
    directory: TempDir,
    /// The system unlocks it when the process ends.
    _lock: File,
}

impl DiskDirectory {
    /// Makes a directory. Removes those that killed runs have left.
    ///
    /// # Errors
    /// If it cannot be made; the error names the place.
    pub(crate) fn new() -> io::Result<Self> {
        Self::new_in(Path::new(DISK))
            .map_err(|error| io::Error::new(error.kind(), format!("{DISK}: {error}")))
    }

    fn new_in(place: &Path) -> io::Result<Self> {
        remove_abandoned(place);
        loop {
            let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
            let lock = match open(directory.path()) {
                Ok(lock) => lock,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // Another run may take it for one that is left, before it is locked.
            match lock.try_lock() {
                Ok(()) if directory.path().exists() => return Ok(Self { directory, _lock: lock }),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories in `/var/tmp` that killed runs of this user have left.
pub fn remove_abandoned_directories() {
    remove_abandoned(Path::new(DISK));
}

fn remove_abandoned(place: &Path) {
    let user = geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if is_ours
            && let Ok(directory) = open(&entry.path())
            && directory.try_lock().is_ok()
        {
            // It stays locked meanwhile, so that no other run begins to use it. What cannot be
            // removed now is tried again by the next run.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Opens a directory. A link to one is refused.
fn open(directory: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_killed_run_has_left_is_removed_and_what_is_used_is_not() {
        let place = tempfile::tempdir().unwrap();
        let used = DiskDirectory::new_in(place.path()).unwrap();
        fs::write(used.path().join("store"), "").unwrap();
        let left = place.path().join(format!("{PREFIX}left"));
        fs::create_dir_all(left.join("server-1.store")).unwrap();
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        let link = place.path().join(format!("{PREFIX}link"));
        symlink(&other, &link).unwrap();
        let next = DiskDirectory::new_in(place.path()).unwrap();
        assert!(!left.exists());
        assert!(used.path().join("store").exists() && other.exists() && link.exists());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
