//! Chooses and writes the next packet.

#![expect(clippy::cast_precision_loss, reason = "years of ns fit into 53 bits within 1 ns")]

use std::time::Duration;

use super::super::arrivals::begins_pair;
use super::super::loss_report::{self, LossReport};
use super::super::number;
use super::super::packet::{HEADER_LEN, SabulPacket, SabulPacketContent, SabulReceiverState};
use super::receiving::FIRST_RATES;
use super::timers::pause;
use super::{ACK_INTERVAL, SabulConnection, SabulConnectionPhase};

/// How far sending may be behind its schedule, because of a busy host, and still catch up.
const MAX_CATCH_UP: Duration = Duration::from_millis(1);

impl SabulConnection {
    /// Writes the next datagram to be sent now, into an empty buffer. Returns whether there is one.
    pub fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> bool {
        debug_assert!(datagram.is_empty());
        let is_speaking = self.poll_control(now, datagram) || self.poll_data(now, datagram);
        if is_speaking {
            self.last_sent_at = now;
        }
        is_speaking
    }

    fn poll_control(&mut self, now: Duration, datagram: &mut Vec<u8>) -> bool {
        if self.is_over() {
            return false;
        }
        if std::mem::take(&mut self.due.handshake) {
            self.agreed.write_response(datagram);
            return true;
        }
        if let Some(number) = self.due.ack_of_ack.take() {
            return self.write_packet(now, SabulPacketContent::AckOfAck { number }, datagram);
        }
        if !self.due.losses.is_empty() {
            let max_len = usize::from(self.agreed.max_payload());
            let body = loss_report::write_ranges(&mut self.due.losses, max_len);
            if let Some(report) = LossReport::parse(&body) {
                return self.write_packet(now, SabulPacketContent::Loss(report), datagram);
            }
        }
        if std::mem::take(&mut self.due.full_ack) && self.write_ack(now, datagram) {
            return true;
        }
        if std::mem::take(&mut self.due.light_ack) {
            let next = number::to_wire(self.receive.next());
            return self.write_packet(
                now,
                SabulPacketContent::Ack { number: 0, next, state: None },
                datagram,
            );
        }
        if std::mem::take(&mut self.due.keep_alive) {
            return self.write_packet(now, SabulPacketContent::KeepAlive, datagram);
        }
        if self.due.shutdowns > 0 {
            self.due.shutdowns -= 1;
            // Any of them may be lost.
            self.due.full_ack = self.due.shutdowns > 0;
            return self.write_packet(now, SabulPacketContent::Shutdown, datagram);
        }
        false
    }

    /// Writes a full acknowledgement, unless the peer has already confirmed it.
    fn write_ack(&mut self, now: Duration, datagram: &mut Vec<u8>) -> bool {
        let (next, window) = (self.receive.next(), self.receive.window());
        if next == self.ack_confirmed_to && window <= self.announced_window {
            return false;
        }
        let speed = self.arrivals.speed();
        let has_rates = self.rates_sent < FIRST_RATES
            || self.rates_sent_at.is_none_or(|at| now.saturating_sub(at) >= ACK_INTERVAL);
        if has_rates {
            self.rates_sent_at = Some(now);
            self.rates_sent = self.rates_sent.saturating_add((speed > 0).into());
        }
        let state = SabulReceiverState {
            round_trip: micros(self.round_trip.mean()),
            round_trip_variation: micros(self.round_trip.variation()),
            window: u32::try_from(window).unwrap_or(u32::MAX),
            rates: has_rates.then(|| (speed, self.arrivals.capacity())),
        };
        let number = self.acks.add(next, now);
        let is_repeated = (next, window) == (self.acknowledged, self.announced_window);
        self.ack_repetitions = if is_repeated { self.ack_repetitions + 1 } else { 0 };
        (self.acknowledged, self.announced_window) = (next, window);
        self.packets_since_ack = 0;
        self.due.light_ack = false;
        // Repeated until the peer answers one.
        self.timers
            .acknowledge(now, pause(self.round_trip.response_timeout(), self.ack_repetitions));
        let next = number::to_wire(next);
        self.write_packet(
            now,
            SabulPacketContent::Ack { number, next, state: Some(state) },
            datagram,
        )
    }

    fn poll_data(&mut self, now: Duration, datagram: &mut Vec<u8>) -> bool {
        if !matches!(self.phase, SabulConnectionPhase::Open | SabulConnectionPhase::Flushing) {
            return false;
        }
        let now_ns = now.saturating_sub(self.started_at).as_nanos() as f64;
        if self.next_send_ns > now_ns {
            return false;
        }
        let limits = self.congestion.limits();
        let Some(packet) = self.send.next_packet(now, limits.window) else { return false };
        let number = number::to_wire(packet.number);
        SabulPacket {
            destination: self.agreed.peer_socket,
            timestamp: self.timestamp(now),
            content: SabulPacketContent::Data { number, payload: &[] },
        }
        .write(datagram);
        self.send.copy_payload(packet.number, datagram);
        debug_assert_eq!(datagram.len(), usize::from(HEADER_LEN) + packet.len);
        if packet.is_repeated {
            self.statistics.repeated += 1;
        } else {
            self.statistics.sent += 1;
        }
        // The second packet of a pair follows at once, and then the interval is doubled.
        let is_new = !packet.is_repeated;
        let intervals =
            match (is_new && begins_pair(number), is_new && begins_pair(number.wrapping_sub(1))) {
                (true, _) => 0.0,
                (_, true) => 2.0,
                _ => 1.0,
            };
        let earliest = now_ns - MAX_CATCH_UP.as_nanos() as f64;
        self.next_send_ns = self.next_send_ns.max(earliest) + intervals * limits.interval_ns;
        self.congestion.on_sent(now, self.send.next_number());
        self.timers.sent(now, self.round_trip.response_timeout());
        true
    }

    fn write_packet(
        &self,
        now: Duration,
        content: SabulPacketContent<'_>,
        datagram: &mut Vec<u8>,
    ) -> bool {
        let (destination, timestamp) = (self.agreed.peer_socket, self.timestamp(now));
        SabulPacket { destination, timestamp, content }.write(datagram);
        true
    }

    #[expect(clippy::cast_possible_truncation, reason = "it wraps around")]
    fn timestamp(&self, now: Duration) -> u32 {
        now.saturating_sub(self.started_at).as_micros() as u32
    }
}

/// In µs, as on the wire.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
