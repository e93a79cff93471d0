//! Sending a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::{Event, IDLE_TIMEOUT, REPORT_INTERVAL, digest};
use crate::error::Error;
use crate::net::{Closer, Connection, Reader, Writer};
use crate::protocol::file::{
    Failure, FailureReason, FileName, FileNameError, FromReceiver, FromSender, MAX_DATA_LEN,
};

/// The most attempts in a row that bring nothing further.
const MAX_ATTEMPTS: u32 = 6;

/// The pause before the second attempt in a row; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How long what the receiver has said last may take after the connection has failed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a file was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a file.
    #[error("{}: only a regular file can be sent", .path.display())]
    Kind {
        /// What it is not.
        path: PathBuf,
    },
    /// Its name is one that no receiver accepts.
    #[error("{}: {source}; rename it", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// Why.
        source: FileNameError,
    },
    /// It has become shorter.
    #[error("{} became shorter while it was sent; send it again", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] Error),
    /// The connection has broken.
    #[error("while the file was sent: {0}")]
    Broken(#[source] io::Error),
    /// The receiver gives up.
    #[error("the receiver says: {0}")]
    Refused(#[source] Failure),
}

impl SendError {
    /// Whether another attempt can end otherwise.
    fn is_passing(&self) -> bool {
        match self {
            Self::Connect(error) => !error.is_security(),
            Self::Broken(error) => !Error::of(error).is_some_and(Error::is_security),
            Self::Refused(failure) => failure.reason == FailureReason::Busy,
            _ => false,
        }
    }
}

/// What was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The name under which it was offered.
    pub name: FileName,
    /// Its length in bytes.
    pub bytes: u64,
    /// How many of them the receiver had already when the first connection was made.
    pub resumed_from: u64,
    /// Its SHA-256 digest, in hexadecimal digits, which the receiver has checked.
    pub sha256: String,
    /// How many connections there were.
    pub connections: u32,
    /// The name of the last one's transport.
    pub transport: &'static str,
    /// From the first connection on.
    pub elapsed: Duration,
}

