//! Measures a path: round-trip time, loss, the rate of the narrowest link in each direction, and
//! what the far host can do. `docs/protocols/probe.md` specifies the protocol.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod host;
mod net;
mod packet;
mod path;
mod prober;
mod rate;
mod reflector;
mod several;
#[cfg(test)]
mod tests;
mod train;

pub(crate) use host::info;
pub(crate) use net::{ProbeEndpoint, Probing};
pub use packet::{HostInfo, MAX_PACKET_LEN};
pub use path::Losses;
pub(crate) use path::direction;
pub use prober::{Measured, Prober};
pub use rate::Rate;
pub use reflector::Reflector;
pub(crate) use several::measure_several;
