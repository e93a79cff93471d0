//! `sunder serve`: the server's end of MICSS.

use std::path::PathBuf;

use micss::config::ServerConfig;
use micss::server::Server;
use tokio::sync::oneshot;

use crate::console;
use crate::daemon::{self, StopSignals};
use crate::failure::Failure;

/// A complete configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("serve.toml");

/// Takes streams that come in over several channels, and connects them to services.
///
/// Each client asks for a service, and gets it if that is allowed. The other end is `sunder proxy`.
///
/// Stops on SIGINT or SIGTERM once the streams under way have finished, or at once on a second.
/// `RUST_LOG=debug` says more.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

fn help() -> String {
    format!("Example: sunder serve --config serve.toml, with this in serve.toml\n\n{EXAMPLE}")
}

/// Serves until a signal comes.
///
/// # Errors
/// When the configuration is wrong, an address cannot be listened on, or streams were broken off.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = daemon::load("serve", &arguments.config, ServerConfig::from_toml)?;
    daemon::run(serve(config))
}

async fn serve(config: ServerConfig) -> Result<(), Failure> {
    daemon::allow_streams(config.max_streams, config.listen.len());
    let signals = StopSignals::listen()?;
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    let server = Server::bind(config).await.map_err(failed)?;
    for address in server.local_addresses().map_err(failed)? {
        console::print_line(&format!("listening on {address}"))?;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server.run(async { _ = stopped.await });
    daemon::until_stopped(signals, serving, || drop(stop)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_configuration() {
        let config = ServerConfig::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.listen.len(), config.min_channels), (3, 3));
    }
}
