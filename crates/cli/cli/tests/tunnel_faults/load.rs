//! The load that a test offers to a tunnel, from the client to the server, and how much of it
//! arrives.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::EmulatedHost;
use socket2::SockRef;

use crate::pair::{Pair, SERVER, until};

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LoadKind {
    /// Numbered UDP datagrams of [`DATAGRAM_LEN`] bytes at this rate of payload, in Mbit/s.
    Udp(f64),
    /// TCP connections that send as fast as they can.
    Tcp {
        /// Their number.
        flows: usize,
        /// Their congestion control.
        congestion: &'static str,
    },
}

/// The length of the datagrams, in bytes of payload.
pub(crate) const DATAGRAM_LEN: usize = 1370;

/// The headers of a datagram: IP and UDP inside the tunnel, and the tunnel's own with IP and UDP
/// outside.
const UDP_OVERHEAD: usize = 28 + 49;

/// The payload and the length of a full packet of TCP on a channel, in bytes.
const TCP_PAYLOAD: f64 = 1399.0;
const FULL_PACKET: f64 = 1500.0;

impl fmt::Display for LoadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(rate_mbit) => write!(f, "UDP {rate_mbit:.1}"),
            Self::Tcp { flows, congestion } => write!(f, "{flows} TCP {congestion}"),
        }
    }
}

impl LoadKind {
    /// One TCP connection with the system's usual congestion control.
    pub(crate) const ONE_FLOW: Self = Self::Tcp { flows: 1, congestion: "bbr" };

    /// The part of a channel's rate that is payload.
    pub(crate) fn efficiency(self) -> f64 {
        match self {
            Self::Udp(_) => DATAGRAM_LEN as f64 / (DATAGRAM_LEN + UDP_OVERHEAD) as f64,
            Self::Tcp { .. } => TCP_PAYLOAD / FULL_PACKET,
        }
    }
}

/// A load on a tunnel. It ends when this is dropped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    start: Instant,
    stops: AtomicBool,
    /// The bytes of payload that have arrived, by the time of arrival in units of [`BIN`].
    arrived: Mutex<Vec<u64>>,
}

/// The resolution of rates.
const BIN: Duration = Duration::from_millis(100);

/// The interval at which blocked threads check whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The minimum sleep of a sender of datagrams, and the delay after which it does not catch up.
const TICK: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_millis(10);

impl Load {
    /// Starts a load on a tunnel.
    pub(crate) fn start(pair: &Pair, kind: LoadKind) -> Self {
        let (client, server) = (pair.host("client"), pair.host("server"));
        let (stops, arrived) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { start: Instant::now(), stops, arrived });
        let mut load = Self { shared, threads: Vec::new() };
        match kind {
            LoadKind::Udp(rate_mbit) => load.start_udp(client, server, rate_mbit),
            LoadKind::Tcp { flows, congestion } => {
                for _ in 0..flows {
                    load.start_tcp(client, server, congestion);
                }
            }
        }
        load
    }

    fn start_udp(&mut self, client: &EmulatedHost, server: &EmulatedHost, rate_mbit: f64) {
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
        let receiver = server.run(bind).unwrap().unwrap();
        // The kernel's limit may be lower.
        let _ = SockRef::from(&receiver).set_recv_buffer_size(4 << 20);
        receiver.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let sender = client.run(bind).unwrap().unwrap();
        self.spawn(move |shared| shared.send_datagrams(&sender, port, rate_mbit));
        self.spawn(move |shared| shared.receive_datagrams(&receiver));
    }

    fn start_tcp(&mut self, client: &EmulatedHost, server: &EmulatedHost, congestion: &str) {
        let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0));
        let listener = server.run(listen).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut stream = None;
        until("a connection through the tunnel is open", || {
            stream = client.run(|| TcpStream::connect((SERVER, port))).unwrap().ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        SockRef::from(&stream).set_tcp_congestion(congestion.as_bytes()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        stream.set_write_timeout(Some(POLL_INTERVAL)).unwrap();
        accepted.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        self.spawn(move |shared| shared.send_bytes(stream));
        self.spawn(move |shared| shared.receive_bytes(accepted));
    }

    fn spawn(&mut self, work: impl FnOnce(&Shared) + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::spawn(move || work(&shared)));
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// The rate of payload that arrived from a time until a later one, which must be over, in
    /// Mbit/s. Both are rounded to a tenth of a second.
    pub(crate) fn rate_mbit(&self, from: Duration, to: Duration) -> f64 {
        let (first, end) = (bin(from), bin(to).max(bin(from) + 1));
        let arrived = self.shared.arrived.lock().unwrap();
        let bytes: u64 = arrived.iter().take(end).skip(first).sum();
        bytes as f64 * 8e-6 / ((end - first) as f64 * BIN.as_secs_f64())
    }

    /// The rate in each second of a period, in Mbit/s.
    pub(crate) fn rates_mbit(&self, from: Duration, to: Duration) -> Vec<f64> {
        let second = Duration::from_secs(1);
        let begins = (0..).map(|number| from + number * second);
        let begins = begins.take_while(|begin| *begin + second <= to);
        begins.map(|begin| self.rate_mbit(begin, begin + second)).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The number of a time's bin.
fn bin(time: Duration) -> usize {
    usize::try_from(time.as_millis() / BIN.as_millis()).unwrap()
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        let bin = bin(self.start.elapsed());
        let mut arrived = self.arrived.lock().unwrap();
        if arrived.len() <= bin {
            arrived.resize(bin + 1, 0);
        }
        arrived[bin] += bytes as u64;
    }

    fn send_datagrams(&self, socket: &UdpSocket, port: u16, rate_mbit: f64) {
        let interval = Duration::from_secs_f64(DATAGRAM_LEN as f64 * 8e-6 / rate_mbit);
        let mut datagram = [0; DATAGRAM_LEN];
        let mut due = self.start.elapsed();
        let mut number = 0_u64;
        while !self.is_over() {
            let now = self.start.elapsed();
            if due > now {
                thread::sleep(due.saturating_sub(now).max(TICK));
                continue;
            }
            due = due.max(now.saturating_sub(LATE)) + interval;
            datagram[..8].copy_from_slice(&number.to_le_bytes());
            number += 1;
            // Without a tunnel there is no route: a loss like any other.
            let _ = socket.send_to(&datagram, (SERVER, port));
        }
    }

    fn receive_datagrams(&self, socket: &UdpSocket) {
        let mut datagram = [0; DATAGRAM_LEN + 1];
        let mut arrived: Vec<bool> = Vec::new();
        while !self.is_over() {
            let Ok(DATAGRAM_LEN) = socket.recv(&mut datagram) else { continue };
            let number = datagram.first_chunk().map(|number| u64::from_le_bytes(*number));
            let number = usize::try_from(number.unwrap()).unwrap();
            if arrived.len() <= number {
                arrived.resize(number + 1, false);
            }
            if !arrived[number] {
                arrived[number] = true;
                self.add(DATAGRAM_LEN);
            }
        }
    }

    fn send_bytes(&self, mut stream: TcpStream) {
        let zeros = vec![0; 1 << 16];
        while !self.is_over() {
            if stream.write(&zeros).is_err_and(|error| !is_timeout(&error)) {
                return;
            }
        }
    }

    fn receive_bytes(&self, mut stream: TcpStream) {
        let mut bytes = vec![0; 1 << 16];
        while !self.is_over() {
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(length) => self.add(length),
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    }
}

/// Whether a read or write has ended because nothing was possible in time.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
