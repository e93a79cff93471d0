//! The listening side of a socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{ConnectionHandle, DatagramEvent, Incoming, ServerConfig};
use udp::streams::{self, DatagramRouting, ListenerLoad, ReceivedDatagram, instant};

use crate::config::QuicConfig;
use crate::connection::QuicConnection;
use crate::identity;
use crate::refusal::{QuicConnectionIds, QuicRefusalReason};
use crate::shared_endpoint::SharedQuicEndpoint;

/// The fixed bit of a QUIC header, which follows the header form bit.
const FIXED_BIT: u8 = 0x40;

/// Accepts connections on a UDP socket.
pub struct QuicEndpoint {
    hub: SharedQuicEndpoint,
    config: QuicConfig,
}

impl QuicEndpoint {
    /// Creates an endpoint. With a `seed`, it is reproducible, for tests.
    ///
    /// # Errors
    /// If the configuration is out of QUIC's range.
    pub fn new(config: &QuicConfig, seed: Option<[u8; 32]>) -> io::Result<Self> {
        let mut server = ServerConfig::with_crypto(identity::server(config)?);
        server.transport_config(Arc::new(config.transport()?)).migration(true);
        Ok(Self {
            hub: SharedQuicEndpoint::new(Some(Arc::new(server)), seed),
            config: config.clone(),
        })
    }

    fn accept(
        &self,
        now: Duration,
        incoming: Incoming,
        first: &[u8],
        load: ListenerLoad,
    ) -> DatagramRouting {
        let mut hub = self.hub.lock();
        let mut answer = Vec::new();
        if load == ListenerLoad::Full {
            let transmit = hub.endpoint.refuse(incoming, &mut answer);
            answer.truncate(transmit.size);
            return DatagramRouting::Refuse {
                answer,
                why: "too many connections wait to be accepted",
            };
        }
        if load == ListenerLoad::Heavy
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            return match hub.endpoint.retry(incoming, &mut answer) {
                Ok(_) => DatagramRouting::Answer(answer),
                Err(error) => {
                    hub.endpoint.ignore(error.into_incoming());
                    DatagramRouting::Nothing
                }
            };
        }
        match hub.endpoint.accept(incoming, instant(now), &mut answer, None) {
            Ok((handle, connection)) => {
                drop(hub);
                let connection = QuicConnection::accepted(
                    self.hub.clone(),
                    handle,
                    connection,
                    &self.config,
                    now,
                );
                DatagramRouting::Accept { id: handle.0 as u64, connection: Box::new(connection) }
            }
            Err(error) if error.response.is_some() => DatagramRouting::Answer(answer),
            Err(_) => self.refuse(first),
        }
    }

    /// Sends a refusal in response to a client's first datagram that was not encrypted with this
    /// listener's key, and so cannot be decrypted.
    fn refuse(&self, first: &[u8]) -> DatagramRouting {
        let is_insecure = self.config.listener.is_none();
        let (reason, why) = if is_insecure {
            let why = "it connects with encryption, and this end is insecure; both must be";
            (QuicRefusalReason::Insecure, why)
        } else {
            (
                QuicRefusalReason::OtherKey,
                "its first packet does not fit this end's key: another key was given there, it \
                 connects without encryption, or bytes were changed on the way",
            )
        };
        let ids = QuicConnectionIds::from_initial(first);
        ids.map_or(DatagramRouting::Nothing, |ids| DatagramRouting::Refuse {
            answer: ids.refusal(reason),
            why,
        })
    }
}

impl streams::UdpStreamEndpoint for QuicEndpoint {
    fn protocol(&self) -> &'static str {
        "quic"
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting {
        if datagram.bytes.first().is_none_or(|first| first & FIXED_BIT == 0) {
            return DatagramRouting::NotMine;
        }
        let mut answer = Vec::new();
        let mut hub = self.hub.lock();
        match hub.handle(now, datagram.from, datagram.bytes, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                hub.queue_event(handle, event);
                DatagramRouting::To(handle.0 as u64)
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                drop(hub);
                self.accept(now, incoming, datagram.bytes, load)
            }
            Some(DatagramEvent::Response(_)) => DatagramRouting::Answer(answer),
            None => self.refuse(datagram.bytes),
        }
    }

    fn forget(&mut self, id: u64) {
        if let Ok(handle) = usize::try_from(id) {
            self.hub.lock().forget(ConnectionHandle(handle));
        }
    }
}
