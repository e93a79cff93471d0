//! Sends a stream of unknown length, such as standard input, over one connection.
//!
//! It cannot be read twice, so it is not resumed: if the connection breaks, the transfer fails. The
//! receiver takes the stream for complete only if it gets the message with its digest, which is
//! sent after the stream's regular end.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base16ct::lower::encode_string;
use sha2::{Digest, Sha256};

use super::reconnector::Reconnector;
use super::{ConnectionPreferences, FileSendError, first_connection};
use crate::error::Error;
use crate::files::{FileTransferEvent, IDLE_TIMEOUT, REPORT_INTERVAL, digest};
use crate::net::{Connection, ConnectionCloser, ConnectionReader, ConnectionWriter};
use crate::protocol::file::{FileReceiverMessage, FileSenderMessage, MAX_DATA_LEN};
use crate::stream::ConnectionPath;

/// The number of blocks that were read from the stream and wait to be sent.
const MAX_WAITING_BLOCKS: usize = 4;

/// How long to wait for the receiver's last message after the connection has failed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of sending a stream.
#[derive(Clone, Debug)]
pub struct SentStream {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256 digest in hexadecimal digits, which the receiver has verified.
    pub sha256: String,
    /// The name of the transport.
    pub transport: &'static str,
    /// How the connection reached the receiver.
    pub path: ConnectionPath,
    /// The time since the connection was opened.
    pub elapsed: Duration,
}

