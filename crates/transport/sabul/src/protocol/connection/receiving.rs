//! Handles received packets.

use std::time::Duration;

use super::super::congestion::{SabulAckEvent, SabulLossEvent};
use super::super::loss_report::LossReport;
use super::super::number;
use super::super::packet::{SabulPacket, SabulPacketContent, SabulReceiverState};
use super::super::receive_buffer::SabulPacketArrival;
use super::super::send_buffer::SabulAckedPackets;
use super::{ACK_INTERVAL, ANSWER_KEEP_ALIVE, SabulConnection, SabulConnectionPhase};

/// A light acknowledgement is sent for this many packets.
const LIGHT_ACK_PACKETS: u64 = 64;

/// How much later than the path's delays the peer's last acknowledgement may arrive.
const LATE_ACK: Duration = Duration::from_millis(100);

/// This many acknowledgements at the start are sent without delay. Each reports the arrival speed,
/// for which UDT4 initially assumes 16 packets/s and smooths with a weight of 1/8. After its first
/// loss, UDT4 continues at that rate.
pub(super) const FIRST_RATES: u32 = 24;

impl SabulConnection {
    pub(super) fn handle_packet(
        &mut self,
        now: Duration,
        arrived_at: Duration,
        packet: &SabulPacket<'_>,
    ) {
        match self.phase {
            SabulConnectionPhase::Over
            | SabulConnectionPhase::ClosedByPeer
            | SabulConnectionPhase::Failed(_) => return,
            SabulConnectionPhase::ShutDown { .. } => {
                // Both ends may be in this phase. So an answer to one of these packets must not
                // trigger another, or duplicates on the path would multiply.
                if packet.content != SabulPacketContent::Shutdown {
                    self.due.full_ack |= matches!(
                        packet.content,
                        SabulPacketContent::Data { .. } | SabulPacketContent::KeepAlive
                    );
                    self.due.shutdowns = self.due.shutdowns.max(1);
                }
                return;
            }
            SabulConnectionPhase::PeerShutDown { .. } => {
                if let SabulPacketContent::Ack { number, next, state } = packet.content
                    && self.handle_ack(now, number, next, state)
                    && self.send.is_empty()
                {
                    self.phase = SabulConnectionPhase::ClosedByPeer;
                }
                return;
            }
            SabulConnectionPhase::Open | SabulConnectionPhase::Flushing => {}
        }
        let is_right = match packet.content {
            SabulPacketContent::Data { number, payload } => {
                self.handle_data(now, arrived_at, number, payload)
            }
            SabulPacketContent::Ack { number, next, state } => {
                self.handle_ack(now, number, next, state)
            }
            SabulPacketContent::Loss(report) => self.handle_losses(now, report),
            SabulPacketContent::AckOfAck { number } => self.handle_ack_of_ack(now, number),
            SabulPacketContent::Handshake(handshake) => {
                self.due.handshake = self.agreed.is_repeated_request(&handshake);
                self.due.handshake
            }
            SabulPacketContent::Shutdown => {
                self.phase = if self.send.is_empty() {
                    SabulConnectionPhase::ClosedByPeer
                } else {
                    SabulConnectionPhase::PeerShutDown {
                        until: now + self.round_trip.response_timeout() + LATE_ACK,
                    }
                };
                true
            }
            SabulPacketContent::KeepAlive => {
                self.due.keep_alive |= now.saturating_sub(self.last_sent_at) >= ANSWER_KEEP_ALIVE;
                true
            }
            SabulPacketContent::Congestion | SabulPacketContent::Other => true,
        };
        if is_right {
            self.last_received_at = now;
            self.timers.heard(now, self.round_trip.response_timeout());
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
            SabulPacketArrival::New(gap) => {
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
                // A short packet shows that the peer has no more data for now.
                let is_short = payload.len() < usize::from(self.agreed.max_payload());
                let has_news = self.rates_sent < FIRST_RATES && self.arrivals.speed() > 0;
                let wait = if is_short || has_news { Duration::ZERO } else { ACK_INTERVAL };
                self.timers.acknowledge(now, wait);
                true
            }
            SabulPacketArrival::Repeated => {
                // The acknowledgement was lost, or the retransmission was unnecessary.
                self.statistics.useless += 1;
                self.timers.acknowledge(now, ACK_INTERVAL);
                true
            }
            SabulPacketArrival::NoRoom => {
                // The peer asks whether there is free space, and ends the connection if it gets no
                // answer.
                self.statistics.useless += 1;
                self.announced_window = 0;
                self.timers.acknowledge(now, ACK_INTERVAL);
                true
            }
            SabulPacketArrival::Refused => {
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
        state: Option<SabulReceiverState>,
    ) -> bool {
        let next = number::from_wire(next, self.send.next_number());
        let Some(acknowledged) = self.send.acknowledge(next) else { return false };
        let packets = acknowledged.packets;
        self.measure_round_trip(now, &acknowledged, state.as_ref());
        let Some(state) = state else {
            self.send.use_window(packets);
            self.congestion_acked(now, next, packets, true);
            return true;
        };
        self.due.ack_of_ack = Some(ack);
        self.send.set_window(u64::from(state.window));
        if let Some((speed, capacity)) = state.rates {
            smooth(&mut self.peer_arrival_speed, speed);
            smooth(&mut self.capacity, capacity);
        }
        self.congestion_acked(now, next, packets, false);
        self.end_flushing(now);
        true
    }

    /// Updates the round-trip time with the peer's smoothed value. At first it is measured here: by
    /// light acknowledgements, and by full ones, which the peer may delay, if they make it shorter.
    fn measure_round_trip(
        &mut self,
        now: Duration,
        acknowledged: &SabulAckedPackets,
        state: Option<&SabulReceiverState>,
    ) {
        if acknowledged.packets == 0 {
            return;
        }
        if self.local_rtt_samples_left == 0 {
            if let Some(state) = state {
                self.round_trip.add(Duration::from_micros(state.round_trip.into()));
            }
            return;
        }
        if state.is_some() {
            self.local_rtt_samples_left -= 1;
        }
        if let Some(sample) = acknowledged.sent_at.map(|sent_at| now.saturating_sub(sent_at)) {
            let is_shorter = self.round_trip.min_rtt().is_none() || sample < self.round_trip.mean();
            if state.is_none() || is_shorter {
                self.round_trip.add(sample);
            }
        }
    }

    fn congestion_acked(&mut self, now: Duration, next: u64, packets: u64, is_light: bool) {
        let window = self.congestion.limits().window;
        self.congestion.on_ack(
            now,
            &SabulAckEvent {
                next,
                packets,
                is_light,
                round_trip: self.round_trip.mean(),
                min_rtt: self.round_trip.min_rtt().unwrap_or(self.round_trip.mean()),
                arrival_speed: self.peer_arrival_speed,
                capacity: self.capacity,
                is_limited: self.send.is_limited(window),
            },
        );
        self.timers.acknowledged(now, self.round_trip.response_timeout(), packets > 0);
    }

    fn handle_losses(&mut self, now: Duration, report: LossReport<'_>) -> bool {
        let near = self.send.next_number();
        let ranges = || {
            report.ranges().map(move |range| {
                number::from_wire(*range.start(), near)..number::from_wire(*range.end(), near) + 1
            })
        };
        // Validated before anything is changed.
        if ranges().any(|range| range.is_empty() || range.end > near) {
            return false;
        }
        let first = ranges().map(|range| range.start).min().unwrap_or(near);
        let end = ranges().map(|range| range.end).max().unwrap_or(near);
        // A report cannot concern packets that were sent less than a round trip ago.
        let sent_before = now.saturating_sub(self.round_trip.mean() * 3 / 4);
        let packets = ranges().filter_map(|range| self.send.report(range, sent_before)).sum();
        if packets > 0 {
            self.congestion.on_loss(
                now,
                &SabulLossEvent {
                    first,
                    end,
                    packets,
                    next_number: near,
                    round_trip: self.round_trip.mean(),
                    min_rtt: self.round_trip.min_rtt().unwrap_or(self.round_trip.mean()),
                    arrival_speed: self.peer_arrival_speed,
                },
            );
        }
        true
    }

    fn handle_ack_of_ack(&mut self, now: Duration, ack: u32) -> bool {
        let Some((next, sample)) = self.acks.answer(ack, now) else { return false };
        self.round_trip.add(sample);
        self.ack_confirmed_to = self.ack_confirmed_to.max(next);
        true
    }

    /// The interval at which a loss is reported again: by then the retransmitted packet should have
    /// arrived.
    pub(super) fn report_interval(&self) -> Duration {
        self.round_trip.response_timeout() + ACK_INTERVAL
    }
}

/// Smooths a measurement: the first replaces the mean, later ones have a weight of 1/8. 0 is
/// ignored.
fn smooth(mean: &mut f64, sample: u32) {
    if sample > 0 {
        let sample = f64::from(sample);
        *mean = if *mean == 0.0 { sample } else { (*mean * 7.0 + sample) / 8.0 };
    }
}
