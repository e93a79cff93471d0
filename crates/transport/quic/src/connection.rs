//! A connection with one stream in each direction.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn_proto::{
    ClientConfig, ConnectionEvent, ConnectionHandle, DatagramEvent, Dir, Event, ReadError,
    StreamEvent, StreamId, VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;
use udp::streams::{
    self, ReceivedDatagram, UdpStreamPhase, UdpStreamRead, UdpStreamState, UdpStreamStatistics,
    instant,
};

use crate::config::QuicConfig;
use crate::error::QuicError;
use crate::identity;
use crate::reassembly::QuicReorderBuffer;
use crate::refusal::{QuicConnectionIds, QuicRefusalReason};
use crate::shared_endpoint::SharedQuicEndpoint;

/// The server name that a client requests. It has no meaning, as keys authenticate the peer.
const SERVER_NAME: &str = "sunder";

/// How long a client ignores a refusal, as refusals are not authenticated.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// A connection with one stream in each direction.
#[expect(clippy::struct_excessive_bools, reason = "each holds or not, whatever the others do")]
pub(crate) struct QuicConnection {
    hub: SharedQuicEndpoint,
    handle: ConnectionHandle,
    connection: quinn_proto::Connection,
    is_client: bool,
    config: QuicConfig,
    began_at: Duration,
    is_connected: bool,
    /// The connection identifiers of a client's first datagram.
    initial_ids: Option<QuicConnectionIds>,
    /// When a client believes a refusal; refusals are not authenticated.
    refusal: Option<(Duration, QuicRefusalReason)>,
    /// The stream to the peer, once it is open.
    outgoing: Option<StreamId>,
    outgoing_state: QuicSendStreamState,
    incoming: Option<StreamId>,
    received: QuicReorderBuffer,
    /// Whether the end of the peer's stream has arrived.
    is_fully_received: bool,
    /// Whether the program no longer uses the connection: it ends once everything written has
    /// arrived.
    is_closing: bool,
    close_error: Option<QuicError>,
    /// Whether there may be something to send now.
    has_output: bool,
    /// The timeout that `quinn-proto` returned after everything was sent.
    timeout: Option<Duration>,
}

/// The state of the stream to the peer.
#[expect(clippy::struct_excessive_bools, reason = "each holds or not, whatever the others do")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QuicSendStreamState {
    has_written: bool,
    is_blocked: bool,
    is_finished: bool,
    has_arrived: bool,
}

impl QuicConnection {
    /// Creates a client's connection to `peer`. With a `seed`, it is reproducible, for tests.
    pub(crate) fn connect(
        peer: SocketAddr,
        config: &QuicConfig,
        seed: Option<[u8; 32]>,
        now: Duration,
    ) -> io::Result<Self> {
        let mut client = ClientConfig::new(identity::client(config)?);
        client.transport_config(Arc::new(config.transport()?));
        let hub = SharedQuicEndpoint::new(None, seed);
        let connected = hub.lock().endpoint.connect(instant(now), client, peer, SERVER_NAME);
        let (handle, connection) = connected.map_err(io::Error::other)?;
        Ok(Self::new(hub, handle, connection, true, config, now))
    }

    /// Creates a connection that a listener has accepted.
    pub(crate) fn accepted(
        hub: SharedQuicEndpoint,
        handle: ConnectionHandle,
        connection: quinn_proto::Connection,
        config: &QuicConfig,
        now: Duration,
    ) -> Self {
        let mut accepted = Self::new(hub, handle, connection, false, config, now);
        accepted.take_events(now);
        accepted
    }

    fn new(
        hub: SharedQuicEndpoint,
        handle: ConnectionHandle,
        connection: quinn_proto::Connection,
        is_client: bool,
        config: &QuicConfig,
        now: Duration,
    ) -> Self {
        Self {
            hub,
            handle,
            connection,
            is_client,
            config: config.clone(),
            began_at: now,
            is_connected: false,
            initial_ids: None,
            refusal: None,
            outgoing: None,
            outgoing_state: QuicSendStreamState::default(),
            incoming: None,
            received: QuicReorderBuffer::default(),
            is_fully_received: false,
            is_closing: false,
            close_error: None,
            has_output: true,
            timeout: None,
        }
    }

