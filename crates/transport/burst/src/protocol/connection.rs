//! One end of a connection.

mod datagrams;
mod paths;
mod transmitting;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};
use udp::streams::{self, UdpStreamPhase, UdpStreamRead, UdpStreamState, UdpStreamStatistics};
use zeroize::Zeroizing;

use super::config::{BurstConfig, BurstWaitReason, Error};
use super::frame::BurstCloseReason;
use super::handshake::{
    BurstClientHandshake, BurstHandshakeResult, BurstHandshakeSecurity, BurstPacketCipher,
    BurstServerHandshake,
};
use super::packet::BurstConnectionId;
use super::receiving::BurstReceiver;
use super::sending::BurstSender;
use datagrams::PendingTrainReport;
use paths::BurstPeerPath;

/// The stream starts at this fraction of the measured rate, because others may share the path.
const START_SHARE: f64 = 0.9;

/// A connection, with a stream in each direction.
pub struct BurstConnection {
    config: BurstConfig,
    stage: BurstConnectionStage,
    is_client: bool,
    own_id: BurstConnectionId,
    peer_id: BurstConnectionId,
    peer_key: Option<IdentityPublicKey>,
    /// `None` before the handshake.
    crypt: Option<BurstPacketCipher>,
    sending: BurstSender,
    receiving: BurstReceiver,
    paths: BurstPeerPath,
    /// The measurement of a train from the peer.
    report: PendingTrainReport,
    /// When the last packet of the peer arrived.
    last_received_at: Duration,
    /// When a ping is sent if nothing arrives.
    ping_at: Duration,
    /// Whether the client has sent nothing yet, so that the listener has no connection.
    is_held: bool,
    /// Whether the program has closed the connection: it no longer reads or writes.
    is_closed_by_program: bool,
    error: Option<Error>,
    refused: u64,
    plaintext: Vec<u8>,
    frames: Vec<u8>,
}

enum BurstConnectionStage {
    /// A client waits for the answer.
    Connecting(Box<BurstClientHandshake>),
    /// A listener's end waits for the client's first packet.
    Answering(Box<BurstServerHandshake>),
    Open,
    /// Both streams have ended. Until the peer's close arrives, what the peer retransmits is
    /// acknowledged.
    Lingering(BurstCloseState),
    /// This end accepts no more data.
    Closing(BurstCloseState),
    Over,
}

/// A close is sent, and repeated in response to what arrives, until `until`.
struct BurstCloseState {
    reason: BurstCloseReason,
    until: Duration,
    next_at: Duration,
    is_due: bool,
}

/// How a client authenticates the listener and itself.
#[derive(Clone)]
pub enum BurstSecurity<'a> {
    /// Packets are encrypted, with the client's key and the listener's.
    Noise(&'a IdentitySecretKey, IdentityPublicKey),
    /// Packets are not encrypted: anyone on the path can read and change the stream.
    Insecure,
}

