//! Stretched links: emulated links whose hosts are at two sites.
//!
//! Each site has one end: a TUN device in the host that is there, and a UDP socket in the network
//! of the machine. The site emulates the direction that begins at its host. What has arrived there
//! goes to the other site in encrypted datagrams (`sealing`), which passes it to its host.

mod sealing;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::set_current_timer_slack;
use tun::TunFrame;
use udp::{DatagramBatch, DatagramReceiveBuffer, SocketBinding, UdpBatchSocket};

pub(crate) use sealing::StretchedLinkKey;

use super::device::LinkDevice;
use super::line::OneWayLink;
use super::{BATCH, EmulatedLinkConditions, LatenessHistogram, wait};
use crate::clock::now;
use crate::host::EmulatedHost;
use sealing::{FrameOpener, FrameSealer};

/// The properties of an end of a stretched link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinkEndOptions {
    /// The name of its interface in the host, at most 15 bytes.
    pub(crate) name: String,
    /// Its address in the host, in a /24.
    pub(crate) address: Ipv4Addr,
    /// The MTU, in bytes: 68 to 65535.
    pub(crate) mtu: u32,
    /// The congestion control of TCP connections over it. `None`: the system's.
    pub(crate) congestion: Option<String>,
    /// The conditions from this end to the other one, without those of the path.
    pub(crate) conditions: EmulatedLinkConditions,
    /// The seed of the random losses and delays.
    pub(crate) seed: u64,
    /// The UDP port of the machine that receives from the other site.
    pub(crate) port: u16,
    /// Where the other site receives.
    pub(crate) other: SocketAddr,
    /// The keys to the other site and from it.
    pub(crate) keys: [StretchedLinkKey; 2],
}

/// A frame that asks the other end whether it receives.
const GREETING: [u8; 1] = [0];

/// A frame that answers a greeting.
const GREETING_ANSWER: [u8; 1] = [1];

/// The time from a greeting to the next one, until there is an answer.
const GREETING_INTERVAL_NS: u64 = 20_000_000;

/// What an end of a stretched link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LinkEndReport {
    /// Whether both ends receive what the other one sends.
    pub(crate) is_joined: bool,
    /// The bytes of packets that it has sent to the other site.
    pub(crate) sent_bytes: u64,
    /// The 99th percentile of how late it has sent them, in ms.
    pub(crate) late_ms: f64,
    /// The 99th percentile of how late those of the other site have arrived, in ms: beyond the
    /// shortest time on the path in some 10 s, since they were due to be sent.
    pub(crate) path_late_ms: f64,
    /// How many packets this machine has dropped because it did not keep up.
    pub(crate) missed: u64,
    /// How many datagrams of the other site were lost on the path.
    pub(crate) lost: u64,
}

/// An end of a stretched link. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct StretchedLinkEnd {
    name: String,
    host: Arc<EmulatedHost>,
    shared: Arc<SharedLinkEnd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedLinkEnd {
    state: Mutex<LinkEndState>,
    /// Wakes the thread to read the state again.
    wake: std::os::fd::OwnedFd,
}

#[derive(Debug, Default)]
struct LinkEndState {
    report: LinkEndReport,
    lateness: LatenessHistogram,
    path_lateness: LatenessHistogram,
    is_stopped: bool,
}

