//! Registered messages: their digests, and for review, their first bytes or all of them.

use std::collections::HashSet;

use rusqlite::{
    Connection, OptionalExtension, Params, Row, Transaction, TransactionBehavior, params,
};

use super::error::QuorumStoreError;
use super::{QuorumStore, file};
use crate::protocol::policy::MessageDigest;
use crate::protocol::review::{MAX_FIRST_LEN, ReviewedRegistration};
use crate::protocol::unix_seconds::UnixSeconds;

/// The largest number of registered messages.
pub const MAX_REGISTERED: u64 = 65_536;

/// The largest length of a message that is kept for review, in bytes. Of a longer one, the first
/// [`MAX_FIRST_LEN`] bytes are kept.
pub const MAX_KEPT_LEN: usize = 64 << 10;

/// The largest total length of the messages that are kept, in bytes.
pub const MAX_KEPT_TOTAL: u64 = 64 << 20;

/// The shortest extension of a registration that is stored, in seconds. So a user who repeats a
/// registration does not fill the audit log.
const MIN_EXTENSION: u64 = 60;

/// A registration that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RegistrationRequest<'a> {
    /// The message.
    pub message: &'a [u8],
    /// The ID of the local user.
    pub uid: Option<u32>,
    /// The current time.
    pub now: UnixSeconds,
    /// When the registration expires.
    pub until: UnixSeconds,
}

/// The result of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRegistration {
    /// Whether the message was not registered before.
    pub is_new: bool,
    /// Whether it is new, or lasts longer than before.
    pub is_changed: bool,
    /// When it expires.
    pub until: UnixSeconds,
    /// The oldest registration, if it was evicted because there were [`MAX_REGISTERED`].
    pub evicted: Option<MessageDigest>,
}

impl QuorumStore {
    /// Registers a message, or extends its registration. The registration is durable when this
    /// returns. If there are [`MAX_REGISTERED`], the oldest is evicted.
    ///
    /// # Errors
    /// If the database cannot be written. Then nothing is registered.
    pub fn register(
        &mut self,
        request: &RegistrationRequest<'_>,
    ) -> Result<MessageRegistration, QuorumStoreError> {
        let RegistrationRequest { message, uid, now, until } = *request;
        let digest = MessageDigest::of(message);
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(until) = extend(&change, digest, request)? {
            change.commit()?;
            let (until, is_changed) = until;
            return Ok(MessageRegistration { is_new: false, is_changed, until, evicted: None });
        }
        let kept = self.kept_len.map_or_else(|| kept_len(&change), Ok)?;
        let is_kept =
            message.len() <= MAX_KEPT_LEN && kept + message.len() as u64 <= MAX_KEPT_TOTAL;
        let content = if is_kept { message } else { &message[..message.len().min(MAX_FIRST_LEN)] };
        let insert = "INSERT INTO message (digest, registered, expires, uid, len, content) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (at, end) = (file::signed(now.0)?, file::signed(until.0)?);
        let len = i64::try_from(message.len()).unwrap_or(i64::MAX);
        change.execute(insert, params![digest.0, at, end, uid, len, content])?;
        let count = file::number(&change, "SELECT count(*) FROM message")?;
        let evicted = if file::unsigned(count, "count")? > MAX_REGISTERED {
            let oldest = "place = (SELECT min(place) FROM message)";
            delete(&change, oldest, [])?.pop()
        } else {
            None
        };
        change.commit()?;
        let freed = evicted.as_ref().map_or(0, |it| it.1);
        self.kept_len = Some((kept + content.len() as u64).saturating_sub(freed));
        let evicted = evicted.map(|it| it.0);
        Ok(MessageRegistration { is_new: true, is_changed: true, until, evicted })
    }

