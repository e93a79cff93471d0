//! Helpers for fuzz targets, which pass datagrams to the protocol.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::packet::SabulPacket;
use super::{
    SabulClientHandshake, SabulConfig, SabulConnectOutcome, SabulConnection, SabulListener,
    SabulListenerAction,
};

/// An event of a connection.
#[derive(Clone, Debug)]
pub enum SabulFuzzStep {
    /// A datagram arrives; its bytes 12 to 16 are replaced by the connection's socket identifier.
    Arrive(Vec<u8>),
    /// A packet arrives whose number, or the first number in whose body, is so far from the one
    /// that it would have: the first two words, and the words of the body.
    Near([u32; 2], Vec<u32>),
    /// The program writes this many bytes.
    Write(u16),
    /// The program reads at most this many bytes.
    Read(u16),
    /// This many milliseconds pass.
    Wait(u16),
    /// The program closes the connection.
    Close,
}

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The first packet's number, which wraps around soon.
const FIRST: u32 = (1 << 31) - 5;

/// Checks that a parsed packet is encoded to the same bytes, except for bytes without meaning.
///
/// # Panics
/// If that does not hold.
pub fn packet(bytes: &[u8]) {
    let Some(parsed) = SabulPacket::parse(bytes) else { return };
    let mut again = Vec::new();
    parsed.write(&mut again);
    assert_eq!(SabulPacket::parse(&again), Some(parsed));
}

/// Checks that a listener sends no more bytes than it receives, and accepts no connection without
/// its cookie.
///
/// # Panics
/// If that does not hold.
pub fn listener(bytes: &[u8]) {
    let listener = SabulListener::new(config(), [7; 32]);
    let from = SocketAddr::new(ADDRESS, 9);
    match listener.handle_datagram(Duration::ZERO, from, bytes) {
        SabulListenerAction::Answer(answer) => assert!(answer.len() <= bytes.len()),
        SabulListenerAction::Request(_) => panic!("a request without a cookie"),
        SabulListenerAction::Nothing => {}
    }
}

/// Checks that a connection keeps its buffers within their bounds whatever arrives, and does not
/// send endlessly at one point of time.
///
/// # Panics
/// If that does not hold.
pub fn connection(steps: &[SabulFuzzStep]) {
    let mut now = Duration::from_secs(1);
    let mut connection = connect(now);
    let mut buffer = vec![0; 1 << 16];
    for step in steps {
        match step {
            SabulFuzzStep::Arrive(bytes) => arrive(&mut connection, now, bytes.clone()),
            SabulFuzzStep::Near([kind, information], body) => {
                let (kind, body) = near(*kind, body);
                let words = [kind, *information, 0, 0].into_iter().chain(body);
                arrive(&mut connection, now, words.flat_map(u32::to_be_bytes).collect());
            }
            SabulFuzzStep::Write(len) => drop(connection.write(&buffer[..usize::from(*len)])),
            SabulFuzzStep::Read(len) => {
                let _ = connection.read(&mut buffer[..usize::from(*len)], now);
            }
            SabulFuzzStep::Wait(milliseconds) => {
                now += Duration::from_millis((*milliseconds).into());
            }
            SabulFuzzStep::Close => connection.close(now),
        }
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        let mut sent = 0;
        while connection.poll_transmit(now, &mut Vec::new()) {
            sent += 1;
            assert!(sent < 10_000, "it sends for ever");
        }
        assert!(connection.readable() <= config().receive_buffer + 1500);
        assert!(connection.writable() <= config().send_buffer);
    }
}

fn config() -> SabulConfig {
    SabulConfig { send_buffer: 100_000, receive_buffer: 100_000, ..SabulConfig::default() }
}

