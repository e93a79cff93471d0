//! The sending thread: packets from the device, shares to the channels.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::ShareSelection;
use rustix::thread::set_current_timer_slack;
use tracing::warn;
use tun::ip::{clamp_mss, flow, packet_len};
use tun::{ChecksumState, FrameSegments, MAX_FRAME_LEN, TunDevice};
use udp::{DatagramBatch, UdpBatchSocket};
use zeroize::Zeroizing;

use super::error::TunnelError;
use super::shared::{TunnelClock, lock};
use super::waker::ThreadWaker;
use crate::protocol::endpoint::outbound::{OutboundEndpoint, SenderUpdate};
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::send::codel_queue::{self, CoDelQueue};
use crate::protocol::send::sender::{SymbolSendError, SymbolSenderCounts};
use crate::protocol::wire::datagram::SymbolKind;

/// A command to this thread.
pub(super) enum SendingCommand {
    /// For the sending half.
    Update(SenderUpdate),
    /// The peer's address on each channel.
    Peers(Vec<SocketAddr>),
    /// The peer's new address on a channel.
    Peer { channel: usize, to: SocketAddr },
    /// The maximum length of a datagram on all channels, as UDP payload, and of a packet that fits
    /// into one, in bytes.
    MaxDatagramLen { datagram: usize, packet: usize },
    /// Stop.
    Stop,
}

/// How much longer a symbol waits after its channels are ready, so that datagrams are sent in runs.
/// The sender catches up afterwards.
const GATHER_DELAY: Duration = Duration::from_micros(300);

/// The poll interval without an association. Commands wake the thread anyway.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A batch with this number of bytes is sent at once: two runs.
const FLUSH_LEN: usize = 128 << 10;

/// The state of the thread.
pub(super) struct SendingThread {
    pub(super) device: Arc<TunDevice>,
    pub(super) channels: Vec<UdpBatchSocket>,
    pub(super) commands: Receiver<SendingCommand>,
    pub(super) waker: ThreadWaker,
    pub(super) clock: TunnelClock,
    pub(super) shared: Arc<Mutex<EndpointSharedState>>,
    pub(super) counts: Arc<Mutex<SendingCounts>>,
    /// The MTU to which the MSS of TCP connections is clamped.
    pub(super) clamped_mtu: usize,
}

/// Counts of the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct SendingCounts {
    /// Of the current association.
    pub(super) sender: SymbolSenderCounts,
    /// The number of its symbols for each threshold, a few tenths of a second ago.
    pub(super) uses: Vec<(ShareSelection, u64)>,
    /// Datagrams that the kernel refused, on each channel.
    pub(super) refused: Vec<u64>,
    /// Packets that were dropped without an association.
    pub(super) unconnected: u64,
    /// Packets or superpackets that the queue dropped.
    pub(super) queued: u64,
}

/// The loop of the thread.
struct SendLoop {
    thread: SendingThread,
    outbound: OutboundEndpoint,
    peers: Vec<SocketAddr>,
    batches: Vec<DatagramBatch>,
    /// Frames that were read while channels were busy.
    queue: CoDelQueue,
    /// The buffer for frames that are read while another is sent.
    frame: Zeroizing<Vec<u8>>,
    /// When the next control message is due.
    due: Duration,
    is_over: bool,
}

impl SendingThread {
    /// Sends until it is stopped.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn run(self) -> Result<(), TunnelError> {
        // By default the kernel wakes a thread up to 50 µs late, which is long for a fast channel.
        let _ = set_current_timer_slack(std::num::NonZero::new(1));
        let batches = self.channels.iter().map(|_| DatagramBatch::default()).collect();
        lock(&self.counts).refused = vec![0; self.channels.len()];
        let work = SendLoop {
            thread: self,
            outbound: OutboundEndpoint::default(),
            peers: Vec::new(),
            batches,
            queue: CoDelQueue::default(),
            frame: Zeroizing::new(vec![0; MAX_FRAME_LEN]),
            due: Duration::ZERO,
            is_over: false,
        };
        work.run()
    }
}

impl SendLoop {
    fn run(mut self) -> Result<(), TunnelError> {
        let mut frame = Zeroizing::new(vec![0; MAX_FRAME_LEN]);
        while !self.is_over {
            let now = self.handle_timeout();
            if let Some(next) = self.queue.pop(now) {
                self.count_dropped(next.dropped_frames + u64::from(next.drop_first_packet));
                self.send(&next.frame, usize::from(next.drop_first_packet), now)?;
            } else if let Some(length) = self.read(&mut frame)? {
                self.send(&frame[..length], 0, now)?;
            } else {
                self.wait_for_work();
            }
        }
        Ok(())
    }

