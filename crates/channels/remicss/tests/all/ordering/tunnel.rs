//! One direction of a tunnel: a sender with a plan, links, a receiver, and flows that use it.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use model::{ChannelModel, ChannelSubset, ScheduleObjective};
use random::RandomGenerator;
use sim::{
    LinkBottleneck, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork, SimulationEvent,
};
use sunder_remicss::endpoint::outbound::SymbolSenderConfig;
use sunder_remicss::recv::delay_equalizer::ChannelLateness;
use sunder_remicss::recv::receiver::{SymbolReceiver, SymbolReceiverLimits};
use sunder_remicss::recv::symbol_sink::{ControlShare, SymbolSink};
use sunder_remicss::send::bounds::PlanBounds;
use sunder_remicss::send::plan::PlanGoal;
use sunder_remicss::send::schedule::PlannedScheduler;
use sunder_remicss::send::sender::{SymbolSendError, SymbolSender};
use sunder_remicss::send::shared_fates::SharedFates;
use sunder_remicss::send::spare::PlanPreference;
use sunder_remicss::wire::datagram::SymbolKind;
use sunder_remicss::wire::keys::{DirectionKeys, TagPoints, TunnelKeys};
use sunder_remicss::wire::tokens::TokenKey;
use udp::DatagramBatch;

use super::MS;
use super::flow::{Flow, FlowKind, FlowPacket};

/// The length of a full packet on a channel, and of what the tunnel carries in it.
const FULL: usize = 1500;
const CONTENT: usize = FULL - 28 - 12 - 9;

/// The time that acknowledgements take.
const WAY_BACK: Duration = Duration::from_millis(20);

/// The time for which the queue of packets before the tunnel holds packets at the plan's rate.
const QUEUE: Duration = Duration::from_millis(50);

/// The delays of TCP's estimates are those of channels up to this lateness.
const TOLERATED: Duration = Duration::from_millis(5);

pub(crate) struct OrderedTunnel {
    network: SimulatedNetwork<Acknowledgement>,
    channels: Vec<ChannelModel>,
    links: Vec<SimulatedLinkId>,
    goal: PlanGoal,
    planned_rate: f64,
    sender: SymbolSender,
    batches: Vec<DatagramBatch>,
    receiver: SymbolReceiver,
    flows: Vec<Flow>,
    queue: VecDeque<FlowPacket>,
    busy_until: Duration,
    delivered: u64,
}

/// A packet of a flow is acknowledged.
struct Acknowledgement(FlowPacket);

/// Packets that were delivered.
#[derive(Default)]
struct Delivered(Vec<FlowPacket>);

impl SymbolSink for Delivered {
    fn packets(&mut self, _: SymbolKind, packets: &[u8]) {
        self.0.push(FlowPacket::parse(packets));
    }

    fn control(&mut self, _: u64, _: &[u8]) {}

    fn control_share(&mut self, _: ControlShare) {}
}

fn goal(kappa: f64, mu: f64) -> PlanGoal {
    PlanGoal {
        kappa,
        mu,
        objective: ScheduleObjective::Risk,
        second_objective: None,
        floor: kappa as u8,
        keeps_order: true,
        prefer: PlanPreference::Redundancy,
        bounds: PlanBounds::default(),
        fates: SharedFates::default(),
    }
}

/// The highest rate of a plan over all channels, in Mbit/s.
pub(crate) fn full_rate(channels: &[ChannelModel], kappa: f64, mu: f64) -> f64 {
    let goal = PlanGoal { keeps_order: false, ..goal(kappa, mu) };
    goal.plan(channels, ChannelSubset::first(channels.len())).unwrap().averages.rate
}

