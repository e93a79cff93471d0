//! `sunder tunnel invite`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use console::CommandFailure;
use keys::storage::{self, Durability};
use remicss::config::{TunnelConfig, TunnelEnd};
use service::config::read_file;
use service::remote_address::RemoteAddress;

use super::Tunnel;
use super::ends::{TunnelEnds, client_table};
use super::join_line::TunnelJoinLine;
use crate::commands::load_config;
use crate::new_files::{NewKeyFile, check, random_key};

/// Adds a client to a server with several clients, and prints the line for it.
///
/// Writes a key beside the configuration, and a `[[client]]` into it. A running server takes the
/// client after a SIGHUP, without disturbing the others. The line contains the key.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder tunnel invite laptop
prints the command for the client: sunder tunnel join 'sunder-tunnel,...'
The server takes it at once after: systemctl reload sunder-tunnel@office,
or kill -HUP PID")]
pub(super) struct Arguments {
    /// The client's name in the status and the log
    #[arg(value_name = "NAME")]
    name: String,
    /// A network behind the client, from which it may also send
    #[arg(long, value_name = "NETWORK")]
    network: Vec<String>,
    /// The server's address or name of each channel, with its port, as the client reaches it, in
    /// their order (default: the `listen` addresses)
    #[arg(long, value_name = "ADDR")]
    server: Vec<RemoteAddress>,
    /// The server's configuration; the key is in a directory beside it
    #[arg(long, value_name = "FILE", default_value = "tunnel.toml")]
    config: PathBuf,
}

/// Writes the key and the configuration.
///
/// # Errors
/// If the configuration is not that of such a server, the client cannot be added, or a file cannot
/// be written.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let path = &arguments.config;
    let config = load_config::<Tunnel>(path)?;
    let shown = path.display();
    let usage = |text: String| CommandFailure::Usage(text);
    if config.end == TunnelEnd::Client {
        return Err(usage(format!("{shown} is a client's: run this at the server")));
    }
    if config.clients.is_empty() {
        return Err(usage(format!(
            "{shown} has one client: replace its `key` by a [[client]] with name, key and networks, \
             and restart the tunnel"
        )));
    }
    let key_file = NewKeyFile::of(path, &format!("{}.key", arguments.name))?;
    if key_file.path.symlink_metadata().is_ok() {
        let key = key_file.path.display();
        return Err(usage(format!(
            "{key} exists, and is kept: choose another name, or delete it if no client uses it"
        )));
    }
    let channels = channels(arguments, &config).map_err(usage)?;
    let (network, client) = free_address(&config).map_err(usage)?;
    let ends = TunnelEnds { channels, kappa: config.kappa, mu: config.mu, network, client };
    let networks = [vec![ends.client_network()], arguments.network.clone()].concat();
    let before = read_file(path).map_err(|error| usage(error.to_string()))?;
    let added = client_table(&arguments.name, &key_file.value, &networks);
    let text = format!("{}\n{added}", before.trim_end());
    check::<Tunnel>(&text, path)?;
    let key = random_key()?;
    key_file.write(&key)?;
    storage::replace(path, text.as_bytes(), 0o600, Durability::Synced)
        .map_err(|error| CommandFailure::writing(path, &error))?;
    console::note(&format!(
        "{shown} has the client {} now; a running server takes it on SIGHUP",
        arguments.name
    ));
    console::note(
        "the client runs this line, which contains its key: send it where nobody else reads it",
    );
    let line = TunnelJoinLine { ends, key };
    console::print_line(&format!("sunder tunnel join '{}'", *line.to_text()))
}

/// The server's addresses as the client reaches them.
fn channels(arguments: &Arguments, config: &TunnelConfig) -> Result<Vec<RemoteAddress>, String> {
    let count = config.channels.len();
    if !arguments.server.is_empty() {
        let is_right = arguments.server.len() == count;
        return is_right.then(|| arguments.server.clone()).ok_or_else(|| {
            format!("give --server {count} times, once for each channel, in their order")
        });
    }
    let listens: Vec<SocketAddr> = config.channels.iter().map(|channel| channel.local).collect();
    if listens.iter().any(|listen| listen.ip().is_unspecified()) {
        return Err("the server listens on any address: say with --server how the client reaches \
                    each channel"
            .into());
    }
    Ok(listens.into_iter().map(RemoteAddress::from).collect())
}

/// The network of the server's own addresses, and the last byte of one that no client has.
fn free_address(config: &TunnelConfig) -> Result<(Ipv4Addr, u8), String> {
    let own = config.addresses.iter().filter(|own| own.prefix_len() <= 24);
    let own = own.filter_map(|own| match own.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let own = own.into_iter().next().ok_or(
        "`addresses` has no IPv4 network of 254 addresses for clients: write the [[client]] yourself",
    )?;
    let [a, b, c, last] = own.octets();
    let is_free = |number: &u8| {
        let address = IpAddr::V4(Ipv4Addr::new(a, b, c, *number));
        let networks = config.clients.iter().flat_map(|client| &client.networks);
        *number != last && networks.into_iter().all(|network| !network.contains(&address))
    };
    let free = (2..=254).find(is_free);
    let free = free.ok_or_else(|| format!("all addresses of {a}.{b}.{c}.0/24 are used"))?;
    Ok((Ipv4Addr::new(a, b, c, 0), free))
}
