//! The files of a store: their permissions, the lock, and the version of the tables.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use keys::trusted::TrustedFolder;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use super::error::{QuorumStoreError, damaged, of_file};

/// The name of the database.
pub(super) const DATABASE: &str = "epochs.sqlite";

/// How long a call waits for other programs that are reading the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The application id of the databases: "SNDQ".
const APPLICATION: i64 = 0x534E_4451;

/// The version of the tables.
const VERSION: i64 = 2;

const TABLES: &str = "\
    CREATE TABLE state (\
        one INTEGER PRIMARY KEY NOT NULL CHECK (one = 1), \
        start BLOB, \
        height INTEGER NOT NULL CHECK (height >= 0), \
        newer BLOB\
    ) STRICT; \
    INSERT INTO state (one, start, height) VALUES (1, NULL, 0); \
    CREATE TABLE entry (\
        place INTEGER PRIMARY KEY AUTOINCREMENT, \
        height INTEGER NOT NULL CHECK (height > 0), \
        content BLOB NOT NULL\
    ) STRICT; \
    CREATE TABLE epoch (\
        number INTEGER PRIMARY KEY NOT NULL CHECK (number > 0)\
    ) STRICT; \
    CREATE TABLE share (\
        epoch INTEGER NOT NULL REFERENCES epoch (number), \
        label INTEGER NOT NULL CHECK (label BETWEEN 0 AND 65535), \
        sealed BLOB NOT NULL, \
        PRIMARY KEY (epoch, label)\
    ) STRICT, WITHOUT ROWID; \
    CREATE TABLE voting (\
        epoch INTEGER PRIMARY KEY NOT NULL CHECK (epoch >= 0), \
        life BLOB CHECK (length(life) = 32), \
        sealed BLOB NOT NULL\
    ) STRICT; \
    CREATE TABLE item (\
        run BLOB NOT NULL CHECK (length(run) = 32), \
        name BLOB NOT NULL, \
        sealed BLOB NOT NULL, \
        PRIMARY KEY (run, name)\
    ) STRICT; \
    CREATE TABLE message (\
        place INTEGER PRIMARY KEY AUTOINCREMENT, \
        digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32)\
    ) STRICT;";

/// What version 2 adds to a registration: its time and its end, in Unix seconds, whether it was
/// used, the user's ID, the message's length, and its first bytes or all of it. Registrations of
/// version 1 begin anew, and last as long as the default.
const UPGRADE: &str = "\
    ALTER TABLE message ADD COLUMN registered INTEGER NOT NULL DEFAULT 0; \
    ALTER TABLE message ADD COLUMN expires INTEGER NOT NULL DEFAULT 0; \
    ALTER TABLE message ADD COLUMN used INTEGER NOT NULL DEFAULT 0; \
    ALTER TABLE message ADD COLUMN uid INTEGER; \
    ALTER TABLE message ADD COLUMN len INTEGER; \
    ALTER TABLE message ADD COLUMN content BLOB; \
    UPDATE message SET registered = unixepoch(), expires = unixepoch() + 604800; \
    PRAGMA user_version = 2;";

/// Tables that stores of earlier versions of this program lack. Those versions ignore them.
const LATER_TABLES: &str = "\
    CREATE TABLE IF NOT EXISTS snapshot (\
        one INTEGER PRIMARY KEY NOT NULL CHECK (one = 1), \
        height INTEGER NOT NULL CHECK (height >= 0), \
        content BLOB NOT NULL\
    ) STRICT; \
    CREATE TABLE IF NOT EXISTS approval (\
        one INTEGER PRIMARY KEY NOT NULL CHECK (one = 1), \
        epoch INTEGER NOT NULL CHECK (epoch > 0), \
        run INTEGER NOT NULL CHECK (run BETWEEN 0 AND 4294967295), \
        withdrawn INTEGER NOT NULL CHECK (withdrawn BETWEEN 0 AND 255), \
        since INTEGER NOT NULL CHECK (since >= 0)\
    ) STRICT;";

/// The definition in stores of versions without Ed25519 keys, which have no epoch 0.
const VOTING_FROM_EPOCH_1: &str = "\
    SELECT count(*) FROM sqlite_schema WHERE name = 'voting' AND sql LIKE '%CHECK (epoch > 0)%'";

/// Lets such a store have the voting key of epoch 0, as a new one does.
const VOTING_UPGRADE: &str = "\
    ALTER TABLE voting RENAME TO voting_before; \
    CREATE TABLE voting (\
        epoch INTEGER PRIMARY KEY NOT NULL CHECK (epoch >= 0), \
        life BLOB CHECK (length(life) = 32), \
        sealed BLOB NOT NULL\
    ) STRICT; \
    INSERT INTO voting SELECT epoch, life, sealed FROM voting_before; \
    DROP TABLE voting_before;";

