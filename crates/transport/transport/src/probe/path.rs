//! What a probe says of the path.

use serde::{Deserialize, Serialize};

use super::packet::HostCapabilities;
use super::prober::ProbeMeasurement;
use super::rate::MeasuredRate;
use crate::model::{NetworkPath, PathDirection};

/// What is assumed of a path before anything was measured: this loss, with the weight of so many
/// packets; a quarter of it after one loss, and a ninth after two. Few packets show no small loss,
/// but long paths rarely have none.
const ASSUMED_LOSS: f64 = 1e-4;
const ASSUMED_LOSS_SHORT: f64 = 1e-6;
const SHORT: std::time::Duration = std::time::Duration::from_millis(5);
const ASSUMED_PACKETS: f64 = 1000.0;
/// The rate of a path of which only the round-trip time is known, in bytes/s.
const ASSUMED_RATE: f64 = 12.5e6;

/// The range of rates that are believed, in bytes/s: 8 kbit/s to 400 Gbit/s. A server, or one on
/// the path, can make up any.
pub(super) const MIN_RATE: f64 = 1e3;
pub(super) const MAX_RATE: f64 = 5e10;
/// The range of buffers that are believed, in bytes.
const BUFFERS: (f64, f64) = (4096.0, 4e9);
/// The range of reading rates that are believed, in bytes/s.
const READING_RATES: (f64, f64) = (1e5, 1e12);

/// Packets sent, and those of them that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketLosses {
    /// A fraction if they are old.
    pub sent: f64,
    /// A fraction if they are old.
    pub lost: f64,
}

impl PacketLosses {
    /// The likely probability that a packet is lost on a path of that round-trip time.
    pub(crate) fn probability(self, round_trip: std::time::Duration) -> f64 {
        let assumed = if round_trip < SHORT { ASSUMED_LOSS_SHORT } else { ASSUMED_LOSS };
        let weight = ASSUMED_PACKETS / (1.0 + self.lost).powi(2);
        (self.lost + assumed * weight) / (self.sent + weight)
    }
}

impl ProbeMeasurement {
    /// What was lost: each packet that was sent crossed the path twice, with its answer.
    pub fn losses(&self) -> PacketLosses {
        PacketLosses { sent: 2.0 * f64::from(self.sent), lost: f64::from(self.lost) }
    }

    /// The path as far as it was measured, between a host that tells `own` of itself, and the
    /// server. `earlier`: what was lost before.
    pub fn path(&self, own: &HostCapabilities, earlier: PacketLosses) -> NetworkPath {
        let losses = self.losses();
        let losses =
            PacketLosses { sent: losses.sent + earlier.sent, lost: losses.lost + earlier.lost };
        let either = self.up.or(self.down).map_or(ASSUMED_RATE, |rate| rate.rate);
        let rate = |rate: Option<MeasuredRate>| rate.map_or(either, |rate| rate.rate);
        NetworkPath {
            round_trip: self.round_trip,
            variation: self.variation,
            loss: losses.probability(self.round_trip),
            up: direction(rate(self.up), own, &self.host),
            down: direction(rate(self.down), &self.host, own),
            udp_passes: true,
            has_mptcp: own.has_mptcp && self.host.has_mptcp,
        }
    }
}

/// A direction from one host to another. What a host does not tell is not taken for a limit, and
/// what cannot be is taken for the nearest that can.
#[expect(clippy::cast_precision_loss, reason = "sizes, which may be rounded")]
pub(crate) fn direction(
    rate: f64,
    from: &HostCapabilities,
    to: &HostCapabilities,
) -> PathDirection {
    let known = |number: u64, otherwise: f64, (least, most): (f64, f64)| {
        if number == 0 { otherwise } else { (number as f64).clamp(least, most) }
    };
    let assumed = PathDirection::assumed(rate.clamp(MIN_RATE, MAX_RATE));
    let send = known(from.tcp_send_buffer, assumed.tcp_window, BUFFERS);
    let recv = known(to.tcp_recv_buffer, assumed.tcp_window, BUFFERS);
    PathDirection {
        tcp_window: send.min(recv),
        udp_buffer: known(to.udp_recv_buffer, assumed.udp_buffer, BUFFERS),
        congestion: from.congestion,
        reading_rate: known(to.reading_rate, assumed.reading_rate, READING_RATES),
        ..assumed
    }
}
