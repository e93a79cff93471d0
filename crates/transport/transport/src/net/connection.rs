//! A connection, and its halves.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keys::IdentityPublicKey;
use records::{MAX_CHUNK_LEN, OpenedRecord, RecordBuffer, RecordOpener, RecordSealer};

use super::send_limit::SendLimit;
use crate::choice::{TransportDecision, TransportSelection};
use crate::error::{ConnectionStep, Error};
use crate::process::OwningProcess;
use crate::protocol::handshake::{
    ACCEPTED, HandshakeRefusal, REFUSED, TransportHandshakeError, TransportSession,
};
use crate::stream::{ByteStream, ConnectionPath, PathStatistics, Transport};
use crate::transports::named;

/// A reliable connection over any transport: all bytes arrive in order, or there is an error.
///
/// Written bytes are sent when the buffer of 64 KiB is full, on [`flush`](Write::flush), and before
/// each read from the connection. Dropping the connection [finishes](Self::finish) it.
#[derive(Debug)]
pub struct Connection {
    reader: ConnectionReader,
    writer: ConnectionWriter,
}

/// The reading half of a connection. Reading does not flush a [`ConnectionWriter`] in another
/// thread.
pub struct ConnectionReader {
    shared: Arc<ConnectionCore>,
    opening: ConnectionReadState,
}

/// The writing half of a connection.
pub struct ConnectionWriter {
    shared: Arc<ConnectionCore>,
    sealer: Option<Box<RecordSealer>>,
    /// What was written and not sent yet.
    record: RecordBuffer,
    /// Whether an answer must be sent to the connecting end before anything else.
    owes_answer: bool,
    state: ConnectionWriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionWriterState {
    Open,
    Finished,
    /// Part of a record may have been sent.
    Failed,
}

struct ConnectionCore {
    process: OwningProcess,
    stream: Arc<dyn ByteStream>,
    /// The other end, for error texts.
    name: String,
    peer: Option<IdentityPublicKey>,
    sent: AtomicU64,
    received: AtomicU64,
    /// Whether the end of the peer's stream was read.
    has_ended: AtomicBool,
    /// The choice of the transport, if one was made.
    chosen: OnceLock<TransportSelection>,
    limit: OnceLock<SendLimit>,
    timeout_ms: AtomicU64,
    /// Set by a [`ConnectionCloser`].
    is_closed: AtomicBool,
}

/// How received bytes are processed.
enum ConnectionReadState {
    /// They are passed on.
    Plain,
    /// They are passed on after the answer, which must come first.
    Unanswered,
    /// The answer is a refusal; its reason follows.
    Refusing,
    /// The connection was rejected.
    Refused(TransportHandshakeError),
    Noise(Box<RecordOpener>),
}

/// The answer to a connecting end that does not use encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaintextAnswer {
    /// There is none, as the transport has its own handshake.
    Nothing,
    /// This end has connected and waits for the answer.
    Awaited,
    /// The other end has connected, and this end sends the answer before its first byte or its end.
    /// It does not send it earlier: if the other end only writes and then closes, its kernel would
    /// find the answer unread, reset the connection, and lose data that this end has not read yet.
    Owed,
}

/// The statistics of a connection and of its path.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionStatistics {
    /// The bytes that were written and sent, before encryption.
    pub bytes_sent: u64,
    /// The bytes that were read, after decryption.
    pub bytes_received: u64,
    /// The transport's statistics.
    pub path: PathStatistics,
}

impl Connection {
    /// Creates a connection with the keys of a handshake.
    pub(crate) fn secure(
        stream: Arc<dyn ByteStream>,
        name: String,
        session: TransportSession,
    ) -> Self {
        let TransportSession { sealer, opener, peer } = session;
        Self::new(
            stream,
            name,
            Some(peer),
            Some(Box::new(sealer)),
            ConnectionReadState::Noise(Box::new(opener)),
        )
    }

    /// Creates a connection without encryption at this level.
    pub(crate) fn plain(
        stream: Arc<dyn ByteStream>,
        name: String,
        answer: PlaintextAnswer,
    ) -> Self {
        let peer = stream.peer();
        let opening = match answer {
            PlaintextAnswer::Awaited => ConnectionReadState::Unanswered,
            PlaintextAnswer::Nothing | PlaintextAnswer::Owed => ConnectionReadState::Plain,
        };
        let mut connection = Self::new(stream, name, peer, None, opening);
        connection.writer.owes_answer = answer == PlaintextAnswer::Owed;
        connection
    }

