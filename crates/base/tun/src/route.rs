//! The route by which packets leave this host.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::netlink::{
    NetlinkError, NetlinkRequest, NetlinkSocket, address_bytes, address_from, attributes,
};

/// The length of `struct rtmsg`, with which an answer begins.
const ROUTE_STRUCTURE_LEN: usize = 12;

/// The interface and the router that the kernel selects for a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// The interface's name.
    pub interface: String,
    /// The router, if the address is not in the interface's own network.
    pub gateway: Option<IpAddr>,
}

/// Looks up the route to `destination` in the network namespace of the thread, for packets from
/// `source` and by `device`, if given.
///
/// # Errors
/// If there is no route, or no such device.
pub fn route_to(
    destination: IpAddr,
    source: Option<IpAddr>,
    device: Option<&str>,
) -> Result<KernelRoute, NetlinkError> {
    let netlink = NetlinkSocket::open()?;
    let index = device.map(|device| netlink.index(device)).transpose()?;
    let (family, to) = address_bytes(destination);
    let from = source.map(address_bytes).filter(|&(of, _)| of == family).map(|(_, from)| from);
    let bits = IpNet::from(destination).max_prefix_len();
    let structure = RouteStructure {
        family,
        destination_len: bits,
        source_len: if from.is_some() { bits } else { 0 },
        ..RouteStructure::default()
    };
    let request = NetlinkRequest::new(libc::RTM_GETROUTE, 0, &structure.encode())
        .attribute(libc::RTA_DST, &to)
        .optional(libc::RTA_SRC, from.as_deref())
        .optional(libc::RTA_OIF, index.map(u32::to_ne_bytes).as_ref().map(|it| &it[..]));
    let answer = netlink.ask(request)?;
    let (mut interface, mut gateway) = (None, None);
    for (kind, value) in attributes(answer.get(ROUTE_STRUCTURE_LEN..).unwrap_or_default()) {
        match kind {
            libc::RTA_OIF => interface = value.try_into().ok().map(u32::from_ne_bytes),
            libc::RTA_GATEWAY => gateway = address_from(value),
            _ => {}
        }
    }
    Ok(KernelRoute { interface: netlink.name(interface.ok_or(NetlinkError::NoRoute)?)?, gateway })
}

/// The values of `struct rtmsg` that are used here.
#[derive(Default)]
pub(crate) struct RouteStructure {
    pub(crate) family: u8,
    pub(crate) destination_len: u8,
    pub(crate) source_len: u8,
    pub(crate) table: u8,
    pub(crate) protocol: u8,
    pub(crate) scope: u8,
    pub(crate) kind: u8,
}

impl RouteStructure {
    pub(crate) fn encode(&self) -> [u8; ROUTE_STRUCTURE_LEN] {
        let mut bytes = [0; ROUTE_STRUCTURE_LEN];
        bytes[..8].copy_from_slice(&[
            self.family,
            self.destination_len,
            self.source_len,
            0, // type of service
            self.table,
            self.protocol,
            self.scope,
            self.kind,
        ]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_by_the_loopback_interface() {
        for (address, source) in [("127.0.0.1", None), ("127.0.0.1", Some("127.0.0.2"))] {
            let source = source.map(|source| source.parse().unwrap());
            let route = route_to(address.parse().unwrap(), source, Some("lo")).unwrap();
            assert_eq!(route, KernelRoute { interface: "lo".to_owned(), gateway: None });
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = route_to("127.0.0.1".parse().unwrap(), None, Some("absent0")).unwrap_err();
        assert_eq!(error.to_string(), "no interface absent0");
    }
}
