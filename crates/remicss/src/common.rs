//! What the two halves of an end know together, and when the schedule has to be planned anew.

use std::time::Duration;

use model::{Channel, Subset};

use crate::control::Monitor;
use crate::estimate::{Changes, Estimate, State};
use crate::keys::Token;

/// What both halves know.
#[derive(Default)]
pub struct Common {
    /// What is measured; `None` while there is no association.
    pub monitor: Option<Monitor>,
    /// The tokens of what this end sends, by which its senders are told from those of before.
    pub tokens: Vec<Token>,
    /// How many symbols of packets have verified.
    pub packets: u64,
    /// How many datagrams have come on each channel.
    pub received: Vec<u64>,
    /// The channels whose shares are not used.
    pub quarantined: Subset,
    changes: Changes,
}

/// What a plan is to be made for.
#[derive(Clone, Debug)]
pub struct Situation {
    /// The channels, with rates in Mbit/s.
    pub channels: Vec<Channel>,
    /// Those that are up.
    pub up: Subset,
}

impl Common {
    /// Begins anew with an association.
    pub fn begin(&mut self, monitor: Monitor, tokens: Vec<Token>) {
        *self = Self {
            monitor: Some(monitor),
            received: vec![0; tokens.len()],
            tokens,
            packets: 0,
            quarantined: Subset::EMPTY,
            changes: Changes::default(),
        };
    }

    /// What to plan for, if that is something else than last time. `risks` are the channels' z.
    pub fn poll_situation(&mut self, risks: &[f64], now: Duration) -> Option<Situation> {
        let estimates = self.monitor.as_ref()?.estimates(now);
        self.changes.notice(&estimates).then(|| Situation::new(&estimates, risks))
    }
}

impl Situation {
    /// Channels of these estimates and risks.
    pub(crate) fn new(estimates: &[Estimate], risks: &[f64]) -> Self {
        let channel = |(estimate, risk): (&Estimate, &f64)| {
            // A channel that carries nothing has no use for a rate, but needs one.
            let estimate = Estimate { rate_bps: estimate.rate_bps.max(1), ..*estimate };
            estimate.channel(*risk).expect("a risk that was checked, and a rate")
        };
        let is_up = |(_, estimate): &(usize, &Estimate)| estimate.state == State::Up;
        Self {
            channels: estimates.iter().zip(risks).map(channel).collect(),
            up: estimates.iter().enumerate().filter(is_up).map(|(channel, _)| channel).collect(),
        }
    }
}
