//! Sets up a network interface: its addresses, routes and MTU.
//!
//! All functions act in the network namespace of the thread. The kernel removes a device's
//! addresses and routes together with the device, so nothing has to be restored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope};
use rtnetlink::{LinkUnspec, RouteMessageBuilder};

use crate::netlink::{NetlinkError, index, with_netlink};

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
        with_netlink(async |netlink| {
            let index = index(&netlink, self.name).await?;
            let up = LinkUnspec::new_with_index(index).mtu(self.mtu).txqueuelen(self.queue).up();
            netlink.link().set(up.build()).execute().await?;
            for own in self.addresses {
                let mut addition = netlink.address().add(index, own.addr(), own.prefix_len());
                // A TUN device has no neighbours that could have the same address. With duplicate
                // address detection, an IPv6 address would be unusable for a while.
                addition.message_mut().header.flags = AddressHeaderFlags::Nodad;
                addition.execute().await.map_err(refused("address", own))?;
                if let Some(congestion) = self.congestion {
                    let mut route = route(index, own.trunc(), Some(own.addr()));
                    let algorithm = RouteMetric::CcAlgo(congestion.to_owned());
                    route.attributes.push(RouteAttribute::Metrics(vec![algorithm]));
                    let replaced = netlink.route().add(route).replace().execute().await;
                    replaced.map_err(refused("route", own))?;
                }
            }
            for network in self.routes {
                let added = netlink.route().add(route(index, *network, None)).execute().await;
                added.map_err(refused("route", network))?;
            }
            Ok(())
        })
    }
}

/// Adds a route to a network through an interface.
///
/// # Errors
/// If there is no such interface, or a route to the network exists.
pub fn add_route(name: &str, network: IpNet) -> Result<(), NetlinkError> {
    with_netlink(async |netlink| {
        let index = index(&netlink, name).await?;
        let added = netlink.route().add(route(index, network, None)).execute().await;
        added.map_err(refused("route", &network))
    })
}

/// Changes an interface's MTU, in bytes.
///
/// # Errors
/// If there is no such interface, or it cannot have this MTU.
pub fn set_mtu(name: &str, mtu: u32) -> Result<(), NetlinkError> {
    with_netlink(async |netlink| {
        let index = index(&netlink, name).await?;
        let change = LinkUnspec::new_with_index(index).mtu(mtu).build();
        Ok(netlink.link().set(change).execute().await?)
    })
}

/// Brings the loopback interface up.
///
/// # Errors
/// If the kernel refuses.
pub fn bring_up_loopback() -> Result<(), NetlinkError> {
    with_netlink(async |netlink| {
        let up = LinkUnspec::new_with_index(1).up().build();
        Ok(netlink.link().set(up).execute().await?)
    })
}

/// A route to a network through an interface.
fn route(index: u32, to: IpNet, source: Option<IpAddr>) -> RouteMessage {
    match to.addr() {
        IpAddr::V4(address) => {
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(address, to.prefix_len())
                .scope(RouteScope::Link)
                .output_interface(index);
            match source {
                Some(IpAddr::V4(source)) => route.pref_source(source).build(),
                _ => route.build(),
            }
        }
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, to.prefix_len())
            .output_interface(index)
            .build(),
    }
}

/// The error of an address or route that the kernel refuses.
fn refused(what: &'static str, network: &IpNet) -> impl FnOnce(rtnetlink::Error) -> NetlinkError {
    move |source| NetlinkError::Refused { what, network: *network, source: Box::new(source) }
}
