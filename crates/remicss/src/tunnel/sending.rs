//! The thread that sends: packets from the device, shares to the channels.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::Threshold;
use rustix::thread::set_current_timer_slack;
use tun::ip::{clamp_mss, flow, packet_len};
use tun::{Checksum, Device, LONGEST, Segments};
use zeroize::Zeroizing;

use super::shared::{Clock, lock};
use super::wake::Wake;
use crate::endpoint::common::Common;
use crate::endpoint::outbound::{Order, Outbound};
use crate::send::batch::Batch;
use crate::send::queue::{self, Queue};
use crate::send::sender::{Counts, NotSent};
use crate::tunnel::udp::Channel;
use crate::wire::datagram::Kind;

/// What this thread is told.
pub(super) enum Command {
    /// For the protocol.
    Order(Order),
    /// Where each channel leads.
    Peers(Vec<SocketAddr>),
    /// Where a channel leads now.
    Peer { channel: usize, to: SocketAddr },
    /// The longest datagram that all channels carry, and the longest packet of the device, in bytes.
    Room { datagram: usize, mtu: usize },
    /// End.
    Stop,
}

/// How much longer than until its channels are ready a symbol waits, so that whole runs of datagrams
/// leave at once. The sender makes up for it.
const GATHER: Duration = Duration::from_micros(300);

/// How often to look for an association while there is none. Orders wake the thread anyway.
const UNASSOCIATED: Duration = Duration::from_millis(100);

/// A batch with as many bytes is sent at once: two runs.
const ENOUGH: usize = 128 << 10;

/// What the thread works with.
pub(super) struct Sending {
    pub(super) device: Arc<Device>,
    pub(super) channels: Vec<Channel>,
    pub(super) commands: Receiver<Command>,
    pub(super) wake: Wake,
    pub(super) clock: Clock,
    pub(super) common: Arc<Mutex<Common>>,
    pub(super) counts: Arc<Mutex<SendingCounts>>,
    pub(super) mtu: usize,
}

/// What the thread has done.
#[derive(Clone, Debug, Default)]
pub(super) struct SendingCounts {
    /// Of the association of now.
    pub(super) sender: Counts,
    /// How many of its symbols each threshold was used for, some tenths of a second ago.
    pub(super) uses: Vec<(Threshold, u64)>,
    /// Datagrams that the kernel did not take, on each channel.
    pub(super) refused: Vec<u64>,
    /// Packets that were dropped as there was no association.
    pub(super) unconnected: u64,
    /// Packets or superpackets that were dropped as too many waited for the channels.
    pub(super) queued: u64,
}

/// The thread at work.
struct Work {
    means: Sending,
    outbound: Outbound,
    peers: Vec<SocketAddr>,
    batches: Vec<Batch>,
    /// What was fetched from the device while channels were busy.
    queue: Queue,
    /// Where frames are read to while another is being sent.
    frame: Zeroizing<Vec<u8>>,
    /// When the next control message is due.
    due: Duration,
    is_over: bool,
}

impl Sending {
    /// Sends until it is told to stop.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn run(self) -> Result<(), String> {
        // By default the kernel wakes a thread up to 50 µs late, which for a fast channel is much.
        let _ = set_current_timer_slack(std::num::NonZero::new(1));
        let batches = self.channels.iter().map(|_| Batch::default()).collect();
        lock(&self.counts).refused = vec![0; self.channels.len()];
        let work = Work {
            means: self,
            outbound: Outbound::default(),
            peers: Vec::new(),
            batches,
            queue: Queue::default(),
            frame: Zeroizing::new(vec![0; LONGEST]),
            due: Duration::ZERO,
            is_over: false,
        };
        work.run()
    }
}

impl Work {
    fn run(mut self) -> Result<(), String> {
        let mut frame = Zeroizing::new(vec![0; LONGEST]);
        while !self.is_over {
            let now = self.tend();
            if let Some(next) = self.queue.pop(now) {
                self.count_dropped(next.dropped + u64::from(next.drops_first));
                self.send(&next.frame, usize::from(next.drops_first), now)?;
            } else if let Some(length) = self.read(&mut frame)? {
                self.send(&frame[..length], 0, now)?;
            } else {
                self.rest();
            }
        }
        Ok(())
    }

