//! The database's file: who may read it, and its tables.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::AccountStoreError;

/// How long a call waits for other programs that use the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The application id of this program's databases: "SNDA".
const APPLICATION: i64 = 0x534E_4441;

/// The version of the tables.
const VERSION: i64 = 1;

/// An account that was removed keeps its number, and has no name.
const TABLES: &str = "\
    CREATE TABLE account (\
        id INTEGER PRIMARY KEY AUTOINCREMENT, \
        name TEXT UNIQUE, \
        password TEXT\
    ) STRICT; \
    CREATE TABLE invitation (\
        account INTEGER PRIMARY KEY REFERENCES account (id) ON DELETE CASCADE, \
        digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32), \
        expires INTEGER NOT NULL\
    ) STRICT; \
    CREATE TABLE session (\
        digest BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32), \
        account INTEGER NOT NULL REFERENCES account (id) ON DELETE CASCADE, \
        expires INTEGER NOT NULL\
    ) STRICT, WITHOUT ROWID; \
    CREATE INDEX session_account ON session (account); \
    CREATE TABLE run_time (\
        account INTEGER PRIMARY KEY REFERENCES account (id) ON DELETE CASCADE, \
        day INTEGER NOT NULL, \
        milliseconds INTEGER NOT NULL\
    ) STRICT;";

/// Opens the database, or creates an empty one that only its owner may read.
///
/// # Errors
/// If it cannot be opened or created, or is none of this version.
pub(crate) fn open(path: &Path) -> Result<Connection, AccountStoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;")?;
    create_tables(&mut connection)?;
    Ok(connection)
}

/// Creates the tables in an empty database.
fn create_tables(connection: &mut Connection) -> Result<(), AccountStoreError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let number = |query: &str| change.query_row(query, [], |row| row.get::<_, i64>(0));
    if number("SELECT count(*) FROM sqlite_schema")? == 0 {
        let numbers =
            format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
        change.execute_batch(TABLES)?;
        change.execute_batch(&numbers)?;
    }
    let is_ours = number("PRAGMA application_id")? == APPLICATION;
    if !is_ours || number("PRAGMA user_version")? != VERSION {
        let why = "it is no database of accounts, or one of another version of Sunder";
        return Err(io::Error::other(why).into());
    }
    Ok(change.commit()?)
}
