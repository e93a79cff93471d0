//! What an end tells about itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{Averages, ChannelSet, Schedule, Threshold};

use super::receiving::ReceivingCounts;
use super::sending::SendingCounts;
use super::shared::{Clock, lock};
use crate::control::estimate::{Estimate, Source};
use crate::endpoint::common::{Common, Situation};
use crate::recv::reassembly::Reassembled;
use crate::recv::release::Released;
use crate::status::{Achieved, Channel, Dropped, Predicted, Status, Waited};
use crate::wire::control::State;

/// Tells how a tunnel is, at any time. A clone tells of the same.
#[derive(Clone)]
pub struct Teller {
    pub(super) device: String,
    pub(super) clock: Clock,
    pub(super) risks: Vec<f64>,
    pub(super) common: Arc<Mutex<Common>>,
    pub(super) sending: Arc<Mutex<SendingCounts>>,
    pub(super) receiving: Arc<Mutex<ReceivingCounts>>,
    pub(super) predicted: Arc<Mutex<Option<Averages>>>,
}

impl Teller {
    /// What the tunnel is doing now.
    pub fn status(&self) -> Status {
        let now = self.clock.now();
        let sending = lock(&self.sending).clone();
        let receiving = lock(&self.receiving).clone();
        // The plan for a peer that is gone is none.
        let predicted = lock(&self.predicted).filter(|_| receiving.is_associated);
        Status {
            device: self.device.clone(),
            uptime_s: now.as_secs_f64(),
            associated: receiving.is_associated,
            achieved: self.achieved(now, &sending, &receiving),
            predicted: predicted.map(|averages| Predicted {
                kappa: averages.kappa,
                mu: averages.mu,
                risk: self.if_known(averages.risk),
                loss_out: averages.loss,
                delay_ms: averages.delivered_delay_ms,
                rate_mbit: averages.rate,
            }),
            channels: self.channels(now, &sending, &receiving),
            waited: self.waited(now, &receiving),
            dropped: dropped(&sending, &receiving),
        }
    }

    fn waited(&self, now: Duration, receiving: &ReceivingCounts) -> Waited {
        let common = lock(&self.common);
        let window = common.monitor.as_ref().map(|monitor| monitor.release_window(now));
        let Released { in_order, after_loss, after_time, for_room, .. } =
            receiving.receiver.released;
        let window_ms = 1000.0 * window.unwrap_or_default().as_secs_f64();
        Waited { window_ms, in_order, after_loss, after_time, for_room }
    }

    fn achieved(
        &self,
        now: Duration,
        sending: &SendingCounts,
        receiving: &ReceivingCounts,
    ) -> Achieved {
        let (sender, receiver, highest) = (&sending.sender, &receiving.receiver, receiving.highest);
        let mean = |sum: u64| part(sum, sender.symbols);
        let modelled = self.modelled(now, &sending.uses);
        Achieved {
            kappa: mean(sender.k_sum),
            mu: mean(sender.m_sum),
            risk: modelled.and_then(|averages| self.if_known(averages.risk)),
            loss_out: modelled.map(|averages| averages.loss),
            delay_ms: modelled.map(|averages| averages.delivered_delay_ms),
            sent_symbols: sender.symbols,
            sent_bytes: sender.bytes,
            received_symbols: receiver.symbols,
            received_bytes: receiver.bytes,
            loss_in: part(highest.saturating_sub(receiver.symbols), highest),
        }
    }