impl OrderedTunnel {
    /// A tunnel over these channels, without flows.
    pub(crate) fn new(channels: Vec<ChannelModel>, kappa: f64, mu: f64) -> Self {
        let n = channels.len();
        let goal = goal(kappa, mu);
        let up = ChannelSubset::first(n);
        let plan = goal.plan(&channels, up).unwrap();
        let direction = DirectionKeys {
            channels: n,
            tokens: TokenKey::new(&[7; 16]),
            points: Some(TagPoints::new(&[[3; 8]; 16])),
        };
        let keys = TunnelKeys {
            outgoing: direction.clone(),
            incoming: direction.clone(),
            floor: goal.floor,
            members: up,
        };
        let rate_bps = |channel: &ChannelModel| (channel.rate() * 1e6) as u64;
        let config = SymbolSenderConfig {
            rates_bps: channels.iter().map(|channel| Some(rate_bps(channel))).collect(),
            mtus: vec![FULL; n],
            headers: vec![28; n],
        };
        let scheduler = PlannedScheduler::new(&plan.schedule, &channels);
        let generator = RandomGenerator::seeded().unwrap();
        let mut network = SimulatedNetwork::new(1);
        let mut link = |channel: &ChannelModel| {
            let delay = Duration::from_secs_f64(channel.delay_ms() / 1e3);
            let link = network.add_link(delay, delay);
            let bottleneck =
                LinkBottleneck { rate_bps: rate_bps(channel), max_queue: QUEUE, is_policed: false };
            *network.conditions_mut(link) = SimulatedLinkConditions {
                bottleneck: Some(bottleneck),
                ..SimulatedLinkConditions::delayed(delay, delay)
            };
            link
        };
        let mut tunnel = Self {
            links: channels.iter().map(&mut link).collect(),
            network,
            goal,
            planned_rate: plan.averages.rate,
            sender: config.sender(&keys, Box::new(scheduler), generator).unwrap(),
            batches: (0..n).map(|_| DatagramBatch::default()).collect(),
            receiver: SymbolReceiver::new(
                &direction,
                goal.floor,
                SymbolReceiverLimits { window: 1 << 14, ..SymbolReceiverLimits::default() },
            ),
            flows: Vec::new(),
            queue: VecDeque::new(),
            busy_until: Duration::ZERO,
            delivered: 0,
            channels,
        };
        tunnel.set_receiver(up);
        tunnel
    }

    /// Sets what the receiver's monitor knows of its channels.
    fn set_receiver(&mut self, up: ChannelSubset) {
        // A channel is not faster than the floor-th fastest.
        let mut delays: Vec<f64> = up.iter().map(|it| self.channels[it].delay_ms()).collect();
        delays.sort_by(f64::total_cmp);
        let fastest = delays[usize::from(self.goal.floor) - 1];
        let late = |channel: usize| {
            let late_ms = (self.channels[channel].delay_ms() - fastest).max(0.0);
            up.contains(channel).then(|| Duration::from_secs_f64(late_ms / 1e3))
        };
        let channels: Vec<Option<Duration>> = (0..self.channels.len()).map(late).collect();
        let spread = channels.iter().flatten().max().copied().unwrap_or_default();
        self.receiver.set_up(up);
        // Control shares wait behind the burst of full packets that a pacer lets through.
        let slowest = up.iter().map(|it| self.channels[it].rate()).fold(f64::INFINITY, f64::min);
        let burst = Duration::from_secs_f64(3.0 * 8e-6 * FULL as f64 / slowest);
        self.receiver.set_window((spread + burst) * 5 / 4 + 2 * MS);
        self.receiver.set_lateness(&ChannelLateness { channels, tolerated: TOLERATED });
    }

    /// The rate of the plan, in Mbit/s.
    pub(crate) fn planned_rate(&self) -> f64 {
        self.planned_rate
    }

    /// Both directions of a channel lose everything, or nothing.
    pub(crate) fn set_off(&mut self, channel: usize, is_off: bool) {
        let conditions = self.network.conditions_mut(self.links[channel]);
        conditions.loss_permille = if is_off { 1000 } else { 0 };
    }

    /// Both ends notice that these channels are down, and all others up.
    pub(crate) fn plan_without(&mut self, down: &[usize]) {
        let up = (0..self.channels.len()).filter(|channel| !down.contains(channel)).collect();
        let plan = self.goal.plan(&self.channels, up).unwrap();
        self.planned_rate = plan.averages.rate;
        self.sender.set_up(up);
        let scheduler = PlannedScheduler::new(&plan.schedule, &self.channels);
        self.sender.set_scheduler(Box::new(scheduler)).unwrap();
        self.set_receiver(up);
        self.busy_until = self.network.now();
    }

