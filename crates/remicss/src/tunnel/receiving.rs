//! The thread that receives: shares from the channels, packets to the device. It also does what the
//! handshake needs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::Subset;
use tracing::{debug, info, warn};
use tun::ip::{packet_len, source};
use tun::{Checksum, Coalescer, Device, Superpacket};
use zeroize::Zeroizing;

use super::planning::Request;
use super::sending::Command;
use super::shared::{Clock, lock};
use super::wake::Wake;
use crate::control::strangers::Strange;
use crate::endpoint::common::Common;
use crate::endpoint::event::{Event, Packets};
use crate::endpoint::inbound::Inbound;
use crate::endpoint::outbound::Order;
use crate::recv::receiver::{Counts, Received};
use crate::tunnel::sources::Sources;
use crate::tunnel::udp::{Channel, Inbox};
use crate::wire::control::State;
use crate::wire::datagram::Kind;
use crate::wire::keys::Keys;

/// How often a channel that has more is read before the others have their turn.
const TURNS: usize = 4;

/// What the thread works with.
pub(super) struct Receiving {
    pub(super) device: Arc<Device>,
    pub(super) channels: Vec<Channel>,
    pub(super) inbound: Inbound,
    pub(super) wake: Wake,
    pub(super) clock: Clock,
    pub(super) common: Arc<Mutex<Common>>,
    pub(super) counts: Arc<Mutex<ReceivingCounts>>,
    pub(super) sending: Sender<Command>,
    pub(super) wake_sending: Wake,
    pub(super) planning: Sender<Request>,
    /// The tunnel's MTU, and what is added to a packet to be a datagram.
    pub(super) mtu: usize,
    pub(super) overhead: usize,
    /// The channels' risks.
    pub(super) risks: Vec<f64>,
    /// What the peer's packets may have as their source.
    pub(super) sources: Sources,
    pub(super) stops: Arc<AtomicBool>,
}

/// What the thread has done.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivingCounts {
    /// Of the association of now.
    pub(super) receiver: Counts,
    /// The highest number of a symbol that has verified.
    pub(super) highest: u64,
    /// And of each of its channels.
    pub(super) channels: Vec<Received>,
    /// Where the peer is on each channel, if there is one.
    pub(super) peers: Vec<SocketAddr>,
    /// What strangers have sent to each channel, since the beginning.
    pub(super) strangers: Vec<Strange>,
    /// Packets that were not passed on, as they were none.
    pub(super) malformed: u64,
    /// Packets that were not passed on, as the peer may not send in the name of their source.
    pub(super) not_allowed: u64,
    /// Packets that the device did not take.
    pub(super) refused: u64,
    /// Whether there is an association.
    pub(super) is_associated: bool,
}

impl Receiving {
    /// Receives until it is told to stop.
    pub(super) fn run(mut self) {
        let mut inbox = Inbox::new();
        let mut arena = Arena::new(self.sources.clone());
        let mut merges_udp = self.device.cuts_udp();
        while !self.stops.load(Ordering::Relaxed) {
            let now = self.clock.now();
            let patience = self.inbound.poll_timeout().map(|at| at.saturating_sub(now));
            let sources: Vec<BorrowedFd<'_>> = self.channels.iter().map(AsFd::as_fd).collect();
            let ready = self.wake.wait(&sources, patience);
            for channel in (0..ready.len()).filter(|channel| ready[*channel]) {
                self.receive(channel, &mut inbox, &mut arena);
            }
            self.tend(&mut arena);
            arena.write(&self.device, &mut merges_udp, &self.counts);
            arena.foreign.tell(self.clock.now());
        }
    }

    /// Takes what has come on a channel.
    fn receive(&mut self, channel: usize, inbox: &mut Inbox, arena: &mut Arena) {
        for _ in 0..TURNS {
            let more = match inbox.receive(&self.channels[channel]) {
                Ok(more) => more,
                Err(error) => {
                    debug!("channel {}: {error}", channel + 1);
                    return;
                }
            };
            let now = self.clock.now();
            for (from, datagram) in inbox.datagrams() {
                self.inbound.handle_datagram(channel, from, datagram, now, arena);
            }
            if !more {
                return;
            }
        }
    }

