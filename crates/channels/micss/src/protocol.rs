//! The protocol: state machines without input or output. Bytes and the time come in as arguments;
//! bytes, events and deadlines go out.

pub(crate) mod admission;
pub mod allow;
mod buffer;
pub mod bypass;
pub(crate) mod cookie_quorum;
pub(crate) mod datagram;
pub(crate) mod failure_detector;
pub mod incoming;
pub(crate) mod memory;
pub(crate) mod on_lost_channel;
pub mod open_request;
pub(crate) mod options;
pub mod outgoing;
pub(crate) mod proxy_header;
pub(crate) mod receive_buffer;
pub mod record;
pub(crate) mod rejoin;
pub(crate) mod server_choice;
pub mod socks;
pub(crate) mod stream;
pub mod target;
pub(crate) mod udp_flows;
