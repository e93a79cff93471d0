//! Initial keys that depend on the listener's public key.
//!
//! Standard QUIC encrypts the first packets with keys that anyone can derive from the connection
//! identifier (RFC 9001, 5.2). Here the listener's public key is appended to the identifier for
//! this derivation. So a listener answers only clients that know its key, and reveals its key to
//! nobody else.

use std::any::Any;
use std::sync::Arc;

use keys::IdentityPublicKey;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use rustls::quic::{Suite, Version};

/// QUIC version 1.
pub(crate) const VERSION: u32 = 1;

/// Derives the keys of the first packets.
#[derive(Clone, Copy)]
pub(crate) struct InitialKeyDeriver {
    pub(crate) listener: IdentityPublicKey,
    pub(crate) suite: Suite,
}

impl InitialKeyDeriver {
    fn keys(&self, identifier: &ConnectionId, side: Side) -> Keys {
        let secret = [&identifier[..], &self.listener.to_bytes()].concat();
        let side = match side {
            Side::Client => rustls::Side::Client,
            Side::Server => rustls::Side::Server,
        };
        let keys = self.suite.keys(&secret, side, Version::V1);
        Keys {
            header: KeyPair {
                local: Box::new(keys.local.header),
                remote: Box::new(keys.remote.header),
            },
            packet: KeyPair {
                local: Box::new(keys.local.packet),
                remote: Box::new(keys.remote.packet),
            },
        }
    }
}

/// A client's TLS with these initial keys.
pub(crate) struct KeyedTlsClient {
    pub(crate) tls: Arc<QuicClientConfig>,
    pub(crate) first: InitialKeyDeriver,
}

impl crypto::ClientConfig for KeyedTlsClient {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        name: &str,
        parameters: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.tls.clone().start_session(version, name, parameters)?;
        Ok(Box::new(KeyedTlsSession { session, first: self.first }))
    }
}

/// A listener's TLS with these initial keys.
pub(crate) struct KeyedTlsServer {
    pub(crate) tls: Arc<QuicServerConfig>,
    pub(crate) first: InitialKeyDeriver,
}

impl crypto::ServerConfig for KeyedTlsServer {
    fn initial_keys(
        &self,
        version: u32,
        identifier: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        if version != VERSION {
            return Err(UnsupportedVersion);
        }
        Ok(self.first.keys(identifier, Side::Server))
    }

    fn retry_tag(&self, version: u32, identifier: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.tls.retry_tag(version, identifier, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        parameters: &TransportParameters,
    ) -> Box<dyn Session> {
        let session = self.tls.clone().start_session(version, parameters);
        Box::new(KeyedTlsSession { session, first: self.first })
    }
}

/// A TLS session with these initial keys.
struct KeyedTlsSession {
    session: Box<dyn Session>,
    first: InitialKeyDeriver,
}

impl Session for KeyedTlsSession {
    fn initial_keys(&self, identifier: &ConnectionId, side: Side) -> Keys {
        self.first.keys(identifier, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(bytes)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, to: &mut Vec<u8>) -> Option<Keys> {
        self.session.write_handshake(to)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session.next_1rtt_keys()
    }

    fn is_valid_retry(&self, identifier: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session.is_valid_retry(identifier, header, payload)
    }

    fn export_keying_material(
        &self,
        to: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(to, label, context)
    }
}
