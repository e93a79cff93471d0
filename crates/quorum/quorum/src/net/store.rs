//! A server's files: its state and shares, the messages that it may sign, and a log of what it did.
//!
//! A store is a directory with
//!
//! - `epochs.sqlite`: the state of a server, its shares and its voting key, encrypted under keys of
//!   its epoch, what it keeps during a refresh, encrypted under the key of the run, and the
//!   registered messages;
//! - `epoch-N.key`, `voting-N.key` and `run-ID.key`: the keys for the shares and the voting key of
//!   an epoch, and for a run, encrypted under the [`MasterKey`];
//! - `audit.log`: see [`audit`];
//! - `group.bundle`: the public key and the servers of the bundle from which it was started;
//! - `evidence-N-S`: the proof that server S of epoch N has answered wrongly;
//! - `lock`: locked while a process has the store open.
//!
//! Related changes are one transaction ([`QuorumStore::save`]). When an epoch or a run ends, its
//! rows are overwritten and deleted, and its key is overwritten in place. An attacker who later
//! obtains the disk and the master key cannot decrypt copies of the rows that the file system may
//! have kept. A [backup](QuorumStore::back_up) contains the encrypted rows without the keys, so its
//! shares are useless after the epoch, too. Registered messages are not encrypted, in either.
//!
//! Assumption: data that is overwritten in place is gone. Copy-on-write file systems, snapshots and
//! flash translation layers may keep old blocks. On such a disk, keep the master key elsewhere, for
//! example in a systemd credential that is sealed by a TPM.

pub mod audit;
mod error;
mod examine;
mod file;
mod file_watch;
mod master_key;
mod registry;
mod sealing_key;
mod state;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use keys::storage::{self, Durability};
use rusqlite::Connection;

use crate::protocol::ceremony::bundle::QuorumBundle;
use crate::protocol::combination::ServerIndex;
use crate::protocol::policy::MessageDigest;
use audit::{AuditEvent, AuditLog};
use error::of_file;
use file_watch::FileId;
use sealing_key::SealingKeyScope;

pub use error::QuorumStoreError;
pub use examine::{QuorumStoreSummary, examine};
pub use master_key::{MasterKey, MasterKeyError};
pub use registry::{
    MAX_KEPT_LEN, MAX_KEPT_TOTAL, MAX_REGISTERED, MessageRegistration, RegistrationRequest,
};

/// The file with the public part of a bundle in a store's directory.
pub const BUNDLE_FILE: &str = "group.bundle";

/// The file of the agreement log in a store's directory.
pub const LOG_FILE: &str = "log.sqlite";

/// The file of the agreement log in a store's directory, if CometBFT runs the log.
pub const COMETBFT_FILE: &str = "cometbft.sqlite";

/// An open store. Only one process can open it at a time.
#[derive(Debug)]
pub struct QuorumStore {
    directory: PathBuf,
    connection: Connection,
    master: MasterKey,
    audit: AuditLog,
    /// The total length of the registered messages that are kept, once it is known.
    kept_len: Option<u64>,
    /// The identity of the database file when it was opened.
    database: Option<FileId>,
    /// The identity of the agreement log's file when it was first seen.
    log: OnceCell<(&'static str, FileId)>,
    /// Unlocked when it is closed.
    _lock: file::QuorumStoreLock,
}

impl QuorumStore {
    /// Opens the store in a directory that no other user can change, or creates an empty one.
    /// Destroys keys of epochs that have ended, because a crash may have prevented that.
    ///
    /// # Errors
    /// If another process has it open, other users can change it, or it is damaged.
    pub fn open(
        directory: &Path,
        master: MasterKey,
        now: SystemTime,
    ) -> Result<Self, QuorumStoreError> {
        let (directory, lock) = file::lock(directory)?;
        let keys = sealing_key::list(&directory)?;
        if let Some(&SealingKeyScope::Epoch(number)) = keys.first()
            && !file::has_database(&directory)
        {
            return Err(QuorumStoreError::DatabaseMissing { number });
        }
        let connection = file::open(&directory)?;
        let audit = AuditLog::open(&directory, now)?;
        let database = FileId::at(&directory.join(file::DATABASE));
        let log = OnceCell::new();
        let kept_len = None;
        let store =
            Self { directory, connection, master, audit, kept_len, database, log, _lock: lock };
        store.destroy_all_but(&keys, &store.live()?)?;
        Ok(store)
    }

    /// The epochs whose shares are stored, in ascending order: none, one, or two during the
    /// transition between epochs.
    ///
    /// # Errors
    /// If the database cannot be read or is damaged.
    pub fn epochs(&self) -> Result<Vec<u64>, QuorumStoreError> {
        epochs(&self.connection)
    }

    /// Writes a copy of the database in a directory to a new file, even while a server has the
    /// store open. The copy contains the encrypted shares but not the epoch's key, so it can be
    /// restored only on this server and during the epoch. Returns the epochs whose shares it
    /// contains.
    ///
    /// # Errors
    /// If there is no store, it is damaged, or the file exists already or cannot be written.
    pub fn back_up(directory: &Path, to: &Path) -> Result<Vec<u64>, QuorumStoreError> {
        if to.exists() {
            return Err(QuorumStoreError::BackupExists { path: to.to_owned() });
        }
        if !file::has_database(directory) {
            return Err(QuorumStoreError::NoStore { path: directory.to_owned() });
        }
        // If no server is running, the lock keeps one from starting.
        let (connection, _lock) = match file::lock(directory) {
            Ok((directory, lock)) => (file::open(&directory)?, Some(lock)),
            Err(QuorumStoreError::Locked { path }) => {
                (file::open_to_read(&path.join(file::DATABASE))?, None)
            }
            Err(error) => return Err(error),
        };
        file::copy_database(&connection, to)?;
        epochs(&file::open_to_read(to)?)
    }

