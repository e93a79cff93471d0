//! Receives one stream, and writes it to an output such as standard output.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base16ct::lower::encode_string;
use sha2::{Digest, Sha256};

use super::output::{OutputError, OutputThread};
use super::{FileReceiveError, TransferStopReason, failed, next, protocol, put, report_result};
use crate::files::{FileTransferEvent, IDLE_TIMEOUT, REPORT_INTERVAL, digest};
use crate::net::{Connection, ConnectionCloser};
use crate::protocol::file::{
    DIGEST_LEN, FileReceiverMessage, FileSenderMessage, FileTransferFailureReason, array,
    closed_early,
};
use crate::protocol::tree::TREE_KIND;

/// A stream that was received completely.
#[derive(Clone, Debug)]
pub struct ReceivedStream {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256 digest in hexadecimal digits.
    pub sha256: String,
    /// How long the connection took.
    pub elapsed: Duration,
}

/// Writes the first stream or file that is offered to an output. Later offers are rejected.
pub struct StreamReceiver {
    /// `None` once an offer was accepted.
    output: Mutex<Option<Box<dyn Write + Send>>>,
    /// The connection of the accepted offer.
    active: Mutex<Option<ConnectionCloser>>,
}

impl std::fmt::Debug for StreamReceiver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StreamReceiver").finish_non_exhaustive()
    }
}

