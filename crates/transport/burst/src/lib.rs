//! Burst: reliable streams over UDP for few, large, one-way transfers over long paths.
//!
//! The connection is made, and the path's rate measured, in one round trip; the sender starts at
//! that rate, and repair packets protect the last data. The protocol is specified in
//! `docs/protocols/burst.md`.

mod net;
mod protocol;

pub use net::connect;
#[cfg(any(fuzzing, test))]
pub use protocol::fuzzing;
pub use protocol::{
    BurstConfig, BurstConnection, BurstListener, BurstListenerSecurity, BurstSecurity,
    BurstWaitReason, ClientKeyFilter, Error, rate, repair, train,
};
