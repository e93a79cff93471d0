//! The planning thread: computes the optimal schedule for the current channels, outside the fast
//! path.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{ChannelModel, ChannelSubset, ScheduleAverages};
use random::{RandomError, RandomSource};
use thiserror::Error;
use tracing::{info, warn};

use super::peer_label::PeerLabel;
use super::sending::SendingCommand;
use super::sending_peer::SendingPeerCommand;
use super::shared::{TunnelClock, lock};
use super::waker::ThreadWaker;
use crate::config::{SchedulerKind, TunnelConfig};
use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;
use crate::protocol::endpoint::outbound::{SenderUpdate, SymbolSenderConfig};
use crate::protocol::endpoint::shared_state::ChannelSnapshot;
use crate::protocol::send::bounds::UnmetBound;
use crate::protocol::send::plan::{PlanGoal, TunnelPlan, TunnelPlanError};
use crate::protocol::send::priority::plan_by_priority;
use crate::protocol::send::schedule::{
    DynamicScheduler, MeanThresholdError, PlannedScheduler, SymbolScheduler,
};
use crate::protocol::send::sender::SymbolSenderError;
use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::keys::TunnelKeys;

/// A plan is logged again when its rate has changed by this factor: learnt rates change with each
/// probe.
const LOG_RATE_FACTOR: f64 = 2.0;

/// The rounding error of a plan's kappa.
const KAPPA_TOLERANCE: f64 = 1e-6;

/// A command to this thread.
pub(super) enum PlanningCommand {
    /// Plan for these channels to a peer.
    Plan(TunnelPeerId, TunnelPlanRequest),
    /// Plan with these settings from now on.
    Settings(LiveSettings),
    /// Plan without these channels, whose quotas are used up, from now on.
    LeftOut(ChannelSubset),
    /// There is another peer.
    Add(TunnelPeerId, Box<PlanningPeer>),
    /// A peer is gone for good.
    Remove(TunnelPeerId),
    /// Stop.
    Stop,
}

/// The settings that can change while a tunnel runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LiveSettings {
    pub(super) goal: PlanGoal,
    pub(super) scheduler_kind: SchedulerKind,
    /// The channels' risks.
    pub(super) risks: Vec<f64>,
    /// Their prices of a GB.
    pub(super) costs: Vec<f64>,
    /// Their priorities.
    pub(super) priorities: Vec<u8>,
}

/// A request for a plan.
pub(super) struct TunnelPlanRequest {
    /// The keys of a new association.
    pub(super) keys: Option<TunnelKeys>,
    pub(super) snapshot: ChannelSnapshot,
}

