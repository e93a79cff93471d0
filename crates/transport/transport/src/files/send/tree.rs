//! Sends several files and directories over one connection, without a round trip for each.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::offered::OfferedFile;
use super::walk::{FoundTree, SkippedPaths, find};
use super::{ConnectionPreferences, FileSendError, MAX_BROKEN, MAX_STANDSTILL};
use crate::error::Error;
use crate::files::{FileTransferEvent, IDLE_TIMEOUT, REPORT_INTERVAL, digest};
use crate::net::{Connection, ConnectionCloser, ConnectionReader, ConnectionWriter};
use crate::protocol::file::{
    FileReceiverMessage, FileSenderMessage, FileTransferFailure, MAX_DATA_LEN, array,
};
use crate::protocol::tree::{
    TreeFileStart, TreeManifest, TreePath, WANTED_KIND, WantedFile, read_wanted,
};
use crate::stream::ConnectionPath;

/// The pause before another connection, after the first broken one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(4);

/// How long to wait for the receiver's last message after the connection has failed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of sending several files and directories.
#[derive(Clone, Debug)]
pub struct SentTree {
    /// The number of files.
    pub files: usize,
    /// Their length in bytes.
    pub bytes: u64,
    /// How many of them the receiver already had when the first connection was opened.
    pub resumed_from: u64,
    /// What was not sent.
    pub skipped: SkippedPaths,
    /// The number of connections.
    pub connections: u32,
    /// The name of the last connection's transport.
    pub transport: &'static str,
    /// How the last connection reached the receiver.
    pub path: ConnectionPath,
    /// The time since the first connection was opened.
    pub elapsed: Duration,
}

/// Sends files, and directories with everything in them, over connections that `connect` opens.
///
/// Files that the receiver has with the same length and modification time are not sent again. After
/// a broken connection, the transfer resumes on another one; it fails after a minute without
/// progress, or after six broken connections in a row without progress.
///
/// # Errors
/// If a file cannot be read or is changed meanwhile, the first connection cannot be opened, the
/// receiver reports a failure, or there is no progress for too long.
pub fn send_tree(
    paths: &[PathBuf],
    connect: impl Fn(ConnectionPreferences) -> Result<Connection, Error>,
    mut observe: impl FnMut(FileTransferEvent<'_>),
) -> Result<SentTree, FileSendError> {
    let FoundTree { entries, skipped } = find(paths)?;
    let (entries, files): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|(entry, file)| (entry.clone(), (entry.path, file))).unzip();
    let tree = OutgoingTree {
        manifest: TreeManifest::new(entries).map_err(FileSendError::Tree)?,
        files: files.into_iter().collect(),
    };
    let first = &tree.manifest.entries()[0];
    observe(FileTransferEvent::Offered { name: first.path.name(), length: tree.manifest.total() });
    let start = Instant::now();
    let mut connection = connect(ConnectionPreferences::default())?;
    let mut progress = TreeSendProgress { initial: None, position: 0, progressed_at: start };
    let (mut connections, mut broken) = (0, 0);
    loop {
        connections += 1;
        let (transport, path) = (connection.transport(), connection.path());
        let before = progress.position;
        let mut failed = match tree.send(connection, &mut progress, &mut observe) {
            Ok(()) => {
                return Ok(SentTree {
                    files: tree.manifest.file_count(),
                    bytes: tree.manifest.total(),
                    resumed_from: progress.initial.unwrap_or(0),
                    skipped,
                    connections,
                    transport,
                    path,
                    elapsed: start.elapsed(),
                });
            }
            Err(error) => error,
        };
        broken = if progress.position > before { 1 } else { broken + 1 };
        let mut pause = FIRST_PAUSE;
        connection = loop {
            let is_enough =
                broken >= MAX_BROKEN || progress.progressed_at.elapsed() >= MAX_STANDSTILL;
            if is_enough || !failed.is_transient() {
                return Err(failed);
            }
            observe(FileTransferEvent::Broken { error: &failed, pause });
            thread::sleep(pause);
            pause = (2 * pause).min(MAX_PAUSE);
            match connect(ConnectionPreferences::default()) {
                Ok(connection) => break connection,
                Err(error) => failed = error.into(),
            }
        };
    }
}

/// What the receiver has reported.
struct TreeSendProgress {
    /// What it had at the start.
    initial: Option<u64>,
    position: u64,
    progressed_at: Instant,
}

