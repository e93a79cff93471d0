//! What the application keeps: how far the chain was decided, the changes of the servers, and the
//! last signed vote. The blocks themselves are in CometBFT's own files.

use std::path::{Path, PathBuf};

use random::RandomGenerator;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::log::{Height, LogIncarnation};
use crate::net::consensus::LogStoreError;
use crate::net::consensus::store::{of_database, open_database, signed};
use crate::protocol::cometbft::application::ChainPoint;
use crate::protocol::cometbft::block::{read_set, set_to_bytes};
use crate::protocol::cometbft::vote_guard::LastSigned;
use crate::protocol::wire::Sha256Digest;

/// The application id of the databases: "SNDC".
const APPLICATION: i64 = 0x534E_4443;

/// The version of the tables.
const VERSION: i64 = 1;

const TABLES: &str = "\
    CREATE TABLE chain (\
        id INTEGER PRIMARY KEY NOT NULL CHECK (id = 1), \
        life BLOB NOT NULL CHECK (length(life) = 32), \
        height INTEGER NOT NULL CHECK (height >= 0), \
        signed BLOB\
    ) STRICT; \
    CREATE TABLE change (\
        height INTEGER PRIMARY KEY NOT NULL CHECK (height > 0), \
        servers BLOB NOT NULL, \
        hash BLOB NOT NULL CHECK (length(hash) = 32)\
    ) STRICT;";

/// The database. Only one process can open it at a time.
#[derive(Debug)]
pub(super) struct CometbftStore {
    path: PathBuf,
    connection: Connection,
    height: Height,
    life: LogIncarnation,
}

impl CometbftStore {
    /// Opens the database, or creates it, with a new incarnation.
    ///
    /// # Errors
    /// If other users can change the file, another process has it open, or it is damaged.
    pub(super) fn open(path: &Path) -> Result<Self, LogStoreError> {
        let (path, connection) = open_database(path, APPLICATION, VERSION, TABLES)?;
        let (height, life) = (Height(0), LogIncarnation([0; 32]));
        let mut store = Self { path, connection, height, life };
        let known = store.read(|connection| {
            let row = connection.query_row("SELECT life, height FROM chain", [], |row| {
                Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, i64>(1)?))
            });
            row.optional()
        })?;
        if let Some((life, height)) = known {
            (store.life, store.height) = (LogIncarnation(life), Height(height.unsigned_abs()));
        } else {
            let life = RandomGenerator::seeded()?.array()?;
            store.life = LogIncarnation(life);
            store.write(|change| {
                let insert = "INSERT INTO chain (id, life, height) VALUES (1, ?1, 0)";
                change.execute(insert, [life]).map(drop)
            })?;
        }
        Ok(store)
    }

    /// The incarnation of the file.
    pub(super) fn life(&self) -> LogIncarnation {
        self.life
    }

    /// The last decided height that was saved.
    pub(super) fn height(&self) -> Height {
        self.height
    }

    /// CometBFT has lost its blocks, and gets them from the other servers again.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub(super) fn forget_blocks(&mut self) -> Result<(), LogStoreError> {
        self.height = Height(0);
        self.write(|change| {
            change.execute_batch("DELETE FROM change; UPDATE chain SET height = 0;")
        })
    }

    /// The state of the chain after a height that was saved. `first` is the state before the first
    /// one.
    ///
    /// # Errors
    /// If the database cannot be read, or is damaged.
    pub(super) fn point(
        &self,
        height: Height,
        first: &ChainPoint,
    ) -> Result<ChainPoint, LogStoreError> {
        let last = self.read(|connection| {
            let query = "SELECT height, servers, hash FROM change WHERE height <= ?1 \
                         ORDER BY height DESC LIMIT 1";
            let row = connection.query_row(query, [signed(height)], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get(2)?))
            });
            row.optional()
        })?;
        let Some((at, servers, hash)) = last else {
            return Ok(ChainPoint { height, ..first.clone() });
        };
        let set = read_set(&servers).map_err(|error| self.damaged(error.to_string()))?;
        let has_changed = Height(at.unsigned_abs()) == height;
        Ok(ChainPoint { height, set, hash: Sha256Digest(hash), has_changed })
    }

    /// Saves the state after the next decided block.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub(super) fn save(&mut self, point: &ChainPoint) -> Result<(), LogStoreError> {
        self.write(|change| {
            if point.has_changed {
                let insert = "INSERT OR REPLACE INTO change (height, servers, hash) \
                              VALUES (?1, ?2, ?3)";
                let servers = set_to_bytes(&point.set);
                change.execute(insert, params![signed(point.height), servers, point.hash.0])?;
            }
            let update = "UPDATE chain SET height = max(height, ?1)";
            change.execute(update, [signed(point.height)]).map(drop)
        })?;
        self.height = self.height.max(point.height);
        Ok(())
    }

    /// What this server has signed last.
    ///
    /// # Errors
    /// If the database cannot be read, or is damaged.
    pub(super) fn last_signed(&self) -> Result<Option<LastSigned>, LogStoreError> {
        let read = |connection: &Connection| {
            connection.query_row("SELECT signed FROM chain", [], |row| row.get(0))
        };
        let bytes: Option<Vec<u8>> = self.read(read)?;
        let parsed = bytes.map(|bytes| LastSigned::parse(&bytes)).transpose();
        parsed.map_err(|error| self.damaged(error.to_string()))
    }

    /// Saves what this server has signed, durably.
    ///
    /// # Errors
    /// If the database cannot be written. Then the signature must not be sent.
    pub(super) fn save_signed(&mut self, last: &LastSigned) -> Result<(), LogStoreError> {
        let bytes = last.to_bytes();
        self.write(|change| change.execute("UPDATE chain SET signed = ?1", [bytes]).map(drop))
    }

    fn damaged(&self, what: String) -> LogStoreError {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::set;
    use crate::protocol::cometbft::block::{first_hash, next_hash};

    #[test]
    fn the_state_of_the_chain_outlives_the_process() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cometbft.sqlite");
        let mut store = CometbftStore::open(&path).unwrap();
        let life = store.life();
        assert!(matches!(CometbftStore::open(&path), Err(LogStoreError::Locked { .. })));
        let (old, new) = (set(1..=4), set(2..=5));
        let hash = first_hash(&old);
        let first = ChainPoint { height: Height(0), set: old, hash, has_changed: false };
        for height in 1..=5 {
            let height = Height(height);
            let point = match height {
                Height(3) => {
                    let hash = next_hash(first.hash, &new);
                    ChainPoint { height, set: new.clone(), hash, has_changed: true }
                }
                _ => ChainPoint { height, ..first.clone() },
            };
            store.save(&point).unwrap();
        }
        drop(store);
        let mut store = CometbftStore::open(&path).unwrap();
        assert_eq!((store.height(), store.life()), (Height(5), life));
        let point = |height| store.point(Height(height), &first).unwrap();
        assert_eq!(point(2), ChainPoint { height: Height(2), ..first.clone() });
        assert!(point(3).has_changed && !point(4).has_changed);
        assert_eq!((point(4).set, point(4).hash), (new.clone(), next_hash(first.hash, &new)));
        // Blocks that CometBFT has lost are decided again.
        store.forget_blocks().unwrap();
        assert_eq!((store.height(), store.life()), (Height(0), life));
        drop(store);
        std::fs::remove_file(&path).unwrap();
        assert_ne!(CometbftStore::open(&path).unwrap().life(), life);
    }
}
