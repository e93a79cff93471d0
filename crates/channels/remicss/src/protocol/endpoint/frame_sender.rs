//! The frames of the device become symbols: which packets share one, which are dropped, and how
//! long datagrams are gathered.

use std::time::Duration;

use tun::ip::{clamp_mss, flow, packet_len};
use tun::{ChecksumState, FrameSegments, MAX_FRAME_LEN};
use udp::DatagramBatch;
use zeroize::Zeroizing;

use crate::protocol::endpoint::outbound::OutboundEndpoint;
use crate::protocol::send::codel_queue::{self, CoDelQueue, DequeuedFrame};
use crate::protocol::send::sender::SymbolSendError;
use crate::protocol::wire::datagram::SymbolKind;

/// How much longer a symbol waits after its channels are ready, so that datagrams are sent in runs.
/// The sender catches up afterwards.
const GATHER_DELAY: Duration = Duration::from_micros(300);

/// A batch with this number of bytes is sent at once: two runs.
const FLUSH_LEN: usize = 128 << 10;

/// Sends the device's frames over an [`OutboundEndpoint`].
pub(crate) struct FrameSender {
    outbound: OutboundEndpoint,
    /// Frames that were read while channels were busy.
    queue: CoDelQueue,
    /// The frame that is being sent. `None` between frames.
    current: Option<CurrentFrame>,
    /// Its bytes, unless it was in the queue.
    direct: Zeroizing<Vec<u8>>,
    /// The kind and the flow of the current symbol, if there is one.
    symbol: Option<(SymbolKind, u16)>,
    /// The MTU to which the MSS of TCP connections is clamped.
    clamped_mtu: usize,
    drops: FrameDropCounts,
}

struct CurrentFrame {
    /// Its bytes, if it was in the queue.
    queued: Option<Zeroizing<Vec<u8>>>,
    length: usize,
    /// The index of its next packet.
    next: usize,
    /// The rest is dropped after this time.
    deadline: Duration,
}

/// Counts of packets that were not sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameDropCounts {
    /// Without an association.
    pub(crate) unconnected: u64,
    /// Packets or superpackets that the queue dropped.
    pub(crate) queued: u64,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameSendStep {
    /// A symbol was sent or dropped: poll again.
    Poll,
    /// Send the batches, then poll again.
    Flush,
    /// Send the batches, then poll again at this time. Meanwhile frames may be read while
    /// [there is room](FrameSender::has_room).
    Wait(Duration),
    /// Everything was sent: read a frame.
    Read,
}

impl FrameSender {
    /// Without an association. The MSS of TCP connections is clamped to this MTU.
    pub(crate) fn new(clamped_mtu: usize) -> Self {
        Self {
            outbound: OutboundEndpoint::default(),
            queue: CoDelQueue::default(),
            current: None,
            direct: frame_space(),
            symbol: None,
            clamped_mtu,
            drops: FrameDropCounts::default(),
        }
    }

    /// The sending half, for updates and control messages.
    pub(crate) fn outbound(&mut self) -> &mut OutboundEndpoint {
        &mut self.outbound
    }

    /// Sets the MTU to which the MSS of TCP connections is clamped.
    pub(crate) fn set_clamped_mtu(&mut self, mtu: usize) {
        self.clamped_mtu = mtu;
    }

    /// What was dropped.
    pub(crate) fn drops(&self) -> FrameDropCounts {
        self.drops
    }

    /// Whether another frame may be read while channels are busy.
    pub(crate) fn has_room(&self) -> bool {
        !self.queue.is_full()
    }

    /// A frame of the device was read: the first `length` bytes of `space`, which is then the space
    /// for another frame. It is dropped if there is no room.
    pub(crate) fn handle_frame(
        &mut self,
        space: &mut Zeroizing<Vec<u8>>,
        length: usize,
        now: Duration,
    ) {
        if self.current.is_none() && self.symbol.is_none() && self.queue.is_empty() {
            std::mem::swap(&mut self.direct, space);
            let deadline = now + codel_queue::MAX_WAIT;
            self.current = Some(CurrentFrame { queued: None, length, next: 0, deadline });
        } else if self.has_room() {
            self.queue.push(Zeroizing::new(space[..length].to_vec()), now);
        } else {
            self.drops.queued += 1;
        }
    }

