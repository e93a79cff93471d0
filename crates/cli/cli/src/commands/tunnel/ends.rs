//! The configurations of both ends of a new tunnel, pure.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use service::remote_address::RemoteAddress;

use crate::new_files::quoted;

/// The name of the key file at both ends.
pub(crate) const KEY_FILE: &str = "tunnel.key";

/// What both ends of a tunnel have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TunnelEnds {
    /// The server's address of each channel. In a server's configuration it is no name.
    pub(crate) channels: Vec<RemoteAddress>,
    /// The mean threshold.
    pub(crate) kappa: f64,
    /// The mean number of shares.
    pub(crate) mu: f64,
    /// The network of the tunnel's own addresses, of which the last byte counts nothing.
    pub(crate) network: Ipv4Addr,
    /// The last byte of the client's address. That of the server is 1.
    pub(crate) client: u8,
}

/// The last byte of the address of a tunnel's only client.
pub(crate) const ONLY_CLIENT: u8 = 2;

impl TunnelEnds {
    /// The server's configuration. `key` is the name of the key file as a value of TOML. With the
    /// name of a client, the server may have several.
    pub(crate) fn server(&self, key: &str, client: Option<&str>) -> String {
        let mut text = self.common(1);
        if client.is_some() {
            text.push_str(
                "# The clients have keys, so their addresses may change while the tunnel runs.\n\
                 roaming = true\n\n",
            );
        } else {
            text.push_str(&key_setting(key));
        }
        text.push_str("# The channels: an address of this host on each uplink.\n");
        for channel in &self.channels {
            let _ = writeln!(text, "[[channel]]\nlisten = {}\n", quoted(&channel.to_string()));
        }
        if let Some(name) = client {
            text.push_str("# The clients. `sunder tunnel invite` adds another one.");
            text.push_str(&client_table(name, key, &[self.client_network()]));
        }
        trimmed(text)
    }

    /// The network that has only the client's address.
    pub(crate) fn client_network(&self) -> String {
        let [a, b, c, _] = self.network.octets();
        format!("{a}.{b}.{c}.{}/32", self.client)
    }

    /// The client's configuration, with the devices of its channels, if they are known.
    pub(crate) fn client(&self, key: &str, devices: &[String]) -> String {
        let mut text = self.common(self.client);
        text.push_str(&key_setting(key));
        text.push_str(
            "# The channels: the server's address on each network, in the same order as there.\n\
             # `device`, or `source` with an address of this host, picks the uplink here.\n",
        );
        for (i, channel) in self.channels.iter().enumerate() {
            let _ = writeln!(text, "[[channel]]\nserver = {}", quoted(&channel.to_string()));
            match devices.get(i) {
                Some(device) => {
                    let _ = writeln!(text, "device = {}\n", quoted(device));
                }
                None => text.push_str("# device = \"eth0\"\n\n"),
            }
        }
        trimmed(text)
    }

    /// What stands above the channels at the end with this number.
    fn common(&self, end: u8) -> String {
        let [a, b, c, _] = self.network.octets();
        let Self { kappa, mu, .. } = self;
        format!(
            "# One end of a tunnel: sunder tunnel --config FILE, as root or with CAP_NET_ADMIN.
# `sunder tunnel --help` names all settings, and docs/guides/tunnel.md explains them.

# On average, kappa shares are needed to read a packet, and mu are sent: mu -
# kappa of them may be lost. A higher kappa means more privacy; a higher mu
# means less loss, but a lower rate.
kappa = {kappa}
mu = {mu}

# The tunnel's own address at this end. `routes` can name further networks that are reached through
# the tunnel. With `fail_closed = true`, packets for all of these never leave another way.
addresses = [\"{a}.{b}.{c}.{end}/24\"]

"
        )
    }
}

/// The table of a client in the server's configuration, with an empty line before it. `key` is the
/// name of the key file as a value of TOML.
pub(crate) fn client_table(name: &str, key: &str, networks: &[String]) -> String {
    let networks: Vec<String> = networks.iter().map(|network| quoted(network)).collect();
    let (name, networks) = (quoted(name), networks.join(", "));
    format!("\n[[client]]\nname = {name}\nkey = {key}\nnetworks = [{networks}]\n")
}

fn key_setting(key: &str) -> String {
    format!("# The key that both ends share, relative to this file.\nkey = {key}\n\n")
}

fn trimmed(mut text: String) -> String {
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use remicss::config::{TunnelConfig, TunnelEnd};

    use super::*;

    #[test]
    fn both_ends_are_configured_alike() {
        let ends = TunnelEnds {
            channels: vec!["192.0.2.1:6521".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap()],
            kappa: 1.5,
            mu: 2.0,
            network: Ipv4Addr::new(10, 7, 3, 0),
            client: ONLY_CLIENT,
        };
        let devices = ["eth0".to_owned(), "wlan0".to_owned()];
        let [server, client] = [ends.server("\"t.key\"", None), ends.client("\"t.key\"", &devices)]
            .map(|text| TunnelConfig::from_toml(&text).unwrap());
        assert_eq!((server.end, client.end), (TunnelEnd::Server, TunnelEnd::Client));
        assert_eq!((server.kappa, server.mu), (client.kappa, client.mu));
        assert_eq!(server.key, client.key);
        assert!(
            server
                .channels
                .iter()
                .map(|it| Some(it.local))
                .eq(client.channels.iter().map(|it| it.peer))
        );
        let named: Vec<_> = client.channels.iter().map(|it| it.device.clone().unwrap()).collect();
        assert_eq!(named, devices);
        assert_ne!(server.addresses, client.addresses);
        assert_eq!(server.addresses[0].network(), client.addresses[0].network());
    }

    #[test]
    fn a_server_may_have_several_clients() {
        let ends = TunnelEnds {
            channels: vec!["192.0.2.1:6521".parse().unwrap()],
            kappa: 1.0,
            mu: 1.0,
            network: Ipv4Addr::new(10, 7, 3, 0),
            client: 9,
        };
        let mut text = ends.server("\"a.key\"", Some("a"));
        let networks = ["10.7.3.10/32".to_owned(), "192.168.1.0/24".to_owned()];
        text.push_str(&client_table("b", "\"b.key\"", &networks));
        let server = TunnelConfig::from_toml(&text).unwrap();
        assert!(server.key.is_none() && server.roaming);
        let clients: Vec<(&str, usize)> =
            server.clients.iter().map(|it| (it.name.as_str(), it.networks.len())).collect();
        assert_eq!(clients, [("a", 1), ("b", 2)]);
        let client = TunnelConfig::from_toml(&ends.client("\"t.key\"", &[])).unwrap();
        assert!(server.clients[0].networks[0].contains(&client.addresses[0].addr()));
    }
}