    /// Reads a frame from the device, if it has one, and returns its length.
    fn read(&self, frame: &mut [u8]) -> Result<Option<usize>, TunnelError> {
        match self.thread.device.read(frame) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => {
                let name = self.thread.device.name().to_owned();
                Err(match error.raw_os_error() {
                    Some(libc::EBADFD) => TunnelError::DeviceDeleted { name },
                    _ => TunnelError::Read { name, source: error },
                })
            }
        }
    }

    /// Handles commands and does what is due. Returns the time, since reading the clock takes as
    /// long as computing a token.
    fn handle_timeout(&mut self) -> Duration {
        while let Ok(command) = self.thread.commands.try_recv() {
            match command {
                SendingCommand::Update(update) => self.outbound.handle_update(update),
                SendingCommand::Peers(peers) => {
                    self.peers = peers;
                    self.due = Duration::ZERO;
                }
                SendingCommand::Peer { channel, to } => self.peers[channel] = to,
                SendingCommand::MaxDatagramLen { datagram, packet } => {
                    self.outbound.set_max_datagram_len(datagram);
                    self.thread.clamped_mtu = packet;
                }
                SendingCommand::Stop => self.is_over = true,
            }
        }
        let now = self.thread.clock.now();
        if now < self.due {
            return now;
        }
        let mut shared = lock(&self.thread.shared);
        let next = self.outbound.handle_timeout(&mut shared, now, &mut self.batches);
        drop(shared);
        self.due = next.unwrap_or(now + POLL_INTERVAL);
        lock(&self.thread.counts).uses = self.outbound.threshold_uses();
        self.flush();
        now
    }

    /// Sends a frame's packets from index `first`, each as a symbol. The last symbol includes
    /// packets from the queue.
    fn send(&mut self, frame: &[u8], first: usize, now: Duration) -> Result<(), TunnelError> {
        let Some(segments) = FrameSegments::parse(frame) else { return Ok(()) };
        let checksum = segments.checksum();
        let kind = match checksum {
            ChecksumState::Complete => SymbolKind::Packet,
            ChecksumState::Partial => SymbolKind::PartialPacket,
        };
        let mtu = self.thread.clamped_mtu;
        let longest = now + codel_queue::MAX_WAIT;
        for index in first..segments.count() {
            // A superpacket may have thousands of segments.
            if index % 64 == 63 && self.thread.clock.now() > longest {
                self.count_dropped(1);
                break;
            }
            let Some(symbol) = self.outbound.begin() else {
                lock(&self.thread.counts).unconnected += (segments.count() - index) as u64;
                return Ok(());
            };
            let packet = append(&segments, index, mtu, symbol);
            let flow = flow(packet);
            if index + 1 == segments.count() && packet_len(packet) == Some(packet.len()) {
                self.take_along(checksum, flow);
            }
            self.finish(kind, flow)?;
        }
        if self.batches.iter().any(|batch| batch.len() >= FLUSH_LEN) {
            self.flush();
        }
        Ok(())
    }

    /// Adds queued packets of the same flow to the current symbol. So small packets share headers
    /// when channels are the bottleneck. Otherwise the queue is empty, and no packet waits for
    /// others.
    fn take_along(&mut self, checksum: ChecksumState, to: u16) {
        if self.queue.is_empty() {
            return;
        }
        let now = self.thread.clock.now();
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
                self.count_dropped(1);
            } else if let Some(segments) = FrameSegments::parse(&next.frame) {
                append(&segments, 0, self.thread.clamped_mtu, symbol);
            }
        }
    }

    /// Counts packets or superpackets that the queue dropped.
    fn count_dropped(&self, dropped: u64) {
        if dropped > 0 {
            lock(&self.thread.counts).queued += dropped;
        }
    }

    /// Sends the current symbol, when its channels are ready.
    fn finish(&mut self, kind: SymbolKind, flow: u16) -> Result<(), TunnelError> {
        while !self.is_over {
            let now = self.thread.clock.now();
            match self.outbound.finish(kind, flow, now, &mut self.batches) {
                Err(SymbolSendError::Wait(until)) => {
                    self.flush();
                    self.wait(until)?;
                    self.handle_timeout();
                }
                Err(SymbolSendError::Full) => self.flush(),
                // It was sent, or dropped and counted.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits for busy channels, and [`GATHER_DELAY`] longer, and reads frames meanwhile. Ends early
    /// if there are commands.
    fn wait(&mut self, until: Duration) -> Result<(), TunnelError> {
        let mut now = self.thread.clock.now();
        if until <= now {
            return Ok(());
        }
        let end = (until + GATHER_DELAY).min(self.due);
        while now < end {
            let device = [self.thread.device.as_fd()];
            let sources = if self.queue.is_full() { &[][..] } else { &device };
            if !self.thread.waker.wait(sources, Some(end.saturating_sub(now))).contains(&true) {
                break;
            }
            let mut frame = std::mem::take(&mut self.frame);
            let length = self.read(&mut frame)?;
            now = self.thread.clock.now();
            if let Some(length) = length {
                self.queue.push(Zeroizing::new(frame[..length].to_vec()), now);
            }
            self.frame = frame;
        }
        Ok(())
    }

    /// Waits for packets or commands.
    fn wait_for_work(&mut self) {
        self.flush();
        self.outbound.set_idle();
        let timeout = self.due.saturating_sub(self.thread.clock.now());
        self.thread.waker.wait(&[self.thread.device.as_fd()], Some(timeout));
    }

    /// Sends the batches.
    fn flush(&mut self) {
        let mut counts = lock(&self.thread.counts);
        for (index, batch) in self.batches.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            if let Some(peer) = self.peers.get(index) {
                let sent = self.thread.channels[index].send(batch, *peer);
                counts.refused[index] += sent.refused as u64;
                if let Some(error) = sent.gso_error {
                    log_gso_error(index, error);
                }
            }
            batch.clear();
        }
        if let Some(sender) = self.outbound.counts() {
            counts.sender = *sender;
        }
    }
}

/// Logs that segmentation offload does not work on a channel.
fn log_gso_error(channel: usize, error: i32) {
    let error = io::Error::from_raw_os_error(error);
    warn!(
        "channel {}: the kernel does not split datagrams for this device ({error}); they are sent one by \
         one, which takes more processor time",
        channel + 1
    );
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