/// The lock of a store's directory.
#[derive(Debug)]
pub(super) struct QuorumStoreLock(File);

impl Drop for QuorumStoreLock {
    fn drop(&mut self) {
        // Closing the file is not enough, because a child process that is being started has a copy
        // of it. If unlocking fails, the lock ends with that copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Creates the directory of a store if it does not exist, checks that no other user can change it,
/// and locks it until the lock is dropped. Returns its path without symbolic links.
///
/// # Errors
/// If another process holds the lock, or other users can change files there.
pub(super) fn lock(directory: &Path) -> Result<(PathBuf, QuorumStoreLock), QuorumStoreError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => QuorumStoreError::NoDirectory { path: directory.to_owned() },
        _ => of_file(directory)(error),
    })?;
    let folder = TrustedFolder::new(directory)?;
    for entry in fs::read_dir(folder.path()).map_err(of_file(folder.path()))? {
        folder.check_file(&entry.map_err(of_file(folder.path()))?.file_name())?;
    }
    let path = folder.path().join("lock");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(of_file(&path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok((folder.path().to_owned(), QuorumStoreLock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(QuorumStoreError::Locked { path: folder.path().to_owned() })
        }
        Err(error) => Err(of_file(path)(error.into())),
    }
}

/// Whether a store has a database.
pub(super) fn has_database(directory: &Path) -> bool {
    directory.join(DATABASE).exists()
}

/// Opens the database of a store, or creates an empty one that only its owner can read.
///
/// # Errors
/// If it is damaged, or belongs to another program.
pub(super) fn open(directory: &Path) -> Result<Connection, QuorumStoreError> {
    let path = directory.join(DATABASE);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(of_file(path)(error));
        }
        _ => {}
    }
    open_at(&path)
}

/// Opens an existing database at this path.
///
/// # Errors
/// If it is damaged, or belongs to another program.
pub(super) fn open_at(path: &Path) -> Result<Connection, QuorumStoreError> {
    open_to_write(path).map_err(|error| error.in_database(path))
}

fn open_to_write(path: &Path) -> Result<Connection, QuorumStoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Deleted rows are overwritten, the journal keeps nothing of them after a transaction, and
    // there are no temporary files.
    connection.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; \
         PRAGMA temp_store = MEMORY; PRAGMA synchronous = FULL;",
    )?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode = TRUNCATE", [], |row| row.get(0))?;
    if mode != "truncate" {
        return Err(damaged(format!("journal mode {mode}")));
    }
    check(&mut connection, path)?;
    Ok(connection)
}

/// Opens a database read-only. A server may have it open.
///
/// # Errors
/// If the system reports an error.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, QuorumStoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).map_err(QuorumStoreError::from);
    opened.map_err(|error| error.in_database(path))
}

/// How many pages are copied at first before a running server may write again. If it writes, the
/// copy starts again, with twice as many.
const PAGES: i32 = 1024;

/// How long to wait while a server writes.
const PAUSE: Duration = Duration::from_millis(1);

/// How often to wait for it.
const MAX_PAUSES: usize = 10_000;

/// Copies a consistent state of a database to a new file.
///
/// # Errors
/// If the file exists or cannot be written, or the database changes continuously. Then no file is
/// left.
pub(super) fn copy_database(from: &Connection, to: &Path) -> Result<(), QuorumStoreError> {
    reserve(to)?;
    // Only the copy becomes longer.
    let copied = copy_pages(from, to)
        .map_err(|error| if error.is_of_full_disk() { error.in_database(to) } else { error });
    if copied.is_err() {
        // The copy is incomplete.
        let _ = fs::remove_file(to);
    }
    copied
}

fn copy_pages(from: &Connection, to: &Path) -> Result<(), QuorumStoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(to, flags)?;
    let (mut pauses, mut pages, mut left) = (0, PAGES, i32::MAX);
    {
        let backup = Backup::new(from, &mut copy)?;
        loop {
            match backup.step(pages)? {
                StepResult::Done => break,
                StepResult::More => {
                    let now = backup.progress().remaining;
                    if now > left {
                        pages = pages.saturating_mul(2);
                    }
                    left = now;
                }
                _ if pauses == MAX_PAUSES => return Err(QuorumStoreError::Changing),
                _ => {
                    pauses += 1;
                    thread::sleep(PAUSE);
                }
            }
        }
    }
    copy.close().map_err(|(_, error)| error)?;
    File::open(to).and_then(|file| file.sync_all()).map_err(of_file(to))
}

