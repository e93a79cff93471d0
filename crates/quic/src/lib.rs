//! QUIC (RFC 9000) as one reliable stream in each direction, for [`udp::streams`].
//!
//! The protocol is that of the crate `quinn-proto`; sockets, threads and batches are those of
//! [`udp`]. Both ends prove Ed25519 identities by TLS 1.3 with raw public keys (RFC 7250), so there
//! are no certificates. `docs/protocols/quic.md` says what is used of QUIC and what is set how.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! use keys::SecretKey;
//! use sunder_quic::{Config, Peers};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, server) = (Arc::new(SecretKey::new(&[1; 32])), Arc::new(SecretKey::new(&[2; 32])));
//! let listener = Some(server.public());
//! let of_server =
//!     Config { listener, ..Config::new(server.clone(), Peers::Only(vec![client.public()])) };
//! let of_client =
//!     Config { listener, ..Config::new(client.clone(), Peers::Only(vec![server.public()])) };
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

mod config;
mod connection;
mod endpoint;
mod error;
mod first_keys;
mod hub;
mod identity;
mod reassembly;
mod refusal;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use udp::streams::{self, Acceptor, Stream};
use udp::{BindTo, Socket};

pub use config::{Config, Congestion, Peers};
pub use endpoint::Endpoint;
pub use error::QuicError;

/// Connects to a listener and waits for the handshake.
///
/// # Errors
/// If there is no socket, or as [`QuicError`] says.
pub fn connect(peer: SocketAddr, config: &Config) -> io::Result<Stream> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = Socket::bind(&BindTo { local, device: None })?;
    let connection = connection::Driven::connect(peer, config, None, streams::now())?;
    streams::connect(socket, Box::new(connection))
}

/// Listens on an address; port 0 is any. Up to `backlog` connections wait to be accepted.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(local: SocketAddr, config: &Config, backlog: usize) -> io::Result<Acceptor> {
    let socket = Socket::bind(&BindTo { local, device: None })?;
    Acceptor::new(socket, vec![Box::new(Endpoint::new(config, None)?)], backlog)
}
