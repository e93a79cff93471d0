//! SABUL/UDT.
//!
//! SABUL connections cannot be half-closed. So the stream is divided into blocks, each with its
//! length in four bytes. A block of length 0 is the end of one direction.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabul::SabulConfig;
use udp::streams::{self, UdpStreamEndpoint};

use super::DatagramTransport;
use super::datagrams::{DatagramStream, buffer, with_reason};
use crate::options::ConnectionOptions;
use crate::stream::{ByteStream, PathStatistics, Transport};

/// The longest block.
const MAX_BLOCK_LEN: usize = 1 << 20;

/// See [the module](self).
pub(super) struct SabulTransport;

impl Transport for SabulTransport {
    fn name(&self) -> &'static str {
        "sabul"
    }

    fn about(&self) -> &'static str {
        "SABUL/UDT over UDP; for long paths with some loss"
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let connected = sabul::connect(to, config(options));
        Ok(self.wrap(connected.map_err(|error| with_reason(error, false))?))
    }

    fn is_over_udp(&self) -> bool {
        true
    }
}

impl DatagramTransport for SabulTransport {
    fn endpoint(&self, options: &ConnectionOptions) -> io::Result<Box<dyn UdpStreamEndpoint>> {
        Ok(Box::new(sabul::SabulEndpoint::new(config(options))?))
    }

    fn wrap(&self, stream: streams::UdpStream) -> Arc<dyn ByteStream> {
        Arc::new(SabulBlockStream::new(DatagramStream { stream, transport: self.name() }))
    }
}

fn config(options: &ConnectionOptions) -> SabulConfig {
    let buffer = buffer(options);
    SabulConfig {
        send_buffer: buffer,
        receive_buffer: buffer,
        connect_timeout: options.connect_timeout,
        ..SabulConfig::default()
    }
}

/// A stream divided into blocks.
struct SabulBlockStream {
    stream: DatagramStream,
    reading: Mutex<SabulBlockReader>,
    writing: Mutex<SabulBlockWriter>,
}

#[derive(Default)]
struct SabulBlockReader {
    /// The bytes of the next block's length that have arrived.
    header: [u8; 4],
    header_len: usize,
    /// The number of bytes of the block that have not arrived yet.
    left: usize,
    has_ended: bool,
}

#[derive(Default)]
struct SabulBlockWriter {
    /// The bytes of a block's length that are still to be sent.
    header: [u8; 4],
    header_left: usize,
    /// The number of bytes of the block that are still to be written.
    left: usize,
    is_finished: bool,
}

impl SabulBlockStream {
    fn new(stream: DatagramStream) -> Self {
        Self { stream, reading: Mutex::default(), writing: Mutex::default() }
    }

    /// Sends the rest of a block's length.
    fn send_header(&self, writing: &mut SabulBlockWriter) -> io::Result<()> {
        while writing.header_left > 0 {
            let at = writing.header.len() - writing.header_left;
            writing.header_left -= self.stream.write(&writing.header[at..])?;
        }
        Ok(())
    }
}

impl SabulBlockWriter {
    fn begin(&mut self, len: usize) {
        self.left = len.min(MAX_BLOCK_LEN);
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_BLOCK_LEN")]
        let len = self.left as u32;
        self.header = len.to_be_bytes();
        self.header_left = self.header.len();
    }
}

impl ByteStream for SabulBlockStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        let mut reading = lock(&self.reading);
        while reading.left == 0 && !reading.has_ended {
            let at = reading.header_len;
            match self.stream.read(&mut reading.header[at..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => reading.header_len += count,
            }
            if reading.header_len == reading.header.len() {
                reading.header_len = 0;
                reading.left = u32::from_be_bytes(reading.header) as usize;
                reading.has_ended = reading.left == 0;
            }
        }
        let len = to.len().min(reading.left);
        if len == 0 {
            return Ok(0);
        }
        let count = self.stream.read(&mut to[..len])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reading.left -= count;
        Ok(count)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut writing = lock(&self.writing);
        if writing.is_finished {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        if writing.left == 0 {
            writing.begin(bytes.len());
        }
        self.send_header(&mut writing)?;
        // After an error the caller may pass fewer bytes than the block's length.
        let len = bytes.len().min(writing.left);
        let count = self.stream.write(&bytes[..len])?;
        writing.left -= count;
        Ok(count)
    }

    fn finish(&self) -> io::Result<()> {
        let mut writing = lock(&self.writing);
        if writing.left > 0 {
            let what = "a write that was interrupted has to be repeated first";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if !writing.is_finished {
            writing.begin(0);
            writing.is_finished = true;
        }
        let sent = self.send_header(&mut writing);
        let ended = sent.and_then(|()| self.stream.stream.wait_until_acknowledged());
        let end_len = writing.header.len() as u64;
        ended.or_else(|error| self.stream.accept_if_complete(error, end_len))
    }

    fn close(&self) {
        self.stream.close();
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(timeout)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.stream.peer_addr()
    }

    fn transport(&self) -> &'static str {
        self.stream.transport()
    }

    fn statistics(&self) -> PathStatistics {
        self.stream.statistics()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
