//! The sending thread: packets from the device, shares to the channels.

use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::thread::set_current_timer_slack;
use tun::ip::destination;
use tun::{FrameSegments, TunDevice};
use udp::UdpBatchSocket;
use zeroize::Zeroizing;

use super::client_networks::ClientNetworks;
use super::error::TunnelError;
use super::sending_peer::{SendingPeer, SendingPeerCommand, SendingTurnEnd};
use super::shared::TunnelClock;
use super::waker::ThreadWaker;
use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;
use crate::protocol::endpoint::frame_sender::frame_space;

/// A command to this thread.
pub(super) enum SendingCommand {
    /// For one peer.
    OfPeer(TunnelPeerId, SendingPeerCommand),
    /// There is another client.
    Add(TunnelPeerId, Box<SendingPeer>),
    /// A client is gone for good.
    Remove(TunnelPeerId),
    /// The clients have these networks from now on.
    Networks(Arc<ClientNetworks>),
    /// Stop.
    Stop,
}

/// With several clients: the number of frames that are read before one of them has its turn, so
/// that the device's queue holds no frames of one client while others are slow.
const READ_BURST: usize = 16;

/// With several clients: how long datagrams are gathered while other clients have their turns.
const MAX_GATHER: Duration = Duration::from_micros(300);

/// The state of the thread.
pub(super) struct SendingThread {
    pub(super) device: Arc<TunDevice>,
    pub(super) channels: Vec<UdpBatchSocket>,
    pub(super) commands: Receiver<SendingCommand>,
    pub(super) waker: ThreadWaker,
    pub(super) clock: TunnelClock,
    pub(super) peers: BTreeMap<TunnelPeerId, SendingPeer>,
    /// Which client has an address. `None` if there is one peer.
    pub(super) networks: Option<Arc<ClientNetworks>>,
    /// Packets that are for no client.
    pub(super) for_no_client: Arc<AtomicU64>,
}

/// The loop of the thread.
struct SendLoop {
    thread: SendingThread,
    /// The space for the next frame that is read.
    space: Zeroizing<Vec<u8>>,
    /// The peers that may have something to send, the next one first.
    turns: VecDeque<TunnelPeerId>,
    /// Those whose batches are not sent yet, and since when the first one is among them.
    unflushed: Vec<TunnelPeerId>,
    unflushed_since: Duration,
    /// When the next control message to any peer is due.
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
        let work = SendLoop {
            thread: self,
            space: frame_space(),
            turns: VecDeque::new(),
            unflushed: Vec::new(),
            unflushed_since: Duration::ZERO,
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
            let burst = if self.thread.networks.is_some() { READ_BURST } else { 0 };
            let mut is_drained = false;
            for _ in 0..burst {
                is_drained = !self.read(now)?;
                if is_drained {
                    break;
                }
            }
            if self.send(now) || (!is_drained && self.read(now)?) {
                continue;
            }
            self.wait();
        }
        Ok(())
    }

    /// Whether a frame may be read. The only peer leaves frames in the device while its queue is
    /// full; one of several clients must not keep those of others waiting.
    fn may_read(&self) -> bool {
        self.thread.networks.is_some()
            || self.thread.peers.values().all(|peer| peer.frames.has_room())
    }

    /// Reads a frame from the device. Returns false if it has none.
    fn read(&mut self, now: Duration) -> Result<bool, TunnelError> {
        if !self.may_read() {
            return Ok(false);
        }
        match self.thread.device.read(&mut self.space) {
            Ok(length) => {
                self.handle_frame(length, now);
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

    /// A frame was read. It is for the client that has its destination.
    fn handle_frame(&mut self, length: usize, now: Duration) {
        let id = match &self.thread.networks {
            None => self.thread.peers.keys().next().copied(),
            Some(networks) => FrameSegments::parse(&self.space[..length])
                .and_then(|segments| destination(segments.packet()))
                .and_then(|to| networks.client_of(to)),
        };
        let Some((id, peer)) = id.and_then(|id| Some((id, self.thread.peers.get_mut(&id)?))) else {
            self.thread.for_no_client.fetch_add(1, Ordering::Relaxed);
            return;
        };
        peer.frames.handle_frame(&mut self.space, length, now);
        if !peer.has_turn {
            peer.has_turn = true;
            self.turns.push_back(id);
        }
    }

    /// Handles commands and does what is due. Returns the time.
    fn handle_timeout(&mut self) -> Duration {
        while let Ok(command) = self.thread.commands.try_recv() {
            self.handle_command(command);
        }
        let now = self.thread.clock.now();
        if now >= self.due {
            for peer in self.thread.peers.values_mut().filter(|peer| peer.due <= now) {
                peer.handle_timeout(&mut self.thread.channels, now);
            }
            let due = self.thread.peers.values().map(|peer| peer.due).min();
            self.due = due.unwrap_or(Duration::MAX);
        }
        let has_several = self.thread.networks.is_some();
        if has_several && !self.unflushed.is_empty() && now >= self.unflushed_since + MAX_GATHER {
            self.flush();
        }
        now
    }

    fn handle_command(&mut self, command: SendingCommand) {
        match command {
            SendingCommand::OfPeer(id, command) => {
                if let Some(peer) = self.thread.peers.get_mut(&id) {
                    peer.handle_command(command);
                    self.due = self.due.min(peer.due);
                }
            }
            SendingCommand::Add(id, peer) => {
                self.due = Duration::ZERO;
                self.thread.peers.insert(id, *peer);
            }
            SendingCommand::Remove(id) => {
                self.turns.retain(|turn| *turn != id);
                self.thread.peers.remove(&id);
            }
            SendingCommand::Networks(networks) => self.thread.networks = Some(networks),
            SendingCommand::Stop => self.is_over = true,
        }
    }

    /// Gives the next peer whose channels are ready its turn. Returns false if there is none.
    fn send(&mut self, now: Duration) -> bool {
        for _ in 0..self.turns.len() {
            let Some(id) = self.turns.pop_front() else { return false };
            let Some(peer) = self.thread.peers.get_mut(&id) else { continue };
            if peer.busy_until > now {
                self.turns.push_back(id);
                continue;
            }
            let end = peer.take_turn(&mut self.thread.channels, self.thread.clock);
            if peer.is_unflushed && !self.unflushed.contains(&id) {
                if self.unflushed.is_empty() {
                    self.unflushed_since = now;
                }
                self.unflushed.push(id);
            }
            if end == SendingTurnEnd::Empty {
                peer.has_turn = false;
            } else {
                self.turns.push_back(id);
            }
            return true;
        }
        false
    }

    /// Sends all batches.
    fn flush(&mut self) {
        for id in self.unflushed.drain(..) {
            if let Some(peer) = self.thread.peers.get_mut(&id) {
                peer.flush(&mut self.thread.channels);
            }
        }
    }

    /// Waits for packets, commands, channels that are busy, or the next control message.
    fn wait(&mut self) {
        for id in &self.unflushed {
            if let Some(peer) = self.thread.peers.get_mut(id).filter(|peer| !peer.has_turn) {
                peer.frames.outbound().set_idle();
            }
        }
        self.flush();
        let busy = self.turns.iter().filter_map(|id| self.thread.peers.get(id));
        let end = busy.map(|peer| peer.busy_until).chain([self.due]).min();
        let timeout = end.filter(|end| *end < Duration::MAX);
        let timeout = timeout.map(|end| end.saturating_sub(self.thread.clock.now()));
        let device = [self.thread.device.as_fd()];
        let sources = if self.may_read() { &device } else { &[][..] };
        self.thread.waker.wait(sources, timeout);
    }
}
