//! `sunder transport serve`: answers measurements.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use console::CommandFailure;
use keys::IdentityPublicKey;
use transport::{Connection, ConnectionOptions, Listener, measurement};

use super::{failed, security};

/// The most measurements at a time; further connections are closed.
const MAX_MEASUREMENTS: usize = 64;

/// Answers the measurements of `sunder transport measure`, over any transport, until it is stopped.
///
/// Prints its address, and its public key for the other end's --key.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder transport serve --listen 0.0.0.0:7000")]
pub(super) struct Arguments {
    /// The address to listen at; all transports share its port number
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// The file with this end's key, so that it stays the same [default: a new one for each run]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// The public key of an end that may measure; may be given several times [default: anyone who
    /// knows this end's key]
    #[arg(long, value_name = "KEY", conflicts_with = "insecure")]
    peer: Vec<IdentityPublicKey>,
    /// Without encryption: anyone can measure
    #[arg(long)]
    insecure: bool,
    /// TCP's congestion control, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// If it cannot listen.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let security = security(arguments.identity.as_ref(), &arguments.peer, arguments.insecure)?;
    let key = security.public_key();
    let mut options = ConnectionOptions::new(security);
    options.congestion.clone_from(&arguments.congestion);
    service::log::start(console::wants_colour(&std::io::stderr()))?;
    let listener = Listener::bind(&arguments.listen, &options).map_err(|error| failed(&error))?;
    console::print_line(&format!("listening on {}", listener.local_addr()))?;
    if let Some(key) = key {
        console::print_line(&format!("key {key}"))?;
    }
    let running = Arc::new(AtomicUsize::new(0));
    loop {
        let connection = listener.accept().map_err(|error| failed(&error))?;
        if running.load(Ordering::Relaxed) >= MAX_MEASUREMENTS {
            continue;
        }
        running.fetch_add(1, Ordering::Relaxed);
        let of_thread = running.clone();
        let serving = move || {
            serve(connection);
            of_thread.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("measure".into()).spawn(serving) {
            running.fetch_sub(1, Ordering::Relaxed);
            console::warning(&format!("a connection is closed: {error}"));
        }
    }
}

fn serve(mut connection: Connection) {
    if let Err(error) = measurement::serve(&mut connection) {
        console::warning(&format!("{}: no measurement: {error}", connection.peer_addr()));
    }
}
