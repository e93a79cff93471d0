//! The database of accounts.

use std::path::Path;

use keys::storage;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};
use serde::{Deserialize, Serialize};

use crate::database;
use crate::error::{AccountStoreError, MAX_ACCOUNTS};
use crate::name::AccountName;
use crate::secret::{AccountSecret, digest};

/// How long an invitation can be accepted: 3 days.
pub const INVITATION_VALIDITY_S: u64 = 3 * 86_400;

/// How long a session lasts: 7 days.
pub const SESSION_VALIDITY_S: u64 = 7 * 86_400;

/// The maximum number of sessions of an account. The one that expires first gives way.
const MAX_SESSIONS: usize = 20;

/// The number of an account. It is never given to another account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(i64);

/// An account that somebody is signed in to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub id: AccountId,
    /// Its name.
    pub name: AccountName,
}

/// An account in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccountSummary {
    /// Its number.
    pub id: AccountId,
    /// Its name.
    pub name: AccountName,
    /// Whether it has a password.
    pub has_password: bool,
    /// Until when its invitation can be accepted, in seconds since 1970, if it has one.
    pub invited_until: Option<u64>,
    /// How many browsers are signed in.
    pub sessions: u64,
}

/// What is done with the database.
type StoreResult<T> = Result<T, AccountStoreError>;

/// An open database of accounts. Times are seconds since 1970.
#[derive(Debug)]
pub struct AccountStore(Connection);

impl AccountStore {
    /// Opens the database in a directory, and creates both if there are none.
    ///
    /// # Errors
    /// If it cannot be opened or created, or is none of this version.
    pub fn open(directory: &Path) -> StoreResult<Self> {
        storage::create_private_directory(directory)?;
        Ok(Self(database::open(&directory.join("accounts.sqlite"))?))
    }

    /// Invites a person to a new account, or to choose another password of an existing one. An
    /// earlier invitation is not valid any more.
    ///
    /// # Errors
    /// If there are too many accounts, or the database cannot be written.
    pub fn invite(&mut self, name: &AccountName, now: u64) -> StoreResult<AccountSecret> {
        let secret = AccountSecret::new()?;
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let count: u64 = change.query_row(
            "SELECT count(*) FROM account WHERE name IS NOT NULL AND name <> ?1",
            [name.as_str()],
            |row| row.get(0),
        )?;
        if count >= MAX_ACCOUNTS {
            return Err(AccountStoreError::Full);
        }
        change.execute(
            "INSERT INTO account (name) VALUES (?1) ON CONFLICT (name) DO NOTHING",
            [name.as_str()],
        )?;
        change.execute(
            "INSERT OR REPLACE INTO invitation (account, digest, expires) \
             SELECT id, ?2, ?3 FROM account WHERE name = ?1",
            params![name.as_str(), digest(secret.as_str()), now + INVITATION_VALIDITY_S],
        )?;
        change.commit()?;
        Ok(secret)
    }

