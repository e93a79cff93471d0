//! Moves a file to another host: resumed after a break, with its digest checked at the end.
//!
//! [`send`] offers a file, and connects again after a break or silence. A [`FileReceiver`] takes
//! files of its connections into a directory. Both tell their progress as [`FileTransferEvent`]s.
//! What arrives is in `.NAME.part` until it is complete: a later attempt goes on from there if the
//! beginning is that of the same file, also after either program was killed.

mod digest;
mod part;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod transfer_limiter;

pub use receive::{FileReceiveError, FileReceiver, ReceivedFile};
pub use send::{ConnectionPreferences, FileSendError, SentFile, send};
pub use transfer_limiter::{TransferLimiter, TransferPermit};

use std::time::Duration;

use crate::protocol::file::FileName;

/// A peer from which nothing has come for so long is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often an end says that it is there.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// What happens to a file.
#[derive(Debug)]
pub enum FileTransferEvent<'a> {
    /// A file of this name and length is on its way.
    Offered {
        /// Its name.
        name: &'a FileName,
        /// Its length in bytes.
        length: u64,
    },
    /// The receiver has so many bytes.
    Position(u64),
    /// What an earlier attempt has left is compared.
    Comparing,
    /// Nothing has come from the receiver for so long; another connection is tried.
    Silent {
        /// The transport of the silent connection.
        transport: &'static str,
        /// For how long.
        silence: Duration,
    },
    /// The connection was much slower than its path; another one has taken its place.
    Slow {
        /// The transport of the slow connection.
        transport: &'static str,
        /// How fast the file arrived on it, in bytes/s.
        rate: f64,
        /// The transport of the other connection.
        by: &'static str,
    },
    /// The connection has broken; another attempt begins after the pause.
    Broken {
        /// Why.
        error: &'a FileSendError,
        /// How long.
        pause: Duration,
    },
}