    /// Reads a frame from the device, if it has one, and returns its length.
    fn read(&self, frame: &mut [u8]) -> Result<Option<usize>, String> {
        match self.means.device.read(frame) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => {
                let name = self.means.device.name();
                Err(match error.raw_os_error() {
                    Some(libc::EBADFD) => format!("the device {name} was deleted"),
                    _ => format!("cannot read from {name}: {error}"),
                })
            }
        }
    }

    /// Does what was ordered and what is due. Returns the time, which takes as long to look up as a token to
    /// make.
    fn tend(&mut self) -> Duration {
        while let Ok(command) = self.means.commands.try_recv() {
            match command {
                Command::Order(order) => self.outbound.handle_order(order),
                Command::Peers(peers) => {
                    self.peers = peers;
                    self.due = Duration::ZERO;
                }
                Command::Peer { channel, to } => self.peers[channel] = to,
                Command::Room { datagram, mtu } => {
                    self.outbound.set_room(datagram);
                    self.means.mtu = mtu;
                }
                Command::Stop => self.is_over = true,
            }
        }
        let now = self.means.clock.now();
        if now < self.due {
            return now;
        }
        let mut common = lock(&self.means.common);
        let next = self.outbound.tend(&mut common, now, &mut self.batches);
        drop(common);
        self.due = next.unwrap_or(now + UNASSOCIATED);
        lock(&self.means.counts).uses = self.outbound.uses();
        self.flush();
        now
    }

    /// Sends a frame's packets from the one with this index on, each as a symbol. The last one takes
    /// along what waits behind it.
    fn send(&mut self, frame: &[u8], first: usize, now: Duration) -> Result<(), String> {
        let Some(segments) = Segments::parse(frame) else { return Ok(()) };
        let checksum = segments.checksum();
        let kind = match checksum {
            Checksum::Complete => Kind::Packet,
            Checksum::Partial => Kind::PartialPacket,
        };
        let mtu = self.means.mtu;
        let longest = now + queue::LONGEST;
        for index in first..segments.count() {
            // One superpacket may have thousands of segments, if somebody means it to.
            if index % 64 == 63 && self.means.clock.now() > longest {
                self.count_dropped(1);
                break;
            }
            let Some(symbol) = self.outbound.begin() else {
                lock(&self.means.counts).unconnected += (segments.count() - index) as u64;
                return Ok(());
            };
            let packet = append(&segments, index, mtu, symbol);
            let flow = flow(packet);
            if index + 1 == segments.count() && packet_len(packet) == Some(packet.len()) {
                self.take_along(checksum, flow);
            }
            self.finish(kind, flow)?;
        }
        if self.batches.iter().any(|batch| batch.len() >= ENOUGH) {
            self.flush();
        }
        Ok(())
    }

    /// Adds small packets that wait to the symbol under way, which has one of their flow. So small
    /// packets share the headers where channels are the bottleneck; and where they are not, nothing
    /// waits, and nothing is waited for.
    fn take_along(&mut self, checksum: Checksum, to: u16) {
        if self.queue.is_empty() {
            return;
        }
        let now = self.means.clock.now();
        while let Some((symbol, room)) = self.outbound.symbol() {
            let fits = |frame: &[u8]| {
                Segments::parse(frame).is_some_and(|segments| {
                    let packet = segments.packet();
                    segments.count() == 1
                        && packet.len() <= room
                        && packet_len(packet) == Some(packet.len())
                        && segments.checksum() == checksum
                        && flow(packet) == to
                })
            };
            let Some(next) = self.queue.pop_if(now, fits) else { return };
            if next.drops_first {
                self.count_dropped(1);
            } else if let Some(segments) = Segments::parse(&next.frame) {
                append(&segments, 0, self.means.mtu, symbol);
            }
        }
    }

    /// Counts packets or superpackets that waited for too long.
    fn count_dropped(&self, dropped: u64) {
        if dropped > 0 {
            lock(&self.means.counts).queued += dropped;
        }
    }

    /// Sends the symbol under way, when its channels are ready.
    fn finish(&mut self, kind: Kind, flow: u16) -> Result<(), String> {
        while !self.is_over {
            let now = self.means.clock.now();
            match self.outbound.finish(kind, flow, now, &mut self.batches) {
                Err(NotSent::Wait(until)) => {
                    self.flush();
                    self.wait(until)?;
                    self.tend();
                }
                Err(NotSent::Full) => self.flush(),
                // It was sent, or dropped and counted.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits for busy channels, and for a little longer, and fetches what comes meanwhile. Ends early
    /// if there are orders.
    fn wait(&mut self, until: Duration) -> Result<(), String> {
        let mut now = self.means.clock.now();
        if until <= now {
            return Ok(());
        }
        let end = (until + GATHER).min(self.due);
        while now < end {
            let device = [self.means.device.as_fd()];
            let sources = if self.queue.is_full() { &[][..] } else { &device };
            if !self.means.wake.wait(sources, Some(end.saturating_sub(now))).contains(&true) {
                break;
            }
            let mut frame = std::mem::take(&mut self.frame);
            let length = self.read(&mut frame)?;
            now = self.means.clock.now();
            if let Some(length) = length {
                self.queue.push(Zeroizing::new(frame[..length].to_vec()), now);
            }
            self.frame = frame;
        }
        Ok(())
    }

    /// Waits for packets or orders.
    fn rest(&mut self) {
        self.flush();
        self.outbound.rest();
        let patience = self.due.saturating_sub(self.means.clock.now());
        self.means.wake.wait(&[self.means.device.as_fd()], Some(patience));
    }

    /// Sends what waits in the batches.
    fn flush(&mut self) {
        let mut counts = lock(&self.means.counts);
        for (index, batch) in self.batches.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            if let Some(peer) = self.peers.get(index) {
                let sent = self.means.channels[index].send(batch, *peer);
                counts.refused[index] += sent.refused as u64;
            }
            batch.clear();
        }
        if let Some(sender) = self.outbound.counts() {
            counts.sender = *sender;
        }
    }
}

/// Appends a segment to a symbol, its MSS within the tunnel's MTU, and returns it.
fn append<'a>(
    segments: &Segments<'_>,
    index: usize,
    mtu: usize,
    symbol: &'a mut Vec<u8>,
) -> &'a [u8] {
    let start = symbol.len();
    segments.append(index, symbol);
    clamp_mss(&mut symbol[start..], mtu, segments.checksum());
    &symbol[start..]
}
