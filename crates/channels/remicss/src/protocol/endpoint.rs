//! One end of a tunnel, without threads, sockets or a device: the receiving half, the sending half,
//! and the state that both share.

pub mod client_demultiplexer;
pub mod event;
pub(crate) mod frame_sender;
pub mod inbound;
pub mod outbound;
pub mod settings;
pub mod shared_state;
