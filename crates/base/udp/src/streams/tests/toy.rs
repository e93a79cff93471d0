//! A protocol without retransmission, which loopback does not need if little is in flight. A
//! datagram consists of the name of the protocol, the number of the connection, the kind of
//! datagram, and bytes.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::super::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection, UdpStreamEndpoint,
    UdpStreamPhase, UdpStreamRead, UdpStreamState, UdpStreamStatistics, now,
};

/// Bytes that make the receiving connection panic.
pub(super) const POISON: &[u8] = b"poison";

/// The size of the send buffer, in bytes.
const ROOM: usize = 20_000;

const HELLO: u8 = 0;
const WELCOME: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const REFUSAL: u8 = 4;
const ACK: u8 = 5;

/// The largest number of unacknowledged datagrams with bytes.
const WINDOW: usize = 8;

pub(super) struct Toy {
    name: &'static str,
    id: u64,
    peer: SocketAddr,
    phase: UdpStreamPhase,
    /// A datagram to be sent first.
    greeting: Option<u8>,
    to_send: VecDeque<u8>,
    received: VecDeque<u8>,
    unacknowledged: usize,
    acks_due: usize,
    /// Whether this end's stream is to be ended, and whether that was sent.
    end: (bool, bool),
    has_peer_ended: bool,
    is_closed: bool,
    error: Option<io::ErrorKind>,
}

impl Toy {
    pub(super) fn client(name: &'static str, peer: SocketAddr) -> Self {
        let id = u64::try_from(now().as_nanos()).unwrap();
        Self::new(name, id, peer, UdpStreamPhase::Connecting, HELLO)
    }

    fn new(
        name: &'static str,
        id: u64,
        peer: SocketAddr,
        phase: UdpStreamPhase,
        greeting: u8,
    ) -> Self {
        Self {
            name,
            id,
            peer,
            phase,
            greeting: Some(greeting),
            to_send: VecDeque::new(),
            received: VecDeque::new(),
            unacknowledged: 0,
            acks_due: 0,
            end: (false, false),
            has_peer_ended: false,
            is_closed: false,
            error: None,
        }
    }

    fn has_data_to_send(&self) -> bool {
        !self.to_send.is_empty() && self.unacknowledged < WINDOW
    }

    fn has_end_to_send(&self) -> bool {
        self.to_send.is_empty() && self.end == (true, false)
    }

    fn is_over(&self) -> bool {
        let has_sent_all = self.end.1 && self.acks_due + self.unacknowledged == 0;
        let has_ended = has_sent_all && (self.has_peer_ended || self.is_closed);
        self.error.is_some() || has_ended
    }
}

fn parse<'a>(name: &str, datagram: &'a [u8]) -> Option<(u64, u8, &'a [u8])> {
    let (id, rest) = datagram.strip_prefix(name.as_bytes())?.split_first_chunk()?;
    let (kind, bytes) = rest.split_first()?;
    Some((u64::from_be_bytes(*id), *kind, bytes))
}

fn write(name: &str, id: u64, kind: u8, datagram: &mut Vec<u8>) {
    datagram.extend_from_slice(name.as_bytes());
    datagram.extend_from_slice(&id.to_be_bytes());
    datagram.push(kind);
}

