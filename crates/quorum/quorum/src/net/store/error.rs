//! Errors of the store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use keys::trusted::TrustError;
use random::RandomError;
use rusqlite::{ErrorCode, ffi};

use crate::net::full_disk::{advice_on_database, advice_on_file, appended};

/// The advice on a damaged store.
const RESTORE: &str = "restore a backup of this epoch, or empty the store: the server then recovers \
                       its shares from the others";

/// Why a store cannot be read or written.
#[derive(Debug)]
pub enum QuorumStoreError {
    /// A file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users could read or change it.
    Trust(TrustError),
    /// Another process has it open.
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A name that is not UTF-8.
    Name {
        /// The file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// The database was written by a newer version.
    Newer {
        /// The database.
        path: PathBuf,
    },
    /// The shares of the epoch are stored already.
    EpochExists {
        /// The epoch.
        number: u64,
    },
    /// The key of an epoch or a run cannot be decrypted.
    WrongMasterKey {
        /// The scope of the key, as in `epoch 1`.
        of: String,
    },
    /// The chain of hashes in the audit log is broken.
    BrokenChain {
        /// The log.
        path: PathBuf,
        /// The first line that breaks the chain, from 1.
        line: usize,
    },
    /// The store contains an invalid value.
    Damaged {
        /// The invalid value.
        what: String,
    },
    /// The path of the store is not a directory.
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// There is no store to back up, or to restore a backup to.
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// The database changes faster than it can be copied.
    Changing,
    /// The file of a backup exists already.
    BackupExists {
        /// The file.
        path: PathBuf,
    },
    /// A backup of an epoch that has ended, or of another server.
    BackupExpired {
        /// The epoch.
        number: u64,
    },
    /// A backup without an epoch that the store has.
    BackupLacks {
        /// The epoch.
        number: u64,
    },
    /// A backup without an epoch.
    BackupEmpty,
    /// There is the key of an epoch, but no database.
    DatabaseMissing {
        /// The epoch.
        number: u64,
    },
    /// `SQLite` reports an error.
    Database {
        /// The database, once it is known.
        path: Option<PathBuf>,
        /// The error.
        source: rusqlite::Error,
    },
    /// The operating system provides no random bytes.
    Random(RandomError),
}

impl QuorumStoreError {
    /// What is wrong, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::File { path, source } => format!("{}: {source}", path.display()),
            Self::Trust(error) => format!("not trusted: {error}"),
            Self::Locked { path } => format!("{} is in use by another process", path.display()),
            Self::Name { path } => format!("{} is not a name in UTF-8", path.display()),
            Self::Foreign { path } => {
                format!("{} is a database of another program", path.display())
            }
            Self::Newer { path } => {
                format!("{} was written by a newer version of sunder", path.display())
            }
            Self::EpochExists { number } => {
                format!("the shares of epoch {number} are in the store already")
            }
            Self::WrongMasterKey { of } => {
                format!("the key of {of} does not open under this master key")
            }
            Self::BrokenChain { path, line } => format!(
                "{}, line {line}: the chain of hashes is broken, so somebody changed the log",
                path.display()
            ),
            Self::Damaged { what } => format!("damaged: {what}"),
            Self::NoDirectory { path } => format!("{} is not a directory", path.display()),
            Self::NoStore { path } => format!("{} is not a store", path.display()),
            Self::Changing => {
                "the server writes continuously, so its database cannot be copied".into()
            }
            Self::BackupExists { path } => format!("{} exists already", path.display()),
            Self::BackupExpired { number } => format!(
                "the backup is of epoch {number}, whose key is not here: that epoch has ended, or \
                 it is another server's"
            ),
            Self::BackupLacks { number } => {
                format!("the backup was made before epoch {number} began, which this store has")
            }
            Self::BackupEmpty => {
                "the backup has no epoch: it is empty, and there is nothing to restore".into()
            }
            Self::DatabaseMissing { number } => {
                format!("the database is missing, but the key of epoch {number} is here")
            }
            Self::Database { path: None, source } => format!("the database: {}", one_line(source)),
            Self::Database { path: Some(path), source } => {
                format!("{}: {}", path.display(), one_line(source))
            }
            Self::Random(error) => error.to_string(),
        }
    }

    /// Adds the path of the database to its errors, which do not have it.
    pub(crate) fn in_database(self, path: &Path) -> Self {
        match self {
            Self::Database { path: None, source } => {
                Self::Database { path: Some(path.to_owned()), source }
            }
            error => error,
        }
    }

    /// Whether `SQLite` had no space for a database.
    pub(super) fn is_of_full_disk(&self) -> bool {
        matches!(self, Self::Database { source, .. } if advice_on_database(source).is_some())
    }

    /// What to do, if that is known.
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            Self::File { source, .. } => return advice_on_file(source).map(String::from),
            Self::Database { source, .. } => return advice_on(source).map(String::from),
            Self::DatabaseMissing { number } => format!(
                "restore a backup, or remove epoch-{number}.key, and the server recovers its \
                 shares from the others"
            ),
            Self::Locked { .. } => "stop it first".into(),
            Self::Name { .. } | Self::BackupExists { .. } => "choose another name".into(),
            Self::Foreign { .. } | Self::NoDirectory { .. } => "name another `store`".into(),
            Self::Newer { .. } => "use that one".into(),
            Self::WrongMasterKey { .. } => "give the one that the store was written with".into(),
            Self::BrokenChain { .. } => {
                "move the file away for an investigation, and a new one is begun".into()
            }
            Self::Damaged { .. } => RESTORE.into(),
            Self::NoStore { .. } => "give the configuration of a server that has run".into(),
            Self::Changing => "try again".into(),
            Self::BackupExpired { .. } => {
                "a server without shares recovers them from the others".into()
            }
            Self::BackupLacks { .. } => "keep the store".into(),
            Self::Trust(_) | Self::EpochExists { .. } | Self::BackupEmpty | Self::Random(_) => {
                return None;
            }
        })
    }
}

impl fmt::Display for QuorumStoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.problem())?;
        out.write_str(&appended(self.advice().as_deref()))
    }
}

impl std::error::Error for QuorumStoreError {}

impl From<TrustError> for QuorumStoreError {
    fn from(error: TrustError) -> Self {
        Self::Trust(error)
    }
}

impl From<rusqlite::Error> for QuorumStoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database { path: None, source: error }
    }
}

impl From<RandomError> for QuorumStoreError {
    fn from(error: RandomError) -> Self {
        Self::Random(error)
    }
}

/// The message of `SQLite` in one line.
fn one_line(error: &rusqlite::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What to do about a database's error, if that is known.
fn advice_on(error: &rusqlite::Error) -> Option<&'static str> {
    Some(match error.sqlite_error().map(|error| (error.code, error.extended_code)) {
        Some((_, ffi::SQLITE_READONLY_DBMOVED)) => {
            "it was removed or replaced while the server ran: restore a backup, or empty the store"
        }
        Some((ErrorCode::SystemIoFailure, _)) => {
            "see whether the files of the store can be written, and whether the disk is full or \
             broken (dmesg)"
        }
        Some((ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _)) => {
            "let the server's user read and write all files of the store"
        }
        Some((ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _)) => RESTORE,
        _ => return advice_on_database(error),
    })
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
