//! The connection of two parties, with a thread that writes frames and one that reads them.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{ComputeAbortReason, ComputePhase, Error};
use crate::figures::{PhaseFiguresRecorder, phase_of};
use crate::malformed::MalformedComputeFrame;
use crate::queue::{WeightedPopResult, WeightedPushError, WeightedQueue};
use crate::settings::ComputeRole;
use crate::wire::{ComputeFrame, ComputeFrameKind, ComputeHello, HEADER_LEN, parse_header};
use crate::worker::TimedJoinHandle;

/// The maximum [`weight`] of tables that the garbler sends before it has answered all of the
/// evaluator's transfers.
pub(crate) const WINDOW: usize = 32 << 20;

/// The weight of a frame of tables in a window: its bytes plus its overhead. The window therefore
/// bounds the memory of short frames as well.
pub(crate) const fn weight(length: usize) -> usize {
    length + 64
}

/// The maximum weight of queued tables while the evaluator evaluates.
const EVALUATING_WINDOW: usize = 2 << 20;

/// The maximum number of bytes that are queued for sending.
const MAX_QUEUED: usize = 2 << 20;

/// The maximum number of received frames of the set-up that are queued.
const MAX_SETUP: usize = 3;

/// The maximum number of received frames, other than tables, that are queued for each role.
const MAX_CONTROL: usize = 64;

/// The maximum keepalive interval of a party that has nothing to send. The interval is at most a
/// quarter of the timeout.
const MAX_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long a party that aborts waits until the other has read the reason.
const LINGER: Duration = Duration::from_secs(1);

/// The maximum number of buffers that are kept for reuse.
const MAX_SPARE_BUFFERS: usize = 16;

/// A frame's kind and content.
type ReceivedComputeFrame = (ComputeFrameKind, Vec<u8>);

/// Both directions of a connection.
pub(crate) struct PartyLink {
    shared: Arc<PartyLinkState>,
    role: ComputeRole,
    writing: TimedJoinHandle<io::Result<()>>,
    reading: TimedJoinHandle<()>,
    closer: Option<Box<dyn Fn() + Send + Sync>>,
    /// Whether to wait on drop until everything that was sent has arrived.
    drain_on_drop: bool,
}

struct PartyLinkState {
    /// Frames to be written.
    outbox: WeightedQueue<Vec<u8>>,
    /// Frames of the set-up.
    setup: WeightedQueue<Vec<u8>>,
    /// Frames of an instance, except those of `tables`, for each role in which they are received.
    control: [WeightedQueue<ReceivedComputeFrame>; 2],
    /// Tables, or the columns of the triples.
    tables: WeightedQueue<Vec<u8>>,
    /// Closed when this party has begun the set-up or has aborted.
    setup_begun: WeightedQueue<()>,
    /// The error that ended reading or writing.
    failure: Mutex<Option<Error>>,
    spare_buffers: Mutex<Vec<Vec<u8>>>,
    /// Whether this party has aborted.
    has_given_up: AtomicBool,
    figures: Arc<PhaseFiguresRecorder>,
    timeout: Duration,
}

/// The queues of frames to send and of received frames, shared by several threads.
#[derive(Clone)]
pub(crate) struct PartyFrameQueues {
    shared: Arc<PartyLinkState>,
    /// The role in which frames of an instance are received.
    role: ComputeRole,
}

