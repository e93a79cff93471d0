//! QUIC (RFC 9000) as one reliable stream in each direction, for [`udp::streams`].
//!
//! The protocol is implemented by the crate `quinn-proto`; sockets, threads and batching by
//! [`udp`]. Both ends prove Ed25519 identities in TLS 1.3 with raw public keys (RFC 7250), so there
//! are no certificates. `docs/protocols/quic.md` describes which parts of QUIC are used, with which
//! settings.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! use keys::IdentitySecretKey;
//! use sunder_quic::{QuicConfig, QuicPeerPolicy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, server) =
//!     (Arc::new(IdentitySecretKey::new(&[1; 32])), Arc::new(IdentitySecretKey::new(&[2; 32])));
//! let listener = Some(server.public());
//! let of_server = QuicConfig {
//!     listener,
//!     ..QuicConfig::new(server.clone(), QuicPeerPolicy::Only(vec![client.public()]))
//! };
//! let of_client = QuicConfig {
//!     listener,
//!     ..QuicConfig::new(client.clone(), QuicPeerPolicy::Only(vec![server.public()]))
//! };
//!
//! let acceptor = sunder_quic::listen("127.0.0.1:0".parse()?, &of_server, 1)?;
//! let mut to_server = sunder_quic::connect(acceptor.local_addr(), &of_client)?;
//! let mut to_client = acceptor.accept()?.stream;
//! assert_eq!(to_client.peer_key(), Some(client.public().to_bytes()));
//!
//! to_server.write_all(b"hello")?;
//! let mut read = [0; 5];
//! to_client.read_exact(&mut read)?;
//! assert_eq!(&read, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! All modules but this file are pure; [`udp::streams`] is the driver.
//!
//! - `connection`: one stream in each direction, with its `reassembly`. `endpoint`: the listening
//!   side. `shared_endpoint`: what the connections of a socket share.
//! - `identity`: TLS with raw public keys. `initial_keys`: keys that depend on the key of the
//!   listener. `refusal`: tells a client why it is refused.
//! - `config`, `error`.

mod config;
mod connection;
mod endpoint;
mod error;
mod identity;
mod initial_keys;
mod reassembly;
mod refusal;
mod shared_endpoint;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use udp::streams::{self, UdpStream, UdpStreamAcceptor};
use udp::{SocketBinding, UdpBatchSocket};

pub use config::{QuicConfig, QuicCongestionControl, QuicPeerPolicy};
pub use endpoint::QuicEndpoint;
pub use error::QuicError;

/// Connects to a listener and waits for the handshake.
///
/// # Errors
/// If no socket can be opened, or as described by [`QuicError`].
pub fn connect(peer: SocketAddr, config: &QuicConfig) -> io::Result<UdpStream> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None })?;
    let connection = connection::QuicConnection::connect(peer, config, None, streams::now())?;
    streams::connect(socket, Box::new(connection))
}

/// Listens on an address; port 0 chooses any. At most `backlog` connections wait to be accepted.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(
    local: SocketAddr,
    config: &QuicConfig,
    backlog: usize,
) -> io::Result<UdpStreamAcceptor> {
    let socket = UdpBatchSocket::bind(&SocketBinding { local, device: None })?;
    UdpStreamAcceptor::new(socket, vec![Box::new(QuicEndpoint::new(config, None)?)], backlog)
}
