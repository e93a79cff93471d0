//! The database of peers and their addresses: one file.
//!
//! Rows are checked like messages from the network. Neither the database's file nor the files that
//! `SQLite` keeps beside it may be writable by other users: a user who can write a journal there
//! decides the next answers. Calls read and write a few rows, and wait up to 5 s for other programs
//! that use the file, so make them on threads that may block.

#[cfg(not(feature = "database"))]
mod absent;
#[cfg(feature = "database")]
mod database;
mod error;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use keys::trusted::{TrustError, TrustedFolder};

use super::addresses::ChannelAddresses;
use super::message::ProofScheme;
use super::signed_list::KeyDigest;

#[cfg(not(feature = "database"))]
pub use absent::DirectoryStore;
#[cfg(feature = "database")]
pub use database::DirectoryStore;
pub use error::DirectoryStoreError;

/// The largest number of peers. At this number no more are learnt.
pub const MAX_PEERS: u32 = 65_536;

/// The source of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The operator.
    Manual,
    /// The peer itself, proven by this scheme.
    Learnt(ProofScheme),
    /// A list that the holders of this key have signed.
    Signed(KeyDigest),
}

impl AddressSource {
    /// Its name, as in `manual` or `hmac`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Learnt(scheme) => scheme.name(),
            Self::Signed(_) => "signed",
        }
    }
}

/// What the database knows of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The address to which applications connect.
    pub peer: IpAddr,
    /// Its addresses, one for each channel.
    pub addresses: ChannelAddresses,
    /// The source of these addresses.
    pub source: AddressSource,
    /// The time of the last change, in whole seconds.
    pub learnt_at: SystemTime,
}

/// The result of an exchange with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedAddresses {
    /// Its addresses, one for each channel.
    pub addresses: ChannelAddresses,
    /// Its addresses before, if they were known.
    pub before: Option<ChannelAddresses>,
}

impl LearnedAddresses {
    /// Whether the addresses before were known and different.
    pub fn has_changed(&self) -> bool {
        self.before.as_ref().is_some_and(|before| *before != self.addresses)
    }
}

/// The suffixes of the file and of the files that `SQLite` keeps beside it. `SQLite` trusts what it
/// finds in them when it opens the database.
const COMPANION_SUFFIXES: [&str; 4] = ["", "-journal", "-wal", "-shm"];

/// Checks that no other user can change the database at this path, or the files beside it.
///
/// # Errors
/// When another user can, or there is no such folder.
pub fn check_place(path: &Path) -> Result<(), TrustError> {
    trusted_path(path).map(drop)
}

/// The absolute path of a file that no other user can change. Names with a special meaning to
/// `SQLite`, such as `:memory:`, have none in an absolute path.
fn trusted_path(path: &Path) -> Result<PathBuf, TrustError> {
    let (folder, name) = TrustedFolder::containing(path)?;
    for end in COMPANION_SUFFIXES {
        let mut file = name.clone();
        file.push(end);
        folder.check_file(&file)?;
    }
    Ok(folder.path().join(name))
}
