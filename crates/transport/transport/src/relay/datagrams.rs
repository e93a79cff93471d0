//! The relay's UDP socket, with its thread.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use random::RandomGenerator;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::error;
use udp::streams::now;
use udp::{DatagramBatch, DatagramReceiveBuffer, SocketBinding, UdpBatchSocket};

use crate::protocol::datagram_relay::{DatagramRelay, RelayDatagramAction};
use crate::protocol::relay_binding::{BINDING_ID_LEN, BindingGrant};

/// How often the thread checks whether it has to end.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Forwards datagrams until it is dropped.
pub(super) struct RelayDatagrams(Arc<RelayDatagramsCore>);

struct RelayDatagramsCore {
    relay: Mutex<DatagramRelay>,
    is_stopped: AtomicBool,
    forwarded_bytes: AtomicU64,
    dropped: AtomicU64,
}

impl RelayDatagrams {
    /// Listens at an address.
    pub(super) fn start(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpBatchSocket::bind(&SocketBinding { local: address, device: None })?;
        let relay = DatagramRelay::new(&mut RandomGenerator::system()).map_err(io::Error::other)?;
        let core = Arc::new(RelayDatagramsCore {
            relay: Mutex::new(relay),
            is_stopped: AtomicBool::new(false),
            forwarded_bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let running = core.clone();
        let work = move || {
            if let Err(error) = running.run(socket) {
                error!(%error, "datagrams are not forwarded any more");
            }
        };
        thread::Builder::new().name("relay-datagrams".into()).spawn(work)?;
        Ok(Self(core))
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

    fn run(&self, mut socket: UdpBatchSocket) -> io::Result<()> {
        let mut received = DatagramReceiveBuffer::new();
        let mut batch = DatagramBatch::default();
        while !self.is_stopped.load(Ordering::Relaxed) {
            match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&CHECK_INTERVAL)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            while received.receive(&socket)? {
                self.handle(&received, &mut socket, &mut batch);
            }
            self.handle(&received, &mut socket, &mut batch);
        }
        Ok(())
    }

    fn handle(
        &self,
        received: &DatagramReceiveBuffer,
        socket: &mut UdpBatchSocket,
        batch: &mut DatagramBatch,
    ) {
        let (now, mut dropped, mut destination) = (now(), 0, None);
        let mut relay = self.lock();
        for (from, bytes) in received.datagrams() {
            match relay.handle_datagram(now, from, bytes) {
                RelayDatagramAction::Drop => dropped += 1,
                RelayDatagramAction::Answer(answer) => _ = socket.send_one(&answer, from),
                RelayDatagramAction::Forward(to) => {
                    if destination != Some(to) || batch.is_full() {
                        self.flush(socket, batch, destination.replace(to));
                    }
                    batch.reserve(bytes.len()).copy_from_slice(bytes);
                }
            }
        }
        drop(relay);
        self.flush(socket, batch, destination);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// Sends the batch. What does not fit into the socket's buffer is lost.
    fn flush(
        &self,
        socket: &mut UdpBatchSocket,
        batch: &mut DatagramBatch,
        to: Option<SocketAddr>,
    ) {
        if let Some(to) = to
            && !batch.is_empty()
        {
            let bytes: usize = batch.runs().map(|(bytes, _)| bytes.len()).sum();
            let refused = socket.send(batch, to).refused;
            self.forwarded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.dropped.fetch_add(refused as u64, Ordering::Relaxed);
            batch.clear();
        }
    }
}
