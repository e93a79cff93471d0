//! A tunnel of which one end sends: schedule, pace and estimates together, over simulated
//! bottlenecks.

use std::time::Duration;

use model::{ChannelModel, ChannelSubset, LossProbability, RiskProbability, ScheduleObjective};
use random::RandomGenerator;
use sunder_remicss::MAX_CHANNELS;
use sunder_remicss::control::monitor::ChannelMonitor;
use sunder_remicss::endpoint::outbound::SymbolSenderConfig;
use sunder_remicss::endpoint::shared_state::EndpointSharedState;
use sunder_remicss::send::bounds::PlanBounds;
use sunder_remicss::send::plan::PlanGoal;
use sunder_remicss::send::schedule::PlannedScheduler;
use sunder_remicss::send::sender::{SymbolSendError, SymbolSender};
use sunder_remicss::send::shared_fates::SharedFates;
use sunder_remicss::send::spare::{PlanPreference, SpareChannels};
use sunder_remicss::wire::datagram::{HEADER_LEN, SymbolKind};
use sunder_remicss::wire::keys::{DirectionKeys, TagPoints, TunnelKeys};
use sunder_remicss::wire::tokens::{TOKEN_KEY_LEN, TokenKey};
use udp::DatagramBatch;

use super::scenario::{Path, Scenario};

/// The offered load, in bit/s of IP packets on a channel, if the channels have a higher rate.
pub(super) const OFFERED_BPS: u64 = 800_000_000;

/// A full packet on a channel, its part that is the tunnel's packet, and the headers of IP and UDP.
pub(super) const FULL: usize = 1500;
pub(super) const CONTENT: usize = FULL - HEADERS - HEADER_LEN - 1 - 8;
const HEADERS: usize = 28;

/// How long a plan takes.
const PLANNING: Duration = Duration::from_millis(3);

/// The channels are busy.
pub(super) struct Busy;

/// A tunnel of which one end sends as much as it can.
pub(super) struct Tunnel {
    pub(super) scenario: Scenario,
    /// Contains the sending end's monitor, except during planning.
    shared: EndpointSharedState,
    pub(super) goal: PlanGoal,
    pub(super) sender: SymbolSender,
    pub(super) batches: Vec<DatagramBatch>,
    /// The proportion of symbols with a share on each channel, by the plan in force; none while too
    /// few channels are up.
    pub(super) usage: Vec<f64>,
    next: Option<(Duration, (PlannedScheduler, ChannelSubset, SpareChannels))>,
    /// The offered load, in symbols in 1,000 s, and what is left of it to send.
    pub(super) offered: u64,
    pub(super) credit: u64,
    sent: u64,
    delivered: u64,
}

