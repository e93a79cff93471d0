//! Helpers for fuzz targets, which pass datagrams to the protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use random::RandomGenerator;
use udp::streams::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection as _, UdpStreamEndpoint,
    UdpStreamPhase,
};

use super::frame::{
    self, AckFields, BurstFrame, ParsedBurstFrames, RepairFrame, RepairGeneration, StreamFrameFlags,
};
use super::packet::BurstDatagram;
use super::{BurstConfig, BurstConnection, BurstListener, BurstListenerSecurity, BurstSecurity};

/// An event of a connection. The peer has the right keys and may violate the protocol.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub enum BurstFuzzStep {
    /// A datagram from anyone.
    Datagram(Vec<u8>),
    /// A packet of the peer with these frames.
    Frames(Vec<u8>),
    /// A packet of the peer with this many bytes of the stream, from this offset (modulo 300,000)
    /// on; whether the stream ends there.
    Stream(u32, u16, bool),
    /// A repair symbol: the generation's start and length, the number of repair symbols and the
    /// index of this one, and its length.
    Repair(u32, u32, [u8; 2], u16),
    /// An acknowledgement: how far its largest packet is behind the latest, how far the stream has
    /// arrived, the window, and ranges as gaps and lengths.
    Ack(u8, [u32; 2], Vec<[u8; 2]>),
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

fn config() -> BurstConfig {
    BurstConfig { send_buffer: BUFFER, receive_buffer: BUFFER, train: 8, ..BurstConfig::default() }
}

fn address(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 9).into()
}

fn security() -> (IdentitySecretKey, IdentityPublicKey, BurstListenerSecurity) {
    let (one, two) = (IdentitySecretKey::new(&[1; 32]), IdentitySecretKey::new(&[2; 32]));
    let (expected, public) = (one.public(), two.public());
    let known = Arc::new(move |key: &IdentityPublicKey| *key == expected);
    (one, public, BurstListenerSecurity::Noise(Arc::new(two), known))
}

/// Parses datagrams and frames.
pub fn packet(bytes: &[u8]) {
    BurstDatagram::parse(bytes);
    for frame in ParsedBurstFrames::parse(bytes).into_iter().flatten() {
        if let BurstFrame::Ack(ack) = frame {
            ack.ranges().for_each(drop);
        }
    }
}

/// Checks that datagrams of strangers open no connection, and that the answers have fewer bytes.
///
/// # Panics
/// If one of this does not hold.
pub fn listener(datagrams: &[Vec<u8>]) {
    let (_, _, security) = security();
    let generator = RandomGenerator::seeded().expect("the system has random bytes");
    let mut listener = BurstListener::new(config(), security, generator).expect("as above");
    for bytes in datagrams {
        let datagram = ReceivedDatagram { from: address(1), bytes, arrived_at: Duration::ZERO };
        match listener.handle_datagram(Duration::ZERO, &datagram, ListenerLoad::Light) {
            DatagramRouting::Accept { .. } | DatagramRouting::To(_) => {
                panic!("a connection of a stranger")
            }
            DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                assert!(answer.len() < bytes.len());
            }
            DatagramRouting::NotMine | DatagramRouting::Nothing => {}
        }
        assert_eq!(listener.connections(), 0);
    }
}