    /// The events that a datagram causes for the connection.
    fn events_of(&self, now: Duration, datagram: &ReceivedDatagram<'_>) -> Vec<ConnectionEvent> {
        let mut hub = self.hub.lock();
        if !self.is_client {
            // The endpoint has already handled it.
            return hub.take_queued_events(self.handle);
        }
        match hub.handle(now, datagram.from, datagram.bytes, &mut Vec::new()) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => vec![event],
            Some(DatagramEvent::NewConnection(incoming)) => {
                hub.endpoint.ignore(incoming);
                Vec::new()
            }
            Some(DatagramEvent::Response(_)) | None => Vec::new(),
        }
    }

    /// Handles the connection's events after it has handled input.
    fn take_events(&mut self, now: Duration) {
        self.has_output = true;
        while let Some(event) = self.connection.poll_endpoint_events() {
            let answer = self.hub.lock().endpoint.handle_event(self.handle, event);
            if let Some(event) = answer {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => {
                    self.is_connected = true;
                    self.outgoing = self.connection.streams().open(Dir::Uni);
                }
                Event::ConnectionLost { reason } => {
                    let QuicConfig { connect_timeout, idle_timeout: silence, .. } = self.config;
                    let error = QuicError::of(&reason, self.is_connected, connect_timeout, silence);
                    self.close_error.get_or_insert(error);
                }
                Event::Stream(event) => self.handle_stream_event(&event, now),
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
                }
            }
        }
        self.end_closing(now);
    }

    fn handle_stream_event(&mut self, event: &StreamEvent, now: Duration) {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                self.incoming = self.connection.streams().accept(Dir::Uni);
                self.receive(now);
            }
            StreamEvent::Readable { .. } => self.receive(now),
            StreamEvent::Writable { .. } => self.outgoing_state.is_blocked = false,
            StreamEvent::Finished { .. } => self.outgoing_state.has_arrived = true,
            StreamEvent::Stopped { .. } => {
                self.close_error.get_or_insert(QuicError::Closed);
            }
            StreamEvent::Opened { dir: Dir::Bi } | StreamEvent::Available { .. } => {}
        }
    }

    /// Reads what has arrived of the peer's stream, in any order: `quinn-proto` fails if it must
    /// keep more than 1,024 separate parts of a stream.
    fn receive(&mut self, now: Duration) {
        let Some(id) = self.incoming.filter(|_| !self.is_fully_received) else { return };
        let window = self.config.window as usize;
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(false) else { return };
        // If nothing can be read in order, the missing part may be among what has arrived. Reading
        // opens the peer's window, so what a correct peer sends fits into twice the window.
        while self.received.len() < window
            || (self.received.ready_len() == 0 && self.received.len() <= 2 * window)
        {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.received.insert(chunk.offset, chunk.bytes),
                Ok(None) => {
                    self.is_fully_received = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(_)) => {
                    self.close_error.get_or_insert(QuicError::Truncated);
                    break;
                }
            }
        }
        let has_output = chunks.finalize().should_transmit();
        self.has_output |= has_output;
        if self.received.len() > 2 * window {
            self.fail(now, QuicError::TooManyGaps);
        }
    }

    fn fail(&mut self, now: Duration, error: QuicError) {
        self.close_error.get_or_insert(error);
        self.connection.close(instant(now), VarInt::from_u32(1), Bytes::new());
        self.has_output = true;
    }

    /// Closes the connection if the program no longer uses it and everything has arrived.
    fn end_closing(&mut self, now: Duration) {
        let is_done = self.outgoing_state.has_arrived || self.outgoing.is_none();
        if self.is_closing && is_done && !self.connection.is_closed() {
            self.connection.close(instant(now), VarInt::from_u32(0), Bytes::new());
            self.has_output = true;
        }
    }

    fn is_over(&self) -> bool {
        self.close_error.is_some() || self.connection.is_closed()
    }
}

