//! Registered messages, stored as digests.

use std::collections::HashSet;

use rusqlite::{TransactionBehavior, params};

use super::error::QuorumStoreError;
use super::{QuorumStore, file};
use crate::protocol::policy::MessageDigest;

/// The largest number of registered messages.
pub const MAX_REGISTERED: u64 = 65_536;

/// The result of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRegistration {
    /// Whether the message was not registered before.
    pub is_new: bool,
    /// The oldest registration, if it was evicted because there were [`MAX_REGISTERED`].
    pub evicted: Option<MessageDigest>,
}

impl QuorumStore {
    /// Registers a message. The registration is durable when this returns. If there are
    /// [`MAX_REGISTERED`], the oldest is evicted.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn register(
        &mut self,
        message: MessageDigest,
    ) -> Result<MessageRegistration, QuorumStoreError> {
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let insert = "INSERT OR IGNORE INTO message (digest) VALUES (?1)";
        let is_new = change.execute(insert, params![message.0])? > 0;
        let count = file::number(&change, "SELECT count(*) FROM message")?;
        let evicted = if file::unsigned(count, "count")? > MAX_REGISTERED {
            let oldest = "DELETE FROM message WHERE place = (SELECT min(place) FROM message) \
                          RETURNING digest";
            Some(MessageDigest(change.query_row(oldest, [], |row| row.get(0))?))
        } else {
            None
        };
        change.commit()?;
        Ok(MessageRegistration { is_new, evicted })
    }

    /// All registered messages.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn registered(&self) -> Result<HashSet<MessageDigest>, QuorumStoreError> {
        let mut statement = self.connection.prepare("SELECT digest FROM message")?;
        let digests = statement.query_map([], |row| row.get(0))?;
        digests.map(|digest| Ok(MessageDigest(digest?))).collect()
    }

    /// Whether a message is registered.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn is_registered(&self, message: MessageDigest) -> Result<bool, QuorumStoreError> {
        let query = "SELECT EXISTS (SELECT 1 FROM message WHERE digest = ?1)";
        let mut statement = self.connection.prepare(query)?;
        Ok(statement.query_row(params![message.0], |row| row.get(0))?)
    }

    /// The number of registered messages.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn registered_count(&self) -> Result<u64, QuorumStoreError> {
        let count = file::number(&self.connection, "SELECT count(*) FROM message")?;
        file::unsigned(count, "count")
    }
}
