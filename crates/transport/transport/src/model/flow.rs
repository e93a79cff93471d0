//! The time that bytes take in one direction of a connection, computed one round trip after the
//! other.
//!
//! A fluid model: in each round trip, the sender sends a window, which then grows or shrinks.
//! Random losses are spread evenly, the first one at the median of its position.

use super::path::TcpCongestionControl;

/// The initial window, in packets (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// After this many round trips with loss-based control, their mean rate is used for the rest.
const MAX_ROUNDS: u32 = 3_000;
/// CUBIC's constants (RFC 9438, 5): C, and the factor at a loss.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// The loss above which SABUL and QUIC respond to congestion.
const TOLERATED_LOSS: f64 = 0.02;

/// One direction of a path, as one transport sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModeledLink {
    /// In seconds, at least a microsecond.
    pub(super) round_trip: f64,
    /// The rate of the network and of both hosts, in packets/s.
    pub(super) rate: f64,
    /// The longest time that a packet waits before the narrowest link, in seconds.
    pub(super) queue: f64,
    /// The probability that a packet is lost, below 1.
    pub(super) loss: f64,
    /// The number of packets that the buffers allow in flight, at least one.
    pub(super) max_window: f64,
}

/// How the sender finds its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RateControlModel {
    /// Loss-based control, with an initial window of 10 packets.
    Tcp(TcpCongestionControl),
    /// The rate grows by a factor each round trip, from an initial window of `start` packets up to
    /// a fraction of the path's rate.
    Growing {
        /// The initial window, in packets.
        start: f64,
        /// The growth in each round trip.
        factor: f64,
        /// The final fraction of the path's rate, 0 to 1.
        share: f64,
    },
    /// A fraction of the path's rate from the first packet on.
    Measured {
        /// That fraction, 0 to 1.
        share: f64,
        /// The probability that the last packets need another round trip, relative to that without
        /// repair packets.
        unrepaired: f64,
    },
}

/// One direction of a connection. Its congestion state is kept from one message to the next.
#[derive(Clone, Debug)]
pub(super) struct FlowModel {
    link: ModeledLink,
    control: RateControlModel,
    /// In packets.
    window: f64,
    cubic: CubicModel,
    /// The expected number of losses since the last one: a loss occurs when it reaches one.
    credit: f64,
    has_found_rate: bool,
}

/// The state of CUBIC after slow start.
#[derive(Clone, Copy, Debug, Default)]
struct CubicModel {
    is_avoiding: bool,
    max: f64,
    seconds: f64,
    /// The time at which the window reaches `max` again.
    plateau: f64,
    reno: f64,
}

impl FlowModel {
    pub(super) fn new(link: ModeledLink, control: RateControlModel) -> Self {
        let window = match control {
            RateControlModel::Growing { start, .. } => start,
            _ => INITIAL_WINDOW,
        };
        let credit = 1.0 - std::f64::consts::LN_2;
        Self { link, control, window, cubic: CubicModel::default(), credit, has_found_rate: false }
    }

    /// The time in seconds from the first of `packets` packets, which may be a fraction, to the
    /// arrival of the last one, with retransmissions.
    pub(super) fn send(&mut self, packets: f64) -> f64 {
        let ModeledLink { round_trip, rate, loss, max_window, .. } = self.link;
        let mut left = packets;
        let mut seconds = 0.0;
        let mut rounds = 0;
        let steady = rate.min(max_window / round_trip) * (1.0 - loss);
        loop {
            let (window, pace) = self.round();
            if left <= window || !window.is_finite() {
                let repeats = self.repeats(left.min(pace * round_trip)) * round_trip
                    + self.repeats(packets.min(LAST_PACKETS)) * self.silence();
                return seconds + left / pace + round_trip / 2.0 + repeats;
            }
            left -= window;
            seconds += round_trip.max(window / steady);
            self.grow(window);
            rounds += 1;
            if rounds >= MAX_ROUNDS {
                let mean = (packets - left) / seconds;
                return seconds + left / mean + round_trip / 2.0;
            }
        }
    }

    /// The number of packets sent in the next round trip (infinite if the rate no longer changes),
    /// and its rate in packets/s.
    fn round(&self) -> (f64, f64) {
        let ModeledLink { round_trip, rate, loss, max_window, .. } = self.link;
        let most = rate.min(max_window / round_trip) * (1.0 - loss);
        match self.control {
            RateControlModel::Measured { share, .. } => (f64::INFINITY, most * share),
            RateControlModel::Growing { share, .. } if self.has_found_rate => {
                let excess = (loss - TOLERATED_LOSS).max(0.0);
                (f64::INFINITY, most * share / (1.0 + 10.0 * excess))
            }
            RateControlModel::Tcp(TcpCongestionControl::Bbr) if self.has_found_rate => {
                (f64::INFINITY, most * BBR_SHARE)
            }
            _ => (self.window.min(max_window), most),
        }
    }

