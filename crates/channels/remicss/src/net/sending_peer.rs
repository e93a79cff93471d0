//! One peer in the sending thread: its queue and its batches.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::ShareSelection;
use tracing::warn;
use udp::{DatagramBatch, UdpBatchSocket};

use super::peer_label::PeerLabel;
use super::shared::{TunnelClock, lock};
use crate::protocol::endpoint::frame_sender::{FrameDropCounts, FrameSendStep, FrameSender};
use crate::protocol::endpoint::outbound::SenderUpdate;
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::send::sender::SymbolSenderCounts;

/// The bytes of packets that a peer may send in a turn, before the others: a superpacket.
const QUANTUM: u64 = 1 << 16;

/// The poll interval without an association. Commands wake the thread anyway.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A command for one peer.
pub(super) enum SendingPeerCommand {
    /// For the sending half.
    Update(SenderUpdate),
    /// The peer's address on each channel.
    Addresses(Vec<SocketAddr>),
    /// The peer's new address on a channel.
    Address { channel: usize, to: SocketAddr },
    /// The maximum length of a datagram on all channels, as UDP payload, and of a packet that fits
    /// into one, in bytes.
    MaxDatagramLen { datagram: usize, packet: usize },
}

/// Counts of a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct SendingCounts {
    /// Of the current association.
    pub(super) sender: SymbolSenderCounts,
    /// The number of its symbols for each threshold, a few tenths of a second ago.
    pub(super) uses: Vec<(ShareSelection, u64)>,
    /// Datagrams that the kernel refused, on each channel.
    pub(super) refused: Vec<u64>,
    /// Packets that were not sent.
    pub(super) drops: FrameDropCounts,
}

/// A peer in the sending thread.
pub(super) struct SendingPeer {
    pub(super) frames: FrameSender,
    label: PeerLabel,
    shared: Arc<Mutex<EndpointSharedState>>,
    counts: Arc<Mutex<SendingCounts>>,
    addresses: Vec<SocketAddr>,
    batches: Vec<DatagramBatch>,
    /// When the next control message is due.
    pub(super) due: Duration,
    /// Until when its channels are busy.
    pub(super) busy_until: Duration,
    /// Whether it takes turns, because it may have something to send.
    pub(super) has_turn: bool,
    /// Whether its batches and counts have changed since the last flush.
    pub(super) is_unflushed: bool,
    /// The bytes by which it exceeded its last turns (deficit round robin).
    debt: u64,
    /// The bytes that its sender has counted.
    counted_bytes: u64,
}

/// Why a turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendingTurnEnd {
    /// There is nothing left to send.
    Empty,
    /// Its channels are busy.
    Busy,
    /// It has sent as much as it may.
    Used,
}

impl SendingPeer {
    /// Without an association. The MSS of TCP connections is clamped to this MTU.
    pub(super) fn new(
        label: PeerLabel,
        channels: usize,
        shared: Arc<Mutex<EndpointSharedState>>,
        counts: Arc<Mutex<SendingCounts>>,
        clamped_mtu: usize,
    ) -> Self {
        lock(&counts).refused = vec![0; channels];
        Self {
            frames: FrameSender::new(clamped_mtu),
            label,
            shared,
            counts,
            addresses: Vec::new(),
            batches: (0..channels).map(|_| DatagramBatch::default()).collect(),
            due: Duration::ZERO,
            busy_until: Duration::ZERO,
            has_turn: false,
            is_unflushed: false,
            debt: 0,
            counted_bytes: 0,
        }
    }

    /// Handles a command.
    pub(super) fn handle_command(&mut self, command: SendingPeerCommand) {
        match command {
            SendingPeerCommand::Update(update) => {
                self.frames.outbound().handle_update(update);
                self.busy_until = Duration::ZERO;
            }
            SendingPeerCommand::Addresses(addresses) => {
                self.addresses = addresses;
                self.due = Duration::ZERO;
            }
            SendingPeerCommand::Address { channel, to } => {
                if let Some(address) = self.addresses.get_mut(channel) {
                    *address = to;
                }
            }
            SendingPeerCommand::MaxDatagramLen { datagram, packet } => {
                self.frames.outbound().set_max_datagram_len(datagram);
                self.frames.set_clamped_mtu(packet);
            }
        }
    }

    /// Sends a control message if one is due.
    pub(super) fn handle_timeout(&mut self, channels: &mut [UdpBatchSocket], now: Duration) {
        let mut shared = lock(&self.shared);
        let next = self.frames.outbound().handle_timeout(&mut shared, now, &mut self.batches);
        drop(shared);
        self.due = next.unwrap_or(now + POLL_INTERVAL);
        lock(&self.counts).uses = self.frames.outbound().threshold_uses();
        self.flush(channels);
    }

    /// Sends symbols until its turn ends.
    pub(super) fn take_turn(
        &mut self,
        channels: &mut [UdpBatchSocket],
        clock: TunnelClock,
    ) -> SendingTurnEnd {
        let mut left = QUANTUM.saturating_sub(self.debt);
        self.debt = self.debt.saturating_sub(QUANTUM);
        while left > 0 {
            self.is_unflushed = true;
            let now = clock.now();
            match self.frames.poll(now, &mut self.batches) {
                FrameSendStep::Poll => {}
                FrameSendStep::Flush => self.flush(channels),
                FrameSendStep::Wait(until) => {
                    self.flush(channels);
                    self.busy_until = until;
                    return SendingTurnEnd::Busy;
                }
                FrameSendStep::Read => {
                    self.debt = 0;
                    return SendingTurnEnd::Empty;
                }
            }
            let counts = self.frames.outbound().counts();
            let bytes = counts.map_or(0, |counts| counts.bytes);
            // A new association counts from 0.
            let sent = bytes.saturating_sub(self.counted_bytes);
            self.counted_bytes = bytes;
            self.debt += sent.saturating_sub(left);
            left = left.saturating_sub(sent);
        }
        SendingTurnEnd::Used
    }

    /// Sends the batches.
    pub(super) fn flush(&mut self, channels: &mut [UdpBatchSocket]) {
        self.is_unflushed = false;
        let mut counts = lock(&self.counts);
        for (index, batch) in self.batches.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            if let Some(peer) = self.addresses.get(index) {
                let sent = channels[index].send(batch, *peer);
                counts.refused[index] += sent.refused as u64;
                if let Some(error) = sent.gso_error {
                    log_gso_error(&self.label, index, error);
                }
            }
            batch.clear();
        }
        counts.drops = self.frames.drops();
        if let Some(sender) = self.frames.outbound().counts() {
            counts.sender = *sender;
        }
    }
}

/// Logs that segmentation offload does not work on a channel.
fn log_gso_error(label: &PeerLabel, channel: usize, error: i32) {
    let error = io::Error::from_raw_os_error(error);
    warn!(
        "{label}channel {}: the kernel does not split datagrams for this device ({error}); they are \
         sent one by one, which takes more processor time",
        channel + 1
    );
}