impl PartyLink {
    /// Starts the threads, and sends the hello.
    pub(crate) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        closer: Option<Box<dyn Fn() + Send + Sync>>,
        hello: ComputeHello,
        timeout: Duration,
        figures: Arc<PhaseFiguresRecorder>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(PartyLinkState {
            outbox: WeightedQueue::new(MAX_QUEUED),
            setup: WeightedQueue::new(MAX_SETUP),
            control: [(); 2].map(|()| WeightedQueue::new(MAX_CONTROL)),
            tables: WeightedQueue::new(WINDOW),
            setup_begun: WeightedQueue::new(1),
            failure: Mutex::new(None),
            spare_buffers: Mutex::new(Vec::new()),
            has_given_up: AtomicBool::new(false),
            figures,
            timeout,
        });
        let frame = ComputeFrame::of(ComputeFrameKind::Hello, &hello.to_bytes()).into_bytes();
        shared.figures.sent(ComputeFrameKind::Hello, frame.len());
        let _ = shared.outbox.push(frame, 0, timeout);
        let of_writing = shared.clone();
        let writing = TimedJoinHandle::spawn("compute-write", move || write(&of_writing, writer))?;
        let of_reading = shared.clone();
        let reading =
            TimedJoinHandle::spawn("compute-read", move || receive(&of_reading, reader, hello));
        // Ends the writing thread as well.
        let reading = reading.inspect_err(|_| shared.outbox.close())?;
        Ok(Self { shared, role: hello.role, writing, reading, closer, drain_on_drop: true })
    }

    pub(crate) fn frames(&self) -> PartyFrameQueues {
        PartyFrameQueues { shared: self.shared.clone(), role: self.role }
    }

    /// Ends the link because of an error of [`PartyFrameQueues::fail`]. Returns the most specific
    /// error.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.drain_on_drop = false;
        self.frames().fail(&error);
        let error = if error.may_be_consequence() { self.find_cause(error) } else { error };
        self.shared.close_inbound();
        error
    }

    /// Ends the link, and tells the other party why.
    pub(crate) fn give_up(mut self, reason: ComputeAbortReason) {
        self.drain_on_drop = false;
        self.frames().give_up(Some(reason));
    }

    /// Returns the reason that the other party may have sent before the connection was lost.
    fn find_cause(&mut self, error: Error) -> Error {
        // Reading ends by itself when the connection is lost.
        self.reading.end_within(LINGER);
        match self.shared.failure() {
            Some(failure) => error.more_specific(failure),
            None => error,
        }
    }

    /// Sends the queued frames. Returns when their delivery is ensured.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.shared.outbox.close();
        let written = self.writing.end().unwrap_or_else(|| Err(ErrorKind::BrokenPipe.into()));
        self.drain_on_drop = false;
        written.map_err(|error| io_error(error, ComputePhase::Output, self.shared.timeout))
    }
}

impl Drop for PartyLink {
    fn drop(&mut self) {
        self.shared.outbox.close();
        self.shared.close_inbound();
        let limit = if self.drain_on_drop { self.shared.timeout } else { LINGER };
        if self.writing.end_within(limit) {
            // Keeps reading, so that the other party is not blocked and can read what was sent to
            // it.
            self.reading.end_within(if self.drain_on_drop { Duration::ZERO } else { LINGER });
        }
        if let Some(close) = &self.closer {
            close();
            // A thread that is still writing or reading now gets an error.
            self.writing.end_within(LINGER);
            self.reading.end_within(LINGER);
        }
    }
}

impl PartyLinkState {
    /// The frames that are received in this role.
    fn control_of(&self, role: ComputeRole) -> &WeightedQueue<ReceivedComputeFrame> {
        &self.control[role as usize - 1]
    }

    fn push_control(
        &self,
        role: ComputeRole,
        kind: ComputeFrameKind,
        content: Vec<u8>,
    ) -> Result<(), WeightedPushError> {
        self.control_of(role).push((kind, content), 1, self.timeout)
    }

    fn close_inbound(&self) {
        self.setup.clear();
        self.control.iter().for_each(WeightedQueue::clear);
        self.tables.clear();
    }

    fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the error that ended reading or writing. Only the first one counts.
    fn failed(&self, error: Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = Some(match failure.take() {
            Some(earlier) => earlier.more_specific(error),
            None => error,
        });
    }

    fn take_spare_buffer(&self) -> Vec<u8> {
        self.spare_buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        let mut spare = self.spare_buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(buffer);
        }
    }
}

impl PartyFrameQueues {
    /// Aborts: the other party is told the reason, and threads that wait for a frame get an error.
    pub(crate) fn fail(&self, error: &Error) {
        self.shared.failed(error.clone());
        self.give_up(error.reason());
    }