    /// The account of an invitation that can be accepted.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn invited(&self, secret: &str, now: u64) -> StoreResult<Option<Account>> {
        let query = "SELECT id, name FROM invitation JOIN account ON account.id = account \
                     WHERE digest = ?1 AND expires > ?2 AND name IS NOT NULL";
        Ok(self.0.query_row(query, params![digest(secret), now], account).optional()?)
    }

    /// Accepts an invitation: the account gets this hash of a password, and its sessions end.
    /// `None` if the invitation cannot be accepted any more.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn accept(&mut self, secret: &str, hash: &str, now: u64) -> StoreResult<Option<Account>> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let accepted = change
            .query_row(
                "DELETE FROM invitation WHERE digest = ?1 AND expires > ?2 RETURNING account",
                params![digest(secret), now],
                |row| row.get::<_, i64>(0),
            )
            .optional()?;
        let Some(id) = accepted else { return Ok(None) };
        let accepted = change
            .query_row(
                "UPDATE account SET password = ?2 WHERE id = ?1 AND name IS NOT NULL \
                 RETURNING id, name",
                params![id, hash],
                account,
            )
            .optional()?;
        change.execute("DELETE FROM session WHERE account = ?1", [id])?;
        change.commit()?;
        Ok(accepted)
    }

    /// The account with a name, and the hash of its password if it has one.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn find(&self, name: &AccountName) -> StoreResult<Option<(AccountId, Option<String>)>> {
        let query = "SELECT id, password FROM account WHERE name = ?1";
        let read = |row: &Row<'_>| Ok((AccountId(row.get(0)?), row.get(1)?));
        Ok(self.0.query_row(query, [name.as_str()], read).optional()?)
    }

    /// Replaces the hash of an account's password, and ends all its sessions and its invitation.
    /// Returns whether the hash was still the old one.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn change_password(&mut self, id: AccountId, old: &str, new: &str) -> StoreResult<bool> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let update = "UPDATE account SET password = ?3 WHERE id = ?1 AND password = ?2";
        let is_changed = change.execute(update, params![id.0, old, new])? == 1;
        if is_changed {
            change.execute("DELETE FROM session WHERE account = ?1", [id.0])?;
            change.execute("DELETE FROM invitation WHERE account = ?1", [id.0])?;
        }
        change.commit()?;
        Ok(is_changed)
    }

    /// Signs a browser in to an account whose password has this hash; `None` if it has another one
    /// meanwhile.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn begin_session(
        &mut self,
        id: AccountId,
        hash: &str,
        now: u64,
    ) -> StoreResult<Option<AccountSecret>> {
        let secret = AccountSecret::new()?;
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change.execute("DELETE FROM session WHERE expires <= ?1", [now])?;
        let begun = change.execute(
            "INSERT INTO session (digest, account, expires) \
             SELECT ?1, id, ?2 FROM account WHERE id = ?3 AND password = ?4 AND name IS NOT NULL",
            params![digest(secret.as_str()), now + SESSION_VALIDITY_S, id.0, hash],
        )?;
        change.execute(
            "DELETE FROM session WHERE account = ?1 AND digest NOT IN \
             (SELECT digest FROM session WHERE account = ?1 ORDER BY expires DESC LIMIT ?2)",
            params![id.0, MAX_SESSIONS],
        )?;
        change.commit()?;
        Ok((begun == 1).then_some(secret))
    }

    /// The account that a session is signed in to.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn account_of(&self, session: &str, now: u64) -> StoreResult<Option<Account>> {
        let query = "SELECT id, name FROM session JOIN account ON account.id = account \
                     WHERE digest = ?1 AND expires > ?2 AND name IS NOT NULL";
        let mut query = self.0.prepare(query)?;
        Ok(query.query_row(params![digest(session), now], account).optional()?)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn end_session(&mut self, session: &str) -> StoreResult<()> {
        self.0.execute("DELETE FROM session WHERE digest = ?1", [digest(session)])?;
        Ok(())
    }

    /// All accounts, in the order of their names.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn list(&self, now: u64) -> StoreResult<Vec<AccountSummary>> {
        let mut query = self.0.prepare(
            "SELECT id, name, password IS NOT NULL, \
             (SELECT expires FROM invitation WHERE account = id AND expires > ?1), \
             (SELECT count(*) FROM session WHERE account = id AND expires > ?1) \
             FROM account WHERE name IS NOT NULL ORDER BY name",
        )?;
        let summary = |row: &Row<'_>| {
            let Account { id, name } = account(row)?;
            Ok(AccountSummary {
                id,
                name,
                has_password: row.get(2)?,
                invited_until: row.get(3)?,
                sessions: row.get(4)?,
            })
        };
        let accounts = query.query_map([now], summary)?;
        Ok(accounts.collect::<Result<_, _>>()?)
    }

    /// Removes an account, its sessions and its invitation. Returns its number if there was one.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn remove(&mut self, name: &AccountName) -> StoreResult<Option<AccountId>> {
        let change = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let removed = change
            .query_row(
                "UPDATE account SET name = NULL, password = NULL WHERE name = ?1 RETURNING id",
                [name.as_str()],
                |row| row.get::<_, i64>(0),
            )
            .optional()?;
        if let Some(id) = removed {
            for table in ["session", "invitation", "run_time"] {
                change.execute(&format!("DELETE FROM {table} WHERE account = ?1"), [id])?;
            }
        }
        change.commit()?;
        Ok(removed.map(AccountId))
    }

    /// Whether an account was removed. Of an account that the database never had, it is not known.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn is_removed(&self, id: AccountId) -> StoreResult<bool> {
        let query = "SELECT name IS NULL FROM account WHERE id = ?1";
        let removed = self.0.query_row(query, [id.0], |row| row.get(0)).optional()?;
        Ok(removed.unwrap_or(false))
    }

    /// Adds to the time for which an account's runs have run on a day, which is a number of days
    /// since 1970.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub fn add_run_time(&mut self, id: AccountId, day: u64, milliseconds: u64) -> StoreResult<()> {
        // Not for an account that was removed meanwhile.
        self.0.execute(
            "INSERT INTO run_time (account, day, milliseconds) \
             SELECT id, ?2, ?3 FROM account WHERE id = ?1 AND name IS NOT NULL \
             ON CONFLICT (account) DO UPDATE SET \
             milliseconds = excluded.milliseconds + iif(day = excluded.day, milliseconds, 0), \
             day = excluded.day",
            params![id.0, day, milliseconds],
        )?;
        Ok(())
    }

    /// The milliseconds for which an account's runs have run on a day.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn run_time(&self, id: AccountId, day: u64) -> StoreResult<u64> {
        let query = "SELECT milliseconds FROM run_time WHERE account = ?1 AND day = ?2";
        let mut query = self.0.prepare(query)?;
        let time = query.query_row(params![id.0, day], |row| row.get(0)).optional()?;
        Ok(time.unwrap_or(0))
    }
}

/// An account in a row that begins with its number and name.
fn account(row: &Row<'_>) -> rusqlite::Result<Account> {
    let name: String = row.get(1)?;
    let name = name.try_into().map_err(|error: crate::AccountNameError| {
        rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error.into())
    })?;
    Ok(Account { id: AccountId(row.get(0)?), name })
}

#[cfg(test)]
mod tests;