/// Sends `input` until its end over a connection that `connect` opens. `connect` is called in
/// another thread.
///
/// # Errors
/// If `input` cannot be read, there is no connection or it breaks, or the receiver reports a
/// failure. Then the receiver does not take the stream for complete.
pub fn send_stream(
    input: impl Read + Send + 'static,
    connect: impl Fn(ConnectionPreferences) -> Result<Connection, Error> + Send + Sync + 'static,
    mut observe: impl FnMut(FileTransferEvent<'_>),
) -> Result<SentStream, FileSendError> {
    let connection = first_connection(&mut Reconnector::new(connect), &mut observe)?;
    let start = Instant::now();
    observe(FileTransferEvent::StreamOffered);
    // A receiver whose output waits does not read for a long time, but reports that it is alive.
    connection.set_timeout(None).map_err(FileSendError::Broken)?;
    let (transport, path) = (connection.transport(), connection.path());
    let closer = connection.closer();
    let (reader, writer) = connection.split();
    let blocks = read_in_thread(input).map_err(FileSendError::Stream)?;
    let progress = SharedSentStreamProgress::new();
    let sending = StreamDataWriter { progress: &progress, writer, state: Sha256::new(), bytes: 0 };
    let (progress, closer) = (&progress, &closer);
    let (bytes, digest) = thread::scope(|scope| {
        scope.spawn(move || listen(reader, progress, closer));
        scope.spawn(move || sending.run(&blocks, closer));
        watch(progress, closer, &mut observe)
    })
    .map_err(|error| match error {
        FileSendError::Broken(source) => FileSendError::StreamBroken(source),
        error => error,
    })?;
    let (sha256, elapsed) = (encode_string(&digest), start.elapsed());
    Ok(SentStream { bytes, sha256, transport, path, elapsed })
}

/// What the thread that reads the stream has read.
enum InputBlock {
    Data(Vec<u8>),
    /// The regular end. A thread that panics sends none.
    End,
    Failed(io::Error),
}

/// Reads the stream in blocks, in a thread, because a read may wait forever. The thread ends with
/// the stream, or with the first block that nobody takes.
fn read_in_thread(mut input: impl Read + Send + 'static) -> io::Result<Receiver<InputBlock>> {
    let (blocks, taken) = sync_channel(MAX_WAITING_BLOCKS);
    let reading = move || {
        loop {
            let block = next_block(&mut input);
            let is_last = !matches!(block, InputBlock::Data(_));
            if blocks.send(block).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("stream-input".into()).spawn(reading)?;
    Ok(taken)
}

fn next_block(input: &mut impl Read) -> InputBlock {
    let mut block = vec![0; MAX_DATA_LEN];
    loop {
        match input.read(&mut block) {
            Ok(0) => return InputBlock::End,
            Ok(count) => {
                block.truncate(count);
                return InputBlock::Data(block);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return InputBlock::Failed(error),
        }
    }
}

/// What the threads share.
struct SharedSentStreamProgress {
    state: Mutex<SentStreamProgress>,
    changed: Condvar,
}

struct SentStreamProgress {
    position: u64,
    heard_at: Instant,
    /// The receiver's result, or why no more messages come.
    end: Option<Result<(), FileSendError>>,
    /// The length and the digest of what was sent, or why it was not.
    written: Option<Result<(u64, [u8; 32]), FileSendError>>,
}

impl SharedSentStreamProgress {
    fn new() -> Self {
        let state =
            SentStreamProgress { position: 0, heard_at: Instant::now(), end: None, written: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SentStreamProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut SentStreamProgress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits while `holds` is true, but at most for `limit`.
    fn wait_while(&self, limit: Duration, holds: impl Fn(&SentStreamProgress) -> bool) {
        let _ = self.changed.wait_timeout_while(self.lock(), limit, |state| holds(state));
    }

    fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }
}

/// Reports progress until both threads have ended. Closes the connection if the receiver is silent
/// for too long.
fn watch(
    progress: &SharedSentStreamProgress,
    closer: &ConnectionCloser,
    observe: &mut impl FnMut(FileTransferEvent<'_>),
) -> Result<(u64, [u8; 32]), FileSendError> {
    let mut is_silent = false;
    loop {
        let is_running =
            |state: &SentStreamProgress| state.end.is_none() || state.written.is_none();
        progress.wait_while(REPORT_INTERVAL / 2, is_running);
        let mut state = progress.lock();
        if !is_running(&state) {
            let (end, written) = (state.end.take(), state.written.take());
            return outcome(written, end, is_silent);
        }
        let (position, silence) = (state.position, state.heard_at.elapsed());
        drop(state);
        observe(FileTransferEvent::Position(position));
        if silence >= IDLE_TIMEOUT && !is_silent {
            is_silent = true;
            closer.close();
        }
    }
}

fn outcome(
    written: Option<Result<(u64, [u8; 32]), FileSendError>>,
    end: Option<Result<(), FileSendError>>,
    is_silent: bool,
) -> Result<(u64, [u8; 32]), FileSendError> {
    match (written, end) {
        _ if is_silent => {
            let what = format!("nothing from the receiver for {} s", IDLE_TIMEOUT.as_secs());
            Err(FileSendError::Broken(io::Error::new(io::ErrorKind::TimedOut, what)))
        }
        (Some(Ok(written)), Some(Ok(()))) => Ok(written),
        (Some(Err(error)), _) if !matches!(error, FileSendError::Broken(_)) => Err(error),
        (_, Some(Err(error))) | (Some(Err(error)), _) => Err(error),
        _ => Err(FileSendError::Broken(io::ErrorKind::Other.into())),
    }
}

/// Reads the receiver's messages until the end.
fn listen(
    mut reader: ConnectionReader,
    progress: &SharedSentStreamProgress,
    closer: &ConnectionCloser,
) {
    let end = loop {
        match FileReceiverMessage::read(&mut reader) {
            Ok(FileReceiverMessage::Progress(count)) => {
                progress.update(|state| (state.position, state.heard_at) = (count, Instant::now()));
            }
            Ok(FileReceiverMessage::Done) => break Ok(()),
            Ok(FileReceiverMessage::Failed(failure)) => break Err(FileSendError::Refused(failure)),
            Ok(
                FileReceiverMessage::Have(_)
                | FileReceiverMessage::HaveOlder
                | FileReceiverMessage::WantedChunks(_),
            ) => {
                let what = "the receiver answers as if a file had been offered";
                let error = io::Error::new(io::ErrorKind::InvalidData, what);
                break Err(FileSendError::Broken(error));
            }
            Err(error) => break Err(FileSendError::Broken(error)),
        }
    };
    let has_failed = end.is_err();
    progress.update(|state| state.end = Some(end));
    if has_failed {
        // Unblocks the writer.
        closer.close();
    }
}

/// The writing half.
struct StreamDataWriter<'a> {
    progress: &'a SharedSentStreamProgress,
    writer: ConnectionWriter,
    state: Sha256,
    bytes: u64,
}

impl StreamDataWriter<'_> {
    fn run(mut self, blocks: &Receiver<InputBlock>, closer: &ConnectionCloser) {
        let written = self.send_all(blocks);
        if let Err(error) = &written {
            // The receiver's reason for closing may still be in flight.
            if matches!(error, FileSendError::Broken(_)) {
                self.progress.wait_while(END_TIMEOUT, |state| state.end.is_none());
            }
            closer.close();
        } else if matches!(self.progress.lock().end, Some(Ok(()))) {
            // The receiver sees the end; it has the complete stream.
            let _ = self.writer.finish();
        }
        let result = written.map(|()| (self.bytes, digest::value(&self.state)));
        let progress = self.progress;
        // Closes the connection.
        drop(self);
        progress.update(|state| state.written = Some(result));
    }

    /// Sends until the stream's end and the receiver's result.
    fn send_all(&mut self, blocks: &Receiver<InputBlock>) -> Result<(), FileSendError> {
        self.put(&FileSenderMessage::Stream)?;
        while !self.progress.has_ended() {
            match self.next(blocks)? {
                Some(InputBlock::Data(data)) => {
                    self.put(&FileSenderMessage::Data(data.len()))?;
                    self.state.update(&data);
                    self.writer.write_all(&data).map_err(FileSendError::Broken)?;
                    self.bytes += data.len() as u64;
                }
                Some(InputBlock::End) => {
                    self.put(&FileSenderMessage::End(digest::value(&self.state)))?;
                    self.flush()?;
                    self.progress.wait_while(Duration::MAX, |state| state.end.is_none());
                }
                Some(InputBlock::Failed(error)) => return Err(FileSendError::Stream(error)),
                None => self.put(&FileSenderMessage::Working)?,
            }
        }
        Ok(())
    }

    /// The next block; `None` if none comes for a while. What was written before is sent meanwhile.
    fn next(&mut self, blocks: &Receiver<InputBlock>) -> Result<Option<InputBlock>, FileSendError> {
        if let Ok(block) = blocks.try_recv() {
            return Ok(Some(block));
        }
        self.flush()?;
        match blocks.recv_timeout(REPORT_INTERVAL) {
            Ok(block) => Ok(Some(block)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(FileSendError::Stream(io::Error::other("the thread that reads it has failed")))
            }
        }
    }

    fn put(&mut self, message: &FileSenderMessage) -> Result<(), FileSendError> {
        self.writer.write_all(&message.encode()).map_err(FileSendError::Broken)
    }

    fn flush(&mut self) -> Result<(), FileSendError> {
        self.writer.flush().map_err(FileSendError::Broken)
    }
}
