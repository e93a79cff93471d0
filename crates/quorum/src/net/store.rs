//! What a server keeps on disk: the shares of its epoch, the messages that it may sign, and a log
//! of what it did.
//!
//! A store is a directory with
//!
//! - `epochs.sqlite`: epochs, their shares, each encrypted under the key of its epoch, and the
//!   digests of registered messages;
//! - `epoch-N.key`: the key of epoch N, encrypted under the [`MasterKey`];
//! - `audit.log`: see [`audit`];
//! - `lock`: held while a process has the store open.
//!
//! An epoch begins and ends in one transaction each. When it ends, its rows are overwritten and
//! deleted, and its key is overwritten in place: whoever later gets the disk and the master key
//! cannot decrypt copies of the rows that the file system may have kept. A [backup](Store::back_up)
//! holds the encrypted rows without the epoch's key, so nobody can use it after the epoch either.
//!
//! Assumption: what is overwritten in place is gone. File systems that copy on write, snapshots and
//! flash translation layers may keep old blocks; keep the master key away from them then, as a
//! systemd credential that is sealed by a TPM.

pub mod audit;
mod epoch_key;
mod error;
mod file;
mod master_key;
mod registry;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use sharing::Generator;
use zeroize::Zeroizing;

use crate::protocol::combination::Label;
use audit::{AuditLog, Event};
use epoch_key::EpochKey;
use error::damaged;

pub use error::StoreError;
pub use master_key::{MasterKey, MasterKeyError};
pub use registry::{MAX_REGISTERED, Registration};

/// What a server has in one epoch. The shares are secret.
pub struct Epoch {
    /// The epoch's number, from 1.
    pub number: u64,
    /// What the server needs besides its shares and may show to all: the group, the public key, the
    /// witnesses of all shares.
    pub public: Vec<u8>,
    /// The server's shares, by label.
    pub shares: Vec<(Label, Zeroizing<Vec<u8>>)>,
}

impl fmt::Debug for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Epoch({}, {} shares)", self.number, self.shares.len())
    }
}

/// An open store. One process at a time has it open.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    connection: Connection,
    master: MasterKey,
    audit: AuditLog,
    /// Unlocked when it is closed.
    _lock: File,
}

impl Store {
    /// Opens the store in a directory that no other user can change, or creates an empty one. Keys
    /// of epochs that have ended are destroyed: a crash may have come before that.
    ///
    /// # Errors
    /// When another process has it open, when other users can change it, or when it is damaged.
    pub fn open(directory: &Path, master: MasterKey, now: SystemTime) -> Result<Self, StoreError> {
        let (directory, lock) = file::lock(directory)?;
        let keys = epoch_key::list(&directory)?;
        if let Some(&number) = keys.first()
            && !file::has_database(&directory)
        {
            return Err(StoreError::DatabaseMissing { number });
        }
        let connection = file::open(&directory)?;
        let audit = AuditLog::open(&directory, now)?;
        let store = Self { directory, connection, master, audit, _lock: lock };
        let live = store.epochs()?;
        for number in keys {
            if !live.contains(&number) {
                epoch_key::destroy(&store.directory, number)?;
            }
        }
        Ok(store)
    }

    /// The numbers of the epochs whose shares are here, in ascending order: none, one, or two while
    /// one follows another.
    ///
    /// # Errors
    /// When the database cannot be read or is damaged.
    pub fn epochs(&self) -> Result<Vec<u64>, StoreError> {
        let mut statement = self.connection.prepare("SELECT number FROM epoch ORDER BY number")?;
        let numbers = statement.query_map([], |row| row.get::<_, i64>(0))?;
        numbers.map(|number| file::unsigned(number?, "number")).collect()
    }

    /// Keeps the shares of an epoch.
    ///
    /// # Errors
    /// When the epoch is here already, or the files cannot be written. Then nothing of it is kept.
    pub fn begin(
        &mut self,
        epoch: &Epoch,
        generator: &mut Generator,
        now: SystemTime,
    ) -> Result<(), StoreError> {
        let number = file::signed(epoch.number)?;
        if self.epochs()?.contains(&epoch.number) {
            return Err(StoreError::EpochExists { number: epoch.number });
        }
        // The key is complete on disk before the rows that need it are.
        let key = EpochKey::create(&self.directory, epoch.number, &self.master, generator)?;
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change.execute(
            "INSERT INTO epoch (number, public) VALUES (?1, ?2)",
            params![number, epoch.public],
        )?;
        let mut insert =
            change.prepare("INSERT INTO share (epoch, label, sealed) VALUES (?1, ?2, ?3)")?;
        for (label, share) in &epoch.shares {
            let sealed = key.seal(share_context(epoch.number, *label), share, generator)?;
            insert.execute(params![number, label.0, sealed])?;
        }
        drop(insert);
        change.commit()?;
        self.record(&Event::EpochBegun { epoch: epoch.number, shares: epoch.shares.len() }, now)
    }