    fn give_up(&self, reason: Option<ComputeAbortReason>) {
        self.shared.has_given_up.store(true, Ordering::Relaxed);
        let abort = reason
            .map(|reason| ComputeFrame::of(ComputeFrameKind::Abort, &[reason as u8]).into_bytes());
        self.shared.outbox.close_after(abort);
        self.shared.setup_begun.close();
        // Frames that have arrived may contain a more specific error.
        self.shared.setup.close();
        self.shared.control.iter().for_each(WeightedQueue::close);
        self.shared.tables.close();
    }

    /// The same queues, for frames that are received in this role.
    pub(crate) fn of_role(&self, role: ComputeRole) -> Self {
        Self { shared: self.shared.clone(), role }
    }

    /// An empty frame.
    pub(crate) fn frame(&self, kind: ComputeFrameKind) -> ComputeFrame {
        ComputeFrame::new(kind, self.shared.take_spare_buffer())
    }

    /// Sends a frame, as soon as there is room in the queue.
    ///
    /// # Errors
    /// If the connection has failed.
    pub(crate) fn send(&self, frame: ComputeFrame) -> Result<(), Error> {
        let kind = frame.kind();
        // Otherwise the set-up would be queued behind the tables, for several round trips of a long
        // path.
        if kind == ComputeFrameKind::Tables {
            self.shared.setup_begun.pop();
        }
        let phase = phase_of(kind);
        let bytes = frame.into_bytes();
        let length = bytes.len();
        // Counted before the frame is queued, because the run can end as soon as it is written.
        self.shared.figures.sent(kind, length);
        let sent = self.shared.outbox.push(bytes, length, self.shared.timeout);
        if kind == ComputeFrameKind::Base {
            // The sender computes for milliseconds afterwards. On a single processor the writing
            // thread would have to wait for that, because it does not preempt the computation.
            self.shared.outbox.wait_until_taken(self.shared.timeout);
            self.shared.setup_begun.close();
        }
        sent.map_err(|refused| match refused {
            WeightedPushError::Closed => self.ended(phase),
            WeightedPushError::Full => Error::Silent { phase, after: self.shared.timeout },
        })
    }

    /// Waits for the set-up's frame of the other party.
    ///
    /// # Errors
    /// If another frame arrives, or the connection fails.
    pub(crate) fn setup(&self) -> Result<Vec<u8>, Error> {
        self.shared.setup.pop().ok_or_else(|| self.ended(ComputePhase::Setup))
    }

    /// Ends the set-up: from now on, its frames are refused.
    ///
    /// # Errors
    /// If the other party has sent one too many.
    pub(crate) fn end_setup(&self) -> Result<(), Error> {
        self.shared.setup.close();
        match self.shared.setup.try_pop() {
            Some(_) => Err(unexpected(ComputeFrameKind::Base)),
            None => Ok(()),
        }
    }

    /// Waits for a frame of an instance.
    ///
    /// # Errors
    /// If another frame arrives, or the connection fails.
    pub(crate) fn expect(&self, expected: ComputeFrameKind) -> Result<Vec<u8>, Error> {
        let phase = phase_of(expected);
        match self.shared.control_of(self.role).pop() {
            Some((kind, content)) if kind == expected => Ok(content),
            Some((kind, _)) => {
                let source =
                    MalformedComputeFrame::Order { kind: kind.name(), expected: expected.name() };
                Err(Error::Malformed { phase, source })
            }
            None => Err(self.ended(phase)),
        }
    }

    /// Waits for a frame of exactly this length.
    ///
    /// # Errors
    /// As [`Self::expect`], and if it has the wrong length.
    pub(crate) fn expect_len(
        &self,
        kind: ComputeFrameKind,
        expected: usize,
    ) -> Result<Vec<u8>, Error> {
        check_len(kind, self.expect(kind)?, expected)
    }

