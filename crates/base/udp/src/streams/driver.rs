//! The driver thread of a socket.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::backlog::{AcceptedUdpStream, UdpAcceptBacklog};
use super::connection::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection, UdpStreamEndpoint,
    UdpStreamPhase,
};
use super::now;
use super::slot::{StreamUnusableReason, UdpStreamKey, UdpStreamSlot};
use super::stream::UdpStream;
use super::wake::UdpDriverWaker;
use crate::batch::DatagramBatch;
use crate::recv_buffer::DatagramReceiveBuffer;
use crate::socket::UdpBatchSocket;

/// The longest sleep. It is not needed; it limits the effect of a bug.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The largest number of connections of a listening socket.
const MAX_CONNECTIONS: usize = 10_000;

/// From this number of connections in their handshake on, clients must prove their address.
const HEAVY_LOAD: usize = 64;

/// How many datagrams a connection handles or makes at a time. Meanwhile programs wait for its
/// lock.
const MAX_DATAGRAMS: usize = 64;

/// The key of the only connection of a socket that does not listen.
pub(super) const SINGLE_CONNECTION_KEY: UdpStreamKey = UdpStreamKey { endpoint: 0, id: 0 };

/// The driver of a socket: receives datagrams, calls the protocols, and sends datagrams.
pub(super) struct UdpStreamDriver {
    socket: UdpBatchSocket,
    wake: Arc<UdpDriverWaker>,
    /// The endpoints that listen. Without any, all datagrams are for the only connection.
    endpoints: Vec<Box<dyn UdpStreamEndpoint>>,
    backlog: Option<Arc<UdpAcceptBacklog>>,
    connections: HashMap<UdpStreamKey, DrivenUdpStream>,
    /// The number of connections that are not open yet.
    handshakes_in_progress: usize,
    deadlines: BTreeSet<(Duration, UdpStreamKey)>,
    /// The connections to serve next.
    due: Vec<UdpStreamKey>,
    /// `None` while it is being read.
    received: Option<DatagramReceiveBuffer>,
    batch: DatagramBatch,
    /// The destination of the batch, if there is one.
    batch_destination: Option<SocketAddr>,
    datagram: Vec<u8>,
}

struct DrivenUdpStream {
    slot: Arc<UdpStreamSlot>,
    /// The same as in `deadlines`. `None` if the connection is in `due`.
    deadline: Option<Duration>,
    /// Whether programs have it.
    is_accepted: bool,
}

impl UdpStreamDriver {
    /// Creates a driver for endpoints that listen, or for one connection.
    pub(super) fn new(
        socket: UdpBatchSocket,
        endpoints: Vec<Box<dyn UdpStreamEndpoint>>,
    ) -> io::Result<Self> {
        // Without timestamps, the arrival time of a datagram is when the thread handles it.
        let _ = socket.enable_timestamps();
        Ok(Self {
            socket,
            wake: Arc::new(UdpDriverWaker::new()?),
            endpoints,
            backlog: None,
            connections: HashMap::new(),
            handshakes_in_progress: 0,
            deadlines: BTreeSet::new(),
            due: Vec::new(),
            received: Some(DatagramReceiveBuffer::new()),
            batch: DatagramBatch::default(),
            batch_destination: None,
            datagram: Vec::new(),
        })
    }

    pub(super) fn wake(&self) -> Arc<UdpDriverWaker> {
        self.wake.clone()
    }

    /// From now on passes connections to `backlog` when they are open.
    pub(super) fn listen(&mut self, backlog: Arc<UdpAcceptBacklog>) {
        self.backlog = Some(backlog);
    }

    /// Adds a connection that a program already has.
    pub(super) fn add(
        &mut self,
        key: UdpStreamKey,
        connection: Box<dyn UdpStreamConnection>,
    ) -> UdpStream {
        let slot = self.insert(key, connection, true);
        UdpStream::new(slot, self.wake.clone())
    }

    fn insert(
        &mut self,
        key: UdpStreamKey,
        connection: Box<dyn UdpStreamConnection>,
        is_accepted: bool,
    ) -> Arc<UdpStreamSlot> {
        let slot = Arc::new(UdpStreamSlot::new(key, connection));
        let entry = DrivenUdpStream { slot: slot.clone(), deadline: None, is_accepted };
        self.connections.insert(key, entry);
        self.due.push(key);
        slot
    }

