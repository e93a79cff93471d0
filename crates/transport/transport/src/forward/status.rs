//! The status of the two ends of a forward.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use service::status::ServiceProblem;

/// The status of a [`PortForwarder`](super::PortForwarder) or a
/// [`PortExposer`](super::PortExposer). It contains no key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortForwardStatus {
    /// The address where it accepts connections.
    pub listen: String,
    /// Where it connects to: the other end, or the target.
    pub to: String,
    /// The uptime in seconds.
    pub uptime_s: f64,
    /// The number of open connections, and the limit.
    pub open: u64,
    /// See `open`.
    pub max_open: u64,
    /// The open connections by transport.
    pub transports: BTreeMap<String, u64>,
    /// The connections that were forwarded since the start.
    pub forwarded: u64,
    /// The bytes from the clients of the service, since the start.
    pub from_clients_bytes: u64,
    /// The bytes to the clients of the service, since the start.
    pub to_clients_bytes: u64,
    /// The connections that failed since the start.
    pub failed: PortForwardFailureCounts,
    /// Why connections have failed since the last one that succeeded.
    pub problem: Option<ServiceProblem>,
}

/// The connections that have failed at one end of a forward, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortForwardFailureCounts {
    /// The other end could not be reached.
    pub unreachable: u64,
    /// The exposing end did not reach its target.
    pub target: u64,
    /// There were too many connections.
    pub too_many: u64,
    /// The transport's connection broke.
    pub broken: u64,
    /// The program or the service reset its connection.
    pub reset: u64,
    /// The other end did not speak the protocol of a forward.
    pub malformed: u64,
}