    /// Waits for a frame of the columns of triples with `expected` bytes.
    ///
    /// # Errors
    /// If it has the wrong length, or the connection fails.
    pub(crate) fn triples(&self, expected: usize) -> Result<Vec<u8>, Error> {
        let content = self.shared.tables.pop().ok_or_else(|| self.ended(ComputePhase::Triples))?;
        check_len(ComputeFrameKind::Triples, content, expected)
    }

    /// Waits for tables; empty ones follow the last.
    ///
    /// # Errors
    /// If the connection fails.
    pub(crate) fn tables(&self) -> Result<Vec<u8>, Error> {
        self.shared.tables.pop().ok_or_else(|| self.ended(ComputePhase::Gates))
    }

    /// Tables that have arrived, if there are any.
    pub(crate) fn try_tables(&self) -> Option<Vec<u8>> {
        self.shared.tables.try_pop()
    }

    /// Sets whether the evaluator evaluates as tables arrive, so that fewer need to be queued.
    pub(crate) fn set_evaluating(&self, is_evaluating: bool) {
        self.shared.tables.set_max_weight(if is_evaluating { EVALUATING_WINDOW } else { WINDOW });
    }

    /// Returns a buffer for reuse.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.shared.recycle(buffer);
    }

    fn ended(&self, phase: ComputePhase) -> Error {
        self.shared.failure().unwrap_or(Error::Failed).in_phase(phase)
    }
}

fn check_len(kind: ComputeFrameKind, content: Vec<u8>, expected: usize) -> Result<Vec<u8>, Error> {
    let length = content.len();
    if length == expected {
        return Ok(content);
    }
    let source = MalformedComputeFrame::Length { kind: kind.name(), length, expected };
    Err(Error::Malformed { phase: phase_of(kind), source })
}

fn unexpected(kind: ComputeFrameKind) -> Error {
    let source = MalformedComputeFrame::Unexpected { kind: kind.name() };
    Error::Malformed { phase: phase_of(kind), source }
}

fn write(shared: &PartyLinkState, mut writer: impl Write) -> io::Result<()> {
    let result = write_frames(shared, &mut writer);
    if let Err(error) = &result {
        let copy = io::Error::new(error.kind(), error.to_string());
        shared.failed(io_error(copy, ComputePhase::Gates, shared.timeout));
        shared.outbox.clear();
    }
    // Dropping the writer finishes the connection, so that everything that was written arrives.
    drop(writer);
    result
}

fn write_frames(shared: &PartyLinkState, writer: &mut impl Write) -> io::Result<()> {
    let interval = (shared.timeout / 4).min(MAX_ALIVE_INTERVAL);
    loop {
        let frame = match shared.outbox.pop_within(interval) {
            WeightedPopResult::Item(frame) => frame,
            WeightedPopResult::Nothing => {
                shared.figures.sent(ComputeFrameKind::Alive, HEADER_LEN);
                ComputeFrame::of(ComputeFrameKind::Alive, &[]).into_bytes()
            }
            WeightedPopResult::Closed => return writer.flush(),
        };
        let mut next = Some(frame);
        while let Some(frame) = next {
            if let Ok(kind) = ComputeFrameKind::parse(frame[0]) {
                shared.figures.count(phase_of(kind), || writer.write_all(&frame))?;
            }
            shared.recycle(frame);
            next = shared.outbox.try_pop();
        }
        writer.flush()?;
    }
}

fn receive(shared: &PartyLinkState, reader: impl Read, ours: ComputeHello) {
    let mut reader = BufReader::with_capacity(16 << 10, reader);
    if let Err(error) = receive_frames(shared, &mut reader, ours) {
        shared.failed(error);
    }
    shared.setup.close();
    shared.control.iter().for_each(WeightedQueue::close);
    shared.tables.close();
    // Discards what the other party is still sending, for a limited time.
    let start = Instant::now();
    let mut rest = [0; 16 << 10];
    while start.elapsed() < shared.timeout
        && matches!(reader.read(&mut rest), Ok(count) if count > 0)
    {}
}