    /// Sends the next symbol, if its channels are ready. The last symbol of a frame includes
    /// packets from the queue.
    pub(crate) fn poll(&mut self, now: Duration, batches: &mut [DatagramBatch]) -> FrameSendStep {
        if self.symbol.is_none() && !self.begin_symbol(now) {
            return FrameSendStep::Read;
        }
        let Some((kind, flow)) = self.symbol else { return FrameSendStep::Poll };
        match self.outbound.finish(kind, flow, now, batches) {
            Err(SymbolSendError::Wait(until)) if until > now => {
                return FrameSendStep::Wait(until + GATHER_DELAY);
            }
            Err(SymbolSendError::Wait(_) | SymbolSendError::Full) => return FrameSendStep::Flush,
            // It was sent, or dropped and counted.
            Ok(_) | Err(_) => self.symbol = None,
        }
        let is_long = |batch: &DatagramBatch| batch.len() >= FLUSH_LEN;
        if self.current.is_none() && batches.iter().any(is_long) {
            return FrameSendStep::Flush;
        }
        FrameSendStep::Poll
    }

    /// Begins the symbol of the next packet, unless it is dropped. Returns false if there is no
    /// packet.
    fn begin_symbol(&mut self, now: Duration) -> bool {
        if self.current.is_none() {
            let Some(next) = self.queue.pop(now) else { return false };
            let DequeuedFrame { frame, drop_first_packet, dropped_frames } = next;
            let first = usize::from(drop_first_packet);
            self.drops.queued += dropped_frames + first as u64;
            let (length, deadline) = (frame.len(), now + codel_queue::MAX_WAIT);
            self.current =
                Some(CurrentFrame { queued: Some(frame), length, next: first, deadline });
        }
        let Some(current) = &mut self.current else { return false };
        let index = current.next;
        current.next += 1;
        let bytes = current.queued.as_deref().unwrap_or(&self.direct);
        let segments = FrameSegments::parse(&bytes[..current.length]);
        let Some(segments) = segments.filter(|segments| index < segments.count()) else {
            self.current = None;
            return true;
        };
        let count = segments.count();
        // A superpacket may have thousands of segments.
        if now > current.deadline {
            self.drops.queued += 1;
            self.current = None;
            return true;
        }
        let Some(symbol) = self.outbound.begin() else {
            self.drops.unconnected += (count - index) as u64;
            self.current = None;
            return true;
        };
        let packet = append(&segments, index, self.clamped_mtu, symbol);
        let (flow, checksum) = (flow(packet), segments.checksum());
        self.symbol = Some((
            match checksum {
                ChecksumState::Complete => SymbolKind::Packet,
                ChecksumState::Partial => SymbolKind::PartialPacket,
            },
            flow,
        ));
        if index + 1 == count {
            let is_exact = packet_len(packet) == Some(packet.len());
            self.current = None;
            if is_exact {
                self.add_queued_packets(checksum, flow, now);
            }
        }
        true
    }

    /// Adds queued packets of the same flow to the current symbol. So small packets share headers
    /// when channels are the bottleneck. Otherwise the queue is empty, and no packet waits for
    /// others.
    fn add_queued_packets(&mut self, checksum: ChecksumState, to: u16, now: Duration) {
        if self.queue.is_empty() {
            return;
        }
        while let Some((symbol, max_len)) = self.outbound.symbol() {
            let fits = |frame: &[u8]| {
                FrameSegments::parse(frame).is_some_and(|segments| {
                    let packet = segments.packet();
                    segments.count() == 1
                        && packet.len() <= max_len
                        && packet_len(packet) == Some(packet.len())
                        && segments.checksum() == checksum
                        && flow(packet) == to
                })
            };
            let Some(next) = self.queue.pop_if(now, fits) else { return };
            if next.drop_first_packet {
                self.drops.queued += 1;
            } else if let Some(segments) = FrameSegments::parse(&next.frame) {
                append(&segments, 0, self.clamped_mtu, symbol);
            }
        }
    }
}

/// Space for a frame of the device.
pub(crate) fn frame_space() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(vec![0; MAX_FRAME_LEN])
}

/// Appends a segment to a symbol, with its MSS clamped to an MTU, and returns it.
fn append<'a>(
    segments: &FrameSegments<'_>,
    index: usize,
    mtu: usize,
    symbol: &'a mut Vec<u8>,
) -> &'a [u8] {
    let start = symbol.len();
    segments.append(index, symbol);
    clamp_mss(&mut symbol[start..], mtu, segments.checksum());
    &symbol[start..]
}

