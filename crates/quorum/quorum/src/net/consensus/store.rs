//! The log on disk: committed values, and the write-ahead log of the next height.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use keys::trusted::{TrustError, TrustedFolder};
use random::{RandomError, RandomGenerator};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};

use crate::log::{Height, LogIncarnation};
use crate::net::full_disk::{advice_on_database, advice_on_file, appended};
use crate::protocol::consensus::codec::DecidedValue;

/// The application id of the databases: "SNDL".
const APPLICATION: i64 = 0x534E_444C;

/// The version of the tables.
const VERSION: i64 = 1;

const TABLES: &str = "\
    CREATE TABLE log (\
        id INTEGER PRIMARY KEY NOT NULL CHECK (id = 1), \
        base INTEGER NOT NULL CHECK (base >= 0), \
        life BLOB NOT NULL CHECK (length(life) = 32)\
    ) STRICT; \
    CREATE TABLE committed (\
        height INTEGER PRIMARY KEY NOT NULL CHECK (height > 0), \
        value BLOB NOT NULL\
    ) STRICT; \
    CREATE TABLE record (\
        place INTEGER PRIMARY KEY NOT NULL, \
        bytes BLOB NOT NULL\
    ) STRICT;";

/// Why the log's storage cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogStoreError {
    /// The file cannot be created.
    #[error("{}: {source}{}", .path.display(), appended(advice_on_file(.source)))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Other users could read or change it.
    #[error("not trusted: {0}")]
    Trust(#[from] TrustError),
    /// Another process has it open.
    #[error("{} is in use by another process; stop it first", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error("{} is a database of another program", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The database was written by a newer version.
    #[error("{} was written by a newer version of sunder; use that one", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// The database contains an invalid value.
    #[error(
        "{} is damaged: {what}; move it away: the server then follows the log from the height that \
         it has applied, and votes again with another voting key", .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The invalid value.
        what: String,
    },
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// `SQLite` reports an error.
    #[error(
        "{}: {}{}", .path.display(), .source.to_string().replace('\n', " "),
        appended(advice_on_database(.source))
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: rusqlite::Error,
    },
}

/// The log's database. Only one process can open it at a time.
#[derive(Debug)]
pub(super) struct LogStore {
    path: PathBuf,
    connection: Connection,
    last: Height,
    /// The highest deleted height.
    pruned: Height,
    life: LogIncarnation,
}

impl LogStore {
    /// Opens the log of a service that has applied this height. If the stored log ends before that
    /// height or begins after it, a new log begins after it, with another incarnation: this
    /// server's votes after the end of the stored log are unknown.
    ///
    /// # Errors
    /// If other users can change the file, another process has it open, or it is damaged.
    pub(super) fn open(path: &Path, applied: Height) -> Result<Self, LogStoreError> {
        let (path, connection) = open_database(path, APPLICATION, VERSION, TABLES)?;
        let (last, life) = (Height(0), LogIncarnation([0; 32]));
        let mut store = Self { path, connection, last, pruned: last, life };
        store.begin(applied)?;
        Ok(store)
    }

    fn begin(&mut self, applied: Height) -> Result<(), LogStoreError> {
        let state = self.read(|connection| {
            let query = "SELECT base, life, (SELECT min(height) FROM committed), \
                         (SELECT max(height) FROM committed) FROM log";
            let row = connection.query_row(query, [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            });
            row.optional()
        })?;
        let known =
            state.map(|(base, life, first, last): (i64, [u8; 32], Option<i64>, Option<i64>)| {
                let height = |number: i64| Height(number.unsigned_abs());
                let pruned = height(first.unwrap_or(base + 1) - 1);
                (height(base), (height(last.unwrap_or(base)), pruned, LogIncarnation(life)))
            });
        let known = known.filter(|(base, (last, ..))| (*base..=*last).contains(&applied));
        (self.last, self.pruned, self.life) = if let Some((_, known)) = known {
            known
        } else {
            let life = RandomGenerator::seeded()?.array()?;
            self.write(|change| {
                change
                    .execute_batch("DELETE FROM log; DELETE FROM committed; DELETE FROM record;")?;
                let new = "INSERT INTO log (id, base, life) VALUES (1, ?1, ?2)";
                change.execute(new, params![signed(applied), life]).map(drop)
            })?;
            (applied, applied, LogIncarnation(life))
        };
        Ok(())
    }

    /// The last height that is committed.
    pub(super) fn last(&self) -> Height {
        self.last
    }

