//! The sending half of an end: symbols with the scheduler's thresholds, and control messages when
//! they are due.

use std::time::Duration;

use model::{ChannelSubset, ShareSelection};
use random::RandomGenerator;
use udp::{DatagramBatch, TokenBucketPacer};
use zeroize::Zeroizing;

use crate::protocol::control::outgoing::SentCounts;
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::send::schedule::SymbolScheduler;
use crate::protocol::send::sender::{
    SentSymbol, SymbolSendError, SymbolSender, SymbolSenderCounts, SymbolSenderError,
};
use crate::protocol::send::spare::SpareChannels;
use crate::protocol::wire::datagram::SymbolKind;
use crate::protocol::wire::keys::TunnelKeys;
use crate::protocol::wire::part::{PART_HEADER_LEN, PacketsPart};

/// An update of the sending half, from the receiving half or the planner.
pub enum SenderUpdate {
    /// Send with this sender from now on.
    Associate(Box<SymbolSender>),
    /// Use this scheduler from now on, over the channels that are up.
    Schedule {
        /// The scheduler.
        scheduler: Box<dyn SymbolScheduler>,
        /// The minimum threshold of symbols of packets.
        floor: u8,
        /// The channels that are up.
        up: ChannelSubset,
        /// Those of them that no symbol waits for.
        spare: SpareChannels,
    },
    /// Fewer channels are up than the privacy floor: send nothing.
    Hold,
    /// The peer is gone: send nothing until there is another association.
    Dissociate,
}

/// The sending half of an end.
#[derive(Default)]
pub struct OutboundEndpoint {
    sender: Option<SymbolSender>,
    /// The maximum length of a datagram, once it is known.
    max_datagram_len: Option<usize>,
    /// The current packets, if they are sent in two parts.
    split: Option<SplitPackets>,
    /// The identifier of the next packets that are sent in two parts.
    next_split_id: u32,
}

/// Packets that do not fit one datagram, and are sent in two parts.
struct SplitPackets {
    id: u32,
    packets: Zeroizing<Vec<u8>>,
    has_partial_checksum: bool,
    /// Whether the current symbol of the sender is the second part.
    is_second: bool,
}

impl SplitPackets {
    /// Begins the symbol of a part. Parts have the same length, so that datagrams are sent in runs.
    fn begin(&self, sender: &mut SymbolSender) {
        let (first, second) = self.packets.split_at(self.packets.len().div_ceil(2));
        let Self { id, has_partial_checksum, is_second, .. } = *self;
        let bytes = if is_second { second } else { first };
        PacketsPart { id, is_second, has_partial_checksum, bytes }.append(sender.begin());
    }
}

/// The configuration of a sender, besides its keys.
pub struct SymbolSenderConfig {
    /// The known rates of the channels in bit/s of IP packets.
    pub rates_bps: Vec<Option<u64>>,
    /// The MTU of each channel, in bytes.
    pub mtus: Vec<usize>,
    /// The length of the headers of IP and UDP on each channel.
    pub headers: Vec<usize>,
}

/// A channel is given its known rate minus this fraction of it, 1/100. Otherwise a queue that a
/// fault has left in the network would persist for minutes, and so would its delay, and a plan
/// could exclude the channel as slow.
const QUEUE_DRAIN: u64 = 100;

impl SymbolSenderConfig {
    /// A sender under the keys of an association.
    ///
    /// # Errors
    /// As [`SymbolSender::new`].
    pub fn sender(
        &self,
        keys: &TunnelKeys,
        scheduler: Box<dyn SymbolScheduler>,
        generator: RandomGenerator,
    ) -> Result<SymbolSender, SymbolSenderError> {
        let channels = self.rates_bps.iter().zip(&self.mtus).zip(&self.headers);
        let paced = |rate: &u64| rate - rate / QUEUE_DRAIN;
        let pacers = channels.map(|((rate, mtu), headers)| {
            TokenBucketPacer::new(rate.as_ref().map(paced), *mtu, *headers)
        });
        let (outgoing, floor) = (&keys.outgoing, keys.floor);
        let sender = SymbolSender::new(outgoing, floor, pacers.collect(), scheduler, generator)?;
        let mut sender = sender.with_members(keys.members);
        let longest = self.mtus.iter().zip(&self.headers).map(|(mtu, headers)| mtu - headers);
        sender.set_max_datagram_len(longest.min().unwrap_or(0));
        Ok(sender)
    }
}

impl OutboundEndpoint {
    /// Applies an update.
    pub fn handle_update(&mut self, update: SenderUpdate) {
        match (update, &mut self.sender) {
            (SenderUpdate::Associate(mut sender), before) => {
                if let Some(max_datagram_len) = self.max_datagram_len {
                    sender.set_max_datagram_len(max_datagram_len);
                }
                // No packet is lost between two associations. Both parts of packets need the same
                // keys.
                if let Some(split) = &mut self.split {
                    split.is_second = false;
                    split.begin(&mut sender);
                } else if let Some(before) = before {
                    sender.take_over_symbol(before);
                }
                self.sender = Some(*sender);
            }
            (SenderUpdate::Schedule { scheduler, floor, up, spare }, Some(sender)) => {
                sender.set_packet_floor(floor);
                sender.set_up(up);
                sender.set_spare(spare);
                // The plan respects the floor.
                let _ = sender.set_scheduler(scheduler);
            }
            (SenderUpdate::Hold, Some(sender)) => sender.set_up(ChannelSubset::EMPTY),
            (SenderUpdate::Dissociate, _) => (self.sender, self.split) = (None, None),
            // There is no peer.
            (SenderUpdate::Schedule { .. } | SenderUpdate::Hold, None) => {}
        }
    }

