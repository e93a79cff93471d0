//! A connection.

mod receiving;
mod sending;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::udp::streams::{self, Datagram, Phase, Read, State, Statistics};

use super::packet::{COOKIE_LEN, Content, Packet};
use crate::protocol::handshake::{HandshakeError, Refusal};
use receiving::Receiving;
use sending::Sending;

/// A request is repeated after this time.
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);

/// After how long without a word of the peer a connection fails.
const SILENCE: Duration = Duration::from_secs(15);

/// How often an end says something.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// How often the end of a connection is said, without being asked.
const CLOSES: u32 = 3;

/// How long a connection that nobody uses any more waits until all has arrived.
const LINGER: Duration = Duration::from_secs(60);

/// What an end of connections has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// In bytes/s.
    pub(super) rate: f64,
    /// How many bytes wait to be read.
    pub(super) buffer: usize,
    pub(super) connect_timeout: Duration,
}

/// Why there is no connection, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UdpError {
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

impl From<UdpError> for io::Error {
    fn from(error: UdpError) -> Self {
        if error == UdpError::Refused {
            let busy = HandshakeError::Refused(Refusal::Busy);
            return Self::new(io::ErrorKind::ConnectionRefused, busy);
        }
        let kind = match error {
            UdpError::NoAnswer | UdpError::Silent => io::ErrorKind::TimedOut,
            UdpError::Refused => io::ErrorKind::ConnectionRefused,
            UdpError::Lost(_) => io::ErrorKind::ConnectionAborted,
            UdpError::Truncated => io::ErrorKind::UnexpectedEof,
            UdpError::Closed => io::ErrorKind::BrokenPipe,
            UdpError::ClosedHere => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

/// A connection.
pub(super) struct Connection {
    id: u64,
    peer: SocketAddr,
    connect_timeout: Duration,
    began_at: Duration,
    stage: Stage,
    sending: Sending,
    receiving: Receiving,
    /// The answer to a request is to be sent.
    is_welcome_due: bool,
    /// What ends the connection is to be sent so often.
    ending: Option<(Content<'static>, u32)>,
    heard_at: Duration,
    spoken_at: Duration,
    refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting {
        cookie: [u8; COOKIE_LEN],
        next_at: Duration,
    },
    Open,
    /// Nobody uses it any more.
    Closing {
        until: Duration,
    },
    Over(Option<UdpError>),
}

impl Connection {
    /// A client's. Nobody else can guess `id`.
    pub(super) fn client(id: u64, peer: SocketAddr, settings: Settings, now: Duration) -> Self {
        let cookie = [0; COOKIE_LEN];
        Self::new(id, peer, settings, Stage::Connecting { cookie, next_at: now }, now)
    }

    /// A listener's.
    pub(super) fn server(id: u64, peer: SocketAddr, settings: Settings, now: Duration) -> Self {
        let mut connection = Self::new(id, peer, settings, Stage::Open, now);
        connection.is_welcome_due = true;
        connection
    }

    fn new(id: u64, peer: SocketAddr, settings: Settings, stage: Stage, now: Duration) -> Self {
        Self {
            id,
            peer,
            connect_timeout: settings.connect_timeout,
            began_at: now,
            stage,
            sending: Sending::new(settings.rate, now),
            receiving: Receiving::new(settings.buffer),
            is_welcome_due: false,
            ending: None,
            heard_at: now,
            spoken_at: now,
            refused: 0,
        }
    }

    /// The numbers of the next datagrams: to be sent, and to be received.
    #[cfg(any(test, fuzzing))]
    pub(super) fn position(&self) -> (u64, u64) {
        (self.sending.sent(), self.receiving.next())
    }

    /// Whether it holds no more than so many bytes to be read, and what may wait to be sent.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_bounded(&self, buffer: usize) -> bool {
        self.receiving.held() <= buffer && self.sending.is_bounded()
    }

    fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Closing { .. })
    }

    fn end(&mut self, error: Option<UdpError>, last_word: Option<Content<'static>>) {
        if !matches!(self.stage, Stage::Over(_)) {
            self.stage = Stage::Over(error);
            self.ending = last_word.map(|content| (content, CLOSES));
        }
    }

    fn handle_packet(&mut self, now: Duration, content: Content<'_>) -> bool {
        if let Stage::Connecting { .. } = self.stage {
            match content {
                Content::Cookie { cookie } => {
                    self.stage = Stage::Connecting { cookie, next_at: now };
                }
                Content::Welcome { limit } => {
                    self.stage = Stage::Open;
                    self.sending.open(limit);
                }
                Content::Close { .. } => {
                    self.end(Some(UdpError::Refused), None);
                }
                _ => return false,
            }
            return true;
        }
        if !self.is_active() {
            return false;
        }
        match content {
            Content::Request { .. } => self.is_welcome_due = true,
            // Repeated.
            Content::Welcome { limit } => self.sending.open(limit),
            Content::Data { number, payload } => {
                return self.receiving.insert(now, number, payload);
            }
            Content::Position { next, is_end } => {
                return self.receiving.handle_position(now, next, is_end);
            }
            Content::Ack { next, has_end, limit } => {
                return self.sending.handle_ack(now, next, has_end, limit);
            }
            Content::Missing { number } => {
                if !self.sending.was_sent(number) {
                    return false;
                }
                self.end(Some(UdpError::Lost(number)), None);
            }
            Content::Close { next } => {
                self.sending.handle_ack(now, next, false, 0);
                let is_clean = self.receiving.is_whole() && self.sending.is_flushed();
                self.end((!is_clean).then_some(UdpError::Closed), None);
            }
            Content::Cookie { .. } => return false,
        }
        true
    }

    fn close_packet(&self) -> Content<'static> {
        Content::Close { next: self.receiving.next() }
    }

