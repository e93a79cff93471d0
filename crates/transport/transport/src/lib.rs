//! One reliable, encrypted connection over any transport.
//!
//! [`connect`] and [`Listener`] open a [`Connection`], which implements [`Read`](std::io::Read) and
//! [`Write`](std::io::Write) over any transport; [`names`] lists the transports. Both ends prove
//! their keys and encrypt all data, unless the options disable that. The protocol between the ends
//! is specified in `docs/protocols/transport.md`. The transports and the choice among them follow
//! the Transputation paper, sections 4 and 5.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use sunder_transport::{
//!     ConnectionOptions, ConnectionSecurity, Listener, connect, random_identity,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let security = ConnectionSecurity::open(random_identity()?);
//! let key = security.public_key().unwrap();
//! let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(security))?;
//! let address = listener.local_addr().to_string();
//!
//! let other = std::thread::spawn(move || {
//!     let security = ConnectionSecurity::pinned(random_identity()?, vec![key]);
//!     let mut connection = connect(&address, &ConnectionOptions::new(security))?;
//!     connection.write_all(b"hello")?;
//!     let mut answer = Vec::new();
//!     connection.read_to_end(&mut answer)?;
//!     Ok::<_, std::io::Error>(answer)
//! });
//!
//! let mut connection = listener.accept()?;
//! let mut received = [0; 5];
//! connection.read_exact(&mut received)?;
//! connection.write_all(b"ok")?;
//! connection.finish()?;
//! assert_eq!((&received[..], &other.join().unwrap()?[..]), (&b"hello"[..], &b"ok"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! - `net`: connections as programs use them: `connect` (with `addresses` of a name), `listener`
//!   (`pending` and `accepted` connections, `refusals`), `handshaking`, `connection`; `pairing` of
//!   two ends by a code; `direct` paths between two ends that have met at a relay. `messages`:
//!   messages over them.
//! - `transports`: one file for each transport, and the `registry`, to which [`register`] adds
//!   those of other crates. All implement the interface in `stream`.
//! - `protocol`: pure: `handshake`, `file`, `tree` (several files), `forward`, `relay`, `code`;
//!   datagrams between two ends: `relay_binding`, `datagram_relay`, `punching` and `direct`.
//! - [`choice`]: which transport is the fastest. `auto` and `examine` measure, `racing` opens
//!   connections meanwhile, `cache` is a file; `decide`, `remembered` and `expected` are pure.
//!   [`model`]: predicts durations, pure.
//! - [`probe`]: measures a path. `net`, `host` and `repeated_probe` drive it; `prober`,
//!   `reflector`, `packet`, `train`, `rate` and `path` are pure.
//! - [`files`]: sends and receives files, each as `part` until it is complete. [`relay`]: connects
//!   two parties: `server`, `client`, `pairs`, `datagrams`. [`forward`]: local TCP ports carried
//!   over a transport: `forwarder` and `exposer`, with `carry`, `open` and `spare`.
//!   [`measurement`]: exchanges of a given size.
//! - `address`, [`window`]: pure. `options`, `error`. `user_state`: files of this user. `process`:
//!   protects connections from use after a fork.

mod address;
pub mod choice;
mod error;
pub mod files;
pub mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod measurement;
mod messages;
pub mod model;
mod net;
mod options;
pub mod probe;
mod process;
mod protocol;
pub mod relay;
mod stream;
mod transports;
mod user_state;
pub mod window;

pub use error::{ConnectionStep, Error};
pub use keys::{IdentityPublicKey, IdentitySecretKey};
pub use messages::MessageStream;
pub use model::{ExchangeProfile, NetworkPath};
pub use net::{
    CodeListener, Connection, ConnectionCloser, ConnectionReader, ConnectionStatistics,
    ConnectionWriter, Listener, PairedEnd, PairingError, SendLimit, SendLimitError, connect, pair,
};
pub use options::{
    ConnectionOptions, ConnectionSecurity, PathEstimate, PeerKeyPolicy, TransportChoice,
    random_identity,
};
pub use protocol::code::{PairingOffer, TransferCode, TransferCodeError, TransferRole};
pub use protocol::file::{FileName, FileNameError, FileTransferFailure, FileTransferFailureReason};
pub use protocol::forward::TargetRefusal;
pub use protocol::handshake::{HandshakeRefusal, TransportHandshakeError};
pub use protocol::relay::{RelayToken, RelayTokenError};
pub use stream::{ByteStream, ConnectionPath, PathStatistics, Transport, TransportAcceptor};
pub use transports::{TransportRegistrationError, names, register};
pub use user_state::persistent_identity;