    /// Withdraws a registration. Returns whether there was one.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn withdraw(&mut self, message: MessageDigest) -> Result<bool, QuorumStoreError> {
        let deleted = delete(&self.connection, "digest = ?1", params![message.0])?;
        self.freed(&deleted);
        Ok(!deleted.is_empty())
    }

    /// Removes the registrations that have expired, and returns them.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn expire(&mut self, now: UnixSeconds) -> Result<Vec<MessageDigest>, QuorumStoreError> {
        let expired = delete(&self.connection, "expires <= ?1", [file::signed(now.0)?])?;
        self.freed(&expired);
        Ok(expired.into_iter().map(|it| it.0).collect())
    }

    /// Shortens registrations that last longer than until `until`: the clock was ahead when they
    /// were made, or their lifetime was longer.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn shorten_registrations(&mut self, until: UnixSeconds) -> Result<(), QuorumStoreError> {
        let update = "UPDATE message SET expires = ?1 WHERE expires > ?1";
        self.connection.execute(update, [file::signed(until.0)?])?;
        Ok(())
    }

    /// Removes all registrations.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub(super) fn delete_registrations(&self) -> Result<(), QuorumStoreError> {
        self.connection.execute("DELETE FROM message", [])?;
        Ok(())
    }

    fn freed(&mut self, deleted: &[(MessageDigest, u64)]) {
        let freed: u64 = deleted.iter().map(|it| it.1).sum();
        self.kept_len = self.kept_len.map(|kept| kept.saturating_sub(freed));
    }

    /// When the next registration expires.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn next_expiry(&self) -> Result<Option<UnixSeconds>, QuorumStoreError> {
        let query = "SELECT min(expires) FROM message";
        let next: Option<i64> = self.connection.query_row(query, [], |row| row.get(0))?;
        next.map(|next| file::unsigned(next, "expiry").map(UnixSeconds)).transpose()
    }

    /// Notes that a registered message was signed for a user of this server.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn mark_used(&mut self, message: MessageDigest) -> Result<(), QuorumStoreError> {
        let update = "UPDATE message SET used = 1 WHERE digest = ?1 AND used = 0";
        self.connection.execute(update, params![message.0])?;
        Ok(())
    }

    /// All registered messages.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn registered(&self) -> Result<HashSet<MessageDigest>, QuorumStoreError> {
        digests(&self.connection, "SELECT digest FROM message")
    }

    /// The registered messages that were not signed for a user of this server yet.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn unused(&self) -> Result<HashSet<MessageDigest>, QuorumStoreError> {
        digests(&self.connection, "SELECT digest FROM message WHERE used = 0")
    }

    /// The registrations that were not used yet, the newest first, at most `max`.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn unused_registrations(
        &self,
        max: usize,
    ) -> Result<Vec<ReviewedRegistration>, QuorumStoreError> {
        let query = "SELECT digest, registered, expires, uid, len, substr(content, 1, ?2) \
                     FROM message WHERE used = 0 ORDER BY place DESC LIMIT ?1";
        let mut statement = self.connection.prepare(query)?;
        let limits = params![
            i64::try_from(max).unwrap_or(i64::MAX),
            i64::try_from(MAX_FIRST_LEN).unwrap_or(i64::MAX)
        ];
        let mut rows = statement.query(limits)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(registration(row)?);
        }
        Ok(found)
    }

    /// The bytes of a registered message. `None` if it is not registered, and an empty option if
    /// its bytes are not kept.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn registered_message(
        &self,
        message: MessageDigest,
    ) -> Result<Option<Option<Vec<u8>>>, QuorumStoreError> {
        let query = "SELECT CASE WHEN length(content) = len THEN content END \
                     FROM message WHERE digest = ?1";
        let mut statement = self.connection.prepare(query)?;
        Ok(statement.query_row(params![message.0], |row| row.get(0)).optional()?)
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

/// Extends a registration that exists. Returns when it expires, and whether that has changed.
fn extend(
    change: &Transaction<'_>,
    digest: MessageDigest,
    request: &RegistrationRequest<'_>,
) -> Result<Option<(UnixSeconds, bool)>, QuorumStoreError> {
    let query = "SELECT expires FROM message WHERE digest = ?1";
    let expires: Option<i64> =
        change.query_row(query, params![digest.0], |row| row.get(0)).optional()?;
    let Some(expires) = expires else { return Ok(None) };
    let expires = UnixSeconds(file::unsigned(expires, "expiry")?);
    if request.until.0 < expires.0.saturating_add(MIN_EXTENSION) {
        return Ok(Some((expires, false)));
    }
    // The user who has registered it first remains shown: another one could hide that otherwise.
    let update = "UPDATE message SET expires = ?2 WHERE digest = ?1";
    change.execute(update, params![digest.0, file::signed(request.until.0)?])?;
    Ok(Some((request.until, true)))
}

/// Deletes the registrations that fit a condition. Returns their digests, and how many bytes of
/// each were kept.
fn delete(
    connection: &Connection,
    condition: &str,
    values: impl Params,
) -> Result<Vec<(MessageDigest, u64)>, QuorumStoreError> {
    let query = format!(
        "DELETE FROM message WHERE {condition} RETURNING digest, coalesce(length(content), 0)"
    );
    let mut statement = connection.prepare(&query)?;
    let deleted = statement.query_map(values, |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
    deleted
        .map(|row| {
            let (digest, len) = row?;
            Ok((MessageDigest(digest), file::unsigned(len, "length")?))
        })
        .collect()
}

/// The total length of the messages that are kept, by a scan of all.
fn kept_len(connection: &Connection) -> Result<u64, QuorumStoreError> {
    let query = "SELECT coalesce(sum(length(content)), 0) FROM message";
    file::unsigned(file::number(connection, query)?, "length")
}

fn digests(
    connection: &Connection,
    query: &str,
) -> Result<HashSet<MessageDigest>, QuorumStoreError> {
    let mut statement = connection.prepare(query)?;
    let digests = statement.query_map([], |row| row.get(0))?;
    digests.map(|digest| Ok(MessageDigest(digest?))).collect()
}

fn registration(row: &Row<'_>) -> Result<ReviewedRegistration, QuorumStoreError> {
    let seconds = |column: usize| file::unsigned(row.get(column)?, "time").map(UnixSeconds);
    let content: Option<Vec<u8>> = row.get(5)?;
    let len: Option<i64> = row.get(4)?;
    Ok(ReviewedRegistration {
        digest: MessageDigest(row.get(0)?),
        registered: seconds(1)?,
        until: seconds(2)?,
        uid: row.get(3)?,
        len: len.map(|len| file::unsigned(len, "length")).transpose()?,
        first: content.unwrap_or_default(),
    })
}
