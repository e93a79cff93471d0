//! The relay's UDP sockets, with their threads.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use random::RandomGenerator;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use service::status::ServiceProblem;
use tracing::{error, warn};
use udp::streams::now;
use udp::{DatagramBatch, DatagramReceiveBuffer, SocketBinding, UdpBatchSocket};

use crate::protocol::datagram_relay::{DatagramRelay, RelayDatagramAction};
use crate::protocol::relay_binding::{BINDING_ID_LEN, BindingGrant};

/// How often the thread checks whether it has to end.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The largest number of sockets of a relay that listens at all addresses of its host.
const MAX_SOCKETS: usize = 16;

/// Forwards datagrams until it is dropped.
pub(super) struct RelayDatagrams(Arc<RelayDatagramsCore>);

struct RelayDatagramsCore {
    address: SocketAddr,
    relay: Mutex<DatagramRelay>,
    /// One for each address of the host that a party uses, so that each gets answers from there.
    sockets: Mutex<Vec<UdpBatchSocket>>,
    /// The first address at which no datagrams are received, why, and since when.
    failure: Mutex<Option<(SocketAddr, String, Instant)>>,
    is_stopped: AtomicBool,
    forwarded_bytes: AtomicU64,
    dropped: AtomicU64,
}

impl RelayDatagrams {
    /// Listens at an address. If that is the one for all addresses of the host, listens at each of
    /// them once a party uses it.
    pub(super) fn start(address: SocketAddr) -> io::Result<Self> {
        let relay = DatagramRelay::new(&mut RandomGenerator::system()).map_err(io::Error::other)?;
        let started = Self(Arc::new(RelayDatagramsCore {
            address,
            relay: Mutex::new(relay),
            sockets: Mutex::default(),
            failure: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            forwarded_bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }));
        if address.ip().is_unspecified() {
            // The port must be free.
            UdpBatchSocket::bind(&SocketBinding { local: address, device: None })?;
        } else {
            started.listen(address)?;
        }
        Ok(started)
    }

    /// Makes sure that datagrams are received at the address at which a party has connected. If
    /// that fails, the party gets no answer, and uses TCP.
    pub(super) fn listen_at(&self, address: SocketAddr) {
        let local = SocketAddr::new(address.ip().to_canonical(), self.0.address.port());
        let is_known = |socket: &UdpBatchSocket| socket.local_addr().is_ok_and(|at| at == local);
        if !self.0.address.ip().is_unspecified() || self.0.lock_sockets().iter().any(is_known) {
            return;
        }
        match self.listen(local) {
            Ok(()) => self.0.note_success(local),
            Err(error) => self.0.note_failure(local, &error),
        }
    }

    fn listen(&self, address: SocketAddr) -> io::Result<()> {
        let mut sockets = self.0.lock_sockets();
        if sockets.len() >= MAX_SOCKETS {
            return Err(io::Error::other("the relay uses too many of its host's addresses"));
        }
        let socket = UdpBatchSocket::bind(&SocketBinding { local: address, device: None })?;
        let (number, running) = (sockets.len(), self.0.clone());
        sockets.push(socket.clone());
        let work = move || {
            if let Err(error) = running.run(number, &socket) {
                error!(%address, %error, "datagrams are not forwarded any more");
                running.note_failure(address, &error);
            }
        };
        thread::Builder::new().name("relay-datagrams".into()).spawn(work)?;
        Ok(())
    }

    /// Adds a pair. Returns what its parties need.
    pub(super) fn add_pair(&self) -> io::Result<[BindingGrant; 2]> {
        let added = self.0.lock().add_pair(now(), &mut RandomGenerator::system());
        added.map_err(io::Error::other)
    }

    /// Removes the parties of a pair.
    pub(super) fn remove(&self, ids: [[u8; BINDING_ID_LEN]; 2]) {
        self.0.lock().remove(ids);
    }

