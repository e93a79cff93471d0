//! Links: two hosts joined by an emulated wire.
//!
//! Each end is a TUN device in its host. A thread carries packets between them and does to them
//! what the [`Conditions`] say. What is decided is decided in [`line`], which knows no device and no
//! clock; this file knows both and decides nothing.

mod conditions;
mod fate;
pub(crate) mod frame;
mod line;
mod time;

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

pub use conditions::{Conditions, ImpossibleCondition};
pub use line::Counts;

use crate::host::{Host, Interface};
use crate::tun::Tun;
use line::Line;
use time::Nanos;

/// How many packets are read from one end before the other gets its turn.
const TURN: usize = 64;

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first host to the second.
    Forward,
    /// From the second host to the first.
    Back,
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
}

/// A link between two hosts. It is cut when this is dropped.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    carrier: Option<JoinHandle<()>>,
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
    is_cut: bool,
}

/// How late packets were handed over, compared with when they should have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How many were less than 2^i µs late, and not less than half of that.
    powers: [u64; 24],
}

impl Link {
    /// Joins two hosts.
    ///
    /// # Errors
    /// When a device cannot be made or set up.
    pub fn new(hosts: [&Host; 2], options: &LinkOptions<'_>) -> io::Result<Self> {
        let end = |i: usize| {
            let tun = hosts[i].run(|| Tun::new(options.name))??;
            hosts[i].set_up(&Interface {
                name: options.name,
                address: options.addresses[i],
                mtu: options.mtu,
                congestion: options.congestion,
            })?;
            Ok::<_, io::Error>(tun)
        };
        let tuns = [end(0)?, end(1)?];
        let line = |i: u8| Line::new(options.conditions[usize::from(i)], options.seed ^ u64::from(i));
        let state = State { lines: [line(0), line(1)], lateness: Default::default(), is_cut: false };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { state: Mutex::new(state), wake });
        let carrier = thread::Builder::new().name(format!("link {}", options.name)).spawn({
            let shared = Arc::clone(&shared);
            move || carry(tuns, &shared)
        })?;
        Ok(Self { shared, carrier: Some(carrier) })
    }

    /// Changes what it does in a direction, from now on.
    pub fn set(&self, direction: Direction, conditions: Conditions) {
        self.shared.lock().lines[direction as usize].set(now(), conditions);
        self.shared.wake();
    }

    /// What it has done in a direction.
    pub fn counts(&self, direction: Direction) -> Counts {
        self.shared.lock().lines[direction as usize].counts()
    }

    /// How late it was in a direction.
    pub fn lateness(&self, direction: Direction) -> Lateness {
        self.shared.lock().lateness[direction as usize].clone()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.lock().is_cut = true;
        self.shared.wake();
        if let Some(carrier) = self.carrier.take() {
            // It has no result; were it to panic, that was said already.
            let _ = carrier.join();
        }
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

/// Carries packets between two devices until the link is cut.
fn carry(mut tuns: [Tun; 2], shared: &Shared) {
    let mut state = shared.lock();
    while !state.is_cut {
        for (from, to) in [(0, 1), (1, 0)] {
            receive(&mut tuns[from], &mut state.lines[from]);
            let State { lines, lateness, .. } = &mut *state;
            deliver(&mut lines[from], &tuns[to], &mut lateness[from]);
        }
        let next = state.lines.iter().filter_map(Line::next_arrival).min();
        drop(state);
        wait(&tuns, &shared.wake, next);
        state = shared.lock();
    }
}

/// Takes what the kernel sends.
fn receive(tun: &mut Tun, line: &mut Line) {
    for _ in 0..TURN {
        // A device that fails has nothing to send.
        let Ok(Some(frame)) = tun.read() else { return };
        line.offer(now(), &frame);
    }
}

/// Hands over what has arrived.
fn deliver(line: &mut Line, tun: &Tun, lateness: &mut Lateness) {
    while let Some((due, frame)) = line.take_arrived(now()) {
        tun.write(&frame);
        lateness.add(now().saturating_sub(due));
    }
}

/// Waits for a packet, for a change, or until a time.
fn wait(tuns: &[Tun; 2], wake: &OwnedFd, until: Option<Nanos>) {
    let mut events = [tuns[0].as_fd(), tuns[1].as_fd(), wake.as_fd()]
        .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    let timeout = until.map(|until| {
        let left = until.saturating_sub(now());
        Timespec { tv_sec: (left / 1_000_000_000).cast_signed(), tv_nsec: (left % 1_000_000_000).cast_signed() }
    });
    // Interrupted or not, the caller looks at everything again.
    let _ = poll(&mut events, timeout.as_ref());
    if !events[2].revents().is_empty() {
        let _ = rustix::io::read(wake, &mut [0_u8; 8]);
    }
}

impl Lateness {
    fn add(&mut self, late: Nanos) {
        let power = (u64::BITS - (late / 1000).leading_zeros()) as usize;
        self.powers[power.min(self.powers.len() - 1)] += 1;
    }

    /// A time in ms that no more than the given part of the packets exceeded, to a factor of two.
    /// Zero if there were none.
    pub fn quantile_ms(&self, part: f64) -> f64 {
        let total: u64 = self.powers.iter().sum();
        let mut seen = 0;
        for (power, count) in self.powers.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= part * total as f64 {
                return f64::from(1_u32 << power) / 1000.0;
            }
        }
        0.0
    }
}

/// The system's monotonic clock.
fn now() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
