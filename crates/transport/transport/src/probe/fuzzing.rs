//! Helpers for fuzz targets, which pass datagrams to a probe.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::host;
use super::packet::{COOKIE_LEN, HostCapabilities, ProbePacket, ProbePacketBody};
use super::path::{MAX_RATE, MIN_RATE, PacketLosses};
use super::prober::PathProbeClient;
use super::reflector::ProbeReflector;
use crate::model::{ExchangeProfile, TRANSPORTS, TcpCongestionControl, predict};

/// An event of a probing client.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub enum ProbeFuzzStep {
    /// A datagram from anyone.
    Arrive(Vec<u8>),
    /// A welcome of the server, or of an on-path attacker: the hello that it answers, and the
    /// stated capabilities.
    Welcome(u8, [u64; 4], u8),
    /// A report that a sent packet arrived at this time of the server's clock (ns).
    Arrival(u16, u64),
    /// A requested packet.
    Filler(u16),
    /// This many microseconds pass.
    Wait(u16),
}

const NONCE: u64 = 0x0123_4567_89ab_cdef;
const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);
#[expect(clippy::cast_possible_truncation, reason = "it is 1,232")]
const LENGTH: u16 = super::MAX_PACKET_LEN as u16;

/// Checks that a parsed packet is encoded to the same packet, and that the server answers it with
/// no more bytes, as no cookie is valid.
///
/// # Panics
/// If that does not hold.
pub fn packet(bytes: &[u8]) {
    let Some(parsed) = ProbePacket::parse(bytes) else { return };
    let mut again = Vec::new();
    parsed.write(&mut again);
    assert_eq!(ProbePacket::parse(&again), Some(parsed));
    let mut reflector = ProbeReflector::new(host_capabilities([1; 4], 0), [7; 32]);
    let now = Duration::from_secs(100);
    let answer = reflector.handle_datagram(now, now, FROM, bytes);
    assert!(answer.is_none_or(|answer| answer.len() <= bytes.len()));
}

/// Checks that a probe ends in bounded time whatever a server or an on-path attacker sends, and
/// that a measured path has rates and a loss within their ranges, and a prediction for each
/// transport.
///
/// # Panics
/// If that does not hold.
pub fn prober(steps: &[ProbeFuzzStep]) {
    let mut now = Duration::from_secs(1);
    let mut prober = PathProbeClient::new(NONCE, 28, now);
    let mut sent = 0;
    for step in steps {
        transmit(&mut prober, now, &mut sent);
        let (number, body) = match step {
            ProbeFuzzStep::Arrive(bytes) => {
                prober.handle_datagram(now, now, bytes);
                continue;
            }
            ProbeFuzzStep::Welcome(number, sizes, flags) => {
                let host = host_capabilities(*sizes, *flags);
                (u16::from(*number), ProbePacketBody::Welcome { cookie: [7; COOKIE_LEN], host })
            }
            ProbeFuzzStep::Arrival(number, at_ns) => {
                (*number, ProbePacketBody::Arrival { at_ns: *at_ns, length: LENGTH })
            }
            ProbeFuzzStep::Filler(number) => (*number, ProbePacketBody::Filler { length: LENGTH }),
            ProbeFuzzStep::Wait(micros) => {
                now += Duration::from_micros((*micros).into());
                if prober.poll_timeout().is_some_and(|at| at <= now) {
                    prober.handle_timeout(now);
                }
                continue;
            }
        };
        let mut datagram = Vec::new();
        ProbePacket { nonce: NONCE, number, body }.write(&mut datagram);
        prober.handle_datagram(now, now, &datagram);
        if prober.is_welcome() {
            prober.measure_rates(now);
        }
    }
    let most = now + Duration::from_secs(60);
    while let Some(at) = prober.poll_timeout() {
        now = now.max(at);
        assert!(now < most, "it is never over");
        transmit(&mut prober, now, &mut sent);
        prober.handle_timeout(now);
    }
    examine(&prober);
}

fn transmit(prober: &mut PathProbeClient, now: Duration, sent: &mut usize) {
    while prober.poll_transmit(now, &mut Vec::new()) {
        *sent += 1;
        assert!(*sent <= 5 + 2 * (16 + 256), "it sends for ever");
    }
}

fn examine(prober: &PathProbeClient) {
    let Some(measured) = prober.measured() else { return };
    let own = host::info(None);
    let path = measured.path(&own, PacketLosses::default());
    assert!((0.0..=1.0).contains(&path.loss), "{path:?}");
    for rate in [path.up.rate, path.down.rate] {
        assert!((MIN_RATE..=MAX_RATE).contains(&rate), "{path:?}");
    }
    let exchange = ExchangeProfile { sent: u64::MAX, received: 1000, rounds: 3 };
    for transport in TRANSPORTS {
        // A prediction neither panics nor takes long.
        let _ = predict(transport, &path, exchange, true);
    }
}

