//! Links: two hosts joined by an emulated wire.
//!
//! Each end is a TUN device in its host. A thread carries packets between them and does to them
//! what the [`Conditions`] say. What is decided is decided in [`line`], which knows no device and
//! no clock; this file knows both and decides nothing.

mod conditions;
mod device;
mod fate;
mod line;
mod tap;

use std::io;
use std::net::Ipv4Addr;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use rustix::time::Timespec;
use tun::Frame;

pub use conditions::{Conditions, ImpossibleCondition};
pub use line::Counts;

use crate::clock::now;
use crate::host::Host;
use device::LinkDevice;
use line::Line;
use tap::Tap;

/// How many packets are read from one end, or handed to it, before the other gets its turn.
const BATCH: usize = 64;

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first host to the second.
    Forward,
    /// From the second host to the first.
    Back,
}

impl Direction {
    /// Either direction.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Back];
}

/// What a link is like when it is made.
#[derive(Clone, Debug)]
pub struct LinkOptions<'a> {
    /// The name of its interface in either host, at most 15 bytes.
    pub name: &'a str,
    /// The address of either end, in one /24.
    pub addresses: [Ipv4Addr; 2],
    /// The longest packet, in bytes: 68 to 65535.
    pub mtu: u32,
    /// The congestion control of TCP connections over it, if not the system's.
    pub congestion: Option<&'a str>,
    /// What it does forward and back.
    pub conditions: [Conditions; 2],
    /// What its chances come from.
    pub seed: u64,
    /// The pcapng file to write what passes on the wire to.
    pub tap: Option<&'a Path>,
}

/// A link between two hosts. It is cut when this is dropped.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    carrier: Option<JoinHandle<Option<Tap>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Written to when the carrier is to look at the state again.
    wake: OwnedFd,
}

#[derive(Debug)]
struct State {
    lines: [Line; 2],
    lateness: [Lateness; 2],
    refused: u64,
    is_cut: bool,
}

/// How late packets were handed over, compared with when they should have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How many were less than 2^((i+1)/8) µs late, and not less than the next lower such time.
    steps: Vec<u64>,
}

impl Link {
    /// Joins two hosts.
    ///
    /// # Errors
    /// When the conditions cannot be, or a device cannot be made or set up.
    pub fn new(hosts: [&Host; 2], options: &LinkOptions<'_>) -> io::Result<Self> {
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
        let line = |i: usize| Line::new(options.conditions[i], options.seed ^ i as u64, start);
        let mut lines = [0, 1].map(line);
        let tap = options.tap.map(|path| Tap::new(path, options.name)).transpose()?;
        if tap.is_some() {
            lines.iter_mut().for_each(Line::tap);
        }
        let state = State { lines, lateness: Default::default(), refused: 0, is_cut: false };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { state: Mutex::new(state), wake });
        let carrier = thread::Builder::new().name(format!("link {}", options.name)).spawn({
            let shared = Arc::clone(&shared);
            move || carry(ends, &shared, tap)
        })?;
        Ok(Self { shared, carrier: Some(carrier) })
    }

    /// Changes what it does in a direction, from now on.
    ///
    /// # Errors
    /// When the conditions cannot be.
    pub fn set(
        &self,
        direction: Direction,
        conditions: Conditions,
    ) -> Result<(), ImpossibleCondition> {
        let conditions = conditions.checked()?;
        self.shared.lock().lines[direction as usize].set(now(), conditions);
        self.shared.wake();
        Ok(())
    }

    /// How many packets and superpackets a host's kernel did not take from it.
    pub fn refused(&self) -> u64 {
        self.shared.lock().refused
    }

    /// What it has done in a direction.
    pub fn counts(&self, direction: Direction) -> Counts {
        self.shared.lock().lines[direction as usize].counts()
    }

    /// How late it was in a direction.
    pub fn lateness(&self, direction: Direction) -> Lateness {
        self.shared.lock().lateness[direction as usize].clone()
    }

    /// Cuts the link. Its devices are gone then, and the tap's file is complete.
    ///
    /// # Errors
    /// When the tap's file could not be written; it says which.
    pub fn cut(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(carrier) = self.carrier.take() else { return Ok(()) };
        self.shared.lock().is_cut = true;
        self.shared.wake();
        let tap = carrier.join().map_err(|_| io::Error::other("a link's thread failed"))?;
        tap.map_or(Ok(()), Tap::finish)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Who wants to know whether the tap's file is complete calls `cut`.
        let _ = self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It fails only if the counter is full, when the carrier is awake anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Carries packets between two devices until the link is cut. Returns the tap.
fn carry(mut ends: [LinkDevice; 2], shared: &Shared, tap: Option<Tap>) -> Option<Tap> {
    // By default the kernel wakes a thread up to 50 µs late, so that it can wake several at once.
    // Should it refuse, the lateness shows.
    let _ = set_current_timer_slack(NonZero::new(1));
    loop {
        for (from, to) in [(0, 1), (1, 0)] {
            receive(&mut ends[from], shared, from);
            deliver(&ends[to], shared, from);
            if let Some(tap) = &tap {
                let tapped: Vec<(u64, Frame)> = shared.lock().lines[from].take_tapped().collect();
                for (sent, frame) in tapped {
                    tap.record(from, sent, frame);
                }
            }
        }
        let state = shared.lock();
        if state.is_cut {
            return tap;
        }
        let next = state.lines.iter().filter_map(Line::next_arrival).min();
        drop(state);
        wait(&ends, &shared.wake, next);
    }
}

/// Takes what the kernel sends. The state is not locked while the kernel works.
fn receive(end: &mut LinkDevice, shared: &Shared, line: usize) {
    for _ in 0..BATCH {
        // A device that fails has nothing to send.
        let Ok(Some(frame)) = end.read() else { return };
        shared.lock().lines[line].offer(now(), &frame);
    }
}

/// Hands over what has arrived.
fn deliver(end: &LinkDevice, shared: &Shared, line: usize) {
    for _ in 0..BATCH {
        let Some((due, frame)) = shared.lock().lines[line].take_arrived(now()) else { return };
        let is_taken = end.write(&frame);
        let mut state = shared.lock();
        state.refused += u64::from(!is_taken);
        state.lateness[line].add(now().saturating_sub(due));
    }
}

/// Waits for a packet, for a change, or until a time.
fn wait(ends: &[LinkDevice; 2], wake: &OwnedFd, until: Option<u64>) {
    let mut events = [ends[0].as_fd(), ends[1].as_fd(), wake.as_fd()]
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    let timeout = until.map(|until| {
        let left = until.saturating_sub(now());
        Timespec {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            tv_nsec: (left % 1_000_000_000).cast_signed(),
        }
    });
    // Interrupted or not, the caller looks at everything again.
    let _ = poll(&mut events, timeout.as_ref());
    if !events[2].revents().is_empty() {
        let _ = rustix::io::read(wake, &mut [0_u8; 8]);
    }
}

impl Lateness {
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

    /// A time in ms that the given part of the packets did not exceed, to a tenth of it. Zero if
    /// there were none.
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
