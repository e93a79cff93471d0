//! The packets that were sent: which are acknowledged, and which are lost.

use std::collections::VecDeque;
use std::time::Duration;

use udp::Probe;

use super::round_trip::RoundTrip;
use crate::protocol::frame::Ack;
use crate::protocol::rate;

/// The reorder window is at least this.
const MIN_REORDER_WINDOW: Duration = Duration::from_millis(1);

/// It is this part of the round trip at first, and the whole of it at most.
const INITIAL_REORDER_SHARE: u32 = 8;

/// What a packet has that matters when it is acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum Content {
    /// Bytes of the stream.
    Stream { offset: u64, len: u16 },
    /// What is not sent again.
    Repair,
    /// What is sent again in another way, if at all.
    Control,
    /// A report of a train, until one arrives.
    TrainReport,
    /// A probe of the path's MTU.
    MtuProbe(Probe),
    /// Nothing that elicits an acknowledgement.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Outstanding,
    Lost,
    Done,
}

#[derive(Debug)]
struct Sent {
    at: Duration,
    bytes: u32,
    content: Content,
    /// `None` if the rate does not depend on what becomes of it.
    model: Option<rate::Sent>,
    state: State,
}

/// Packets of which something has become known.
#[derive(Debug)]
pub(in crate::protocol) struct Summary {
    pub(in crate::protocol) packets: u64,
    pub(in crate::protocol) bytes: u64,
    /// Of the newest of those that the rate depends on.
    pub(in crate::protocol) newest: Option<rate::Sent>,
    /// When the acknowledgement's largest packet was sent, if that is new.
    pub(in crate::protocol) largest_sent_at: Option<Duration>,
}

#[derive(Debug)]
pub(in crate::protocol) struct Flight {
    /// By number, from `first` on.
    packets: VecDeque<Sent>,
    first: u64,
    /// Packets before this number are not outstanding.
    judged_to: u64,
    /// The number of packets that are outstanding.
    outstanding: usize,
    largest_acked: Option<u64>,
    /// When the latest of the acknowledged packets was sent.
    newest_acked_at: Duration,
    reorder_share: u32,
}

impl Flight {
    pub(in crate::protocol) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            first: 0,
            judged_to: 0,
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

    /// The next packet is sent.
    pub(in crate::protocol) fn push(
        &mut self,
        now: Duration,
        bytes: usize,
        content: Content,
        model: Option<rate::Sent>,
    ) {
        let is_eliciting = content != Content::Nothing;
        self.outstanding += usize::from(is_eliciting);
        let state = if is_eliciting { State::Outstanding } else { State::Done };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.packets.push_back(Sent { at: now, bytes, content, model, state });
    }

    /// The path is another one: what becomes of the packets that were sent says nothing of it.
    pub(in crate::protocol) fn leave_path(&mut self) {
        for packet in &mut self.packets {
            packet.model = None;
        }
    }

    /// Handles an acknowledgement. Calls `arrived` with what is new. `None` if it is of packets
    /// that were not sent.
    pub(in crate::protocol) fn acknowledge(
        &mut self,
        ack: &Ack<'_>,
        mut arrived: impl FnMut(Content),
    ) -> Option<Summary> {
        let next = self.next_number();
        if ack.largest >= next || ack.ranges().any(|(_, last)| last >= next) {
            return None;
        }
        let mut summary = Summary { packets: 0, bytes: 0, newest: None, largest_sent_at: None };
        let mut newest = 0;
        for (first, last) in ack.ranges() {
            if last < self.first {
                break;
            }
            for number in (first.max(self.first)..=last).rev() {
                let packet = &mut self.packets[position(number - self.first)];
                match packet.state {
                    State::Done => continue,
                    State::Outstanding => {
                        self.outstanding -= 1;
                        if let Some(model) = packet.model {
                            summary.packets += 1;
                            summary.bytes += u64::from(packet.bytes);
                            if summary.newest.is_none() || number > newest {
                                (summary.newest, newest) = (Some(model), number);
                            }
                        }
                    }
                    // Reordered by more than the window.
                    State::Lost => self.reorder_share = (self.reorder_share / 2).max(1),
                }
                packet.state = State::Done;
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
    fn reorder_window(&self, round_trip: &RoundTrip) -> Duration {
        (round_trip.expected() / self.reorder_share).max(MIN_REORDER_WINDOW)
    }

    /// Finds packets that are lost. Calls `lost` with each.
    pub(in crate::protocol) fn judge(
        &mut self,
        now: Duration,
        round_trip: &RoundTrip,
        mut lost: impl FnMut(Content),
    ) -> Summary {
        let mut summary = Summary { packets: 0, bytes: 0, newest: None, largest_sent_at: None };
        let window = self.reorder_window(round_trip);
        let late = round_trip.longest() + window;
        let newest_acked_at = self.newest_acked_at;
        while let Some(packet) = self.unjudged() {
            if packet.state == State::Outstanding {
                let is_late = now >= packet.at + late;
                if !is_late && packet.at + window > newest_acked_at {
                    break;
                }
                packet.state = State::Lost;
                let (content, bytes, model) = (packet.content, packet.bytes, packet.model);
                self.outstanding -= 1;
                if let Some(model) = model {
                    summary.packets += 1;
                    summary.bytes += u64::from(bytes);
                    summary.newest = Some(model);
                }
                lost(content);
            }
            self.judged_to += 1;
        }
        self.forget(now, round_trip);
        summary
    }

    /// The first packet that may be outstanding, if a later one was acknowledged.
    fn unjudged(&mut self) -> Option<&mut Sent> {
        self.judged_to = self.judged_to.max(self.first);
        if self.largest_acked.is_none_or(|largest| self.judged_to >= largest) {
            return None;
        }
        self.packets.get_mut(position(self.judged_to - self.first))
    }

    /// When the next packet is lost, unless an acknowledgement comes.
    pub(in crate::protocol) fn loss_at(&self, round_trip: &RoundTrip) -> Option<Duration> {
        let next = self.judged_to.max(self.first);
        if self.largest_acked.is_none_or(|largest| next >= largest) {
            return None;
        }
        let packet = self.packets.get(position(next - self.first))?;
        Some(packet.at + round_trip.longest() + self.reorder_window(round_trip))
    }

    /// Forgets packets that are done, and lost ones that will not arrive any more.
    fn forget(&mut self, now: Duration, round_trip: &RoundTrip) {
        let keep = round_trip.longest() * 2;
        while let Some(packet) = self.packets.front() {
            match packet.state {
                State::Done => {}
                State::Lost if packet.at + keep < now => {}
                _ => break,
            }
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// The bytes of the stream that were sent first of those that are outstanding.
    pub(in crate::protocol) fn oldest_stream(&self) -> Option<(u64, u16)> {
        self.packets.iter().find_map(|packet| match (packet.state, packet.content) {
            (State::Outstanding, Content::Stream { offset, len }) => Some((offset, len)),
            _ => None,
        })
    }
}

fn position(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}
