//! `sunder transport relay`.

mod metrics;
mod page;

use std::net::SocketAddr;

use console::CommandFailure;
use serde::{Deserialize, Serialize};
use service::metrics::PrometheusMetric;
use service::signals::{self, StopSignals};
use service::status::{ServiceProblem, ServiceStatus};
use tokio::sync::oneshot;
use transport::relay::{self, RelayError, RelayStatus};

use crate::daemon::{self, Daemon};

/// Connects senders and receivers that are both behind address translation (NAT).
///
/// A receiver waits here with `receive --via`, and a sender finds it by the address that the
/// receiver prints. The relay helps both ends to find a direct path for datagrams. If there is
/// none, it forwards their datagrams, or their TCP connections if UDP is blocked. It learns
/// addresses, times and lengths, but no content and no key. Anyone who can reach it can use it;
/// restrict access with a firewall. It needs its port for TCP and UDP.
///
/// `sunder status` shows how many receivers wait, the pairs, the refused connections and the
/// forwarded bytes. Stops on SIGINT or SIGTERM, which ends all connections. `RUST_LOG=debug` logs
/// more.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder transport relay --listen 0.0.0.0:7100
Then, on the host that receives:
sunder transport receive --via relay.example:7100 --out inbox")]
pub(super) struct Arguments {
    /// The address for both parties
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
}

/// The daemon.
pub(crate) struct Relay;

/// The status of a relay, with the port where it listens as its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RelayServiceStatus {
    name: String,
    #[serde(flatten)]
    status: RelayStatus,
}

impl Daemon for Relay {
    const NAME: &'static str = "relay";
    const LEGEND: &'static str = "\
For a relay, `waiting ends` are the ends that waited for the other end, such as
receivers.";
    type Status = RelayServiceStatus;

    fn page(now: &RelayServiceStatus, before: Option<&RelayServiceStatus>) -> String {
        page::page(now, before)
    }
}

impl ServiceStatus for RelayServiceStatus {
    const METRICS: &'static [PrometheusMetric<Self>] = metrics::METRICS;

    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn uptime_s(&self) -> f64 {
        self.status.uptime_s
    }

    fn problems(&self) -> Vec<ServiceProblem> {
        self.status.problem.iter().cloned().collect()
    }
}

/// Relays until a signal arrives.
///
/// # Errors
/// When it cannot listen.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    daemon::run(relay(arguments.listen))
}

async fn relay(address: SocketAddr) -> Result<(), CommandFailure> {
    let failed = |error: RelayError| CommandFailure::Failed(error.to_string());
    let signals = StopSignals::listen()?;
    let relay = relay::RelayServer::bind(address).await.map_err(failed)?;
    let address = relay.local_addr().map_err(failed)?;
    let source = relay.status_source().map_err(failed)?;
    let name = address.port().to_string();
    let _socket = daemon::answer_status::<Relay>(move || RelayServiceStatus {
        name: name.clone(),
        status: source.status(),
    });
    console::print_line(&format!("listening on {address}"))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let relaying = relay.run(async { _ = stopped.await });
    signals::until_stopped(signals, relaying, || drop(stop)).await?;
    Ok(())
}
