//! `sunder lab serve`: the page on which one runs experiments and sees what they measure.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;

use console::CommandFailure;
use keys::storage::state_directory;
use panel::{PanelError, PanelOptions};
use service::ServiceError;
use service::signals::StopSignals;

/// Opens a page on which one chooses what to run, runs it, sees it and compares it.
///
/// Prints the address of the page, for a browser on this host. Whoever has the address can use the
/// page. Runs are kept in a directory, and go on only while this command runs.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab serve")]
pub(super) struct LabServeArguments {
    /// The address to listen on, of this host alone; port 0 is any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8840")]
    listen: SocketAddr,
    /// The directory for the runs [default: ~/.local/state/sunder/lab]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// If the server cannot start.
pub(super) fn run(arguments: &LabServeArguments) -> Result<(), CommandFailure> {
    let directory = arguments.directory.clone().or_else(|| state_directory("lab"));
    let directory = directory.ok_or_else(|| {
        CommandFailure::Usage("there is no home directory: give --directory".to_owned())
    })?;
    let program = env::current_exe()
        .map_err(|error| CommandFailure::Failed(format!("cannot find this program: {error}")))?;
    let options = PanelOptions { listen: arguments.listen, directory, program };
    let failed = |error: ServiceError| CommandFailure::Failed(error.to_string());
    let runtime = service::runtime().map_err(failed)?;
    let served = runtime.block_on(async {
        let mut signals = StopSignals::listen().map_err(failed)?;
        let ready = |address: &str| {
            let _ = console::print_line(address);
        };
        let end = async move { signals.next().await };
        panel::serve(options, ready, end).await.map_err(|error| refused(&error))
    });
    // Viewers do not delay the end.
    runtime.shutdown_background();
    served
}

fn refused(error: &PanelError) -> CommandFailure {
    match error {
        PanelError::NotLocal(_) | PanelError::InUse(_) => CommandFailure::Usage(error.to_string()),
        _ => CommandFailure::Failed(error.to_string()),
    }
}
