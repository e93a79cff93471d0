//! The listening side: makes connections of hellos, and knows whose a datagram is.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keys::SecretKey;
use sharing::{Generator, RandomError};
use udp::streams::{Datagram, Endpoint, Load, Routed};

use super::config::{Config, Known};
use super::connection::Connection;
use super::handshake::{Cookies, Refused, Server, draw_id};
use super::packet::{self, ConnectionId, Handshake, Hello, Mode, Packet, Reason};

/// The name of the protocol.
const NAME: &str = "burst";

/// Whom a listener accepts.
#[derive(Clone)]
pub enum ListenerSecurity {
    /// Clients with a known key; packets are encrypted. The own key, and whose are known.
    Noise(Arc<SecretKey>, Known),
    /// Everybody; everybody on the path can read and change the streams.
    Insecure,
}

/// A listener.
pub struct Listener {
    config: Config,
    security: ListenerSecurity,
    generator: Generator,
    cookies: Cookies,
    /// The connections by their ids here, and by their clients' addresses and ids there.
    ids: HashMap<ConnectionId, u64>,
    attempts: HashMap<(SocketAddr, ConnectionId), u64>,
    /// Both by their numbers.
    connections: HashMap<u64, (ConnectionId, (SocketAddr, ConnectionId))>,
    next: u64,
}

impl Listener {
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn new(
        config: Config,
        security: ListenerSecurity,
        mut generator: Generator,
    ) -> Result<Self, RandomError> {
        Ok(Self {
            config,
            security,
            cookies: Cookies::new(generator.array()?),
            generator,
            ids: HashMap::new(),
            attempts: HashMap::new(),
            connections: HashMap::new(),
            next: 0,
        })
    }

    fn handle_hello(
        &mut self,
        now: Duration,
        datagram: &Datagram<'_>,
        client: ConnectionId,
        hello: &Hello<'_>,
        load: Load,
    ) -> Routed {
        let attempt = (datagram.from, client);
        if let Some(&id) = self.attempts.get(&attempt) {
            return Routed::To(id);
        }
        let own = match (&self.security, hello.mode) {
            (ListenerSecurity::Noise(own, known), Mode::Noise) => Some((&**own, known)),
            (ListenerSecurity::Insecure, Mode::Insecure) => None,
            _ => return Routed::Answer(self.refusal(client, Reason::OtherMode)),
        };
        match load {
            Load::Light => {}
            Load::Heavy if self.cookies.verify(now, datagram.from, client, &hello.cookie) => {}
            Load::Heavy => {
                let cookie = self.cookies.make(now, datagram.from, client);
                return Routed::Answer(packet::retry(client, cookie));
            }
            Load::Full => return Routed::Nothing,
        }
        let (Ok(own_id), Ok(secret)) = (draw_id(&mut self.generator), self.generator.array())
        else {
            return Routed::Nothing;
        };
        let window = self.config.receive_buffer as u64;
        let at = datagram.arrived_at.min(now);
        let server = Server::new(own, [own_id, client], window, hello, &mut self.generator, at);
        let server = match server {
            Ok(server) => server,
            Err(Refused(Some(reason))) => return Routed::Answer(self.refusal(client, reason)),
            Err(Refused(None)) => return Routed::Nothing,
        };
        let id = self.next;
        self.next += 1;
        self.ids.insert(own_id, id);
        self.attempts.insert(attempt, id);
        self.connections.insert(id, (own_id, attempt));
        let ids = [own_id, client];
        let connection = Connection::answer(self.config, server, ids, datagram.from, secret, now);
        Routed::Accept { id, connection: Box::new(connection) }
    }

    fn refusal(&self, client: ConnectionId, reason: Reason) -> Vec<u8> {
        let key = match &self.security {
            ListenerSecurity::Noise(own, _) => own.public().to_bytes(),
            ListenerSecurity::Insecure => [0; 32],
        };
        packet::refusal(client, reason, key)
    }
}

impl Endpoint for Listener {
    fn protocol(&self) -> &'static str {
        NAME
    }

    fn handle_datagram(&mut self, now: Duration, datagram: &Datagram<'_>, load: Load) -> Routed {
        match Packet::parse(datagram.bytes) {
            None => Routed::NotMine,
            Some(Packet::Sealed { to, .. }) => {
                self.ids.get(&to).map_or(Routed::NotMine, |&id| Routed::To(id))
            }
            Some(Packet::Handshake(client, handshake)) => match handshake {
                Handshake::Hello(hello) => self.handle_hello(now, datagram, client, &hello, load),
                Handshake::OtherVersion => {
                    Routed::Answer(self.refusal(client, Reason::OtherVersion))
                }
                Handshake::Train(..) => {
                    let attempt = (datagram.from, client);
                    self.attempts.get(&attempt).map_or(Routed::Nothing, |&id| Routed::To(id))
                }
                Handshake::Answer(_) | Handshake::Retry(_) | Handshake::Refusal(..) => {
                    Routed::Nothing
                }
            },
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some((own_id, attempt)) = self.connections.remove(&id) {
            self.ids.remove(&own_id);
            self.attempts.remove(&attempt);
        }
    }
}
