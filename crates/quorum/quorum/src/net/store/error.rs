//! Errors of the store.

use std::io;
use std::path::PathBuf;

use keys::trusted::TrustError;
use random::RandomError;
use rusqlite::{ErrorCode, ffi};

use crate::net::full_disk::{advice_on_database, advice_on_file};

/// Why a store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum QuorumStoreError {
    /// A file cannot be read or written.
    #[error("{}: {source}{}", .path.display(), advice_on_file(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users could read or change it.
    #[error("not trusted: {0}")]
    Trust(#[from] TrustError),
    /// Another process has it open.
    #[error("{} is in use by another process; stop it first", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A name that is not UTF-8.
    #[error("{} is not a name in UTF-8; choose another", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error("{} is a database of another program; name another `store`", .path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// The database was written by a newer version.
    #[error("{} was written by a newer version of sunder; use that one", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
    },
    /// The shares of the epoch are stored already.
    #[error("the shares of epoch {number} are in the store already")]
    EpochExists {
        /// The epoch.
        number: u64,
    },
    /// The key of an epoch or a run cannot be decrypted.
    #[error(
        "the key of {of} does not open under this master key; give the one that the store was \
         written with"
    )]
    WrongMasterKey {
        /// The scope of the key, as in `epoch 1`.
        of: String,
    },
    /// The chain of hashes in the audit log is broken.
    #[error(
        "{}, line {line}: the chain of hashes is broken, so somebody changed the log; move the file \
         away for an investigation, and a new one is begun", .path.display()
    )]
    BrokenChain {
        /// The log.
        path: PathBuf,
        /// The first line that breaks the chain, from 1.
        line: usize,
    },
    /// The store contains an invalid value.
    #[error(
        "damaged: {what}; restore a backup of this epoch, or empty the store: the server then \
         recovers its shares from the others"
    )]
    Damaged {
        /// The invalid value.
        what: String,
    },
    /// The path of the store is not a directory.
    #[error("{} is not a directory; name another `store`", .path.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// There is no store to back up, or to restore a backup to.
    #[error("{} is not a store; give the configuration of a server that has run", .path.display())]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// The database changes faster than it can be copied.
    #[error("the server writes continuously, so its database cannot be copied; try again")]
    Changing,
    /// The file of a backup exists already.
    #[error("{} exists already; choose another name", .path.display())]
    BackupExists {
        /// The file.
        path: PathBuf,
    },
    /// A backup of an epoch that has ended, or of another server.
    #[error(
        "the backup is of epoch {number}, whose key is not here: that epoch has ended, or it is \
         another server's; a server without shares recovers them from the others"
    )]
    BackupExpired {
        /// The epoch.
        number: u64,
    },
    /// A backup without an epoch that the store has.
    #[error(
        "the backup was made before epoch {number} began, which this store has; keep the store"
    )]
    BackupLacks {
        /// The epoch.
        number: u64,
    },
    /// A backup without an epoch.
    #[error("the backup has no epoch: it is empty, and there is nothing to restore")]
    BackupEmpty,
    /// There is the key of an epoch, but no database.
    #[error(
        "the database is missing, but the key of epoch {number} is here: restore a backup, or \
         remove epoch-{number}.key, and the server recovers its shares from the others"
    )]
    DatabaseMissing {
        /// The epoch.
        number: u64,
    },
    /// `SQLite` reports an error.
    #[error("the database: {}{}", one_line(.0), advice_on_database(.0))]
    Database(#[from] rusqlite::Error),
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The message of `SQLite` in one line, with advice unless the disk is full.
fn one_line(error: &rusqlite::Error) -> String {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let fix = match error.sqlite_error().map(|error| (error.code, error.extended_code)) {
        Some((_, ffi::SQLITE_READONLY_DBMOVED)) => {
            "; it was removed or replaced while the server ran: restore a backup, or empty the store"
        }
        Some((ErrorCode::SystemIoFailure, _)) => {
            "; see whether the files of the store can be written, and whether the disk is full or \
             broken (dmesg)"
        }
        Some((ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _)) => {
            "; let the server's user read and write all files of the store"
        }
        Some((ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _)) => {
            "; restore a backup of this epoch, or empty the store: the server then recovers its \
             shares from the others"
        }
        _ => "",
    };
    format!("{line}{fix}")
}

impl From<rusqlite::types::FromSqlError> for QuorumStoreError {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        damaged(error.to_string())
    }
}

pub(super) fn damaged(what: String) -> QuorumStoreError {
    QuorumStoreError::Damaged { what }
}

/// Adds the file's path to a system error.
pub(super) fn of_file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> QuorumStoreError {
    let path = path.into();
    move |source| QuorumStoreError::File { path, source }
}