    /// Runs the driver in its own thread, until its connections are over and no acceptor listens.
    pub(super) fn spawn(self) -> io::Result<()> {
        std::thread::Builder::new().name("streams".into()).spawn(move || self.run())?;
        Ok(())
    }

    fn run(mut self) {
        // Makes sleeps end on time, instead of 50 µs late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            if self.receive().is_err() {
                return;
            }
            for key in self.wake.take() {
                self.make_due(key);
            }
            while let Some(&(deadline, key)) = self.deadlines.first()
                && deadline <= now()
            {
                self.make_due(key);
            }
            self.send();
            let mut due = std::mem::take(&mut self.due).into_iter();
            while self.batch_destination.is_none()
                && let Some(key) = due.next()
            {
                self.serve(key);
            }
            self.due.extend(due);
            if self.connections.is_empty() && !self.is_listening() {
                return;
            }
            let next = self.deadlines.first().map_or(Duration::MAX, |(deadline, _)| *deadline);
            let sleep = match self.batch_destination {
                Some(_) => MAX_SLEEP,
                None => next.saturating_sub(now()).min(MAX_SLEEP),
            };
            let until_room = self.batch_destination.is_some();
            if !sleep.is_zero() && self.wake.sleep(&self.socket, until_room, sleep).is_err() {
                return;
            }
        }
    }

    fn is_listening(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| backlog.is_open())
    }

    fn make_due(&mut self, key: UdpStreamKey) {
        if let Some(entry) = self.connections.get_mut(&key)
            && let Some(deadline) = entry.deadline.take()
        {
            self.deadlines.remove(&(deadline, key));
            self.due.push(key);
        }
    }

    /// Receives what has arrived.
    fn receive(&mut self) -> io::Result<()> {
        let mut received = self.received.take().unwrap_or_default();
        let result = received.receive(&self.socket);
        let now = now();
        let mut load = self.load();
        let mut to = None;
        let mut run = Vec::with_capacity(MAX_DATAGRAMS);
        for (from, bytes, age) in received.arrivals() {
            let datagram = ReceivedDatagram { from, bytes, arrived_at: now.saturating_sub(age) };
            let key = self.route(now, &datagram, &mut load);
            if key != to || run.len() == MAX_DATAGRAMS {
                self.deliver(now, to, &mut run);
                to = key;
            }
            run.push(datagram);
        }
        self.deliver(now, to, &mut run);
        drop(run);
        self.received = Some(received);
        result.map(|_| ())
    }

    /// The connection for a datagram, if there is one.
    fn route(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: &mut ListenerLoad,
    ) -> Option<UdpStreamKey> {
        if self.endpoints.is_empty() {
            return Some(SINGLE_CONNECTION_KEY);
        }
        for endpoint in 0..self.endpoints.len() {
            match self.endpoints[endpoint].handle_datagram(now, datagram, *load) {
                DatagramRouting::NotMine => continue,
                DatagramRouting::To(id) => return Some(UdpStreamKey { endpoint, id }),
                DatagramRouting::Answer(answer) | DatagramRouting::Refuse { answer, .. } => {
                    self.socket.send_one(&answer, datagram.from);
                }
                DatagramRouting::Accept { id, connection } => {
                    self.handshakes_in_progress += 1;
                    self.insert(UdpStreamKey { endpoint, id }, connection, false);
                    *load = self.load();
                }
                DatagramRouting::Nothing => {}
            }
            return None;
        }
        None
    }

    fn load(&self) -> ListenerLoad {
        let has_room = self.backlog.as_ref().is_some_and(|backlog| backlog.has_room());
        if !has_room || self.connections.len() >= MAX_CONNECTIONS {
            ListenerLoad::Full
        } else if self.handshakes_in_progress >= HEAVY_LOAD {
            ListenerLoad::Heavy
        } else {
            ListenerLoad::Light
        }
    }

    /// Passes datagrams to a connection.
    fn deliver(
        &mut self,
        now: Duration,
        to: Option<UdpStreamKey>,
        run: &mut Vec<ReceivedDatagram<'_>>,
    ) {
        if let Some(key) = to
            && let Some(entry) = self.connections.get(&key)
        {
            let mut shared = entry.slot.lock_for_driver();
            shared.driver_wakes_at = None;
            for datagram in run.iter() {
                shared.connection.handle_datagram(now, datagram);
            }
            let waiting = shared.waiting();
            drop(shared);
            entry.slot.wake(waiting);
            self.make_due(key);
        }
        run.clear();
    }

    /// Lets a connection handle its timers, and send once.
    fn serve(&mut self, key: UdpStreamKey) {
        let Some(entry) = self.connections.get_mut(&key) else { return };
        let now = now();
        let mut shared = entry.slot.lock_for_driver();
        let connection = &mut shared.connection;
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        let (mut to, mut count) = (None, 0);
        while count < MAX_DATAGRAMS && !self.batch.is_full() {
            self.datagram.clear();
            let Some(peer) = connection.poll_transmit(now, &mut self.datagram) else { break };
            count += 1;
            if *to.get_or_insert(peer) == peer {
                self.batch.reserve(self.datagram.len()).copy_from_slice(&self.datagram);
            } else {
                self.socket.send_one(&self.datagram, peer);
            }
        }
        let has_more = count == MAX_DATAGRAMS || self.batch.is_full();
        let (state, timeout) = (connection.state(), connection.poll_timeout());
        let next = timeout.map(|at| if has_more { now } else { at });
        shared.driver_wakes_at = next;
        shared.is_removed_from_driver = next.is_none();
        let waiting = shared.waiting();
        let last = std::mem::take(&mut shared.is_final_send_awaited).then(|| entry.slot.clone());
        drop(shared);
        entry.slot.wake(waiting);
        if let Some(to) = to {
            self.batch_destination = Some(to);
        }
        if !entry.is_accepted && state.phase == UdpStreamPhase::Open {
            entry.is_accepted = true;
            self.handshakes_in_progress -= 1;
            let slot = entry.slot.clone();
            self.accept(slot);
        }
        match next {
            Some(deadline) => {
                if let Some(entry) = self.connections.get_mut(&key) {
                    entry.deadline = Some(deadline);
                    self.deadlines.insert((deadline, key));
                }
            }
            None => self.remove(key),
        }
        self.send();
        if let Some(slot) = last {
            slot.notify_final_send();
        }
    }

    /// Sends the batches until the socket's buffer is full.
    fn send(&mut self) {
        let Some(to) = self.batch_destination else { return };
        if let Some(position) = self.socket.send(&self.batch, to).full_at {
            self.batch.skip(position);
        } else {
            self.batch.clear();
            self.batch_destination = None;
        }
    }

    /// Passes a connection to the acceptor once it is open.
    fn accept(&self, slot: Arc<UdpStreamSlot>) {
        let (Some(backlog), Some(endpoint)) =
            (&self.backlog, self.endpoints.get(slot.key.endpoint))
        else {
            return;
        };
        let stream = UdpStream::new(slot, self.wake.clone());
        let refused = backlog.push(AcceptedUdpStream { stream, protocol: endpoint.protocol() });
        if let Some(accepted) = refused {
            accepted.stream.drop_without_waiting();
        }
    }

    fn remove(&mut self, key: UdpStreamKey) {
        let unopened = self.connections.remove(&key).filter(|entry| !entry.is_accepted);
        self.handshakes_in_progress -= usize::from(unopened.is_some());
        let Some(endpoint) = self.endpoints.get_mut(key.endpoint) else { return };
        endpoint.forget(key.id);
        if let Some(entry) = unopened {
            let connection = &entry.slot.lock_for_program().connection;
            if let Some(error) = connection.error() {
                endpoint.failed(connection.peer_addr(), &error);
            }
        }
    }
}

impl Drop for UdpStreamDriver {
    /// Wakes every waiting thread with an error, even after a panic.
    fn drop(&mut self) {
        for entry in self.connections.values() {
            entry.slot.make_unusable(StreamUnusableReason::Abandoned);
        }
        if let Some(backlog) = &self.backlog {
            backlog.fail();
        }
    }
}
