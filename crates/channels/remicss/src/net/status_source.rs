//! The source of the status.

use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{ChannelSet, ScheduleAverages, ShareSchedule, ShareSelection};

use super::planning::CurrentPlan;
use super::received_packets::DeviceWriteCounts;
use super::receiving_peer::ReceivingCounts;
use super::sending_peer::SendingCounts;
use super::shared::{TunnelClock, lock};
use crate::config::{TunnelChannelConfig, TunnelClientConfig, fates};
use crate::net::status_of_clients::of_all;
use crate::protocol::control::estimate::{ChannelEstimate, RateSource};
use crate::protocol::endpoint::client_demultiplexer::{TunnelPeerId, UnrecognisedCounts};
use crate::protocol::endpoint::shared_state::{ChannelSnapshot, EndpointSharedState};
use crate::protocol::recv::reassembly::ReassemblyCounts;
use crate::protocol::recv::reorder_buffer::ReorderCounts;
use crate::protocol::wire::control::TunnelChannelState;
use crate::status::{
    DropCounts, MeasuredProperties, PredictedProperties, QuotaStatus, ReorderStatus,
    TunnelChannelStatus, TunnelClientStatus, TunnelStatus,
};

/// Reports the status of a tunnel at any time. Clones report on the same tunnel.
#[derive(Clone)]
pub struct TunnelStatusSource {
    pub(super) device: String,
    pub(super) clock: TunnelClock,
    pub(super) risks: Arc<Mutex<Vec<f64>>>,
    /// The channels' settings.
    pub(super) configured: Arc<Mutex<Vec<TunnelChannelConfig>>>,
    /// What is used of each channel's quota, if it has one. Empty until it was counted.
    pub(super) quotas: Arc<Mutex<Vec<Option<QuotaStatus>>>>,
    /// The only peer, or the clients.
    pub(super) peers: Arc<Mutex<Vec<PeerStatusSource>>>,
    pub(super) written: Arc<Mutex<DeviceWriteCounts>>,
    pub(super) unrecognised: Arc<Mutex<Vec<UnrecognisedCounts>>>,
    pub(super) for_no_client: Arc<AtomicU64>,
}

/// Reports the status of one peer.
#[derive(Clone)]
pub(super) struct PeerStatusSource {
    pub(super) id: TunnelPeerId,
    /// The client, if it is one of several.
    pub(super) client: Option<TunnelClientConfig>,
    pub(super) shared: Arc<Mutex<EndpointSharedState>>,
    pub(super) sending: Arc<Mutex<SendingCounts>>,
    pub(super) receiving: Arc<Mutex<ReceivingCounts>>,
    pub(super) plan: Arc<Mutex<CurrentPlan>>,
}

impl TunnelStatusSource {
    /// The current status.
    pub fn status(&self) -> TunnelStatus {
        let (now, risks) = (self.clock.now(), lock(&self.risks).clone());
        let configured = lock(&self.configured).clone();
        let peers = lock(&self.peers).clone();
        let written = *lock(&self.written);
        let mut status = match peers.first() {
            Some(peer) if peer.client.is_none() => peer.status(&risks, &configured, now),
            _ => self.of_clients(&peers, &risks, &configured, now),
        };
        status.device.clone_from(&self.device);
        // A client's channels have no port of their own.
        let local = configured.iter().map(|channel| channel.local);
        status.listen = local.filter(|local| local.port() != 0).collect();
        let has_priorities = configured.windows(2).any(|two| two[0].priority != two[1].priority);
        for (channel, configured) in status.channels.iter_mut().zip(&configured) {
            channel.shared_fate.clone_from(&configured.shared_fate);
            channel.priority = has_priorities.then_some(configured.priority);
            channel.cost_per_gb = if_priced(configured.cost_per_gb, slice::from_ref(configured));
        }
        for (channel, quota) in status.channels.iter_mut().zip(lock(&self.quotas).iter()) {
            channel.quota = *quota;
        }
        status.dropped.malformed += written.malformed;
        status.dropped.undelivered += written.refused;
        status
    }

