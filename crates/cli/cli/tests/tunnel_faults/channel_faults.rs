//! What happens to channels of a tunnel for a while: chosen, or drawn by a seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use lab::{EmulatedLinkConditions, LinkDirection};

use crate::pair::Pair;

/// A fault of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// This fraction of its packets is lost.
    Loss(f64),
    /// Its rate changes, to Mbit/s. `None`: no limit.
    Rate(Option<f64>),
    /// Its delay is longer, by ms.
    Delay(f64),
    /// Packets above this length, in bytes, are lost.
    MaxPacket(u16),
    /// This fraction of its packets is overtaken, within ms.
    Reordering(f64, f64),
    /// This fraction of its packets arrives twice.
    Duplication(f64),
}

/// A fault of a channel in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChannelFault {
    /// The channel's link.
    pub(crate) link: &'static str,
    pub(crate) fault: Fault,
    /// The directions that it is in.
    pub(crate) directions: &'static [LinkDirection],
    /// Its begin and its end, after the begin of all faults.
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// The links of the channels.
pub(crate) const LINKS: [&str; 3] = ["a", "b", "c"];

const BOTH: &[LinkDirection] = &[LinkDirection::Forward, LinkDirection::Back];
const FORWARD: &[LinkDirection] = &[LinkDirection::Forward];
const BACK: &[LinkDirection] = &[LinkDirection::Back];

/// The shortest and the longest drawn fault, in seconds, and the latest begin of a second one.
const DURATION_S: (f64, f64) = (0.2, 60.0);
const MAX_BEGIN_S: f64 = 2.0;

impl Fault {
    /// Conditions with this fault.
    fn on(self, usual: EmulatedLinkConditions) -> EmulatedLinkConditions {
        match self {
            Self::Loss(loss) => EmulatedLinkConditions { loss, ..usual },
            Self::Rate(rate_mbit) => EmulatedLinkConditions { rate_mbit, ..usual },
            Self::Delay(more) => {
                EmulatedLinkConditions { delay_ms: usual.delay_ms + more, ..usual }
            }
            Self::MaxPacket(length) => {
                EmulatedLinkConditions { max_len: Some(length.into()), ..usual }
            }
            Self::Reordering(reorder, reorder_ms) => {
                EmulatedLinkConditions { reorder, reorder_ms, ..usual }
            }
            Self::Duplication(duplicate) => EmulatedLinkConditions { duplicate, ..usual },
        }
    }

    fn draw(rng: &mut Rng) -> Self {
        let kind = rng.u8(..7);
        let is_lower = rng.bool();
        let length = rng.u16(400..1450);
        let mut between = |least: f64, most: f64| least + (most - least) * rng.f64();
        match kind {
            0 => Self::Loss(between(0.05, 1.0)),
            // Silence.
            1 => Self::Loss(1.0),
            2 if is_lower => Self::Rate(Some(between(0.5, 18.0))),
            2 => Self::Rate(Some(between(22.0, 100.0))),
            3 => Self::Delay(between(5.0, 200.0)),
            4 => Self::MaxPacket(length),
            5 => Self::Reordering(between(0.05, 0.5), between(1.0, 30.0)),
            _ => Self::Duplication(between(0.05, 0.5)),
        }
    }
}

impl ChannelFault {
    /// A fault in both directions, from the begin.
    pub(crate) fn new(link: &'static str, fault: Fault, duration: Duration) -> Self {
        Self { link, fault, directions: BOTH, begin: Duration::ZERO, end: duration }
    }

    /// The faults of one or two channels. The same seed draws the same.
    pub(crate) fn draw(seed: u64) -> Vec<Self> {
        let mut rng = Rng::with_seed(seed);
        let mut links = LINKS;
        rng.shuffle(&mut links);
        let count = rng.usize(1..=2);
        let mut faults = Vec::new();
        for link in &links[..count] {
            let fault = Fault::draw(&mut rng);
            let one_way = if rng.bool() { FORWARD } else { BACK };
            // What is silent in both directions at once is down.
            let is_both = rng.bool() && fault != Fault::Loss(1.0);
            let (least, most) = DURATION_S;
            let duration = Duration::from_secs_f64(least * (most / least).powf(rng.f64()));
            let later = Duration::from_secs_f64(MAX_BEGIN_S * rng.f64());
            let begin = if faults.is_empty() { Duration::ZERO } else { later };
            let directions = if is_both { BOTH } else { one_way };
            faults.push(Self { link, fault, directions, begin, end: begin + duration });
        }
        faults
    }

    /// Begins or ends it.
    pub(crate) fn set(&self, pair: &Pair, is_on: bool) {
        for direction in self.directions {
            let usual = pair.network().conditions(self.link, *direction).unwrap();
            let now = if is_on { self.fault.on(usual) } else { usual };
            pair.network().link(self.link).unwrap().set(*direction, now).unwrap();
        }
    }
}

impl fmt::Display for ChannelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::Loss(loss) => write!(f, "{:.0} % lost", 100.0 * loss)?,
            Fault::Rate(Some(rate)) => write!(f, "{rate:.1} Mbit/s")?,
            Fault::Rate(None) => write!(f, "no rate limit")?,
            Fault::Delay(more) => write!(f, "{more:.0} ms more delay")?,
            Fault::MaxPacket(length) => write!(f, "none above {length} bytes")?,
            Fault::Reordering(part, ms) => write!(f, "{:.0} % {ms:.0} ms late", 100.0 * part)?,
            Fault::Duplication(part) => write!(f, "{:.0} % twice", 100.0 * part)?,
        }
        let there = match self.directions {
            [LinkDirection::Forward] => " there",
            [LinkDirection::Back] => " back",
            _ => "",
        };
        let (begin, end) = (self.begin.as_secs_f64(), self.end.as_secs_f64());
        write!(f, "{there} on {} from {begin:.1} to {end:.1} s", self.link)
    }
}
