//! Sets up a network interface: its addresses, routes and MTU.
//!
//! All functions act in the network namespace of the thread. The kernel removes a device's
//! addresses and routes together with the device, so nothing has to be restored.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use libc::{IFF_NOARP, IFF_UP};

use crate::netlink::{NetlinkError, NetlinkRequest, NetlinkSocket, address_bytes, push_attribute};
use crate::route::RouteStructure;

/// The number of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;
/// `RTAX_CC_ALGO` of `linux/rtnetlink.h`: the congestion control, among a route's metrics.
const CONGESTION_CONTROL: u16 = 16;

/// The settings of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceSettings<'a> {
    /// Its name.
    pub name: &'a str,
    /// The MTU, in bytes.
    pub mtu: u32,
    /// How many packets the kernel queues until the device reads them.
    pub queue: u32,
    /// Its addresses, each with the prefix length of its network.
    pub addresses: &'a [IpNet],
    /// Networks to reach through it, in addition to those of its addresses.
    pub routes: &'a [IpNet],
    /// The congestion control of TCP connections within the networks of its addresses. `None`: the
    /// system's.
    pub congestion: Option<&'a str>,
}

impl InterfaceSettings<'_> {
    /// Applies the settings and brings the interface up.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel refuses a setting.
    pub fn set_up(&self) -> Result<(), NetlinkError> {
        let netlink = NetlinkSocket::open()?;
        let index = netlink.index(self.name)?;
        let up = link_change(index, IFF_UP)
            .attribute(libc::IFLA_MTU, &self.mtu.to_ne_bytes())
            .attribute(libc::IFLA_TXQLEN, &self.queue.to_ne_bytes());
        netlink.change(up)?;
        for own in self.addresses {
            netlink.change(address_addition(index, own)).map_err(refused("address", own))?;
            if let Some(congestion) = self.congestion {
                let mut metrics = Vec::new();
                let name = [congestion.as_bytes(), &[0]].concat();
                push_attribute(&mut metrics, CONGESTION_CONTROL, &name);
                let replacement = route(libc::NLM_F_REPLACE, index, own.trunc(), Some(own.addr()))
                    .attribute(libc::RTA_METRICS, &metrics);
                netlink.change(replacement).map_err(refused("route", own))?;
            }
        }
        for network in self.routes {
            let addition = route(libc::NLM_F_EXCL, index, *network, None);
            netlink.change(addition).map_err(refused("route", network))?;
        }
        Ok(())
    }
}

/// An interface whose address a guest behind a TAP device gets. The thread's network namespace then
/// passes packets on between both, if it forwards.
#[derive(Clone, Debug)]
pub struct GivenAddress<'a> {
    /// The interface that has the address.
    pub from: &'a str,
    /// The TAP device. Both of its ends have the same hardware address and resolve no addresses, so
    /// that every packet on it is for the other end.
    pub tap: &'a str,
    /// The hardware address of both ends.
    pub hardware: [u8; 6],
    /// The address, with the prefix length of its network.
    pub address: IpNet,
    /// The MTU, in bytes.
    pub mtu: u32,
    /// How many packets the kernel queues until the device reads them.
    pub queue: u32,
    /// Networks that are reached through `from`, in addition to that of the address.
    pub routes: &'a [IpNet],
}

impl GivenAddress<'_> {
    /// Takes the address from its interface, and passes packets for it to the TAP device.
    ///
    /// # Errors
    /// If there is no such interface or address, or the kernel refuses a setting.
    pub fn give(&self) -> Result<(), NetlinkError> {
        let netlink = NetlinkSocket::open()?;
        let [from, tap] = [netlink.index(self.from)?, netlink.index(self.tap)?];
        let hardware = link_change(tap, 0).attribute(libc::IFLA_ADDRESS, &self.hardware);
        netlink.change(hardware)?;
        let up = link_change(tap, IFF_UP | IFF_NOARP)
            .attribute(libc::IFLA_MTU, &self.mtu.to_ne_bytes())
            .attribute(libc::IFLA_TXQLEN, &self.queue.to_ne_bytes());
        netlink.change(up)?;
        let removal = address_change(libc::RTM_DELADDR, 0, from, &self.address);
        netlink.change(removal).map_err(refused("address", &self.address))?;
        // The kernel has removed the routes of the interface together with its last address.
        let own = IpNet::from(self.address.addr());
        let routes = self.routes.iter().map(|network| (from, *network));
        for (index, network) in [(from, self.address.trunc()), (tap, own)].into_iter().chain(routes)
        {
            let addition = route(libc::NLM_F_REPLACE, index, network, None);
            netlink.change(addition).map_err(refused("route", &network))?;
        }
        Ok(())
    }
}