    fn new(
        stream: Arc<dyn ByteStream>,
        name: String,
        peer: Option<IdentityPublicKey>,
        sealer: Option<Box<RecordSealer>>,
        opening: ConnectionReadState,
    ) -> Self {
        let shared = Arc::new(ConnectionCore {
            process: OwningProcess::current(),
            stream,
            name,
            peer,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            chosen: OnceLock::new(),
            limit: OnceLock::new(),
            timeout_ms: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let (record, owes_answer, state) =
            (RecordBuffer::new(), false, ConnectionWriterState::Open);
        Self {
            reader: ConnectionReader { shared: shared.clone(), opening },
            writer: ConnectionWriter { shared, sealer, record, owes_answer, state },
        }
    }

    /// Stores the choice of the transport.
    pub(super) fn set_choice(&self, chosen: TransportSelection) {
        let _ = self.shared().chosen.set(chosen);
    }

    /// The choice of the transport, if one was made.
    pub fn decision(&self) -> Option<&TransportDecision> {
        self.shared().chosen.get().map(|chosen| &chosen.decision)
    }

    /// Records that the exchange announced in the options is complete. Its duration corrects the
    /// choice for the next connection to the same host.
    pub fn complete(&self) {
        self.shared().complete();
    }

    /// The two halves, for two threads.
    pub fn split(self) -> (ConnectionReader, ConnectionWriter) {
        (self.reader, self.writer)
    }

    /// Ends the stream to the peer, after everything that was written. Returns when all of that
    /// will arrive even if the process ends, unless the other end has sent data that is not read.
    /// The connection can still be read. Without encryption, only a read shows whether the other
    /// end has rejected the connection.
    ///
    /// # Errors
    /// If the connection fails before that, or the peer closes it without reading to the end.
    pub fn finish(&mut self) -> io::Result<()> {
        self.writer.finish()
    }

    /// Sets the time limit of each later read or write; `None` waits as long as the peer is alive.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared().set_timeout(timeout)
    }

    /// Limits the rate at which this connection sends. Only the first limit has an effect.
    pub fn limit_sending(&self, limit: &SendLimit) {
        let _ = self.shared().limit.set(limit.clone());
    }

    /// The statistics of the connection.
    pub fn statistics(&self) -> ConnectionStatistics {
        self.shared().statistics()
    }

    /// The name of its transport.
    pub fn transport(&self) -> &'static str {
        self.shared().stream.transport()
    }

    /// How it reaches the other end.
    pub fn path(&self) -> ConnectionPath {
        self.shared().stream.path()
    }

    /// Whether its transport uses UDP.
    pub(crate) fn is_over_udp(&self) -> bool {
        self.shared().is_over_udp()
    }

    /// The peer's key, unless the connection is insecure.
    pub fn peer(&self) -> Option<IdentityPublicKey> {
        self.shared().peer
    }

    /// The address of the peer, or of the relay.
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared().stream.peer_addr()
    }

    /// A handle that closes the connection at once from another thread, so that reads and writes
    /// return an error.
    pub fn closer(&self) -> ConnectionCloser {
        ConnectionCloser(self.reader.shared.clone())
    }

    /// Reads and drops bytes as they arrive, without decryption, because the kernel resets a
    /// connection that is closed with unread bytes. Nothing can be read afterwards.
    pub(crate) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.shared().read(buffer)
    }

    fn shared(&self) -> &ConnectionCore {
        &self.reader.shared
    }
}

/// Closes a connection from another thread.
#[derive(Clone)]
pub struct ConnectionCloser(Arc<ConnectionCore>);

impl ConnectionCloser {
    /// Whether UDP may be throttled, so that TCP is worth trying: the transport was chosen, uses
    /// UDP, and delivers much less than the path carries.
    pub(crate) fn may_be_throttled(&self) -> bool {
        let is_slow =
            |chosen: &TransportSelection| chosen.may_be_throttled(&self.0.stream.statistics());
        let is_limited = self.0.limit.get().is_some();
        !is_limited && self.0.is_over_udp() && self.0.chosen.get().is_some_and(is_slow)
    }