fn receive_frames(
    shared: &PartyLinkState,
    reader: &mut impl Read,
    ours: ComputeHello,
) -> Result<(), Error> {
    let hello = receive_frame(shared, reader, ours, true);
    let (_, content) = hello.map_err(|error| match error {
        Error::Malformed { .. } => Error::NotThisProtocol,
        other => other,
    })?;
    ours.check(&content)?;
    let mut have_tables_ended = false;
    loop {
        let (kind, content) = receive_frame(shared, reader, ours, false)?;
        // Nobody would take tables after the last ones of an instance.
        match kind {
            ComputeFrameKind::Begin => have_tables_ended = false,
            ComputeFrameKind::Tables | ComputeFrameKind::Decoding if have_tables_ended => {
                return Err(unexpected(kind));
            }
            ComputeFrameKind::Decoding => have_tables_ended = true,
            _ => {}
        }
        let queued = match kind {
            ComputeFrameKind::Alive => continue,
            ComputeFrameKind::Abort => {
                let reason = ComputeAbortReason::parse(&content)?;
                return Err(Error::Aborted { phase: ComputePhase::Agreement, reason });
            }
            ComputeFrameKind::Tables | ComputeFrameKind::Triples => {
                let length = content.len();
                shared.tables.push(content, weight(length), shared.timeout)
            }
            // All tables have arrived, which an empty frame signals.
            ComputeFrameKind::Decoding => shared
                .tables
                .push(Vec::new(), 0, shared.timeout)
                .and_then(|()| shared.push_control(ComputeRole::Evaluator, kind, content)),
            ComputeFrameKind::Base => shared.setup.push(content, 1, shared.timeout),
            // Both roles of a party begin and end with it.
            ComputeFrameKind::Begin | ComputeFrameKind::Proof if ours.security.is_dual() => shared
                .push_control(ComputeRole::Garbler, kind, content.clone())
                .and_then(|()| shared.push_control(ComputeRole::Evaluator, kind, content)),
            _ => shared.push_control(kind.receiving_role().unwrap_or(ours.role), kind, content),
        };
        if queued.is_err() {
            if shared.has_given_up.load(Ordering::Relaxed) {
                return Err(Error::Failed);
            }
            return Err(unexpected(kind));
        }
    }
}

/// Reads a frame of the other party.
fn receive_frame(
    shared: &PartyLinkState,
    reader: &mut impl Read,
    ours: ComputeHello,
    is_first: bool,
) -> Result<(ComputeFrameKind, Vec<u8>), Error> {
    let phase = if is_first { ComputePhase::Setup } else { ComputePhase::Gates };
    let mut header = [0; HEADER_LEN];
    let read = reader.read_exact(&mut header);
    read.map_err(|error| io_error(error, phase, shared.timeout))?;
    let parsed = parse_header(header).and_then(|(kind, length)| {
        let name = kind.name();
        match kind {
            _ if is_first != (kind == ComputeFrameKind::Hello) => {
                Err(MalformedComputeFrame::Unexpected { kind: name })
            }
            _ if !kind.is_from(ours.role.other(), ours.security) || !kind.is_of(ours.protocol) => {
                Err(MalformedComputeFrame::Unexpected { kind: name })
            }
            ComputeFrameKind::Tables if length == 0 => Err(MalformedComputeFrame::Tables),
            _ => Ok((kind, length)),
        }
    });
    let (kind, length) = parsed.map_err(|source| Error::Malformed { phase, source })?;
    let phase = phase_of(kind);
    let is_large = matches!(kind, ComputeFrameKind::Tables | ComputeFrameKind::Triples);
    let mut content = if is_large { shared.take_spare_buffer() } else { Vec::new() };
    content.resize(length, 0);
    let read = shared.figures.count(phase, || reader.read_exact(&mut content));
    read.map_err(|error| io_error(error, phase, shared.timeout))?;
    shared.figures.received(kind, HEADER_LEN + length);
    Ok((kind, content))
}

fn io_error(source: io::Error, phase: ComputePhase, timeout: Duration) -> Error {
    match source.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Error::Silent { phase, after: timeout },
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Error::Ended { phase }
        }
        _ => Error::Io { phase, source: Arc::new(source) },
    }
}