/// Sends a file over connections that `connect` makes. If one breaks, it makes another one after a
/// pause and goes on with what the receiver does not have, until six in a row have brought nothing.
///
/// # Errors
/// When the file cannot be read, there is no first connection, the receiver gives up, or
/// connections break again and again.
pub fn send(
    path: &Path,
    mut connect: impl FnMut() -> Result<Connection, Error>,
    mut observe: impl FnMut(Event<'_>),
) -> Result<Sent, SendError> {
    let mut file = OfferedFile::open(path)?;
    observe(Event::Offered { name: &file.name, length: file.length });
    let start = Instant::now();
    let (mut connections, mut attempts, mut reached) = (0, 0, 0);
    let mut resumed_from = None;
    loop {
        let attempted = match connect() {
            Ok(connection) => {
                connections += 1;
                let transport = connection.transport();
                let mut attempt = Attempt::new(&mut file, connections == 1);
                let result = attempt.run(connection, &mut observe);
                let Attempt { had, position, .. } = attempt;
                resumed_from = resumed_from.or(had);
                if position > reached {
                    (reached, attempts) = (position, 0);
                }
                result.map(|sha256| (sha256, transport))
            }
            // What was never there cannot have broken.
            Err(error) if connections == 0 => return Err(error.into()),
            Err(error) => Err(error.into()),
        };
        match attempted {
            Ok((sha256, transport)) => {
                return Ok(Sent {
                    name: file.name,
                    bytes: file.length,
                    resumed_from: resumed_from.unwrap_or(0),
                    sha256,
                    connections,
                    transport,
                    elapsed: start.elapsed(),
                });
            }
            Err(error) => {
                attempts += 1;
                if !error.is_passing() || attempts >= MAX_ATTEMPTS {
                    return Err(error);
                }
                let pause = FIRST_PAUSE * 2_u32.pow(attempts - 1);
                observe(Event::Broken { error: &error, pause });
                thread::sleep(pause);
            }
        }
    }
}

/// The file that is offered.
struct OfferedFile {
    path: PathBuf,
    name: FileName,
    file: File,
    length: u64,
}

impl OfferedFile {
    fn open(path: &Path) -> Result<Self, SendError> {
        let path = path.to_owned();
        let failed = |source| SendError::File { path: path.clone(), source };
        // A pipe would wait for its writer.
        let kind = std::fs::metadata(&path).map_err(failed)?;
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let name = FileName::parse(name);
        if !kind.is_file() {
            return Err(SendError::Kind { path });
        }
        let name = name.map_err(|source| SendError::Name { path: path.clone(), source })?;
        let file = File::open(&path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(Self { path, name, file, length })
    }

    fn seek(&mut self, to: u64) -> Result<(), SendError> {
        let sought = self.file.seek(SeekFrom::Start(to));
        sought.map(|_| ()).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> SendError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => SendError::Changed { path },
            _ => SendError::File { path, source },
        }
    }
}

/// What the receiver has said, as the thread that reads it tells the one that sends.
#[derive(Default)]
struct Said {
    state: Mutex<SaidState>,
    changed: Condvar,
}

#[derive(Default)]
struct SaidState {
    have: Option<u64>,
    position: u64,
    end: Option<Result<(), SendError>>,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, SaidState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut SaidState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits for the end, but not for long.
    fn wait_for_end(&self) {
        let is_missing = |state: &mut SaidState| state.end.is_none();
        let _ = self.changed.wait_timeout_while(self.lock(), END_TIMEOUT, is_missing);
    }

    /// Waits a moment for something new.
    fn wait(&self) {
        let state = self.lock();
        if state.have.is_none() && state.end.is_none() {
            let _ = self.changed.wait_timeout(state, REPORT_INTERVAL);
        }
    }
}

/// One connection's attempt to send the file.
struct Attempt<'a> {
    file: &'a mut OfferedFile,
    /// Whether data is sent before the receiver has said what it has.
    is_eager: bool,
    /// What the receiver had when it began.
    had: Option<u64>,
    /// What the receiver has now, as far as is known.
    position: u64,
    said: Said,
    state: Sha256,
    buffer: Vec<u8>,
    /// Where the next data is from.
    offset: u64,
}

impl<'a> Attempt<'a> {
    fn new(file: &'a mut OfferedFile, is_eager: bool) -> Self {
        Self {
            file,
            is_eager,
            had: None,
            position: 0,
            said: Said::default(),
            state: Sha256::new(),
            buffer: vec![0; MAX_DATA_LEN],
            offset: 0,
        }
    }

