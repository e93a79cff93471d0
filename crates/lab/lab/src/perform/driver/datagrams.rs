//! Sends and receives numbered datagrams with timestamps.

// Two socket options have no safe interface.
#![allow(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock::now;
use crate::host::EmulatedHost;

/// The minimum payload, in bytes: a number and a timestamp.
const STAMP: usize = 12;

/// The length of the IPv4 and UDP headers, in bytes.
pub(super) const HEADERS: usize = 20 + 8;

/// A flow of numbered datagrams with timestamps.
#[derive(Clone, Copy, Debug)]
pub struct DatagramFlow {
    /// The number of datagrams.
    pub count: u32,
    /// Bytes in each, without the IP and UDP headers: 12 to 65,507.
    pub payload: usize,
    /// How many are passed to the kernel in one call; at least 1.
    pub batch: u32,
    /// How many per second.
    pub rate: f64,
}

/// What has arrived of a flow at another machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedFlow {
    /// How many distinct datagrams.
    pub distinct: u32,
    /// The rate of their payload, in Mbit/s.
    pub rate_mbit: f64,
}

/// How long to wait for further datagrams after the last one was sent.
pub(super) const QUIET_TIMEOUT: Duration = Duration::from_millis(700);

/// Sends datagrams.
#[derive(Debug)]
struct NumberedDatagramSender(UdpSocket);

/// Receives datagrams.
#[derive(Debug)]
struct NumberedDatagramReceiver(UdpSocket);

/// The datagrams that arrived.
#[derive(Debug)]
pub(super) struct DatagramArrivals {
    /// The number of datagrams sent.
    pub(super) sent: u32,
    payload: usize,
    /// The times of sending and of receipt of each, in nanoseconds.
    each: Vec<(u64, u64)>,
    /// Whether the datagram of each number has arrived.
    seen: Vec<bool>,
    /// The number of distinct datagrams that arrived.
    pub(super) distinct: u32,
}

impl DatagramFlow {
    /// Sends the flow from one host to an address of another. Stops when all datagrams have
    /// arrived, or when none has arrived for the time `quiet` after the last was sent.
    pub(super) fn run(
        self,
        from: &EmulatedHost,
        to: &EmulatedHost,
        address: SocketAddr,
        quiet: Duration,
    ) -> io::Result<DatagramArrivals> {
        let receiver = to.run(|| NumberedDatagramReceiver::new(address))??;
        let sender = from.run(|| NumberedDatagramSender::new(address))??;
        thread::scope(|scope| {
            let (done, all_sent) = mpsc::channel();
            let arrivals = scope.spawn(move || {
                receiver.receive(self, quiet, || all_sent.try_recv() != Err(TryRecvError::Empty))
            });
            let sent = sender.send(self);
            let _ = done.send(());
            let arrivals = arrivals.join().map_err(|_| io::Error::other("the receiver failed"))?;
            sent.and(arrivals)
        })
    }
}

impl DatagramFlow {
    /// Sends the flow to an address.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn send_to(self, to: SocketAddr) -> io::Result<()> {
        NumberedDatagramSender::new(to)?.send(self)
    }

    /// Receives the flow at an address. Calls `ready` when the first datagram may come. Stops when
    /// all have arrived, or when none has arrived for 0.7 s after `is_sent` says that all are sent.
    ///
    /// # Errors
    /// If the system returns an error.
    pub fn receive_at(
        self,
        at: SocketAddr,
        ready: impl FnOnce(),
        is_sent: impl Fn() -> bool,
    ) -> io::Result<ReceivedFlow> {
        let receiver = NumberedDatagramReceiver::new(at)?;
        ready();
        Ok(receiver.receive(self, QUIET_TIMEOUT, is_sent)?.received())
    }
}

impl NumberedDatagramSender {
    fn new(to: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        Ok(Self(socket))
    }

