//! The listening side.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use ::udp::streams::{Datagram, Endpoint, Load, Routed};
use keys::SharedKey;

use super::connection::{Connection, Settings};
use super::packet::{COOKIE_LEN, Content, Packet};

/// How long a cookie is made of the same time. It is valid for one to two of these.
const COOKIE_PERIOD_SECS: u64 = 60;

/// Listens for connections.
pub(super) struct Listener {
    settings: Settings,
    secret: SharedKey,
    /// The clients' addresses.
    connections: HashMap<u64, SocketAddr>,
}

impl Listener {
    /// A listener. `secret` is random; cookies are made of it.
    pub(super) fn new(settings: Settings, secret: &[u8; 32]) -> Self {
        Self { settings, secret: SharedKey::new(secret), connections: HashMap::new() }
    }

    fn accept(
        &mut self,
        now: Duration,
        from: SocketAddr,
        id: u64,
        cookie: [u8; COOKIE_LEN],
        load: Load,
    ) -> Routed {
        let period = now.as_secs() / COOKIE_PERIOD_SECS;
        let has_proved_address = [period, period.wrapping_sub(1)]
            .iter()
            .any(|&period| self.cookie(from, period) == cookie);
        let answer = match load {
            Load::Full => Content::Close { next: 0 },
            Load::Heavy if !has_proved_address => {
                Content::Cookie { cookie: self.cookie(from, period) }
            }
            Load::Light | Load::Heavy => {
                self.connections.insert(id, from);
                let connection = Box::new(Connection::server(id, from, self.settings, now));
                return Routed::Accept { id, connection };
            }
        };
        let is_refused = matches!(answer, Content::Close { .. });
        let mut answered = Vec::new();
        Packet { id, content: answer }.write(&mut answered);
        if is_refused {
            let why = "too many connections wait to be accepted";
            Routed::Refuse { answer: answered, why }
        } else {
            Routed::Answer(answered)
        }
    }

    /// Bytes that only this listener can compute for an address and a time.
    fn cookie(&self, from: SocketAddr, period: u64) -> [u8; COOKIE_LEN] {
        let code = self.secret.authenticate(&[from.to_string().as_bytes(), &period.to_be_bytes()]);
        std::array::from_fn(|index| code[index])
    }
}

impl Endpoint for Listener {
    fn protocol(&self) -> &'static str {
        "udp"
    }

    fn handle_datagram(&mut self, now: Duration, datagram: &Datagram<'_>, load: Load) -> Routed {
        let Some(Packet { id, content }) = Packet::parse(datagram.bytes) else {
            return Routed::NotMine;
        };
        match (self.connections.get(&id), content) {
            (Some(client), _) if *client == datagram.from => Routed::To(id),
            (None, Content::Request { cookie }) => {
                self.accept(now, datagram.from, id, cookie, load)
            }
            _ => Routed::Nothing,
        }
    }

    fn forget(&mut self, id: u64) {
        self.connections.remove(&id);
    }
}
