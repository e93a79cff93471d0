//! The listening side: creates connections from hellos, and assigns datagrams to connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator};
use udp::cookies::AddressCookies;
use udp::streams::{DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamEndpoint};
use zeroize::Zeroizing;

use super::config::{BurstConfig, ClientKeyFilter};
use super::connection::BurstConnection;
use super::handshake::{BurstServerHandshake, RefusedBurstHello, random_connection_id};
use super::packet::{
    self, BurstConnectionId, BurstDatagram, BurstEncryptionMode, BurstHandshakeMessage, BurstHello,
    BurstRefusalReason,
};

/// The name of the protocol.
const NAME: &str = "burst";

/// Which clients a listener accepts.
#[derive(Clone)]
pub enum BurstListenerSecurity {
    /// Clients whose key the filter accepts; packets are encrypted with the listener's key.
    Noise(Arc<IdentitySecretKey>, ClientKeyFilter),
    /// All clients; anyone on the path can read and change the streams.
    Insecure,
}

/// The number of hellos without a cookie for which the listener computes a handshake: per second,
/// and at once.
const HANDSHAKES_PER_S: f64 = 200.0;

/// The period of cookies. A cookie is valid for one to two periods.
const COOKIE_PERIOD: Duration = Duration::from_secs(120);

/// A listener.
pub struct BurstListener {
    config: BurstConfig,
    security: BurstListenerSecurity,
    generator: RandomGenerator,
    cookies: AddressCookies,
    /// The connections by their ids here, and by their clients' addresses and ids.
    ids: HashMap<BurstConnectionId, u64>,
    attempts: HashMap<(SocketAddr, BurstConnectionId), u64>,
    /// Both keys of each connection, by its number.
    connections: HashMap<u64, (BurstConnectionId, (SocketAddr, BurstConnectionId))>,
    next: u64,
    /// The token bucket for hellos without a cookie: tokens, and when they were last updated.
    hello_tokens: (f64, Duration),
}

impl BurstListener {
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn new(
        config: BurstConfig,
        security: BurstListenerSecurity,
        mut generator: RandomGenerator,
    ) -> Result<Self, RandomError> {
        let secret = Zeroizing::new(generator.array::<32>()?);
        Ok(Self {
            config,
            security,
            cookies: AddressCookies::new(&secret, COOKIE_PERIOD),
            generator,
            ids: HashMap::new(),
            attempts: HashMap::new(),
            connections: HashMap::new(),
            next: 0,
            hello_tokens: (HANDSHAKES_PER_S, Duration::ZERO),
        })
    }

    fn handle_hello(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        client: BurstConnectionId,
        hello: &BurstHello<'_>,
        load: ListenerLoad,
    ) -> Result<(u64, BurstConnection), DatagramRouting> {
        let attempt = (datagram.from, client);
        if let Some(&id) = self.attempts.get(&attempt) {
            return Err(DatagramRouting::To(id));
        }
        let is_encrypted = matches!(self.security, BurstListenerSecurity::Noise(..));
        if is_encrypted != (hello.mode == BurstEncryptionMode::Noise) {
            return Err(self.refuse(client, BurstRefusalReason::OtherMode));
        }
        if load == ListenerLoad::Full {
            return Err(self.refuse(client, BurstRefusalReason::Busy));
        }
        let is_proven = self.cookies.verify(now, datagram.from, &client.to_bytes(), &hello.cookie);
        if !is_proven && (load == ListenerLoad::Heavy || !self.take_hello_token(now)) {
            let cookie = self.cookies.make(now, datagram.from, &client.to_bytes());
            return Err(DatagramRouting::Answer(packet::retry(client, cookie)));
        }
        let (Ok(own_id), Ok(secret)) =
            (random_connection_id(&mut self.generator), self.generator.array())
        else {
            return Err(DatagramRouting::Nothing);
        };
        let own = match &self.security {
            BurstListenerSecurity::Noise(own, known) => Some((&**own, known)),
            BurstListenerSecurity::Insecure => None,
        };
        let window = self.config.receive_buffer as u64;
        let at = datagram.arrived_at.min(now);
        let server = BurstServerHandshake::new(
            own,
            [own_id, client],
            window,
            hello,
            &mut self.generator,
            at,
        );
        let server = match server {
            Ok(server) => server,
            Err(RefusedBurstHello(Some(reason))) => return Err(self.refuse(client, reason)),
            Err(RefusedBurstHello(None)) => return Err(DatagramRouting::Nothing),
        };
        let id = self.next;
        self.next += 1;
        self.ids.insert(own_id, id);
        self.attempts.insert(attempt, id);
        self.connections.insert(id, (own_id, attempt));
        let ids = [own_id, client];
        let connection =
            BurstConnection::answer(self.config, server, ids, datagram.from, secret, now);
        Ok((id, connection))
    }