    /// The status of a server with these clients.
    fn of_clients(
        &self,
        peers: &[PeerStatusSource],
        risks: &[f64],
        configured: &[TunnelChannelConfig],
        now: Duration,
    ) -> TunnelStatus {
        let (mut mtu, mut clients) = (0, Vec::new());
        for peer in peers {
            let name = peer.client.as_ref().map(|client| client.name.clone()).unwrap_or_default();
            let networks = peer.client.iter().flat_map(|client| &client.networks);
            let networks = networks.map(ToString::to_string).collect();
            let since = lock(&peer.receiving).associated_since;
            let status = peer.status(risks, configured, now);
            mtu = mtu.max(status.mtu);
            clients.push(TunnelClientStatus {
                name,
                networks,
                associated_s: since.map(|since| now.saturating_sub(since).as_secs_f64()),
                achieved: status.achieved,
                predicted: status.predicted,
                unmet_bound: status.unmet_bound,
                channels: status.channels,
                waited: status.waited,
                dropped: status.dropped,
            });
        }
        let mut status = of_all(clients, risks.len());
        status.uptime_s = now.as_secs_f64();
        status.mtu = mtu;
        for (channel, risk) in status.channels.iter_mut().zip(risks) {
            channel.risk = if_known(risks, *risk);
        }
        let unrecognised = lock(&self.unrecognised);
        status.dropped.unrecognised = unrecognised.iter().map(|counts| counts.unrecognised).sum();
        status.dropped.unchecked = unrecognised.iter().map(|counts| counts.unchecked).sum();
        status.dropped.for_no_client = self.for_no_client.load(Ordering::Relaxed);
        status
    }
}

impl PeerStatusSource {
    /// The status of a tunnel with this peer alone.
    fn status(
        &self,
        risks: &[f64],
        configured: &[TunnelChannelConfig],
        now: Duration,
    ) -> TunnelStatus {
        let sending = lock(&self.sending).clone();
        let receiving = lock(&self.receiving).clone();
        let is_associated = receiving.associated_since.is_some();
        // Without a peer there is no plan.
        let plan = lock(&self.plan).clone();
        let predicted = plan.averages.filter(|_| is_associated);
        TunnelStatus {
            device: String::new(),
            uptime_s: now.as_secs_f64(),
            // The addresses are the tunnel's.
            listen: Vec::new(),
            associated: is_associated,
            // The rules are apart from the tunnel.
            closed: None,
            achieved: self.achieved(risks, configured, now, &sending, &receiving),
            predicted: predicted.map(|averages| PredictedProperties {
                kappa: averages.kappa,
                mu: averages.mu,
                risk: if_known(risks, averages.risk),
                loss_out: averages.loss,
                delay_ms: averages.delivered_delay_ms,
                rate_mbit: averages.rate,
                cost_per_gb: if_priced(averages.cost, configured),
            }),
            unmet_bound: plan.unmet.filter(|_| is_associated).map(|unmet| unmet.to_string()),
            mtu: receiving.mtu,
            channels: self.channels(risks, now, &sending, &receiving, &plan),
            waited: self.waited(now, &receiving),
            dropped: dropped(&sending, &receiving),
            clients: Vec::new(),
        }
    }

    fn waited(&self, now: Duration, receiving: &ReceivingCounts) -> ReorderStatus {
        let shared = lock(&self.shared);
        let window = shared.monitor.as_ref().map(|monitor| monitor.reorder_window(now));
        let ReorderCounts {
            delayed,
            in_order,
            after_loss,
            after_time,
            released_early: for_room,
            ..
        } = receiving.receiver.released;
        let window_ms = 1000.0 * window.unwrap_or_default().as_secs_f64();
        ReorderStatus { window_ms, delayed, in_order, after_loss, after_time, for_room }
    }

