//! Whole messages over a transport's stream, within a time limit for all of them.

use std::io;
use std::time::{Duration, Instant};

use crate::stream::ByteStream;

/// See [the module](self).
pub(super) struct TimedStream<'a> {
    pub(super) stream: &'a dyn ByteStream,
    deadline: Instant,
}

impl<'a> TimedStream<'a> {
    /// Messages on this stream, from now on for `limit`.
    pub(super) fn new(stream: &'a dyn ByteStream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    /// The same, from now on for at most `limit`.
    pub(super) fn at_most(&self, limit: Duration) -> Self {
        Self { stream: self.stream, deadline: self.deadline.min(Instant::now() + limit) }
    }

    /// Receives a part of a message: at least one byte.
    pub(super) fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            self.limit_next_call()?;
            match self.stream.read(to) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Receives a message of this length.
    pub(super) fn receive<const N: usize>(&self) -> io::Result<[u8; N]> {
        let (mut bytes, mut len) = ([0; N], 0);
        while len < N {
            len += self.read(&mut bytes[len..])?;
        }
        Ok(bytes)
    }

    /// Sends a message.
    pub(super) fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.limit_next_call()?;
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn limit_next_call(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeout(Some(left))
    }
}
