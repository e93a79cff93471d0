//! What a connection does with what arrives.

use std::time::Duration;

use super::super::congestion::{Acked, Lost};
use super::super::loss_report::LossReport;
use super::super::number;
use super::super::packet::{Content, Packet, ReceiverState};
use super::super::receive_buffer::Arrival;
use super::super::round_trip::RoundTrip;
use super::{ACK_INTERVAL, Connection, Phase};

/// A light acknowledgement is sent for this many packets.
const LIGHT_ACK_PACKETS: u64 = 64;

/// How late the last acknowledgement may be, besides the path's delays.
const LATE_ACK: Duration = Duration::from_millis(100);

impl Connection {
    pub(super) fn handle_packet(
        &mut self,
        now: Duration,
        arrived_at: Duration,
        packet: &Packet<'_>,
    ) {
        match self.phase {
            Phase::Over | Phase::ClosedByPeer | Phase::Failed(_) => return,
            Phase::ShutDown { .. } => {
                if packet.content != Content::Shutdown {
                    self.due.full_ack = true;
                    self.due.shutdowns = self.due.shutdowns.max(1);
                }
                return;
            }
            Phase::PeerShutDown { .. } => {
                if let Content::Ack { number, next, state } = packet.content
                    && self.handle_ack(now, number, next, state)
                    && self.send.is_empty()
                {
                    self.phase = Phase::ClosedByPeer;
                }
                return;
            }
            Phase::Open | Phase::Flushing => {}
        }
        let is_right = match packet.content {
            Content::Data { number, payload } => self.handle_data(now, arrived_at, number, payload),
            Content::Ack { number, next, state } => self.handle_ack(now, number, next, state),
            Content::Loss(report) => self.handle_losses(now, report),
            Content::AckOfAck { number } => self.handle_ack_of_ack(now, number),
            Content::Handshake(handshake) => {
                self.due.handshake = self.agreed.is_asked_again(&handshake);
                self.due.handshake
            }
            Content::Shutdown => {
                self.phase = if self.send.is_empty() {
                    Phase::ClosedByPeer
                } else {
                    Phase::PeerShutDown { until: now + self.round_trip.late() + LATE_ACK }
                };
                true
            }
            Content::KeepAlive | Content::Congestion | Content::Other => true,
        };
        if is_right {
            self.heard_at = now;
            self.timers.heard(now, self.round_trip.late());
        } else {
            self.statistics.refused += 1;
        }
    }

    fn handle_data(
        &mut self,
        now: Duration,
        arrived_at: Duration,
        wire: u32,
        payload: &[u8],
    ) -> bool {
        let packet = number::from_wire(wire, self.receive.next());
        match self.receive.insert(packet, payload) {
            Arrival::New(gap) => {
                self.statistics.received += 1;
                self.arrivals.add(packet, arrived_at);
                self.due.losses.remove(packet..packet + 1);
                if !gap.is_empty() {
                    self.due.losses.insert(gap.clone());
                    self.timers.reported(now, gap, self.report_interval());
                }
                self.packets_since_ack += 1;
                if self.packets_since_ack.is_multiple_of(LIGHT_ACK_PACKETS) {
                    self.due.light_ack = true;
                }
                // A short packet ends what the peer has to say for now.
                let is_short = payload.len() < usize::from(self.agreed.max_payload());
                let wait = if is_short { Duration::ZERO } else { ACK_INTERVAL };
                self.timers.acknowledge(now, wait);
                true
            }
            Arrival::Repeated => {
                // The acknowledgement was lost, or the packet was sent again for no reason.
                self.statistics.useless += 1;
                self.timers.acknowledge(now, ACK_INTERVAL);
                true
            }
            Arrival::NoRoom => {
                // The peer asks whether there is room, and takes silence for an end.
                self.statistics.useless += 1;
                self.announced_window = 0;
                self.timers.acknowledge(now, ACK_INTERVAL);
                true
            }
            Arrival::Refused => {
                self.statistics.useless += 1;
                false
            }
        }
    }

    fn handle_ack(
        &mut self,
        now: Duration,
        ack: u32,
        next: u32,
        state: Option<ReceiverState>,
    ) -> bool {
        let next = number::from_wire(next, self.send.next_number());
        let Some(packets) = self.send.acknowledge(next) else { return false };
        let Some(state) = state else {
            self.send.use_window(packets);
            self.congestion_acked(now, next, packets, true);
            return true;
        };
        self.due.ack_of_ack = Some(ack);
        self.send.set_window(u64::from(state.window));
        let measured = [state.round_trip, state.round_trip_variation]
            .map(|micros| Duration::from_micros(micros.into()));
        if packets > 0 && !RoundTrip::is_initial(measured) {
            self.round_trip.add(measured[0]);
        }
        if let Some((speed, capacity)) = state.rates {
            smooth(&mut self.peer_arrival_speed, speed);
            smooth(&mut self.capacity, capacity);
        }
        self.congestion_acked(now, next, packets, false);
        self.end_flushing(now);
        true
    }

    fn congestion_acked(&mut self, now: Duration, next: u64, packets: u64, is_light: bool) {
        let window = self.congestion.limits().window;
        self.congestion.on_ack(
            now,
            &Acked {
                next,
                packets,
                is_light,
                round_trip: self.round_trip.mean(),
                least_round_trip: self.round_trip.least().unwrap_or(self.round_trip.mean()),
                arrival_speed: self.peer_arrival_speed,
                capacity: self.capacity,
                is_limited: self.send.is_limited(window),
            },
        );
        self.timers.acknowledged(now, self.round_trip.late(), packets > 0);
    }

    fn handle_losses(&mut self, now: Duration, report: LossReport<'_>) -> bool {
        let near = self.send.next_number();
        let ranges = || {
            report.ranges().map(move |range| {
                number::from_wire(*range.start(), near)..number::from_wire(*range.end(), near) + 1
            })
        };
        // Checked before anything is changed.
        if ranges().any(|range| range.is_empty() || range.end > near) {
            return false;
        }
        let first = ranges().map(|range| range.start).min().unwrap_or(near);
        let end = ranges().map(|range| range.end).max().unwrap_or(near);
        // A report does not tell of what was sent less than a round trip ago.
        let sent_before = now.saturating_sub(self.round_trip.mean() * 3 / 4);
        let packets = ranges().filter_map(|range| self.send.lose(range, sent_before)).sum();
        if packets > 0 {
            self.congestion.on_loss(
                now,
                &Lost {
                    first,
                    end,
                    packets,
                    next_number: near,
                    round_trip: self.round_trip.mean(),
                    least_round_trip: self.round_trip.least().unwrap_or(self.round_trip.mean()),
                    arrival_speed: self.peer_arrival_speed,
                },
            );
        }
        true
    }

    fn handle_ack_of_ack(&mut self, now: Duration, ack: u32) -> bool {
        let Some((next, sample)) = self.acks.answer(ack, now) else { return false };
        self.round_trip.add(sample);
        self.confirmed = self.confirmed.max(next);
        true
    }

    /// Losses are reported again when a packet that was sent again should have arrived.
    pub(super) fn report_interval(&self) -> Duration {
        self.round_trip.late() + ACK_INTERVAL
    }
}

/// The first measurement as it is, then each with a weight of 1/8. 0 says nothing.
fn smooth(mean: &mut f64, sample: u32) {
    if sample > 0 {
        let sample = f64::from(sample);
        *mean = if *mean == 0.0 { sample } else { (*mean * 7.0 + sample) / 8.0 };
    }
}
