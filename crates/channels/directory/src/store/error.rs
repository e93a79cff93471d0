//! Errors of the database.

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use keys::trusted::TrustError;

use super::{AddressSource, MAX_PEERS};

/// Why the database cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryStoreError {
    /// The file cannot be opened or created.
    #[error("cannot open it: {0}{advice}", advice = advice(.0))]
    File(#[from] io::Error),
    /// Other users could change it.
    #[error("not trusted: {0}")]
    Trust(#[from] TrustError),
    /// This program was compiled without the database.
    #[cfg(not(feature = "database"))]
    #[error("this program is built without the directory: build it with --features directory")]
    Absent,
    /// It is a database of another program.
    #[error("a database of another program; name another `file`")]
    Foreign,
    /// It is of a newer version.
    #[error("written by a newer version of sunder; use that one, or another `file`")]
    Newer,
    /// It contains an invalid value.
    #[error("damaged: {what}; move the file away, and add again what was added by hand")]
    Damaged {
        /// The invalid value.
        what: String,
    },
    /// The operator has added the peer. Learnt addresses do not replace it.
    #[error(
        "{peer} was added by hand, which stays: sunder directory remove {peer} lets it be learnt"
    )]
    Manual {
        /// The peer.
        peer: IpAddr,
    },
    /// A signed list has the peer. Learnt addresses do not replace it.
    #[error("{peer} is in the signed list, which a newer list replaces")]
    Signed {
        /// The peer.
        peer: IpAddr,
    },
    /// The list is not newer than the one in the database.
    #[error(
        "list {number} is not newer than the last one, {last}: import a list with a higher number"
    )]
    OldList {
        /// Its number.
        number: u32,
        /// The number of the list in the database.
        last: u32,
    },
    /// The database has the largest number of peers.
    #[error(
        "{MAX_PEERS} peers are known, and no more are learnt; sunder directory remove makes room"
    )]
    Full,
    /// `SQLite` reports an error.
    #[cfg(feature = "database")]
    #[error("the database: {}", one_line(.0))]
    Database(#[from] rusqlite::Error),
}

impl DirectoryStoreError {
    /// Addresses from this source are not asked for.
    pub(crate) fn not_learnable(peer: IpAddr, source: AddressSource) -> Self {
        match source {
            AddressSource::Signed(_) => Self::Signed { peer },
            _ => Self::Manual { peer },
        }
    }
}

/// The fix for a file that cannot be opened.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; its directory has to exist",
        ErrorKind::PermissionDenied => "; it has to belong to whom the proxy runs as",
        _ => "",
    }
}

#[cfg(feature = "database")]
pub(super) fn one_line(error: &rusqlite::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(feature = "database")]
pub(super) fn damaged(what: String) -> DirectoryStoreError {
    DirectoryStoreError::Damaged { what }
}