impl StretchedLinkEnd {
    /// Connects a host to the host of another site.
    ///
    /// # Errors
    /// If a condition is impossible, a device cannot be created or set up, or the port is in use.
    pub(crate) fn new(host: Arc<EmulatedHost>, options: &LinkEndOptions) -> io::Result<Self> {
        let LinkEndOptions { name, address, mtu, congestion, .. } = options;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let conditions = options.conditions.checked().map_err(invalid)?;
        let device = host.run(|| LinkDevice::new(name))??;
        host.set_up(name, *address, *mtu, congestion.as_deref())?;
        let local: SocketAddr = match options.other {
            SocketAddr::V4(_) => ([0; 4], options.port).into(),
            SocketAddr::V6(_) => ([0_u16; 8], options.port).into(),
        };
        let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None });
        let socket = socket.map_err(|error| {
            io::Error::new(error.kind(), format!("UDP port {}: {error}", options.port))
        })?;
        let [to, from] = &options.keys;
        let end = LinkEndDriver {
            device,
            socket,
            other: options.other,
            line: OneWayLink::new(conditions, options.seed, now()),
            is_paced: conditions.rate_mbit.is_some(),
            sealer: FrameSealer::new(to),
            opener: FrameOpener::new(from),
            path: ShortestPathTime::default(),
            is_answered: false,
            greets_at: 0,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(SharedLinkEnd { state: Mutex::default(), wake });
        let thread = thread::Builder::new().name(format!("link {name}")).spawn({
            let shared = Arc::clone(&shared);
            move || end.run(&shared)
        })?;
        Ok(Self { name: name.clone(), host, shared, thread: Some(thread) })
    }

    /// What it has done until now.
    ///
    /// # Errors
    /// If the counters of the host cannot be read.
    pub(crate) fn report(&self) -> io::Result<LinkEndReport> {
        let dropped = self.host.dropped_packets(|name| name == self.name)?;
        let state = self.shared.lock();
        let late_ms = state.lateness.quantile_ms(0.99);
        let path_late_ms = state.path_lateness.quantile_ms(0.99);
        let missed = state.report.missed + dropped;
        Ok(LinkEndReport { late_ms, path_late_ms, missed, ..state.report })
    }
}

impl Drop for StretchedLinkEnd {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.lock().is_stopped = true;
        // It fails only if the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        let _ = thread.join();
    }
}

impl SharedLinkEnd {
    fn lock(&self) -> MutexGuard<'_, LinkEndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread of an end has.
struct LinkEndDriver {
    device: LinkDevice,
    socket: UdpBatchSocket,
    other: SocketAddr,
    line: OneWayLink,
    /// Whether the rate of the link is emulated. Otherwise superpackets are sent packet by packet,
    /// so that the path loses single packets, as it would without the link.
    is_paced: bool,
    sealer: FrameSealer,
    opener: FrameOpener,
    path: ShortestPathTime,
    /// Whether the other end has answered a greeting.
    is_answered: bool,
    /// When the next greeting is due.
    greets_at: u64,
}

/// How long a period is in which the shortest time on a path counts: the clocks of two machines
/// differ by some 0.2 ms more after it.
const PERIOD_NS: u64 = 10_000_000_000;

/// The shortest time on a path, of this period and the one before. Times contain the difference of
/// two clocks.
#[derive(Debug, Default)]
struct ShortestPathTime {
    /// When the period has begun.
    began: u64,
    before: Option<i64>,
    now: Option<i64>,
}

impl ShortestPathTime {
    /// How much longer than the shortest time a packet took that was due at one time of the
    /// sender's clock, and has arrived at a time of this one.
    fn lateness(&mut self, due: u64, arrived: u64) -> u64 {
        let time = arrived.wrapping_sub(due).cast_signed();
        if arrived.saturating_sub(self.began) > PERIOD_NS {
            (self.began, self.before, self.now) = (arrived, self.now, None);
        }
        self.now = Some(self.now.map_or(time, |shortest| shortest.min(time)));
        let shortest = self.before.into_iter().chain(self.now).min().unwrap_or(time);
        u64::try_from(time.saturating_sub(shortest)).unwrap_or(0)
    }
}

impl LinkEndDriver {
    /// Moves packets until the end is removed.
    fn run(mut self, shared: &SharedLinkEnd) {
        // By default the kernel wakes a thread up to 50 µs late.
        let _ = set_current_timer_slack(NonZero::new(1));
        let (mut batch, mut received) = (DatagramBatch::default(), DatagramReceiveBuffer::new());
        while !shared.lock().is_stopped {
            for _ in 0..BATCH {
                // A device that fails has no packets.
                let Ok(Some(frame)) = self.device.read() else { break };
                self.line.offer(now(), &frame);
            }
            self.send(&mut batch, shared);
            self.receive(&mut received, &mut batch, shared);
            if !self.is_answered && now() >= self.greets_at {
                self.greets_at = now() + GREETING_INTERVAL_NS;
                self.greet(&GREETING, &mut batch);
            }
            let greets_at = (!self.is_answered).then_some(self.greets_at);
            let next = self.line.next_arrival().into_iter().chain(greets_at).min();
            let fds = [self.device.as_fd(), self.socket.as_fd(), shared.wake.as_fd()];
            wait(fds, &shared.wake, next);
        }
    }

