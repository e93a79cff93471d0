//! Links: emulated connections between two hosts.
//!
//! Each end is a TUN device in its host. A thread moves packets between the devices according to
//! the [`EmulatedLinkConditions`]. All decisions are made in [`line`], which uses no device and no
//! clock; this file uses both and makes no decision. A link between hosts at two sites is
//! [stretched].

mod conditions;
mod device;
mod impairment;
mod line;
mod stretched;
mod tap;

use std::io;
use std::net::Ipv4Addr;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use rustix::time::Timespec;
use tun::TunFrame;

pub use conditions::{EmulatedLinkConditions, ImpossibleCondition};
pub use line::LinkCounters;
pub(crate) use stretched::{LinkEndOptions, LinkEndReport, StretchedLinkEnd, StretchedLinkKey};

use crate::clock::now;
use crate::host::EmulatedHost;
use device::LinkDevice;
use line::OneWayLink;
use tap::LinkTap;

/// The number of packets that are read or written in one direction before the other one is served.
const BATCH: usize = 64;

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDirection {
    /// From the first host to the second.
    Forward,
    /// From the second host to the first.
    Back,
}

impl LinkDirection {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Back];
}

/// The properties of a new link.
#[derive(Clone, Debug)]
pub struct LinkOptions<'a> {
    /// The name of its interface in both hosts, at most 15 bytes.
    pub name: &'a str,
    /// The addresses of its ends, in one /24.
    pub addresses: [Ipv4Addr; 2],
    /// The MTU, in bytes: 68 to 65535.
    pub mtu: u32,
    /// The congestion control of TCP connections over it. `None`: the system's.
    pub congestion: Option<&'a str>,
    /// The conditions forward and back.
    pub conditions: [EmulatedLinkConditions; 2],
    /// The seed of the random losses and delays.
    pub seed: u64,
    /// The pcapng file to which all transmitted packets are written.
    pub tap: Option<&'a Path>,
}

/// A link between two hosts. Dropping it removes it.
#[derive(Debug)]
pub struct EmulatedLink {
    shared: Arc<SharedLinkEmulator>,
    thread: Option<JoinHandle<Option<LinkTap>>>,
}

#[derive(Debug)]
struct SharedLinkEmulator {
    state: Mutex<LinkEmulatorState>,
    /// Wakes the thread to read the state again.
    wake: OwnedFd,
}

#[derive(Debug)]
struct LinkEmulatorState {
    lines: [OneWayLink; 2],
    lateness: [LatenessHistogram; 2],
    refused: u64,
    is_stopped: bool,
}

/// A histogram of the lateness of delivered packets: actual minus scheduled time of delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatenessHistogram {
    /// The i-th entry counts latenesses below 2^((i+1)/8) µs and not below the previous bound.
    steps: Vec<u64>,
}

