//! What the fuzz target does with datagrams of `udp`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ::udp::streams::{Connection as _, Datagram, Endpoint as _, Load, Phase, Routed};

use super::connection::{Connection, Settings};
use super::endpoint::Listener;
use super::packet::{Content, MAX_PAYLOAD, Packet};

/// What happens to a connection.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub enum Step {
    /// A datagram of the peer's address.
    Arrive(Vec<u8>),
    /// A packet of the peer's: its kind, two numbers of which those that are packets' are near the
    /// expected ones, and the length of a payload.
    Near(u8, [u16; 2], u16),
    /// Its program writes so many bytes.
    Write(u16),
    /// Its program reads so many bytes at most.
    Read(u16),
    /// So many milliseconds pass.
    Wait(u16),
    /// Its program finishes its stream.
    Finish,
    /// Its program closes it.
    Close,
}

const BUFFER: usize = 100_000;
const SETTINGS: Settings =
    Settings { rate: 1e7, buffer: BUFFER, connect_timeout: Duration::from_secs(3) };
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
const ID: u64 = 5;

/// What is parsed is encoded to the same bytes, but for the padding of a request.
///
/// # Panics
/// If it is not.
pub fn packet(bytes: &[u8]) {
    let Some(parsed) = Packet::parse(bytes) else { return };
    let mut again = Vec::new();
    parsed.write(&mut again);
    assert_eq!(Packet::parse(&again), Some(parsed));
    assert!(matches!(parsed.content, Content::Request { .. }) || again == bytes);
}

/// A listener answers with no more bytes than it gets. It makes connections of requests only, and
/// not without a cookie when it has little room.
///
/// # Panics
/// If it does not.
pub fn listener(datagrams: &[Vec<u8>]) {
    for load in [Load::Light, Load::Heavy, Load::Full] {
        let mut listener = Listener::new(SETTINGS, &[7; 32]);
        for bytes in datagrams {
            let datagram = Datagram { from: PEER, bytes, arrived_at: Duration::ZERO };
            match listener.handle_datagram(Duration::ZERO, &datagram, load) {
                Routed::Answer(answer) | Routed::Refuse { answer, .. } => {
                    assert!(answer.len() <= bytes.len());
                }
                Routed::Accept { .. } => assert_eq!(load, Load::Light, "without a cookie"),
                Routed::NotMine | Routed::Nothing | Routed::To(_) => {}
            }
        }
    }
}

/// Whatever arrives, a connection keeps its buffers within their bounds, does not send for ever at
/// one time, and is not due for ever.
///
/// # Panics
/// If it does not, or is.
pub fn connection(steps: &[Step]) {
    let now = Duration::from_secs(1);
    run(Connection::client(ID, PEER, SETTINGS, now), now, steps);
    run(Connection::server(ID, PEER, SETTINGS, now), now, steps);
}

fn run(mut connection: Connection, mut now: Duration, steps: &[Step]) {
    let mut buffer = vec![0; 1 << 16];
    for step in steps {
        match step {
            Step::Arrive(bytes) => arrive(&mut connection, now, bytes),
            Step::Near(kind, numbers, len) => {
                let payload = &buffer[..usize::from(*len) % (MAX_PAYLOAD + 2)];
                let content = near(*kind, *numbers, payload, &connection);
                let mut datagram = Vec::new();
                Packet { id: ID, content }.write(&mut datagram);
                arrive(&mut connection, now, &datagram);
            }
            Step::Write(len) => drop(connection.write(&buffer[..usize::from(*len)], now)),
            Step::Read(len) => drop(connection.read(&mut buffer[..usize::from(*len)], now)),
            Step::Wait(milliseconds) => now += Duration::from_millis((*milliseconds).into()),
            Step::Finish => connection.finish(now),
            Step::Close => connection.close(now),
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
        let is_over = connection.state().phase == Phase::Over;
        assert!(!is_over || connection.poll_timeout().is_none(), "it is over, and waits");
        assert!(connection.is_bounded(BUFFER));
    }
}

fn arrive(connection: &mut Connection, now: Duration, bytes: &[u8]) {
    let datagram = Datagram { from: PEER, bytes, arrived_at: now };
    connection.handle_datagram(now, &datagram);
}

/// A packet whose numbers are near those that the connection expects.
fn near<'a>(kind: u8, numbers: [u16; 2], payload: &'a [u8], own: &Connection) -> Content<'a> {
    let (sent, received) = own.position();
    let [one, two] = numbers.map(|number| u64::from(number % 128));
    let is_set = numbers[0] >= 1 << 15;
    // A little before or after.
    let of = |base: u64, number: u64| (base + number).saturating_sub(8);
    match kind % 8 {
        0 => Content::Request { cookie: [kind; _] },
        1 => Content::Cookie { cookie: [kind; _] },
        2 => Content::Welcome { limit: u64::from(numbers[0]) },
        3 => Content::Data { number: of(received, one), payload },
        4 => Content::Position { next: of(received, one), is_end: is_set },
        5 => Content::Ack { next: of(sent, one), has_end: is_set, limit: of(sent, two) },
        6 => Content::Missing { number: of(sent, one) },
        _ => Content::Close { next: of(sent, one) },
    }
}

#[cfg(test)]
mod tests {
    use sim::Rng;

    use super::*;

    fn bytes(rng: &mut Rng, max: usize) -> Vec<u8> {
        (0..rng.index(max)).map(|_| rng.bytes::<1>()[0]).collect()
    }

    fn step(rng: &mut Rng) -> Step {
        let word = |rng: &mut Rng| u16::from_be_bytes(rng.bytes());
        let len = |rng: &mut Rng| [0, 1, 500, 1431, 3000][rng.index(5)];
        match rng.below(40) {
            0..2 => Step::Arrive([&b"SUDG"[..], &bytes(rng, 80)].concat()),
            2..8 => Step::Write(len(rng)),
            8..14 => Step::Read(len(rng)),
            14..20 => Step::Wait([0, 1, 3, 400][rng.index(4)]),
            20 if rng.below(20) == 0 => Step::Finish,
            21 if rng.below(20) == 0 => Step::Close,
            22..34 => Step::Near(3, [word(rng) % 12, 0], len(rng)),
            // The last three end it.
            _ => {
                let kind = rng.bytes::<1>()[0] % if rng.below(20) == 0 { 8 } else { 6 };
                Step::Near(kind, [word(rng) % (1 << 14), word(rng)], len(rng))
            }
        }
    }

    #[test]
    fn random_steps_keep_a_connection_within_its_bounds() {
        sim::run_seeds(2000, |seed| {
            let mut rng = Rng::new(seed);
            let steps: Vec<_> = (0..200).map(|_| step(&mut rng)).collect();
            connection(&steps);
        });
    }

    #[test]
    fn a_million_datagrams_at_a_listener_make_no_connection_without_its_cookie() {
        let mut request = Vec::new();
        Packet { id: ID, content: Content::Request { cookie: [0; _] } }.write(&mut request);
        sim::run_seeds(400, |seed| {
            let mut rng = Rng::new(seed);
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
