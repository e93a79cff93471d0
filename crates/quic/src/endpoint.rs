//! The listening side.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{ConnectionHandle, DatagramEvent, Incoming, ServerConfig};
use udp::streams::{self, Datagram, Load, Routed, instant};

use crate::config::Config;
use crate::connection::Driven;
use crate::hub::Hub;
use crate::identity;
use crate::refusal::{ConnectionIds, Reason};

/// The bit that every datagram of QUIC begins with, after the one that says which header it has.
const FIXED_BIT: u8 = 0x40;

/// Listens for connections.
pub struct Endpoint {
    hub: Hub,
    config: Config,
}

impl Endpoint {
    /// An endpoint. `seed` makes tests repeatable.
    ///
    /// # Errors
    /// If the configuration is out of the range of QUIC.
    pub fn new(config: &Config, seed: Option<[u8; 32]>) -> io::Result<Self> {
        let mut server = ServerConfig::with_crypto(identity::server(config)?);
        server.transport_config(Arc::new(config.transport()?)).migration(true);
        Ok(Self { hub: Hub::new(Some(Arc::new(server)), seed), config: config.clone() })
    }

    fn accept(&self, now: Duration, incoming: Incoming, first: &[u8], load: Load) -> Routed {
        let mut hub = self.hub.lock();
        let mut answer = Vec::new();
        if load == Load::Full {
            let transmit = hub.endpoint.refuse(incoming, &mut answer);
            answer.truncate(transmit.size);
            return Routed::Refuse { answer, why: "too many connections wait to be accepted" };
        }
        if load == Load::Heavy && !incoming.remote_address_validated() && incoming.may_retry() {
            return match hub.endpoint.retry(incoming, &mut answer) {
                Ok(_) => Routed::Answer(answer),
                Err(error) => {
                    hub.endpoint.ignore(error.into_incoming());
                    Routed::Nothing
                }
            };
        }
        match hub.endpoint.accept(incoming, instant(now), &mut answer, None) {
            Ok((handle, connection)) => {
                drop(hub);
                let connection =
                    Driven::accepted(self.hub.clone(), handle, connection, &self.config, now);
                Routed::Accept { id: handle.0 as u64, connection: Box::new(connection) }
            }
            Err(error) if error.response.is_some() => Routed::Answer(answer),
            Err(_) => self.refuse(first),
        }
    }

    /// Answers a datagram that cannot be decrypted: if it is a client's first one, that was not
    /// encrypted with this listener's key.
    fn refuse(&self, first: &[u8]) -> Routed {
        let is_insecure = self.config.listener.is_none();
        let (reason, why) = if is_insecure {
            let why = "it connects with encryption, and this end is insecure; both must be";
            (Reason::Insecure, why)
        } else {
            (Reason::OtherKey, "it expects another key here, or connects without encryption")
        };
        let ids = ConnectionIds::of_first(first);
        ids.map_or(Routed::Nothing, |ids| Routed::Refuse { answer: ids.refusal(reason), why })
    }
}

impl streams::Endpoint for Endpoint {
    fn protocol(&self) -> &'static str {
        "quic"
    }

    fn handle_datagram(&mut self, now: Duration, datagram: &Datagram<'_>, load: Load) -> Routed {
        if datagram.bytes.first().is_none_or(|first| first & FIXED_BIT == 0) {
            return Routed::NotMine;
        }
        let mut answer = Vec::new();
        let mut hub = self.hub.lock();
        match hub.handle(now, datagram.from, datagram.bytes, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                hub.put(handle, event);
                Routed::To(handle.0 as u64)
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                drop(hub);
                self.accept(now, incoming, datagram.bytes, load)
            }
            Some(DatagramEvent::Response(_)) => Routed::Answer(answer),
            None => self.refuse(datagram.bytes),
        }
    }

    fn forget(&mut self, id: u64) {
        if let Ok(handle) = usize::try_from(id) {
            self.hub.lock().forget(ConnectionHandle(handle));
        }
    }
}
