//! `sunder init serve`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use console::CommandFailure;

use super::required;
use crate::commands::serve::Serve;
use crate::new_files::{check, check_absent, quoted, write};

/// Writes the configuration of the server of streams, `sunder serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init serve --listen 192.0.2.10:7000 \\
             --listen 198.51.100.10:7000 --allow localhost:80
prints the command for the client: sunder init proxy --server ...")]
pub(super) struct Arguments {
    /// An address of this host on each network that clients use, one for each channel
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// A service that clients may reach: a name or an address, and a port
    #[arg(long, value_name = "HOST:PORT")]
    allow: Vec<String>,
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "serve.toml")]
    out: PathBuf,
}

/// Writes the file.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let file = &arguments.out;
    check_absent(&[file])?;
    let listen = required(
        &arguments.listen,
        "--listen",
        "Addresses of this host, one on each network, such as 192.0.2.10:7000",
    )?;
    let allow = required(
        &arguments.allow,
        "--allow",
        "Services that clients may reach, such as localhost:80",
    )?;
    let text = config(&listen, &allow);
    check::<Serve>(&text, file)?;
    write(&text, file)?;
    let file = file.display();
    console::note(&format!("{file} is written; start it with: sunder serve --config {file}"));
    let mut line = String::from("sunder init proxy");
    for address in &listen {
        let _ = if address.ip().is_unspecified() {
            write!(line, " --server HOST:{}", address.port())
        } else {
            write!(line, " --server {address}")
        };
    }
    console::note(if listen.iter().any(|address| address.ip().is_unspecified()) {
        "a client runs this, with the address or name of this host on each network for HOST:"
    } else {
        "if clients reach other addresses, replace them in this line for a client:"
    });
    console::print_line(&line)
}

fn config(listen: &[SocketAddr], allow: &[String]) -> String {
    let listed = |values: Vec<String>| values.join(", ");
    let addresses = listed(listen.iter().map(|address| quoted(&address.to_string())).collect());
    let services = listed(allow.iter().map(|service| quoted(service)).collect());
    format!(
        "# The server's end of streams over several channels: sunder serve --config FILE.
# `sunder serve --help` names all settings, and docs/guides/micss.md explains them.

# An address on each network that clients use.
listen = [{addresses}]

# The only services that clients may reach. This host resolves the names.
allow = [{services}]

# The least number of channels that an eavesdropper must read to learn anything.
min_channels = {}
",
        listen.len()
    )
}
