//! The clients of a server with several clients: `[[client]]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use service::config::{ConfigProblem, ConfigTable};

use super::networks::whole_networks;
use super::types::{TunnelChannelConfig, TunnelClientConfig, TunnelEnd};

/// The maximum number of clients of a server.
pub const MAX_CLIENTS: usize = 256;

/// The maximum number of networks of a client.
const MAX_NETWORKS: usize = 64;

/// The maximum length of a client's name, which is a label of metrics and a column of a table.
const MAX_NAME_LEN: usize = 24;

/// Reads the clients. `None` if any of them is invalid.
pub(super) fn clients(
    table: &ConfigTable<'_>,
    end: TunnelEnd,
    addresses: &[IpNet],
) -> Option<Vec<TunnelClientConfig>> {
    let tables = table.tables("client");
    if tables.len() > MAX_CLIENTS {
        table.refuse(format!("{} clients", tables.len()), format!("give {MAX_CLIENTS} at most"));
        return None;
    }
    let is_refused = end == TunnelEnd::Client && !tables.is_empty();
    if let Some(first) = tables.first().filter(|_| is_refused) {
        let fix = "leave it out: it is for the end whose channels have `listen`";
        first.refuse("`[[client]]` at the end that connects", fix);
    }
    let clients: Vec<Option<TunnelClientConfig>> =
        tables.iter().map(|table| client(table, addresses)).collect();
    let are_distinct = are_distinct(&clients, &tables);
    clients.into_iter().collect::<Option<Vec<_>>>().filter(|_| are_distinct && !is_refused)
}

/// Rejects settings that only a server with one client has, or only one with several.
pub(super) fn settings_of_one_client(
    table: &ConfigTable<'_>,
    channels: &[TunnelChannelConfig],
) -> bool {
    let has_clients = table.has("client");
    if !has_clients {
        if table.has("between_clients") {
            let what = "`between_clients` is for a server with `[[client]]`";
            table.report_key(
                "between_clients",
                ConfigProblem::new(what, "leave it out").summarized(what),
            );
        }
        return false;
    }
    for (name, fix) in [
        ("key", "move it into the `[[client]]` whose key it is"),
        ("allowed", "leave it out: a client sends from its `networks`"),
    ] {
        if table.has(name) {
            let what = format!("`{name}` is for a tunnel with one client");
            table.report_key(name, ConfigProblem::new(what.clone(), fix).summarized(what));
        }
    }
    if channels.iter().any(|channel| channel.peer.is_some()) {
        table.refuse(
            "a channel has `client`, and there are several clients",
            "leave it out of the channels: a client is known by its key, at any address",
        );
    }
    true
}

fn client(table: &ConfigTable<'_>, addresses: &[IpNet]) -> Option<TunnelClientConfig> {
    let name = table.require("name").and_then(|value| {
        let name = value.text()?;
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_LEN || !name.chars().all(is_valid) {
            let fix = format!("give 1 to {MAX_NAME_LEN} letters, digits, `-`, `_` or `.`");
            value.refuse(format!("\"{name}\" is not a name of a client"), fix);
            return None;
        }
        Some(name.to_owned())
    });
    let key = table.require("key").and_then(|value| value.text()).map(PathBuf::from);
    let list = table.require("networks");
    let networks = list.as_ref().map(whole_networks).unwrap_or_default();
    if let Some(list) = list.filter(|list| list.count() == Some(0)) {
        list.refuse(
            "the client has no networks, so it could send and receive nothing",
            "give its address in the tunnel, as in networks = [\"10.9.0.2/32\"]",
        );
        return None;
    }
    if networks.len() > MAX_NETWORKS {
        let what = format!("the client has {} networks", networks.len());
        table.report_key(
            "networks",
            ConfigProblem::new(what, format!("give {MAX_NETWORKS} at most")),
        );
        return None;
    }
    let own = |address: &IpAddr| networks.iter().any(|network| network.contains(address));
    if let Some(own) = addresses.iter().map(IpNet::addr).find(own) {
        let what = format!("`networks` contains {own}, which is this end's own address");
        let fix = "give the addresses of the client only, as in networks = [\"10.9.0.2/32\"]";
        table.report_key("networks", ConfigProblem::new(what, fix));
        return None;
    }
    Some(TunnelClientConfig { name: name?, key: key?, networks })
}

/// Rejects clients that could not be distinguished.
fn are_distinct(clients: &[Option<TunnelClientConfig>], tables: &[ConfigTable<'_>]) -> bool {
    let (mut names, mut keys) = (HashMap::new(), HashMap::new());
    let mut networks: Vec<(IpNet, usize)> = Vec::new();
    let mut are_distinct = true;
    for (index, (client, table)) in clients.iter().zip(tables).enumerate() {
        let Some(client) = client else { continue };
        let mut refuse = |name: &str, what: String, fix: &str| {
            table.report_key(name, ConfigProblem::new(what, fix));
            are_distinct = false;
        };
        if let Some(first) = names.insert(&client.name, index) {
            let what = format!("clients {} and {} have the same name", first + 1, index + 1);
            refuse("name", what, "give each client its own name");
        }
        if let Some(first) = keys.insert(&client.key, index) {
            let what = format!("clients {} and {} have the same key", first + 1, index + 1);
            refuse("key", what, "give each client its own: sunder key new FILE");
        }
        for network in &client.networks {
            let other = networks.iter().find(|(other, at)| {
                *at != index && (other.contains(network) || network.contains(other))
            });
            if let Some((other, at)) = other {
                let first = clients[*at].as_ref().map_or("", |first| first.name.as_str());
                let what = if other == network {
                    format!("{network} is also a network of {first}")
                } else {
                    format!("{network} overlaps {other}, a network of {first}")
                };
                refuse("networks", what, "give each client networks of its own");
                break;
            }
        }
        networks.extend(client.networks.iter().map(|network| (*network, index)));
    }
    are_distinct
}