#[cfg(test)]
mod tests {
    use model::{ChannelSubset, ShareSchedule, ShareSelection};
    use random::RandomGenerator;
    use udp::TokenBucketPacer;

    use super::*;
    use crate::protocol::endpoint::outbound::SenderUpdate;
    use crate::protocol::send::schedule::PlannedScheduler;
    use crate::protocol::send::sender::SymbolSender;
    use crate::protocol::wire::keys::DirectionKeys;
    use crate::protocol::wire::tokens::TokenKey;

    const PACKET_LEN: u8 = 100;

    /// One channel of 1 Mbit/s.
    fn connected() -> FrameSender {
        let keys = DirectionKeys { channels: 1, tokens: TokenKey::new(&[7; 16]), points: None };
        let threshold = ShareSelection::new(1, ChannelSubset::first(1)).unwrap();
        let schedule = PlannedScheduler::new(&ShareSchedule::constant(threshold), &[]);
        let pacers = vec![TokenBucketPacer::new(Some(1_000_000), 1500, 28)];
        let generator = RandomGenerator::seeded().unwrap();
        let mut sender =
            SymbolSender::new(&keys, 1, pacers, Box::new(schedule), generator).unwrap();
        sender.set_max_datagram_len(1472);
        let mut frames = FrameSender::new(1400);
        frames.outbound().handle_update(SenderUpdate::Associate(Box::new(sender)));
        frames
    }

    /// A UDP packet from this port.
    fn read(frames: &mut FrameSender, port: u8, now: Duration) {
        let packet_start = MAX_FRAME_LEN - usize::from(u16::MAX);
        let length = packet_start + usize::from(PACKET_LEN);
        let mut frame = frame_space();
        let packet = &mut frame[packet_start..];
        (packet[0], packet[3], packet[9], packet[21]) = (0x45, PACKET_LEN, 17, port);
        frames.handle_frame(&mut frame, length, now);
    }

    fn symbols(frames: &mut FrameSender) -> u64 {
        frames.outbound().counts().unwrap().symbols
    }

    /// Sends everything, and returns the time.
    fn drain(frames: &mut FrameSender, mut now: Duration) -> Duration {
        let mut batches = vec![DatagramBatch::default()];
        loop {
            match frames.poll(now, &mut batches) {
                FrameSendStep::Poll => {}
                FrameSendStep::Flush => batches[0].clear(),
                FrameSendStep::Wait(until) => now = until,
                FrameSendStep::Read => return now,
            }
        }
    }

    /// Reads packets until the channel is busy, and returns the time at which it is ready.
    fn fill(frames: &mut FrameSender) -> Duration {
        let mut batches = vec![DatagramBatch::default()];
        loop {
            match frames.poll(Duration::ZERO, &mut batches) {
                FrameSendStep::Read => read(frames, 1, Duration::ZERO),
                FrameSendStep::Wait(until) => return until,
                _ => {}
            }
        }
    }

    #[test]
    fn packets_without_an_association_are_dropped_and_counted() {
        let mut frames = FrameSender::new(1400);
        for _ in 0..3 {
            read(&mut frames, 1, Duration::ZERO);
            drain(&mut frames, Duration::ZERO);
        }
        assert_eq!((frames.drops().unconnected, frames.drops().queued), (3, 0));
    }

    #[test]
    fn packets_of_a_flow_share_a_symbol_while_the_channel_is_busy() {
        let mut frames = connected();
        let ready = fill(&mut frames);
        let before = symbols(&mut frames);
        (0..5).for_each(|_| read(&mut frames, 1, Duration::ZERO));
        drain(&mut frames, ready);
        assert_eq!(symbols(&mut frames) - before, 2, "the one that has waited, and all others");
        // On an idle channel each packet has its own.
        let idle = ready + Duration::from_secs(10);
        for _ in 0..3 {
            read(&mut frames, 1, idle);
            drain(&mut frames, idle);
        }
        assert_eq!(symbols(&mut frames) - before, 5);
    }

    #[test]
    fn packets_of_different_flows_do_not_share_a_symbol() {
        let mut frames = connected();
        let ready = fill(&mut frames);
        let before = symbols(&mut frames);
        (0..4).for_each(|place| read(&mut frames, 1 + place % 2, Duration::ZERO));
        drain(&mut frames, ready);
        assert_eq!(symbols(&mut frames) - before, 5);
        assert_eq!(frames.drops().queued, 0);
    }
}