/// Replaces packet numbers far from the expected ones by near ones.
fn near(kind: u32, body: &[u32]) -> (u32, Vec<u32>) {
    let near = |word: u32| FIRST.wrapping_add(word % 200) & !(1 << 31);
    let is_control = kind >> 31 == 1;
    let kind = if is_control { kind } else { near(kind) };
    // An acknowledgement, or a loss report, whose ranges keep their bits.
    let numbers = match (is_control, kind >> 16 & 0x7fff) {
        (true, 2) => 1,
        (true, 3) => body.len(),
        _ => 0,
    };
    let bit = |word: u32, index| if numbers > 1 && index % 2 == 0 { word & 1 << 31 } else { 0 };
    let numbered = |(index, word): (usize, &u32)| {
        if index < numbers { near(*word) | bit(*word, index) } else { *word }
    };
    (kind, body.iter().enumerate().map(numbered).collect())
}

fn arrive(connection: &mut SabulConnection, now: Duration, mut bytes: Vec<u8>) {
    if let Some(destination) = bytes.get_mut(12..16) {
        destination.copy_from_slice(&connection.socket().to_be_bytes());
    }
    connection.handle_datagram(now, &bytes);
}

fn connect(now: Duration) -> SabulConnection {
    let listener = SabulListener::new(config(), [7; 32]);
    let from = SocketAddr::new(ADDRESS, 9);
    let mut connecting = SabulClientHandshake::new(config(), ADDRESS, [5, FIRST], now);
    loop {
        let mut datagram = Vec::new();
        connecting.poll_transmit(now, &mut datagram);
        match listener.handle_datagram(now, from, &datagram) {
            SabulListenerAction::Answer(answer) => {
                let connected = connecting.handle_datagram(now, &answer);
                assert!(matches!(connected, SabulConnectOutcome::NotYet));
            }
            SabulListenerAction::Request(request) => {
                return listener.accept(&request, ADDRESS, 6, now);
            }
            SabulListenerAction::Nothing => panic!("the request is right"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;

    fn bytes(rng: &mut SeededRng, max: usize) -> Vec<u8> {
        (0..rng.index(max)).map(|_| rng.bytes::<1>()[0]).collect()
    }

    fn step(rng: &mut SeededRng) -> SabulFuzzStep {
        let word = |rng: &mut SeededRng| u32::from_be_bytes(rng.bytes());
        let len = |rng: &mut SeededRng| [0, 1, 500, 1456, 3000][rng.index(5)];
        match rng.below(8) {
            0 => SabulFuzzStep::Arrive(bytes(rng, 80)),
            1 => SabulFuzzStep::Write(len(rng)),
            2 => SabulFuzzStep::Read(len(rng)),
            3 => SabulFuzzStep::Wait([0, 1, 20, 400][rng.index(4)]),
            4 if rng.below(20) == 0 => SabulFuzzStep::Close,
            _ => {
                let kind = [word(rng) >> 1, 1 << 31 | (word(rng) % 9) << 16][rng.index(2)];
                let words = [0, 1, 1, 2, 4, 6, 12, 300][rng.index(8)];
                let body = (0..words).map(|_| word(rng)).collect();
                SabulFuzzStep::Near([kind, word(rng)], body)
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
    fn a_million_datagrams_leave_nothing_at_a_listener() {
        let mut request = Vec::new();
        let mut connecting =
            SabulClientHandshake::new(config(), ADDRESS, [5, FIRST], Duration::ZERO);
        connecting.poll_transmit(Duration::ZERO, &mut request);
        // The listener keeps no state that could grow, so one is shared.
        let per_seed = 2500;
        sim::run_seeds(400, |seed| {
            let mut rng = SeededRng::new(seed);
            for _ in 0..per_seed {
                let mut datagram = request.clone();
                match rng.below(3) {
                    0 => datagram = bytes(&mut rng, 100),
                    1 => {
                        // In the second request, the guessed cookie is fixed: with many guesses,
                        // one would be right by chance.
                        datagram[36..40].copy_from_slice(&[255; 4]);
                        datagram[47] = rng.bytes::<1>()[0];
                    }
                    _ => {
                        for _ in 0..rng.index(4) {
                            let index = rng.index(datagram.len());
                            datagram[index] = rng.bytes::<1>()[0];
                        }
                        datagram.truncate([0, 70, 70, 63, 16][rng.index(5)]);
                    }
                }
                packet(&datagram);
                listener(&datagram);
            }
        });
    }
}
