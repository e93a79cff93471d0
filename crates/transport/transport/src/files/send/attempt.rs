//! An attempt to send the file on one connection.

mod chunks;

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base16ct::lower::encode_string;
use sha2::{Digest, Sha256};

use super::offered::OfferedFile;
use super::reconnector::{ConnectFunction, Reconnector};
use super::{ConnectionPreferences, FileSendError};
use crate::files::{FileTransferEvent, IDLE_TIMEOUT, REPORT_INTERVAL, digest};
use crate::net::{Connection, ConnectionCloser, ConnectionReader, ConnectionWriter};
use crate::protocol::file::{
    FileChunkList, FileChunkRun, FileReceiverMessage, FileSenderMessage, MAX_DATA_LEN, invalid,
};

/// How long the receiver may be silent before another connection is tried. It reports progress
/// every half second.
const MAX_SILENCE: Duration = Duration::from_millis(2500);

/// How long a connection over UDP may be much slower than its path before TCP is tried.
const MAX_THROTTLED: Duration = Duration::from_millis(400);

/// How much faster TCP must be, as a factor, for UDP to be avoided on the path.
const MIN_TCP_SPEEDUP: f64 = 1.3;

/// How long to wait for the receiver's last message after the connection has failed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The outcome of an attempt.
pub(super) enum SendAttemptOutcome {
    /// The receiver has the file, with this digest.
    Complete(String),
    /// The connection was silent or slow, and another one is open.
    Replaced {
        by: Connection,
        /// If it used UDP, and the path has not failed for TCP: its rate in bytes/s; 0 if it was
        /// silent.
        rate: Option<f64>,
    },
    Failed {
        error: FileSendError,
        /// The preferences for the next connection.
        preferences: ConnectionPreferences,
    },
}

/// See [the module](self).
pub(super) struct SendAttempt<'a> {
    file: &'a mut OfferedFile,
    /// Whether data is sent before the receiver has reported what it has.
    is_eager: bool,
    /// The rate of the UDP connection that this one replaces, in bytes/s.
    udp_rate: Option<f64>,
    progress: SharedSendProgress,
}

/// The state that the threads share: what the receiver has reported, and the progress of writing.
struct SharedSendProgress {
    state: Mutex<SendProgress>,
    changed: Condvar,
}

struct SendProgress {
    request: Option<FileRequest>,
    /// What the receiver had at the start.
    initial_position: Option<u64>,
    /// When the receiver reported that.
    began_at: Option<Instant>,
    position: u64,
    heard_at: Instant,
    is_comparing: bool,
    /// Whether the connection was ever silent. If so, its duration does not predict the next one's.
    was_silent: bool,
    /// Whether only some chunks are sent. If so, the position does not show how fast the path is.
    sends_chunks: bool,
    /// The receiver's result, or why no more messages come.
    end: Option<Result<(), FileSendError>>,
    /// The result of writing.
    written: Option<Result<String, FileSendError>>,
}

/// What the receiver has asked for.
enum FileRequest {
    /// All data from this offset.
    DataFrom(u64),
    /// The list of chunks.
    Chunks,
    /// The data of these chunks.
    WantedChunks(Vec<FileChunkRun>),
}

impl SendProgress {
    /// Whether the receiver has the complete file.
    fn is_complete(&self) -> bool {
        matches!(self.end, Some(Ok(())))
    }

    /// Whether the receiver has asked for something, or the transfer has ended.
    fn has_news(&self) -> bool {
        self.request.is_some() || self.end.is_some()
    }

    /// Whether the connection has carried the whole file without interruption.
    fn is_unbroken(&self) -> bool {
        self.initial_position.unwrap_or(0) == 0 && !self.was_silent && !self.sends_chunks
    }

    /// The rate since the receiver reported its initial position, in bytes/s.
    #[expect(clippy::cast_precision_loss, reason = "bytes")]
    fn rate(&self, position: u64) -> f64 {
        let arrived = position.saturating_sub(self.initial_position.unwrap_or(0));
        let time = self.began_at.map_or(0.0, |at| at.elapsed().as_secs_f64());
        arrived as f64 / time.max(1e-3)
    }
}