/// Why there is no update for the sending thread.
#[derive(Debug, Error)]
enum SenderUpdateError {
    #[error(transparent)]
    Planning(#[from] TunnelPlanError),
    #[error(transparent)]
    Scheduler(#[from] MeanThresholdError),
    #[error(transparent)]
    Sender(#[from] SymbolSenderError),
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The state of the thread.
pub(super) struct PlanningThread {
    pub(super) settings: LiveSettings,
    pub(super) rng: RandomSource,
    pub(super) sender_config: SymbolSenderConfig,
    pub(super) commands: Receiver<PlanningCommand>,
    pub(super) sending: Sender<SendingCommand>,
    pub(super) sending_waker: ThreadWaker,
    pub(super) clock: TunnelClock,
    pub(super) peers: BTreeMap<TunnelPeerId, PlanningPeer>,
    /// The channels whose quotas are used up.
    pub(super) left_out: ChannelSubset,
}

/// What is planned for one peer.
#[derive(Default)]
pub(super) struct PlanningPeer {
    pub(super) label: PeerLabel,
    pub(super) current: Arc<Mutex<CurrentPlan>>,
    agreed_floor: u8,
    /// The channels, since there was an association.
    snapshot: Option<ChannelSnapshot>,
    /// New keys for which there is no sender yet.
    keys: Option<TunnelKeys>,
    logged: Option<(ChannelSubset, f64)>,
}

impl PlanningPeer {
    /// Without a plan.
    pub(super) fn new(label: PeerLabel) -> Self {
        Self { label, ..Self::default() }
    }
}

/// What the status shows of the current plan.
#[derive(Clone, Debug, Default)]
pub(super) struct CurrentPlan {
    /// The model's averages for it, if there is one.
    pub(super) averages: Option<ScheduleAverages>,
    /// The bound that no schedule keeps.
    pub(super) unmet: Option<UnmetBound>,
    /// Since when each channel is spare, if it is.
    pub(super) spare_since: [Option<Duration>; MAX_CHANNELS],
    /// Since when each channel is in reserve, if it is.
    pub(super) reserve_since: [Option<Duration>; MAX_CHANNELS],
}

impl CurrentPlan {
    /// Updates it, and logs the channels that are spare now, or no longer.
    fn update(&mut self, plan: Option<&TunnelPlan>, label: &PeerLabel, now: Duration) {
        self.averages = plan.map(|plan| plan.averages);
        let unmet = plan.and_then(|plan| plan.unmet);
        match (unmet, self.unmet) {
            (Some(unmet), before) if before.is_none_or(|it| it.bound != unmet.bound) => {
                warn!("{label}{unmet}; packets are sent as without bounds");
            }
            (None, Some(_)) if plan.is_some() => info!("{label}the bounds of plans are kept again"),
            _ => {}
        }
        self.unmet = unmet;
        let spare = plan.map(|plan| plan.spare.channels).unwrap_or_default();
        for (index, since) in self.spare_since.iter_mut().enumerate() {
            let number = index + 1;
            match (spare.contains(index), *since) {
                (true, None) => {
                    warn!(
                        "{label}channel {number}: no packet waits for it, as it carries too little or loses \
                         too much beside the others (prefer = \"rate\")"
                    );
                    *since = Some(now);
                }
                (false, Some(_)) => {
                    info!("{label}channel {number}: packets wait for it again");
                    *since = None;
                }
                _ => {}
            }
        }
    }

    /// Updates which channels are in reserve, and logs changes.
    fn update_reserve(&mut self, reserve: ChannelSubset, label: &PeerLabel, now: Duration) {
        for (index, since) in self.reserve_since.iter_mut().enumerate() {
            let number = index + 1;
            match (reserve.contains(index), *since) {
                (true, None) => {
                    info!("{label}channel {number}: in reserve, by its priority");
                    *since = Some(now);
                }
                (false, Some(_)) => {
                    warn!(
                        "{label}channel {number}: no longer in reserve, as channels of lower priority \
                         numbers are too few, or cannot keep the bounds"
                    );
                    *since = None;
                }
                _ => {}
            }
        }
    }
}

impl PlanningThread {
    /// Without peers. Plans are sent to the thread that sends.
    pub(super) fn new(
        config: &TunnelConfig,
        commands: Receiver<PlanningCommand>,
        (sending, sending_waker): (Sender<SendingCommand>, ThreadWaker),
        clock: TunnelClock,
    ) -> Self {
        Self {
            settings: LiveSettings::of(config),
            rng: config.rng,
            sender_config: super::sender_config(config),
            commands,
            sending,
            sending_waker,
            clock,
            peers: BTreeMap::new(),
            left_out: ChannelSubset::EMPTY,
        }
    }

    /// Handles commands until it is stopped.
    pub(super) fn run(mut self) {
        while let Ok(command) = self.commands.recv() {
            let mut changed = BTreeSet::new();
            // Only the latest snapshot of each peer and the latest settings matter.
            let waiting: Vec<PlanningCommand> = self.commands.try_iter().collect();
            for command in iter::once(command).chain(waiting) {
                match command {
                    PlanningCommand::Plan(id, request) => {
                        let Some(peer) = self.peers.get_mut(&id) else { continue };
                        peer.keys = request.keys.or(peer.keys.take());
                        peer.snapshot = Some(request.snapshot);
                        changed.insert(id);
                    }
                    PlanningCommand::Settings(settings) => {
                        self.settings = settings;
                        for (id, peer) in &mut self.peers {
                            // The plan is logged, even if it is like the one before.
                            peer.logged = None;
                            changed.insert(*id);
                        }
                    }
                    PlanningCommand::LeftOut(channels) => {
                        self.left_out = channels;
                        changed.extend(self.peers.keys().copied());
                    }
                    PlanningCommand::Add(id, peer) => drop(self.peers.insert(id, *peer)),
                    PlanningCommand::Remove(id) => drop(self.peers.remove(&id)),
                    PlanningCommand::Stop => return,
                }
            }
            for id in changed {
                if let Some(mut peer) = self.peers.remove(&id) {
                    self.plan(id, &mut peer);
                    self.peers.insert(id, peer);
                }
            }
        }
    }

    /// Plans for a peer, and informs the sending thread.
    fn plan(&self, id: TunnelPeerId, peer: &mut PlanningPeer) {
        let keys = peer.keys.take();
        if let Some(keys) = &keys {
            peer.agreed_floor = keys.floor;
        }
        // Without an association there is nothing to plan yet.
        let Some(snapshot) = &peer.snapshot else { return };
        let snapshot = snapshot.with_settings(&self.settings.risks, &self.settings.costs);
        let snapshot = snapshot.without(self.left_out);
        let request = TunnelPlanRequest { keys, snapshot };
        let goal = self.settings.goal;
        let goal = goal.with_floor(goal.floor.max(peer.agreed_floor));
        let ChannelSnapshot { channels, up } = &request.snapshot;
        let planned = plan_by_priority(&goal, channels, *up, &self.settings.priorities);
        let reserve = planned.as_ref().map(|(_, reserve)| *reserve).unwrap_or_default();
        let planned = planned.map(|(plan, _)| plan);
        let now = self.clock.now();
        let mut current = lock(&peer.current);
        current.update(planned.as_ref().ok(), &peer.label, now);
        current.update_reserve(reserve, &peer.label, now);
        drop(current);
        match self.update(goal, &request, planned, peer) {
            Ok(update) => {
                // If nobody receives, the tunnel stops.
                let update = SendingPeerCommand::Update(update);
                let _ = self.sending.send(SendingCommand::OfPeer(id, update));
                self.sending_waker.wake();
            }
            Err(error) => warn!("{}{error}", peer.label),
        }
    }

    fn update(
        &self,
        goal: PlanGoal,
        request: &TunnelPlanRequest,
        planned: Result<TunnelPlan, TunnelPlanError>,
        peer: &mut PlanningPeer,
    ) -> Result<SenderUpdate, SenderUpdateError> {
        let ChannelSnapshot { channels, up } = &request.snapshot;
        let label = &peer.label;
        let is_held = planned.is_err();
        let plan = match (planned, &request.keys) {
            (Ok(plan), _) => plan,
            (Err(error), None) => {
                warn!("{label}nothing is sent: {error}");
                return Ok(SenderUpdate::Hold);
            }
            (Err(error), Some(keys)) => {
                warn!("{label}nothing is sent: {error}");
                // Keys arrive only once, and without a sender that uses them no control message
                // would tell the peer that its channels work.
                goal.plan(channels, keys.members)?
            }
        };
        if !is_held {
            log(goal, request, &plan.averages, peer);
        }
        let scheduler = self.scheduler(goal, &plan, channels)?;
        let Some(keys) = &request.keys else {
            let (up, floor) = (*up, goal.floor);
            return Ok(SenderUpdate::Schedule { scheduler, floor, up, spare: plan.spare });
        };
        let generator = self.rng.generator()?;
        let mut sender = self.sender_config.sender(keys, scheduler, generator)?;
        sender.set_spare(plan.spare);
        sender.set_packet_floor(goal.floor);
        if is_held {
            sender.set_up(ChannelSubset::EMPTY);
        } else if !self.left_out.is_empty() {
            sender.set_up(*up);
        }
        Ok(SenderUpdate::Associate(Box::new(sender)))
    }

    fn scheduler(
        &self,
        goal: PlanGoal,
        plan: &TunnelPlan,
        channels: &[ChannelModel],
    ) -> Result<Box<dyn SymbolScheduler>, SenderUpdateError> {
        let mut generator = self.rng.generator()?;
        let random = generator.array()?;
        let random = u64::from_le_bytes(random);
        match self.settings.scheduler_kind {
            SchedulerKind::Planned => Ok(Box::new(
                PlannedScheduler::new(&plan.schedule, channels).with_random_start(random),
            )),
            SchedulerKind::Dynamic => {
                let dynamic = DynamicScheduler::new(goal.kappa, goal.mu)?;
                Ok(Box::new(dynamic.with_random_start(random)))
            }
        }
    }
}

/// Logs a plan's averages, unless a similar plan was logged last.
fn log(
    goal: PlanGoal,
    request: &TunnelPlanRequest,
    averages: &ScheduleAverages,
    peer: &mut PlanningPeer,
) {
    let PlanningPeer { label, logged, .. } = peer;
    let ChannelSnapshot { channels, up } = &request.snapshot;
    let is_logged = logged.is_some_and(|(logged, rate)| {
        let times = averages.rate / rate;
        logged == *up && (1.0 / LOG_RATE_FACTOR..LOG_RATE_FACTOR).contains(&times)
    });
    if is_logged && request.keys.is_none() {
        return;
    }
    *logged = Some((*up, averages.rate));
    let has_risks = channels.iter().any(|channel| channel.risk() > 0.0);
    let risk = if has_risks { format!("risk {:.3}, ", averages.risk) } else { String::new() };
    let line = format!(
        "{label}planned: kappa {:.2}, mu {:.2}, {risk}loss {:.2} %, delay {:.1} ms, {:.1} Mbit/s",
        averages.kappa,
        averages.mu,
        100.0 * averages.loss,
        averages.delay_ms,
        averages.rate
    );
    if averages.kappa < goal.kappa - KAPPA_TOLERANCE {
        let (up, all, kappa) = (up.len(), channels.len(), goal.kappa);
        warn!("{line}: only {up} of {all} channels are up, too few for kappa = {kappa}");
    } else {
        info!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use model::{LossProbability, RiskProbability, ScheduleObjective};
    use udp::DatagramBatch;

    use super::*;
    use crate::protocol::endpoint::outbound::OutboundEndpoint;
    use crate::protocol::send::bounds::PlanBounds;
    use crate::protocol::send::sender::SymbolSendError;
    use crate::protocol::send::shared_fates::SharedFates;
    use crate::protocol::send::spare::PlanPreference;
    use crate::protocol::wire::datagram::SymbolKind;
    use crate::protocol::wire::keys::DirectionKeys;
    use crate::protocol::wire::tokens::{TOKEN_KEY_LEN, TokenKey};

    const CHANNELS: usize = 3;
    const PEER: TunnelPeerId = TunnelPeerId(0);

    fn plan(keys: Option<TunnelKeys>, up: usize) -> PlanningCommand {
        let channel =
            ChannelModel::new(RiskProbability(0.1), LossProbability(0.01), 1.0, 10.0).unwrap();
        let up = ChannelSubset::first(up);
        PlanningCommand::Plan(
            PEER,
            TunnelPlanRequest {
                keys,
                snapshot: ChannelSnapshot { channels: vec![channel; CHANNELS], up },
            },
        )
    }

    fn keys() -> TunnelKeys {
        let tokens = TokenKey::new(&[7; TOKEN_KEY_LEN]);
        let direction = DirectionKeys { channels: CHANNELS, tokens, points: None };
        let (outgoing, incoming) = (direction.clone(), direction);
        TunnelKeys { outgoing, incoming, floor: 2, members: ChannelSubset::first(CHANNELS) }
    }

    /// Sends a symbol.
    fn send(outbound: &mut OutboundEndpoint) -> Result<(), SymbolSendError> {
        outbound.begin().expect("an association").extend_from_slice(&[0x45; 100]);
        let mut batches: Vec<DatagramBatch> =
            (0..CHANNELS).map(|_| DatagramBatch::default()).collect();
        outbound.finish(SymbolKind::Packet, 0, Duration::ZERO, &mut batches).map(drop)
    }

    #[test]
    fn keys_that_come_when_too_few_channels_are_up_are_used_later() {
        let (to_planning, commands_to_planning) = mpsc::channel();
        let (sending, commands) = mpsc::channel();
        let planning = PlanningThread {
            settings: LiveSettings {
                goal: PlanGoal {
                    kappa: 2.0,
                    mu: 3.0,
                    objective: ScheduleObjective::Loss,
                    second_objective: None,
                    floor: 2,
                    keeps_order: false,
                    prefer: PlanPreference::Rate,
                    bounds: PlanBounds::default(),
                    fates: SharedFates::default(),
                },
                scheduler_kind: SchedulerKind::Planned,
                risks: vec![0.1; CHANNELS],
                costs: vec![0.0; CHANNELS],
                priorities: vec![1; CHANNELS],
            },
            rng: RandomSource::Seeded,
            sender_config: SymbolSenderConfig {
                rates_bps: vec![None; CHANNELS],
                mtus: vec![1500; CHANNELS],
                headers: vec![28; CHANNELS],
            },
            commands: commands_to_planning,
            sending,
            sending_waker: ThreadWaker::new().unwrap(),
            clock: TunnelClock(Instant::now()),
            left_out: ChannelSubset::EMPTY,
            peers: BTreeMap::from([(PEER, PlanningPeer::default())]),
        };
        let update = |outbound: &mut OutboundEndpoint| match commands
            .recv_timeout(Duration::from_secs(10))
        {
            Ok(SendingCommand::OfPeer(PEER, SendingPeerCommand::Update(update))) => {
                outbound.handle_update(update);
            }
            _ => panic!("no update"),
        };
        // Both requests wait when the thread comes to them: channels have gone down meanwhile.
        to_planning.send(plan(Some(keys()), CHANNELS)).unwrap();
        to_planning.send(plan(None, 1)).unwrap();
        let thread = thread::spawn(|| planning.run());
        let mut outbound = OutboundEndpoint::default();
        update(&mut outbound);
        assert!(matches!(send(&mut outbound), Err(SymbolSendError::BelowFloor)));
        to_planning.send(plan(None, CHANNELS)).unwrap();
        drop(to_planning);
        update(&mut outbound);
        thread.join().unwrap();
        send(&mut outbound).unwrap();
    }
}
