//! The properties of a path that follow from a probe.

use serde::{Deserialize, Serialize};

use super::packet::HostCapabilities;
use super::prober::ProbeMeasurement;
use super::rate::MeasuredRate;
use crate::model::{NetworkPath, PathDirection};

/// The loss that is assumed before anything is measured, and its weight as a number of packets: a
/// quarter of it after one loss, and a ninth after two. Few packets cannot show a small loss, but
/// long paths usually have some.
const ASSUMED_LOSS: f64 = 1e-4;
const ASSUMED_LOSS_SHORT: f64 = 1e-6;
const SHORT: std::time::Duration = std::time::Duration::from_millis(5);
const ASSUMED_PACKETS: f64 = 1000.0;
/// The rate that is assumed if only the round-trip time is known, in bytes/s.
const ASSUMED_RATE: f64 = 12.5e6;

/// The range of plausible rates, in bytes/s: 8 kbit/s to 400 Gbit/s. A server or an on-path
/// attacker can claim any rate.
pub(super) const MIN_RATE: f64 = 1e3;
pub(super) const MAX_RATE: f64 = 5e10;
/// The range of plausible buffer sizes, in bytes.
const BUFFERS: (f64, f64) = (4096.0, 4e9);
/// The range of plausible reading rates, in bytes/s.
const READING_RATES: (f64, f64) = (1e5, 1e12);

/// The number of packets sent, and of those lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketLosses {
    /// With a fractional part if they are weighted by age.
    pub sent: f64,
    /// With a fractional part if they are weighted by age.
    pub lost: f64,
}

impl PacketLosses {
    /// The estimated probability that a packet is lost on a path with this round-trip time.
    pub(crate) fn probability(self, round_trip: std::time::Duration) -> f64 {
        let assumed = if round_trip < SHORT { ASSUMED_LOSS_SHORT } else { ASSUMED_LOSS };
        let weight = ASSUMED_PACKETS / (1.0 + self.lost).powi(2);
        (self.lost + assumed * weight) / (self.sent + weight)
    }
}

impl ProbeMeasurement {
    /// The losses. Each packet that was sent crossed the path twice, with its answer.
    pub fn losses(&self) -> PacketLosses {
        PacketLosses { sent: 2.0 * f64::from(self.sent), lost: f64::from(self.lost) }
    }

    /// The path, as far as it was measured, from a host with the capabilities `own` to the server.
    /// `earlier`: losses of earlier measurements.
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

/// A direction from one host to another. A capability that a host does not state is no limit, and
/// an implausible value is replaced by the nearest plausible one.
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
