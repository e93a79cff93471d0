//! What the network adds to a run, as far as that can be known before.

use std::time::Duration;

use compute::Role;
use transport::choice::{Examined, examine};
use transport::model::{Path, predict};
use transport::{Choice, Exchange, Security};

use super::connection::{self, Connecting};
use crate::commands::transport::failed;
use crate::failure::Failure;

/// The transport of a run, and what the run takes with it.
pub(super) struct Network {
    pub(super) transport: &'static str,
    pub(super) reason: String,
    /// `None`: nothing is known of this transport on the path.
    pub(super) time: Option<Duration>,
}

/// Measures the path to the party that listens at `address`, for the party of this role.
///
/// # Errors
/// If nobody listens there.
pub(super) fn examined(
    connecting: &Connecting,
    address: &str,
    exchange: Exchange,
    role: Role,
) -> Result<Network, Failure> {
    let options = connection::options(connecting, Some(exchange))?;
    let examined = examine(address, &options, exchange).map_err(|error| failed(&error))?;
    let Examined { path, decision, .. } = examined;
    let (transport, reason) = match options.transport {
        Choice::Named(name) => (name, connecting.default_reason().to_owned()),
        Choice::Auto => (decision.transport, decision.reason),
    };
    let is_secure = !matches!(options.security, Security::Insecure);
    let time = time(transport, &path, exchange, role, is_secure);
    Ok(Network { transport, reason, time })
}

/// The longest of three: the bytes of each direction as one stream, since what is sent does not
/// wait for what is received, and the round trips alone.
fn time(
    transport: &str,
    path: &Path,
    exchange: Exchange,
    role: Role,
    is_secure: bool,
) -> Option<Duration> {
    let Exchange { sent, received, rounds } = exchange;
    let of = |sent, received, rounds| {
        predict(transport, path, Exchange { sent, received, rounds }, is_secure).ok()
    };
    let time = of(sent, 0, 1)?.max(of(0, received, 1)?).max(of(0, 0, rounds)?);
    // A garbler that listens begins when it hears of the connection, and an evaluator waits at the
    // end until its result has arrived. Transports over datagrams wait for the end of the stream.
    let waits = role == Role::Evaluator || !matches!(transport, "tcp" | "mptcp" | "micss");
    Some(time + if waits { path.round_trip } else { Duration::ZERO })
}
