//! What the network adds to a run, as far as that can be known before.

use std::time::Duration;

use compute::ComputeRole;
use compute::predict::network_time;
use console::CommandFailure;
use transport::choice::{PathExamination, examine};
use transport::model::NetworkPath;
use transport::{ConnectionSecurity, ExchangeProfile, TransportChoice};

use super::connection::{self, ComputeConnectOptions};
use crate::commands::transport::failed;

/// The transport of a run, and what the run takes with it.
pub(super) struct NetworkPrediction {
    pub(super) transport: &'static str,
    pub(super) reason: String,
    /// `None`: nothing is known of this transport on the path.
    pub(super) time: Option<Duration>,
    path: NetworkPath,
    role: ComputeRole,
    is_secure: bool,
}

impl NetworkPrediction {
    /// The time of another exchange on the same path, with the same transport.
    pub(super) fn time_of(&self, exchange: ExchangeProfile) -> Option<Duration> {
        time(self.transport, &self.path, exchange, self.role, self.is_secure)
    }
}

/// Measures the path to the party that listens at `address`, for the party of this role.
///
/// # Errors
/// If nobody listens there.
pub(super) fn examined(
    connecting: &ComputeConnectOptions,
    address: &str,
    exchange: ExchangeProfile,
    role: ComputeRole,
) -> Result<NetworkPrediction, CommandFailure> {
    let options = connection::options(connecting, Some(exchange))?;
    let examined = examine(address, &options, exchange).map_err(|error| failed(&error))?;
    let PathExamination { path, decision, .. } = examined;
    let (transport, reason) = match options.transport {
        TransportChoice::Named(name) => (name, connecting.default_reason().to_owned()),
        TransportChoice::Auto => (decision.transport, decision.reason),
    };
    let is_secure = !matches!(options.security, ConnectionSecurity::Insecure);
    let time = time(transport, &path, exchange, role, is_secure);
    Ok(NetworkPrediction { transport, reason, time, path, role, is_secure })
}

/// The time until the run is over at the party that connects.
fn time(
    transport: &str,
    path: &NetworkPath,
    exchange: ExchangeProfile,
    role: ComputeRole,
    is_secure: bool,
) -> Option<Duration> {
    let time = network_time(transport, path, exchange, is_secure)?;
    // A garbler that listens begins when it hears of the connection, and an evaluator waits at the
    // end until its result has arrived. Transports over datagrams wait for the end of the stream.
    let waits = role == ComputeRole::Evaluator || !matches!(transport, "tcp" | "mptcp" | "micss");
    Some(time + if waits { path.round_trip } else { Duration::ZERO })
}