    /// Updates the window after it was sent and acknowledged.
    fn grow(&mut self, sent: f64) {
        let ModeledLink { round_trip, rate, max_window, loss, .. } = self.link;
        let path = (rate * round_trip).min(max_window);
        match self.control {
            RateControlModel::Tcp(TcpCongestionControl::Bbr) => {
                self.multiply(bbr_growth(loss), path);
            }
            RateControlModel::Growing { factor, .. } => self.multiply(factor, path),
            RateControlModel::Tcp(control) => self.grow_by_loss(sent, control),
            RateControlModel::Measured { .. } => {}
        }
    }

    fn multiply(&mut self, factor: f64, path: f64) {
        self.has_found_rate = self.window >= path;
        self.window *= factor;
    }

    fn grow_by_loss(&mut self, sent: f64, control: TcpCongestionControl) {
        let ModeledLink { round_trip, rate, queue, loss, max_window } = self.link;
        let room = rate * (round_trip + queue);
        self.credit += sent * loss;
        if self.credit >= 1.0 || self.window > room {
            self.credit = self.credit.fract();
            self.cubic.lose(self.window.min(room), control);
            self.window = (self.window.min(room) * beta(control)).max(2.0);
            return;
        }
        if !self.cubic.is_avoiding {
            // HyStart (RFC 9406) leaves slow start when acknowledgements take half a round trip.
            if control == TcpCongestionControl::Cubic
                && self.window >= HYSTART_SHARE * rate * round_trip
                && self.window >= 16.0
            {
                self.cubic = CubicModel {
                    is_avoiding: true,
                    max: self.window,
                    reno: self.window,
                    ..self.cubic
                };
            } else {
                self.window += sent;
            }
        } else if self.window <= max_window {
            self.window = self.cubic.grow(self.window, round_trip, control);
        }
    }

    /// The time until a sender retransmits one of a message's last packets. Too few duplicate
    /// acknowledgements follow them, so that only a timeout reveals the loss.
    fn silence(&self) -> f64 {
        if matches!(self.control, RateControlModel::Tcp(_)) { MIN_TIMEOUT } else { 0.0 }
    }

    /// The expected number of round trips until the lost ones among the last packets have arrived.
    fn repeats(&self, packets: f64) -> f64 {
        let unrepaired = match self.control {
            RateControlModel::Measured { unrepaired, .. } => unrepaired,
            _ => 1.0,
        };
        let mut lost = self.link.loss;
        let mut rounds = 0.0;
        while lost > 1e-9 {
            rounds += 1.0 - (1.0 - lost).powf(packets.max(1.0));
            lost *= self.link.loss;
        }
        rounds * unrepaired
    }
}

fn beta(control: TcpCongestionControl) -> f64 {
    if control == TcpCongestionControl::Reno { 0.5 } else { CUBIC_BETA }
}

impl CubicModel {
    fn lose(&mut self, window: f64, control: TcpCongestionControl) {
        // Fast convergence (RFC 9438, 4.7).
        let max = if window < self.max { window * f64::midpoint(1.0, CUBIC_BETA) } else { window };
        let plateau = (max * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
        let reno = window * beta(control);
        *self = Self { is_avoiding: true, max, seconds: 0.0, plateau, reno };
    }

    /// The window after a round trip in congestion avoidance.
    fn grow(&mut self, window: f64, round_trip: f64, control: TcpCongestionControl) -> f64 {
        if control == TcpCongestionControl::Reno {
            return window + 1.0;
        }
        self.seconds += round_trip;
        self.reno += 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
        let cubic = CUBIC_C * (self.seconds - self.plateau).powi(3) + self.max;
        cubic.max(self.reno).clamp(window, window * 1.5)
    }
}

/// The factor by which BBR's rate grows in each round trip of its start-up. Losses reduce it. It
/// was measured: `docs/protocols/choice.md`.
fn bbr_growth(loss: f64) -> f64 {
    1.0 + 0.8 * (1.0 - (35.0 * loss).min(0.7))
}

/// The fraction of the path's rate at which BBR sends after its start-up.
const BBR_SHARE: f64 = 0.95;
/// Linux's smallest retransmission timeout, in seconds; and the number of packets at the end of a
/// message of which a loss is only detected by it.
const MIN_TIMEOUT: f64 = 0.2;
const LAST_PACKETS: f64 = 3.0;
/// The window, in bandwidth-delay products, at which slow start ends without a loss.
const HYSTART_SHARE: f64 = 0.5;
