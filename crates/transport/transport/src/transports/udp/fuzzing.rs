//! Helpers for the fuzz target, which passes datagrams to the `udp` transport.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ::udp::streams::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection as _,
    UdpStreamEndpoint as _, UdpStreamPhase,
};

use super::connection::{UdpTransportConnection, UdpTransportSettings};
use super::endpoint::UdpTransportListener;
use super::packet::{MAX_PAYLOAD, UdpTransportContent, UdpTransportPacket};

/// An event of a connection.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub enum UdpFuzzStep {
    /// A datagram from the peer's address.
    Arrive(Vec<u8>),
    /// A packet of the peer: its kind, two numbers (packet numbers are near the expected ones), and
    /// the length of a payload.
    Near(u8, [u16; 2], u16),
    /// The program writes this many bytes.
    Write(u16),
    /// The program reads at most this many bytes.
    Read(u16),
    /// This many milliseconds pass.
    Wait(u16),
    /// The program finishes its stream.
    Finish,
    /// The program closes the connection.
    Close,
}

const BUFFER: usize = 100_000;
const SETTINGS: UdpTransportSettings =
    UdpTransportSettings { rate: 1e7, buffer: BUFFER, connect_timeout: Duration::from_secs(3) };
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
const ID: u64 = 5;

/// Checks that a parsed packet is encoded to the same bytes, except for the padding of a request.
///
/// # Panics
/// If that does not hold.
pub fn packet(bytes: &[u8]) {
    let Some(parsed) = UdpTransportPacket::parse(bytes) else { return };
    let mut again = Vec::new();
    parsed.write(&mut again);
    assert_eq!(UdpTransportPacket::parse(&again), Some(parsed));
    assert!(matches!(parsed.content, UdpTransportContent::Request { .. }) || again == bytes);
}

/// Checks that a listener sends no more bytes than it receives, and opens connections only for
/// requests, and under load only with a cookie.
///
/// # Panics
/// If that does not hold.
pub fn listener(datagrams: &[Vec<u8>]) {
    for load in [ListenerLoad::Light, ListenerLoad::Heavy, ListenerLoad::Full] {
        let mut listener = UdpTransportListener::new(SETTINGS, &[7; 32]);
        for bytes in datagrams {
            let datagram = ReceivedDatagram { from: PEER, bytes, arrived_at: Duration::ZERO };
            match listener.handle_datagram(Duration::ZERO, &datagram, load) {
                DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                    assert!(answer.len() <= bytes.len());
                }
                DatagramRouting::Accept { .. } => {
                    assert_eq!(load, ListenerLoad::Light, "without a cookie");
                }
                DatagramRouting::NotMine | DatagramRouting::Nothing | DatagramRouting::To(_) => {}
            }
        }
    }
}

/// Checks that a connection keeps its buffers within their bounds whatever arrives, and does not
/// send endlessly, or have a timer due endlessly, at one point of time.
///
/// # Panics
/// If that does not hold.
pub fn connection(steps: &[UdpFuzzStep]) {
    let now = Duration::from_secs(1);
    run(UdpTransportConnection::client(ID, PEER, SETTINGS, now), now, steps);
    run(UdpTransportConnection::server(ID, PEER, SETTINGS, now), now, steps);
}

fn run(mut connection: UdpTransportConnection, mut now: Duration, steps: &[UdpFuzzStep]) {
    let mut buffer = vec![0; 1 << 16];
    for step in steps {
        match step {
            UdpFuzzStep::Arrive(bytes) => arrive(&mut connection, now, bytes),
            UdpFuzzStep::Near(kind, numbers, len) => {
                let payload = &buffer[..usize::from(*len) % (MAX_PAYLOAD + 2)];
                let content = near(*kind, *numbers, payload, &connection);
                let mut datagram = Vec::new();
                UdpTransportPacket { id: ID, content }.write(&mut datagram);
                arrive(&mut connection, now, &datagram);
            }
            UdpFuzzStep::Write(len) => drop(connection.write(&buffer[..usize::from(*len)], now)),
            UdpFuzzStep::Read(len) => drop(connection.read(&mut buffer[..usize::from(*len)], now)),
            UdpFuzzStep::Wait(milliseconds) => now += Duration::from_millis((*milliseconds).into()),
            UdpFuzzStep::Finish => connection.finish(now),
            UdpFuzzStep::Close => connection.close(now),
        }
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        let mut sent = 0;
        while connection.poll_transmit(now, &mut Vec::new()).is_some() {
            sent += 1;
            assert!(sent < 10_000, "it sends for ever");
        }
        assert!(connection.poll_timeout().is_none_or(|at| at > now), "it is always due");
        let is_over = connection.state().phase == UdpStreamPhase::Over;
        assert!(!is_over || connection.poll_timeout().is_none(), "it is over, and waits");
        assert!(connection.is_bounded(BUFFER));
    }
}

