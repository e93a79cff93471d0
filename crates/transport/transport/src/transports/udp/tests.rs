use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ::udp::streams::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection as _,
    UdpStreamEndpoint as _, UdpStreamPhase, UdpStreamRead,
};
use proptest::prelude::*;

use super::connection::{UdpTransportConnection, UdpTransportSettings};
use super::endpoint::UdpTransportListener;
use super::packet::{MAX_PAYLOAD, UdpTransportContent, UdpTransportPacket};

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1000);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 2000);
const SETTINGS: UdpTransportSettings =
    UdpTransportSettings { rate: 1e7, buffer: 1 << 18, connect_timeout: Duration::from_secs(3) };
const DELAY: Duration = Duration::from_millis(10);

/// Two ends whose datagrams take [`DELAY`], except those that a function of their index drops or
/// delays further.
struct Pair {
    now: Duration,
    ends: [UdpTransportConnection; 2],
    /// Datagrams in flight, by arrival time and index: the receiver and the datagram.
    under_way: std::collections::BTreeMap<(Duration, usize), (usize, Vec<u8>)>,
    sent: usize,
    fate: Box<dyn Fn(usize) -> Option<Duration>>,
}

impl Pair {
    fn connect(fate: impl Fn(usize) -> Option<Duration> + 'static) -> Self {
        let now = Duration::from_secs(7);
        let mut client = UdpTransportConnection::client(5, SERVER, SETTINGS, now);
        let mut listener = UdpTransportListener::new(SETTINGS, &[1; 32]);
        let mut request = Vec::new();
        client.poll_transmit(now, &mut request).unwrap();
        let asked = ReceivedDatagram { from: CLIENT, bytes: &request, arrived_at: now };
        // Under load, the client must prove its address.
        let DatagramRouting::Answer(cookie) =
            listener.handle_datagram(now, &asked, ListenerLoad::Heavy)
        else {
            panic!("no cookie")
        };
        assert!(cookie.len() <= request.len());
        client.handle_datagram(
            now,
            &ReceivedDatagram { from: SERVER, bytes: &cookie, arrived_at: now },
        );
        request.clear();
        client.poll_transmit(now, &mut request).unwrap();
        let asked = ReceivedDatagram { from: SERVER, bytes: &request, arrived_at: now };
        let other = listener.handle_datagram(now, &asked, ListenerLoad::Heavy);
        assert!(matches!(other, DatagramRouting::Answer(_)), "it is the cookie of another address");
        let asked = ReceivedDatagram { from: CLIENT, ..asked };
        let DatagramRouting::Accept { id: 5, .. } =
            listener.handle_datagram(now, &asked, ListenerLoad::Heavy)
        else {
            panic!("not accepted")
        };
        let server = UdpTransportConnection::server(5, CLIENT, SETTINGS, now);
        let fate = Box::new(fate);
        Self { now, ends: [client, server], under_way: [].into(), sent: 0, fate }
    }

    fn step(&mut self) {
        let mut next = Duration::MAX;
        for end in 0..2 {
            let mut datagram = Vec::new();
            while self.ends[end].poll_transmit(self.now, &mut datagram).is_some() {
                if let Some(delay) = (self.fate)(self.sent) {
                    let key = (self.now + DELAY + delay, self.sent);
                    self.under_way.insert(key, (1 - end, datagram.clone()));
                }
                self.sent += 1;
                datagram.clear();
            }
            next = next.min(self.ends[end].poll_timeout().unwrap_or(Duration::MAX));
        }
        match self.under_way.first_key_value() {
            Some((&key, _)) if key.0 <= next => {
                self.now = key.0;
                let (end, bytes) = self.under_way.remove(&key).unwrap();
                let from = [SERVER, CLIENT][end];
                let datagram = ReceivedDatagram { from, bytes: &bytes, arrived_at: self.now };
                self.ends[end].handle_datagram(self.now, &datagram);
            }
            _ => {
                assert!(next < Duration::MAX, "nothing happens any more");
                self.now = self.now.max(next);
                self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            }
        }
        assert!(self.now < Duration::from_secs(100));
    }

    /// Sends bytes from the client to the server. Returns both ends' errors if they fail.
    fn send(&mut self, len: usize) -> Result<(), [String; 2]> {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 253).to_le_bytes()[0]).collect();
        let (mut written, mut read, mut buffer) = (0, Vec::new(), vec![0; 5000]);
        loop {
            if let Ok(count) = self.ends[0].write(&bytes[written..], self.now) {
                written += count;
            }
            if written == len {
                self.ends[0].finish(self.now);
            }
            match self.ends[1].read(&mut buffer, self.now) {
                Ok(UdpStreamRead::Bytes(count)) => read.extend_from_slice(&buffer[..count]),
                Ok(UdpStreamRead::Nothing) => {}
                Ok(UdpStreamRead::End) => {
                    assert!(read == bytes);
                    while !self.ends[0].is_flushed() {
                        self.step();
                    }
                    return Ok(());
                }
                Err(error) => {
                    assert!(read[..] == bytes[..read.len()]);
                    while self.ends[0].state().phase != UdpStreamPhase::Over {
                        self.step();
                    }
                    let other = self.ends[0].write(b"x", self.now).unwrap_err();
                    return Err([other.to_string(), error.to_string()]);
                }
            }
            self.step();
        }
    }
}

