//! The file of the database: who may change it, and the version of its tables.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use keys::trusted::TrustError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::super::error::{DirectoryStoreError, damaged};
use super::super::trusted_path;

/// How long a call waits for other programs that use the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The application id of this program's databases: "SNDD".
const APPLICATION: i64 = 0x534E_4444;

/// The version of the tables. Version 1 had no signed lists.
const VERSION: i64 = 2;

pub(super) const TABLES: &str = "\
    CREATE TABLE signed_list (\
        key BLOB PRIMARY KEY NOT NULL CHECK (length(key) = 32), \
        number INTEGER NOT NULL CHECK (number > 0)\
    ) STRICT, WITHOUT ROWID; \
    CREATE TABLE peer (\
        host TEXT PRIMARY KEY NOT NULL, \
        source TEXT NOT NULL CHECK (source IN ('manual', 'hmac', 'ed25519', 'signed')), \
        learnt_at INTEGER NOT NULL CHECK (learnt_at >= 0)\
    ) STRICT, WITHOUT ROWID; \
    CREATE TABLE channel (\
        peer TEXT NOT NULL REFERENCES peer (host) ON DELETE CASCADE, \
        place INTEGER NOT NULL CHECK (place BETWEEN 0 AND 15), \
        address TEXT NOT NULL, \
        PRIMARY KEY (peer, place), \
        UNIQUE (peer, address)\
    ) STRICT, WITHOUT ROWID;";

/// Moves the rows of version 1, whose tables were renamed before, to the tables of version 2.
const FROM_VERSION_1: [&str; 2] = [
    "ALTER TABLE channel RENAME TO channel_1; ALTER TABLE peer RENAME TO peer_1;",
    "INSERT INTO peer SELECT * FROM peer_1; INSERT INTO channel SELECT * FROM channel_1; \
     DROP TABLE channel_1; DROP TABLE peer_1; PRAGMA user_version = 2;",
];

/// Opens the database at this path, or creates an empty one that only its owner may read.
///
/// # Errors
/// As [`DirectoryStore::open`](super::DirectoryStore::open).
pub(super) fn open(path: &Path) -> Result<Connection, DirectoryStoreError> {
    let path = trusted_path(path).map_err(known)?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;")?;
    check(&mut connection)?;
    Ok(connection)
}

/// Reports a missing folder as any other file error.
fn known(error: TrustError) -> DirectoryStoreError {
    match error {
        TrustError::Unreadable { source, .. } => DirectoryStoreError::File(source),
        error => error.into(),
    }
}

/// Checks that the database is undamaged and of this version. Creates the tables in an empty one.
fn check(connection: &mut Connection) -> Result<(), DirectoryStoreError> {
    if number(connection, "PRAGMA application_id")? == 0 {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another program may have created them meanwhile.
        let is_ours = number(&change, "PRAGMA application_id")? == APPLICATION;
        let is_empty = number(&change, "SELECT count(*) FROM sqlite_schema")? == 0;
        if is_empty && !is_ours {
            let numbers =
                format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
            change.execute_batch(TABLES)?;
            change.execute_batch(&numbers)?;
        }
        change.commit()?;
    }
    if number(connection, "PRAGMA application_id")? != APPLICATION {
        return Err(DirectoryStoreError::Foreign);
    }
    match number(connection, "PRAGMA user_version")? {
        VERSION => {}
        1 => upgrade(connection)?,
        newer if newer > VERSION => return Err(DirectoryStoreError::Newer),
        other => return Err(damaged(format!("version {other}"))),
    }
    let result: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if result == "ok" { Ok(()) } else { Err(damaged(result.replace('\n', " "))) }
}

/// Brings a database of version 1 to this one.
fn upgrade(connection: &mut Connection) -> Result<(), DirectoryStoreError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have done it meanwhile.
    if number(&change, "PRAGMA user_version")? == 1 {
        let [before, after] = FROM_VERSION_1;
        [before, TABLES, after].iter().try_for_each(|part| change.execute_batch(part))?;
    }
    Ok(change.commit()?)
}

pub(super) fn number(connection: &Connection, query: &str) -> Result<i64, DirectoryStoreError> {
    Ok(connection.query_row(query, [], |row| row.get(0))?)
}
