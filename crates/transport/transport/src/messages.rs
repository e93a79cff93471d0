//! Messages over a connection (Transputation, 5: packets of any size, with boundaries preserved).

use std::io::{self, ErrorKind, Read, Write};

use crate::error::Error;

/// The length of the length field of a message, in bytes.
const HEADER_LEN: usize = 8;

/// Messages over a [`Connection`](crate::Connection), one of its halves, or a `&mut` to one of
/// these. Each message arrives as it was sent, with any length, including 0. Nothing is buffered
/// here, so messages and plain bytes may alternate if both ends agree on the order.
///
/// ```
/// use sunder_transport::MessageStream;
///
/// let mut stream = Vec::new();
/// MessageStream::new(&mut stream).send(b"one")?;
/// MessageStream::new(&mut stream).send(b"")?;
/// let mut messages = MessageStream::new(&stream[..]);
/// assert_eq!(messages.receive(3)?.unwrap(), b"one");
/// assert_eq!(messages.receive(3)?.unwrap(), b"");
/// assert!(messages.receive(3)?.is_none());
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct MessageStream<C>(C);

impl<C> MessageStream<C> {
    /// Sends and receives messages over `connection`.
    pub fn new(connection: C) -> Self {
        Self(connection)
    }

    /// The connection.
    pub fn get_ref(&self) -> &C {
        &self.0
    }

    /// The connection.
    pub fn into_inner(self) -> C {
        self.0
    }
}

impl<C: Write> MessageStream<C> {
    /// Writes a message. It is sent when other written bytes would be: when the buffer is full,
    /// when the connection is read, or on a flush.
    ///
    /// # Errors
    /// As for writing bytes.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.write_all(&(message.len() as u64).to_be_bytes())?;
        self.0.write_all(message)
    }

    /// Sends everything that was written.
    ///
    /// # Errors
    /// As for writing bytes.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<C: Read> MessageStream<C> {
    /// Waits for a message of at most `max` bytes; `None` is the end of the stream. Memory is
    /// allocated as the message arrives, not when its length does.
    ///
    /// # Errors
    /// [`Error::TooLong`] inside for a longer message, [`ErrorKind::UnexpectedEof`] if the stream
    /// ends within one, otherwise as for reading. A read that times out before a message has begun
    /// can be repeated. After any other error the connection cannot be used any more.
    pub fn receive(&mut self, max: usize) -> io::Result<Option<Vec<u8>>> {
        let mut header = [0; HEADER_LEN];
        let begun = loop {
            match self.0.read(&mut header) {
                Ok(0) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.0.read_exact(&mut header[begun..])?;
        let length = u64::from_be_bytes(header);
        if length > max as u64 {
            return Err(Error::TooLong { length, max }.into());
        }
        let mut message = Vec::new();
        (&mut self.0).take(length).read_to_end(&mut message)?;
        if (message.len() as u64) < length {
            Err(ErrorKind::UnexpectedEof.into())
        } else {
            Ok(Some(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = to.len().min(1);
            self.0.read(&mut to[..count])
        }
    }

    fn sent(messages: &[&[u8]]) -> Vec<u8> {
        let mut stream = MessageStream::new(Vec::new());
        for message in messages {
            stream.send(message).unwrap();
        }
        stream.into_inner()
    }

    #[test]
    fn boundaries_are_kept_however_the_bytes_arrive() {
        let large = vec![7; 70_000];
        let messages: [&[u8]; 4] = [b"a", &large, b"", b"xyz"];
        let stream = sent(&messages);
        let mut received = MessageStream::new(Slow(&stream));
        for message in messages {
            assert_eq!(received.receive(70_000).unwrap().as_deref(), Some(message));
        }
        assert!(received.receive(0).unwrap().is_none());
    }

    #[test]
    fn a_stream_that_ends_within_a_message_is_an_error() {
        let stream = sent(&[b"four"]);
        for end in 1..stream.len() {
            let error = MessageStream::new(&stream[..end]).receive(4).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{end}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_before_memory_is_taken_for_it() {
        let error = MessageStream::new(&sent(&[b"four"])[..]).receive(3).unwrap_err();
        assert!(matches!(Error::of(&error), Some(Error::TooLong { length: 4, max: 3 })));
        let forged = u64::MAX.to_be_bytes();
        assert!(MessageStream::new(&forged[..]).receive(1 << 30).is_err());
        let forged = [&(1_u64 << 40).to_be_bytes()[..], b"few"].concat();
        let error = MessageStream::new(&forged[..]).receive(usize::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
