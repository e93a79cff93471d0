//! Detects that the files of an open store are removed or replaced.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::{QuorumStore, file};

/// The amount of free space, in bytes, below which a server is not healthy.
const LITTLE_SPACE: u64 = 16 << 20;

/// The identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    fn of(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }

    /// The identity of an open file.
    fn open(file: &File) -> Option<Self> {
        file.metadata().ok().map(|found| Self::of(&found))
    }

    /// The identity of the file at a path, if there is one.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self::of(&found))
    }
}

impl QuorumStore {
    /// The problem of the store's files and what to do about it, in one line. The server continues
    /// with its open files, so without this check nobody would notice before the next start.
    pub fn problem(&self) -> Option<String> {
        let at = |name: &str| self.directory.join(name);
        if !self.directory.exists() {
            let shown = self.directory.display();
            return Some(format!(
                "the store {shown} was removed while the server runs: stop it, and start it with an \
                 empty store, so that it recovers its shares from the others"
            ));
        }
        if FileId::at(&at(file::DATABASE)) != self.database {
            return Some(format!(
                "{} was removed or replaced while the server runs: stop it, and restore a backup, or \
                 empty the store, so that it recovers its shares from the others",
                file::DATABASE
            ));
        }
        if FileId::at(&at(super::audit::NAME)) != FileId::open(self.audit.file()) {
            return Some(
                "audit.log was removed or replaced while the server runs: put it back and start \
                 the server again, or its audit begins anew"
                    .into(),
            );
        }
        let log = self.log_files().iter().find_map(|path| FileId::at(path));
        if log.is_some() {
            self.log.get_or_init(|| log);
        }
        if let Some(first) = self.log.get()
            && *first != log
        {
            return Some(
                "the file of the agreement log was removed or replaced while the server runs: start \
                 the server again; it then follows the log until it may vote"
                    .into(),
            );
        }
        let mut keys = self.live().unwrap_or_default().into_iter();
        if let Some(gone) =
            keys.find(|key| !super::sealing_key::path(&self.directory, *key).exists())
        {
            return Some(format!(
                "the file of the key of {gone} was removed while the server runs: stop it, and \
                 start it with an empty store, so that it recovers its shares from the others"
            ));
        }
        let files =
            [file::DATABASE, super::audit::NAME].map(at).into_iter().chain(self.log_files());
        for path in std::iter::once(self.directory.clone()).chain(files) {
            if path.exists()
                && let Err(error) = access(&path, Access::READ_OK | Access::WRITE_OK)
            {
                let shown = path.display();
                return Some(format!(
                    "{shown} cannot be read and written ({error}): let the server's user do it"
                ));
            }
        }
        let found = statvfs(&self.directory).ok()?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        (free < LITTLE_SPACE).then(|| {
            format!(
                "{} KiB are free where the store is: free some space, or the server stops",
                free >> 10
            )
        })
    }
}
