//! The messages that may be signed, by their digests.

use rusqlite::{TransactionBehavior, params};

use super::error::StoreError;
use super::{Store, file};
use crate::protocol::policy::MessageDigest;

/// How many messages may be registered.
pub const MAX_REGISTERED: u64 = 65_536;

/// What the registration of a message changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whether the message was not registered before.
    pub is_new: bool,
    /// Whether the oldest registration was removed, as there were [`MAX_REGISTERED`].
    pub has_evicted: bool,
}

impl Store {
    /// Registers a message: it is durable when this returns. The oldest registration is evicted if
    /// there are [`MAX_REGISTERED`].
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn register(&mut self, message: MessageDigest) -> Result<Registration, StoreError> {
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let insert = "INSERT OR IGNORE INTO message (digest) VALUES (?1)";
        let is_new = change.execute(insert, params![message.0])? > 0;
        let count = file::number(&change, "SELECT count(*) FROM message")?;
        let has_evicted = file::unsigned(count, "count")? > MAX_REGISTERED;
        if has_evicted {
            let oldest = "DELETE FROM message WHERE place = (SELECT min(place) FROM message)";
            change.execute(oldest, [])?;
        }
        change.commit()?;
        Ok(Registration { is_new, has_evicted })
    }

    /// Whether a message is registered.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn is_registered(&self, message: MessageDigest) -> Result<bool, StoreError> {
        let query = "SELECT EXISTS (SELECT 1 FROM message WHERE digest = ?1)";
        let mut statement = self.connection.prepare(query)?;
        Ok(statement.query_row(params![message.0], |row| row.get(0))?)
    }

    /// How many messages are registered.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn registered_count(&self) -> Result<u64, StoreError> {
        let count = file::number(&self.connection, "SELECT count(*) FROM message")?;
        file::unsigned(count, "count")
    }
}
