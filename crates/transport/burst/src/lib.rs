//! Burst: reliable streams over UDP for few, large, one-way transfers over long paths.
//!
//! In one round trip the handshake opens the connection and measures the path's rate. The sender
//! starts at that rate, and repair packets protect the end of the data. The protocol is specified
//! in `docs/protocols/burst.md`.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//!
//! use keys::{IdentityPublicKey, IdentitySecretKey};
//! use random::RandomGenerator;
//! use sunder_burst::{
//!     BurstConfig, BurstListener, BurstListenerSecurity, BurstSecurity, connect,
//! };
//! use udp::streams::UdpStreamAcceptor;
//! use udp::{SocketBinding, UdpBatchSocket};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (client, server) = (IdentitySecretKey::new(&[1; 32]), IdentitySecretKey::new(&[2; 32]));
//! let (client_key, server_key) = (client.public(), server.public());
//!
//! // The listener admits one client.
//! let filter = Arc::new(move |key: &IdentityPublicKey| *key == client_key);
//! let security = BurstListenerSecurity::Noise(Arc::new(server), filter);
//! let listener =
//!     BurstListener::new(BurstConfig::default(), security, RandomGenerator::seeded()?)?;
//! let localhost = SocketBinding { local: ([127, 0, 0, 1], 0).into(), device: None };
//! let socket = UdpBatchSocket::bind(&localhost)?;
//! let acceptor = UdpStreamAcceptor::new(socket, vec![Box::new(listener)], 1)?;
//!
//! let security = BurstSecurity::Noise(&client, server_key);
//! let mut to_server = connect(acceptor.local_addr(), BurstConfig::default(), &security)?;
//! to_server.write_all(b"hello")?;
//! let mut to_client = acceptor.accept()?.stream;
//! let mut read = [0; 5];
//! to_client.read_exact(&mut read)?;
//! assert_eq!(&read, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! `protocol` is pure:
//!
//! - `listener`: creates connections from hellos. `handshake`: its messages for `client` and
//!   `server`, and the encryption of packets in `crypt`.
//! - `connection`: one end: `datagrams` that arrive, `transmitting`, and `paths` (address and MTU).
//! - `sending`: what is sent when: `buffer`, `flight` (packets that are not acknowledged), `pacer`,
//!   `round_trip`, `repairs`. `receiving`: `buffer`, `numbers`, `trains`, `recovery` from repair
//!   symbols.
//! - [`rate`]: congestion control: `path` and `delays` measure, `losses` are told from noise,
//!   `model` and `growth` set the rate.
//! - [`repair`]: the erasure code. [`train`]: the rate of a path from a packet train.
//! - `packet`, `frame`: the wire format. `blocks`: a part of a stream in memory.
//!
//! `net` connects over a socket. [`udp::streams`] is the driver.

mod net;
mod protocol;

pub use net::{connect, connect_over};
#[cfg(any(fuzzing, test))]
pub use protocol::fuzzing;
pub use protocol::{
    BurstConfig, BurstConnection, BurstListener, BurstListenerSecurity, BurstSecurity,
    BurstWaitReason, ClientKeyFilter, Error, rate, repair, train,
};
