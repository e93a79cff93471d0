//! `sunder transport expose`: the end of a forward that connects to the service.

use std::path::PathBuf;

use clap::ArgGroup;
use console::CommandFailure;
use keys::IdentityPublicKey;
use service::limits::OpenFileBudget;
use service::signals::{self, StopSignals};
use tokio::sync::oneshot;
use transport::forward::{MAX_CONNECTIONS, PortExposer};
use transport::{ConnectionOptions, ConnectionSecurity};

use super::forwarding::{self, PortForwardServiceStatus};
use super::{failed, reachable, security};
use crate::daemon::{self, Daemon};

/// Connects hosts that run `sunder transport forward` to one TCP service.
///
/// Clients reach this service, and nothing else. You say who can connect: the hosts with the keys
/// of --peer, or with --any-peer everyone who knows this end's key. To the service, all
/// connections come from this host: where it trusts this host (as databases often do), each such
/// client can use it.
///
/// Prints the command for the other host. The log names each client. Stops on SIGINT or SIGTERM
/// after open connections have ended, at most 10 s later, or immediately on a second signal.
/// `sunder status` shows its state.
#[derive(clap::Args)]
#[command(after_help = HELP, group = ArgGroup::new("clients").required(true).multiple(false))]
pub(super) struct Arguments {
    /// The service, HOST:PORT
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// The address for the other ends; all transports share its port number
    #[arg(long, value_name = "ADDR", required_unless_present = "via")]
    listen: Option<String>,
    /// Wait at a relay instead, if this host cannot be reached from outside
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "listen")]
    via: Option<String>,
    /// The file with this end's key, so that it stays the same [default: a new one for each run]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// The public key of a client, as `sunder transport key` prints it there; may be given several
    /// times
    #[arg(long, value_name = "KEY", group = "clients")]
    peer: Vec<IdentityPublicKey>,
    /// Everyone who knows this end's key can connect
    #[arg(long, group = "clients")]
    any_peer: bool,
    /// Without encryption: everyone can connect, and read and change everything on the path
    #[arg(long, group = "clients")]
    insecure: bool,
    /// TCP's congestion control, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
}

const HELP: &str = "\
Example: sunder transport expose 127.0.0.1:5432 --listen 0.0.0.0:7000 \\
             --peer KEY --identity expose.key
KEY is what `sunder transport key` prints on the other host.
expose.key has 64 hexadecimal digits: sunder key new expose.key
Then, on the other host: the command that this one prints.";

/// The daemon.
pub(crate) struct Expose;

impl Daemon for Expose {
    const NAME: &'static str = "expose";
    const LEGEND: &'static str = forwarding::LEGEND;
    type Status = PortForwardServiceStatus;

    fn page(now: &PortForwardServiceStatus, before: Option<&PortForwardServiceStatus>) -> String {
        forwarding::page(Self::NAME, now, before)
    }
}

/// Exposes the service until a signal arrives.
///
/// # Errors
/// If it cannot listen, or a key cannot be read.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    daemon::run(expose(arguments))
}

async fn expose(arguments: &Arguments) -> Result<(), CommandFailure> {
    let signals = StopSignals::listen()?;
    let security = security(arguments.identity.as_ref(), &arguments.peer, arguments.insecure)?;
    let options = ConnectionOptions {
        congestion: arguments.congestion.clone(),
        ..ConnectionOptions::new(security)
    };
    // A connection has a socket for the service and one for the transport.
    let budget = OpenFileBudget { streams: MAX_CONNECTIONS, files_per_stream: 2, waiting: 0 };
    let _ = budget.raise_limit_and_fit();
    let (exposer, address) = bind(arguments, &options)?;
    let source = exposer.status_source();
    let name = match &arguments.via {
        Some(_) => arguments.target.rsplit(':').next().unwrap_or_default().to_owned(),
        None => exposer.listener().local_addr().port().to_string(),
    };
    let _socket = daemon::answer_status::<Expose>(move || {
        PortForwardServiceStatus::new(name.clone(), source.status())
    });
    announce(arguments, &options.security, &address)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let exposing = exposer.run(async { _ = stopped.await });
    let ended = signals::until_stopped(signals, exposing, || drop(stop)).await?;
    ended.map_err(|error| failed(&error))
}

/// Listens or waits at a relay. Also returns the address for the other ends.
fn bind(
    arguments: &Arguments,
    options: &ConnectionOptions,
) -> Result<(PortExposer, String), CommandFailure> {
    let target = &arguments.target;
    if let Some(relay) = &arguments.via {
        let via = PortExposer::via(relay, target, options);
        let (exposer, token) = via.map_err(|error| failed(&error))?;
        console::print_line(&format!("waiting at {relay}: to {target}"))?;
        return Ok((exposer, format!("{token}@{relay}")));
    }
    let listen = arguments.listen.as_deref().unwrap_or_default();
    let exposer = PortExposer::bind(listen, target, options).map_err(|error| failed(&error))?;
    let address = exposer.listener().local_addr();
    console::print_line(&format!("listening on {address}: to {target}"))?;
    let reachable = reachable(address)
        .map_or_else(|| format!("HOST:{}", address.port()), |address| address.to_string());
    Ok((exposer, reachable))
}

/// Says who can connect, and the command for the other host.
fn announce(
    arguments: &Arguments,
    security: &ConnectionSecurity,
    address: &str,
) -> Result<(), CommandFailure> {
    let target = &arguments.target;
    let key = match security.public_key() {
        None => {
            console::warning(&format!("insecure: anyone who can reach {address} can use {target}"));
            "--insecure".to_owned()
        }
        Some(key) => {
            let who = match arguments.peer.len() {
                0 => "everyone who knows the key below".to_owned(),
                1 => "the host with the key of --peer".to_owned(),
                count => format!("the hosts with the {count} keys of --peer"),
            };
            console::print_line(&format!("can connect: {who}"))?;
            format!("--key {key}")
        }
    };
    let port = target.rsplit(':').next().unwrap_or_default();
    console::print_line(&format!("sunder transport forward {address} {key} --listen {port}"))
}
