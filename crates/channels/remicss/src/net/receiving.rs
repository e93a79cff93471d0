//! The receiving thread: shares from the channels, packets to the device. It also runs the
//! handshakes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::{debug, warn};
use udp::DatagramReceiveBuffer;

use super::client_networks::ClientNetworks;
use super::device_checks::DeviceChecks;
use super::received_packets::{DeviceWriteCounts, ReceivedPacketBuffer};
use super::receiving_peer::{ReceivingContext, ReceivingPeer};
use super::shared::{TunnelClock, lock};
use super::waker::ThreadWaker;
use crate::net::allowed_sources::AllowedSources;
use crate::protocol::endpoint::client_demultiplexer::{
    ClientDemultiplexer, TunnelPeerId, UnrecognisedCounts,
};

/// The maximum number of reads of a channel before the others are read.
const MAX_READS: usize = 4;

/// The minimum interval of the warning about datagrams of no client, and the number of which fewer
/// are not reported.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
const MIN_REPORTED: u64 = 16;

/// A command to this thread.
pub(super) enum ReceivingCommand {
    /// There is another client.
    Add(Box<ReceivingPeer>),
    /// A client is gone for good.
    Remove(TunnelPeerId),
    /// The name of the server on a channel has this address now.
    Server {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
    },
    /// The clients have these networks from now on.
    Networks {
        /// The networks.
        networks: Arc<ClientNetworks>,
        /// Whether they may send to each other.
        between_clients: bool,
    },
}

/// The state of the thread.
pub(super) struct ReceivingThread {
    pub(super) context: ReceivingContext,
    pub(super) peers: BTreeMap<TunnelPeerId, ReceivingPeer>,
    /// Finds the client of a datagram. `None` if there is one peer.
    pub(super) clients: Option<ClientDemultiplexer>,
    pub(super) commands: Receiver<ReceivingCommand>,
    pub(super) waker: ThreadWaker,
    pub(super) clock: TunnelClock,
    pub(super) counts: Arc<Mutex<DeviceWriteCounts>>,
    pub(super) unrecognised: Arc<Mutex<Vec<UnrecognisedCounts>>>,
    pub(super) unrecognised_log: UnrecognisedLog,
    pub(super) stops: Arc<AtomicBool>,
}

/// How many datagrams of no client were reported for each channel.
#[derive(Default)]
pub(super) struct UnrecognisedLog {
    reported: Vec<u64>,
    quiet_until: Duration,
}

impl ReceivingThread {
    /// Without peers. If there are to be clients, `clients` finds the one of a datagram.
    pub(super) fn new(
        context: ReceivingContext,
        clients: Option<ClientDemultiplexer>,
        commands: Receiver<ReceivingCommand>,
        waker: ThreadWaker,
        clock: TunnelClock,
    ) -> Self {
        Self {
            context,
            peers: BTreeMap::new(),
            clients,
            commands,
            waker,
            clock,
            counts: Arc::default(),
            unrecognised: Arc::default(),
            unrecognised_log: UnrecognisedLog::default(),
            stops: Arc::default(),
        }
    }

    /// Receives until it is stopped.
    pub(super) fn run(mut self) {
        let mut receive_buffer = DatagramReceiveBuffer::new();
        let mut packets = ReceivedPacketBuffer::default();
        let mut merges_udp = self.context.device.supports_uso();
        let mut device_checks = DeviceChecks::new(&self.context.channels);
        while !self.stops.load(Ordering::Relaxed) {
            self.handle_commands();
            let now = self.clock.now();
            device_checks.handle_timeout(&self.context.channels, now);
            let due = self.peers.values().map(|peer| peer.due).chain(device_checks.due).min();
            let due = due.filter(|due| *due < Duration::MAX);
            let timeout = due.map(|at| at.saturating_sub(now));
            let channels: Vec<BorrowedFd<'_>> =
                self.context.channels.iter().map(AsFd::as_fd).collect();
            let ready = self.waker.wait(&channels, timeout);
            for channel in (0..ready.len()).filter(|channel| ready[*channel]) {
                self.receive(channel, &mut receive_buffer, &mut packets);
            }
            self.handle_timeout(&mut packets);
            packets.write(&self.context.device, &mut merges_udp, &self.counts);
        }
    }

    fn handle_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                ReceivingCommand::Add(peer) => {
                    if let Some(clients) = &mut self.clients {
                        clients.add(peer.id);
                    }
                    self.peers.insert(peer.id, *peer);
                }
                ReceivingCommand::Remove(id) => {
                    if let Some(clients) = &mut self.clients {
                        clients.remove(id);
                    }
                    self.peers.remove(&id);
                }
                ReceivingCommand::Server { channel, to } => {
                    for peer in self.peers.values_mut() {
                        peer.inbound.set_server(channel, to);
                        peer.due = Duration::ZERO;
                    }
                }
                ReceivingCommand::Networks { networks, between_clients } => {
                    for (id, peer) in &mut self.peers {
                        let sources = AllowedSources::new(networks.of(*id), []);
                        let separate = (!between_clients).then(|| Arc::clone(&networks));
                        peer.filter.set(sources, separate);
                    }
                }
            }
        }
    }

    /// Reads the datagrams of a channel.
    fn receive(
        &mut self,
        channel: usize,
        buffer: &mut DatagramReceiveBuffer,
        packets: &mut ReceivedPacketBuffer,
    ) {
        let Self { context, peers, clients, clock, .. } = self;
        for _ in 0..MAX_READS {
            let more = match buffer.receive(&context.channels[channel]) {
                Ok(more) => more,
                Err(error) => {
                    debug!("channel {}: {error}", channel + 1);
                    return;
                }
            };
            let now = clock.now();
            for (from, datagram) in buffer.datagrams() {
                let peer = match clients {
                    None => peers.values_mut().next(),
                    Some(clients) => {
                        let recognises = |id| {
                            let peer = peers.get_mut(&id);
                            peer.is_some_and(|peer| peer.inbound.recognises(channel, datagram))
                        };
                        let found = clients.find(channel, from, datagram, now, recognises);
                        found.and_then(|id| peers.get_mut(&id))
                    }
                };
                if let Some(peer) = peer {
                    peer.handle_datagram(channel, from, datagram, now, packets);
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Performs what is due for each peer.
    fn handle_timeout(&mut self, packets: &mut ReceivedPacketBuffer) {
        let now = self.clock.now();
        for peer in self.peers.values_mut().filter(|peer| peer.due <= now) {
            peer.handle_timeout(&self.context, &mut self.clients, now, packets);
        }
        if let Some(clients) = &self.clients {
            let counts = clients.counts();
            self.unrecognised_log.log(&counts, now);
            *lock(&self.unrecognised) = counts;
        }
    }
}

impl UnrecognisedLog {
    /// Logs the channels on which many datagrams of no client have arrived since the last time.
    fn log(&mut self, counts: &[UnrecognisedCounts], now: Duration) {
        if now < self.quiet_until {
            return;
        }
        self.reported.resize(counts.len(), 0);
        for (index, (counts, reported)) in counts.iter().zip(&mut self.reported).enumerate() {
            let new = counts.unrecognised + counts.unchecked - *reported;
            if new < MIN_REPORTED {
                continue;
            }
            warn!(
                "channel {}: dropped {new} datagrams that are of no client: somebody else sends to \
                 this channel, or a client has another key or was removed",
                index + 1
            );
            *reported += new;
            self.quiet_until = now.saturating_add(LOG_INTERVAL);
        }
    }
}