    /// Replaces the database of a closed store by a backup of the same epoch. The audit log is
    /// kept. The registrations are removed, because some of them may have been withdrawn since.
    ///
    /// # Errors
    /// If there is no store (without its keys no backup can be decrypted), if the backup's epoch
    /// has ended here or belongs to another server, or if the backup is damaged. Then nothing is
    /// changed.
    pub fn restore(
        directory: &Path,
        master: MasterKey,
        from: &Path,
        now: SystemTime,
    ) -> Result<(), QuorumStoreError> {
        if !directory.is_dir() {
            return Err(QuorumStoreError::NoStore { path: directory.to_owned() });
        }
        let (directory, lock) = file::lock(directory)?;
        let copy = file::copy(from, &directory)?;
        let store = Self {
            connection: file::open_at(copy.path())?,
            kept_len: None,
            database: FileId::at(copy.path()),
            log: OnceCell::new(),
            audit: AuditLog::open(&directory, now)?,
            directory,
            master,
            _lock: lock,
        };
        let keys = sealing_key::list(&store.directory)?;
        let epochs = store.epochs()?;
        if let Some(&number) =
            epochs.iter().find(|it| !keys.contains(&SealingKeyScope::Epoch(**it)))
        {
            return Err(QuorumStoreError::BackupExpired { number });
        }
        let kept = |key: &SealingKeyScope| match *key {
            SealingKeyScope::Epoch(number) => Some(number),
            SealingKeyScope::Voting(_) | SealingKeyScope::Run(_) => None,
        };
        if let Some(number) = keys.iter().filter_map(kept).find(|it| !epochs.contains(it)) {
            return Err(QuorumStoreError::BackupLacks { number });
        }
        if epochs.is_empty() {
            return Err(QuorumStoreError::BackupEmpty);
        }
        // Runs that have ended since the backup.
        for run in store.live()?.into_iter().filter(|key| !keys.contains(key)) {
            store.delete_items(run)?;
        }
        store.delete_unused_voting_keys()?;
        store.delete_registrations()?;
        store.saved()?;
        let Self { directory, connection, mut audit, _lock, .. } = store;
        drop(connection);
        copy.replace_database(&directory)?;
        audit.append(&AuditEvent::Restored { epochs }, now)?;
        Ok(())
    }

    /// Stores the evidence that a server of an epoch has answered wrongly in `evidence-EPOCH-N`,
    /// where N is the server's number in its group, from 1. Only the first evidence is kept.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_evidence(
        &mut self,
        epoch: u64,
        server: ServerIndex,
        evidence: &[u8],
        now: SystemTime,
    ) -> Result<(), QuorumStoreError> {
        let server = server.0 + 1;
        let path = self.directory.join(format!("evidence-{epoch}-{server}"));
        if path.exists() {
            return Ok(());
        }
        // Atomically, because a file with a part of the evidence would count as all of it.
        let replaced = storage::replace(&path, evidence, 0o600, Durability::Synced);
        replaced.map_err(of_file(path))?;
        let evidence = MessageDigest::of(evidence).to_string();
        self.record(&AuditEvent::WrongAnswer { epoch, server, evidence }, now)
    }

    /// The file with the public part of the bundle from which the server was started.
    pub fn bundle_file(&self) -> PathBuf {
        self.directory.join(BUNDLE_FILE)
    }

    /// The file of the database.
    pub(crate) fn database_file(&self) -> PathBuf {
        self.directory.join(file::DATABASE)
    }

    /// The files that the agreement log may have, one for each engine. At most one exists.
    pub fn log_files(&self) -> [PathBuf; 2] {
        [LOG_FILE, COMETBFT_FILE].map(|name| self.directory.join(name))
    }

    /// Keeps the public part of a bundle. A newer one replaces it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_bundle(&self, bundle: &QuorumBundle) -> Result<(), QuorumStoreError> {
        let path = self.bundle_file();
        let replaced =
            storage::replace(&path, &bundle.public_part().to_bytes(), 0o600, Durability::Synced);
        replaced.map_err(of_file(path))
    }

    /// Writes an event to the audit log.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn record(&mut self, event: &AuditEvent, now: SystemTime) -> Result<(), QuorumStoreError> {
        self.audit.append(event, now)
    }

    /// Sets the largest total length of the audit log's files, in bytes. The default is
    /// [`audit::MAX_LEN`].
    pub fn set_max_audit_len(&mut self, len: u64) {
        self.audit.set_max_len(len);
    }

    /// The audit log.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }
}

fn epochs(connection: &Connection) -> Result<Vec<u64>, QuorumStoreError> {
    let mut statement = connection.prepare("SELECT number FROM epoch ORDER BY number")?;
    let numbers = statement.query_map([], |row| row.get::<_, i64>(0))?;
    numbers.map(|number| file::unsigned(number?, "number")).collect()
}
