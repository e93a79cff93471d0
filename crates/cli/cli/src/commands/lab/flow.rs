//! `sunder lab send-flow` and `sunder lab receive-flow`: the ends of the flow of datagrams that the
//! driver `flow` measures between sites.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use console::CommandFailure;
use lab::DatagramFlow;

/// The flow, of which both ends know the properties.
#[derive(clap::Args, Clone, Copy)]
struct FlowProperties {
    /// How many datagrams
    #[arg(long)]
    count: u32,
    /// Bytes in each
    #[arg(long, value_parser = clap::value_parser!(u16).range(12..=65_507))]
    payload: u16,
    /// How many are passed to the kernel in one call
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: u32,
    /// How many are sent in a second
    #[arg(long)]
    rate: f64,
}

/// Sends a flow of datagrams, for the driver flow at sites.
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct SendFlowArguments {
    /// Where to
    #[arg(long)]
    to: SocketAddr,
    #[command(flatten)]
    flow: FlowProperties,
}

/// Receives a flow of datagrams, for the driver flow at sites.
#[derive(clap::Args)]
#[command(hide = true)]
pub(super) struct ReceiveFlowArguments {
    /// Where
    #[arg(long)]
    listen: SocketAddr,
    /// The file that exists when all were sent
    #[arg(long)]
    until: PathBuf,
    #[command(flatten)]
    flow: FlowProperties,
}

impl FlowProperties {
    fn flow(self) -> Result<DatagramFlow, CommandFailure> {
        let Self { count, payload, batch, rate } = self;
        if rate > 0.0 && rate.is_finite() {
            return Ok(DatagramFlow { count, payload: payload.into(), batch, rate });
        }
        Err(CommandFailure::Usage(format!("--rate is {rate}; it must be above 0")))
    }
}

/// Sends the flow.
///
/// # Errors
/// If the system returns an error.
pub(super) fn send(arguments: &SendFlowArguments) -> Result<(), CommandFailure> {
    arguments.flow.flow()?.send_to(arguments.to).map_err(|error| failed(&error))
}

/// Receives the flow, and prints what has arrived as a JSON document.
///
/// # Errors
/// If the system returns an error.
pub(super) fn receive(arguments: &ReceiveFlowArguments) -> Result<(), CommandFailure> {
    let ready = || drop(console::print_line("ready"));
    let is_sent = || arguments.until.exists();
    let received = arguments.flow.flow()?.receive_at(arguments.listen, ready, is_sent);
    let received = received.map_err(|error| failed(&error))?;
    let document = serde_json::to_string(&received).map_err(|error| failed(&error.into()))?;
    console::print_line(&document)
}

fn failed(error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("the datagrams failed: {error}"))
}