    /// Does what is due, and tells the others.
    fn tend(&mut self, arena: &mut Arena) {
        let now = self.clock.now();
        let mut common = lock(&self.common);
        let has_heard = self.inbound.tend(&mut common, now, arena);
        let situation = has_heard.then(|| common.poll_situation(&self.risks, now)).flatten();
        let changes = if has_heard { common.poll_changes(now) } else { Vec::new() };
        drop(common);
        while let Some((channel, to, bytes)) = self.inbound.poll_transmit(now) {
            if !self.channels[channel].send_one(&bytes, to) {
                self.inbound.handle_refusal(channel, &bytes, now);
            }
        }
        let mut begins = None;
        while let Some(event) = self.inbound.poll_event() {
            begins = self.follow(event).or(begins);
        }
        for change in changes {
            match change.now {
                State::Up => info!("{change}"),
                State::Down | State::Quarantine => warn!("{change}"),
            }
        }
        if let Some(situation) = situation {
            // If the planner is gone, this thread is about to end, too.
            let _ = self.planning.send(Request { begins, situation });
        }
        let mut counts = lock(&self.counts);
        counts.strangers = self.inbound.strangers();
        counts.peers = self.inbound.peers();
        if let Some((receiver, channels)) = self.inbound.counts() {
            (counts.receiver, counts.channels) = (receiver, channels);
            counts.highest = self.inbound.highest();
        }
    }

    /// All channels carry datagrams of this length. The device's MTU is only ever lowered, since what
    /// is under way may be as long as it was.
    fn set_room(&mut self, datagram: usize) {
        let mtu = datagram.saturating_sub(self.overhead);
        if mtu >= self.mtu {
            debug!("the channels carry datagrams of {datagram} bytes");
            return;
        }
        info!("the channels carry datagrams of {datagram} bytes: the tunnel's MTU is {mtu} now");
        self.mtu = mtu;
        let _ = self.sending.send(Command::Room { datagram, mtu });
        self.wake_sending.wake();
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        if let Err(error) = tun::interface::set_mtu(self.device.name(), mtu) {
            warn!("cannot set the MTU of {}: {error}", self.device.name());
        }
    }

    /// Does what an event asks for. Returns the keys of an association that begins.
    fn follow(&mut self, event: Event) -> Option<Keys> {
        match event {
            Event::Associated { keys, peers } => {
                tell_members(keys.members, peers.len());
                lock(&self.counts).is_associated = true;
                let _ = self.sending.send(Command::Peers(peers));
                return Some(keys);
            }
            Event::Moved { channel, to } => {
                info!("channel {}: the peer is at {to} now", channel + 1);
                let _ = self.sending.send(Command::Peer { channel, to });
                self.wake_sending.wake();
            }
            Event::NotMoved { channel, to, why } => {
                warn!("channel {}: the peer's shares came from {to}, {why}", channel + 1);
            }
            Event::Strangers(report) => warn!("{report}"),
            Event::Room(datagram) => self.set_room(datagram),
            Event::Gone => {
                lock(&self.counts).is_associated = false;
                let _ = self.sending.send(Command::Order(Order::Dissociate));
                self.wake_sending.wake();
                warn!("the peer does not answer");
            }
            Event::Failed(failure) => warn!("{failure}; trying again"),
            Event::Refused { channel: Some(channel), reason } => {
                warn!("channel {}: {reason}", channel + 1);
            }
            Event::Refused { channel: None, reason } => warn!("{reason}"),
        }
        None
    }
}

