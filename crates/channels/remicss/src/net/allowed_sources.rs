//! The source addresses that the peer's packets may have.
//!
//! The association identifies the peer; this limits the source addresses that it may use. Without
//! it, the peer could send packets with the source address of any host to this one and, if it
//! forwards, to hosts behind it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tun::ip::source;

/// The link-local addresses of IPv6, which are valid on the device's own network only. The kernel
/// sends from one when a device goes up.
const LINK_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

/// Sets of addresses with fast lookup.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedSources {
    v4: AddressRanges<u32>,
    v6: AddressRanges<u128>,
}

/// Ranges of numbers that do not touch, in ascending order: the first and the last of each.
#[derive(Clone, Debug, Default)]
struct AddressRanges<T>(Vec<(T, T)>);

impl AllowedSources {
    /// The addresses of these networks and link-local ones, except `own`, which are this end's.
    pub(super) fn new(networks: &[IpNet], own: impl IntoIterator<Item = IpAddr>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), vec![LINK_LOCAL]);
        for network in networks {
            match network {
                IpNet::V4(network) => v4.push(*network),
                IpNet::V6(network) => v6.push(*network),
            }
        }
        let v4 = Ipv4Net::aggregate(&v4);
        let v6 = Ipv6Net::aggregate(&v6);
        let mut sources = Self {
            v4: AddressRanges(
                v4.iter().map(|net| (net.network().into(), net.broadcast().into())).collect(),
            ),
            v6: AddressRanges(
                v6.iter().map(|net| (net.network().into(), net.broadcast().into())).collect(),
            ),
        };
        sources.v4.0.sort_unstable();
        sources.v6.0.sort_unstable();
        for address in own {
            match address {
                IpAddr::V4(address) => sources
                    .v4
                    .remove(address.into(), |number, by| number.checked_add_signed(by.into())),
                IpAddr::V6(address) => {
                    sources
                        .v6
                        .remove(address.into(), |number, by| number.checked_add_signed(by.into()));
                }
            }
        }
        sources
    }

    /// Whether a packet's source address is allowed. False for anything that is not an IP packet.
    pub(super) fn allows(&self, packet: &[u8]) -> bool {
        match source(packet) {
            Some(IpAddr::V4(address)) => self.v4.contains(address.into()),
            Some(IpAddr::V6(address)) => self.v6.contains(address.into()),
            None => false,
        }
    }
}

impl<T: Copy + Ord> AddressRanges<T> {
    fn contains(&self, number: T) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        behind > 0 && number <= self.0[behind - 1].1
    }

    /// Removes a number. `add` adds to a number, unless it overflows.
    fn remove(&mut self, number: T, add: impl Fn(T, i8) -> Option<T>) {
        let Some(place) =
            self.0.iter().position(|(first, last)| *first <= number && number <= *last)
        else {
            return;
        };
        let (first, last) = self.0.remove(place);
        let after = add(number, 1).map(|next| (next, last));
        let before = add(number, -1).map(|previous| (first, previous));
        for range in [after, before].into_iter().flatten().filter(|(first, last)| first <= last) {
            self.0.insert(place, range);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// The header of a packet from an address.
    fn from(address: IpAddr) -> Vec<u8> {
        match address {
            IpAddr::V4(address) => {
                let mut packet = vec![0; 20];
                packet[0] = 0x45;
                packet[3] = 20;
                packet[12..16].copy_from_slice(&address.octets());
                packet
            }
            IpAddr::V6(address) => {
                let mut packet = vec![0; 40];
                packet[0] = 0x60;
                packet[8..24].copy_from_slice(&address.octets());
                packet
            }
        }
    }

    fn allows(sources: &AllowedSources, address: &str) -> bool {
        sources.allows(&from(address.parse().unwrap()))
    }

    #[test]
    fn only_addresses_of_the_networks_are_allowed() {
        let nets = networks(&["10.9.0.2/24", "10.8.0.0/16", "fd00::2/64", "10.8.128.0/17"]);
        let own = ["10.9.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let sources = AllowedSources::new(&nets, own);
        for good in
            ["10.9.0.1", "10.9.0.0", "10.9.0.255", "10.8.0.0", "10.8.255.255", "fd00::1", "fe80::1"]
        {
            assert!(allows(&sources, good), "{good}");
        }
        for bad in [
            "10.9.1.0",
            "10.7.255.255",
            "0.0.0.0",
            "127.0.0.1",
            "fd00:0:0:1::",
            "::",
            "::1",
            "fec0::",
        ] {
            assert!(!allows(&sources, bad), "{bad}");
        }
        assert!(!allows(&sources, "10.9.0.2") && !allows(&sources, "fd00::2"), "they are our own");
        for nothing in [&[][..], &[0x45], &[0; 64], &[0x60; 39]] {
            assert!(!sources.allows(nothing));
        }
    }

    #[test]
    fn own_addresses_are_not_allowed_even_if_everything_else_is() {
        let own = ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
        let own = own.map(|address| address.parse().unwrap());
        let sources = AllowedSources::new(&networks(&["0.0.0.0/0", "::/0"]), own);
        assert!(own.iter().all(|address| !sources.allows(&from(*address))));
        for good in ["0.0.0.1", "192.0.2.1", "255.255.255.254", "::1", "2001:db8::1"] {
            assert!(allows(&sources, good), "{good}");
        }
    }

    #[test]
    fn without_networks_only_link_local_sources_are_allowed() {
        let sources = AllowedSources::new(&[], []);
        assert!(allows(&sources, "fe80::1") && !allows(&sources, "10.9.0.1"));
    }

    proptest! {
        #[test]
        fn allowed_sources_equal_a_reference(
            nets in prop::collection::vec((any::<u32>(), 0..=32_u8), 0..8),
            own in prop::collection::vec(0..4_usize, 0..3),
            near in any::<u8>(),
        ) {
            let nets: Vec<IpNet> = nets.into_iter()
                .map(|(address, len)| Ipv4Net::new(address.into(), len).unwrap().into())
                .collect();
            let own: Vec<IpAddr> = own.iter().filter_map(|i| nets.get(*i)).map(IpNet::addr).collect();
            let sources = AllowedSources::new(&nets, own.iter().copied());
            for net in &nets {
                let IpNet::V4(net) = net else { continue };
                for around in [net.network(), net.addr(), net.broadcast()] {
                    let address = u32::from(around).wrapping_add(near.into()).wrapping_sub(128);
                    let address = IpAddr::V4(Ipv4Addr::from(address));
                    let expected =
                        nets.iter().any(|net| net.contains(&address)) && !own.contains(&address);
                    prop_assert_eq!(sources.allows(&from(address)), expected, "{}", address);
                }
            }
        }
    }
}