    fn achieved(
        &self,
        risks: &[f64],
        configured: &[TunnelChannelConfig],
        now: Duration,
        sending: &SendingCounts,
        receiving: &ReceivingCounts,
    ) -> MeasuredProperties {
        let (sender, receiver, highest) = (&sending.sender, &receiving.receiver, receiving.highest);
        let mean = |sum: u64| part(sum, sender.symbols);
        let modelled = self.modelled(risks, configured, now, &sending.uses);
        MeasuredProperties {
            kappa: mean(sender.k_sum),
            mu: mean(sender.m_sum),
            risk: modelled.and_then(|averages| if_known(risks, averages.risk)),
            loss_out: modelled.map(|averages| averages.loss),
            delay_ms: modelled.map(|averages| averages.delivered_delay_ms),
            cost_per_gb: modelled.and_then(|averages| if_priced(averages.cost, configured)),
            sent_symbols: sender.symbols,
            sent_bytes: sender.bytes,
            received_symbols: receiver.symbols,
            received_bytes: receiver.bytes,
            loss_in: part(highest.saturating_sub(receiver.symbols), highest),
        }
    }

    /// The model's averages for thresholds with these numbers of uses.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn modelled(
        &self,
        risks: &[f64],
        configured: &[TunnelChannelConfig],
        now: Duration,
        uses: &[(ShareSelection, u64)],
    ) -> Option<ScheduleAverages> {
        let estimates = lock(&self.shared).monitor.as_ref()?.estimates(now);
        let costs: Vec<f64> = configured.iter().map(|channel| channel.cost_per_gb).collect();
        let channels =
            ChannelSnapshot::new(&estimates, risks).with_settings(risks, &costs).channels;
        let fates = fates(configured).sets();
        let set = ChannelSet::new(channels).and_then(|set| set.with_shared_fates(fates)).ok()?;
        let symbols: u64 = uses.iter().map(|(_, symbols)| symbols).sum();
        let parts =
            uses.iter().map(|(threshold, part)| (*threshold, *part as f64 / symbols as f64));
        Some(ShareSchedule::new(parts).ok()?.averages(&set))
    }

    fn channels(
        &self,
        risks: &[f64],
        now: Duration,
        sending: &SendingCounts,
        receiving: &ReceivingCounts,
        plan: &CurrentPlan,
    ) -> Vec<TunnelChannelStatus> {
        let shared = lock(&self.shared);
        let missing = if shared.monitor.is_some() { shared.missing.clone() } else { Vec::new() };
        let not_up = if shared.monitor.is_some() { shared.not_up.clone() } else { Vec::new() };
        let known: Vec<AssociatedChannel> =
            shared.monitor.as_ref().map_or_else(Vec::new, |monitor| {
                let states = monitor.incoming(shared.quarantined).into_iter();
                let known = |(estimate, incoming)| AssociatedChannel { estimate, incoming };
                monitor.estimates(now).into_iter().zip(states).map(known).collect()
            });
        let paths = if shared.monitor.is_some() { shared.path_mtus.clone() } else { Vec::new() };
        drop(shared);
        let channel = |(index, risk): (usize, &f64)| {
            let missing = missing.get(index).copied().flatten();
            let not_up = not_up.get(index).copied().flatten();
            let seconds = |since: Duration| now.saturating_sub(since).as_secs_f64();
            let state = |state| if missing.is_some() { "missing" } else { name(state) };
            let known = known.get(index);
            let received = receiving.channels.get(index).copied().unwrap_or_default();
            let strange = receiving.unverified.get(index).copied().unwrap_or_default();
            let path = paths.get(index).copied().unwrap_or_default();
            let black_hole = path.black_hole;
            // Loss and delay are measured by the same messages.
            let measured =
                known.map(|known| known.estimate).filter(|estimate| estimate.measured > 0);
            TunnelChannelStatus {
                state_out: known.map(|known| state(known.estimate.state).into()),
                state_in: known.map(|known| state(known.incoming).into()),
                missing_s: missing.map(seconds),
                not_up_s: not_up.map(seconds),
                spare_s: plan.spare_since[index].filter(|_| known.is_some()).map(seconds),
                reserve_s: plan.reserve_since[index].filter(|_| known.is_some()).map(seconds),
                shared_fate: None,
                priority: None,
                cost_per_gb: None,
                quota: None,
                risk: if_known(risks, *risk),
                rate_mbit: known.map(|known| mbit(known.estimate.known_bps)),
                rate_from: known.map(|known| source(known.estimate.source).into()),
                loss_out: measured.map(|estimate| estimate.loss),
                delay_ms: measured.map(|estimate| estimate.delay_ms),
                mtu: path.mtu,
                former_mtu: black_hole.map(|black_hole| black_hole.former_mtu),
                black_hole_s: black_hole.map(|black_hole| seconds(black_hole.since)),
                sent: sending.sender.datagrams[index],
                sent_bytes: sending.sender.ip_bytes[index],
                refused: sending.refused.get(index).copied().unwrap_or_default(),
                received: received.datagrams,
                received_bytes: received.bytes,
                wrong: received.faults,
                peer: receiving
                    .peers
                    .get(index)
                    .filter(|peer| !peer.ip().is_unspecified())
                    .map(ToString::to_string),
                wrong_source: strange.wrong_source,
                wrong_token: strange.wrong_token,
            }
        };
        risks.iter().enumerate().map(channel).collect()
    }
}

