//! Which client has an address in the tunnel.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;

/// The networks of all clients of a server, which do not overlap, with fast lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientNetworks {
    networks: Vec<(TunnelPeerId, Vec<IpNet>)>,
    /// The first and the last address of each network, in ascending order.
    v4: Vec<(u32, u32, TunnelPeerId)>,
    v6: Vec<(u128, u128, TunnelPeerId)>,
}

impl ClientNetworks {
    /// These networks.
    pub(super) fn new(networks: Vec<(TunnelPeerId, Vec<IpNet>)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (client, networks) in &networks {
            for network in networks {
                match network {
                    IpNet::V4(it) => {
                        v4.push((it.network().into(), it.broadcast().into(), *client));
                    }
                    IpNet::V6(it) => {
                        v6.push((it.network().into(), it.broadcast().into(), *client));
                    }
                }
            }
        }
        v4.sort_unstable();
        v6.sort_unstable();
        Self { networks, v4, v6 }
    }

    /// The networks of a client.
    pub(super) fn of(&self, client: TunnelPeerId) -> &[IpNet] {
        let known = self.networks.iter().find(|(known, _)| *known == client);
        known.map_or(&[], |(_, networks)| networks)
    }

    /// The client that has an address.
    pub(super) fn client_of(&self, address: IpAddr) -> Option<TunnelPeerId> {
        match address {
            IpAddr::V4(address) => client_in(&self.v4, address.into()),
            IpAddr::V6(address) => client_in(&self.v6, address.into()),
        }
    }
}

/// The client whose range contains a number.
fn client_in<T: Copy + Ord>(ranges: &[(T, T, TunnelPeerId)], number: T) -> Option<TunnelPeerId> {
    let behind = ranges.partition_point(|(first, ..)| *first <= number);
    let (_, last, client) = *ranges.get(behind.checked_sub(1)?)?;
    (number <= last).then_some(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_to_their_clients() {
        let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let [a, b] = [1, 2].map(TunnelPeerId);
        let clients = ClientNetworks::new(vec![
            (a, networks(&["10.9.0.2/32", "192.168.1.0/24", "fd00::2/128"])),
            (b, networks(&["10.9.0.3/32", "10.9.1.0/24", "fd01::/16"])),
        ]);
        for (address, client) in [
            ("10.9.0.2", Some(a)),
            ("10.9.0.3", Some(b)),
            ("10.9.0.1", None),
            ("10.9.0.4", None),
            ("10.9.0.255", None),
            ("10.9.1.0", Some(b)),
            ("10.9.1.255", Some(b)),
            ("10.9.2.0", None),
            ("192.168.1.77", Some(a)),
            ("0.0.0.0", None),
            ("255.255.255.255", None),
            ("fd00::2", Some(a)),
            ("fd00::3", None),
            ("fd01:ffff::", Some(b)),
            ("fd02::", None),
            ("::", None),
        ] {
            assert_eq!(clients.client_of(address.parse().unwrap()), client, "{address}");
        }
        assert_eq!(clients.of(b).len(), 3);
        assert_eq!(ClientNetworks::default().client_of("10.9.0.2".parse().unwrap()), None);
    }
}
