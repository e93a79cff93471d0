//! A connection, and its halves.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keys::IdentityPublicKey;
use records::{MAX_CHUNK_LEN, OpenedRecord, RecordBuffer, RecordOpener, RecordSealer};

use crate::choice::{TransportDecision, TransportSelection};
use crate::error::{ConnectionStep, Error};
use crate::process::OwningProcess;
use crate::protocol::handshake::{
    ACCEPTED, HandshakeRefusal, REFUSED, TransportHandshakeError, TransportSession,
};
use crate::stream::{ByteStream, PathStatistics};
use crate::transports::{Transport, named};

/// A reliable connection over any transport: bytes arrive whole and in order, or there is an error.
///
/// What is written waits in a buffer of 64 KiB until it is full, [`flush`](Write::flush) is called,
/// or the connection is read from: a connection flushes itself before a read. Dropped, it is
/// [finished](Self::finish).
#[derive(Debug)]
pub struct Connection {
    reader: ConnectionReader,
    writer: ConnectionWriter,
}

/// The half of a connection that reads. A [`ConnectionWriter`] that another thread has does not
/// flush itself before this one reads.
pub struct ConnectionReader {
    shared: Arc<ConnectionCore>,
    opening: ConnectionReadState,
}

/// The half of a connection that writes.
pub struct ConnectionWriter {
    shared: Arc<ConnectionCore>,
    sealer: Option<Box<RecordSealer>>,
    /// What was written and not sent.
    record: RecordBuffer,
    /// Whether the end that has connected is to be answered before anything else is sent.
    owes_answer: bool,
    state: ConnectionWriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionWriterState {
    Open,
    Finished,
    /// A part of a record may have been sent.
    Failed,
}

struct ConnectionCore {
    process: OwningProcess,
    stream: Arc<dyn ByteStream>,
    /// The other end, in errors.
    name: String,
    peer: Option<IdentityPublicKey>,
    sent: AtomicU64,
    received: AtomicU64,
    /// Whether the peer's end was read.
    has_ended: AtomicBool,
    /// How the transport was chosen, if it was.
    chosen: OnceLock<TransportSelection>,
    timeout_ms: AtomicU64,
    /// By a [`ConnectionCloser`].
    is_closed: AtomicBool,
}

/// How what arrives becomes what is read.
enum ConnectionReadState {
    /// As it is.
    Plain,
    /// As it is, after the answer to the end that has connected.
    Unanswered,
    /// The answer is a refusal, whose reason is to follow.
    Refusing,
    /// Nothing can be read.
    Refused(TransportHandshakeError),
    Noise(Box<RecordOpener>),
}

/// The answer to an end that has connected without encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaintextAnswer {
    /// There is none, as the transport has a handshake of its own.
    Nothing,
    /// This end has connected: it is still to arrive.
    Awaited,
    /// The other end has connected: it comes before the first byte, or the end. Not earlier: if the
    /// other end only sends, and leaves, its system would find the answer unread, break off the
    /// connection, and so lose what this end has not read yet.
    Owed,
}

/// What a connection has done so far, and what is known of its path.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionStatistics {
    /// The bytes that were written and sent, as the program has written them.
    pub bytes_sent: u64,
    /// The bytes that were read.
    pub bytes_received: u64,
    /// What the transport knows.
    pub path: PathStatistics,
}

impl Connection {
    /// A connection that a handshake protects.
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

    /// A connection without encryption of its own.
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

    /// Remembers how the transport was chosen.
    pub(super) fn set_choice(&self, chosen: TransportSelection) {
        let _ = self.shared().chosen.set(chosen);
    }

    /// How the transport was chosen, if it was.
    pub fn decision(&self) -> Option<&TransportDecision> {
        self.shared().chosen.get().map(|chosen| &chosen.decision)
    }

    /// Says that the exchange is complete that the options have announced. What it took corrects
    /// the choice for the next one to the same host.
    pub fn complete(&self) {
        self.shared().complete();
    }

