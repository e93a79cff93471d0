//! One end of a tunnel, without threads, sockets or a device: the half that receives, the half that
//! sends, and what both know.

pub mod common;
pub mod event;
pub mod inbound;
pub mod outbound;
pub mod settings;