    fn end_closing(&mut self) {
        if matches!(self.stage, Stage::Closing { .. }) && self.sending.is_flushed() {
            self.end(None, Some(self.close_packet()));
        }
    }
}

impl streams::Connection for Connection {
    fn handle_datagram(&mut self, now: Duration, datagram: &Datagram<'_>) {
        let packet = Packet::parse(datagram.bytes);
        let is_right = datagram.from == self.peer
            && packet.is_some_and(|packet| {
                packet.id == self.id && self.handle_packet(now, packet.content)
            });
        if is_right {
            self.heard_at = now;
            self.end_closing();
        } else {
            self.refused += 1;
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        match self.stage {
            Stage::Connecting { .. } if now >= self.began_at + self.connect_timeout => {
                self.end(Some(UdpError::NoAnswer), None);
            }
            Stage::Closing { until } if now >= until => self.end(None, Some(self.close_packet())),
            Stage::Open | Stage::Closing { .. } => {
                if let Some(number) = self.receiving.handle_timeout(now) {
                    self.end(Some(UdpError::Lost(number)), Some(Content::Missing { number }));
                } else if now >= self.heard_at + SILENCE {
                    self.end(Some(UdpError::Silent), None);
                }
                self.sending.handle_timeout(now);
            }
            Stage::Connecting { .. } | Stage::Over(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        match self.stage {
            _ if self.ending.is_some() => Some(Duration::ZERO),
            Stage::Over(_) => None,
            Stage::Connecting { next_at, .. } => {
                Some(next_at.min(self.began_at + self.connect_timeout))
            }
            Stage::Open | Stage::Closing { .. } => {
                let mut next = (self.heard_at + SILENCE).min(self.spoken_at + KEEP_ALIVE);
                if let Stage::Closing { until } = self.stage {
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
        let mut write = |content| Packet { id, content }.write(datagram);
        if let Some((content, times)) = self.ending {
            self.ending = (times > 1).then_some((content, times - 1));
            write(content);
        } else if let Stage::Connecting { cookie, next_at } = self.stage {
            if now < next_at {
                return None;
            }
            self.stage = Stage::Connecting { cookie, next_at: now + REQUEST_INTERVAL };
            write(Content::Request { cookie });
        } else if !self.is_active() {
            return None;
        } else if std::mem::take(&mut self.is_welcome_due) {
            write(Content::Welcome { limit: self.receiving.limit() });
        } else if let Some((next, has_end, limit)) = self.receiving.poll_ack(now) {
            write(Content::Ack { next, has_end, limit });
        } else if let Some((next, is_end)) =
            self.sending.poll_position(now, now >= self.spoken_at + KEEP_ALIVE)
        {
            write(Content::Position { next, is_end });
        } else {
            self.sending.poll_data(now, |number, payload| {
                Packet { id, content: Content::Data { number, payload } }.write(datagram);
            })?;
        }
        self.spoken_at = now;
        Some(self.peer)
    }

    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<Read> {
        match self.receiving.read(now, to) {
            0 if self.receiving.is_whole() => Ok(Read::End),
            0 => match self.stage {
                Stage::Over(None) => Err(UdpError::ClosedHere.into()),
                Stage::Over(Some(UdpError::Closed)) => Err(UdpError::Truncated.into()),
                Stage::Over(Some(error)) => Err(error.into()),
                _ => Ok(Read::Nothing),
            },
            count => Ok(Read::Bytes(count)),
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        match self.stage {
            Stage::Over(error) => Err(error.unwrap_or(UdpError::Closed).into()),
            Stage::Closing { .. } => Err(UdpError::ClosedHere.into()),
            _ if self.sending.is_finished() => Err(UdpError::ClosedHere.into()),
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
            Stage::Open => {
                self.stage = Stage::Closing { until: now + LINGER };
                self.finish(now);
                self.end_closing();
            }
            Stage::Connecting { .. } => self.end(None, None),
            Stage::Closing { .. } | Stage::Over(_) => {}
        }
    }

    fn abort(&mut self, _now: Duration) {
        self.end(None, Some(self.close_packet()));
    }

    fn state(&self) -> State {
        let phase = match self.stage {
            Stage::Connecting { .. } => Phase::Connecting,
            Stage::Open | Stage::Closing { .. } => Phase::Open,
            Stage::Over(_) => Phase::Over,
        };
        let is_over = phase == Phase::Over;
        State {
            phase,
            is_readable: is_over || self.receiving.is_readable(),
            is_writable: is_over || self.sending.has_much_room(),
        }
    }

    fn error(&self) -> Option<io::Error> {
        match self.stage {
            Stage::Over(Some(error)) if error != UdpError::Closed => Some(error.into()),
            _ => None,
        }
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            bytes_unacknowledged: Some(self.sending.unacknowledged()),
            packets_sent: self.sending.sent(),
            packets_received: self.receiving.received(),
            packets_refused: self.refused,
            round_trip: self.sending.round_trip(),
            rate_bytes_per_s: Some(self.sending.rate()),
            congestion: Some("none"),
            ..Statistics::default()
        }
    }
}