#[test]
fn a_stream_arrives_at_the_rate() {
    let mut pair = Pair::connect(|_| Some(Duration::ZERO));
    let began = pair.now;
    pair.send(1_000_000).unwrap();
    let took = pair.now.saturating_sub(began).as_secs_f64();
    assert!((0.1..0.2).contains(&took), "{took}");
    pair.ends.iter_mut().for_each(|end| end.close(pair.now));
    while pair.ends.iter().any(|end| end.poll_timeout().is_some()) {
        pair.step();
    }
}

#[test]
fn datagrams_may_overtake_each_other() {
    let mut pair = Pair::connect(|index| Some(Duration::from_micros(index as u64 % 7 * 500)));
    pair.send(300_000).unwrap();
}

#[test]
fn a_loss_is_an_error_at_both_ends() {
    // Including the last one, after which only positions arrive.
    let last = 40 * MAX_PAYLOAD;
    for (len, lost) in [(300_000, 50), (last, 40)] {
        let mut pair = Pair::connect(move |index| (index != lost).then_some(Duration::ZERO));
        let errors = pair.send(len).unwrap_err();
        assert_eq!(errors[0], errors[1]);
        assert!(errors[0].starts_with("the network has lost datagram"), "{}", errors[0]);
    }
}

#[test]
fn welcomes_acknowledgements_and_positions_may_be_lost() {
    // Drops the welcome, and every third of the acknowledgements and positions at the end.
    let mut pair = Pair::connect(|index| (index != 0 && index % 3 != 0).then_some(Duration::ZERO));
    pair.ends[0].finish(pair.now);
    while !pair.ends[0].is_flushed() {
        pair.step();
    }
}

#[test]
fn a_peer_that_is_gone_is_an_error() {
    let mut pair = Pair::connect(|index| (index < 100).then_some(Duration::ZERO));
    let began = pair.now;
    let errors = pair.send(300_000).unwrap_err();
    assert!(errors.iter().any(|error| error == "the peer was silent for 15 s"), "{errors:?}");
    assert!(pair.now.saturating_sub(began) < Duration::from_secs(20));
}

#[test]
fn a_receiver_that_does_not_read_stops_the_sender() {
    let mut pair = Pair::connect(|_| Some(Duration::ZERO));
    let mut written = 0;
    let end = pair.now + Duration::from_secs(3);
    while pair.now < end {
        written += pair.ends[0].write(&[1; 4000], pair.now).unwrap();
        pair.step();
    }
    assert!(written < SETTINGS.buffer + (2 << 20), "{written}");
    assert_eq!(pair.ends[1].state().phase, UdpStreamPhase::Open);
}

proptest! {
    #[test]
    fn packets_are_parsed_as_written(id: u64, number: u64, flag: bool, bytes in
        prop::collection::vec(any::<u8>(), 1..=MAX_PAYLOAD))
    {
        for content in [
            UdpTransportContent::Request { cookie: [7; 16] },
            UdpTransportContent::Cookie { cookie: [9; 16] },
            UdpTransportContent::Welcome { limit: number },
            UdpTransportContent::Data { number, payload: &bytes },
            UdpTransportContent::Position { next: number, is_end: flag },
            UdpTransportContent::Ack { next: number, has_end: flag, limit: id },
            UdpTransportContent::Missing { number },
            UdpTransportContent::Close { next: number },
        ] {
            let packet = UdpTransportPacket { id, content };
            let mut datagram = Vec::new();
            packet.write(&mut datagram);
            prop_assert_eq!(UdpTransportPacket::parse(&datagram), Some(packet));
        }
    }

    #[test]
    fn no_datagram_makes_an_end_panic(
        datagrams in prop::collection::vec((0..9_u8, prop::collection::vec(any::<u8>(), 0..60)), 1..50)
    ) {
        let mut pair = Pair::connect(|_| Some(Duration::ZERO));
        let _ = pair.ends[1].write(&[0; 9000], pair.now);
        for (kind, body) in datagrams {
            let mut bytes = b"SUDG".to_vec();
            bytes.push(kind);
            bytes.extend_from_slice(&5_u64.to_be_bytes());
            bytes.extend(body);
            let now = pair.now;
            let datagram = ReceivedDatagram { from: CLIENT, bytes: &bytes, arrived_at: now };
            pair.ends[1].handle_datagram(now, &datagram);
            while pair.ends[1].poll_transmit(now, &mut Vec::new()).is_some() {}
            let _ = pair.ends[1].read(&mut [0; 100], now);
        }
    }
}
