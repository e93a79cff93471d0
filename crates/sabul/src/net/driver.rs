//! The thread of a socket.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use udp::{Batch, RecvBuffer, Socket};

use super::stream::{Slot, Stream};
use super::wake::Wake;
use super::{Clock, wait};
use crate::protocol::{Config, Connection, Listener, Listening, Request, destination};

/// The longest sleep. Nothing needs it; it bounds what a mistake costs.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The most connections of a listener.
const MAX_CONNECTIONS: usize = 10_000;

/// The thread of a socket: receives, calls the protocol, sends.
pub(super) struct Driver {
    socket: Socket,
    clock: Clock,
    wake: Arc<Wake>,
    /// By the identifier of this end's socket.
    slots: HashMap<u32, Arc<Slot>>,
    listening: Option<ListeningState>,
    received: RecvBuffer,
    batch: Batch,
    datagram: Vec<u8>,
}

struct ListeningState {
    listener: Listener,
    accepted: SyncSender<Stream>,
    /// This end's socket by the client's address and socket.
    requests: HashMap<(SocketAddr, u32), u32>,
}

impl Driver {
    pub(super) fn new(socket: Socket, clock: Clock) -> io::Result<Self> {
        Ok(Self {
            socket,
            clock,
            wake: Arc::new(Wake::new()?),
            slots: HashMap::new(),
            listening: None,
            received: RecvBuffer::new(),
            batch: Batch::default(),
            datagram: Vec::new(),
        })
    }

    pub(super) fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, connection: Connection, peer: SocketAddr) -> Stream {
        let socket = connection.socket();
        let slot = Arc::new(Slot::new(connection, peer));
        self.slots.insert(socket, slot.clone());
        Stream::new(slot, self.wake.clone(), self.clock)
    }

    /// Listens from now on.
    pub(super) fn listen(
        &mut self,
        config: Config,
        secret: [u8; 32],
        backlog: usize,
    ) -> Receiver<Stream> {
        let (accepted, streams) = sync_channel(backlog);
        self.wake.start_listening();
        let listener = Listener::new(config, secret);
        self.listening = Some(ListeningState { listener, accepted, requests: HashMap::new() });
        streams
    }

    /// Runs it in a thread of its own, until its connections are over and nobody listens.
    pub(super) fn spawn(self) -> io::Result<()> {
        std::thread::Builder::new().name("sabul".into()).spawn(move || self.run())?;
        Ok(())
    }

    fn run(mut self) {
        loop {
            if !self.wake.is_listening() {
                self.listening = None;
            }
            if self.receive().is_err() {
                return;
            }
            let deadline = self.serve();
            if self.slots.is_empty() && self.listening.is_none() {
                return;
            }
            let sleep = deadline.saturating_sub(self.clock.now()).min(MAX_SLEEP);
            if wait(&self.socket, Some(&self.wake), sleep).is_err() {
                return;
            }
        }
    }

    /// Takes all datagrams that have arrived.
    fn receive(&mut self) -> io::Result<()> {
        let mut received = std::mem::take(&mut self.received);
        let mut has_more = true;
        while has_more {
            has_more = received.receive(&self.socket)?;
            let now = self.clock.now();
            for (from, datagram) in received.datagrams() {
                match destination(datagram) {
                    Some(0) => self.handle_request(now, from, datagram),
                    Some(socket) => {
                        if let Some(slot) = self.slots.get(&socket)
                            && slot.peer == from
                        {
                            slot.lock().connection.handle_datagram(now, datagram);
                        }
                    }
                    None => {}
                }
            }
        }
        self.received = received;
        Ok(())
    }

    fn handle_request(&mut self, now: Duration, from: SocketAddr, datagram: &[u8]) {
        let Some(listening) = &mut self.listening else { return };
        match listening.listener.handle_datagram(now, from, datagram) {
            Listening::Answer(answer) => {
                self.socket.send_one(&answer, from);
            }
            Listening::Request(request) => self.accept(now, from, &request),
            Listening::Nothing => {}
        }
    }

    fn accept(&mut self, now: Duration, from: SocketAddr, request: &Request) {
        let Some(listening) = &mut self.listening else { return };
        if let Some(socket) = listening.requests.get(&(from, request.socket())) {
            if let Some(slot) = self.slots.get(socket) {
                slot.lock().connection.respond();
            }
            return;
        }
        let Ok(socket) = getrandom::u32() else { return };
        let socket = socket.max(1);
        if self.slots.len() >= MAX_CONNECTIONS || self.slots.contains_key(&socket) {
            self.socket.send_one(&request.refusal(), from);
            return;
        }
        let connection = listening.listener.accept(request, from.ip(), socket, now);
        let accepted = listening.accepted.clone();
        let stream = self.add(connection, from);
        if accepted.try_send(stream).is_err() {
            self.slots.remove(&socket);
            self.socket.send_one(&request.refusal(), from);
            return;
        }
        if let Some(listening) = &mut self.listening {
            listening.requests.insert((from, request.socket()), socket);
        }
    }

    /// Lets each connection do what is due and send. Returns when the next one has to.
    fn serve(&mut self) -> Duration {
        let mut deadline = Duration::MAX;
        let mut over = Vec::new();
        for (&socket, slot) in &self.slots {
            let mut state = slot.lock();
            let now = self.clock.now();
            if state.connection.poll_timeout().is_some_and(|at| at <= now) {
                state.connection.handle_timeout(now);
            }
            loop {
                self.datagram.clear();
                if !state.connection.poll_transmit(self.clock.now(), &mut self.datagram) {
                    break;
                }
                self.batch.reserve(self.datagram.len()).copy_from_slice(&self.datagram);
                if self.batch.is_full() {
                    break;
                }
            }
            if !self.batch.is_empty() {
                self.socket.send(&self.batch, slot.peer);
                if self.batch.is_full() {
                    deadline = now;
                }
                self.batch.clear();
            }
            slot.notify(&state);
            state.driver_sleeps = true;
            match state.connection.poll_timeout() {
                Some(at) => deadline = deadline.min(at),
                None => over.push(socket),
            }
        }
        for socket in over {
            self.slots.remove(&socket);
            if let Some(listening) = &mut self.listening {
                listening.requests.retain(|_, known| *known != socket);
            }
        }
        deadline
    }
}