impl UdpStreamConnection for Toy {
    fn handle_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>) {
        assert!(datagram.arrived_at <= now);
        let (id, kind, bytes) = parse(self.name, datagram.bytes).unwrap();
        assert_eq!((id, datagram.from), (self.id, self.peer));
        match kind {
            WELCOME => self.phase = UdpStreamPhase::Open,
            DATA => {
                assert_ne!(bytes, POISON);
                self.received.extend(bytes);
                self.acks_due += 1;
            }
            ACK => self.unacknowledged -= 1,
            END => self.has_peer_ended = true,
            REFUSAL => self.error = Some(io::ErrorKind::ConnectionRefused),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Duration) {}

    fn poll_timeout(&self) -> Option<Duration> {
        if self.is_over() {
            None
        } else if self.greeting.is_some()
            || self.acks_due > 0
            || self.has_data_to_send()
            || self.has_end_to_send()
        {
            Some(Duration::ZERO)
        } else {
            Some(Duration::MAX)
        }
    }

    fn poll_transmit(&mut self, _now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr> {
        assert!(datagram.is_empty());
        if let Some(kind) = self.greeting.take() {
            write(self.name, self.id, kind, datagram);
        } else if self.acks_due > 0 {
            self.acks_due -= 1;
            write(self.name, self.id, ACK, datagram);
        } else if self.has_data_to_send() {
            self.unacknowledged += 1;
            write(self.name, self.id, DATA, datagram);
            let len = self.to_send.len().min(1000);
            datagram.extend(self.to_send.drain(..len));
        } else if self.has_end_to_send() {
            self.end.1 = true;
            write(self.name, self.id, END, datagram);
        } else {
            return None;
        }
        Some(self.peer)
    }

    fn read(&mut self, to: &mut [u8], _now: Duration) -> io::Result<UdpStreamRead> {
        let len = to.len().min(self.received.len());
        for (place, byte) in to.iter_mut().zip(self.received.drain(..len)) {
            *place = byte;
        }
        match len {
            0 if self.has_peer_ended || self.is_over() => Ok(UdpStreamRead::End),
            0 => Ok(UdpStreamRead::Nothing),
            len => Ok(UdpStreamRead::Bytes(len)),
        }
    }

    fn write(&mut self, bytes: &[u8], _now: Duration) -> io::Result<usize> {
        let len = bytes.len().min(ROOM - self.to_send.len());
        self.to_send.extend(&bytes[..len]);
        Ok(len)
    }

    fn finish(&mut self, _now: Duration) {
        self.end.0 = true;
    }

    fn is_flushed(&self) -> bool {
        self.to_send.is_empty() && self.unacknowledged == 0 && self.end.0 == self.end.1
    }

    fn close(&mut self, _now: Duration) {
        self.end.0 = true;
        self.is_closed = true;
    }

    fn state(&self) -> UdpStreamState {
        UdpStreamState {
            phase: if self.is_over() { UdpStreamPhase::Over } else { self.phase },
            is_readable: !self.received.is_empty() || self.has_peer_ended,
            is_writable: self.to_send.len() < ROOM / 2,
        }
    }

    fn error(&self) -> Option<io::Error> {
        self.error.map(io::Error::from)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn statistics(&self) -> UdpStreamStatistics {
        UdpStreamStatistics::default()
    }
}

pub(super) struct ToyEndpoint {
    name: &'static str,
    ids: HashSet<u64>,
}

impl ToyEndpoint {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ids: HashSet::new() }
    }
}

impl UdpStreamEndpoint for ToyEndpoint {
    fn protocol(&self) -> &'static str {
        self.name
    }

    fn handle_datagram(
        &mut self,
        _now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting {
        match parse(self.name, datagram.bytes) {
            Some((id, HELLO, _)) if load == ListenerLoad::Full => {
                let mut refusal = Vec::new();
                write(self.name, id, REFUSAL, &mut refusal);
                DatagramRouting::Refuse { answer: refusal, why: "there is no room" }
            }
            Some((id, HELLO, _)) => {
                assert!(self.ids.insert(id));
                let connection =
                    Toy::new(self.name, id, datagram.from, UdpStreamPhase::Open, WELCOME);
                DatagramRouting::Accept { id, connection: Box::new(connection) }
            }
            Some((id, ..)) if self.ids.contains(&id) => DatagramRouting::To(id),
            Some(_) => DatagramRouting::Nothing,
            None => DatagramRouting::NotMine,
        }
    }

    fn forget(&mut self, id: u64) {
        assert!(self.ids.remove(&id));
    }
}
