//! `sunder transport forward`: the end of a forward to which programs connect.

use std::net::SocketAddr;

use console::CommandFailure;
use service::limits::OpenFileBudget;
use service::signals::{self, StopSignals};
use tokio::sync::oneshot;
use transport::forward::{MAX_CONNECTIONS, PortForwarder};
use transport::{ConnectionSecurity, TransportChoice};

use super::connecting::TransportConnectOptions;
use super::forwarding::{self, PortForwardServiceStatus};
use crate::checks::listeners::open_to_all;
use crate::daemon::{self, Daemon};

/// Forwards a local TCP port over a transport to `sunder transport expose`, for any program.
///
/// Each connection that a program opens to the port becomes one encrypted connection of the
/// transport. The other end connects it to its service, and to nothing else. Every program of this
/// host can use a port at 127.0.0.1. A connection is reset if the other end or its service cannot
/// be reached; the log names the reason.
///
/// This end identifies itself by a key that is kept, as `send` does: `sunder transport key` prints
/// it. Stops on SIGINT or SIGTERM after open connections have ended, at most 10 s later, or
/// immediately on a second signal. `sunder status` shows its state.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder transport forward server.example:7000 --key KEY \\\n             \
                        --listen 127.0.0.1:5432\nThen: psql -h 127.0.0.1 -p 5432"
)]
pub(super) struct Arguments {
    /// Where `sunder transport expose` listens, HOST:PORT, or the address that it prints
    #[arg(value_name = "HOST:PORT")]
    to: String,
    /// The address for programs; without an address, 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    #[command(flatten)]
    connecting: TransportConnectOptions,
}

/// The daemon.
pub(crate) struct Forward;

impl Daemon for Forward {
    const NAME: &'static str = "forward";
    const LEGEND: &'static str = forwarding::LEGEND;
    type Status = PortForwardServiceStatus;

    fn page(now: &PortForwardServiceStatus, before: Option<&PortForwardServiceStatus>) -> String {
        forwarding::page(Self::NAME, now, before)
    }
}

/// An address, or a port of this host alone.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let local = || text.parse().ok().map(|port: u16| ([127, 0, 0, 1], port).into());
    text.parse()
        .ok()
        .or_else(local)
        .ok_or_else(|| format!("{text}: give PORT, or ADDR:PORT with an IPv6 address in brackets"))
}

/// Forwards until a signal arrives.
///
/// # Errors
/// If it cannot listen, or a key cannot be read.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    if arguments.connecting.transport == TransportChoice::Named("micss")
        && !arguments.to.contains(',')
    {
        let text = "micss needs an address for each channel: HOST:PORT,HOST:PORT";
        return Err(CommandFailure::Usage(text.into()));
    }
    daemon::run(forward(arguments))
}

async fn forward(arguments: &Arguments) -> Result<(), CommandFailure> {
    let failed = |error: std::io::Error| CommandFailure::Failed(error.to_string());
    let signals = StopSignals::listen()?;
    let options = arguments.connecting.lasting_options()?;
    let key = options.security.public_key();
    let is_insecure = matches!(options.security, ConnectionSecurity::Insecure);
    // A connection has a socket for the program and one for the transport.
    let budget = OpenFileBudget { streams: MAX_CONNECTIONS, files_per_stream: 2, waiting: 0 };
    let _ = budget.raise_limit_and_fit();
    let forwarder = PortForwarder::bind(arguments.listen, &arguments.to, options).await;
    let forwarder = forwarder.map_err(|error| super::failed(&error))?;
    let address = forwarder.local_addr().map_err(failed)?;
    let source = forwarder.status_source().map_err(failed)?;
    let name = address.port().to_string();
    let _socket = daemon::answer_status::<Forward>(move || {
        PortForwardServiceStatus::new(name.clone(), source.status())
    });
    if let Some(what) = open_to_all("the forward", [address]) {
        console::warning(&format!(
            "{what}: listen on 127.0.0.1, or restrict access with a firewall"
        ));
    }
    if is_insecure {
        console::warning("insecure: an attacker on the path can read and change everything");
    }
    if let Some(key) = key {
        console::print_line(&format!("this end's key {key}"))?;
    }
    console::print_line(&format!("listening on {address}: to {}", arguments.to))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let forwarding = forwarder.run(async { _ = stopped.await });
    signals::until_stopped(signals, forwarding, || drop(stop)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_host() {
        assert_eq!(parse_listen("5432"), Ok(([127, 0, 0, 1], 5432).into()));
        assert_eq!(parse_listen("0.0.0.0:1"), Ok(([0, 0, 0, 0], 1).into()));
        assert_eq!(parse_listen("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(parse_listen("x").unwrap_err().contains("ADDR:PORT"));
        assert!(parse_listen("65536").is_err());
    }
}