    /// Sends a frame for the other end itself.
    fn greet(&mut self, frame: &[u8], batch: &mut DatagramBatch) {
        self.sealer.seal(frame, now(), batch);
        // It is sent again if it is lost.
        let _ = self.socket.send(batch, self.other);
        batch.clear();
    }

    /// Sends the packets that have crossed the emulated link.
    fn send(&mut self, batch: &mut DatagramBatch, shared: &SharedLinkEnd) {
        let mut due_first = None;
        let mut sent_bytes = 0;
        while !batch.is_full() {
            let Some((due, frame)) = self.line.take_arrived(now()) else { break };
            due_first.get_or_insert(due);
            sent_bytes += frame.wire_len() as u64;
            if self.is_paced {
                self.sealer.seal(&frame.to_bytes(), due, batch);
                continue;
            }
            for segment in 0..frame.segments() {
                self.sealer.seal(&frame.part(segment..segment + 1).to_bytes(), due, batch);
            }
        }
        let Some(due) = due_first else { return };
        let datagrams = batch.runs().map(|(bytes, len)| bytes.len().div_ceil(len)).sum::<usize>();
        let accepted = self.socket.send(batch, self.other).datagrams;
        batch.clear();
        let mut state = shared.lock();
        state.lateness.add(now().saturating_sub(due));
        state.report.sent_bytes += sent_bytes;
        state.report.missed += datagrams.saturating_sub(accepted) as u64;
    }

    /// Passes what has arrived from the other site to the host.
    fn receive(
        &mut self,
        received: &mut DatagramReceiveBuffer,
        batch: &mut DatagramBatch,
        shared: &SharedLinkEnd,
    ) {
        let mut missed = 0;
        let mut is_greeted = false;
        let mut late = Vec::new();
        // A socket that fails has no datagrams.
        let _ = received.receive(&self.socket);
        for (_, datagram) in received.datagrams() {
            let Some((frame, due)) = self.opener.open(datagram) else { continue };
            let lateness = self.path.lateness(due, now());
            is_greeted |= frame[..] == GREETING;
            self.is_answered |= frame[..] == GREETING_ANSWER;
            let Some(frame) = TunFrame::parse(frame) else { continue };
            missed += u64::from(!self.device.write(&frame));
            late.push(lateness);
        }
        if is_greeted {
            self.greet(&GREETING_ANSWER, batch);
        }
        let mut state = shared.lock();
        state.report.is_joined = self.is_answered && self.opener.has_any();
        for late in late {
            state.path_lateness.add(late);
        }
        state.report.missed += missed;
        state.report.lost = self.opener.lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_late_beyond_the_shortest_time_of_two_periods() {
        let mut path = ShortestPathTime::default();
        // The sender's clock is ahead of this one.
        let sent = |at: u64| at + 5_000_000_000;
        let mut late = |at: u64, took: u64| path.lateness(sent(at), at + took);
        assert_eq!(late(1_000, 700), 0);
        assert_eq!(late(2_000, 600), 0);
        assert_eq!(late(3_000, 900), 300);
        // The period before counts, and not the one before that.
        assert_eq!(late(PERIOD_NS + 10_000, 800), 200);
        assert_eq!(late(2 * PERIOD_NS + 30_000, 1_000), 200);
        assert_eq!(late(3 * PERIOD_NS + 50_000, 1_100), 100);
    }
}