/// Checks that a connection keeps its buffers within their bounds whatever arrives, and does not
/// send endlessly at one point of time.
///
/// # Panics
/// If one of this does not hold.
pub fn connection(steps: &[BurstFuzzStep]) {
    let mut now = Duration::from_secs(1);
    let (mut peer, mut own) = connect(now);
    let mut buffer = vec![0; 1 << 16];
    for step in steps {
        let mut frames = Vec::new();
        match step {
            BurstFuzzStep::Datagram(bytes) => arrive(&mut own, now, bytes),
            BurstFuzzStep::Frames(bytes) => frames.clone_from(bytes),
            BurstFuzzStep::Stream(offset, len, is_end) => {
                let (is_end, is_first) = (*is_end, len % 3 == 0);
                let flags = StreamFrameFlags { is_end, is_urgent: false, is_first };
                frame::write_stream((*offset % 300_000).into(), flags, &mut frames);
                frames.resize(frames.len() + usize::from(*len % 1400), 7);
            }
            BurstFuzzStep::Repair(start, len, [repair_symbols, index], symbol_len) => {
                let symbol = vec![7; usize::from(*symbol_len % 1400)];
                let generation = RepairGeneration {
                    start: (*start).into(),
                    len: *len,
                    symbol_len: symbol.len(),
                    is_end: index % 2 == 0,
                    repair_symbols: *repair_symbols,
                };
                let repair = RepairFrame { generation, index: *index, symbol: &symbol };
                frame::write_repair(&repair, &mut frames);
            }
            BurstFuzzStep::Ack(back, [stream_end, window], ranges) => {
                let fields = AckFields {
                    train_rate: Some(f64::from(*back) * 1e6),
                    largest: u64::from(*back),
                    arrived_at_us: 0,
                    delay_us: 0,
                    stream_end: (*stream_end).into(),
                    window: (*window).into(),
                };
                let mut last = fields.largest;
                let ranges = ranges.iter().map_while(|[gap, more]| {
                    let end = last.checked_sub(u64::from(*gap))?;
                    let start = end.checked_sub(u64::from(*more))?;
                    last = start.checked_sub(1)?;
                    Some((start, end))
                });
                frame::write_ack(&fields, ranges, 1200, &mut frames);
            }
            BurstFuzzStep::Write(len) => drop(own.write(&buffer[..usize::from(*len)], now)),
            BurstFuzzStep::Read(len) => drop(own.read(&mut buffer[..usize::from(*len)], now)),
            BurstFuzzStep::Wait(milliseconds) => {
                now += Duration::from_millis((*milliseconds).into());
            }
            BurstFuzzStep::Finish => own.finish(now),
            BurstFuzzStep::Close => own.close(now),
        }
        if !frames.is_empty() {
            let datagram = peer.forge(now, frames);
            arrive(&mut own, now, &datagram);
        }
        if own.poll_timeout().is_some_and(|at| at <= now) {
            own.handle_timeout(now);
        }
        let mut sent = 0;
        while own.poll_transmit(now, &mut Vec::new()).is_some() {
            sent += 1;
            assert!(sent < 10_000, "it sends for ever");
        }
        let due = own.poll_timeout().is_some_and(|at| at <= now);
        assert!(!due || own.state().phase != UdpStreamPhase::Over, "it is always due");
        assert!(own.is_bounded());
    }
}

fn arrive(connection: &mut BurstConnection, now: Duration, bytes: &[u8]) {
    let datagram = ReceivedDatagram { from: address(1), bytes, arrived_at: now };
    connection.handle_datagram(now, &datagram);
}

