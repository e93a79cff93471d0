//! One connection's attempt to send the file.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::SendError;
use super::offered::OfferedFile;
use super::successor::Successor;
use crate::error::Error;
use crate::files::{Event, IDLE_TIMEOUT, REPORT_INTERVAL, digest};
use crate::net::{Closer, Connection, Reader, Writer};
use crate::protocol::file::{FromReceiver, FromSender, MAX_DATA_LEN};

/// How long the receiver may be silent before another connection is tried. It reports what has
/// arrived each half second.
const MAX_SILENCE: Duration = Duration::from_millis(2500);

/// How long what the receiver has said last may take after the connection has failed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How an attempt has ended.
pub(super) enum Outcome {
    /// The receiver has the file, with this digest.
    Complete(String),
    /// The connection was silent until this one was there.
    Replaced(Connection),
    Failed {
        error: SendError,
        was_silent_over_udp: bool,
    },
}

/// See [the module](self).
pub(super) struct Attempt<'a> {
    file: &'a mut OfferedFile,
    /// Whether data is sent before the receiver has said what it has.
    is_eager: bool,
    said: Said,
}

/// What the receiver has said, and how writing is going, as the threads tell each other.
struct Said {
    state: Mutex<SaidState>,
    changed: Condvar,
}

struct SaidState {
    have: Option<u64>,
    /// What it had at the beginning.
    had: Option<u64>,
    position: u64,
    heard_at: Instant,
    is_comparing: bool,
    /// What the receiver has said last, or why nothing more comes.
    end: Option<Result<(), SendError>>,
    /// How writing has ended.
    written: Option<Result<String, SendError>>,
}

