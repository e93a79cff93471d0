//! File transfers: resumed after a break, with a digest check at the end.
//!
//! [`send_tree`] sends several files and directories over one connection.
//!
//! [`send_stream`] sends a stream of unknown length, such as standard input, and a
//! [`StreamReceiver`] writes one to standard output.
//!
//! [`send`] offers a file, and reconnects after a break or silence. A [`FileReceiver`] stores the
//! files of its connections in a directory. Both report progress as [`FileTransferEvent`]s. Until a
//! file is complete, its data is in `.NAME.part`. A later attempt resumes from there if that is the
//! beginning of the same file, even if either program was killed. If the receiver has another
//! version of the file and may replace it, only chunks that this version does not have are sent.

mod chunking;
mod digest;
mod part;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod transfer_limiter;

pub use receive::{FileReceiveError, FileReceiver, ReceivedFile, ReceivedStream, StreamReceiver};
pub use send::{
    ConnectionPreferences, FileSendError, SentFile, SentStream, SentTree, SkippedPaths, send,
    send_stream, send_tree,
};
pub use transfer_limiter::{TransferLimiter, TransferPermit};

use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::protocol::file::FileName;

/// A peer that is silent for this long is given up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which an end sends a sign of life.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// An event of a file transfer.
#[derive(Debug)]
pub enum FileTransferEvent<'a> {
    /// A file of this name and length is offered.
    Offered {
        /// Its name.
        name: &'a FileName,
        /// Its length in bytes.
        length: u64,
    },
    /// A stream of unknown length begins.
    StreamOffered,
    /// The receiver has this many bytes.
    Position(u64),
    /// What an earlier attempt left, or the receiver's older version, is compared with the file.
    Comparing,
    /// The receiver has been silent for too long; the sender reconnects.
    Silent {
        /// The transport of the silent connection.
        transport: &'static str,
        /// How long it was silent.
        silence: Duration,
    },
    /// The connection was much slower than the path, and was replaced.
    Slow {
        /// The transport of the slow connection.
        transport: &'static str,
        /// How fast the file arrived on it, in bytes/s.
        rate: f64,
        /// The transport of the new connection.
        by: &'static str,
    },
    /// The connection has broken; the next attempt begins after `pause`.
    Broken {
        /// The cause.
        error: &'a FileSendError,
        /// The time until the next attempt.
        pause: Duration,
    },
}

/// Whether an error says that the peer has violated the protocol.
fn is_violation(error: &io::Error) -> bool {
    let is_invalid = error.kind() == io::ErrorKind::InvalidData && error.get_ref().is_some();
    is_invalid && Error::of(error).is_none()
}
