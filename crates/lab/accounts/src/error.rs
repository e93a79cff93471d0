//! Why the database of accounts cannot be used.

use std::io;

use random::RandomError;
use thiserror::Error;

/// The maximum number of accounts.
pub(crate) const MAX_ACCOUNTS: u64 = 10_000;

/// The database of accounts cannot be used.
#[derive(Debug, Error)]
pub enum AccountStoreError {
    /// Of the file.
    #[error("the accounts: {0}")]
    File(#[from] io::Error),
    /// Of `SQLite`.
    #[error("the database of accounts: {0}")]
    Database(#[from] rusqlite::Error),
    /// The system gives no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// There are too many accounts.
    #[error("there are {MAX_ACCOUNTS} accounts already: remove some")]
    Full,
}
