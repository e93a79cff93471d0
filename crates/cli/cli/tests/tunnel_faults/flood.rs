//! Floods of unsolicited datagrams, and captures.

// Some socket options have no safe interface.
#![allow(unsafe_code)]

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::EmulatedHost;
use socket2::{Domain, Protocol, Socket, Type};

/// Sends the same datagrams repeatedly until it is dropped.
pub(crate) struct Flood {
    stops: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// Captures the UDP packets of a host.
pub(crate) struct Capture(Socket);

/// The headers of IP and UDP, in bytes.
const HEADERS: usize = 28;

/// The maximum payload of a packet of 1500 bytes.
const WHOLE: usize = 1500 - HEADERS;

/// The maximum number of segments of a GSO datagram, and its length in bytes.
const MAX_SEGMENTS: usize = 64;
const MAX_LEN: usize = 65_507;

/// A sender that was delayed for longer does not catch up.
const LATE: Duration = Duration::from_millis(5);

impl Flood {
    /// Sends these datagrams from a host at a rate in Mbit/s of IP packets. Datagrams of equal
    /// length are sent with GSO, if they are not too long.
    pub(crate) fn start(
        host: &EmulatedHost,
        to: SocketAddr,
        datagrams: &[Vec<u8>],
        rate_mbit: f64,
    ) -> io::Result<Self> {
        let socket = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        socket.connect(to)?;
        let (stops, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let runs = runs(&socket, datagrams)?;
        let thread = thread::spawn({
            let (stops, sent) = (Arc::clone(&stops), Arc::clone(&sent));
            move || send(&socket, &runs, rate_mbit, &stops, &sent)
        });
        Ok(Self { stops, sent, thread: Some(thread) })
    }

    /// The number of datagrams sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The bytes of one system call, and the number of its datagrams.
struct Run {
    bytes: Vec<u8>,
    count: usize,
}

/// Combines a socket's datagrams into runs, if they have equal lengths.
fn runs(socket: &UdpSocket, datagrams: &[Vec<u8>]) -> io::Result<Vec<Run>> {
    let length = datagrams[0].len();
    let are_alike = datagrams.iter().all(|datagram| datagram.len() == length);
    if !are_alike || length > WHOLE {
        return Ok(datagrams.iter().map(|one| Run { bytes: one.clone(), count: 1 }).collect());
    }
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, length)?;
    let many = datagrams.chunks(MAX_SEGMENTS.min(MAX_LEN / length));
    Ok(many.map(|many| Run { bytes: many.concat(), count: many.len() }).collect())
}

fn send(socket: &UdpSocket, runs: &[Run], rate_mbit: f64, stops: &AtomicBool, sent: &AtomicU64) {
    let mut due = Instant::now();
    for Run { bytes, count } in runs.iter().cycle() {
        if stops.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let bits = 8 * (bytes.len() + count * HEADERS);
        let takes = Duration::from_secs_f64(bits as f64 / (rate_mbit * 1e6));
        due = due.max(Instant::now().checked_sub(LATE).unwrap_or(due)) + takes;
        // A full queue loses it, as a network would.
        if socket.send(bytes).is_ok() {
            sent.fetch_add(*count as u64, Ordering::Relaxed);
        }
    }
}

impl Capture {
    /// From now on, records the UDP packets that arrive at a host, up to the kernel's buffer.
    pub(crate) fn start(host: &EmulatedHost) -> io::Result<Self> {
        let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
        let socket = host.run(raw)??;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// The payloads that have arrived at a port since the last call.
    pub(crate) fn take(&mut self, port: u16) -> Vec<Vec<u8>> {
        let came = self.take_all().into_iter();
        came.filter(|(_, to, _)| *to == port).map(|(.., payload)| payload).collect()
    }

    /// All payloads that have arrived since the last call, with their source and destination port.
    pub(crate) fn take_all(&mut self) -> Vec<(SocketAddr, u16, Vec<u8>)> {
        let mut payloads = Vec::new();
        let mut packet = vec![0; 1 << 16];
        while let Ok(length) = self.0.read(&mut packet) {
            let ip = &packet[..length];
            let udp = &ip[usize::from(ip[0] & 15) * 4..];
            // Superpackets that the kernel has not split yet are skipped.
            if udp.len() <= WHOLE + 8 {
                let [from, to] = [[udp[0], udp[1]], [udp[2], udp[3]]].map(u16::from_be_bytes);
                let ip = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
                payloads.push((SocketAddr::from((ip, from)), to, udp[8..].to_vec()));
            }
        }
        payloads
    }
}

/// Sets a socket option.
fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(value).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: the option's value is an int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
