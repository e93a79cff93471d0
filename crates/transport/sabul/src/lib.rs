//! SABUL/UDT: reliable streams over UDP for long and fast paths, compatible with UDT4.
//!
//! The protocol is that of draft-gg-udt-03 and of the C++ library UDT4. It is specified in
//! `docs/protocols/sabul.md`.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use sunder_sabul::{SabulConfig, connect, listen};
//!
//! # fn main() -> std::io::Result<()> {
//! let config = SabulConfig::default();
//! let acceptor = listen(([127, 0, 0, 1], 0).into(), config, 1)?;
//! let mut to_server = connect(acceptor.local_addr(), config)?;
//! let mut to_client = acceptor.accept()?.stream;
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
//! `protocol` is pure:
//!
//! - `handshake`: two round trips, in which the ends agree on `session_parameters`.
//! - `connection`: a stream in each direction: `sending`, `receiving`, `timers`. `send_buffer`,
//!   `receive_buffer`, `ranges`: their data.
//! - `congestion`: the rate and the window: `native` is UDT's own, `delivery` measures for it.
//!   `arrivals`, `round_trip`: other measurements.
//! - `packet`, `loss_report`, `number`: the wire format.
//!
//! `net` is the driver: `connection` and `endpoint` are the protocol as [`udp::streams`] runs it.

mod net;
mod protocol;

pub use net::{SabulEndpoint, connect, listen};
#[cfg(any(test, fuzzing))]
pub use protocol::fuzzing;
pub use protocol::{
    SabulAckEvent, SabulClientHandshake, SabulConfig, SabulCongestionControl,
    SabulCongestionMetrics, SabulConnectError, SabulConnectOutcome, SabulConnectRequest,
    SabulConnection, SabulConnectionError, SabulListener, SabulListenerAction, SabulLossEvent,
    SabulReadOutcome, SabulSendLimits, SabulStatistics, UdtCongestionControl,
};
