//! Receives files.

mod incoming;
mod output;
mod stream;
mod tree;

pub use stream::{ReceivedStream, StreamReceiver};

use incoming::IncomingFileTransfer;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base16ct::lower::encode_string;
use keys::IdentityPublicKey;
use sha2::{Digest, Sha256};

use super::part::{PartialFile, PartialFileError};
use super::{FileTransferEvent, IDLE_TIMEOUT, digest, is_violation};
use crate::net::{Connection, ConnectionCloser};
use crate::protocol::file::{
    ChunkLengths, FileChunkList, FileName, FileReceiverMessage, FileSenderMessage,
    FileTransferFailure, FileTransferFailureReason, MAX_DATA_LEN, array, closed_early,
};
use crate::protocol::tree::TREE_KIND;

/// How long the sender may take to read the result.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// After this long without data from a sender, another one may send a file of the same name.
const MAX_SILENCE: Duration = Duration::from_secs(2);

/// How long a connection that is replaced may take to end.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a file was not received.
#[derive(Debug, thiserror::Error)]
pub enum FileReceiveError {
    /// This end has failed, and has told the sender why.
    #[error("{0}")]
    Failed(#[source] FileTransferFailure),
    /// The connection has broken. What has arrived is kept.
    #[error("{}: {source}; what has arrived stays for the next attempt", .name)]
    Broken {
        /// The name of the file.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The connection of a stream has broken before its end. The bytes that were written are only
    /// its beginning.
    #[error("the stream is incomplete, it broke off after {bytes} bytes: {source}")]
    Incomplete {
        /// How many bytes have arrived.
        bytes: u64,
        /// The cause.
        source: io::Error,
    },
    /// This end has not accepted an offer, and has told the sender why.
    #[error("an offer was rejected: {0}")]
    Rejected(#[source] FileTransferFailure),
    /// The connection ended before a file was offered.
    #[error("no file was offered: {0}")]
    NoOffer(#[source] io::Error),
}

/// A file, or several files and directories, that were received.
#[derive(Clone, Debug)]
pub struct ReceivedFile {
    /// Its name. Of several files, the first name.
    pub name: FileName,
    /// Its path. Of several files at the top, their directory.
    pub path: PathBuf,
    /// The number of files.
    pub files: usize,
    /// The length in bytes.
    pub bytes: u64,
    /// How many of them had arrived earlier.
    pub resumed_from: u64,
    /// The SHA-256 digest of one file, in hexadecimal digits. `None` if there were several, of
    /// which each was checked.
    pub sha256: Option<String>,
    /// How long its last connection took.
    pub elapsed: Duration,
}

/// Receives files into a directory, over several connections at the same time.
#[derive(Debug)]
pub struct FileReceiver {
    directory: PathBuf,
    overwrites: bool,
    active: Mutex<HashMap<FileName, ActiveFileTransfer>>,
    changed: Condvar,
}

/// A connection that is transferring a file.
#[derive(Debug)]
struct ActiveFileTransfer {
    sender: (Option<IdentityPublicKey>, IpAddr),
    closer: ConnectionCloser,
    /// When data last arrived on it.
    heard_at: Arc<Mutex<Instant>>,
}

impl ActiveFileTransfer {
    /// Whether another connection may replace it: if that is from the same sender, as this
    /// connection has broken there; or if it is from another sender of the same file, and this
    /// connection is silent.
    fn is_replaceable_by(&self, sender: &(Option<IdentityPublicKey>, IpAddr)) -> bool {
        let is_same = match (self.sender.0, sender.0) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.sender.1 == sender.1,
            _ => false,
        };
        is_same || lock(&self.heard_at).elapsed() >= MAX_SILENCE
    }
}

impl FileReceiver {
    /// Creates a receiver for this directory. An existing file is replaced only if `overwrites` is
    /// set.
    pub fn new(directory: &Path, overwrites: bool) -> Self {
        let directory = directory.to_owned();
        Self { directory, overwrites, active: Mutex::default(), changed: Condvar::new() }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Receives the file of one connection. An earlier connection with a file of the same name is
    /// closed if it is from the same sender, for which it has broken, or if it has been silent for
    /// 2 s.
    ///
    /// # Errors
    /// If the file is incomplete, its digest is wrong, or it cannot be created.
    pub fn receive(
        &self,
        mut connection: Connection,
        mut observe: impl FnMut(FileTransferEvent<'_>),
    ) -> Result<ReceivedFile, FileReceiveError> {
        let start = Instant::now();
        connection.set_timeout(Some(IDLE_TIMEOUT)).map_err(FileReceiveError::NoOffer)?;
        let mut name = None;
        let result = self.transfer(&mut connection, &mut name, &mut observe);
        report_result(&mut connection, &result);
        match result {
            Ok(received) => Ok(ReceivedFile { elapsed: start.elapsed(), ..received }),
            Err(TransferStopReason::Failed(failure)) => Err(FileReceiveError::Failed(failure)),
            Err(TransferStopReason::Broken(source)) => Err(match name {
                Some(name) => FileReceiveError::Broken { name: name.to_string(), source },
                None => FileReceiveError::NoOffer(source),
            }),
        }
    }

    /// Tells the sender of a connection that the receiver is busy. The sender tries again.
    pub fn refuse(mut connection: Connection) {
        let text = "it is receiving as many files as it can at a time".to_owned();
        let failure = FileTransferFailure { reason: FileTransferFailureReason::Busy, text };
        send_result(&mut connection, &FileReceiverMessage::Failed(failure));
    }

    /// Closes all connections that are transferring files. What has arrived is kept.
    pub fn close(&self) {
        self.lock().values().for_each(|active| active.closer.close());
    }

    fn transfer(
        &self,
        connection: &mut Connection,
        offered: &mut Option<FileName>,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<ReceivedFile, TransferStopReason> {
        let [kind] = array(connection).map_err(TransferStopReason::Broken)?;
        if kind == TREE_KIND {
            return tree::receive(self, connection, offered, observe);
        }
        let offer = next(&mut (&[kind][..]).chain(&mut *connection))?;
        let (length, attributes, name) = match offer {
            FileSenderMessage::Offer { is_eager: _, length, attributes, name } => {
                (length, attributes, name)
            }
            FileSenderMessage::Stream => {
                let text = "it stores files in a directory; to receive a stream, start it with \
                            --out -";
                return Err(failed(FileTransferFailureReason::Kind, text.into()));
            }
            _ => return Err(protocol("no file is offered")),
        };
        *offered = Some(name.clone());
        observe(FileTransferEvent::Offered { name: &name, length });
        let entered = self.reserve_name(&name, connection)?;
        let path = self.directory.join(name.as_str());
        if !self.overwrites && path.symlink_metadata().is_ok() {
            return compare(connection, &entered, name, path, length, observe);
        }
        let older = older_version(&path, length);
        let part = PartialFile::open(&self.directory, &name, length)
            .map_err(PartialFileError::into_stop)?;
        let transfer = IncomingFileTransfer::new(connection, part, length, &entered);
        let (part, sha256, resumed_from) = transfer.receive(older, observe)?;
        let mut report = || {
            entered.note_activity();
            put(connection, &FileReceiverMessage::Progress(length))
        };
        part.publish(&attributes, self.overwrites, &mut report)
            .map_err(PartialFileError::into_stop)?;
        let elapsed = Duration::ZERO;
        let sha256 = Some(sha256);
        Ok(ReceivedFile { name, path, files: 1, bytes: length, resumed_from, sha256, elapsed })
    }

    /// Reserves the name for this connection, and closes an earlier connection that it replaces.
    fn reserve_name(
        &self,
        name: &FileName,
        connection: &Connection,
    ) -> Result<FileNameReservation<'_>, TransferStopReason> {
        let sender = (connection.peer(), connection.peer_addr().ip());
        let busy =
            || failed(FileTransferFailureReason::Busy, format!("{name} is being received already"));
        let mut active = self.lock();
        let deadline = Instant::now() + TAKEOVER_TIMEOUT;
        while let Some(other) = active.get(name) {
            let left = deadline.saturating_duration_since(Instant::now());
            if !other.is_replaceable_by(&sender) || left.is_zero() {
                return Err(busy());
            }
            other.closer.close();
            let waited = self.changed.wait_timeout(active, left);
            active = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let (closer, heard_at) = (connection.closer(), Arc::new(Mutex::new(Instant::now())));
        let of_name = ActiveFileTransfer { sender, closer, heard_at: heard_at.clone() };
        active.insert(name.clone(), of_name);
        Ok(FileNameReservation { receiver: self, name: name.clone(), heard_at })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileName, ActiveFileTransfer>> {
        lock(&self.active)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection's reservation of a file name, until it is dropped.
struct FileNameReservation<'a> {
    receiver: &'a FileReceiver,
    name: FileName,
    heard_at: Arc<Mutex<Instant>>,
}

impl FileNameReservation<'_> {
    /// Records activity of the sender or of this end, so that no other connection takes the name.
    fn note_activity(&self) {
        *lock(&self.heard_at) = Instant::now();
    }
}

impl Drop for FileNameReservation<'_> {
    fn drop(&mut self) {
        self.receiver.lock().remove(&self.name);
        self.receiver.changed.notify_all();
    }
}

/// Why a transfer ends without success.
pub(super) enum TransferStopReason {
    /// A failure that the sender is told.
    Failed(FileTransferFailure),
    /// The connection has broken.
    Broken(io::Error),
}

fn failed(reason: FileTransferFailureReason, text: String) -> TransferStopReason {
    TransferStopReason::Failed(FileTransferFailure { reason, text })
}

/// The failure to report to the sender if the connection has broken because received data was
/// changed. The other direction may still work.
fn changed(error: &io::Error) -> Option<FileTransferFailure> {
    let is_changed = matches!(crate::Error::of(error), Some(crate::Error::Changed { .. }));
    let text = "received data was changed on the path, or is not of this connection";
    is_changed.then(|| FileTransferFailure {
        reason: FileTransferFailureReason::Changed,
        text: text.to_owned(),
    })
}

fn protocol(what: &str) -> TransferStopReason {
    failed(
        FileTransferFailureReason::Protocol,
        format!("{what}: the sender has another version of Sunder"),
    )
}

impl PartialFileError {
    fn into_stop(self) -> TransferStopReason {
        let reason = match &self {
            Self::Exists(_) => FileTransferFailureReason::Exists,
            Self::Busy(_) => FileTransferFailureReason::Busy,
            Self::Space { .. } => FileTransferFailureReason::Space,
            Self::System { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    FileTransferFailureReason::Space
                }
                _ => FileTransferFailureReason::System,
            },
            Self::Report(_) => FileTransferFailureReason::Protocol,
        };
        match self {
            Self::Report(error) => TransferStopReason::Broken(error),
            error => failed(reason, error.to_string()),
        }
    }
}

/// Reads the next message.
fn next(connection: &mut impl Read) -> Result<FileSenderMessage, TransferStopReason> {
    match FileSenderMessage::read(connection) {
        Ok(Ok(message)) => Ok(message),
        Ok(Err(error)) => Err(failed(
            FileTransferFailureReason::Name,
            format!("{error}; send it under another name"),
        )),
        Err(error) => Err(unreadable(error)),
    }
}

/// Why the transfer ends if a message cannot be read.
fn unreadable(error: io::Error) -> TransferStopReason {
    if is_violation(&error) {
        protocol(&error.to_string())
    } else {
        TransferStopReason::Broken(error)
    }
}

fn put(connection: &mut Connection, message: &FileReceiverMessage) -> io::Result<()> {
    connection.write_all(&message.encode())?;
    connection.flush()
}

/// Tells the sender how the transfer has ended, if the connection still allows that.
fn report_result<T>(connection: &mut Connection, result: &Result<T, TransferStopReason>) {
    let message = match result {
        Ok(_) => Some(FileReceiverMessage::Done),
        Err(TransferStopReason::Failed(failure)) => {
            Some(FileReceiverMessage::Failed(failure.clone()))
        }
        Err(TransferStopReason::Broken(error)) => changed(error).map(FileReceiverMessage::Failed),
    };
    if let Some(message) = message {
        send_result(connection, &message);
    }
}

/// Sends the result, and gives the sender time to read it.
fn send_result(connection: &mut Connection, message: &FileReceiverMessage) {
    let deadline = Instant::now() + END_TIMEOUT;
    // If the sender is gone, it asks again later.
    let _ = connection
        .set_timeout(Some(END_TIMEOUT))
        .and_then(|()| put(connection, message))
        .and_then(|()| connection.finish());
    // Reads what the sender has sent meanwhile: otherwise the kernel could drop the result.
    let mut ignored = vec![0; MAX_DATA_LEN];
    while Instant::now() < deadline && connection.discard(&mut ignored).is_ok_and(|count| count > 0)
    {
    }
}

/// Compares an existing file of this name. If it is the same file, the transfer is complete: the
/// sender may have missed the result.
fn compare(
    connection: &mut Connection,
    entered: &FileNameReservation<'_>,
    name: FileName,
    path: PathBuf,
    length: u64,
    observe: &mut impl FnMut(FileTransferEvent<'_>),
) -> Result<ReceivedFile, TransferStopReason> {
    let exists = || {
        let text = format!(
            "{name} already exists; send it under another name, or remove it at the receiver"
        );
        failed(FileTransferFailureReason::Exists, text)
    };
    let same_length = super::part::open_existing(&path).filter(|(_, len)| *len == length);
    let (mut file, _) = same_length.ok_or_else(exists)?;
    if length == 0 {
        // An empty file needs no comparison.
        return Ok(received(name, path, length, encode_string(&digest::value(&Sha256::new()))));
    }
    put(connection, &FileReceiverMessage::Have(length)).map_err(TransferStopReason::Broken)?;
    let stated = loop {
        match next(connection)? {
            FileSenderMessage::Start { offset, digest } if offset == length => break digest,
            FileSenderMessage::Data(len) => skip(connection, len)?,
            FileSenderMessage::Working | FileSenderMessage::End(_) => {}
            _ => return Err(protocol("an unexpected message")),
        }
    };
    observe(FileTransferEvent::Comparing);
    let report = || {
        entered.note_activity();
        put(connection, &FileReceiverMessage::Progress(0))
    };
    let state =
        digest::of_beginning(&mut file, length, report).map_err(TransferStopReason::Broken)?;
    if digest::value(&state) != stated {
        return Err(exists());
    }
    Ok(received(name, path, length, encode_string(&stated)))
}

/// The file at this path and an empty list for the chunks of the offered one, if these files are
/// long enough to look for common chunks.
fn older_version(path: &Path, length: u64) -> Option<(File, FileChunkList)> {
    let list = FileChunkList::new(length)?;
    let (file, older_len) = super::part::open_existing(path)?;
    ChunkLengths::of_file(older_len)?;
    Some((file, list))
}

fn received(name: FileName, path: PathBuf, bytes: u64, sha256: String) -> ReceivedFile {
    let (sha256, elapsed) = (Some(sha256), Duration::ZERO);
    ReceivedFile { name, path, files: 1, bytes, resumed_from: bytes, sha256, elapsed }
}

fn skip(connection: &mut Connection, len: usize) -> Result<(), TransferStopReason> {
    let skipped = io::copy(&mut connection.take(len as u64), &mut io::sink());
    match skipped {
        Ok(count) if count == len as u64 => Ok(()),
        Ok(_) => Err(TransferStopReason::Broken(closed_early())),
        Err(error) => Err(TransferStopReason::Broken(error)),
    }
}