    /// The shares of an epoch; `None` if they are not here.
    ///
    /// # Errors
    /// When the files cannot be read, or do not decrypt: they are damaged, or of another server.
    pub fn load(&self, number: u64) -> Result<Option<Epoch>, StoreError> {
        let row = file::signed(number)?;
        let public = self
            .connection
            .query_row("SELECT public FROM epoch WHERE number = ?1", [row], |row| row.get(0))
            .optional()?;
        let Some(public) = public else { return Ok(None) };
        let key = EpochKey::read(&self.directory, number, &self.master)?;
        let mut statement = self
            .connection
            .prepare("SELECT label, sealed FROM share WHERE epoch = ?1 ORDER BY label")?;
        let mut rows = statement.query([row])?;
        let mut shares = Vec::new();
        while let Some(row) = rows.next()? {
            let label = Label(row.get(0)?);
            let share = key.open(share_context(number, label), row.get_ref(1)?.as_blob()?);
            let share = share.ok_or_else(|| damaged(format!("share {label} of epoch {number}")))?;
            shares.push((label, share));
        }
        Ok(Some(Epoch { number, public, shares }))
    }

    /// Wipes the shares of an epoch: overwrites and deletes its rows, then overwrites its key. If
    /// the epoch is not here, does nothing.
    ///
    /// # Errors
    /// When the files cannot be written. Then the caller must try again: what is left is wiped when
    /// the store is opened next, at the latest.
    pub fn end(&mut self, number: u64, now: SystemTime) -> Result<(), StoreError> {
        let row = file::signed(number)?;
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change.execute("DELETE FROM share WHERE epoch = ?1", [row])?;
        let was_here = change.execute("DELETE FROM epoch WHERE number = ?1", [row])? > 0;
        change.commit()?;
        let had_key = epoch_key::destroy(&self.directory, number)?;
        if was_here || had_key {
            self.record(&Event::EpochEnded { epoch: number }, now)?;
        }
        Ok(())
    }

    /// Writes a copy of the database to a new file. The copy has the shares encrypted, and not the
    /// epoch's key: it can be restored on this server as long as the epoch lasts.
    ///
    /// # Errors
    /// When the file exists already or cannot be written.
    pub fn back_up(&self, to: &Path) -> Result<(), StoreError> {
        if to.exists() {
            return Err(StoreError::BackupExists { path: to.to_owned() });
        }
        let path = to.to_str().ok_or_else(|| StoreError::Name { path: to.to_owned() })?;
        file::reserve(to)?;
        self.connection.execute("VACUUM INTO ?1", [path])?;
        Ok(())
    }

    /// Replaces the database of a store that is not open by a backup of the same epoch. The audit
    /// log stays.
    ///
    /// # Errors
    /// When the backup's epoch has ended here or is another server's, that is, does not decrypt
    /// under the keys of this store; when it is damaged.
    pub fn restore(
        directory: &Path,
        master: MasterKey,
        from: &Path,
        now: SystemTime,
    ) -> Result<(), StoreError> {
        let (directory, lock) = file::lock(directory)?;
        let copy = file::copy(from, &directory)?;
        let store = Self {
            connection: file::open_at(copy.path())?,
            audit: AuditLog::open(&directory, now)?,
            directory,
            master,
            _lock: lock,
        };
        let keys = epoch_key::list(&store.directory)?;
        let epochs = store.epochs()?;
        if let Some(&number) = epochs.iter().find(|number| !keys.contains(number)) {
            return Err(StoreError::BackupExpired { number });
        }
        if let Some(&number) = keys.iter().find(|number| !epochs.contains(number)) {
            return Err(StoreError::BackupLacks { number });
        }
        if epochs.is_empty() {
            return Err(StoreError::BackupEmpty);
        }
        for &number in &epochs {
            store.load(number)?;
        }
        let Self { directory, connection, mut audit, _lock, .. } = store;
        drop(connection);
        copy.replace_database(&directory)?;
        audit.append(&Event::Restored { epochs }, now)?;
        Ok(())
    }

    /// Writes an event to the audit log.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn record(&mut self, event: &Event, now: SystemTime) -> Result<(), StoreError> {
        self.audit.append(event, now)
    }

    /// The audit log.
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }
}

/// What a share's ciphertext is bound to: rows cannot be exchanged.
fn share_context(epoch: u64, label: Label) -> [u8; 11] {
    let mut context = [0; 11];
    context[0] = b's';
    context[1..9].copy_from_slice(&epoch.to_be_bytes());
    context[9..].copy_from_slice(&label.0.to_be_bytes());
    context
}
