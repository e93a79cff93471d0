//! Sends a file.

mod attempt;
mod offered;
mod reconnector;
mod stream;
mod tree;
mod walk;

pub use stream::{SentStream, send_stream};
pub use tree::{SentTree, send_tree};
pub use walk::SkippedPaths;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{FileTransferEvent, is_violation};
use crate::error::Error;
use crate::net::Connection;
use crate::protocol::file::{
    FileName, FileNameError, FileTransferFailure, FileTransferFailureReason,
};
use crate::stream::ConnectionPath;
use attempt::{SendAttempt, SendAttemptOutcome};
use offered::OfferedFile;
use reconnector::{ConnectFunction, Reconnector};

/// How long a sender continues without progress.
const MAX_STANDSTILL: Duration = Duration::from_secs(60);

/// After this many broken connections in a row without progress, the sender gives up.
const MAX_BROKEN: u32 = 6;

/// Preferences for a new connection, which follow from what happened to earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionPreferences {
    /// An earlier one used UDP and was silent or slow: see
    /// [`Options::avoids_udp`](crate::ConnectionOptions::avoids_udp).
    pub avoids_udp: bool,
    /// An earlier one was silent, so the path may drop long packets. See
    /// [`Options::has_short_segments`](crate::ConnectionOptions::has_short_segments).
    pub has_short_segments: bool,
}

/// Why a file was not sent.
#[derive(Debug, thiserror::Error)]
pub enum FileSendError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("{}: only a regular file can be sent", .path.display())]
    Kind {
        /// The path.
        path: PathBuf,
    },
    /// No receiver accepts the name.
    #[error("{}: {source}; rename it", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: FileNameError,
    },
    /// There are too many files.
    #[error("there are more than 200,000 files and directories: send them in several parts")]
    TooMany,
    /// The files cannot be sent together.
    #[error("cannot send these files together: {0}")]
    Tree(#[source] io::Error),
    /// The file was changed while it was sent.
    #[error("{} was changed while it was sent; send it again", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The stream to send cannot be read. The receiver does not get its end.
    #[error("cannot read the stream: {0}")]
    Stream(#[source] io::Error),
    /// No connection can be opened.
    #[error(transparent)]
    Connect(#[from] Error),
    /// The connection has broken.
    #[error("while the file was sent: {0}")]
    Broken(#[source] io::Error),
    /// The connection of a stream has broken.
    #[error(
        "while the stream was sent: {0}; it is incomplete at the receiver: start both ends again"
    )]
    StreamBroken(#[source] io::Error),
    /// The receiver has reported a failure.
    #[error("the receiver says: {0}")]
    Refused(#[source] FileTransferFailure),
}

impl FileSendError {
    /// Whether the connection has failed, and the receiver has not violated the protocol.
    fn is_of_connection(&self) -> bool {
        matches!(self, Self::Broken(error) if !is_violation(error))
    }

    /// Whether another attempt may succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Connect(error) => !error.is_security(),
            Self::Broken(error) => {
                self.is_of_connection() && !Error::of(error).is_some_and(Error::is_security)
            }
            Self::Refused(failure) => failure.reason == FileTransferFailureReason::Busy,
            _ => false,
        }
    }
}

/// The result of sending a file.
#[derive(Clone, Debug)]
pub struct SentFile {
    /// The name under which it was offered.
    pub name: FileName,
    /// Its length in bytes.
    pub bytes: u64,
    /// How many of them the receiver already had when the first connection was opened.
    pub resumed_from: u64,
    /// Its SHA-256 digest in hexadecimal digits, which the receiver has verified.
    pub sha256: String,
    /// The number of connections.
    pub connections: u32,
    /// The name of the last connection's transport.
    pub transport: &'static str,
    /// How the last connection reached the receiver.
    pub path: ConnectionPath,
    /// The time since the first connection was opened.
    pub elapsed: Duration,
}

/// Sends a file over connections that `connect` opens.
///
/// If a connection breaks, or the receiver is silent for a while, another connection is opened and
/// the transfer resumes there; if a silent connection recovers earlier, the transfer continues on
/// it. A connection over UDP that seems to be throttled is replaced in the same way. The transfer
/// fails after a minute without progress, or after six broken connections in a row without
/// progress. `connect` is told the preferences for the connection, and is called in another thread.
///
/// # Errors
/// If the file cannot be read or is changed meanwhile, the first connection cannot be opened, the
/// receiver reports a failure, or there is no progress for too long.
pub fn send(
    path: &Path,
    connect: impl Fn(ConnectionPreferences) -> Result<Connection, Error> + Send + Sync + 'static,
    mut observe: impl FnMut(FileTransferEvent<'_>),
) -> Result<SentFile, FileSendError> {
    let mut file = OfferedFile::open(path)?;
    observe(FileTransferEvent::Offered { name: &file.name, length: file.length });
    let start = Instant::now();
    let mut successor = Reconnector::new(connect);
    let mut connection = first_connection(&mut successor, &mut observe)?;
    let (mut connections, mut reached, mut progressed_at) = (0, None, start);
    let (mut udp_rate, mut broken) = (None, 0);
    let mut resumed_from = None;
    loop {
        connections += 1;
        let (transport, path) = (connection.transport(), connection.path());
        let mut attempt = SendAttempt::new(&mut file, connections == 1, udp_rate.take());
        let outcome = attempt.run(connection, &mut successor, &mut observe);
        let (had, position) = attempt.initial_and_current_position();
        resumed_from = resumed_from.or(had);
        if Some(position) > reached {
            (reached, progressed_at) = (Some(position), Instant::now());
            successor.note_progress();
            broken = 0;
        }
        let (mut failed, preferences) = match outcome {
            SendAttemptOutcome::Complete(sha256) => {
                return Ok(SentFile {
                    name: file.name,
                    bytes: file.length,
                    resumed_from: resumed_from.unwrap_or(0),
                    sha256,
                    connections,
                    transport,
                    path,
                    elapsed: start.elapsed(),
                });
            }
            SendAttemptOutcome::Replaced { by, rate } => {
                (connection, udp_rate) = (by, rate);
                continue;
            }
            SendAttemptOutcome::Failed { error, preferences } => (error, preferences),
        };
        broken += u32::from(matches!(failed, FileSendError::Broken(_)));
        connection = loop {
            let is_enough = broken >= MAX_BROKEN || progressed_at.elapsed() >= MAX_STANDSTILL;
            if is_enough || !failed.is_transient() {
                return Err(failed);
            }
            let pause = successor.note_failure();
            observe(FileTransferEvent::Broken { error: &failed, pause });
            match successor.wait(preferences) {
                Ok(connection) => break connection,
                Err(error) => failed = error.into(),
            }
        };
    }
}

/// Opens the first connection. If the receiver is busy, this is repeated for some time. Other
/// errors are returned at once, as there was no connection that could have broken.
fn first_connection<C: ConnectFunction>(
    successor: &mut Reconnector<C>,
    observe: &mut impl FnMut(FileTransferEvent<'_>),
) -> Result<Connection, FileSendError> {
    let start = Instant::now();
    let mut connected = successor.first();
    loop {
        match connected {
            Err(error) if error.is_busy() && start.elapsed() < MAX_STANDSTILL => {
                let pause = successor.note_failure();
                observe(FileTransferEvent::Broken { error: &error.into(), pause });
            }
            connected => return Ok(connected?),
        }
        connected = successor.wait(ConnectionPreferences::default());
    }
}