/// A risk, if any channel has one configured.
fn if_known(risks: &[f64], risk: f64) -> Option<f64> {
    risks.iter().any(|risk| *risk > 0.0).then_some(risk)
}

/// A price, if any channel has one configured.
fn if_priced(cost: f64, configured: &[TunnelChannelConfig]) -> Option<f64> {
    configured.iter().any(|channel| channel.cost_per_gb > 0.0).then_some(cost)
}

/// What is known of a channel during an association.
struct AssociatedChannel {
    estimate: ChannelEstimate,
    incoming: TunnelChannelState,
}

/// The name of a rate's source.
fn source(source: RateSource) -> &'static str {
    match source {
        RateSource::Configured => "set",
        RateSource::Guess => "guess",
        RateSource::AtLeast => "at least",
        RateSource::Measured => "measured",
    }
}

fn name(state: TunnelChannelState) -> &'static str {
    match state {
        TunnelChannelState::Up => "up",
        TunnelChannelState::Down => "down",
        TunnelChannelState::Quarantine => "quarantine",
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
fn mbit(rate_bps: u64) -> f64 {
    rate_bps as f64 / 1e6
}

/// The proportion of `count` in `all`, if that is not 0.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn part(count: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| count as f64 / all as f64)
}

fn dropped(sending: &SendingCounts, receiving: &ReceivingCounts) -> DropCounts {
    let (sender, receiver) = (&sending.sender, &receiving.receiver);
    let ReassemblyCounts { tampered, corrected, unjoined, .. } = receiver.reassembled;
    DropCounts {
        unconnected: sending.drops.unconnected,
        below_floor: sender.below_floor,
        too_long: sender.too_long,
        queued: sending.drops.queued,
        wrong_source: receiving.unverified.iter().map(|strange| strange.wrong_source).sum(),
        wrong_token: receiving.unverified.iter().map(|strange| strange.wrong_token).sum(),
        malformed: receiver.malformed + receiver.invalid_threshold + receiving.filtered.malformed,
        duplicate: receiver.duplicate,
        tampered: tampered.saturating_sub(corrected),
        unjoined,
        not_allowed: receiving.filtered.not_allowed,
        between_clients: receiving.filtered.between_clients,
        // They are counted for all peers together.
        undelivered: 0,
        for_no_client: 0,
        unrecognised: 0,
        unchecked: 0,
    }
}
