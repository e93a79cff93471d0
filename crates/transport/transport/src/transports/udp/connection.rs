//! A connection.

mod receiving;
mod sending;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::udp::streams::{
    self, ReceivedDatagram, UdpStreamPhase, UdpStreamRead, UdpStreamState, UdpStreamStatistics,
};

use super::packet::{COOKIE_LEN, UdpTransportContent, UdpTransportPacket};
use crate::protocol::handshake::{HandshakeRefusal, TransportHandshakeError};
use receiving::UdpTransportReceiver;
use sending::UdpTransportSender;

/// The interval at which a request is repeated.
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);

/// How long the peer may be silent before a connection fails.
const SILENCE: Duration = Duration::from_secs(15);

/// The interval of keepalives.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// How often a close is sent without a request from the peer.
const CLOSES: u32 = 3;

/// How long a connection that the program no longer uses waits until everything has arrived.
const LINGER: Duration = Duration::from_secs(60);

/// The settings of an end of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct UdpTransportSettings {
    /// In bytes/s.
    pub(super) rate: f64,
    /// The size of the receive buffer, in bytes.
    pub(super) buffer: usize,
    pub(super) connect_timeout: Duration,
}

/// Why a connection could not be opened, or has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UdpTransportError {
    #[error("no answer: is a listener there, and does a firewall let UDP through?")]
    NoAnswer,
    #[error("the listener refused the connection")]
    Refused,
    #[error(
        "the network has lost datagram {0}, which is not sent again: take another transport, or a \
         lower rate"
    )]
    Lost(u64),
    #[error("the peer was silent for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the peer closed the connection before all data had arrived")]
    Truncated,
    #[error("the peer closed the connection")]
    Closed,
    #[error("the connection was closed on this side")]
    ClosedHere,
}

