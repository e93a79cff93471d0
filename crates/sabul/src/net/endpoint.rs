//! The listening side.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use udp::streams::{self, Datagram, Load, Routed};

use super::connection::Driven;
use crate::protocol::{Config, Listener, Listening, Request, destination};

/// Listens for connections.
#[derive(Debug)]
pub struct Endpoint {
    listener: Listener,
    /// The connections, by the identifier of this end's socket.
    connections: HashMap<u32, Client>,
    /// This end's socket by the client.
    sockets: HashMap<Client, u32>,
}

/// A client's address and socket, which tell its requests from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    address: SocketAddr,
    socket: u32,
}

impl Endpoint {
    /// An endpoint whose cookies others cannot guess.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(config: Config) -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self {
            listener: Listener::new(config, secret),
            connections: HashMap::new(),
            sockets: HashMap::new(),
        })
    }

    fn accept(&mut self, now: Duration, from: SocketAddr, request: &Request, load: Load) -> Routed {
        let client = Client { address: from, socket: request.socket() };
        if let Some(&socket) = self.sockets.get(&client) {
            return Routed::To(socket.into());
        }
        let Ok(socket) = getrandom::u32() else { return Routed::Nothing };
        let socket = socket.max(1);
        if load == Load::Full || self.connections.contains_key(&socket) {
            let why = "too many connections wait to be accepted";
            return Routed::Refuse { answer: request.refusal(), why };
        }
        let connection = self.listener.accept(request, from.ip(), socket, now);
        self.connections.insert(socket, client);
        self.sockets.insert(client, socket);
        let connection = Box::new(Driven::connected(connection, from));
        Routed::Accept { id: socket.into(), connection }
    }
}

impl streams::Endpoint for Endpoint {
    fn protocol(&self) -> &'static str {
        "sabul"
    }

    fn handle_datagram(&mut self, now: Duration, datagram: &Datagram<'_>, load: Load) -> Routed {
        match destination(datagram.bytes) {
            Some(0) => match self.listener.handle_datagram(now, datagram.from, datagram.bytes) {
                Listening::Answer(answer) => Routed::Answer(answer),
                Listening::Request(request) => self.accept(now, datagram.from, &request, load),
                Listening::Nothing => Routed::NotMine,
            },
            Some(socket) => match self.connections.get(&socket) {
                Some(client) if client.address == datagram.from => Routed::To(socket.into()),
                _ => Routed::NotMine,
            },
            None => Routed::NotMine,
        }
    }

    fn forget(&mut self, id: u64) {
        if let Ok(socket) = u32::try_from(id)
            && let Some(client) = self.connections.remove(&socket)
        {
            self.sockets.remove(&client);
        }
    }
}
