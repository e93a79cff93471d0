//! `sunder lab agent`: runs programs of an experiment that another machine controls.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use console::CommandFailure;
use keys::IdentityPublicKey;
use lab::sandbox::{self, SandboxError};
use lab::{AgentEvent, LabAgent};
use rustix::process::geteuid;
use tracing::{info, warn};
use transport::{ConnectionOptions, ConnectionSecurity};

use crate::commands::transport::{failed, kept_identity, reachable};

/// Makes this machine a site: runs programs of experiments that another machine controls
/// (sunder lab run --sites).
///
/// You say who can control it: the hosts with the keys of --peer, one at a time. They can run any
/// program with the privileges of the user who runs the agent, so run it as a user of its own and
/// not as root. All programs end with their trial, when the controller ends or is silent, and with
/// the agent. Files of trials are in memory, at most a quarter of it.
///
/// With sunder lab run --emulate-links, programs run on hosts with networks of their own instead,
/// and this agent carries the packets of their links. The other agents have to reach the UDP ports
/// that follow that of --listen, one for each link. Programs of strangers can run on such hosts in
/// a sandbox with limits.
///
/// Prints the option for the other machine. The log names each controller. Stops on SIGINT or
/// SIGTERM.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct LabAgentArguments {
    /// The address for the controller and the other agents; UDP and TCP have the same port number
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// The public key of a controller, as `sunder transport key` prints it there; may be given
    /// several times
    #[arg(long, value_name = "KEY", required = true)]
    peer: Vec<IdentityPublicKey>,
    /// The file with this end's key [default: a key that is kept]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// After how many seconds without a message the controller counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    silence: u64,
}

const HELP: &str = "\
Example: sunder lab agent --listen 0.0.0.0:7100 --peer KEY
KEY is what `sunder transport key` prints on the machine that runs the
experiment. docs/guides/sites.md has an example with two machines.";

/// Serves controllers until a signal arrives.
///
/// # Errors
/// If this system has no sandbox, it cannot listen, or a key cannot be read.
pub(super) fn run(arguments: &LabAgentArguments) -> Result<(), CommandFailure> {
    // Starts this program again inside the sandbox, where it reaches this line again.
    match sandbox::enter_with_network() {
        Err(SandboxError::Interrupted(_)) => return Ok(()),
        entered => entered.map_err(|error| CommandFailure::Failed(error.to_string()))?,
    }
    service::log::start(console::wants_colour(&io::stderr()))?;
    if geteuid().is_root() && !is_mapped() {
        console::warning(
            "this agent is root, and so are the programs of its controllers: better run it as a user \
             of its own",
        );
    }
    let identity = kept_identity(arguments.identity.as_deref())?;
    let security = ConnectionSecurity::pinned(identity, arguments.peer.clone());
    let key = security.public_key().map(|key| key.to_string()).unwrap_or_default();
    let options = ConnectionOptions::new(security);
    let silence = Duration::from_secs(arguments.silence);
    let agent = LabAgent::bind(&arguments.listen, options, silence);
    let agent = agent.map_err(|error| failed(&error))?;
    announce(agent.local_addr(), &key, arguments.peer.len())?;
    agent.run(&show).map_err(|error| failed(&error))
}

/// Whether root is only that of a user namespace.
fn is_mapped() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut fields = map.split_whitespace();
    fields.nth(1).is_some_and(|outside| outside != "0")
}

/// Says who can control it, and the option for the controller.
fn announce(address: SocketAddr, key: &str, peers: usize) -> Result<(), CommandFailure> {
    console::print_line(&format!("listening on {address}"))?;
    let who = match peers {
        1 => "the host with the key of --peer".to_owned(),
        count => format!("the hosts with the {count} keys of --peer"),
    };
    console::print_line(&format!("can run programs here: {who}"))?;
    let reachable = reachable(address)
        .map_or_else(|| format!("HOST:{}", address.port()), |address| address.to_string());
    console::print_line(&format!("sunder lab run EXPERIMENT --sites NAME={reachable}/{key}"))
}

fn show(event: AgentEvent) {
    match event {
        AgentEvent::Controller(from) => info!("{from} controls this site"),
        AgentEvent::Refused(from, why) => warn!("{from} is refused: {why}"),
        AgentEvent::Free(from, why) => info!("{from} does not control this site any more: {why}"),
    }
}
