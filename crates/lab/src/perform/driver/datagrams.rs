//! Numbered, timed datagrams and what becomes of them.

// Two socket options that no safe interface knows.
#![allow(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::now;

/// The least payload: a number and a time.
const STAMP: usize = 12;

/// Sends datagrams.
#[derive(Debug)]
pub(super) struct Sender(UdpSocket);

/// Receives datagrams.
#[derive(Debug)]
pub(super) struct Receiver(UdpSocket);

/// What arrived.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// How many were sent.
    pub(super) sent: u32,
    payload: usize,
    /// When each was sent and received.
    each: Vec<(u64, u64)>,
    /// Which have arrived, by their numbers.
    seen: Vec<bool>,
    /// How many have, those that did so twice counted once.
    pub(super) different: u32,
}

impl Sender {
    pub(super) fn new(to: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        Ok(Self(socket))
    }

    /// Sends `count` datagrams of `payload` bytes, `rate` a second, `batch` at a time.
    pub(super) fn send(&self, count: u32, payload: usize, batch: u32, rate: f64) -> io::Result<()> {
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

impl Receiver {
    pub(super) fn new(at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
        set(&socket, libc::UDP_GRO, 1)?;
        Ok(Self(socket))
    }

    /// Receives until all have arrived, or until nothing has for a while after the last was sent.
    pub(super) fn receive(
        &self,
        count: u32,
        payload: usize,
        quiet: Duration,
        all_sent: &mpsc::Receiver<()>,
    ) -> io::Result<Arrivals> {
        self.0.set_read_timeout(Some(quiet))?;
        let mut arrivals = Arrivals::none(count, payload);
        let mut buffer = vec![0; 1 << 16];
        let mut is_sent = false;
        while arrivals.different < count {
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
                    // Another quiet time from now on, if that was the news.
                    is_sent = all_sent.try_recv() != Err(TryRecvError::Empty);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(arrivals)
    }
}

impl Arrivals {
    fn none(sent: u32, payload: usize) -> Self {
        Self { sent, payload, each: Vec::new(), seen: vec![false; sent as usize], different: 0 }
    }

    fn add(&mut self, datagram: &[u8], received: u64) {
        let number = u32::from_le_bytes(std::array::from_fn(|i| datagram[i]));
        let sent = u64::from_le_bytes(std::array::from_fn(|i| datagram[4 + i]));
        // Another number is not of these.
        let Some(seen) = self.seen.get_mut(number as usize) else { return };
        if !*seen {
            *seen = true;
            self.different += 1;
        }
        self.each.push((sent, received));
    }

    /// How long each travelled, in ms.
    pub(super) fn delays_ms(&self) -> impl Iterator<Item = f64> {
        self.each.iter().map(|(sent, received)| received.saturating_sub(*sent) as f64 / 1e6)
    }

    /// How fast they were sent, in Mbit/s, each with `headers` bytes of headers. Zero if nothing
    /// arrived.
    pub(super) fn offered_mbit(&self, headers: usize) -> f64 {
        let times = || self.each.iter().map(|(sent, _)| *sent);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return 0.0 };
        let bits = (self.sent as usize * (self.payload + headers) * 8) as f64;
        if last > first { bits / ((last - first) as f64 / 1000.0) } else { 0.0 }
    }

    /// How fast they arrived, in Mbit/s, each with `headers` bytes of headers: between the end of
    /// the first tenth, after which the link's queue is full, and the last.
    pub(super) fn rate_mbit(&self, headers: usize) -> f64 {
        let rest = &self.each[self.each.len() / 10..];
        let (Some((_, first)), Some((_, last))) = (rest.first(), rest.last()) else { return 0.0 };
        // Those received together with the first were on the link before it.
        let later = rest.iter().filter(|(_, received)| received > first).count();
        let bits = (later * (self.payload + headers) * 8) as f64;
        if last > first { bits / ((last - first) as f64 / 1000.0) } else { 0.0 }
    }
}

/// Sets one of UDP's socket options.
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
