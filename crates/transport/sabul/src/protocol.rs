//! The protocol, without I/O: its input is datagrams and the time, its output datagrams and
//! deadlines.

mod arrivals;
mod congestion;
mod connection;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake;
mod loss_report;
mod number;
mod packet;
mod ranges;
mod receive_buffer;
mod round_trip;
mod send_buffer;
mod session_parameters;
#[cfg(test)]
mod tests;

pub use congestion::{
    SabulAckEvent, SabulCongestionControl, SabulCongestionMetrics, SabulLossEvent, SabulSendLimits,
    UdtCongestionControl,
};
pub use connection::{SabulConnection, SabulConnectionError, SabulReadOutcome, SabulStatistics};
pub use handshake::{
    SabulClientHandshake, SabulConnectError, SabulConnectOutcome, SabulConnectRequest,
    SabulListener, SabulListenerAction,
};
pub(crate) use packet::destination;
pub use session_parameters::SabulConfig;