    fn send(&self, DatagramFlow { count, payload, batch, rate }: DatagramFlow) -> io::Result<()> {
        set(&self.0, libc::UDP_SEGMENT, payload)?;
        let start = Instant::now();
        let mut buffer = vec![0; payload.max(STAMP) * batch as usize];
        for first in (0..count).step_by(batch as usize) {
            let due = start + Duration::from_secs_f64(f64::from(first) / rate);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let last = (first + batch).min(count);
            for (number, datagram) in (first..last).zip(buffer.chunks_exact_mut(payload)) {
                datagram[..4].copy_from_slice(&number.to_le_bytes());
                datagram[4..STAMP].copy_from_slice(&now().to_le_bytes());
            }
            match self.0.send(&buffer[..payload * (last - first) as usize]) {
                // The device's queue is full: a loss like any other.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                sent => _ = sent?,
            }
        }
        Ok(())
    }
}

impl NumberedDatagramReceiver {
    fn new(at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
        set(&socket, libc::UDP_GRO, 1)?;
        Ok(Self(socket))
    }

    fn receive(
        &self,
        DatagramFlow { count, payload, .. }: DatagramFlow,
        quiet: Duration,
        is_all_sent: impl Fn() -> bool,
    ) -> io::Result<DatagramArrivals> {
        self.0.set_read_timeout(Some(quiet))?;
        let mut arrivals = DatagramArrivals::none(count, payload);
        let mut buffer = vec![0; 1 << 16];
        let mut is_sent = false;
        while arrivals.distinct < count {
            match self.0.recv(&mut buffer) {
                Ok(length) => {
                    let received = now();
                    for datagram in buffer[..length].chunks_exact(payload) {
                        arrivals.add(datagram, received);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if is_sent {
                        break;
                    }
                    // If sending ended only now, wait for another such time.
                    is_sent = is_all_sent();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(arrivals)
    }
}

impl DatagramArrivals {
    fn none(sent: u32, payload: usize) -> Self {
        Self { sent, payload, each: Vec::new(), seen: vec![false; sent as usize], distinct: 0 }
    }

    fn add(&mut self, datagram: &[u8], received: u64) {
        let number = u32::from_le_bytes(std::array::from_fn(|i| datagram[i]));
        let sent = u64::from_le_bytes(std::array::from_fn(|i| datagram[4 + i]));
        // A datagram with another number belongs to another flow.
        let Some(seen) = self.seen.get_mut(number as usize) else { return };
        if !*seen {
            *seen = true;
            self.distinct += 1;
        }
        self.each.push((sent, received));
    }

    /// What has arrived, without times.
    pub(super) fn received(&self) -> ReceivedFlow {
        ReceivedFlow { distinct: self.distinct, rate_mbit: self.rate_mbit(0) }
    }

    /// The mean delay of the datagrams, in ms. Zero if none has arrived.
    pub(super) fn mean_delay_ms(&self) -> f64 {
        self.delays_ms().sum::<f64>() / self.each.len().max(1) as f64
    }

    /// The delay of each datagram, in ms.
    pub(super) fn delays_ms(&self) -> impl Iterator<Item = f64> {
        self.each.iter().map(|(sent, received)| received.saturating_sub(*sent) as f64 / 1e6)
    }

    /// The rate at which they were sent, in Mbit/s, with `headers` bytes of headers each. Zero if
    /// nothing arrived.
    pub(super) fn offered_mbit(&self, headers: usize) -> f64 {
        let times = || self.each.iter().map(|(sent, _)| *sent);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return 0.0 };
        let bits = (self.sent as usize * (self.payload + headers) * 8) as f64;
        if last > first { bits / ((last - first) as f64 / 1000.0) } else { 0.0 }
    }

    /// The rate at which they arrived, in Mbit/s, with `headers` bytes of headers each. The first
    /// tenth is left out: after it, the link's queue is full.
    pub(super) fn rate_mbit(&self, headers: usize) -> f64 {
        let rest = &self.each[self.each.len() / 10..];
        let (Some((_, first)), Some((_, last))) = (rest.first(), rest.last()) else { return 0.0 };
        // Those received together with the first were in flight before it.
        let later = rest.iter().filter(|(_, received)| received > first).count();
        let bits = (later * (self.payload + headers) * 8) as f64;
        if last > first { bits / ((last - first) as f64 / 1000.0) } else { 0.0 }
    }
}

/// Sets a socket option of UDP.
fn set(socket: &UdpSocket, option: libc::c_int, value: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(value).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: the option's value is an int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
