//! Packets in flight: tracks which are acknowledged, and detects lost ones.

use std::collections::VecDeque;
use std::time::Duration;

use udp::MtuProbe;

use super::round_trip::BurstRttEstimator;
use crate::protocol::frame::BurstAckFrame;
use crate::protocol::rate;

/// The smallest reorder window.
const MIN_REORDER_WINDOW: Duration = Duration::from_millis(1);

/// The reorder window is this fraction of the round trip at first, and at most the whole of it.
const INITIAL_REORDER_SHARE: u32 = 8;

/// What is needed of a packet when it is acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstPacketContent {
    /// Bytes of the stream.
    Stream { offset: u64, len: u16 },
    /// A repair symbol, which is not retransmitted.
    Repair,
    /// Frames that other code repeats, if at all.
    Control,
    /// A report of a train, repeated until one is acknowledged.
    TrainReport,
    /// A path MTU probe.
    MtuProbe(MtuProbe),
    /// Nothing that elicits an acknowledgement.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentPacketState {
    Outstanding,
    Lost,
    Done,
}

#[derive(Debug)]
struct BurstSentPacket {
    at: Duration,
    bytes: u32,
    content: BurstPacketContent,
    /// `None` if the packet does not affect the congestion model.
    model: Option<rate::PacketSendState>,
    state: SentPacketState,
}

/// The packets that an acknowledgement or a loss detection concerns.
#[derive(Debug)]
pub(in crate::protocol) struct AckLossSummary {
    pub(in crate::protocol) packets: u64,
    pub(in crate::protocol) bytes: u64,
    /// The model's state of the latest sent packet among those that affect the model.
    pub(in crate::protocol) newest: Option<rate::PacketSendState>,
    /// When the packet with the acknowledgement's largest number was sent, if it is newly
    /// acknowledged.
    pub(in crate::protocol) largest_sent_at: Option<Duration>,
}

#[derive(Debug)]
pub(in crate::protocol) struct BurstPacketsInFlight {
    /// By packet number, starting at `first`.
    packets: VecDeque<BurstSentPacket>,
    first: u64,
    /// Packets before this number are not outstanding.
    loss_checked_to: u64,
    /// The number of packets that are outstanding.
    outstanding: usize,
    largest_acked: Option<u64>,
    /// When the latest sent of the acknowledged packets was sent.
    newest_acked_at: Duration,
    reorder_share: u32,
}