/// How often it is said that the peer sends in others' names.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Says over which channels the ends are associated.
fn tell_members(members: Subset, channels: usize) {
    let missing = (0..channels).filter(|channel| !members.contains(*channel));
    let missing: Vec<String> = missing.map(|channel| (channel + 1).to_string()).collect();
    if missing.is_empty() {
        info!("associated over {channels} channels");
    } else {
        let plural = if missing.len() == 1 { "" } else { "s" };
        warn!(
            "associated over {} of {channels} channels: channel{plural} {} did not answer, and will be \
             used as soon as it does",
            members.len(),
            missing.join(", ")
        );
    }
}

/// Packets that were received and not written yet.
struct Arena {
    bytes: Zeroizing<Vec<u8>>,
    packets: Vec<(Range<usize>, Checksum)>,
    malformed: u64,
    sources: Sources,
    foreign: Foreign,
}

/// Packets that were dropped because of their source.
#[derive(Default)]
struct Foreign {
    count: u64,
    /// How many of them are in the counts, and how many have been told of, when.
    counted: u64,
    told: u64,
    told_at: Option<Duration>,
    /// The source of the last.
    last: Option<IpAddr>,
}

impl Foreign {
    fn tell(&mut self, now: Duration) {
        let is_due = self.told_at.is_none_or(|at| now >= at.saturating_add(TELL_EVERY));
        let (true, Some(last)) = (is_due && self.count > self.told, self.last) else { return };
        warn!(
            "dropped {} packets of the peer that were not from one of its addresses, the last from {last}: if \
             that is the peer's, or behind it, add its network to `allowed`, or to `routes`",
            self.count - self.told
        );
        (self.told, self.told_at) = (self.count, Some(now));
    }
}

impl Packets for Arena {
    fn take(&mut self, kind: Kind, packets: &[u8]) {
        let checksum = match kind {
            Kind::PartialPacket => Checksum::Partial,
            Kind::Packet | Kind::Control => Checksum::Complete,
        };
        let mut rest = packets;
        while let Some(length) = packet_len(rest) {
            let (packet, behind) = rest.split_at(length);
            rest = behind;
            if !self.sources.allows(packet) {
                self.foreign.count += 1;
                self.foreign.last = source(packet);
                continue;
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(packet);
            self.packets.push((start..self.bytes.len(), checksum));
        }
        self.malformed += u64::from(!rest.is_empty());
    }
}

impl Arena {
    fn new(sources: Sources) -> Self {
        Self {
            bytes: Zeroizing::default(),
            packets: Vec::new(),
            malformed: 0,
            sources,
            foreign: Foreign::default(),
        }
    }

    /// Writes all packets to the device, as few as they can be.
    fn write(&mut self, device: &Device, merges_udp: &mut bool, counts: &Mutex<ReceivingCounts>) {
        let foreign = self.foreign.count - self.foreign.counted;
        if self.packets.is_empty() && self.malformed == 0 && foreign == 0 {
            return;
        }
        let (mut refused, mut refuses_udp) = (0, false);
        let mut hand_over = |superpacket: &Superpacket<'_>| {
            let Err(error) = device.write(&superpacket.slices()) else { return };
            if error.kind() != io::ErrorKind::InvalidInput {
                refused += superpacket.segments().len() as u64;
                return;
            }
            // Some kernels refuse superpackets of UDP.
            refuses_udp = true;
            for segment in superpacket.segments() {
                refused += u64::from(device.write(&segment.slices()).is_err());
            }
        };
        let mut coalescer = Coalescer::new(*merges_udp);
        for (place, checksum) in &self.packets {
            let packet = &self.bytes[place.clone()];
            if coalescer.push(packet, *checksum, &mut hand_over).is_err() {
                self.malformed += 1;
            }
        }
        coalescer.flush(&mut hand_over);
        *merges_udp &= !refuses_udp;
        let mut counts = lock(counts);
        counts.malformed += self.malformed;
        counts.refused += refused;
        counts.not_allowed += foreign;
        self.foreign.counted = self.foreign.count;
        self.malformed = 0;
        self.packets.clear();
        self.bytes.clear();
    }
}
