//! SABUL/UDT: reliable streams over UDP for long and fast paths, compatible with UDT4.
//!
//! The protocol is that of draft-gg-udt-03 and of the C++ library UDT4. It is specified in
//! `docs/protocols/sabul.md`.

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
