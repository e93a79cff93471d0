//! A connection as a [`UdpStreamConnection`](udp::streams::UdpStreamConnection), from the first
//! request on.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use udp::streams::{self, ReceivedDatagram, UdpStreamPhase, UdpStreamRead, UdpStreamState};

use crate::protocol::{
    SabulClientHandshake, SabulConnectError, SabulConnectOutcome, SabulConnection,
    SabulConnectionError, SabulReadOutcome as Outcome, destination,
};

/// A connection, or a client's handshake.
#[derive(Debug)]
pub(super) struct SabulStreamConnection {
    peer: SocketAddr,
    stage: SabulStreamStage,
}

#[derive(Debug)]
enum SabulStreamStage {
    Connecting(Box<SabulClientHandshake>),
    Refused(SabulConnectError),
    Connected(Box<SabulConnection>),
}

impl SabulStreamConnection {
    /// Creates a client's connection.
    pub(super) fn connecting(connecting: SabulClientHandshake, peer: SocketAddr) -> Self {
        Self { peer, stage: SabulStreamStage::Connecting(Box::new(connecting)) }
    }

    /// Creates a listener's connection.
    pub(super) fn connected(connection: SabulConnection, peer: SocketAddr) -> Self {
        Self { peer, stage: SabulStreamStage::Connected(Box::new(connection)) }
    }
}

impl streams::UdpStreamConnection for SabulStreamConnection {
    fn handle_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>) {
        if datagram.from != self.peer {
            return;
        }
        match &mut self.stage {
            SabulStreamStage::Connecting(connecting) => {
                match connecting.handle_datagram(now, datagram.bytes) {
                    SabulConnectOutcome::Yes(connection) => {
                        self.stage = SabulStreamStage::Connected(connection);
                    }
                    SabulConnectOutcome::Failed(error) => {
                        self.stage = SabulStreamStage::Refused(error);
                    }
                    SabulConnectOutcome::NotYet => {}
                }
            }
            SabulStreamStage::Connected(connection) => match destination(datagram.bytes) {
                // The endpoint has checked that this is a request for this connection.
                Some(0) => connection.respond(),
                _ => connection.handle_arrived(now, datagram.arrived_at, datagram.bytes),
            },
            SabulStreamStage::Refused(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        match &mut self.stage {
            SabulStreamStage::Connecting(connecting) => {
                if let Err(error) = connecting.handle_timeout(now) {
                    self.stage = SabulStreamStage::Refused(error);
                }
            }
            SabulStreamStage::Connected(connection) => connection.handle_timeout(now),
            SabulStreamStage::Refused(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        match &self.stage {
            SabulStreamStage::Connecting(connecting) => Some(connecting.poll_timeout()),
            SabulStreamStage::Connected(connection) => connection.poll_timeout(),
            SabulStreamStage::Refused(_) => None,
        }
    }

    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        let is_written = match &mut self.stage {
            SabulStreamStage::Connecting(connecting) => connecting.poll_transmit(now, datagram),
            SabulStreamStage::Connected(connection) => connection.poll_transmit(now, datagram),
            SabulStreamStage::Refused(_) => false,
        };
        is_written.then_some(self.peer)
    }

    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<UdpStreamRead> {
        match &mut self.stage {
            SabulStreamStage::Connecting(_) => Ok(UdpStreamRead::Nothing),
            SabulStreamStage::Connected(connection) => {
                match connection.read(to, now).map_err(io_error)? {
                    Outcome::Bytes(count) => Ok(UdpStreamRead::Bytes(count)),
                    Outcome::Nothing if connection.is_over() => Ok(UdpStreamRead::End),
                    Outcome::Nothing => Ok(UdpStreamRead::Nothing),
                    Outcome::End => Ok(UdpStreamRead::End),
                }
            }
            SabulStreamStage::Refused(error) => Err(refusal(*error)),
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        match &mut self.stage {
            SabulStreamStage::Connecting(_) => Ok(0),
            SabulStreamStage::Connected(connection) => connection.write(bytes).map_err(io_error),
            SabulStreamStage::Refused(error) => Err(refusal(*error)),
        }
    }

    fn finish(&mut self, now: Duration) {
        self.close(now);
    }

    fn is_flushed(&self) -> bool {
        matches!(&self.stage, SabulStreamStage::Connected(connection) if connection.is_flushed())
    }

    fn close(&mut self, now: Duration) {
        match &mut self.stage {
            // The program no longer waits for the listener's answer.
            SabulStreamStage::Connecting(_) => {
                self.stage = SabulStreamStage::Refused(SabulConnectError::NoAnswer);
            }
            SabulStreamStage::Connected(connection) => connection.close(now),
            SabulStreamStage::Refused(_) => {}
        }
    }

    fn state(&self) -> UdpStreamState {
        match &self.stage {
            SabulStreamStage::Connecting(_) => UdpStreamState {
                phase: UdpStreamPhase::Connecting,
                is_readable: false,
                is_writable: false,
            },
            SabulStreamStage::Connected(connection) => {
                let is_over = connection.is_over();
                UdpStreamState {
                    phase: if is_over { UdpStreamPhase::Over } else { UdpStreamPhase::Open },
                    is_readable: connection.has_ended() || connection.readable() > 0,
                    is_writable: connection.has_ended() || connection.is_worth_waking_writer(),
                }
            }
            SabulStreamStage::Refused(_) => {
                UdpStreamState { phase: UdpStreamPhase::Over, is_readable: true, is_writable: true }
            }
        }
    }

    fn error(&self) -> Option<io::Error> {
        match &self.stage {
            SabulStreamStage::Connecting(_) => None,
            SabulStreamStage::Connected(connection) => connection.error().map(io_error),
            SabulStreamStage::Refused(error) => Some(refusal(*error)),
        }
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn statistics(&self) -> streams::UdpStreamStatistics {
        let SabulStreamStage::Connected(connection) = &self.stage else {
            return streams::UdpStreamStatistics::default();
        };
        let counted = connection.statistics();
        streams::UdpStreamStatistics {
            bytes_unacknowledged: Some(connection.unacknowledged()),
            packets_sent: counted.sent,
            packets_repeated: counted.repeated,
            packets_received: counted.received,
            packets_refused: counted.useless + counted.refused,
            round_trip: Some(connection.round_trip()),
            rate_bytes_per_s: connection.rate_bytes_per_s(),
            congestion: Some("udt"),
            ..streams::UdpStreamStatistics::default()
        }
    }
}

fn refusal(error: SabulConnectError) -> io::Error {
    let kind = match error {
        SabulConnectError::NoAnswer | SabulConnectError::NotAccepted => io::ErrorKind::TimedOut,
        SabulConnectError::Refused => io::ErrorKind::ConnectionRefused,
    };
    io::Error::new(kind, error)
}

fn io_error(error: SabulConnectionError) -> io::Error {
    let kind = match error {
        SabulConnectionError::Silent(_) => io::ErrorKind::TimedOut,
        SabulConnectionError::Truncated => io::ErrorKind::UnexpectedEof,
        SabulConnectionError::Closed => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}
