//! `sunder init relay`.

use std::net::{IpAddr, SocketAddr};

use console::CommandFailure;

use crate::commands::transport::reachable;

/// Prints how to run a relay, `sunder transport relay`, and the command for the ends.
///
/// A relay has neither a configuration nor a key, so nothing is written.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init relay --host relay.example
prints the command for the receiver:
sunder transport receive --via relay.example:7100 --out inbox")]
pub(super) struct Arguments {
    /// The address for both ends, for TCP and UDP
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7100")]
    listen: SocketAddr,
    /// The name or address by which the ends reach this host [default: the address of this host]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// Prints the commands.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let Arguments { listen, host } = arguments;
    let port = listen.port();
    if port == 0 {
        return Err(CommandFailure::Usage("--listen: give a port, such as 0.0.0.0:7100".into()));
    }
    console::note(&format!("start the relay with: sunder transport relay --listen {listen}"));
    let unit = format!("sunder-relay@{port}");
    console::note(&format!("or as a service, as root: systemctl enable --now {unit}"));
    if listen.ip().to_string() != "0.0.0.0" {
        let ip = match listen {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        console::note(&format!(
            "the service listens at this address after: systemctl edit {unit}, with the lines \
             [Service] and Environment=ADDRESS={ip}"
        ));
    }
    console::note(&format!("open port {port} for TCP and UDP; a receiver runs this:"));
    let host = match host {
        Some(host) => host
            .parse::<IpAddr>()
            .map_or(format!("{host}:{port}"), |ip| SocketAddr::new(ip, port).to_string()),
        None => reachable(*listen).map_or(format!("HOST:{port}"), |address| address.to_string()),
    };
    console::print_line(&format!("sunder transport receive --via {host} --out inbox"))
}
