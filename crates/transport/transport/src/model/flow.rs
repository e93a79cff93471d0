//! How long bytes take in one direction of a connection, round trip by round trip.
//!
//! A fluid model: in each round trip the sender sends a window, then the window grows or shrinks.
//! Random losses are spread evenly, the first one at the median of its position.

use super::path::TcpCongestionControl;

/// Windows of 10 packets at the start (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Beyond so many round trips with loss-based control, the mean rate of those so far is assumed.
const MAX_ROUNDS: u32 = 3_000;
/// CUBIC's constants (RFC 9438, 5): C, and the factor at a loss.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// The share of packets lost beyond which SABUL and QUIC take loss for congestion.
const TOLERATED_LOSS: f64 = 0.02;

/// What a direction is like for one transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModeledLink {
    /// Seconds, at least a microsecond.
    pub(super) round_trip: f64,
    /// Packets/s that pass, of the network and of both hosts.
    pub(super) rate: f64,
    /// Seconds that a packet waits at most before the narrowest link.
    pub(super) queue: f64,
    /// The probability that a packet is lost, below 1.
    pub(super) loss: f64,
    /// The packets that buffers let be under way, at least one.
    pub(super) max_window: f64,
}

/// How the sender finds its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RateControlModel {
    /// Loss-based, from a window of 10 packets.
    Tcp(TcpCongestionControl),
    /// By a factor each round trip from a window of `start` packets; then that share of the rate.
    Growing {
        /// Packets.
        start: f64,
        /// The factor.
        factor: f64,
        /// Of the rate, 0 to 1.
        share: f64,
    },
    /// That share of the rate from the first packet.
    Measured {
        /// Of the rate, 0 to 1.
        share: f64,
        /// The probability that the last packets need another round trip, of what it is without
        /// repair packets.
        unrepaired: f64,
    },
}

/// One direction of a connection. What it has learned stays from one message to the next.
#[derive(Clone, Debug)]
pub(super) struct FlowModel {
    link: ModeledLink,
    control: RateControlModel,
    /// Packets.
    window: f64,
    cubic: CubicModel,
    /// The losses due: an event happens when it is one.
    credit: f64,
    has_found_rate: bool,
}

/// The state of CUBIC after slow start.
#[derive(Clone, Copy, Debug, Default)]
struct CubicModel {
    is_avoiding: bool,
    max: f64,
    seconds: f64,
    /// The time at which the window is `max` again.
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

    /// The seconds from the first of so many packets (a fraction counts) to the arrival of the
    /// last one, repeated if lost.
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

    /// The packets sent in the next round trip, infinite if the rate no longer changes, and
    /// packets/s in it.
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

    /// A window was sent and acknowledged.
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

    /// How long a sender waits before it sends one of a message's last packets again: behind them
    /// come too few duplicate acknowledgements, so that only a timeout shows the loss.
    fn silence(&self) -> f64 {
        if matches!(self.control, RateControlModel::Tcp(_)) { MIN_TIMEOUT } else { 0.0 }
    }

    /// The expected number of round trips until what was lost of the last packets has arrived.
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

/// What a round trip of BBR's start-up multiplies its rate by. Losses slow it. Measured:
/// `docs/protocols/choice.md`.
fn bbr_growth(loss: f64) -> f64 {
    1.0 + 0.8 * (1.0 - (35.0 * loss).min(0.7))
}

/// The share of the rate at which BBR sends afterwards.
const BBR_SHARE: f64 = 0.95;
/// The least retransmission timeout of Linux, in seconds, and of how many packets at the end the
/// loss of one is only found by it.
const MIN_TIMEOUT: f64 = 0.2;
const LAST_PACKETS: f64 = 3.0;
/// The window, in bandwidth-delay products, at which slow start ends without a loss.
const HYSTART_SHARE: f64 = 0.5;