impl BurstConnection {
    /// Creates the client's end of a connection to a listener at `peer`, which sends a hello next.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn connect(
        config: BurstConfig,
        peer: SocketAddr,
        security: &BurstSecurity<'_>,
        generator: &mut RandomGenerator,
        now: Duration,
    ) -> Result<Self, RandomError> {
        let security = match security {
            BurstSecurity::Noise(own, key) => BurstHandshakeSecurity::Noise(own, *key),
            BurstSecurity::Insecure => BurstHandshakeSecurity::Insecure,
        };
        let client = BurstClientHandshake::new(&config, &security, generator, now)?;
        let id = client.id();
        let stage = BurstConnectionStage::Connecting(Box::new(client));
        let secret = Zeroizing::new(generator.array()?);
        Ok(Self::new(
            config,
            peer,
            stage,
            true,
            [id, id],
            BurstPeerPath::new(peer, secret, now),
            now,
        ))
    }

    /// Creates a listener's end.
    pub(super) fn answer(
        config: BurstConfig,
        server: BurstServerHandshake,
        ids: [BurstConnectionId; 2],
        peer: SocketAddr,
        secret: [u8; 32],
        now: Duration,
    ) -> Self {
        let stage = BurstConnectionStage::Answering(Box::new(server));
        let paths = BurstPeerPath::new(peer, Zeroizing::new(secret), now);
        Self::new(config, peer, stage, false, ids, paths, now)
    }

    fn new(
        config: BurstConfig,
        _peer: SocketAddr,
        stage: BurstConnectionStage,
        is_client: bool,
        [own_id, peer_id]: [BurstConnectionId; 2],
        paths: BurstPeerPath,
        now: Duration,
    ) -> Self {
        Self {
            config,
            stage,
            is_client,
            own_id,
            peer_id,
            peer_key: None,
            crypt: None,
            sending: BurstSender::new(config.send_buffer),
            receiving: BurstReceiver::new(config.receive_buffer),
            paths,
            report: PendingTrainReport::default(),
            last_received_at: now,
            ping_at: Duration::MAX,
            is_held: is_client && config.is_deferred,
            is_closed_by_program: false,
            error: None,
            refused: 0,
            plaintext: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Opens the connection with the result of the handshake.
    fn establish(&mut self, now: Duration, established: BurstHandshakeResult) {
        self.crypt = Some(established.crypt);
        self.peer_id = established.peer_id;
        self.peer_key = established.peer_key;
        let rate = self.start_rate(established.rate);
        self.sending.establish(established.window, rate, established.round_trip);
        self.paths.set_longest(established.longest);
        self.last_received_at = now;
    }

    /// The initial rate, if a train had the rate `measured`.
    fn start_rate(&self, measured: Option<f64>) -> Option<f64> {
        let measured = measured.map(|rate| rate * START_SHARE);
        match (self.config.start_rate, measured) {
            // The known rate may be out of date.
            (Some(known), Some(measured)) => Some(known.min(2.0 * measured)),
            (known, measured) => known.or(measured),
        }
    }

    /// Ends the connection with an error, without notifying the peer.
    fn fail(&mut self, error: Error) {
        self.error = Some(error);
        self.stage = BurstConnectionStage::Over;
    }

    /// Ends the connection and sends a close.
    fn close_with(&mut self, now: Duration, reason: BurstCloseReason, error: Option<Error>) {
        self.error = error;
        let until = now + self.sending.round_trip().timeout(0) * 3;
        self.stage = BurstConnectionStage::Closing(BurstCloseState {
            reason,
            until,
            next_at: now,
            is_due: true,
        });
    }

    /// Ends the connection if both directions have ended.
    fn advance(&mut self, now: Duration) {
        if !matches!(self.stage, BurstConnectionStage::Open) {
            return;
        }
        let is_sent = self.sending.is_flushed();
        if is_sent && self.sending.is_finished() && self.receiving.is_at_end() {
            let (reason, until) = (BurstCloseReason::Done, now + self.config.silence_timeout);
            self.stage = BurstConnectionStage::Lingering(BurstCloseState {
                reason,
                until,
                next_at: now,
                is_due: true,
            });
        } else if is_sent && self.is_closed_by_program {
            self.close_with(now, BurstCloseReason::GivenUp, None);
        }
    }

    /// Fails the connection if a time limit is exceeded.
    fn check_time(&mut self, now: Duration) {
        match &mut self.stage {
            BurstConnectionStage::Connecting(client) => {
                if let Err(error) = client.handle_timeout(now) {
                    self.fail(error);
                }
            }
            BurstConnectionStage::Answering(server) => {
                if server.is_late(now) {
                    let silence = now.saturating_sub(self.last_received_at);
                    self.fail(Error::Silent { silence, waiting: BurstWaitReason::FirstPacket });
                }
            }
            BurstConnectionStage::Open => {
                let silence = now.saturating_sub(self.last_received_at);
                let stall = self.sending.stalled_since().map(|since| now.saturating_sub(since));
                if silence >= self.config.silence_timeout {
                    let waiting = match self.sending.unacknowledged() + self.sending.unsent() {
                        0 => BurstWaitReason::Data,
                        bytes => BurstWaitReason::Acknowledgements(bytes),
                    };
                    self.fail(Error::Silent { silence, waiting });
                } else if let Some(time) = stall
                    && time >= self.config.stall_timeout
                {
                    let error = Error::NotReading { time, unsent: self.sending.unsent() };
                    self.close_with(now, BurstCloseReason::GivenUp, Some(error));
                }
            }
            BurstConnectionStage::Lingering(closing) | BurstConnectionStage::Closing(closing) => {
                if now >= closing.until {
                    self.stage = BurstConnectionStage::Over;
                }
            }
            BurstConnectionStage::Over => {}
        }
    }

    /// Whether memory is within its bounds.
    #[cfg(any(fuzzing, test))]
    pub(super) fn is_bounded(&self) -> bool {
        self.receiving.is_bounded()
    }

    /// Makes a packet to the peer with these frames, without recording it.
    #[cfg(any(fuzzing, test))]
    pub(super) fn forge(&mut self, now: Duration, frames: Vec<u8>) -> Vec<u8> {
        let mut datagram = Vec::new();
        let content = super::sending::BurstPacketContent::Nothing;
        self.send(now, self.paths.peer(), frames, content, &mut datagram);
        datagram
    }

    /// Whether the connection is over: only what has arrived can still be read.
    fn is_over(&self) -> bool {
        matches!(self.stage, BurstConnectionStage::Closing(_) | BurstConnectionStage::Over)
    }

    /// The error that reads and writes return.
    fn reason(&self) -> io::Error {
        self.error.clone().unwrap_or(Error::Closed).into()
    }
}

impl streams::UdpStreamConnection for BurstConnection {
    fn handle_datagram(&mut self, now: Duration, datagram: &streams::ReceivedDatagram<'_>) {
        self.take_datagram(now, datagram);
        self.advance(now);
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.check_time(now);
        if matches!(self.stage, BurstConnectionStage::Open | BurstConnectionStage::Lingering(_)) {
            self.sending.handle_timeout(now);
            self.paths.handle_timeouts(self.sending.timeouts());
        }
        self.advance(now);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.next_timeout()
    }

    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        self.next_datagram(now, datagram)
    }

    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<UdpStreamRead> {
        let count = self.receiving.read(to, now);
        self.advance(now);
        if count > 0 {
            Ok(UdpStreamRead::Bytes(count))
        } else if self.receiving.is_at_end() {
            Ok(UdpStreamRead::End)
        } else if self.is_over() {
            // The stream has not ended.
            Err(match self.reason() {
                error if error.kind() == io::ErrorKind::BrokenPipe => {
                    io::Error::new(io::ErrorKind::UnexpectedEof, error)
                }
                error => error,
            })
        } else {
            Ok(UdpStreamRead::Nothing)
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        self.is_held = false;
        if self.is_over() {
            Err(self.reason())
        } else if self.sending.is_finished() {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "the stream is finished"))
        } else {
            Ok(self.sending.write(bytes))
        }
    }

    fn finish(&mut self, now: Duration) {
        self.is_held = false;
        self.sending.finish();
        self.advance(now);
    }

    fn is_flushed(&self) -> bool {
        self.sending.is_flushed()
    }

    fn close(&mut self, now: Duration) {
        self.is_closed_by_program = true;
        self.receiving.discard(now);
        if !self.is_held {
            self.advance(now);
        }
        // Nothing was written that must wait for the handshake, or the listener's end never opened.
        let is_unheard = matches!(self.stage, BurstConnectionStage::Connecting(_)) || self.is_held;
        if is_unheard && self.sending.written() == 0 {
            self.stage = BurstConnectionStage::Over;
        }
    }

    fn state(&self) -> UdpStreamState {
        let phase = match self.stage {
            BurstConnectionStage::Connecting(_) | BurstConnectionStage::Answering(_) => {
                UdpStreamPhase::Connecting
            }
            // A listener's end opens only when a packet comes.
            BurstConnectionStage::Over if !self.is_client && self.ping_at == Duration::MAX => {
                UdpStreamPhase::Connecting
            }
            BurstConnectionStage::Open | BurstConnectionStage::Lingering(_) => UdpStreamPhase::Open,
            BurstConnectionStage::Closing(_) | BurstConnectionStage::Over => UdpStreamPhase::Over,
        };
        UdpStreamState {
            phase,
            is_readable: self.receiving.is_readable() || self.is_over(),
            is_writable: self.sending.has_room() || self.is_over(),
        }
    }

    fn error(&self) -> Option<io::Error> {
        self.error.clone().map(io::Error::from)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.paths.peer()
    }

    fn peer_key(&self) -> Option<[u8; 32]> {
        self.peer_key.map(|key| key.to_bytes())
    }

    fn statistics(&self) -> UdpStreamStatistics {
        let (sent, received) = (self.sending.counts(), self.receiving.counts());
        UdpStreamStatistics {
            bytes_written: self.sending.written(),
            bytes_read: received.bytes_read,
            packets_sent: sent.packets,
            packets_repeated: sent.repeated,
            packets_received: received.packets,
            packets_refused: self.refused,
            round_trip: self.sending.round_trip().smoothed(),
            rate_bytes_per_s: Some(self.sending.rate())
                .filter(|it| *it < f64::MAX)
                .map(super::to_u64),
            link_rate_bytes_per_s: Some(self.sending.link_rate())
                .filter(|it| *it > 0.0)
                .map(super::to_u64),
            congestion: Some("burst"),
            ..UdpStreamStatistics::default()
        }
    }
}

impl std::fmt::Debug for BurstConnection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("BurstConnection")
            .field("peer", &self.paths.peer())
            .field("sending", &self.sending)
            .field("receiving", &self.receiving)
            .finish_non_exhaustive()
    }
}