    /// Returns the digest.
    fn run(
        &mut self,
        connection: Connection,
        observe: &mut impl FnMut(Event<'_>),
    ) -> Result<String, SendError> {
        connection.set_timeout(Some(IDLE_TIMEOUT)).map_err(SendError::Broken)?;
        let closer = connection.closer();
        let (reader, mut writer) = connection.split();
        let said = std::mem::take(&mut self.said);
        thread::scope(|scope| {
            let listening = scope.spawn(|| listen(reader, &said, &closer));
            let result = self.send_all(&mut writer, &said, observe);
            if result.is_err() {
                // Why the receiver takes no more may be on its way.
                if matches!(result, Err(SendError::Broken(_))) {
                    said.wait_for_end();
                }
                closer.close();
            }
            let _ = listening.join();
            let end = said.lock().end.take();
            self.position = self.position.max(said.lock().position);
            match (result, end) {
                (Err(error @ (SendError::File { .. } | SendError::Changed { .. })), _) => {
                    Err(error)
                }
                (_, Some(Err(error))) | (Err(error), _) => Err(error),
                (Ok(()), _) => {
                    observe(Event::Position(self.file.length));
                    if self.had.unwrap_or(0) == 0 {
                        writer.complete();
                    }
                    // The receiver sees the end; it has all.
                    let _ = writer.finish();
                    Ok(digest::text(&digest::value(&self.state)))
                }
            }
        })
    }

    /// Sends until the receiver has said how it ended.
    fn send_all(
        &mut self,
        writer: &mut Writer,
        said: &Said,
        observe: &mut impl FnMut(Event<'_>),
    ) -> Result<(), SendError> {
        let (is_eager, length) = (self.is_eager, self.file.length);
        let name = self.file.name.clone();
        self.file.seek(0)?;
        put(writer, &FromSender::Offer { is_eager, length, name })?;
        writer.flush().map_err(SendError::Broken)?;
        let mut is_waiting = !is_eager;
        let (mut has_ended, mut shown) = (false, Instant::now());
        loop {
            let (have, position, is_over) = {
                let mut state = said.lock();
                (state.have.take(), state.position, state.end.is_some())
            };
            if is_over {
                return Ok(());
            }
            if shown.elapsed() >= REPORT_INTERVAL / 4 {
                observe(Event::Position(position));
                shown = Instant::now();
            }
            if let Some(have) = have {
                let is_first = self.had.is_none();
                self.had.get_or_insert(have);
                if have > 0 || !is_first {
                    self.start(writer, have, observe)?;
                    has_ended = false;
                }
                is_waiting = false;
            } else if is_waiting || has_ended {
                said.wait();
            } else if self.offset < length {
                self.send_next(writer)?;
            } else {
                put(writer, &FromSender::End(digest::value(&self.state)))?;
                writer.flush().map_err(SendError::Broken)?;
                has_ended = true;
            }
        }
    }

    /// Goes on with what the receiver does not have.
    fn start(
        &mut self,
        writer: &mut Writer,
        have: u64,
        observe: &mut impl FnMut(Event<'_>),
    ) -> Result<(), SendError> {
        if have > self.file.length {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the receiver has too much");
            return Err(SendError::Broken(error));
        }
        observe(Event::Comparing);
        self.file.seek(0)?;
        let mut broken = None;
        let report = || {
            let sent = put(writer, &FromSender::Working)
                .and_then(|()| writer.flush().map_err(SendError::Broken));
            sent.map_err(|error| {
                broken = Some(error);
                io::ErrorKind::BrokenPipe.into()
            })
        };
        let state = digest::of_beginning(&mut self.file.file, have, report);
        self.state = match (state, broken) {
            (_, Some(error)) => return Err(error),
            (Err(error), None) => return Err(self.file.failed(error)),
            (Ok(state), None) => state,
        };
        self.offset = have;
        put(writer, &FromSender::Start { offset: have, digest: digest::value(&self.state) })
    }

    fn send_next(&mut self, writer: &mut Writer) -> Result<(), SendError> {
        let left = self.file.length - self.offset;
        let count = usize::try_from(left).unwrap_or(MAX_DATA_LEN).min(MAX_DATA_LEN);
        let data = &mut self.buffer[..count];
        let read = self.file.file.read_exact(data);
        if let Err(error) = read {
            return Err(self.file.failed(error));
        }
        self.state.update(&*data);
        put(writer, &FromSender::Data(count))?;
        writer.write_all(data).map_err(SendError::Broken)?;
        self.offset += count as u64;
        Ok(())
    }
}

fn put(writer: &mut Writer, message: &FromSender) -> Result<(), SendError> {
    writer.write_all(&message.encode()).map_err(SendError::Broken)
}

/// Takes what the receiver says, to the end.
fn listen(mut reader: Reader, said: &Said, closer: &Closer) {
    loop {
        let end = match FromReceiver::read(&mut reader) {
            Ok(FromReceiver::Have(count)) => {
                said.update(|state| state.have = Some(count));
                continue;
            }
            Ok(FromReceiver::Progress(count)) => {
                said.update(|state| state.position = count);
                continue;
            }
            Ok(FromReceiver::Done) => Ok(()),
            Ok(FromReceiver::Failed(failure)) => Err(SendError::Refused(failure)),
            Err(error) => Err(SendError::Broken(error)),
        };
        let has_failed = end.is_err();
        said.update(|state| state.end = Some(end));
        if has_failed {
            // Whoever writes need not wait.
            closer.close();
        }
        return;
    }
}