    /// Begins a symbol, to which the caller appends packets. `None` if there is no association:
    /// then packets are dropped.
    pub fn begin(&mut self) -> Option<&mut Vec<u8>> {
        self.split = None;
        self.sender.as_mut().map(SymbolSender::begin)
    }

    /// The current symbol, and the number of bytes that still fit; `None` if there is none.
    ///
    /// Call it before [`Self::finish`]: that may split the symbol.
    pub fn symbol(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        self.sender.as_mut().and_then(SymbolSender::symbol)
    }

    /// Sends the current symbol: see [`SymbolSender::finish`]. Packets that do not fit one datagram
    /// are sent as two symbols.
    ///
    /// # Errors
    /// As there. After [`SymbolSendError::Wait`] and [`SymbolSendError::Full`] what is left to send
    /// is kept.
    pub fn finish(
        &mut self,
        kind: SymbolKind,
        flow: u16,
        now: Duration,
        batches: &mut [DatagramBatch],
    ) -> Result<SentSymbol, SymbolSendError> {
        let Some(sender) = &mut self.sender else { return Err(SymbolSendError::Nothing) };
        if self.split.is_none()
            && let Some((packets, max_len)) = sender.too_long()
            // Otherwise two parts are not enough.
            && packets.len() <= 2 * max_len.saturating_sub(PART_HEADER_LEN)
        {
            let split = SplitPackets {
                id: self.next_split_id,
                packets: Zeroizing::new(packets.to_vec()),
                has_partial_checksum: kind == SymbolKind::PartialPacket,
                is_second: false,
            };
            self.next_split_id = self.next_split_id.wrapping_add(1);
            split.begin(sender);
            self.split = Some(split);
        }
        while let Some(split) = &mut self.split {
            let sent = sender.finish(SymbolKind::Part, flow, now, batches);
            match sent {
                Ok(_) if !split.is_second => {
                    split.is_second = true;
                    split.begin(sender);
                }
                Err(SymbolSendError::Wait(_) | SymbolSendError::Full) => return sent,
                Ok(_) | Err(_) => {
                    self.split = None;
                    return sent;
                }
            }
        }
        sender.finish(kind, flow, now, batches)
    }

    /// Sends a control message if one is due, and then updates the rate limits. Returns when to
    /// call it next, at the latest; `None` if nothing is due before the next update.
    pub fn handle_timeout(
        &mut self,
        shared: &mut EndpointSharedState,
        now: Duration,
        batches: &mut [DatagramBatch],
    ) -> Option<Duration> {
        // The sender may still be that of the previous association.
        let sender =
            self.sender.as_mut().filter(|sender| Some(sender.key_id()) == shared.key_id)?;
        let monitor = shared.monitor.as_mut()?;
        let counts = sender.counts();
        shared.long_datagrams = counts.long_datagrams;
        let totals = counts.datagrams.iter().zip(&counts.ip_bytes);
        let totals: Vec<SentCounts> = totals
            .take(batches.len())
            .map(|(datagrams, bytes)| SentCounts { datagrams: *datagrams, bytes: *bytes })
            .collect();
        let packets = counts.symbols + shared.packets;
        monitor.set_left_out(shared.left_out);
        let message =
            monitor.poll_message(now, &totals, &shared.arrived, shared.quarantined, packets);
        if let Some(message) = message {
            // A message that cannot be sent counts as lost.
            let _ = sender.control(&message, now, batches);
            for channel in 0..batches.len() {
                sender.set_limit(channel, monitor.limit(channel), now);
            }
            sender.set_channels_under_test(monitor.channels_under_test());
        }
        Some(monitor.poll_timeout())
    }

    /// Sets the maximum length of a datagram, as UDP payload.
    pub fn set_max_datagram_len(&mut self, datagram: usize) {
        self.max_datagram_len = Some(datagram);
        if let Some(sender) = &mut self.sender {
            sender.set_max_datagram_len(datagram);
        }
    }

    /// Reports that there is nothing to send.
    pub fn set_idle(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.set_idle();
        }
    }

    /// Counts under the current keys.
    pub fn counts(&self) -> Option<&SymbolSenderCounts> {
        self.sender.as_ref().map(SymbolSender::counts)
    }

    /// The number of uses of each threshold under the current keys: see
    /// [`SymbolSender::threshold_uses`].
    pub fn threshold_uses(&self) -> Vec<(ShareSelection, u64)> {
        self.sender.iter().flat_map(SymbolSender::threshold_uses).collect()
    }
}
