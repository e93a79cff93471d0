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

/// Without a cookie, so many hellos a second may cost a handshake's computations, and as many at
/// once.
const HANDSHAKES_PER_S: f64 = 200.0;

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
    /// How many hellos may cost computations without a cookie, at what time.
    allowed: (f64, Duration),
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
            allowed: (HANDSHAKES_PER_S, Duration::ZERO),
        })
    }

    fn handle_hello(
        &mut self,
        now: Duration,
        datagram: &Datagram<'_>,
        client: ConnectionId,
        hello: &Hello<'_>,
        load: Load,
    ) -> Result<(u64, Connection), Routed> {
        let attempt = (datagram.from, client);
        if let Some(&id) = self.attempts.get(&attempt) {
            return Err(Routed::To(id));
        }
        let is_encrypted = matches!(self.security, ListenerSecurity::Noise(..));
        if is_encrypted != (hello.mode == Mode::Noise) {
            return Err(self.refuse(client, Reason::OtherMode));
        }
        if load == Load::Full {
            return Err(self.refuse(client, Reason::Busy));
        }
        let is_proven = self.cookies.verify(now, datagram.from, client, &hello.cookie);
        if !is_proven && (load == Load::Heavy || !self.is_allowed(now)) {
            let cookie = self.cookies.make(now, datagram.from, client);
            return Err(Routed::Answer(packet::retry(client, cookie)));
        }
        let (Ok(own_id), Ok(secret)) = (draw_id(&mut self.generator), self.generator.array())
        else {
            return Err(Routed::Nothing);
        };
        let own = match &self.security {
            ListenerSecurity::Noise(own, known) => Some((&**own, known)),
            ListenerSecurity::Insecure => None,
        };
        let window = self.config.receive_buffer as u64;
        let at = datagram.arrived_at.min(now);
        let server = Server::new(own, [own_id, client], window, hello, &mut self.generator, at);
        let server = match server {
            Ok(server) => server,
            Err(Refused(Some(reason))) => return Err(self.refuse(client, reason)),
            Err(Refused(None)) => return Err(Routed::Nothing),
        };
        let id = self.next;
        self.next += 1;
        self.ids.insert(own_id, id);
        self.attempts.insert(attempt, id);
        self.connections.insert(id, (own_id, attempt));
        let ids = [own_id, client];
        let connection = Connection::answer(self.config, server, ids, datagram.from, secret, now);
        Ok((id, connection))
    }

    fn refuse(&self, client: ConnectionId, reason: Reason) -> Routed {
        let why = match (reason, &self.security) {
            (Reason::OtherKey, _) => "it expects another key here",
            (Reason::UnknownKey, _) => "its key is not one that may connect here",
            (Reason::OtherMode, ListenerSecurity::Noise(..)) => {
                "it connects without encryption, which is refused here; give it this end's key"
            }
            (Reason::OtherMode, ListenerSecurity::Insecure) => {
                "it connects with encryption, and this end is insecure; both must be"
            }
            (Reason::OtherVersion, _) => "it has another version: update the older end",
            (Reason::Busy, _) => "too many connections wait to be accepted",
        };
        Routed::Refuse { answer: packet::refusal(client, reason), why }
    }

    /// Whether a hello without a cookie may cost computations.
    fn is_allowed(&mut self, now: Duration) -> bool {
        let (allowed, at) = self.allowed;
        let gained = now.saturating_sub(at).as_secs_f64() * HANDSHAKES_PER_S;
        let allowed = (allowed + gained).min(HANDSHAKES_PER_S);
        self.allowed = ((allowed - 1.0).max(0.0), now);
        allowed >= 1.0
    }

    /// The connection that a hello makes.
    #[cfg(any(fuzzing, test))]
    pub(super) fn handle(
        &mut self,
        now: Duration,
        hello: &Datagram<'_>,
    ) -> Option<Box<Connection>> {
        let Some(Packet::Handshake(client, Handshake::Hello(content))) = Packet::parse(hello.bytes)
        else {
            return None;
        };
        let made = self.handle_hello(now, hello, client, &content, Load::Light);
        made.ok().map(|(_, connection)| Box::new(connection))
    }

    /// The number of connections.
    #[cfg(any(fuzzing, test))]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
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
                Handshake::Hello(hello) => {
                    match self.handle_hello(now, datagram, client, &hello, load) {
                        Ok((id, connection)) => {
                            Routed::Accept { id, connection: Box::new(connection) }
                        }
                        Err(routed) => routed,
                    }
                }
                Handshake::OtherVersion => self.refuse(client, Reason::OtherVersion),
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