/// Adds a route to a network through an interface.
///
/// # Errors
/// If there is no such interface, or a route to the network exists.
pub fn add_route(name: &str, network: IpNet) -> Result<(), NetlinkError> {
    let netlink = NetlinkSocket::open()?;
    let addition = route(libc::NLM_F_EXCL, netlink.index(name)?, network, None);
    netlink.change(addition).map_err(refused("route", &network))
}

/// Removes a route to a network through an interface.
///
/// # Errors
/// If there is no such interface or route.
pub fn remove_route(name: &str, network: IpNet) -> Result<(), NetlinkError> {
    let netlink = NetlinkSocket::open()?;
    let removal = route_change(libc::RTM_DELROUTE, 0, netlink.index(name)?, network, None);
    netlink.change(removal).map_err(refused("route", &network))
}

/// Changes an interface's MTU, in bytes.
///
/// # Errors
/// If there is no such interface, or it cannot have this MTU.
pub fn set_mtu(name: &str, mtu: u32) -> Result<(), NetlinkError> {
    let netlink = NetlinkSocket::open()?;
    let change = link_change(netlink.index(name)?, 0);
    Ok(netlink.change(change.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes()))?)
}

/// Brings the loopback interface up.
///
/// # Errors
/// If the kernel refuses.
pub fn bring_up_loopback() -> Result<(), NetlinkError> {
    Ok(NetlinkSocket::open()?.change(link_change(LOOPBACK, IFF_UP))?)
}

/// A request that changes an interface, and sets these flags.
fn link_change(index: u32, flags: i32) -> NetlinkRequest {
    let flags = flags.to_ne_bytes();
    // `struct ifinfomsg`: family and type 0, the index, the flags and which of them change.
    let structure = [[0; 4], index.to_ne_bytes(), flags, flags].concat();
    NetlinkRequest::new(libc::RTM_SETLINK, 0, &structure)
}

/// A request that gives an interface an address.
fn address_addition(index: u32, own: &IpNet) -> NetlinkRequest {
    address_change(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL, index, own)
}

/// A request that gives an interface an address, or takes one from it.
fn address_change(kind: u16, flags: i32, index: u32, own: &IpNet) -> NetlinkRequest {
    let (family, address) = address_bytes(own.addr());
    // A TUN device has no neighbours that could have the same address. With duplicate address
    // detection, an IPv6 address would be unusable for a while.
    let no_detection = u8::try_from(libc::IFA_F_NODAD).expect("a small flag");
    // `struct ifaddrmsg`; the last byte of the first word is the scope: everywhere.
    let structure = [[family, own.prefix_len(), no_detection, 0], index.to_ne_bytes()].concat();
    NetlinkRequest::new(kind, flags, &structure)
        .attribute(libc::IFA_LOCAL, &address)
        .attribute(libc::IFA_ADDRESS, &address)
}

/// A request that creates a route to a network through an interface. `flags` says what happens if
/// there is one.
fn route(flags: i32, index: u32, to: IpNet, source: Option<IpAddr>) -> NetlinkRequest {
    route_change(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | flags, index, to, source)
}

/// A request that creates or removes a route to a network through an interface.
fn route_change(
    kind: u16,
    flags: i32,
    index: u32,
    to: IpNet,
    source: Option<IpAddr>,
) -> NetlinkRequest {
    let (family, destination) = address_bytes(to.addr());
    let is_v4 = to.addr().is_ipv4();
    let structure = RouteStructure {
        family,
        destination_len: to.prefix_len(),
        source_len: 0,
        table: libc::RT_TABLE_MAIN,
        protocol: libc::RTPROT_STATIC,
        scope: if is_v4 { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE },
        kind: libc::RTN_UNICAST,
    };
    let source = source.filter(|_| is_v4).map(|source| address_bytes(source).1);
    NetlinkRequest::new(kind, flags, &structure.encode())
        .attribute(libc::RTA_DST, &destination)
        .optional(libc::RTA_PREFSRC, source.as_deref())
        .attribute(libc::RTA_OIF, &index.to_ne_bytes())
}

/// The error of an address or route that the kernel refuses.
fn refused(what: &'static str, network: &IpNet) -> impl FnOnce(io::Error) -> NetlinkError {
    move |source| NetlinkError::Refused { what, network: *network, source }
}