fn arrive(connection: &mut UdpTransportConnection, now: Duration, bytes: &[u8]) {
    let datagram = ReceivedDatagram { from: PEER, bytes, arrived_at: now };
    connection.handle_datagram(now, &datagram);
}

/// A packet whose numbers are near those that the connection expects.
fn near<'a>(
    kind: u8,
    numbers: [u16; 2],
    payload: &'a [u8],
    own: &UdpTransportConnection,
) -> UdpTransportContent<'a> {
    let (sent, received) = own.position();
    let [one, two] = numbers.map(|number| u64::from(number % 128));
    let is_set = numbers[0] >= 1 << 15;
    // A little before or after.
    let of = |base: u64, number: u64| (base + number).saturating_sub(8);
    match kind % 8 {
        0 => UdpTransportContent::Request { cookie: [kind; _] },
        1 => UdpTransportContent::Cookie { cookie: [kind; _] },
        2 => UdpTransportContent::Welcome { limit: u64::from(numbers[0]) },
        3 => UdpTransportContent::Data { number: of(received, one), payload },
        4 => UdpTransportContent::Position { next: of(received, one), is_end: is_set },
        5 => {
            UdpTransportContent::Ack { next: of(sent, one), has_end: is_set, limit: of(sent, two) }
        }
        6 => UdpTransportContent::Missing { number: of(sent, one) },
        _ => UdpTransportContent::Close { next: of(sent, one) },
    }
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;

    fn bytes(rng: &mut SeededRng, max: usize) -> Vec<u8> {
        (0..rng.index(max)).map(|_| rng.bytes::<1>()[0]).collect()
    }

    fn step(rng: &mut SeededRng) -> UdpFuzzStep {
        let word = |rng: &mut SeededRng| u16::from_be_bytes(rng.bytes());
        let len = |rng: &mut SeededRng| [0, 1, 500, 1431, 3000][rng.index(5)];
        match rng.below(40) {
            0..2 => UdpFuzzStep::Arrive([&b"SUDG"[..], &bytes(rng, 80)].concat()),
            2..8 => UdpFuzzStep::Write(len(rng)),
            8..14 => UdpFuzzStep::Read(len(rng)),
            14..20 => UdpFuzzStep::Wait([0, 1, 3, 400][rng.index(4)]),
            20 if rng.below(20) == 0 => UdpFuzzStep::Finish,
            21 if rng.below(20) == 0 => UdpFuzzStep::Close,
            22..34 => UdpFuzzStep::Near(3, [word(rng) % 12, 0], len(rng)),
            // The last three end it.
            _ => {
                let kind = rng.bytes::<1>()[0] % if rng.below(20) == 0 { 8 } else { 6 };
                UdpFuzzStep::Near(kind, [word(rng) % (1 << 14), word(rng)], len(rng))
            }
        }
    }

    #[test]
    fn random_steps_keep_a_connection_within_its_bounds() {
        sim::run_seeds(600, |seed| {
            let mut rng = SeededRng::new(seed);
            let steps: Vec<_> = (0..200).map(|_| step(&mut rng)).collect();
            connection(&steps);
        });
    }

    #[test]
    fn a_million_datagrams_at_a_listener_make_no_connection_without_its_cookie() {
        let mut request = Vec::new();
        UdpTransportPacket { id: ID, content: UdpTransportContent::Request { cookie: [0; _] } }
            .write(&mut request);
        sim::run_seeds(400, |seed| {
            let mut rng = SeededRng::new(seed);
            let datagrams: Vec<_> = (0..2500)
                .map(|_| {
                    let mut datagram = request.clone();
                    for _ in 0..rng.index(4) {
                        let index = rng.index(datagram.len());
                        datagram[index] = rng.bytes::<1>()[0];
                    }
                    datagram.truncate([0, 13, 21, 30, 64, 64, 64][rng.index(7)]);
                    if rng.below(4) == 0 { bytes(&mut rng, 100) } else { datagram }
                })
                .collect();
            for datagram in &datagrams {
                packet(datagram);
            }
            listener(&datagrams);
        });
    }
}
