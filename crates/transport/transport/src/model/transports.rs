//! The costs of the transports.

use std::time::Duration;

use thiserror::Error;

use super::exchange::ExchangeProfile;
use super::flow::{FlowModel, ModeledLink, RateControlModel};
use super::path::{NetworkPath, PathDirection};

/// The transports that [`predict`] supports.
pub const TRANSPORTS: [&str; 7] = ["tcp", "mptcp", "sabul", "burst", "quic", "udp", "micss"];

/// Why a transport cannot be used on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnusableTransportError {
    /// There is no such transport, or its cost is not known.
    #[error("its cost is not known")]
    Unknown,
    /// It needs UDP, which does not pass.
    #[error("UDP does not pass")]
    NoUdp,
    /// One of the hosts has no MPTCP.
    #[error("a host has no MPTCP")]
    NoMptcp,
    /// The path loses packets, which the transport does not retransmit.
    #[error("the path loses packets, and the transport does not repeat them")]
    Loss,
}

/// The transport `udp` is not used if the loss is higher.
const MAX_UDP_LOSS: f64 = 1e-4;
/// The number of rounds that are computed individually; later ones take as long as the last of
/// them.
const MAX_ROUNDS: u32 = 64;

/// The costs of a transport in addition to those of the network.
struct TransportCost {
    /// The round trips before the program may send its first byte, with Noise and without.
    setup: f64,
    setup_insecure: f64,
    /// The seconds for each connection: system calls, threads and keys.
    fixed: f64,
    /// The stream bytes in a packet of 1,500 bytes.
    payload: f64,
    /// The rate in bytes/s at which a processor sends and receives, with encryption.
    processing: f64,
    /// The number of times that a byte crosses the path.
    copies: f64,
}

const TCP: TransportCost = TransportCost {
    setup: 2.0,
    setup_insecure: 1.0,
    fixed: 0.3e-3,
    payload: 1448.0,
    processing: 800e6,
    copies: 1.0,
};

/// The packet length in bytes with which rates are converted, with IP headers.
const PACKET_LEN: f64 = 1500.0;

/// The time that an exchange takes over a transport: from the start of connecting until the client
/// knows that the server's program has everything, or has the last answer. `is_secure`: with
/// encryption and authentication.
///
/// # Errors
/// If the transport cannot be used on the path.
pub fn predict(
    transport: &str,
    path: &NetworkPath,
    exchange: ExchangeProfile,
    is_secure: bool,
) -> Result<Duration, UnusableTransportError> {
    let cost = cost(transport).ok_or(UnusableTransportError::Unknown)?;
    let is_tcp = matches!(transport, "tcp" | "mptcp" | "micss");
    if !is_tcp && !path.udp_passes {
        return Err(UnusableTransportError::NoUdp);
    }
    if transport == "mptcp" && !path.has_mptcp {
        return Err(UnusableTransportError::NoMptcp);
    }
    if transport == "udp" && path.loss > MAX_UDP_LOSS {
        return Err(UnusableTransportError::Loss);
    }
    let round_trip = path.round_trip.as_secs_f64().max(1e-6);
    let flow = |direction: &PathDirection| {
        let rate = (direction.rate / PACKET_LEN / cost.copies)
            .min(cost.processing / cost.payload)
            .min(direction.reading_rate / cost.payload);
        let window = if is_tcp { direction.tcp_window } else { f64::MAX };
        let link = ModeledLink {
            round_trip,
            rate: rate.max(0.1),
            queue: direction.queue.as_secs_f64(),
            loss: path.loss.clamp(0.0, 0.9),
            max_window: (window / cost.payload).max(1.0),
        };
        FlowModel::new(link, control(transport, direction))
    };
    let (mut up, mut down) = (flow(&path.up), flow(&path.down));
    let rounds = exchange.rounds();
    let mut seconds = 0.0;
    let mut last = 0.0;
    for _ in 0..rounds.min(MAX_ROUNDS) {
        last = up.send(exchange.sent_each() / cost.payload)
            + down.send(exchange.received_each() / cost.payload);
        seconds += last;
    }
    seconds += f64::from(rounds.saturating_sub(MAX_ROUNDS)) * last;
    let setup = if is_secure { cost.setup } else { cost.setup_insecure };
    // A lost packet of the connection setup is retransmitted after about a second by every
    // transport.
    let seconds = seconds + setup * (round_trip + 2.0 * path.loss.clamp(0.0, 0.9)) + cost.fixed;
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

fn control(transport: &str, direction: &PathDirection) -> RateControlModel {
    match transport {
        "sabul" => RateControlModel::Growing { start: 16.0, factor: 2.0, share: 0.9 },
        "quic" => RateControlModel::Growing { start: 100.0, factor: 1.65, share: 1.0 },
        "burst" => RateControlModel::Measured { share: 0.97, unrepaired: 0.1 },
        "udp" => RateControlModel::Measured { share: 0.9, unrepaired: 1.0 },
        _ => RateControlModel::Tcp(direction.congestion),
    }
}

fn cost(transport: &str) -> Option<TransportCost> {
    let udp = TransportCost { fixed: 1e-3, payload: 1456.0, processing: 300e6, ..TCP };
    Some(match transport {
        "tcp" => TCP,
        "mptcp" => TransportCost { fixed: 0.5e-3, payload: 1428.0, processing: 600e6, ..TCP },
        "micss" => {
            let (setup, setup_insecure) = (3.0, 3.0);
            TransportCost {
                setup,
                setup_insecure,
                fixed: 2e-3,
                processing: 300e6,
                copies: 2.0,
                ..TCP
            }
        }
        "sabul" => TransportCost { setup: 3.0, setup_insecure: 2.0, processing: 250e6, ..udp },
        "burst" => {
            TransportCost { setup: 1.0, fixed: 2e-3, payload: 1400.0, processing: 250e6, ..udp }
        }
        "quic" => {
            TransportCost { setup: 1.0, fixed: 2e-3, payload: 1400.0, processing: 200e6, ..udp }
        }
        "udp" => udp,
        _ => return None,
    })
}