/// A client and a listener's end that are connected.
fn connect(now: Duration) -> (BurstConnection, Box<BurstConnection>) {
    let (one, public, security) = security();
    let mut generator = RandomGenerator::seeded().expect("the system has random bytes");
    let to_two = BurstSecurity::Noise(&one, public);
    let client = BurstConnection::connect(config(), address(2), &to_two, &mut generator, now);
    let mut client = client.expect("as above");
    let mut listener = BurstListener::new(config(), security, generator).expect("as above");
    let mut server: Option<Box<BurstConnection>> = None;
    while client.state().phase != UdpStreamPhase::Open
        || server.as_ref().is_none_or(|server| server.state().phase != UdpStreamPhase::Open)
    {
        let mut bytes = Vec::new();
        while client.poll_transmit(now, &mut bytes).is_some() {
            let datagram = ReceivedDatagram { from: address(1), bytes: &bytes, arrived_at: now };
            match &mut server {
                Some(server) => server.handle_datagram(now, &datagram),
                None => server = listener.handle(now, &datagram),
            }
            bytes.clear();
        }
        let server = server.as_mut().expect("the hello is right");
        while server.poll_transmit(now, &mut bytes).is_some() {
            let datagram = ReceivedDatagram { from: address(2), bytes: &bytes, arrived_at: now };
            client.handle_datagram(now, &datagram);
            bytes.clear();
        }
    }
    (client, server.expect("it is open"))
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;

    fn bytes(rng: &mut SeededRng, max: usize) -> Vec<u8> {
        rng.bytes::<1500>()[..rng.index(max.min(1500))].to_vec()
    }

    fn step(rng: &mut SeededRng) -> BurstFuzzStep {
        let near =
            |rng: &mut SeededRng| [0, 1, 1400, 50_000, 99_999, 200_000, u32::MAX][rng.index(7)];
        let len = |rng: &mut SeededRng| [0, 1, 500, 1399, 3000][rng.index(5)];
        let word = |rng: &mut SeededRng| u32::from_be_bytes(rng.bytes());
        match rng.below(40) {
            0..4 => BurstFuzzStep::Datagram(bytes(rng, 80)),
            4..8 => {
                BurstFuzzStep::Frames([&[rng.bytes::<1>()[0] % 16][..], &bytes(rng, 80)].concat())
            }
            8..18 => BurstFuzzStep::Stream(word(rng) % 150_000, len(rng), rng.below(100) == 0),
            18..22 => BurstFuzzStep::Repair(near(rng), near(rng), rng.bytes(), len(rng)),
            22..26 => {
                let ranges = (0..rng.index(6)).map(|_| rng.bytes::<2>().map(|it| it % 4)).collect();
                BurstFuzzStep::Ack(rng.bytes::<1>()[0] % 32, [near(rng), near(rng)], ranges)
            }
            26..30 => BurstFuzzStep::Write(len(rng)),
            30..34 => BurstFuzzStep::Read(len(rng)),
            34..38 => BurstFuzzStep::Wait([0, 1, 20, 400][rng.index(4)]),
            38 if rng.chance(3) => BurstFuzzStep::Finish,
            39 if rng.chance(3) => BurstFuzzStep::Close,
            _ => BurstFuzzStep::Write(1),
        }
    }

    #[test]
    fn random_steps_keep_a_connection_within_its_bounds() {
        sim::run_seeds(300, |seed| {
            let mut rng = SeededRng::new(seed);
            let steps: Vec<_> = (0..200).map(|_| step(&mut rng)).collect();
            connection(&steps);
        });
    }

    /// Datagrams are random, or changed copies of a client's hello. A copy that keeps the
    /// authenticated bytes opens one connection; nothing else does.
    #[test]
    fn a_million_datagrams_at_a_listener_change_nothing() {
        let (one, public, security) = security();
        let mut generator = RandomGenerator::seeded().unwrap();
        let to_two = BurstSecurity::Noise(&one, public);
        let start = Duration::ZERO;
        let client = BurstConnection::connect(config(), address(2), &to_two, &mut generator, start);
        let mut hello = Vec::new();
        client.unwrap().poll_transmit(start, &mut hello);
        let mut listener = BurstListener::new(config(), security, generator).unwrap();
        let mut rng = SeededRng::new(1);
        let (mut accepted, mut bytes_in, mut bytes_out) = (0, 0, 0);
        for number in 0..1_000_000 {
            let now = Duration::from_micros(number);
            let changed = match rng.below(8) {
                0..5 => bytes(&mut rng, 100),
                5 => {
                    let at = rng.index(hello.len());
                    hello[..at].to_vec()
                }
                _ => {
                    let mut changed = hello.clone();
                    for _ in 0..=rng.index(4) {
                        changed[rng.index(200)] = rng.bytes::<1>()[0];
                    }
                    changed
                }
            };
            bytes_in += changed.len();
            let datagram = ReceivedDatagram { from: address(1), bytes: &changed, arrived_at: now };
            match listener.handle_datagram(now, &datagram, ListenerLoad::Light) {
                DatagramRouting::Accept { .. } => accepted += 1,
                DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                    bytes_out += answer.len();
                }
                DatagramRouting::To(_) | DatagramRouting::NotMine | DatagramRouting::Nothing => {}
            }
            assert_eq!(listener.connections(), accepted);
        }
        // Bytes 18 to 34, and those from 171 on, are not authenticated. No sender has a cookie.
        assert!(accepted <= 1 && bytes_out < bytes_in / 10, "{accepted} {bytes_out} {bytes_in}");
    }
}
