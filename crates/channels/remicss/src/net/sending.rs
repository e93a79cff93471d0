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
use tun::TunDevice;
use udp::{DatagramBatch, UdpBatchSocket};

use super::error::TunnelError;
use super::shared::{TunnelClock, lock};
use super::waker::ThreadWaker;
use crate::protocol::endpoint::frame_sender::{FrameDropCounts, FrameSendStep, FrameSender};
use crate::protocol::endpoint::outbound::SenderUpdate;
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::send::sender::SymbolSenderCounts;

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

/// The poll interval without an association. Commands wake the thread anyway.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

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
    /// Packets that were not sent.
    pub(super) drops: FrameDropCounts,
}

/// The loop of the thread.
struct SendLoop {
    thread: SendingThread,
    frames: FrameSender,
    peers: Vec<SocketAddr>,
    batches: Vec<DatagramBatch>,
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
            frames: FrameSender::new(self.clamped_mtu),
            thread: self,
            peers: Vec::new(),
            batches,
            due: Duration::ZERO,
            is_over: false,
        };
        work.run()
    }
}

impl SendLoop {
    fn run(mut self) -> Result<(), TunnelError> {
        while !self.is_over {
            let now = self.handle_timeout();
            match self.frames.poll(now, &mut self.batches) {
                FrameSendStep::Poll => {}
                FrameSendStep::Flush => self.flush(),
                FrameSendStep::Wait(until) => self.wait(until)?,
                FrameSendStep::Read => {
                    if !self.read(now)? {
                        self.wait_for_work();
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a frame from the device. Returns false if it has none.
    fn read(&mut self, now: Duration) -> Result<bool, TunnelError> {
        match self.thread.device.read(self.frames.space()) {
            Ok(length) => {
                self.frames.handle_frame(length, now);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
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
                SendingCommand::Update(update) => self.frames.outbound().handle_update(update),
                SendingCommand::Peers(peers) => {
                    self.peers = peers;
                    self.due = Duration::ZERO;
                }
                SendingCommand::Peer { channel, to } => self.peers[channel] = to,
                SendingCommand::MaxDatagramLen { datagram, packet } => {
                    self.frames.outbound().set_max_datagram_len(datagram);
                    self.frames.set_clamped_mtu(packet);
                }
                SendingCommand::Stop => self.is_over = true,
            }
        }
        let now = self.thread.clock.now();
        if now < self.due {
            return now;
        }
        let mut shared = lock(&self.thread.shared);
        let next = self.frames.outbound().handle_timeout(&mut shared, now, &mut self.batches);
        drop(shared);
        self.due = next.unwrap_or(now + POLL_INTERVAL);
        lock(&self.thread.counts).uses = self.frames.outbound().threshold_uses();
        self.flush();
        now
    }

    /// Sends the batches and waits for busy channels. Reads frames meanwhile. Ends early if there
    /// are commands.
    fn wait(&mut self, until: Duration) -> Result<(), TunnelError> {
        self.flush();
        let end = until.min(self.due);
        loop {
            let now = self.thread.clock.now();
            if now >= end {
                return Ok(());
            }
            let device = [self.thread.device.as_fd()];
            let sources = if self.frames.has_room() { &device } else { &[][..] };
            if !self.thread.waker.wait(sources, Some(end.saturating_sub(now))).contains(&true) {
                return Ok(());
            }
            self.read(self.thread.clock.now())?;
        }
    }

    /// Waits for packets or commands.
    fn wait_for_work(&mut self) {
        self.flush();
        self.frames.outbound().set_idle();
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
        counts.drops = self.frames.drops();
        if let Some(sender) = self.frames.outbound().counts() {
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
