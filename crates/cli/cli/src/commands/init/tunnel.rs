//! `sunder init tunnel`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use console::CommandFailure;
use service::remote_address::RemoteAddress;

use super::required;
use crate::commands::tunnel::Tunnel;
use crate::commands::tunnel::ends::{KEY_FILE, ONLY_CLIENT, TunnelEnds};
use crate::commands::tunnel::join_line::TunnelJoinLine;
use crate::new_files::{NewKeyFile, check, check_absent, random_key, write};

/// Writes the server's configuration and the key of a tunnel, `sunder tunnel`.
///
/// Prints a command for the other end. It contains the key: who reads it can connect as the other
/// end, and read and change the tunnel's packets.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder init tunnel --listen 192.0.2.10:6521 --listen 198.51.100.10:6521
prints the command for the other end: sunder tunnel join 'sunder-tunnel,...'")]
pub(super) struct Arguments {
    /// An address of this host on each of its uplinks, one for each channel
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// The address or name of each channel, with its port, as the other end reaches it, in their
    /// order (default: the addresses of --listen)
    #[arg(long, value_name = "ADDR")]
    server: Vec<RemoteAddress>,
    /// The mean number of shares that are needed to read a packet (default: 2, or 1 with one
    /// channel)
    #[arg(long, value_name = "X")]
    kappa: Option<f64>,
    /// The mean number of shares that are sent for a packet (default: 3, or the number of channels
    /// if there are fewer)
    #[arg(long, value_name = "X")]
    mu: Option<f64>,
    /// The network of the tunnel's own addresses: ADDR.1 at this end, and ADDR.2 at the other
    #[arg(long, value_name = "ADDR", default_value = "10.9.0.0")]
    network: Ipv4Addr,
    /// The name of the first client, if there may be several: sunder tunnel invite adds others
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// The configuration; the key is in a directory beside it
    #[arg(long, value_name = "FILE", default_value = "tunnel.toml")]
    out: PathBuf,
}

/// Writes the files.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let out = &arguments.out;
    let client = arguments.client.as_deref();
    let key_name = client.map_or_else(|| KEY_FILE.to_owned(), |name| format!("{name}.key"));
    let key_file = NewKeyFile::of(out, &key_name)?;
    check_absent(&[out, &key_file.path])?;
    let listens = required(
        &arguments.listen,
        "--listen",
        "Addresses of this host, one on each uplink, such as 192.0.2.10:6521",
    )?;
    let servers = arguments.server.clone();
    if !servers.is_empty() && servers.len() != listens.len() {
        let count = listens.len();
        let what = format!("give --server {count} times, once for each --listen, in their order");
        return Err(CommandFailure::Usage(what));
    }
    if let Some(any) = listens.iter().find(|it| it.ip().is_unspecified())
        && servers.is_empty()
    {
        return Err(CommandFailure::Usage(format!(
            "{any} is every address of this host: say with --server how the other end reaches \
             each channel"
        )));
    }
    let [kappa, mu] = match listens.len() {
        1 => [1.0, 1.0],
        2 => [2.0, 2.0],
        _ => [2.0, 3.0],
    };
    let kappa = arguments.kappa.unwrap_or(kappa);
    let mu = arguments.mu.unwrap_or(mu.max(kappa));
    let channels = listens.into_iter().map(RemoteAddress::from).collect();
    let ends = TunnelEnds { channels, kappa, mu, network: arguments.network, client: ONLY_CLIENT };
    let text = ends.server(&key_file.value, client);
    check::<Tunnel>(&text, out)?;
    let key = random_key()?;
    key_file.write(&key)?;
    write(&text, out)?;
    let shown = out.display();
    console::note(&format!(
        "{shown} is written; start it as root with: sunder tunnel --config {shown}"
    ));
    console::note(
        "the other end runs this line, which contains the tunnel's key: send it where nobody else \
         reads it",
    );
    let ends = if servers.is_empty() { ends } else { TunnelEnds { channels: servers, ..ends } };
    let line = TunnelJoinLine { ends, key };
    console::print_line(&format!("sunder tunnel join '{}'", *line.to_text()))
}