    pub(crate) fn add_flow(&mut self, kind: FlowKind) {
        self.flows.push(Flow::new(self.flows.len(), kind, self.network.now()));
    }

    pub(crate) fn flows(&self) -> &[Flow] {
        &self.flows
    }

    pub(crate) fn forget_delays(&mut self) {
        self.flows.iter_mut().for_each(Flow::forget_delays);
    }

    /// The mean threshold and multiplicity of all packets.
    pub(crate) fn means(&self) -> (f64, f64) {
        let counts = self.sender.counts();
        let symbols = counts.symbols as f64;
        (counts.k_sum as f64 / symbols, counts.m_sum as f64 / symbols)
    }

    /// Runs for a time, and returns the rate of full packets on a channel that were delivered, in
    /// Mbit/s.
    pub(crate) fn rate_for(&mut self, time: Duration) -> f64 {
        let before = self.delivered;
        self.run(time);
        (self.delivered - before) as f64 * 8e-6 * FULL as f64 / time.as_secs_f64()
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.network.now() + time;
        loop {
            self.fill_queue();
            self.send();
            let now = self.network.now();
            let busy_until = (!self.queue.is_empty()).then_some(self.busy_until);
            let timers = [busy_until, self.receiver.poll_timeout(), Some(until)];
            let flows = self.flows.iter().filter_map(|flow| flow.next_packet_at(now));
            let next = timers.into_iter().flatten().chain(flows).min().unwrap().max(now);
            let event = self.network.next_event_until(next);
            let now = self.network.now();
            let mut out = Delivered::default();
            match event {
                Some(SimulationEvent::Arrived { link, bytes }) => {
                    let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 7000));
                    self.receiver.handle_share(link.index(), from, &bytes, now, &mut out);
                }
                Some(SimulationEvent::Timer(Acknowledgement(packet))) => {
                    self.flows[packet.flow].handle_acknowledgement(packet, now);
                }
                Some(_) => panic!("another event"),
                None => {}
            }
            self.receiver.handle_timeout(now, &mut out);
            for packet in out.0 {
                self.delivered += 1;
                self.flows[packet.flow].handle_delivery(packet, now);
                self.network.set_timer(now + WAY_BACK, Acknowledgement(packet));
            }
            if now >= until {
                return;
            }
        }
    }

    /// Flows send packets, of which those that find the queue full are lost.
    fn fill_queue(&mut self) {
        let now = self.network.now();
        let most = (self.planned_rate * 1e6 / 8.0 / FULL as f64 * QUEUE.as_secs_f64()) as usize;
        let flows = self.flows.len();
        let mut has_more = true;
        while has_more {
            has_more = false;
            for turn in 0..flows {
                let flow = &mut self.flows[(turn + self.delivered as usize) % flows];
                let has_room = self.queue.len() < most.max(10);
                if flow.is_backlogged() && !has_room {
                    continue;
                }
                if let Some(packet) = flow.next_packet(now) {
                    has_more = true;
                    if has_room {
                        self.queue.push_back(packet);
                    }
                }
            }
        }
    }

    /// Sends the queued packets for which the channels are ready.
    fn send(&mut self) {
        let now = self.network.now();
        while let Some(packet) = self.queue.front() {
            if self.busy_until > now {
                return;
            }
            let content = packet.encode(CONTENT);
            if self.sender.symbol().is_none() {
                self.sender.begin().extend_from_slice(&content);
            }
            let flow = packet.flow as u16;
            match self.sender.finish(SymbolKind::Packet, flow, now, &mut self.batches) {
                Ok(sent) => {
                    self.flows[packet.flow].record_threshold(sent.threshold);
                    self.queue.pop_front();
                }
                Err(SymbolSendError::Wait(ready)) => self.busy_until = ready,
                Err(error) => panic!("{error}"),
            }
            for (channel, batch) in self.batches.iter_mut().enumerate() {
                for (bytes, len) in batch.runs() {
                    for datagram in bytes.chunks(len) {
                        self.network.send_datagram(self.links[channel], datagram.to_vec());
                    }
                }
                batch.clear();
            }
        }
        self.sender.set_idle();
    }
}