    /// Records that UDP was slower than this connection, which replaces one over UDP. For some
    /// time, UDP is not used on the path.
    pub(crate) fn udp_was_slower(&self) {
        if let Some(chosen) = self.0.chosen.get() {
            chosen.udp_was_slower();
        }
    }

    /// Closes the connection at once: reads and writes return an error. In a forked child this does
    /// nothing.
    pub fn close(&self) {
        if self.0.process.is_other() {
            return;
        }
        self.0.is_closed.store(true, Ordering::Relaxed);
        self.0.stream.close();
    }
}

impl std::fmt::Debug for ConnectionCloser {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ConnectionCloser").finish_non_exhaustive()
    }
}

impl Read for Connection {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.writer.flush_if_open()?;
        self.reader.read(to)
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Read for ConnectionReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        self.shared.process.check()?;
        self.shared.wait_for_answer(&mut self.opening)?;
        let count = match &mut self.opening {
            ConnectionReadState::Noise(opener) => self.shared.open(opener, to)?,
            // No other state follows the answer.
            _ => self.shared.read(to)?,
        };
        self.shared.received.fetch_add(count as u64, Ordering::Relaxed);
        if count == 0 {
            self.shared.has_ended.store(true, Ordering::Relaxed);
        }
        Ok(count)
    }
}

impl ConnectionReader {
    /// See [`Connection::set_timeout`]. It has an effect on both halves.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.set_timeout(timeout)
    }

    /// See [`Connection::statistics`].
    pub fn statistics(&self) -> ConnectionStatistics {
        self.shared.statistics()
    }
}

impl ConnectionWriter {
    /// See [`Connection::complete`].
    pub fn complete(&self) {
        self.shared.complete();
    }

    /// See [`Connection::finish`].
    ///
    /// # Errors
    /// If the connection fails before that, or the peer closes it without reading to the end.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.state == ConnectionWriterState::Finished {
            return Ok(());
        }
        self.shared.process.check()?;
        self.flush()?;
        let answered = self.send_answer();
        if !self.shared.has_ended.load(Ordering::Relaxed) {
            answered?;
        }
        if let Some(sealer) = &mut self.sealer {
            let end = sealer.seal(&mut self.record);
            let ended = self.shared.write_all(end, &mut self.state);
            if !self.shared.has_ended.load(Ordering::Relaxed) {
                ended?;
            }
        }
        self.state = ConnectionWriterState::Finished;
        match self.shared.stream.finish() {
            // The peer has closed the connection after the end of its stream.
            Err(_) if self.shared.has_ended.load(Ordering::Relaxed) => Ok(()),
            Err(error) => Err(self.shared.error(ConnectionStep::Finish, error).into()),
            Ok(()) => Ok(()),
        }
    }

    /// See [`Connection::statistics`].
    pub fn statistics(&self) -> ConnectionStatistics {
        self.shared.statistics()
    }

    fn send_answer(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.owes_answer) {
            self.shared.write_all(&[ACCEPTED], &mut self.state)?;
        }
        Ok(())
    }

    fn flush_if_open(&mut self) -> io::Result<()> {
        if self.record.is_empty() { Ok(()) } else { self.flush() }
    }

    fn check_open(&self) -> io::Result<()> {
        self.shared.process.check()?;
        match self.state {
            ConnectionWriterState::Open => Ok(()),
            ConnectionWriterState::Finished => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            ConnectionWriterState::Failed => Err(io::Error::from(io::ErrorKind::NotConnected)),
        }
    }
}

