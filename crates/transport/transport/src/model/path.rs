//! The properties of a path, measured or assumed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A path between two hosts, as seen by the client: *up* is from the client to the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkPath {
    /// The min RTT.
    pub round_trip: Duration,
    /// The mean difference of round-trip times from the min RTT.
    pub variation: Duration,
    /// The probability that a packet is lost, 0 to 1, in either direction.
    pub loss: f64,
    /// From the client to the server.
    pub up: PathDirection,
    /// From the server to the client.
    pub down: PathDirection,
    /// Whether datagrams pass in both directions.
    pub udp_passes: bool,
    /// Whether both hosts have MPTCP.
    pub has_mptcp: bool,
}

/// One direction of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathDirection {
    /// The rate of the narrowest link, in bytes/s of IP packets.
    pub rate: f64,
    /// The longest time that a packet waits in the queue of that link.
    pub queue: Duration,
    /// The bytes of a stream that the TCP socket buffers at both ends allow in flight.
    pub tcp_window: f64,
    /// The size of the receiver's UDP socket buffer, in bytes.
    pub udp_buffer: f64,
    /// The congestion control of the sender's TCP.
    pub congestion: TcpCongestionControl,
    /// The rate at which the receiving host reads from a socket, in bytes/s.
    pub reading_rate: f64,
}

/// TCP's congestion controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpCongestionControl {
    /// RFC 9438; the default of Linux.
    Cubic,
    /// BBR version 1, as in Linux.
    Bbr,
    /// RFC 5681.
    Reno,
}

impl TcpCongestionControl {
    /// Its name in Linux.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }

    /// The one with that name. Others in Linux count as CUBIC.
    pub fn named(name: &str) -> Self {
        match name {
            name if name.starts_with("bbr") => Self::Bbr,
            "reno" => Self::Reno,
            _ => Self::Cubic,
        }
    }
}

impl NetworkPath {
    /// A path without loss between hosts with Linux's defaults, with the same rate (in bytes/s) in
    /// both directions.
    pub fn assumed(round_trip: Duration, rate: f64) -> Self {
        let direction = PathDirection::assumed(rate);
        Self {
            round_trip,
            variation: Duration::ZERO,
            loss: 0.0,
            up: direction.clone(),
            down: direction,
            udp_passes: true,
            has_mptcp: true,
        }
    }
}

impl PathDirection {
    /// A direction with that rate (in bytes/s), between hosts with Linux's defaults.
    pub fn assumed(rate: f64) -> Self {
        Self {
            rate,
            queue: Duration::from_millis(50),
            tcp_window: 2e6,
            udp_buffer: 4e6,
            congestion: TcpCongestionControl::Cubic,
            reading_rate: 4e9,
        }
    }
}