    /// The incarnation of the file.
    pub(super) fn life(&self) -> LogIncarnation {
        self.life
    }

    /// The committed value of a height: the bytes of a [`DecidedValue`]. `None` if it is not
    /// stored.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(super) fn committed(&self, height: Height) -> Result<Option<Vec<u8>>, LogStoreError> {
        let query = "SELECT value FROM committed WHERE height = ?1";
        self.read(|it| it.query_row(query, [signed(height)], |row| row.get(0)).optional())
    }

    /// The committed value of a height, parsed.
    ///
    /// # Errors
    /// When the database cannot be read or is damaged.
    pub(super) fn decided(&self, height: Height) -> Result<Option<DecidedValue>, LogStoreError> {
        let Some(bytes) = self.committed(height)? else { return Ok(None) };
        match DecidedValue::parse(&bytes) {
            Ok(decided) if decided.height() == height => Ok(Some(decided)),
            _ => Err(self.damaged(format!("height {height}"))),
        }
    }

    /// The write-ahead log.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(super) fn records(&self) -> Result<Vec<Vec<u8>>, LogStoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT bytes FROM record ORDER BY place")?;
            statement.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// Appends records to the write-ahead log, all or none. They are durable afterwards.
    ///
    /// # Errors
    /// If the database cannot be written. Then nothing that depends on the records may be sent.
    pub(super) fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogStoreError> {
        self.write(|change| {
            let mut insert = change.prepare("INSERT INTO record (bytes) VALUES (?1)")?;
            records.iter().try_for_each(|record| insert.execute([record]).map(drop))
        })
    }

    /// Stores a committed value, and deletes the write-ahead log.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub(super) fn commit(&mut self, decided: &DecidedValue) -> Result<(), LogStoreError> {
        let height = decided.height();
        self.write(|change| {
            change.execute("DELETE FROM record", [])?;
            let insert = "INSERT INTO committed (height, value) VALUES (?1, ?2)";
            let mut insert = change.prepare(insert)?;
            insert.execute(params![signed(height), decided.to_bytes()]).map(drop)
        })?;
        self.last = height;
        Ok(())
    }

    /// Deletes the values up to a height, except the last one, which determines the next leader.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub(super) fn prune(&mut self, through: Height) -> Result<(), LogStoreError> {
        let through = through.min(Height(self.last.0.saturating_sub(1)));
        if through <= self.pruned {
            return Ok(());
        }
        self.write(|change| {
            change.execute("DELETE FROM committed WHERE height <= ?1", [signed(through)]).map(drop)
        })?;
        self.pruned = through;
        Ok(())
    }

    /// An error for invalid stored content.
    pub(super) fn damaged(&self, what: String) -> LogStoreError {
        LogStoreError::Damaged { path: self.path.clone(), what }
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, LogStoreError> {
        read(&self.connection).map_err(|source| of_database(&self.path, source))
    }

    fn write(
        &mut self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), LogStoreError> {
        let Self { connection, path, .. } = self;
        let run = || {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            write(&change)?;
            change.commit()
        };
        run().map_err(|source| of_database(path, source))
    }
}

/// Opens a database of a log, and checks its version. Creates the tables in an empty one. Returns
/// its path and the connection.
///
/// # Errors
/// If other users can change the file, another process has it open, or it is another database.
pub(in crate::net) fn open_database(
    path: &Path,
    application: i64,
    version: i64,
    tables: &str,
) -> Result<(PathBuf, Connection), LogStoreError> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = TrustedFolder::new(folder.unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default();
    let path = folder.path().join(name);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(source) if source.kind() != ErrorKind::AlreadyExists => {
            return Err(LogStoreError::File { path, source });
        }
        _ => folder.check_file(name)?,
    }
    let open = || {
        let mut connection = connect(&path)?;
        let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i64>(0));
        let found = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
        if found == (0, 0) {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch(tables)?;
            change.pragma_update(None, "application_id", application)?;
            change.pragma_update(None, "user_version", version)?;
            change.commit()?;
            return Ok((connection, (application, version)));
        }
        Ok((connection, found))
    };
    let (connection, found) = open().map_err(|source| of_database(&path, source))?;
    match found {
        (id, number) if (id, number) == (application, version) => Ok((path, connection)),
        (id, number) if id == application && number > version => Err(LogStoreError::Newer { path }),
        _ => Err(LogStoreError::Foreign { path }),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // A transaction is one write and one fsync. The lock keeps two processes from writing the same
    // log, because a server would vote twice.
    connection.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY; \
         PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
    )?;
    Ok(connection)
}