impl Tunnel {
    /// A tunnel over these channels, with the known rates, kappa and mu, and a seed.
    pub(super) fn new(
        paths: &[Path],
        rates: &[Option<u64>],
        (kappa, mu): (f64, f64),
        seed: u64,
    ) -> Self {
        let n = paths.len();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 16")]
        let floor = kappa as u8;
        let scenario = Scenario::with_seed(paths, rates, seed).with_floor(floor);
        let goal = PlanGoal {
            kappa,
            mu,
            objective: ScheduleObjective::Loss,
            second_objective: None,
            floor,
            keeps_order: false,
            prefer: PlanPreference::Redundancy,
            bounds: PlanBounds::default(),
            fates: SharedFates::default(),
        };
        let channels = vec![
            ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), 1.0, 10.0)
                .unwrap();
            n
        ];
        let plan = goal.plan(&channels, ChannelSubset::first(n)).unwrap();
        let config = SymbolSenderConfig {
            rates_bps: rates.to_vec(),
            mtus: vec![FULL; n],
            headers: vec![HEADERS; n],
        };
        let direction = DirectionKeys {
            channels: n,
            tokens: TokenKey::new(&[0; TOKEN_KEY_LEN]),
            points: Some(TagPoints::new(&[[1; 8]; MAX_CHANNELS])),
        };
        let keys = TunnelKeys {
            outgoing: direction.clone(),
            incoming: direction,
            floor,
            members: ChannelSubset::first(n),
        };
        let sender = config.sender(
            &keys,
            Box::new(PlannedScheduler::new(&plan.schedule, &channels)),
            RandomGenerator::seeded().unwrap(),
        );
        let mut sender = sender.unwrap();
        for channel in 0..n {
            sender.set_limit(channel, scenario.ends[0].monitor.limit(channel), Duration::ZERO);
        }
        Self {
            scenario,
            shared: EndpointSharedState::default(),
            goal,
            sender,
            batches: (0..n).map(|_| DatagramBatch::default()).collect(),
            usage: Vec::new(),
            next: None,
            offered: OFFERED_BPS / (FULL as u64 * 8),
            credit: 0,
            sent: 0,
            delivered: 0,
        }
    }

    /// Runs for a time, and returns the rates that were sent and delivered, in symbols a second.
    #[expect(clippy::cast_precision_loss, reason = "numbers are small")]
    pub(super) fn run(&mut self, time: Duration) -> (f64, f64) {
        let (sent, delivered) = (self.sent, self.delivered);
        let until = self.scenario.now() + time;
        while self.scenario.now() < until {
            self.step();
            self.send();
        }
        let rate = |count: u64| count as f64 / time.as_secs_f64();
        (rate(self.sent - sent), rate(self.delivered - delivered))
    }

    /// The number of symbols that were delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Advances by a millisecond, with everything except packets.
    pub(super) fn step(&mut self) {
        self.scenario.step();
        self.plan();
    }

    fn plan(&mut self) {
        let now = self.scenario.now();
        if let Some((_, planned)) = self.next.take_if(|(at, _)| *at <= now) {
            let (planned, up, spare) = planned;
            self.sender.set_up(up);
            self.sender.set_spare(spare);
            self.sender.set_scheduler(Box::new(planned)).unwrap();
        }
        let monitor = &mut self.scenario.ends[0].monitor;
        for channel in 0..self.batches.len() {
            self.sender.set_limit(channel, monitor.limit(channel), now);
        }
        self.sender.set_channels_under_test(monitor.channels_under_test());
        let risks = vec![0.0; self.batches.len()];
        let monitor = std::mem::replace(monitor, ChannelMonitor::new(&[], now));
        self.shared.monitor = Some(monitor);
        let snapshot = self.shared.poll_snapshot(&risks, now);
        self.scenario.ends[0].monitor = self.shared.monitor.take().unwrap();
        if let Some(snapshot) = snapshot {
            let Ok(plan) = self.goal.plan(&snapshot.channels, snapshot.up) else {
                // Too few channels are up.
                self.sender.set_up(ChannelSubset::EMPTY);
                self.usage = vec![0.0; self.batches.len()];
                return;
            };
            let usage = (0..self.batches.len()).map(|channel| plan.schedule.channel_usage(channel));
            self.usage = usage.collect();
            let planned = PlannedScheduler::new(&plan.schedule, &snapshot.channels);
            let planned = planned.with_random_start(self.scenario.rng.below(u64::MAX));
            self.next = Some((now + PLANNING, (planned, snapshot.up, plan.spare)));
        }
    }

    fn send(&mut self) {
        // Symbols in a millisecond, in thousandths.
        self.credit = (self.credit + self.offered).min(20 * self.offered);
        while self.credit >= 1000 && self.send_symbol().is_ok() {
            self.credit -= 1000;
        }
    }

    /// Sends a full symbol, and returns when enough of its shares will have arrived; `None` if too
    /// few will.
    ///
    /// # Errors
    /// If the channels are busy.
    pub(super) fn send_symbol(&mut self) -> Result<Option<Duration>, Busy> {
        let now = self.scenario.now();
        self.sender.begin().extend_from_slice(&[0; CONTENT]);
        let sent = match self.sender.finish(SymbolKind::Packet, 0, now, &mut self.batches) {
            Ok(sent) => sent,
            Err(SymbolSendError::Wait(_)) => return Err(Busy),
            Err(SymbolSendError::BelowFloor) => return Ok(None),
            Err(error) => panic!("{error}"),
        };
        self.batches.iter_mut().for_each(DatagramBatch::clear);
        let channels = sent.threshold.channels().iter();
        let mut arrivals: Vec<Duration> =
            channels.filter_map(|channel| self.scenario.send(channel, FULL)).collect();
        arrivals.sort_unstable();
        let delivered_at = arrivals.get(sent.threshold.k() - 1).copied();
        self.sent += 1;
        self.delivered += u64::from(delivered_at.is_some());
        Ok(delivered_at)
    }
}