impl SharedSendProgress {
    fn new() -> Self {
        let state = SendProgress {
            request: None,
            initial_position: None,
            began_at: None,
            position: 0,
            heard_at: Instant::now(),
            is_comparing: false,
            was_silent: false,
            sends_chunks: false,
            end: None,
            written: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SendProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut SendProgress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits while `holds` is true, but at most for `limit`.
    fn wait_while(&self, limit: Duration, holds: impl Fn(&SendProgress) -> bool) {
        let _ = self.changed.wait_timeout_while(self.lock(), limit, |state| holds(state));
    }
}

impl<'a> SendAttempt<'a> {
    /// `udp_rate`: in bytes/s, if this connection replaces one over UDP.
    pub(super) fn new(file: &'a mut OfferedFile, is_eager: bool, udp_rate: Option<f64>) -> Self {
        Self { file, is_eager, udp_rate, progress: SharedSendProgress::new() }
    }

    /// What the receiver had at the start, and has now, in bytes, as far as is known.
    pub(super) fn initial_and_current_position(&self) -> (Option<u64>, u64) {
        let state = self.progress.lock();
        (state.initial_position, state.position)
    }

    /// Sends what the receiver does not have of the file.
    pub(super) fn run<C: ConnectFunction>(
        &mut self,
        connection: Connection,
        successor: &mut Reconnector<C>,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> SendAttemptOutcome {
        let failed = |error| SendAttemptOutcome::Failed {
            error,
            preferences: ConnectionPreferences::default(),
        };
        if let Err(error) = connection.set_timeout(Some(IDLE_TIMEOUT)) {
            return failed(FileSendError::Broken(error));
        }
        let transport = connection.transport();
        let is_udp = connection.is_over_udp();
        let closer = connection.closer();
        let (reader, writer) = connection.split();
        let (progress, length) = (&self.progress, self.file.length);
        let writing = FileDataWriter {
            file: &mut *self.file,
            is_eager: self.is_eager,
            progress,
            writer,
            state: Sha256::new(),
            buffer: vec![0; MAX_DATA_LEN],
            offset: 0,
            list: None,
            has_listed: false,
        };
        thread::scope(|scope| {
            scope.spawn(|| listen(reader, progress, &closer));
            scope.spawn(|| writing.run(&closer));
            let mut watching = SendAttemptWatcher {
                progress,
                closer: &closer,
                transport,
                is_udp,
                length,
                udp_rate: self.udp_rate,
                is_silent: false,
                may_be_throttled_since: None,
            };
            let next = watching.run(successor, observe);
            if next.is_some() {
                closer.close();
            }
            let is_of_udp = is_udp && successor.was_quick();
            let rate = is_of_udp.then(|| if watching.is_silent { 0.0 } else { watching.rate() });
            // Now both threads end, one after the other.
            progress
                .wait_while(Duration::MAX, |state| state.end.is_none() || state.written.is_none());
            let mut state = progress.lock();
            let was_silent = state.heard_at.elapsed() >= MAX_SILENCE;
            let (end, written) = (state.end.take(), state.written.take());
            drop(state);
            match (written, end, next) {
                (Some(Err(error)), ..) if !error.is_of_connection() => failed(error),
                (Some(Ok(sha256)), Some(Ok(())), _) => {
                    watching.compare(length);
                    observe(FileTransferEvent::Position(length));
                    SendAttemptOutcome::Complete(sha256)
                }
                (.., Some(by)) => SendAttemptOutcome::Replaced { by, rate },
                (_, Some(Err(error)), _) | (Some(Err(error)), ..) => {
                    let preferences = ConnectionPreferences {
                        avoids_udp: was_silent && is_udp,
                        has_short_segments: was_silent,
                    };
                    SendAttemptOutcome::Failed { error, preferences }
                }
                _ => failed(FileSendError::Broken(io::ErrorKind::Other.into())),
            }
        })
    }
}

/// Monitors a connection.
struct SendAttemptWatcher<'a> {
    progress: &'a SharedSendProgress,
    closer: &'a ConnectionCloser,
    transport: &'static str,
    is_udp: bool,
    length: u64,
    udp_rate: Option<f64>,
    is_silent: bool,
    may_be_throttled_since: Option<Instant>,
}

impl SendAttemptWatcher<'_> {
    /// Reports events until both threads have ended, or until another connection is open to replace
    /// this one, which is silent or slow: then returns that connection.
    fn run<C: ConnectFunction>(
        &mut self,
        successor: &mut Reconnector<C>,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Option<Connection> {
        loop {
            self.progress.wait_while(REPORT_INTERVAL / 4, |state| state.end.is_none());
            let (position, is_comparing, is_over) = {
                let state = self.progress.lock();
                let is_over = state.end.is_some() || state.written.is_some();
                (state.position, state.is_comparing, is_over)
            };
            if is_over {
                return None;
            }
            observe(if is_comparing {
                FileTransferEvent::Comparing
            } else {
                FileTransferEvent::Position(position)
            });
            self.compare(position);
            if !self.needs_another(observe) {
                successor.cancel();
                continue;
            }
            let preferences = ConnectionPreferences {
                avoids_udp: self.is_udp,
                has_short_segments: self.is_silent,
            };
            match successor.poll(preferences) {
                None => {}
                Some(Ok(connection)) => {
                    if !self.is_silent {
                        let (transport, rate) = (self.transport, self.rate());
                        observe(FileTransferEvent::Slow {
                            transport,
                            rate,
                            by: connection.transport(),
                        });
                    }
                    return Some(connection);
                }
                Some(Err(error)) => {
                    let pause = successor.note_failure();
                    observe(FileTransferEvent::Broken {
                        error: &FileSendError::Connect(error),
                        pause,
                    });
                }
            }
        }
    }

    /// Whether to open another connection, which may be better.
    fn needs_another(&mut self, observe: &mut impl FnMut(FileTransferEvent<'_>)) -> bool {
        let silence = self.progress.lock().heard_at.elapsed();
        let was_silent = std::mem::replace(&mut self.is_silent, silence >= MAX_SILENCE);
        if self.is_silent && !was_silent {
            self.progress.lock().was_silent = true;
            observe(FileTransferEvent::Silent { transport: self.transport, silence });
        }
        self.is_silent || self.may_be_throttled()
    }

    /// Whether TCP may be faster for the rest of the file.
    fn may_be_throttled(&mut self) -> bool {
        let state = self.progress.lock();
        let is_judged = state.initial_position.is_some() && !state.sends_chunks;
        let is_late = self.length.saturating_sub(state.position) < self.length / 8;
        if !is_judged || is_late || !self.closer.may_be_throttled() {
            self.may_be_throttled_since = None;
            return false;
        }
        let since = *self.may_be_throttled_since.get_or_insert_with(Instant::now);
        since.elapsed() >= MAX_THROTTLED
    }

    /// The rate of this connection, in bytes/s.
    fn rate(&self) -> f64 {
        let state = self.progress.lock();
        state.rate(state.position)
    }

    /// Compares this connection, on which the receiver has reached `position`, with the earlier one
    /// over UDP.
    fn compare(&mut self, position: u64) {
        let state = self.progress.lock();
        if state.sends_chunks {
            return;
        }
        let rate = state.rate(position);
        drop(state);
        if self.udp_rate.is_some_and(|udp_rate| rate > udp_rate * MIN_TCP_SPEEDUP) {
            self.udp_rate = None;
            self.closer.udp_was_slower();
        }
    }
}

/// Reads the receiver's messages until the end.
fn listen(mut reader: ConnectionReader, progress: &SharedSendProgress, closer: &ConnectionCloser) {
    loop {
        let message = FileReceiverMessage::read(&mut reader);
        let end = match message {
            Ok(FileReceiverMessage::Have(count)) => {
                progress.update(|state| {
                    let now = Instant::now();
                    (state.request, state.heard_at) = (Some(FileRequest::DataFrom(count)), now);
                    state.initial_position.get_or_insert(count);
                    state.began_at.get_or_insert(now);
                });
                continue;
            }
            Ok(FileReceiverMessage::HaveOlder) => {
                progress.update(|state| {
                    (state.request, state.sends_chunks) = (Some(FileRequest::Chunks), true);
                    state.heard_at = Instant::now();
                });
                continue;
            }
            Ok(FileReceiverMessage::WantedChunks(runs)) => {
                progress.update(|state| {
                    state.request = Some(FileRequest::WantedChunks(runs));
                    state.heard_at = Instant::now();
                });
                continue;
            }
            Ok(FileReceiverMessage::Progress(count)) => {
                progress.update(|state| (state.position, state.heard_at) = (count, Instant::now()));
                continue;
            }
            Ok(FileReceiverMessage::Done) => Ok(()),
            Ok(FileReceiverMessage::Failed(failure)) => Err(FileSendError::Refused(failure)),
            Err(error) => Err(FileSendError::Broken(error)),
        };
        let has_failed = end.is_err();
        progress.update(|state| state.end = Some(end));
        if has_failed {
            // Unblocks the writer.
            closer.close();
        }
        return;
    }
}

/// The writing half.
struct FileDataWriter<'a> {
    file: &'a mut OfferedFile,
    is_eager: bool,
    progress: &'a SharedSendProgress,
    writer: ConnectionWriter,
    state: Sha256,
    buffer: Vec<u8>,
    /// The file offset of the next data.
    offset: u64,
    /// The chunks that the receiver can ask for, once.
    list: Option<FileChunkList>,
    has_listed: bool,
}

impl FileDataWriter<'_> {
    fn run(mut self, closer: &ConnectionCloser) {
        let written = self.send_all();
        if let Err(error) = &written {
            // The receiver's reason for closing may still be in flight.
            if error.is_of_connection() {
                self.progress.wait_while(END_TIMEOUT, |state| state.end.is_none());
            }
            closer.close();
        } else if self.progress.lock().is_complete() {
            if self.progress.lock().is_unbroken() {
                self.writer.complete();
            }
            // The receiver sees the end; it has the complete file.
            let _ = self.writer.finish();
        }
        let digest = encode_string(&digest::value(&self.state));
        let progress = self.progress;
        // Closes the connection.
        drop(self);
        progress.update(|state| state.written = Some(written.map(|()| digest)));
    }

    /// Sends until the receiver has reported a result.
    fn send_all(&mut self) -> Result<(), FileSendError> {
        let (is_eager, length) = (self.is_eager, self.file.length);
        let (name, attributes) = (self.file.name.clone(), self.file.attributes);
        self.file.seek(0)?;
        self.put(&FileSenderMessage::Offer { is_eager, length, attributes, name })?;
        self.flush()?;
        let (mut is_waiting, mut has_ended, mut is_first) = (!is_eager, false, true);
        loop {
            let (request, is_over) = {
                let mut state = self.progress.lock();
                (state.request.take(), state.end.is_some())
            };
            if is_over {
                return Ok(());
            }
            if let Some(request) = request {
                match request {
                    FileRequest::DataFrom(0) if is_first => is_waiting = false,
                    FileRequest::DataFrom(have) => {
                        self.start(have)?;
                        (is_waiting, has_ended) = (false, false);
                    }
                    FileRequest::Chunks => {
                        self.list = Some(self.send_list()?);
                        is_waiting = true;
                    }
                    FileRequest::WantedChunks(runs) => {
                        self.send_chunks(&runs)?;
                        (is_waiting, has_ended) = (false, false);
                    }
                }
                is_first = false;
            } else if is_waiting || has_ended {
                self.progress.wait_while(REPORT_INTERVAL, |state| !state.has_news());
            } else if self.offset < length {
                self.send_next()?;
            } else {
                self.file.check_unchanged()?;
                self.put(&FileSenderMessage::End(digest::value(&self.state)))?;
                self.flush()?;
                has_ended = true;
            }
        }
    }

    /// Continues with what the receiver does not have.
    fn start(&mut self, have: u64) -> Result<(), FileSendError> {
        if have > self.file.length {
            let error = invalid("the receiver claims more data than the file has");
            return Err(FileSendError::Broken(error));
        }
        self.progress.update(|state| state.is_comparing = true);
        let (writer, mut broken) = (&mut self.writer, None);
        let report = || {
            let sent = writer.write_all(&FileSenderMessage::Working.encode());
            sent.and_then(|()| writer.flush()).map_err(|error| {
                broken = Some(error);
                io::ErrorKind::BrokenPipe.into()
            })
        };
        let state = self.file.digest_of_beginning(have, report);
        self.state = match broken {
            Some(error) => return Err(FileSendError::Broken(error)),
            None => state?,
        };
        self.progress.update(|state| state.is_comparing = false);
        self.offset = have;
        self.put(&FileSenderMessage::Start { offset: have, digest: digest::value(&self.state) })
    }

    fn send_next(&mut self) -> Result<(), FileSendError> {
        let left = self.file.length - self.offset;
        let count = usize::try_from(left).unwrap_or(MAX_DATA_LEN).min(MAX_DATA_LEN);
        self.file.read(&mut self.buffer[..count])?;
        self.put(&FileSenderMessage::Data(count))?;
        let data = &self.buffer[..count];
        self.state.update(data);
        self.writer.write_all(data).map_err(FileSendError::Broken)?;
        self.offset += count as u64;
        Ok(())
    }

    fn put(&mut self, message: &FileSenderMessage) -> Result<(), FileSendError> {
        self.writer.write_all(&message.encode()).map_err(FileSendError::Broken)
    }

    fn flush(&mut self) -> Result<(), FileSendError> {
        self.writer.flush().map_err(FileSendError::Broken)
    }
}