    /// When a party of a pair last sent a datagram.
    pub(super) fn heard_at(&self, ids: [[u8; BINDING_ID_LEN]; 2]) -> Option<Duration> {
        let relay = self.0.lock();
        ids.into_iter().filter_map(|id| relay.heard_at(id)).max()
    }

    /// Why datagrams are not forwarded, if they are not.
    pub(super) fn problem(&self) -> Option<ServiceProblem> {
        let failure = self.0.lock_failure();
        let (address, error, since) = failure.as_ref()?;
        let text = format!("no datagrams are received at {address}: {error}");
        let remedy = "other programs must leave this UDP port free; then start the relay again. \
                      Until then, parties use TCP";
        Some(ServiceProblem::new(text, Some(since.elapsed().as_secs_f64()), remedy))
    }

    pub(super) fn forwarded_bytes(&self) -> u64 {
        self.0.forwarded_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for RelayDatagrams {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl RelayDatagramsCore {
    fn lock(&self) -> MutexGuard<'_, DatagramRelay> {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_sockets(&self) -> MutexGuard<'_, Vec<UdpBatchSocket>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<(SocketAddr, String, Instant)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failure(&self, address: SocketAddr, error: &io::Error) {
        self.lock_failure().get_or_insert_with(|| {
            warn!(%address, %error, "no datagrams are received");
            (address, error.to_string(), Instant::now())
        });
    }

    fn note_success(&self, address: SocketAddr) {
        let mut failure = self.lock_failure();
        if failure.as_ref().is_some_and(|(failed, ..)| *failed == address) {
            *failure = None;
        }
    }

    /// Handles what arrives at a socket.
    fn run(&self, number: usize, socket: &UdpBatchSocket) -> io::Result<()> {
        let mut received = DatagramReceiveBuffer::new();
        let mut sending = RelayBatch { sockets: Vec::new(), batch: DatagramBatch::default() };
        while !self.is_stopped.load(Ordering::Relaxed) {
            match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&CHECK_INTERVAL)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            while received.receive(socket)? {
                self.handle(number, &received, socket, &mut sending);
            }
            self.handle(number, &received, socket, &mut sending);
        }
        Ok(())
    }

    fn handle(
        &self,
        number: usize,
        received: &DatagramReceiveBuffer,
        socket: &UdpBatchSocket,
        sending: &mut RelayBatch,
    ) {
        let (now, mut dropped, mut destination) = (now(), 0, None);
        let mut relay = self.lock();
        for (from, bytes) in received.datagrams() {
            match relay.handle_datagram_at(now, number, from, bytes) {
                RelayDatagramAction::Drop => dropped += 1,
                RelayDatagramAction::Answer(answer) => _ = socket.send_one(&answer, from),
                RelayDatagramAction::Forward(to) => {
                    let to = (to, relay.socket_towards(to));
                    if destination != Some(to) || sending.batch.is_full() {
                        self.flush(sending, destination.replace(to));
                    }
                    sending.batch.reserve(bytes.len()).copy_from_slice(bytes);
                }
            }
        }
        drop(relay);
        self.flush(sending, destination);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// Sends the batch to an address, from the socket with this number. What does not fit into the
    /// socket's buffer is lost.
    fn flush(&self, sending: &mut RelayBatch, to: Option<(SocketAddr, usize)>) {
        let Some((to, number)) = to.filter(|_| !sending.batch.is_empty()) else { return };
        if number >= sending.sockets.len() {
            sending.sockets.clone_from(&self.lock_sockets());
        }
        if let Some(socket) = sending.sockets.get_mut(number) {
            let bytes: usize = sending.batch.runs().map(|(bytes, _)| bytes.len()).sum();
            let refused = socket.send(&sending.batch, to).refused;
            self.forwarded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.dropped.fetch_add(refused as u64, Ordering::Relaxed);
        }
        sending.batch.clear();
    }
}

/// The datagrams that a thread forwards, and its clones of all sockets.
struct RelayBatch {
    sockets: Vec<UdpBatchSocket>,
    batch: DatagramBatch,
}