fn host_capabilities(sizes: [u64; 4], flags: u8) -> HostCapabilities {
    let [tcp_send_buffer, tcp_recv_buffer, udp_recv_buffer, reading_rate] = sizes;
    let all = [TcpCongestionControl::Cubic, TcpCongestionControl::Bbr, TcpCongestionControl::Reno];
    let congestion = all[usize::from(flags) % 3];
    let has_mptcp = flags >= 128;
    HostCapabilities {
        tcp_send_buffer,
        tcp_recv_buffer,
        udp_recv_buffer,
        reading_rate,
        congestion,
        has_mptcp,
    }
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;

    /// Numbers that an attacker may choose.
    fn number(rng: &mut SeededRng) -> u64 {
        let any = u64::from_be_bytes(rng.bytes());
        [0, 1, 1000, 1_000_000, 1 << 53, u64::MAX - 1, u64::MAX, any][rng.index(8)]
    }

    fn step(rng: &mut SeededRng, at: u16) -> ProbeFuzzStep {
        // Sometimes each packet of both trains is answered.
        let place = (u16::from(rng.below(3) == 0) << 8) | (at % 256);
        match rng.below(8) {
            0 => {
                let kind = 1 + rng.bytes::<1>()[0] % 6;
                let nonce = NONCE.to_be_bytes();
                let rest = rng.bytes::<100>();
                let rest = &rest[..rng.index(100)];
                ProbeFuzzStep::Arrive([&b"\x0fSunPrb1"[..], &[kind], &nonce, rest].concat())
            }
            1 => ProbeFuzzStep::Welcome(
                rng.bytes::<1>()[0] % 6,
                [(); 4].map(|()| number(rng)),
                rng.bytes::<1>()[0],
            ),
            2..5 => {
                let nearly = [0, 1, 500, 1000 * u64::from(at), number(rng)][rng.index(5)];
                ProbeFuzzStep::Arrival(place, nearly)
            }
            5..7 => ProbeFuzzStep::Filler(place),
            _ => ProbeFuzzStep::Wait([0, 1, 100, 30_000][rng.index(4)]),
        }
    }

    #[test]
    fn hostile_values_give_a_path_within_its_ranges() {
        sim::run_seeds(3000, |seed| {
            let mut rng = SeededRng::new(seed);
            let sizes = [(); 4].map(|()| number(&mut rng));
            let first =
                [ProbeFuzzStep::Wait(0), ProbeFuzzStep::Welcome(0, sizes, rng.bytes::<1>()[0])];
            let rest = (0..rng.index(400)).map(|at| step(&mut rng, u16::try_from(at).unwrap_or(0)));
            let steps: Vec<_> = first.into_iter().chain(rest.collect::<Vec<_>>()).collect();
            prober(&steps);
        });
    }

    #[test]
    fn any_bytes_are_refused_or_understood() {
        sim::run_seeds(2000, |seed| {
            let mut rng = SeededRng::new(seed);
            for kind in 0..8 {
                let bytes = rng.bytes::<1500>();
                let len = [0, 10, 16, 18, 50, 99, 1433, 1500][rng.index(8)];
                packet(&[&b"\x0fSunPrb1"[..], &[kind], &bytes[..len]].concat());
                packet(&bytes[..len]);
            }
        });
    }

    /// An attacker claims that all of a train arrives at once, in ever shorter times, or backwards.
    #[test]
    fn a_rate_that_cannot_be_is_bounded() {
        for step_ns in [0_i64, 1, -1, i64::MAX / 300, i64::MIN / 300] {
            let arrival = |at: u16| {
                let at_ns = (i64::from(at % 256)).wrapping_mul(step_ns).wrapping_add(i64::MAX / 2);
                ProbeFuzzStep::Arrival(at, at_ns.unsigned_abs())
            };
            let mut steps = vec![
                ProbeFuzzStep::Wait(0),
                ProbeFuzzStep::Welcome(0, [u64::MAX; 4], 0),
                ProbeFuzzStep::Wait(1),
            ];
            steps.extend((0..16).map(arrival));
            steps.extend((0..16).map(ProbeFuzzStep::Filler));
            steps.push(ProbeFuzzStep::Wait(1));
            steps.extend((256..512).map(arrival));
            steps.extend((256..512).map(ProbeFuzzStep::Filler));
            prober(&steps);
        }
    }
}