impl Write for ConnectionWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_open()?;
        if self.sealer.is_none() && self.record.is_empty() && bytes.len() >= MAX_CHUNK_LEN {
            self.send_answer()?;
            self.shared.write_all(&bytes[..MAX_CHUNK_LEN], &mut self.state)?;
            self.shared.sent.fetch_add(MAX_CHUNK_LEN as u64, Ordering::Relaxed);
            return Ok(MAX_CHUNK_LEN);
        }
        let count = self.record.extend(bytes);
        if self.record.is_full() {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_open()?;
        let len = self.record.len();
        if len == 0 {
            return Ok(());
        }
        self.send_answer()?;
        let bytes = match &mut self.sealer {
            Some(sealer) => sealer.seal(&mut self.record),
            None => self.record.take_plaintext(),
        };
        self.shared.write_all(bytes, &mut self.state)?;
        self.shared.sent.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for ConnectionWriter {
    fn drop(&mut self) {
        // An error cannot be returned here; the peer sees that the stream has no end.
        let is_open = self.state == ConnectionWriterState::Open && !self.shared.process.is_other();
        if is_open && !std::thread::panicking() {
            let _ = self.finish();
        }
    }
}

impl Drop for ConnectionCore {
    fn drop(&mut self) {
        if self.stream.has_threads() && self.process.is_other() {
            // Another thread may have held its locks at the fork.
            std::mem::forget(self.stream.clone());
        }
    }
}

impl ConnectionCore {
    fn is_over_udp(&self) -> bool {
        named(self.stream.transport()).is_ok_and(Transport::is_over_udp)
    }

    fn complete(&self) {
        // A limited exchange says nothing about the path.
        if let Some(chosen) = self.chosen.get()
            && self.limit.get().is_none()
        {
            chosen.complete();
        }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ms = timeout.map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(0));
        self.timeout_ms.store(ms, Ordering::Relaxed);
        self.stream.set_timeout(timeout)
    }

    fn statistics(&self) -> ConnectionStatistics {
        ConnectionStatistics {
            bytes_sent: self.sent.load(Ordering::Relaxed),
            bytes_received: self.received.load(Ordering::Relaxed),
            path: self.stream.statistics(),
        }
    }

    fn error(&self, step: ConnectionStep, error: io::Error) -> Error {
        let ms = self.timeout_ms.load(Ordering::Relaxed);
        let limit = (ms > 0).then(|| Duration::from_millis(ms));
        Error::at(step, &self.name, error, limit)
    }

    fn security(&self, source: TransportHandshakeError) -> io::Error {
        Error::Security { peer: self.name.clone(), source }.into()
    }

    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self.stream.read(to) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // After a local close, what the socket returns is not the peer's end.
                _ if self.is_closed.load(Ordering::Relaxed) => {
                    Err(io::ErrorKind::ConnectionAborted.into())
                }
                read => read,
            };
            return read.map_err(|error| self.error(ConnectionStep::Read, error).into());
        }
    }

    fn write_all(&self, mut bytes: &[u8], state: &mut ConnectionWriterState) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = self.limit.get().map_or(bytes, |limit| limit.next_piece(bytes));
            match self.stream.write(piece) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    *state = ConnectionWriterState::Failed;
                    return Err(self.error(ConnectionStep::Write, error).into());
                }
            }
        }
        Ok(())
    }

    /// Waits for the answer to an end that has connected without encryption.
    fn wait_for_answer(&self, opening: &mut ConnectionReadState) -> io::Result<()> {
        loop {
            *opening = match opening {
                ConnectionReadState::Plain | ConnectionReadState::Noise(_) => return Ok(()),
                ConnectionReadState::Unanswered => match self.read_byte()? {
                    ACCEPTED => ConnectionReadState::Plain,
                    REFUSED => ConnectionReadState::Refusing,
                    _ => ConnectionReadState::Refused(TransportHandshakeError::WrongReply),
                },
                ConnectionReadState::Refusing => match HandshakeRefusal::parse(self.read_byte()?) {
                    Ok(refusal) => {
                        ConnectionReadState::Refused(TransportHandshakeError::Refused(refusal))
                    }
                    Err(error) => ConnectionReadState::Refused(error),
                },
                ConnectionReadState::Refused(why) => return Err(self.security(why.clone())),
            };
        }
    }

    fn read_byte(&self) -> io::Result<u8> {
        let mut byte = [0];
        match self.read(&mut byte)? {
            0 => Err(Error::Truncated { peer: self.name.clone() }.into()),
            _ => Ok(byte[0]),
        }
    }

    fn open(&self, opener: &mut RecordOpener, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let opened = opener.poll();
            match opened.map_err(|_| io::Error::from(Error::Changed { peer: self.name.clone() }))? {
                OpenedRecord::Data => return Ok(opener.read(to)),
                OpenedRecord::End => return Ok(0),
                OpenedRecord::Incomplete => match self.read(opener.receive_space())? {
                    0 => return Err(Error::Truncated { peer: self.name.clone() }.into()),
                    count => opener.commit_received(count),
                },
            }
        }
    }
}

impl std::fmt::Debug for ConnectionReader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ConnectionReader")
            .field("peer", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ConnectionWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ConnectionWriter")
            .field("peer", &self.shared.name)
            .finish_non_exhaustive()
    }
}
