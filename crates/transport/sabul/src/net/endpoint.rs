//! The listening side of a socket.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use udp::streams::{self, DatagramRouting, ListenerLoad, ReceivedDatagram};

use super::connection::SabulStreamConnection;
use crate::protocol::{
    SabulConfig, SabulConnectRequest, SabulListener, SabulListenerAction, destination,
};

/// Accepts connections on a UDP socket.
#[derive(Debug)]
pub struct SabulEndpoint {
    listener: SabulListener,
    /// The connections, by the socket identifier of this end.
    connections: HashMap<u32, SabulClientSocket>,
    /// The socket identifier of this end, by client.
    sockets: HashMap<SabulClientSocket, u32>,
}

/// A client's address and socket identifier, which identify its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SabulClientSocket {
    address: SocketAddr,
    socket: u32,
}

impl SabulEndpoint {
    /// Creates an endpoint with a random secret for its cookies.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub fn new(config: SabulConfig) -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self {
            listener: SabulListener::new(config, secret),
            connections: HashMap::new(),
            sockets: HashMap::new(),
        })
    }

    fn accept(
        &mut self,
        now: Duration,
        from: SocketAddr,
        request: &SabulConnectRequest,
        load: ListenerLoad,
    ) -> DatagramRouting {
        let client = SabulClientSocket { address: from, socket: request.socket() };
        if let Some(&socket) = self.sockets.get(&client) {
            return DatagramRouting::To(socket.into());
        }
        let Ok(socket) = getrandom::u32() else { return DatagramRouting::Nothing };
        let socket = socket.max(1);
        if load == ListenerLoad::Full || self.connections.contains_key(&socket) {
            let why = "too many connections wait to be accepted";
            return DatagramRouting::Refuse { answer: request.refusal(), why };
        }
        let connection = self.listener.accept(request, from.ip(), socket, now);
        self.connections.insert(socket, client);
        self.sockets.insert(client, socket);
        let connection = Box::new(SabulStreamConnection::connected(connection, from));
        DatagramRouting::Accept { id: socket.into(), connection }
    }
}

impl streams::UdpStreamEndpoint for SabulEndpoint {
    fn protocol(&self) -> &'static str {
        "sabul"
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting {
        match destination(datagram.bytes) {
            Some(0) => match self.listener.handle_datagram(now, datagram.from, datagram.bytes) {
                SabulListenerAction::Answer(answer) => DatagramRouting::Answer(answer),
                SabulListenerAction::Request(request) => {
                    self.accept(now, datagram.from, &request, load)
                }
                SabulListenerAction::Nothing => DatagramRouting::NotMine,
            },
            Some(socket) => match self.connections.get(&socket) {
                Some(client) if client.address == datagram.from => {
                    DatagramRouting::To(socket.into())
                }
                _ => DatagramRouting::NotMine,
            },
            None => DatagramRouting::NotMine,
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