    /// The two halves, for two threads.
    pub fn split(self) -> (ConnectionReader, ConnectionWriter) {
        (self.reader, self.writer)
    }

    /// Says that no more is written, after what was. Returns when all that will arrive even if the
    /// process ends, unless the other end has sent what is not read. The connection can still be
    /// read from. Without encryption, only a read tells whether the other end has refused it.
    ///
    /// # Errors
    /// If the connection fails before, or the peer closes it without reading to its end.
    pub fn finish(&mut self) -> io::Result<()> {
        self.writer.finish()
    }

    /// Limits how long a read or write may wait from now on; `None` is as long as the peer is
    /// there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared().set_timeout(timeout)
    }

    /// What it has done so far.
    pub fn statistics(&self) -> ConnectionStatistics {
        self.shared().statistics()
    }

    /// The name of its transport.
    pub fn transport(&self) -> &'static str {
        self.shared().stream.transport()
    }

    /// Whether its transport sends datagrams of UDP.
    pub(crate) fn is_over_udp(&self) -> bool {
        self.shared().is_over_udp()
    }

    /// The peer's key, unless the connection is insecure.
    pub fn peer(&self) -> Option<IdentityPublicKey> {
        self.shared().peer
    }

    /// The peer's address, or that of the relay.
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared().stream.peer_addr()
    }

    /// Ends the connection from another thread, at once: whoever reads or writes gets an error.
    pub fn closer(&self) -> ConnectionCloser {
        ConnectionCloser(self.reader.shared.clone())
    }

    /// Takes bytes as they arrive, which are not decrypted, so that those that were not read do not
    /// make the system reset the connection. Nothing can be read afterwards.
    pub(crate) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.shared().read(buffer)
    }

    fn shared(&self) -> &ConnectionCore {
        &self.reader.shared
    }
}

/// Ends a connection from another thread.
#[derive(Clone)]
pub struct ConnectionCloser(Arc<ConnectionCore>);

impl ConnectionCloser {
    /// Whether a transport over UDP was chosen that delivers so much less than the path carries
    /// that it is worth trying TCP: UDP may be throttled.
    pub(crate) fn may_be_throttled(&self) -> bool {
        let is_slow =
            |chosen: &TransportSelection| chosen.may_be_throttled(&self.0.stream.statistics());
        self.0.is_over_udp() && self.0.chosen.get().is_some_and(is_slow)
    }

    /// Says that UDP has carried less than this connection, which takes the place of one over UDP.
    /// It is not used on the path for some time.
    pub(crate) fn udp_was_slower(&self) {
        if let Some(chosen) = self.0.chosen.get() {
            chosen.udp_was_slower();
        }
    }

    /// Ends it at once. Whoever reads or writes gets an error. In a process that was forked, this
    /// does nothing.
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
            // There is no other after the answer.
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
    /// If the connection fails before, or the peer closes it without reading to its end.
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
            // The peer has gone after it has said that no more comes.
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
        // Nobody is there to take an error; the peer sees that the stream has no end.
        let is_open = self.state == ConnectionWriterState::Open && !self.shared.process.is_other();
        if is_open && !std::thread::panicking() {
            let _ = self.finish();
        }
    }
}

impl Drop for ConnectionCore {
    fn drop(&mut self) {
        if self.stream.has_threads() && self.process.is_other() {
            // They may have held its locks when this process was forked.
            std::mem::forget(self.stream.clone());
        }
    }
}

impl ConnectionCore {
    fn is_over_udp(&self) -> bool {
        named(self.stream.transport()).is_ok_and(Transport::is_over_udp)
    }

    fn complete(&self) {
        if let Some(chosen) = self.chosen.get() {
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
                // What a closed socket still has to read, or its end, is not the peer's end.
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
            match self.stream.write(bytes) {
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

    /// Takes what answers an end that has connected without encryption.
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