    /// What the model says of thresholds that were used so often.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn modelled(&self, now: Duration, uses: &[(Threshold, u64)]) -> Option<Averages> {
        let estimates = lock(&self.common).monitor.as_ref()?.estimates(now);
        let channels = Situation::new(&estimates, &self.risks).channels;
        let symbols: u64 = uses.iter().map(|(_, symbols)| symbols).sum();
        let parts =
            uses.iter().map(|(threshold, part)| (*threshold, *part as f64 / symbols as f64));
        Some(Schedule::new(parts).ok()?.averages(&ChannelSet::new(channels).ok()?))
    }

    fn channels(
        &self,
        now: Duration,
        sending: &SendingCounts,
        receiving: &ReceivingCounts,
    ) -> Vec<Channel> {
        let common = lock(&self.common);
        let missing = if common.monitor.is_some() { common.missing.clone() } else { Vec::new() };
        let known: Vec<Known> = common.monitor.as_ref().map_or_else(Vec::new, |monitor| {
            let states = monitor.incoming(common.quarantined).into_iter();
            let known = |(estimate, incoming)| Known { estimate, incoming };
            monitor.estimates(now).into_iter().zip(states).map(known).collect()
        });
        drop(common);
        let channel = |(index, risk): (usize, &f64)| {
            let missing = missing.get(index).copied().flatten();
            let state = |state| if missing.is_some() { "missing" } else { name(state) };
            let known = known.get(index);
            let received = receiving.channels.get(index).copied().unwrap_or_default();
            let strange = receiving.strangers.get(index).copied().unwrap_or_default();
            // Loss and delay are measured by the same messages.
            let measured =
                known.map(|known| known.estimate).filter(|estimate| estimate.measured > 0);
            Channel {
                state_out: known.map(|known| state(known.estimate.state).into()),
                state_in: known.map(|known| state(known.incoming).into()),
                missing_s: missing.map(|since| now.saturating_sub(since).as_secs_f64()),
                risk: self.if_known(*risk),
                rate_mbit: known.map(|known| mbit(known.estimate.known_bps)),
                rate_from: known.map(|known| source(known.estimate.source).into()),
                loss_out: measured.map(|estimate| estimate.loss),
                delay_ms: measured.map(|estimate| estimate.delay_ms),
                sent: sending.sender.datagrams[index],
                sent_bytes: sending.sender.ip_bytes[index],
                refused: sending.refused.get(index).copied().unwrap_or_default(),
                received: received.datagrams,
                received_bytes: received.bytes,
                wrong: received.faults,
                peer: receiving.peers.get(index).map(ToString::to_string),
                wrong_source: strange.wrong_source,
                wrong_token: strange.wrong_token,
            }
        };
        self.risks.iter().enumerate().map(channel).collect()
    }

    /// A risk, if any is configured.
    fn if_known(&self, risk: f64) -> Option<f64> {
        self.risks.iter().any(|risk| *risk > 0.0).then_some(risk)
    }
}

/// What is known of a channel while there is an association.
struct Known {
    estimate: Estimate,
    incoming: State,
}

/// Where a rate is from, as it is told.
fn source(source: Source) -> &'static str {
    match source {
        Source::Configured => "set",
        Source::Guess => "guess",
        Source::AtLeast => "at least",
        Source::Measured => "measured",
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Up => "up",
        State::Down => "down",
        State::Quarantine => "quarantine",
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
fn mbit(rate_bps: u64) -> f64 {
    rate_bps as f64 / 1e6
}

/// How many of `all`, if there are any.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn part(count: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| count as f64 / all as f64)
}

fn dropped(sending: &SendingCounts, receiving: &ReceivingCounts) -> Dropped {
    let (sender, receiver) = (&sending.sender, &receiving.receiver);
    let Reassembled { tampered, corrected, unjoined, .. } = receiver.reassembled;
    Dropped {
        unconnected: sending.unconnected,
        below_floor: sender.below_floor,
        too_long: sender.too_long,
        queued: sending.queued,
        wrong_source: receiving.strangers.iter().map(|strange| strange.wrong_source).sum(),
        wrong_token: receiving.strangers.iter().map(|strange| strange.wrong_token).sum(),
        malformed: receiver.malformed + receiver.forbidden + receiving.malformed,
        duplicate: receiver.duplicate,
        tampered: tampered.saturating_sub(corrected),
        unjoined,
        not_allowed: receiving.not_allowed,
        undelivered: receiving.refused,
    }
}
