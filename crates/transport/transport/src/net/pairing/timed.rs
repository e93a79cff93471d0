//! Whole messages over a transport's stream, within a time limit for all of them.

use std::io;
use std::time::{Duration, Instant};

use crate::stream::ByteStream;

/// See [the module](self).
pub(super) struct TimedStream<'a> {
    stream: &'a dyn ByteStream,
    deadline: Instant,
}

impl<'a> TimedStream<'a> {
    pub(super) fn new(stream: &'a dyn ByteStream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    fn limit_next_call(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeout(Some(left))
    }

    /// Receives a message of this length.
    pub(super) fn receive<const N: usize>(&self) -> io::Result<[u8; N]> {
        let (mut bytes, mut len) = ([0; N], 0);
        while len < N {
            self.limit_next_call()?;
            match self.stream.read(&mut bytes[len..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
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
}
