//! Network address translation (NAT), as routers of homes and of mobile networks do it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// The kind of a NAT, by the old names of RFC 3489.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedNatKind {
    /// A host's port has one outer port, which lets everything in.
    FullCone,
    /// A host's port has one outer port, which lets in datagrams of the addresses and ports to
    /// which the host has sent.
    PortRestricted,
    /// A host's port has another outer port for each destination, which only this destination can
    /// reach.
    Symmetric,
}

/// A NAT with one outer address.
#[derive(Clone, Debug)]
pub struct SimulatedNat {
    kind: SimulatedNatKind,
    address: IpAddr,
    next_port: u16,
    /// The outer ports by inner address, and for a symmetric NAT by destination.
    ports: HashMap<(SocketAddr, Option<SocketAddr>), u16>,
    /// The inner addresses by outer port.
    inner: HashMap<u16, SocketAddr>,
    /// The outer ports and the destinations to which datagrams were sent from them.
    contacted: HashSet<(u16, SocketAddr)>,
}

impl SimulatedNat {
    /// A NAT with this outer address.
    pub fn new(kind: SimulatedNatKind, address: IpAddr) -> Self {
        let (ports, inner, contacted) = (HashMap::new(), HashMap::new(), HashSet::new());
        Self { kind, address, next_port: 40_000, ports, inner, contacted }
    }

    /// Translates the source of a datagram to the outside.
    pub fn outbound(&mut self, from: SocketAddr, to: SocketAddr) -> SocketAddr {
        let key = (from, (self.kind == SimulatedNatKind::Symmetric).then_some(to));
        let next_port = &mut self.next_port;
        let port = *self.ports.entry(key).or_insert_with(|| {
            *next_port += 1;
            *next_port
        });
        self.inner.insert(port, from);
        self.contacted.insert((port, to));
        (self.address, port).into()
    }

    /// Translates the destination of a datagram from the outside. `None`: it is not let in.
    pub fn inbound(&self, from: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
        let inner = *self.inner.get(&to.port()).filter(|_| to.ip() == self.address)?;
        let is_let_in =
            self.kind == SimulatedNatKind::FullCone || self.contacted.contains(&(to.port(), from));
        is_let_in.then_some(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn kinds_differ_in_their_ports_and_in_what_they_let_in() {
        let (host, one) = (address("10.0.0.2:7"), address("192.0.2.1:1"));
        let (two, other_port) = (address("192.0.2.2:1"), address("192.0.2.1:2"));
        for (kind, is_one_port, lets_in_all) in [
            (SimulatedNatKind::FullCone, true, true),
            (SimulatedNatKind::PortRestricted, true, false),
            (SimulatedNatKind::Symmetric, false, false),
        ] {
            let mut nat = SimulatedNat::new(kind, "198.51.100.1".parse().unwrap());
            let outer = nat.outbound(host, one);
            assert_eq!(nat.inbound(one, outer), Some(host));
            assert_eq!(nat.inbound(two, outer).is_some(), lets_in_all, "{kind:?}");
            assert_eq!(nat.inbound(other_port, outer).is_some(), lets_in_all, "{kind:?}");
            assert_eq!(nat.outbound(host, two) == outer, is_one_port, "{kind:?}");
            assert_eq!(nat.outbound(host, one), outer);
            assert_eq!(nat.inbound(one, address("198.51.100.1:9")), None);
        }
    }
}
