//! A steady stream of numbered datagrams with unique contents between two hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::EmulatedHost;
use socket2::SockRef;

use crate::pair::until;

/// The rate and the length of datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRate {
    /// Datagrams per second.
    pub(crate) rate: f64,
    /// The length of each, in bytes.
    pub(crate) length: usize,
}

impl StreamRate {
    /// Far less than the channels' capacity.
    pub(crate) const LIGHT: Self = Self { rate: 1000.0, length: 600 };
}

/// A stream. It ends when this is dropped.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    stops: AtomicBool,
    /// The time at which each was sent, by number.
    sent: Mutex<Vec<Duration>>,
    arrived: Mutex<Arrived>,
}

#[derive(Default)]
struct Arrived {
    /// Whether each has arrived, by number.
    is_there: Vec<bool>,
    /// The times of arrival, in order.
    times: Vec<Duration>,
    /// The number of changed and of duplicate datagrams that arrived.
    wrong: u64,
}

/// The minimum sleep of a sender.
const TICK: Duration = Duration::from_millis(1);

/// A sender that was delayed for longer does not catch up.
const LATE: Duration = Duration::from_millis(5);

/// A datagram that is later than others by this much is lost: a tunnel's maximum reorder window is
/// 200 ms.
const SETTLED: Duration = Duration::from_millis(300);

/// The interval at which a receiver checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Stream {
    /// Starts a stream to an address of the host `to`.
    pub(crate) fn start(
        from: &EmulatedHost,
        to: &EmulatedHost,
        address: &str,
        rate: StreamRate,
    ) -> Self {
        let ip: IpAddr = address.parse().unwrap();
        // Bound to any address, because the tunnel's addresses come and go; to any port, because a
        // child process that another test is starting may hold an earlier stream's socket.
        let any: IpAddr =
            if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let receiver = to.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
        // The kernel's limit may be lower.
        let _ = SockRef::from(&receiver).set_recv_buffer_size(4 << 20);
        receiver.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        let address = SocketAddr::new(ip, receiver.local_addr().unwrap().port());
        let sender = from.run(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
        let shared = Arc::new(Shared {
            start: Instant::now(),
            stops: AtomicBool::new(false),
            sent: Mutex::default(),
            arrived: Mutex::default(),
        });
        let sending = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.send(&sender, address, rate)
        });
        let receiving = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.receive(&receiver)
        });
        Self { shared, threads: vec![sending, receiving] }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// Waits until a datagram has arrived that was sent after `more` further ones.
    pub(crate) fn wait_for(&self, more: usize) {
        let number = self.shared.sent.lock().unwrap().len() + more;
        until("datagrams arrive", || self.shared.arrived.lock().unwrap().is_there.len() > number);
    }

    /// The longest time without an arrival in a period.
    pub(crate) fn longest_gap(&self, from: Duration, to: Duration) -> Duration {
        let arrived = self.shared.arrived.lock().unwrap();
        let within = arrived.times.iter().copied().filter(|time| (from..to).contains(time));
        let times: Vec<Duration> = [from].into_iter().chain(within).chain([to]).collect();
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap()
    }

    /// The number of datagrams sent in a period, and of those that were lost. Waits until a
    /// datagram has arrived that was sent some time later.
    pub(crate) fn lost(&self, from: Duration, to: Duration) -> (usize, usize) {
        until("as many are sent", || self.now() > to + SETTLED);
        self.wait_for(1);
        let sent = self.shared.sent.lock().unwrap();
        let (first, last) =
            (sent.partition_point(|time| *time < from), sent.partition_point(|time| *time < to));
        drop(sent);
        let arrived = self.shared.arrived.lock().unwrap();
        let is_there = |number: &usize| arrived.is_there.get(*number) == Some(&true);
        let there = (first..last).filter(is_there).count();
        (last - first, last - first - there)
    }

    /// The number of changed and of duplicate datagrams that arrived.
    pub(crate) fn wrong(&self) -> u64 {
        self.shared.arrived.lock().unwrap().wrong
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn send(&self, socket: &UdpSocket, to: SocketAddr, rate: StreamRate) {
        let mut due = self.start.elapsed();
        let mut datagram = vec![0; rate.length];
        while !self.stops.load(Ordering::Relaxed) {
            let now = self.start.elapsed();
            if due > now {
                thread::sleep(due.saturating_sub(now).max(TICK));
                continue;
            }
            due = due.max(now.saturating_sub(LATE)) + Duration::from_secs_f64(1.0 / rate.rate);
            let mut sent = self.sent.lock().unwrap();
            let number = sent.len() as u64;
            sent.push(now);
            drop(sent);
            fill(number, &mut datagram);
            // Without a tunnel there is no route: a loss like any other.
            let _ = socket.send_to(&datagram, to);
        }
    }

    fn receive(&self, socket: &UdpSocket) {
        let mut datagram = vec![0; 1 << 16];
        let mut expected = Vec::new();
        while !self.stops.load(Ordering::Relaxed) {
            let Ok(length) = socket.recv(&mut datagram) else { continue };
            let datagram = &datagram[..length];
            let now = self.start.elapsed();
            let number = datagram.first_chunk().map(|number| u64::from_le_bytes(*number));
            let sent = self.sent.lock().unwrap().len() as u64;
            let mut arrived = self.arrived.lock().unwrap();
            let Some(number) = number.filter(|number| *number < sent) else {
                arrived.wrong += 1;
                continue;
            };
            expected.resize(length, 0);
            fill(number, &mut expected);
            arrived.add(usize::try_from(number).unwrap(), now, datagram == expected);
        }
    }
}

impl Arrived {
    fn add(&mut self, number: usize, now: Duration, is_right: bool) {
        if self.is_there.len() <= number {
            self.is_there.resize(number + 1, false);
        }
        if !is_right || self.is_there[number] {
            self.wrong += 1;
            return;
        }
        self.is_there[number] = true;
        self.times.push(now);
    }
}

/// Fills a datagram with its number and bytes derived from it.
fn fill(number: u64, datagram: &mut [u8]) {
    let (head, rest) = datagram.split_at_mut(8.min(datagram.len()));
    let bytes = number.to_le_bytes();
    head.copy_from_slice(&bytes[..head.len()]);
    fastrand::Rng::with_seed(number).fill(rest);
}