impl StreamReceiver {
    /// A receiver with this output, which is written in another thread and may wait.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Self { output: Mutex::new(Some(Box::new(output))), active: Mutex::default() }
    }

    /// Receives the stream of one connection.
    ///
    /// # Errors
    /// [`FileReceiveError::NoOffer`] or [`FileReceiveError::Rejected`] if nothing was written, and
    /// another connection may have the stream. After every other error, what was written is not the
    /// whole stream.
    pub fn receive(
        &self,
        mut connection: Connection,
        mut observe: impl FnMut(FileTransferEvent<'_>),
    ) -> Result<ReceivedStream, FileReceiveError> {
        let start = Instant::now();
        connection.set_timeout(Some(IDLE_TIMEOUT)).map_err(FileReceiveError::NoOffer)?;
        let mut position = None;
        let result = self.transfer(&mut connection, &mut position, &mut observe);
        report_result(&mut connection, &result);
        let elapsed = start.elapsed();
        match (result, position) {
            (Ok((bytes, sha256)), _) => Ok(ReceivedStream { bytes, sha256, elapsed }),
            (Err(TransferStopReason::Failed(failure)), Some(_)) => {
                Err(FileReceiveError::Failed(failure))
            }
            (Err(TransferStopReason::Failed(failure)), None) => {
                Err(FileReceiveError::Rejected(failure))
            }
            (Err(TransferStopReason::Broken(source)), Some(bytes)) => {
                Err(FileReceiveError::Incomplete { bytes, source })
            }
            (Err(TransferStopReason::Broken(source)), None) => {
                Err(FileReceiveError::NoOffer(source))
            }
        }
    }

    /// Closes the connection of the stream.
    pub fn close(&self) {
        if let Some(active) = &*self.active.lock().unwrap_or_else(PoisonError::into_inner) {
            active.close();
        }
    }

    /// `position` is set once an offer is accepted, to the number of bytes that have arrived.
    fn transfer(
        &self,
        connection: &mut Connection,
        position: &mut Option<u64>,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(u64, String), TransferStopReason> {
        let length = offered(connection, observe)?;
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        let output = output.ok_or_else(|| {
            let text = "it has one output, to which another stream is written already";
            failed(FileTransferFailureReason::Busy, text.into())
        })?;
        let position = position.insert(0);
        let closer = connection.closer();
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = Some(closer);
        let output = OutputThread::start(output).map_err(|error| unwritable(&error))?;
        if length.is_some() {
            // A file is sent from its beginning.
            put(connection, &FileReceiverMessage::Have(0)).map_err(TransferStopReason::Broken)?;
        }
        let mut transfer = IncomingStream {
            connection,
            length,
            position,
            state: Sha256::new(),
            reported: Instant::now(),
        };
        let digest = transfer.run(output, observe)?;
        Ok((*transfer.position, encode_string(&digest)))
    }
}

/// Reads the offer. Returns the length, if it is a file.
fn offered(
    connection: &mut Connection,
    observe: &mut impl FnMut(FileTransferEvent<'_>),
) -> Result<Option<u64>, TransferStopReason> {
    let [kind] = array(connection).map_err(TransferStopReason::Broken)?;
    if kind == TREE_KIND {
        let text = "it writes one stream to its standard output: send the files to one that was \
                    started with --out DIR, or as one stream (tar c DIR | sunder transport send -)";
        return Err(failed(FileTransferFailureReason::Kind, text.into()));
    }
    match next(&mut (&[kind][..]).chain(&mut *connection))? {
        FileSenderMessage::Stream => {
            observe(FileTransferEvent::StreamOffered);
            Ok(None)
        }
        FileSenderMessage::Offer { length, name, .. } => {
            observe(FileTransferEvent::Offered { name: &name, length });
            Ok(Some(length))
        }
        _ => Err(protocol("nothing is offered")),
    }
}

/// The failure for an error of the output.
fn unwritable(error: &io::Error) -> TransferStopReason {
    let why = match error.kind() {
        io::ErrorKind::BrokenPipe => "the program that reads it has ended".to_owned(),
        _ => error.to_string(),
    };
    failed(FileTransferFailureReason::System, format!("cannot write the stream: {why}"))
}

fn stopped(error: OutputError) -> TransferStopReason {
    match error {
        OutputError::Output(error) => unwritable(&error),
        OutputError::Report(error) => TransferStopReason::Broken(error),
    }
}

/// The transfer of one connection's stream.
struct IncomingStream<'a> {
    connection: &'a mut Connection,
    /// If it is known.
    length: Option<u64>,
    position: &'a mut u64,
    state: Sha256,
    reported: Instant,
}

impl IncomingStream<'_> {
    /// Returns the digest, once everything was written.
    fn run(
        &mut self,
        mut output: OutputThread,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<[u8; DIGEST_LEN], TransferStopReason> {
        loop {
            match next(self.connection)? {
                FileSenderMessage::Data(len) => self.take(len, &mut output)?,
                FileSenderMessage::Working => {}
                FileSenderMessage::End(stated) => {
                    let digest = self.check(&stated)?;
                    output.finish(&mut || self.report()).map_err(stopped)?;
                    return Ok(digest);
                }
                _ => return Err(protocol("an unexpected message")),
            }
            if self.reported.elapsed() >= REPORT_INTERVAL {
                observe(FileTransferEvent::Position(*self.position));
                self.report().map_err(TransferStopReason::Broken)?;
            }
        }
    }

    fn report(&mut self) -> io::Result<()> {
        self.reported = Instant::now();
        put(self.connection, &FileReceiverMessage::Progress(*self.position))
    }

    fn take(&mut self, len: usize, output: &mut OutputThread) -> Result<(), TransferStopReason> {
        if self.length.is_some_and(|length| len as u64 > length - *self.position) {
            return Err(protocol("more data arrives than was offered"));
        }
        let mut left = len;
        while left > 0 {
            let mut block = output.buffer(&mut || self.report()).map_err(stopped)?;
            let space = left.min(block.len());
            let count =
                self.connection.read(&mut block[..space]).map_err(TransferStopReason::Broken)?;
            if count == 0 {
                return Err(TransferStopReason::Broken(closed_early()));
            }
            block.truncate(count);
            self.state.update(&block);
            *self.position += count as u64;
            left -= count;
            output.write(block).map_err(stopped)?;
            if left > 0 && self.reported.elapsed() >= REPORT_INTERVAL {
                self.report().map_err(TransferStopReason::Broken)?;
            }
        }
        Ok(())
    }

    fn check(&self, stated: &[u8; DIGEST_LEN]) -> Result<[u8; DIGEST_LEN], TransferStopReason> {
        if self.length.is_some_and(|length| length != *self.position) {
            return Err(protocol("less data has arrived than was offered"));
        }
        let digest = digest::value(&self.state);
        if digest == *stated {
            return Ok(digest);
        }
        let text = "the SHA-256 digest of the received data is wrong";
        Err(failed(FileTransferFailureReason::Digest, text.into()))
    }
}