impl BurstPacketsInFlight {
    pub(in crate::protocol) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            first: 0,
            loss_checked_to: 0,
            outstanding: 0,
            largest_acked: None,
            newest_acked_at: Duration::ZERO,
            reorder_share: INITIAL_REORDER_SHARE,
        }
    }

    /// The number of the next packet.
    pub(in crate::protocol) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    pub(in crate::protocol) fn has_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Records the next packet.
    pub(in crate::protocol) fn push(
        &mut self,
        now: Duration,
        bytes: usize,
        content: BurstPacketContent,
        model: Option<rate::PacketSendState>,
    ) {
        let is_eliciting = content != BurstPacketContent::Nothing;
        self.outstanding += usize::from(is_eliciting);
        let state = if is_eliciting { SentPacketState::Outstanding } else { SentPacketState::Done };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.packets.push_back(BurstSentPacket { at: now, bytes, content, model, state });
    }

    /// Handles a change of path: packets sent so far no longer affect the congestion model.
    pub(in crate::protocol) fn detach_from_model(&mut self) {
        for packet in &mut self.packets {
            packet.model = None;
        }
    }

    /// Handles an acknowledgement. Calls `arrived` with the content of newly acknowledged packets.
    /// `None` if it acknowledges packets that were not sent.
    pub(in crate::protocol) fn acknowledge(
        &mut self,
        ack: &BurstAckFrame<'_>,
        mut arrived: impl FnMut(BurstPacketContent),
    ) -> Option<AckLossSummary> {
        let next = self.next_number();
        if ack.largest >= next || ack.ranges().any(|(_, last)| last >= next) {
            return None;
        }
        let mut summary =
            AckLossSummary { packets: 0, bytes: 0, newest: None, largest_sent_at: None };
        let mut newest = 0;
        for (first, last) in ack.ranges() {
            if last < self.first {
                break;
            }
            for number in (first.max(self.first)..=last).rev() {
                let packet = &mut self.packets[position(number - self.first)];
                match packet.state {
                    SentPacketState::Done => continue,
                    SentPacketState::Outstanding => {
                        self.outstanding -= 1;
                        if let Some(model) = packet.model {
                            summary.packets += 1;
                            summary.bytes += u64::from(packet.bytes);
                            if summary.newest.is_none() || number > newest {
                                (summary.newest, newest) = (Some(model), number);
                            }
                        }
                    }
                    // The packet was reordered by more than the window.
                    SentPacketState::Lost => self.reorder_share = (self.reorder_share / 2).max(1),
                }
                packet.state = SentPacketState::Done;
                if number == ack.largest {
                    summary.largest_sent_at = Some(packet.at);
                }
                self.newest_acked_at = self.newest_acked_at.max(packet.at);
                arrived(packet.content);
            }
        }
        let largest = ack.ranges().next().map(|(_, last)| last);
        self.largest_acked = self.largest_acked.max(largest);
        Some(summary)
    }

    /// How much later than others a packet may arrive.
    fn reorder_window(&self, round_trip: &BurstRttEstimator) -> Duration {
        (round_trip.expected() / self.reorder_share).max(MIN_REORDER_WINDOW)
    }

    /// Detects lost packets. Calls `lost` with each.
    pub(in crate::protocol) fn detect_losses(
        &mut self,
        now: Duration,
        round_trip: &BurstRttEstimator,
        mut lost: impl FnMut(BurstPacketContent),
    ) -> AckLossSummary {
        let mut summary =
            AckLossSummary { packets: 0, bytes: 0, newest: None, largest_sent_at: None };
        let window = self.reorder_window(round_trip);
        let late = round_trip.longest() + window;
        let newest_acked_at = self.newest_acked_at;
        while let Some(packet) = self.next_loss_candidate() {
            if packet.state == SentPacketState::Outstanding {
                let is_late = now >= packet.at + late;
                if !is_late && packet.at + window > newest_acked_at {
                    break;
                }
                packet.state = SentPacketState::Lost;
                let (content, bytes, model) = (packet.content, packet.bytes, packet.model);
                self.outstanding -= 1;
                if let Some(model) = model {
                    summary.packets += 1;
                    summary.bytes += u64::from(bytes);
                    summary.newest = Some(model);
                }
                lost(content);
            }
            self.loss_checked_to += 1;
        }
        self.forget(now, round_trip);
        summary
    }

    /// The first packet that may be outstanding, if a later one was acknowledged.
    fn next_loss_candidate(&mut self) -> Option<&mut BurstSentPacket> {
        self.loss_checked_to = self.loss_checked_to.max(self.first);
        if self.largest_acked.is_none_or(|largest| self.loss_checked_to >= largest) {
            return None;
        }
        self.packets.get_mut(position(self.loss_checked_to - self.first))
    }

    /// When the next packet is lost, unless an acknowledgement comes.
    pub(in crate::protocol) fn loss_at(&self, round_trip: &BurstRttEstimator) -> Option<Duration> {
        let next = self.loss_checked_to.max(self.first);
        if self.largest_acked.is_none_or(|largest| next >= largest) {
            return None;
        }
        let packet = self.packets.get(position(next - self.first))?;
        Some(packet.at + round_trip.longest() + self.reorder_window(round_trip))
    }

    /// Removes packets that are done, and lost ones that are too old to arrive.
    fn forget(&mut self, now: Duration, round_trip: &BurstRttEstimator) {
        let keep = round_trip.longest() * 2;
        while let Some(packet) = self.packets.front() {
            match packet.state {
                SentPacketState::Done => {}
                SentPacketState::Lost if packet.at + keep < now => {}
                _ => break,
            }
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// The stream bytes of the outstanding packet that was sent first.
    pub(in crate::protocol) fn oldest_stream(&self) -> Option<(u64, u16)> {
        self.packets.iter().find_map(|packet| match (packet.state, packet.content) {
            (SentPacketState::Outstanding, BurstPacketContent::Stream { offset, len }) => {
                Some((offset, len))
            }
            _ => None,
        })
    }
}

fn position(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}