impl TreeSendProgress {
    fn reach(&mut self, position: u64) {
        if position > self.position {
            (self.position, self.progressed_at) = (position, Instant::now());
        }
    }
}

/// A message of the receiver, or why no more come.
enum TreeReceiverMessage {
    Wanted(Vec<WantedFile>),
    Progress(u64),
    Done,
    Failed(FileTransferFailure),
    Broken(io::Error),
}

struct OutgoingTree {
    manifest: TreeManifest,
    files: HashMap<TreePath, PathBuf>,
}

impl OutgoingTree {
    /// Opens a file of the list.
    fn open(&self, path: &TreePath) -> Result<OfferedFile, FileSendError> {
        let (names, below) = path.names().split_at(1);
        let top = TreePath::new(names.to_vec()).expect("a name is a path");
        OfferedFile::open_below(&self.files[&top], below)
    }

    /// Sends on one connection what the receiver does not have.
    fn send(
        &self,
        connection: Connection,
        progress: &mut TreeSendProgress,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(), FileSendError> {
        connection.set_timeout(Some(IDLE_TIMEOUT)).map_err(FileSendError::Broken)?;
        let closer = connection.closer();
        let (reader, writer) = connection.split();
        let (tell, told) = channel();
        let manifest = &self.manifest;
        thread::scope(|scope| {
            let closing = &closer;
            scope.spawn(move || listen(reader, manifest, &tell, closing));
            let mut sending = TreeDataWriter {
                tree: self,
                writer,
                told,
                progress,
                observe,
                buffer: vec![0; MAX_DATA_LEN],
            };
            let result = sending.run();
            let result = result.map_err(|error| sending.reason(error));
            if result.is_ok() {
                let _ = sending.writer.finish();
            }
            closer.close();
            result
        })
    }
}

/// Reads the receiver's messages until the last one.
fn listen(
    mut reader: ConnectionReader,
    manifest: &TreeManifest,
    tell: &Sender<TreeReceiverMessage>,
    closer: &ConnectionCloser,
) {
    loop {
        let message = read(&mut reader, manifest).unwrap_or_else(TreeReceiverMessage::Broken);
        let is_failed =
            matches!(message, TreeReceiverMessage::Failed(_) | TreeReceiverMessage::Broken(_));
        let is_last = is_failed || matches!(message, TreeReceiverMessage::Done);
        let _ = tell.send(message);
        if is_failed {
            // Unblocks the writer.
            closer.close();
        }
        if is_last {
            return;
        }
    }
}

fn read(reader: &mut impl Read, manifest: &TreeManifest) -> io::Result<TreeReceiverMessage> {
    let [kind] = array(reader)?;
    if kind == WANTED_KIND {
        return read_wanted(reader, manifest).map(TreeReceiverMessage::Wanted);
    }
    Ok(match FileReceiverMessage::read(&mut (&[kind][..]).chain(reader))? {
        FileReceiverMessage::Progress(position) => TreeReceiverMessage::Progress(position),
        FileReceiverMessage::Done => TreeReceiverMessage::Done,
        FileReceiverMessage::Failed(failure) => TreeReceiverMessage::Failed(failure),
        FileReceiverMessage::Have(_)
        | FileReceiverMessage::HaveOlder
        | FileReceiverMessage::WantedChunks(_) => {
            let what = "the receiver has answered as for one file";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    })
}

/// The writing half.
struct TreeDataWriter<'a, O> {
    tree: &'a OutgoingTree,
    writer: ConnectionWriter,
    told: Receiver<TreeReceiverMessage>,
    progress: &'a mut TreeSendProgress,
    observe: &'a mut O,
    buffer: Vec<u8>,
}

impl<O: FnMut(FileTransferEvent<'_>)> TreeDataWriter<'_, O> {
    fn run(&mut self) -> Result<(), FileSendError> {
        self.put(&self.tree.manifest.encode())?;
        self.flush()?;
        loop {
            let Ok(message) = self.told.recv() else { return Err(closed()) };
            match self.take(message)? {
                TreeSendStep::Nothing => {}
                TreeSendStep::Done => return Ok(()),
                TreeSendStep::Send(wanted) => {
                    for (index, have) in wanted {
                        self.send_file(index, have)?;
                        self.take_reports()?;
                    }
                    self.flush()?;
                }
            }
        }
    }

    fn take(&mut self, message: TreeReceiverMessage) -> Result<TreeSendStep, FileSendError> {
        match message {
            TreeReceiverMessage::Wanted(wanted) => {
                let entries = self.tree.manifest.entries();
                let length = |index: u32| entries[index as usize].length.unwrap_or(0);
                let missing: u64 = wanted.iter().map(|(index, have)| length(*index) - have).sum();
                let has = self.tree.manifest.total().saturating_sub(missing);
                self.progress.initial.get_or_insert(has);
                self.progress.reach(has);
                Ok(TreeSendStep::Send(wanted))
            }
            TreeReceiverMessage::Progress(position) => {
                self.progress.reach(position);
                (self.observe)(FileTransferEvent::Position(position));
                Ok(TreeSendStep::Nothing)
            }
            TreeReceiverMessage::Done => {
                // If it had everything, it has not listed anything.
                let total = self.tree.manifest.total();
                self.progress.initial.get_or_insert(total);
                (self.observe)(FileTransferEvent::Position(total));
                Ok(TreeSendStep::Done)
            }
            TreeReceiverMessage::Failed(failure) => Err(FileSendError::Refused(failure)),
            TreeReceiverMessage::Broken(error) => Err(FileSendError::Broken(error)),
        }
    }

    /// Takes what has arrived while files are sent: reports of progress, and the end.
    fn take_reports(&mut self) -> Result<(), FileSendError> {
        while let Ok(message) = self.told.try_recv() {
            if !matches!(self.take(message)?, TreeSendStep::Nothing) {
                let what = "the receiver has answered before everything was sent";
                return Err(FileSendError::Broken(io::Error::other(what)));
            }
        }
        Ok(())
    }

    /// The reason for which the receiver has closed the connection, if it arrives soon.
    fn reason(&mut self, error: FileSendError) -> FileSendError {
        let deadline = Instant::now() + END_TIMEOUT;
        if !matches!(error, FileSendError::Broken(_)) {
            return error;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left) {
                Ok(TreeReceiverMessage::Failed(failure)) => return FileSendError::Refused(failure),
                Ok(TreeReceiverMessage::Wanted(_) | TreeReceiverMessage::Progress(_)) => {}
                _ => return error,
            }
        }
    }

    fn send_file(&mut self, index: u32, have: u64) -> Result<(), FileSendError> {
        let entry = &self.tree.manifest.entries()[index as usize];
        let mut file = self.tree.open(&entry.path)?;
        if (Some(file.length), file.attributes) != (entry.length, entry.attributes) {
            return Err(file.changed());
        }
        let mut state = self.digest_of_beginning(&mut file, have)?;
        let start = TreeFileStart { index, offset: have, digest: digest::value(&state) };
        self.put(&start.encode())?;
        let (mut left, mut reported) = (file.length - have, Instant::now());
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(MAX_DATA_LEN).min(MAX_DATA_LEN);
            file.read(&mut self.buffer[..count])?;
            state.update(&self.buffer[..count]);
            self.put(&FileSenderMessage::Data(count).encode())?;
            self.writer.write_all(&self.buffer[..count]).map_err(FileSendError::Broken)?;
            left -= count as u64;
            if reported.elapsed() >= REPORT_INTERVAL {
                self.take_reports()?;
                reported = Instant::now();
            }
        }
        file.check_unchanged()?;
        self.put(&FileSenderMessage::End(digest::value(&state)).encode())
    }

    fn digest_of_beginning(
        &mut self,
        file: &mut OfferedFile,
        len: u64,
    ) -> Result<Sha256, FileSendError> {
        if len == 0 {
            return Ok(Sha256::new());
        }
        (self.observe)(FileTransferEvent::Comparing);
        let (writer, mut broken) = (&mut self.writer, None);
        let report = || {
            let sent = writer.write_all(&FileSenderMessage::Working.encode());
            sent.and_then(|()| writer.flush()).map_err(|error| {
                broken = Some(error);
                io::ErrorKind::BrokenPipe.into()
            })
        };
        let state = file.digest_of_beginning(len, report);
        match broken {
            Some(error) => Err(FileSendError::Broken(error)),
            None => state,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FileSendError> {
        self.writer.write_all(bytes).map_err(FileSendError::Broken)
    }

    fn flush(&mut self) -> Result<(), FileSendError> {
        self.writer.flush().map_err(FileSendError::Broken)
    }
}

/// What follows from a message of the receiver.
enum TreeSendStep {
    Nothing,
    Send(Vec<WantedFile>),
    Done,
}

fn closed() -> FileSendError {
    FileSendError::Broken(io::ErrorKind::UnexpectedEof.into())
}