    fn refuse(&self, client: BurstConnectionId, reason: BurstRefusalReason) -> DatagramRouting {
        let why = match (reason, &self.security) {
            (BurstRefusalReason::OtherKey, _) => {
                "its first packet does not fit this end's key: another key was given there, or \
                 bytes were changed on the way"
            }
            (BurstRefusalReason::UnknownKey, _) => "its key is not one that may connect here",
            (BurstRefusalReason::OtherMode, BurstListenerSecurity::Noise(..)) => {
                "it connects without encryption, which is refused here; give it this end's key"
            }
            (BurstRefusalReason::OtherMode, BurstListenerSecurity::Insecure) => {
                "it connects with encryption, and this end is insecure; both must be"
            }
            (BurstRefusalReason::OtherVersion, _) => "it has another version: update the older end",
            (BurstRefusalReason::Busy, _) => "too many connections wait to be accepted",
        };
        DatagramRouting::Refuse { answer: packet::refusal(client, reason), why }
    }

    /// Takes a token for a hello without a cookie. Returns whether there was one.
    fn take_hello_token(&mut self, now: Duration) -> bool {
        let (allowed, at) = self.hello_tokens;
        let gained = now.saturating_sub(at).as_secs_f64() * HANDSHAKES_PER_S;
        let allowed = (allowed + gained).min(HANDSHAKES_PER_S);
        self.hello_tokens = ((allowed - 1.0).max(0.0), now);
        allowed >= 1.0
    }

    /// Creates the connection for a hello.
    #[cfg(any(fuzzing, test))]
    pub(super) fn handle(
        &mut self,
        now: Duration,
        hello: &ReceivedDatagram<'_>,
    ) -> Option<Box<BurstConnection>> {
        let Some(BurstDatagram::Handshake(client, BurstHandshakeMessage::Hello(content))) =
            BurstDatagram::parse(hello.bytes)
        else {
            return None;
        };
        let made = self.handle_hello(now, hello, client, &content, ListenerLoad::Light);
        made.ok().map(|(_, connection)| Box::new(connection))
    }

    /// The number of connections.
    #[cfg(any(fuzzing, test))]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }
}

impl UdpStreamEndpoint for BurstListener {
    fn protocol(&self) -> &'static str {
        NAME
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting {
        match BurstDatagram::parse(datagram.bytes) {
            None => DatagramRouting::NotMine,
            Some(BurstDatagram::Sealed { to, .. }) => {
                self.ids.get(&to).map_or(DatagramRouting::NotMine, |&id| DatagramRouting::To(id))
            }
            Some(BurstDatagram::Handshake(client, handshake)) => match handshake {
                BurstHandshakeMessage::Hello(hello) => {
                    match self.handle_hello(now, datagram, client, &hello, load) {
                        Ok((id, connection)) => {
                            DatagramRouting::Accept { id, connection: Box::new(connection) }
                        }
                        Err(routed) => routed,
                    }
                }
                BurstHandshakeMessage::OtherVersion => {
                    self.refuse(client, BurstRefusalReason::OtherVersion)
                }
                BurstHandshakeMessage::Train(..) => {
                    let attempt = (datagram.from, client);
                    self.attempts
                        .get(&attempt)
                        .map_or(DatagramRouting::Nothing, |&id| DatagramRouting::To(id))
                }
                BurstHandshakeMessage::Answer(_)
                | BurstHandshakeMessage::Retry(_)
                | BurstHandshakeMessage::Refusal(..) => DatagramRouting::Nothing,
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