impl streams::UdpStreamConnection for QuicConnection {
    fn handle_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>) {
        let first_ids = self.initial_ids.as_ref();
        if let Some(reason) = first_ids.and_then(|ids| ids.parse_refusal(datagram.bytes)) {
            self.refusal.get_or_insert((now + REFUSAL_WAIT, reason));
            return;
        }
        for event in self.events_of(now, datagram) {
            self.connection.handle_event(event);
        }
        self.take_events(now);
    }

    fn handle_timeout(&mut self, now: Duration) {
        if let Some((at, reason)) = self.refusal
            && !self.is_connected
            && now >= at
        {
            let error = match reason {
                QuicRefusalReason::OtherKey => QuicError::OtherKey,
                QuicRefusalReason::Insecure => QuicError::Insecure,
            };
            self.fail(now, error);
        }
        if !self.is_connected && now >= self.began_at + self.config.connect_timeout {
            self.fail(now, QuicError::NoAnswer(self.config.connect_timeout));
        }
        self.connection.handle_timeout(instant(now));
        self.take_events(now);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.connection.is_drained() {
            return None;
        }
        if self.has_output {
            return Some(Duration::ZERO);
        }
        let connecting = self.began_at + self.config.connect_timeout;
        let connecting = self.refusal.map_or(connecting, |(at, _)| at.min(connecting));
        let connecting = (!self.is_connected && self.close_error.is_none()).then_some(connecting);
        let next = [self.timeout, connecting].into_iter().flatten().min();
        Some(next.unwrap_or(Duration::MAX))
    }

    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        let transmit = self.connection.poll_transmit(instant(now), 1, datagram);
        if let Some(transmit) = transmit {
            if self.is_client && self.initial_ids.is_none() {
                self.initial_ids = QuicConnectionIds::from_initial(datagram);
            }
            return Some(transmit.destination);
        }
        self.has_output = false;
        let epoch = instant(Duration::ZERO);
        self.timeout = self.connection.poll_timeout().map(|at| at.saturating_duration_since(epoch));
        None
    }

    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<UdpStreamRead> {
        let count = self.received.read(to);
        self.receive(now);
        if count > 0 {
            return Ok(UdpStreamRead::Bytes(count));
        }
        if self.received.ready_len() > 0 {
            return Ok(UdpStreamRead::Bytes(self.received.read(to)));
        }
        if self.is_fully_received {
            return Ok(UdpStreamRead::End);
        }
        match &self.close_error {
            Some(QuicError::Closed) => Err(QuicError::Truncated.into()),
            Some(error) => Err(error.clone().into()),
            None if self.connection.is_closed() => Err(QuicError::ClosedHere.into()),
            None => Ok(UdpStreamRead::Nothing),
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        if let Some(error) = &self.close_error {
            return Err(error.clone().into());
        }
        if self.outgoing_state.is_finished || self.is_closing {
            return Err(QuicError::ClosedHere.into());
        }
        let Some(id) = self.outgoing else { return Ok(0) };
        match self.connection.send_stream(id).write(bytes) {
            Ok(count) => {
                self.outgoing_state.has_written |= count > 0;
                self.has_output = true;
                Ok(count)
            }
            Err(WriteError::Blocked) => {
                self.outgoing_state.is_blocked = true;
                Ok(0)
            }
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => Err(QuicError::Closed.into()),
        }
    }

    fn finish(&mut self, _now: Duration) {
        if let Some(id) = self.outgoing
            && !self.outgoing_state.is_finished
        {
            self.outgoing_state.is_finished = true;
            // This fails only if the peer has stopped the stream, which is reported as an event.
            let _ = self.connection.send_stream(id).finish();
            self.has_output = true;
        }
    }

    fn is_flushed(&self) -> bool {
        let QuicSendStreamState { has_written, is_finished, has_arrived, .. } = self.outgoing_state;
        if is_finished { has_arrived } else { !has_written }
    }

    fn close(&mut self, now: Duration) {
        self.finish(now);
        self.is_closing = true;
        self.end_closing(now);
    }

    fn abort(&mut self, now: Duration) {
        if !self.connection.is_closed() {
            self.fail(now, QuicError::ClosedHere);
        }
    }

    fn state(&self) -> UdpStreamState {
        let is_over = self.is_over();
        let phase = match (is_over, self.is_connected) {
            (true, _) => UdpStreamPhase::Over,
            (false, true) => UdpStreamPhase::Open,
            (false, false) => UdpStreamPhase::Connecting,
        };
        UdpStreamState {
            phase,
            is_readable: is_over || self.is_fully_received || self.received.ready_len() > 0,
            is_writable: is_over || (self.is_connected && !self.outgoing_state.is_blocked),
        }
    }

    fn error(&self) -> Option<io::Error> {
        match &self.close_error {
            None | Some(QuicError::Closed) if self.is_connected => None,
            lost => lost.clone().map(io::Error::from),
        }
    }

    fn peer_addr(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    fn peer_key(&self) -> Option<[u8; 32]> {
        self.config.listener?;
        let shown = self.connection.crypto_session().peer_identity()?;
        let shown = shown.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        Some(identity::peer_key(&shown)?.to_bytes())
    }

    fn statistics(&self) -> UdpStreamStatistics {
        let counted = self.connection.stats();
        let seconds = counted.path.rtt.as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate, which saturates"
        )]
        let rate = (counted.path.cwnd as f64 / seconds) as u64;
        UdpStreamStatistics {
            packets_sent: counted.path.sent_packets.saturating_sub(counted.path.lost_packets),
            packets_repeated: counted.path.lost_packets,
            packets_received: counted.udp_rx.datagrams,
            round_trip: self.is_connected.then_some(counted.path.rtt),
            congestion: Some(self.config.congestion.name()),
            rate_bytes_per_s: (self.is_connected && seconds > 0.0).then_some(rate),
            ..UdpStreamStatistics::default()
        }
    }
}
