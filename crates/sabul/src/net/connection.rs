//! A connection from the first request on.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use udp::streams::{self, Datagram, Phase, Read, State};

use crate::protocol::{
    ConnectError, Connected, Connecting, Connection, ConnectionError, Read as Outcome, destination,
};

/// A connection or the handshake that makes it.
#[derive(Debug)]
pub(super) struct Driven {
    peer: SocketAddr,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Connecting(Box<Connecting>),
    Refused(ConnectError),
    Connected(Box<Connection>),
}

impl Driven {
    /// A client's.
    pub(super) fn connecting(connecting: Connecting, peer: SocketAddr) -> Self {
        Self { peer, stage: Stage::Connecting(Box::new(connecting)) }
    }

    /// A listener's.
    pub(super) fn connected(connection: Connection, peer: SocketAddr) -> Self {
        Self { peer, stage: Stage::Connected(Box::new(connection)) }
    }
}

impl streams::Connection for Driven {
    fn handle_datagram(&mut self, now: Duration, datagram: &Datagram<'_>) {
        if datagram.from != self.peer {
            return;
        }
        match &mut self.stage {
            Stage::Connecting(connecting) => {
                match connecting.handle_datagram(now, datagram.bytes) {
                    Connected::Yes(connection) => self.stage = Stage::Connected(connection),
                    Connected::Failed(error) => self.stage = Stage::Refused(error),
                    Connected::NotYet => {}
                }
            }
            Stage::Connected(connection) => match destination(datagram.bytes) {
                // The endpoint has seen that it is this connection's request.
                Some(0) => connection.respond(),
                _ => connection.handle_arrived(now, datagram.arrived_at, datagram.bytes),
            },
            Stage::Refused(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        match &mut self.stage {
            Stage::Connecting(connecting) => {
                if let Err(error) = connecting.handle_timeout(now) {
                    self.stage = Stage::Refused(error);
                }
            }
            Stage::Connected(connection) => connection.handle_timeout(now),
            Stage::Refused(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Connecting(connecting) => Some(connecting.poll_timeout()),
            Stage::Connected(connection) => connection.poll_timeout(),
            Stage::Refused(_) => None,
        }
    }

    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        let is_written = match &mut self.stage {
            Stage::Connecting(connecting) => connecting.poll_transmit(now, datagram),
            Stage::Connected(connection) => connection.poll_transmit(now, datagram),
            Stage::Refused(_) => false,
        };
        is_written.then_some(self.peer)
    }

    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<Read> {
        match &mut self.stage {
            Stage::Connecting(_) => Ok(Read::Nothing),
            Stage::Connected(connection) => match connection.read(to, now).map_err(io_error)? {
                Outcome::Bytes(count) => Ok(Read::Bytes(count)),
                Outcome::Nothing if connection.is_over() => Ok(Read::End),
                Outcome::Nothing => Ok(Read::Nothing),
                Outcome::End => Ok(Read::End),
            },
            Stage::Refused(error) => Err(refusal(*error)),
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        match &mut self.stage {
            Stage::Connecting(_) => Ok(0),
            Stage::Connected(connection) => connection.write(bytes).map_err(io_error),
            Stage::Refused(error) => Err(refusal(*error)),
        }
    }

    fn finish(&mut self, now: Duration) {
        self.close(now);
    }

    fn is_flushed(&self) -> bool {
        matches!(&self.stage, Stage::Connected(connection) if connection.is_flushed())
    }

    fn close(&mut self, now: Duration) {
        match &mut self.stage {
            // Nobody waits for the listener's answer any more.
            Stage::Connecting(_) => self.stage = Stage::Refused(ConnectError::NoAnswer),
            Stage::Connected(connection) => connection.close(now),
            Stage::Refused(_) => {}
        }
    }

    fn state(&self) -> State {
        match &self.stage {
            Stage::Connecting(_) => {
                State { phase: Phase::Connecting, is_readable: false, is_writable: false }
            }
            Stage::Connected(connection) => {
                let is_over = connection.is_over();
                State {
                    phase: if is_over { Phase::Over } else { Phase::Open },
                    is_readable: connection.has_ended() || connection.readable() > 0,
                    is_writable: connection.has_ended() || connection.has_much_room(),
                }
            }
            Stage::Refused(_) => State { phase: Phase::Over, is_readable: true, is_writable: true },
        }
    }

    fn error(&self) -> Option<io::Error> {
        match &self.stage {
            Stage::Connecting(_) => None,
            Stage::Connected(connection) => connection.error().map(io_error),
            Stage::Refused(error) => Some(refusal(*error)),
        }
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn statistics(&self) -> streams::Statistics {
        let Stage::Connected(connection) = &self.stage else {
            return streams::Statistics::default();
        };
        let counted = connection.statistics();
        streams::Statistics {
            bytes_unacknowledged: Some(connection.unacknowledged()),
            packets_sent: counted.sent,
            packets_repeated: counted.repeated,
            packets_received: counted.received,
            packets_refused: counted.useless + counted.refused,
            round_trip: Some(connection.round_trip()),
            rate_bytes_per_s: connection.rate_bytes_per_s(),
            congestion: Some("udt"),
            ..streams::Statistics::default()
        }
    }
}

fn refusal(error: ConnectError) -> io::Error {
    let kind = match error {
        ConnectError::NoAnswer | ConnectError::NotAccepted => io::ErrorKind::TimedOut,
        ConnectError::Refused => io::ErrorKind::ConnectionRefused,
    };
    io::Error::new(kind, error)
}

fn io_error(error: ConnectionError) -> io::Error {
    let kind = match error {
        ConnectionError::Silent(_) => io::ErrorKind::TimedOut,
        ConnectionError::Truncated => io::ErrorKind::UnexpectedEof,
        ConnectionError::Closed => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}