impl Said {
    fn new() -> Self {
        let state = SaidState {
            have: None,
            had: None,
            position: 0,
            heard_at: Instant::now(),
            is_comparing: false,
            end: None,
            written: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SaidState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut SaidState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits while this holds, but not longer than that.
    fn wait_while(&self, limit: Duration, holds: impl Fn(&SaidState) -> bool) {
        let _ = self.changed.wait_timeout_while(self.lock(), limit, |state| holds(state));
    }
}

impl<'a> Attempt<'a> {
    pub(super) fn new(file: &'a mut OfferedFile, is_eager: bool) -> Self {
        Self { file, is_eager, said: Said::new() }
    }

    /// What the receiver had when it began, and has now, in bytes, as far as is known.
    pub(super) fn had_and_has(&self) -> (Option<u64>, u64) {
        let state = self.said.lock();
        (state.had, state.position)
    }

    /// Sends the file, or what the receiver does not have of it.
    pub(super) fn run<C: Fn(bool) -> Result<Connection, Error> + Send + Sync + 'static>(
        &mut self,
        connection: Connection,
        successor: &mut Successor<C>,
        observe: &mut impl FnMut(Event<'_>),
    ) -> Outcome {
        let failed = |error| Outcome::Failed { error, was_silent_over_udp: false };
        if let Err(error) = connection.set_timeout(Some(IDLE_TIMEOUT)) {
            return failed(SendError::Broken(error));
        }
        let transport = connection.transport();
        let is_udp = connection.is_over_udp();
        let closer = connection.closer();
        let (reader, writer) = connection.split();
        let (said, length) = (&self.said, self.file.length);
        let writing = Writing {
            file: &mut *self.file,
            is_eager: self.is_eager,
            said,
            writer,
            state: Sha256::new(),
            buffer: vec![0; MAX_DATA_LEN],
            offset: 0,
        };
        thread::scope(|scope| {
            scope.spawn(|| listen(reader, said, &closer));
            scope.spawn(|| writing.run(&closer));
            let next = watch(said, transport, is_udp, successor, observe);
            if next.is_some() {
                closer.close();
            }
            // Both threads end now, one after the other.
            said.wait_while(Duration::MAX, |state| state.end.is_none() || state.written.is_none());
            let mut state = said.lock();
            let was_silent = state.heard_at.elapsed() >= MAX_SILENCE;
            let (end, written) = (state.end.take(), state.written.take());
            drop(state);
            match (written, end, next) {
                (Some(Err(error)), ..) if !matches!(error, SendError::Broken(_)) => failed(error),
                (Some(Ok(sha256)), Some(Ok(())), _) => {
                    observe(Event::Position(length));
                    Outcome::Complete(sha256)
                }
                (.., Some(next)) => Outcome::Replaced(next),
                (_, Some(Err(error)), _) | (Some(Err(error)), ..) => {
                    Outcome::Failed { error, was_silent_over_udp: was_silent && is_udp }
                }
                _ => failed(SendError::Broken(io::ErrorKind::Other.into())),
            }
        })
    }
}

/// Tells what happens until both threads have ended, or another connection takes the place of this
/// one, which is silent: that one is returned.
fn watch<C: Fn(bool) -> Result<Connection, Error> + Send + Sync + 'static>(
    said: &Said,
    transport: &'static str,
    is_udp: bool,
    successor: &mut Successor<C>,
    observe: &mut impl FnMut(Event<'_>),
) -> Option<Connection> {
    let mut is_silent = false;
    loop {
        said.wait_while(REPORT_INTERVAL / 4, |state| state.end.is_none());
        let (position, silence, is_comparing, is_over) = {
            let state = said.lock();
            let is_over = state.end.is_some() || state.written.is_some();
            (state.position, state.heard_at.elapsed(), state.is_comparing, is_over)
        };
        if is_over {
            return None;
        }
        observe(if is_comparing { Event::Comparing } else { Event::Position(position) });
        if silence < MAX_SILENCE {
            if std::mem::take(&mut is_silent) {
                successor.cancel();
            }
            continue;
        }
        if !is_silent {
            observe(Event::Silent { transport, silence });
            is_silent = true;
        }
        match successor.poll(is_udp) {
            None => {}
            Some(Ok(connection)) => return Some(connection),
            Some(Err(error)) => {
                let pause = successor.has_failed();
                observe(Event::Broken { error: &SendError::Connect(error), pause });
            }
        }
    }
}

/// Takes what the receiver says, to the end.
fn listen(mut reader: Reader, said: &Said, closer: &Closer) {
    let mut had_progressed = false;
    loop {
        let message = FromReceiver::read(&mut reader);
        let end = match message {
            Ok(FromReceiver::Have(count)) => {
                said.update(|state| {
                    (state.have, state.heard_at) = (Some(count), Instant::now());
                    state.had.get_or_insert(count);
                });
                continue;
            }
            Ok(FromReceiver::Progress(count)) => {
                let mut has_progressed = false;
                said.update(|state| {
                    has_progressed = count > state.position.max(state.had.unwrap_or(0));
                    (state.position, state.heard_at) = (count, Instant::now());
                });
                if has_progressed && !std::mem::replace(&mut had_progressed, true) {
                    reader.has_progressed();
                }
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
        } else {
            reader.has_progressed();
        }
        return;
    }
}

/// The half that sends.
struct Writing<'a> {
    file: &'a mut OfferedFile,
    is_eager: bool,
    said: &'a Said,
    writer: Writer,
    state: Sha256,
    buffer: Vec<u8>,
    /// Where the next data is from.
    offset: u64,
}

impl Writing<'_> {
    fn run(mut self, closer: &Closer) {
        let written = self.send_all();
        if let Err(error) = &written {
            // Why the receiver takes no more may be on its way.
            if matches!(error, SendError::Broken(_)) {
                self.said.wait_while(END_TIMEOUT, |state| state.end.is_none());
            }
            closer.close();
        } else if matches!(self.said.lock().end, Some(Ok(()))) {
            if self.said.lock().had.unwrap_or(0) == 0 {
                self.writer.complete();
            }
            // The receiver sees the end; it has all.
            let _ = self.writer.finish();
        }
        let digest = digest::text(&digest::value(&self.state));
        let said = self.said;
        // Ends the connection.
        drop(self);
        said.update(|state| state.written = Some(written.map(|()| digest)));
    }

    /// Sends until the receiver has said how it ended.
    fn send_all(&mut self) -> Result<(), SendError> {
        let (is_eager, length) = (self.is_eager, self.file.length);
        let (name, attributes) = (self.file.name.clone(), self.file.attributes);
        self.file.seek(0)?;
        self.put(&FromSender::Offer { is_eager, length, attributes, name })?;
        self.flush()?;
        let (mut is_waiting, mut has_ended, mut is_first) = (!is_eager, false, true);
        loop {
            let (have, is_over) = {
                let mut state = self.said.lock();
                (state.have.take(), state.end.is_some())
            };
            if is_over {
                return Ok(());
            }
            if let Some(have) = have {
                if have > 0 || !is_first {
                    self.start(have)?;
                    has_ended = false;
                }
                (is_first, is_waiting) = (false, false);
            } else if is_waiting || has_ended {
                let is_nothing = |state: &SaidState| state.have.is_none() && state.end.is_none();
                self.said.wait_while(REPORT_INTERVAL, is_nothing);
            } else if self.offset < length {
                self.send_next()?;
            } else {
                self.file.check_unchanged()?;
                self.put(&FromSender::End(digest::value(&self.state)))?;
                self.flush()?;
                has_ended = true;
            }
        }
    }

    /// Goes on with what the receiver does not have.
    fn start(&mut self, have: u64) -> Result<(), SendError> {
        if have > self.file.length {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the receiver has too much");
            return Err(SendError::Broken(error));
        }
        self.said.update(|state| state.is_comparing = true);
        let (writer, mut broken) = (&mut self.writer, None);
        let report = || {
            let sent = writer.write_all(&FromSender::Working.encode());
            sent.and_then(|()| writer.flush()).map_err(|error| {
                broken = Some(error);
                io::ErrorKind::BrokenPipe.into()
            })
        };
        let state = self.file.digest_of_beginning(have, report);
        self.state = match broken {
            Some(error) => return Err(SendError::Broken(error)),
            None => state?,
        };
        self.said.update(|state| state.is_comparing = false);
        self.offset = have;
        self.put(&FromSender::Start { offset: have, digest: digest::value(&self.state) })
    }

    fn send_next(&mut self) -> Result<(), SendError> {
        let left = self.file.length - self.offset;
        let count = usize::try_from(left).unwrap_or(MAX_DATA_LEN).min(MAX_DATA_LEN);
        self.file.read(&mut self.buffer[..count])?;
        self.put(&FromSender::Data(count))?;
        let data = &self.buffer[..count];
        self.state.update(data);
        self.writer.write_all(data).map_err(SendError::Broken)?;
        self.offset += count as u64;
        Ok(())
    }

    fn put(&mut self, message: &FromSender) -> Result<(), SendError> {
        self.writer.write_all(&message.encode()).map_err(SendError::Broken)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.writer.flush().map_err(SendError::Broken)
    }
}