/// The error for an error of the database.
pub(in crate::net) fn of_database(path: &Path, source: rusqlite::Error) -> LogStoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LogStoreError::Locked { path },
        Some(ErrorCode::NotADatabase) => LogStoreError::Foreign { path },
        Some(ErrorCode::DatabaseCorrupt) => {
            LogStoreError::Damaged { path, what: source.to_string().replace('\n', " ") }
        }
        _ => LogStoreError::Database { path, source },
    }
}

/// A height as `SQLite` stores it. No height is too large.
pub(in crate::net) fn signed(height: Height) -> i64 {
    i64::try_from(height.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use arc_malachitebft_core_types::{CommitCertificate, Round};
    use bytes::Bytes;
    use tempfile::TempDir;

    use super::*;
    use crate::protocol::consensus::context::{LogValue, ValidatorAddress};

    fn decided(height: u64) -> DecidedValue {
        let value =
            LogValue::new(ValidatorAddress([1; 32]), &[Bytes::from_static(b"entry")]).unwrap();
        let certificate =
            CommitCertificate::new(Height(height), Round::new(0), value.id(), Vec::new());
        DecidedValue { value, certificate }
    }

    fn open(place: &TempDir, applied: u64) -> Result<LogStore, LogStoreError> {
        LogStore::open(&place.path().join("log.sqlite"), Height(applied))
    }

    #[test]
    fn the_log_outlives_the_process() {
        let place = tempfile::tempdir().unwrap();
        let mut store = open(&place, 0).unwrap();
        let life = store.life();
        assert!(matches!(open(&place, 0), Err(LogStoreError::Locked { .. })));
        for height in 1..=5 {
            store.append(&[vec![1], vec![2]]).unwrap();
            store.commit(&decided(height)).unwrap();
        }
        store.append(&[vec![3], vec![4]]).unwrap();
        store.append(&[vec![5]]).unwrap();
        drop(store);
        let store = open(&place, 3).unwrap();
        assert_eq!((store.last(), store.life()), (Height(5), life));
        assert_eq!(store.records().unwrap(), [[3], [4], [5]]);
        assert_eq!(store.decided(Height(4)).unwrap(), Some(decided(4)));
        assert_eq!(store.decided(Height(6)).unwrap(), None);
    }

    #[test]
    fn pruning_keeps_the_last_height() {
        let place = tempfile::tempdir().unwrap();
        let mut store = open(&place, 0).unwrap();
        for height in 1..=5 {
            store.commit(&decided(height)).unwrap();
        }
        store.prune(Height(3)).unwrap();
        let kept = |store: &LogStore| {
            (1..=5).map(|it| store.committed(Height(it)).unwrap().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(kept(&store), [false, false, false, true, true]);
        store.prune(Height(9)).unwrap();
        assert_eq!(kept(&store), [false, false, false, false, true]);
        drop(store);
        assert_eq!(open(&place, 5).unwrap().last(), Height(5));
    }

    /// If a log is lost or ends too early, the server's votes are unknown.
    #[test]
    fn lost_log_gets_another_incarnation() {
        let place = tempfile::tempdir().unwrap();
        let mut store = open(&place, 0).unwrap();
        let first = store.life();
        store.commit(&decided(1)).unwrap();
        drop(store);
        assert_eq!(open(&place, 1).unwrap().life(), first);
        // The log ends before the service's state, so a new one begins.
        let store = open(&place, 20).unwrap();
        let second = store.life();
        assert!(store.last() == Height(20) && second != first);
        assert_eq!(store.committed(Height(1)).unwrap(), None);
        drop(store);
        std::fs::remove_file(place.path().join("log.sqlite")).unwrap();
        let store = open(&place, 20).unwrap();
        assert!(![first, second].contains(&store.life()));
    }

    #[test]
    fn other_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log.sqlite");
        std::fs::write(&path, "not a database, but long enough to be one".repeat(100)).unwrap();
        assert!(matches!(open(&place, 0), Err(LogStoreError::Foreign { .. })));
        std::fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().pragma_update(None, "application_id", 7).unwrap();
        assert!(matches!(open(&place, 0), Err(LogStoreError::Foreign { .. })));
        let newer = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 2");
        Connection::open(&path).unwrap().execute_batch(&newer).unwrap();
        assert!(matches!(open(&place, 0), Err(LogStoreError::Newer { .. })));
    }
}