/// Checks the integrity and version of the database. Creates the tables in an empty one.
fn check(connection: &mut Connection, path: &Path) -> Result<(), QuorumStoreError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if number(&change, "PRAGMA application_id")? == 0
        && number(&change, "SELECT count(*) FROM sqlite_schema")? == 0
    {
        change.execute_batch(TABLES)?;
        change.execute_batch(&format!("PRAGMA application_id = {APPLICATION};"))?;
        change.execute_batch(UPGRADE)?;
    }
    if number(&change, "PRAGMA application_id")? == APPLICATION
        && number(&change, "PRAGMA user_version")? == 1
    {
        change.execute_batch(UPGRADE)?;
    }
    if number(&change, "PRAGMA application_id")? == APPLICATION
        && number(&change, VOTING_FROM_EPOCH_1)? == 1
    {
        change.execute_batch(VOTING_UPGRADE)?;
    }
    change.commit()?;
    if number(connection, "PRAGMA application_id")? != APPLICATION {
        return Err(QuorumStoreError::Foreign { path: path.to_owned() });
    }
    match number(connection, "PRAGMA user_version")? {
        VERSION => {}
        newer if newer > VERSION => return Err(QuorumStoreError::Newer { path: path.to_owned() }),
        other => return Err(damaged(format!("version {other}"))),
    }
    connection.execute_batch(LATER_TABLES)?;
    let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if result == "ok" { Ok(()) } else { Err(damaged(result.replace('\n', " "))) }
}

pub(super) fn number(connection: &Connection, query: &str) -> Result<i64, QuorumStoreError> {
    Ok(connection.query_row(query, [], |row| row.get(0))?)
}

/// A number as `SQLite` stores it.
///
/// # Errors
/// If it is too large.
pub(super) fn signed(number: u64) -> Result<i64, QuorumStoreError> {
    number.try_into().map_err(|_| damaged(format!("number {number}")))
}

/// A number that `SQLite` has stored.
///
/// # Errors
/// If it is negative.
pub(super) fn unsigned(number: i64, what: &str) -> Result<u64, QuorumStoreError> {
    number.try_into().map_err(|_| damaged(format!("{what} {number}")))
}

/// Creates an empty file that only its owner can read.
///
/// # Errors
/// If it exists or cannot be created.
pub(super) fn reserve(path: &Path) -> Result<(), QuorumStoreError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map(drop).map_err(of_file(path))
}

/// A copy of a backup in the store's directory. It is removed when dropped.
pub(super) struct BackupCopy {
    path: PathBuf,
}

/// Copies a backup into the store's directory.
///
/// # Errors
/// If the backup cannot be read, or the copy cannot be written.
pub(super) fn copy(from: &Path, directory: &Path) -> Result<BackupCopy, QuorumStoreError> {
    let copy = BackupCopy { path: directory.join("restored.sqlite") };
    copy.remove();
    reserve(&copy.path)?;
    let mut source = File::open(from).map_err(of_file(from))?.take(MAX_DATABASE);
    let copied = OpenOptions::new().write(true).open(&copy.path).and_then(|mut file| {
        io::copy(&mut source, &mut file)?;
        file.sync_all()
    });
    copied.map_err(of_file(&copy.path))?;
    Ok(copy)
}

/// The largest database that can be restored, in bytes. Usual ones have some MiB.
const MAX_DATABASE: u64 = 1 << 30;

impl BackupCopy {
    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the store's database, which must not be open.
    ///
    /// # Errors
    /// If the file cannot be renamed.
    pub(super) fn replace_database(self, directory: &Path) -> Result<(), QuorumStoreError> {
        let database = directory.join(DATABASE);
        let journal = directory.join(format!("{DATABASE}-journal"));
        match fs::remove_file(&journal) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(of_file(journal)(error));
            }
            _ => {}
        }
        fs::rename(&self.path, &database).map_err(of_file(&database))?;
        sync_directory(directory)
    }

    /// Removes the copy and its journal.
    fn remove(&self) {
        for path in [self.path.clone(), self.path.with_extension("sqlite-journal")] {
            // The file may not exist, or have been renamed.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for BackupCopy {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes the creation, renaming and removal of files in a directory durable.
///
/// # Errors
/// If the system reports an error.
pub(super) fn sync_directory(directory: &Path) -> Result<(), QuorumStoreError> {
    File::open(directory).and_then(|folder| folder.sync_all()).map_err(of_file(directory))
}
