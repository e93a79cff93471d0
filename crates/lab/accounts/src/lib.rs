//! Accounts of several people on one server: an administrator invites, the invited chooses a
//! password, and signs in with it.
//!
//! # Guarantees
//!
//! The database has no secret that signs anybody in: of passwords it has Argon2id hashes, of
//! invitations and sessions SHA-256 digests of 256 random bits. An invitation works once and until
//! it expires. A new password ends all sessions of the account. An account's number is never given
//! to another account.
//!
//! ```
//! use sunder_accounts::{AccountName, AccountStore, PasswordHasher};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let mut store = AccountStore::open(folder.path()).unwrap();
//! let alice: AccountName = "alice".parse().unwrap();
//! let now = 1_800_000_000;
//! let invitation = store.invite(&alice, now).unwrap();
//!
//! let hasher = PasswordHasher::default();
//! let hash = hasher.hash("correct horse battery").unwrap();
//! let account = store.accept(invitation.as_str(), &hash, now).unwrap().unwrap();
//! let session = store.begin_session(account.id, &hash, now).unwrap().unwrap();
//! assert_eq!(store.account_of(session.as_str(), now).unwrap(), Some(account));
//! ```
//!
//! # Map
//!
//! - [`AccountStore`]: the database, which a server and commands use at a time. `database`: its
//!   file. `name`, `secret`: what accounts are called, and what proves that one may use them.
//! - [`PasswordHasher`]: hashes of passwords. [`LoginThrottle`], pure: how often one may guess.

mod database;
mod error;
mod name;
mod password;
mod secret;
mod store;
mod throttle;

use std::time::SystemTime;

pub use error::AccountStoreError;
pub use name::{AccountName, AccountNameError};
pub use password::{PasswordError, PasswordHasher};
pub use secret::AccountSecret;
pub use store::{
    Account, AccountId, AccountStore, AccountSummary, INVITATION_VALIDITY_S, SESSION_VALIDITY_S,
};
pub use throttle::{LoginThrottle, ThrottleLimits};

/// The time in seconds since 1970, as the methods of [`AccountStore`] take it.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