impl EmulatedLink {
    /// Connects two hosts.
    ///
    /// # Errors
    /// If a condition is impossible, or a device cannot be created or set up.
    pub fn new(hosts: [&EmulatedHost; 2], options: &LinkOptions<'_>) -> io::Result<Self> {
        for conditions in options.conditions {
            conditions
                .checked()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        let attach = |i: usize| {
            let end = hosts[i].run(|| LinkDevice::new(options.name))??;
            let address = options.addresses[i];
            hosts[i].set_up(options.name, address, options.mtu, options.congestion)?;
            Ok::<_, io::Error>(end)
        };
        let ends = [attach(0)?, attach(1)?];
        let start = now();
        let line =
            |i: usize| OneWayLink::new(options.conditions[i], options.seed ^ i as u64, start);
        let mut lines = [0, 1].map(line);
        let tap = options.tap.map(|path| LinkTap::new(path, options.name)).transpose()?;
        if tap.is_some() {
            lines.iter_mut().for_each(OneWayLink::tap);
        }
        let state = LinkEmulatorState {
            lines,
            lateness: Default::default(),
            refused: 0,
            is_stopped: false,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(SharedLinkEmulator { state: Mutex::new(state), wake });
        let thread = thread::Builder::new().name(format!("link {}", options.name)).spawn({
            let shared = Arc::clone(&shared);
            move || run(ends, &shared, tap)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Changes the conditions in one direction from now on.
    ///
    /// # Errors
    /// If a condition is impossible.
    pub fn set(
        &self,
        direction: LinkDirection,
        conditions: EmulatedLinkConditions,
    ) -> Result<(), ImpossibleCondition> {
        let conditions = conditions.checked()?;
        self.shared.lock().lines[direction as usize].set(now(), conditions);
        self.shared.wake();
        Ok(())
    }

    /// How many packets and superpackets the hosts' kernels refused from the link.
    pub fn refused(&self) -> u64 {
        self.shared.lock().refused
    }

    /// The counters of one direction.
    pub fn counts(&self, direction: LinkDirection) -> LinkCounters {
        self.shared.lock().lines[direction as usize].counts()
    }

    /// The lateness in one direction.
    pub fn lateness(&self, direction: LinkDirection) -> LatenessHistogram {
        self.shared.lock().lateness[direction as usize].clone()
    }

    /// Removes the link's devices and completes the tap's file.
    ///
    /// # Errors
    /// If the tap's file could not be written; the error names it.
    pub fn remove(mut self) -> io::Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.lock().is_stopped = true;
        self.shared.wake();
        let tap = thread.join().map_err(|_| io::Error::other("a link's thread failed"))?;
        tap.map_or(Ok(()), LinkTap::finish)
    }
}

impl Drop for EmulatedLink {
    fn drop(&mut self) {
        // Callers that need to know whether the tap's file is complete call `remove`.
        let _ = self.stop();
    }
}

impl SharedLinkEmulator {
    fn lock(&self) -> MutexGuard<'_, LinkEmulatorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only if the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Moves packets between two devices until the link is removed. Returns the tap.
fn run(
    mut ends: [LinkDevice; 2],
    shared: &SharedLinkEmulator,
    tap: Option<LinkTap>,
) -> Option<LinkTap> {
    // By default the kernel wakes a thread up to 50 µs late, to wake several at once. If it refuses
    // the change, the lateness shows it.
    let _ = set_current_timer_slack(NonZero::new(1));
    loop {
        for (from, to) in [(0, 1), (1, 0)] {
            receive(&mut ends[from], shared, from);
            deliver(&ends[to], shared, from);
            if let Some(tap) = &tap {
                let tapped: Vec<(u64, TunFrame)> =
                    shared.lock().lines[from].take_tapped().collect();
                for (sent, frame) in tapped {
                    tap.record(from, sent, frame);
                }
            }
        }
        let state = shared.lock();
        if state.is_stopped {
            return tap;
        }
        let next = state.lines.iter().filter_map(OneWayLink::next_arrival).min();
        drop(state);
        wait([ends[0].as_fd(), ends[1].as_fd(), shared.wake.as_fd()], &shared.wake, next);
    }
}

/// Reads packets from the kernel. The state is not locked during system calls.
fn receive(end: &mut LinkDevice, shared: &SharedLinkEmulator, line: usize) {
    for _ in 0..BATCH {
        // A device that fails has no packets.
        let Ok(Some(frame)) = end.read() else { return };
        shared.lock().lines[line].offer(now(), &frame);
    }
}

/// Delivers the packets that have arrived.
fn deliver(end: &LinkDevice, shared: &SharedLinkEmulator, line: usize) {
    for _ in 0..BATCH {
        let Some((due, frame)) = shared.lock().lines[line].take_arrived(now()) else { return };
        let is_accepted = end.write(&frame);
        let mut state = shared.lock();
        state.refused += u64::from(!is_accepted);
        state.lateness[line].add(now().saturating_sub(due));
    }
}

/// Waits until one of the ends can be read, the last of which is that of `wake`, or until a time.
fn wait(ends: [BorrowedFd<'_>; 3], wake: &OwnedFd, until: Option<u64>) {
    let mut events = ends.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    let timeout = until.map(|until| {
        let left = until.saturating_sub(now());
        Timespec {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            tv_nsec: (left % 1_000_000_000).cast_signed(),
        }
    });
    // The caller checks everything again, interrupted or not.
    let _ = poll(&mut events, timeout.as_ref());
    if !events[2].revents().is_empty() {
        let _ = rustix::io::read(wake, &mut [0_u8; 8]);
    }
}

impl LatenessHistogram {
    fn add(&mut self, late: u64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "64 * 8 at most"
        )]
        let step = ((late as f64 / 1000.0).max(1.0).log2() * 8.0) as usize;
        if self.steps.len() <= step {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] += 1;
    }

    /// The quantile of the lateness at `part`, in ms, rounded up by at most a tenth. Zero if no
    /// packets were delivered.
    pub fn quantile_ms(&self, part: f64) -> f64 {
        let total: u64 = self.steps.iter().sum();
        let mut seen = 0;
        let step = self.steps.iter().position(|count| {
            seen += count;
            seen > 0 && seen as f64 >= part * total as f64
        });
        step.map_or(0.0, |step| ((step + 1) as f64 / 8.0).exp2() / 1000.0)
    }
}
