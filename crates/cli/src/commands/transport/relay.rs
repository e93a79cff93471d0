//! `sunder transport relay`.

use std::net::SocketAddr;

use service::signals::{self, StopSignals};
use tokio::sync::oneshot;
use transport::relay::{Relay, RelayError};

use crate::console;
use crate::daemon;
use crate::failure::Failure;

/// Connects senders and receivers that are both behind address translation (NAT).
///
/// A receiver waits here with `receive --via`, and a sender finds it by the address that the
/// receiver prints. The relay passes on what they send each other: it learns addresses, times and
/// lengths, but no content and no key. Anyone who reaches it can use it; a firewall admits some
/// only.
///
/// Stops on SIGINT or SIGTERM; connections end then. `RUST_LOG=debug` logs more.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder transport relay --listen 0.0.0.0:7100
Then: sunder transport receive --via relay.example:7100 --out inbox, on the host that receives")]
pub(super) struct Arguments {
    /// The address for both parties
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
}

/// Relays until a signal arrives.
///
/// # Errors
/// When it cannot listen.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    daemon::run(relay(arguments.listen))
}

async fn relay(address: SocketAddr) -> Result<(), Failure> {
    let failed = |error: RelayError| Failure::Failed(error.to_string());
    let signals = StopSignals::listen()?;
    let relay = Relay::bind(address).await.map_err(failed)?;
    let address = relay.local_addr().map_err(failed)?;
    console::print_line(&format!("listening on {address}"))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let relaying = relay.run(async { _ = stopped.await });
    signals::until_stopped(signals, relaying, || drop(stop)).await?;
    Ok(())
}
