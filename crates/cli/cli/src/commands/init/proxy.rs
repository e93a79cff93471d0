//! `sunder init proxy`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use console::CommandFailure;
use service::remote_address::RemoteAddress;

use super::required;
use crate::commands::proxy::Proxy;
use crate::new_files::{check, check_absent, quoted, write};
use crate::uplink_devices::{DEVICES_NOTE, check_devices};

/// Writes the configuration of the client of streams, `sunder proxy`.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init proxy --server 192.0.2.10:7000 \\
             --server 198.51.100.10:7000 --device eth0 --device wlan0
Then: sunder proxy --config proxy.toml
Applications use SOCKS5 at 127.0.0.1:1080.")]
pub(super) struct Arguments {
    /// The server's address on each network, one for each channel; a name instead is looked up
    #[arg(long, value_name = "HOST:PORT")]
    server: Vec<RemoteAddress>,
    /// This host's network device for each channel, in the same order
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
    /// Where applications connect with SOCKS5
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:1080")]
    socks: SocketAddr,
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "proxy.toml")]
    out: PathBuf,
}

/// Writes the file.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let (file, device) = (&arguments.out, &arguments.device);
    check_absent(&[file])?;
    let servers = required(
        &arguments.server,
        "--server",
        "The server's addresses, one on each network, such as 192.0.2.10:7000",
    )?;
    let mut known = servers.iter().filter_map(RemoteAddress::known);
    if let Some(any) = known.find(|it| it.ip().is_unspecified()) {
        return Err(CommandFailure::Usage(format!(
            "--server {any} is no address of another host: give one by which this host reaches the \
             server"
        )));
    }
    check_devices(device.len(), servers.len())?;
    let text = config(arguments.socks, &servers, device);
    check::<Proxy>(&text, file)?;
    write(&text, file)?;
    if device.is_empty() {
        console::note(DEVICES_NOTE);
    }
    let file = file.display();
    console::note(&format!("{file} is written; start it with this command:"));
    console::print_line(&format!("sunder proxy --config {file}"))
}

fn config(socks: SocketAddr, servers: &[RemoteAddress], devices: &[String]) -> String {
    let mut text = format!(
        "# The client's end of streams over several channels: sunder proxy --config FILE.
# `sunder proxy --help` names all settings, and docs/guides/micss.md explains them.

# Where applications connect with SOCKS5. Anyone who can reach this address can
# use the server's services, so keep it on this host.
socks = {}

# The channels: the server's address on each network. `source`, an address of this host, or
# `device` picks the network here.
",
        quoted(&socks.to_string())
    );
    for (i, server) in servers.iter().enumerate() {
        let _ = writeln!(text, "[[channel]]\nserver = {}", quoted(&server.to_string()));
        match devices.get(i) {
            Some(device) => {
                let _ = writeln!(text, "device = {}", quoted(device));
            }
            None => text.push_str("# device = \"eth0\"\n"),
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
