//! Measures a path: its round-trip time, its loss, the rate of the narrowest link in each
//! direction, and the capabilities of the remote host. `docs/protocols/probe.md` specifies the
//! protocol.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod host;
mod net;
mod packet;
mod path;
mod prober;
mod rate;
mod reflector;
mod repeated_probe;
#[cfg(test)]
mod tests;
mod train;

pub(crate) use host::info;
pub(crate) use net::{PathProbe, ProbeEndpoint};
pub use packet::{HostCapabilities, MAX_PACKET_LEN};
pub use path::PacketLosses;
pub(crate) use path::direction;
pub use prober::{PathProbeClient, ProbeMeasurement};
pub use rate::MeasuredRate;
pub use reflector::ProbeReflector;
pub(crate) use repeated_probe::measure_several;
