//! Sets up a network interface: its addresses, routes and MTU.
//!
//! All functions act in the network namespace of the thread. The kernel removes a device's
//! addresses and routes together with the device, so nothing has to be restored.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

/// The settings of an interface.
#[derive(Clone, Debug)]
pub struct Interface<'a> {
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

impl Interface<'_> {
    /// Applies the settings and brings the interface up.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel refuses a setting.
    pub fn set_up(&self) -> io::Result<()> {
        with_netlink(async |netlink| {
            let index = index(&netlink, self.name).await?;
            let up = LinkUnspec::new_with_index(index).mtu(self.mtu).txqueuelen(self.queue).up();
            netlink.link().set(up.build()).execute().await.map_err(io::Error::other)?;
            for own in self.addresses {
                let mut addition = netlink.address().add(index, own.addr(), own.prefix_len());
                // A TUN device has no neighbours that could have the same address. With duplicate
                // address detection, an IPv6 address would be unusable for a while.
                addition.message_mut().header.flags = AddressHeaderFlags::Nodad;
                addition.execute().await.map_err(|error| refused("address", own, &error))?;
                if let Some(congestion) = self.congestion {
                    let mut route = route(index, own.trunc(), Some(own.addr()));
                    let algorithm = RouteMetric::CcAlgo(congestion.to_owned());
                    route.attributes.push(RouteAttribute::Metrics(vec![algorithm]));
                    let replaced = netlink.route().add(route).replace().execute().await;
                    replaced.map_err(|error| refused("route", own, &error))?;
                }
            }
            for network in self.routes {
                let added = netlink.route().add(route(index, *network, None)).execute().await;
                added.map_err(|error| refused("route", network, &error))?;
            }
            Ok(())
        })
    }
}

/// Changes an interface's MTU, in bytes.
///
/// # Errors
/// If there is no such interface, or it cannot have this MTU.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    with_netlink(async |netlink| {
        let index = index(&netlink, name).await?;
        let change = LinkUnspec::new_with_index(index).mtu(mtu).build();
        netlink.link().set(change).execute().await.map_err(io::Error::other)
    })
}

/// Brings the loopback interface up.
///
/// # Errors
/// If the kernel refuses.
pub fn bring_up_loopback() -> io::Result<()> {
    with_netlink(async |netlink| {
        let up = LinkUnspec::new_with_index(1).up().build();
        netlink.link().set(up).execute().await.map_err(io::Error::other)
    })
}

pub(crate) async fn index(netlink: &Handle, name: &str) -> io::Result<u32> {
    let mut links = netlink.link().get().match_name(name.to_owned()).execute();
    let link = links.try_next().await.map_err(io::Error::other)?;
    link.map(|link| link.header.index)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}")))
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

fn refused(what: &str, network: &IpNet, error: &rtnetlink::Error) -> io::Error {
    io::Error::other(format!("cannot set the {what} {network}: {error}"))
}

/// Sends a request about the network to the kernel, and waits for the answer.
pub(crate) fn with_netlink<T>(request: impl AsyncFnOnce(Handle) -> io::Result<T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let answer = request(handle).await;
        connection.abort();
        answer
    })
}