impl From<UdpTransportError> for io::Error {
    fn from(error: UdpTransportError) -> Self {
        if error == UdpTransportError::Refused {
            let busy = TransportHandshakeError::Refused(HandshakeRefusal::Busy);
            return Self::new(io::ErrorKind::ConnectionRefused, busy);
        }
        let kind = match error {
            UdpTransportError::NoAnswer | UdpTransportError::Silent => io::ErrorKind::TimedOut,
            UdpTransportError::Refused => io::ErrorKind::ConnectionRefused,
            UdpTransportError::Lost(_) => io::ErrorKind::ConnectionAborted,
            UdpTransportError::Truncated => io::ErrorKind::UnexpectedEof,
            UdpTransportError::Closed => io::ErrorKind::BrokenPipe,
            UdpTransportError::ClosedHere => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

/// A connection.
pub(super) struct UdpTransportConnection {
    id: u64,
    peer: SocketAddr,
    connect_timeout: Duration,
    began_at: Duration,
    stage: UdpTransportStage,
    sending: UdpTransportSender,
    receiving: UdpTransportReceiver,
    /// Whether an answer to a request is to be sent.
    is_welcome_due: bool,
    /// The packet that ends the connection, and how often it is still to be sent.
    ending: Option<(UdpTransportContent<'static>, u32)>,
    last_received_at: Duration,
    last_sent_at: Duration,
    refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UdpTransportStage {
    Connecting {
        cookie: [u8; COOKIE_LEN],
        next_at: Duration,
    },
    Open,
    /// The program no longer uses it.
    Closing {
        until: Duration,
    },
    Over(Option<UdpTransportError>),
}

impl UdpTransportConnection {
    /// Creates a client's connection. `id` must be unpredictable.
    pub(super) fn client(
        id: u64,
        peer: SocketAddr,
        settings: UdpTransportSettings,
        now: Duration,
    ) -> Self {
        let cookie = [0; COOKIE_LEN];
        Self::new(id, peer, settings, UdpTransportStage::Connecting { cookie, next_at: now }, now)
    }

    /// Creates a listener's connection.
    pub(super) fn server(
        id: u64,
        peer: SocketAddr,
        settings: UdpTransportSettings,
        now: Duration,
    ) -> Self {
        let mut connection = Self::new(id, peer, settings, UdpTransportStage::Open, now);
        connection.is_welcome_due = true;
        connection
    }

    fn new(
        id: u64,
        peer: SocketAddr,
        settings: UdpTransportSettings,
        stage: UdpTransportStage,
        now: Duration,
    ) -> Self {
        Self {
            id,
            peer,
            connect_timeout: settings.connect_timeout,
            began_at: now,
            stage,
            sending: UdpTransportSender::new(settings.rate, now),
            receiving: UdpTransportReceiver::new(settings.buffer),
            is_welcome_due: false,
            ending: None,
            last_received_at: now,
            last_sent_at: now,
            refused: 0,
        }
    }

    /// The numbers of the next datagrams to be sent and to be received.
    #[cfg(any(test, fuzzing))]
    pub(super) fn position(&self) -> (u64, u64) {
        (self.sending.sent(), self.receiving.next())
    }

    /// Whether its buffers are within their bounds: `buffer` bytes to be read, and the limit of
    /// what waits to be sent.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_bounded(&self, buffer: usize) -> bool {
        self.receiving.held() <= buffer && self.sending.is_bounded()
    }

    fn is_active(&self) -> bool {
        matches!(self.stage, UdpTransportStage::Open | UdpTransportStage::Closing { .. })
    }

    fn end(
        &mut self,
        error: Option<UdpTransportError>,
        last_word: Option<UdpTransportContent<'static>>,
    ) {
        if !matches!(self.stage, UdpTransportStage::Over(_)) {
            self.stage = UdpTransportStage::Over(error);
            self.ending = last_word.map(|content| (content, CLOSES));
        }
    }

    fn handle_packet(&mut self, now: Duration, content: UdpTransportContent<'_>) -> bool {
        if let UdpTransportStage::Connecting { .. } = self.stage {
            match content {
                UdpTransportContent::Cookie { cookie } => {
                    self.stage = UdpTransportStage::Connecting { cookie, next_at: now };
                }
                UdpTransportContent::Welcome { limit } => {
                    self.stage = UdpTransportStage::Open;
                    self.sending.raise_limit(limit);
                }
                UdpTransportContent::Close { .. } => {
                    self.end(Some(UdpTransportError::Refused), None);
                }
                _ => return false,
            }
            return true;
        }
        if !self.is_active() {
            return false;
        }
        match content {
            UdpTransportContent::Request { .. } => self.is_welcome_due = true,
            // Repeated.
            UdpTransportContent::Welcome { limit } => self.sending.raise_limit(limit),
            UdpTransportContent::Data { number, payload } => {
                return self.receiving.insert(now, number, payload);
            }
            UdpTransportContent::Position { next, is_end } => {
                return self.receiving.handle_position(now, next, is_end);
            }
            UdpTransportContent::Ack { next, has_end, limit } => {
                return self.sending.handle_ack(now, next, has_end, limit);
            }
            UdpTransportContent::Missing { number } => {
                if !self.sending.was_sent(number) {
                    return false;
                }
                self.end(Some(UdpTransportError::Lost(number)), None);
            }
            UdpTransportContent::Close { next } => {
                self.sending.handle_ack(now, next, false, 0);
                let is_clean = self.receiving.is_whole() && self.sending.is_flushed();
                self.end((!is_clean).then_some(UdpTransportError::Closed), None);
            }
            UdpTransportContent::Cookie { .. } => return false,
        }
        true
    }

    fn close_packet(&self) -> UdpTransportContent<'static> {
        UdpTransportContent::Close { next: self.receiving.next() }
    }

    fn end_closing(&mut self) {
        if matches!(self.stage, UdpTransportStage::Closing { .. }) && self.sending.is_flushed() {
            self.end(None, Some(self.close_packet()));
        }
    }
}

impl streams::UdpStreamConnection for UdpTransportConnection {
    fn handle_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>) {
        let packet = UdpTransportPacket::parse(datagram.bytes);
        let is_right = datagram.from == self.peer
            && packet.is_some_and(|packet| {
                packet.id == self.id && self.handle_packet(now, packet.content)
            });
        if is_right {
            self.last_received_at = now;
            self.end_closing();
        } else {
            self.refused += 1;
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        match self.stage {
            UdpTransportStage::Connecting { .. } if now >= self.began_at + self.connect_timeout => {
                self.end(Some(UdpTransportError::NoAnswer), None);
            }
            UdpTransportStage::Closing { until } if now >= until => {
                self.end(None, Some(self.close_packet()));
            }
            UdpTransportStage::Open | UdpTransportStage::Closing { .. } => {
                if let Some(number) = self.receiving.handle_timeout(now) {
                    self.end(
                        Some(UdpTransportError::Lost(number)),
                        Some(UdpTransportContent::Missing { number }),
                    );
                } else if now >= self.last_received_at + SILENCE {
                    self.end(Some(UdpTransportError::Silent), None);
                }
                self.sending.handle_timeout(now);
            }
            UdpTransportStage::Connecting { .. } | UdpTransportStage::Over(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        match self.stage {
            _ if self.ending.is_some() => Some(Duration::ZERO),
            UdpTransportStage::Over(_) => None,
            UdpTransportStage::Connecting { next_at, .. } => {
                Some(next_at.min(self.began_at + self.connect_timeout))
            }
            UdpTransportStage::Open | UdpTransportStage::Closing { .. } => {
                let mut next =
                    (self.last_received_at + SILENCE).min(self.last_sent_at + KEEP_ALIVE);
                if let UdpTransportStage::Closing { until } = self.stage {
                    next = next.min(until);
                }
                if self.is_welcome_due {
                    next = Duration::ZERO;
                }
                let timers = [self.sending.poll_timeout(), self.receiving.poll_timeout()];
                Some(timers.into_iter().flatten().fold(next, Duration::min))
            }
        }
    }

    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        let id = self.id;
        let mut write = |content| UdpTransportPacket { id, content }.write(datagram);
        if let Some((content, times)) = self.ending {
            self.ending = (times > 1).then_some((content, times - 1));
            write(content);
        } else if let UdpTransportStage::Connecting { cookie, next_at } = self.stage {
            if now < next_at {
                return None;
            }
            self.stage = UdpTransportStage::Connecting { cookie, next_at: now + REQUEST_INTERVAL };
            write(UdpTransportContent::Request { cookie });
        } else if !self.is_active() {
            return None;
        } else if std::mem::take(&mut self.is_welcome_due) {
            write(UdpTransportContent::Welcome { limit: self.receiving.limit() });
        } else if let Some((next, has_end, limit)) = self.receiving.poll_ack(now) {
            write(UdpTransportContent::Ack { next, has_end, limit });
        } else if let Some((next, is_end)) =
            self.sending.poll_position(now, now >= self.last_sent_at + KEEP_ALIVE)
        {
            write(UdpTransportContent::Position { next, is_end });
        } else {
            self.sending.poll_data(now, |number, payload| {
                UdpTransportPacket { id, content: UdpTransportContent::Data { number, payload } }
                    .write(datagram);
            })?;
        }
        self.last_sent_at = now;
        Some(self.peer)
    }

    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<UdpStreamRead> {
        match self.receiving.read(now, to) {
            0 if self.receiving.is_whole() => Ok(UdpStreamRead::End),
            0 => match self.stage {
                UdpTransportStage::Over(None) => Err(UdpTransportError::ClosedHere.into()),
                UdpTransportStage::Over(Some(UdpTransportError::Closed)) => {
                    Err(UdpTransportError::Truncated.into())
                }
                UdpTransportStage::Over(Some(error)) => Err(error.into()),
                _ => Ok(UdpStreamRead::Nothing),
            },
            count => Ok(UdpStreamRead::Bytes(count)),
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        match self.stage {
            UdpTransportStage::Over(error) => {
                Err(error.unwrap_or(UdpTransportError::Closed).into())
            }
            UdpTransportStage::Closing { .. } => Err(UdpTransportError::ClosedHere.into()),
            _ if self.sending.is_finished() => Err(UdpTransportError::ClosedHere.into()),
            _ => Ok(self.sending.write(bytes)),
        }
    }

    fn finish(&mut self, now: Duration) {
        self.sending.finish(now);
    }

    fn is_flushed(&self) -> bool {
        self.sending.is_flushed()
    }

    fn close(&mut self, now: Duration) {
        match self.stage {
            UdpTransportStage::Open => {
                self.stage = UdpTransportStage::Closing { until: now + LINGER };
                self.finish(now);
                self.end_closing();
            }
            UdpTransportStage::Connecting { .. } => self.end(None, None),
            UdpTransportStage::Closing { .. } | UdpTransportStage::Over(_) => {}
        }
    }

    fn abort(&mut self, _now: Duration) {
        self.end(None, Some(self.close_packet()));
    }

    fn state(&self) -> UdpStreamState {
        let phase = match self.stage {
            UdpTransportStage::Connecting { .. } => UdpStreamPhase::Connecting,
            UdpTransportStage::Open | UdpTransportStage::Closing { .. } => UdpStreamPhase::Open,
            UdpTransportStage::Over(_) => UdpStreamPhase::Over,
        };
        let is_over = phase == UdpStreamPhase::Over;
        UdpStreamState {
            phase,
            is_readable: is_over || self.receiving.is_readable(),
            is_writable: is_over || self.sending.is_worth_waking_writer(),
        }
    }

    fn error(&self) -> Option<io::Error> {
        match self.stage {
            UdpTransportStage::Over(Some(error)) if error != UdpTransportError::Closed => {
                Some(error.into())
            }
            _ => None,
        }
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn statistics(&self) -> UdpStreamStatistics {
        UdpStreamStatistics {
            bytes_unacknowledged: Some(self.sending.unacknowledged()),
            packets_sent: self.sending.sent(),
            packets_received: self.receiving.received(),
            packets_refused: self.refused,
            round_trip: self.sending.round_trip(),
            rate_bytes_per_s: Some(self.sending.rate()),
            congestion: Some("none"),
            ..UdpStreamStatistics::default()
        }
    }
}
