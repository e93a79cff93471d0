//! Common code of the transports over UDP.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use keys::IdentityPublicKey;
use quic::QuicError;
use udp::streams;

use crate::options::ConnectionOptions;
use crate::protocol::handshake::{HandshakeRefusal, TransportHandshakeError};
use crate::stream::{ByteStream, PathStatistics};

/// The default for the bytes in flight: 300 ms at 1.7 Gbit/s.
const DEFAULT_BUFFER: usize = 64 << 20;

/// The smallest value, so that a wrong measurement of the path has little effect.
const MIN_BUFFER: usize = 1 << 20;

/// The largest value.
const MAX_BUFFER: usize = 1 << 30;

/// The number of bytes that may be in flight: from the options, or twice what the path holds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(super) fn buffer(options: &ConnectionOptions) -> usize {
    let needed =
        options.path.map(|path| (2.0 * path.rate * path.round_trip.as_secs_f64()) as usize);
    let max = options.max_buffer.unwrap_or(MAX_BUFFER);
    let buffer = options.buffer.unwrap_or_else(|| needed.unwrap_or(DEFAULT_BUFFER).min(max));
    buffer.clamp(MIN_BUFFER, MAX_BUFFER)
}

/// A connection over a protocol that supports half-closed connections.
pub(super) struct DatagramStream {
    pub(super) stream: streams::UdpStream,
    pub(super) transport: &'static str,
}

/// The refusal that an error of a transport with its own handshake stands for, if any.
/// `is_insecure`: whether this end is insecure.
fn refusal(error: &io::Error, is_insecure: bool) -> Option<TransportHandshakeError> {
    let inner = error.get_ref()?;
    let other_mode = if is_insecure { HandshakeRefusal::Plain } else { HandshakeRefusal::Noise };
    let burst = inner.downcast_ref().and_then(|error| match error {
        burst::Error::OtherKey => Some(HandshakeRefusal::OtherKey),
        burst::Error::UnknownKey => Some(HandshakeRefusal::NotExpected),
        burst::Error::OtherMode => Some(other_mode),
        burst::Error::OtherVersion => Some(HandshakeRefusal::Version),
        burst::Error::Busy => Some(HandshakeRefusal::Busy),
        _ => None,
    });
    let quic = inner.downcast_ref().and_then(|error| match error {
        QuicError::OtherKey if is_insecure => Some(HandshakeRefusal::Plain),
        QuicError::OtherKey => Some(HandshakeRefusal::OtherKey),
        QuicError::Insecure => Some(HandshakeRefusal::Noise),
        QuicError::NotAccepted(_) => Some(HandshakeRefusal::NotExpected),
        QuicError::Refused => Some(HandshakeRefusal::Busy),
        _ => None,
    });
    let sabul = inner.downcast_ref().and_then(|error| match error {
        sabul::SabulConnectError::Refused => Some(HandshakeRefusal::Busy),
        _ => None,
    });
    let is_wrong = matches!(inner.downcast_ref(), Some(QuicError::Untrusted(_)));
    let wrong = is_wrong.then_some(TransportHandshakeError::WrongReply);
    burst.or(quic).or(sabul).map(TransportHandshakeError::Refused).or(wrong)
}

/// Converts an error to a handshake error, if it is one.
pub(super) fn with_reason(error: io::Error, is_insecure: bool) -> io::Error {
    match refusal(&error, is_insecure) {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

impl DatagramStream {
    /// Treats an error at the end of the stream as success if the peer closed the connection after
    /// it had received all but `end_len` bytes. These bytes would only have told it of the end,
    /// which it knows from the layer above.
    pub(super) fn accept_if_complete(&self, error: io::Error, end_len: u64) -> io::Result<()> {
        let left = self.stream.statistics().bytes_unacknowledged;
        let is_complete = left.is_some_and(|left| left <= end_len);
        if is_complete && error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
    }
}

impl ByteStream for DatagramStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(to).map_err(|error| with_reason(error, false))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes).map_err(|error| with_reason(error, false))
    }

    fn finish(&self) -> io::Result<()> {
        let finished = self.stream.finish().or_else(|error| self.accept_if_complete(error, 0));
        finished.map_err(|error| with_reason(error, false))
    }

    fn close(&self) {
        self.stream.close();
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(timeout);
        Ok(())
    }

    fn peer_addr(&self) -> SocketAddr {
        self.stream.peer_addr()
    }

    fn transport(&self) -> &'static str {
        self.transport
    }

    fn statistics(&self) -> PathStatistics {
        let counted = self.stream.statistics();
        PathStatistics {
            round_trip: counted.round_trip,
            packets_sent: Some(counted.packets_sent + counted.packets_repeated),
            packets_sent_again: Some(counted.packets_repeated),
            delivery_rate: counted.rate_bytes_per_s,
            link_rate: counted.link_rate_bytes_per_s,
            congestion: counted.congestion.map(str::to_owned),
            ..PathStatistics::default()
        }
    }

    fn peer(&self) -> Option<IdentityPublicKey> {
        IdentityPublicKey::from_bytes(&self.stream.peer_key()?).ok()
    }
}
