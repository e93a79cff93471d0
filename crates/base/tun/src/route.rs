//! The route by which packets leave this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::netlink::{NetlinkError, index, with_netlink};

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
    with_netlink(async |netlink| {
        let mut request = route_request(destination, source);
        if let Some(device) = device {
            request.attributes.push(RouteAttribute::Oif(index(&netlink, device).await?));
        }
        let mut answers = netlink.route().get(request).execute();
        let answer = answers.try_next().await?;
        let answer = answer.ok_or(NetlinkError::NoRoute)?;
        let mut route = KernelRoute { interface: String::new(), gateway: None };
        for attribute in answer.attributes {
            match attribute {
                RouteAttribute::Oif(index) => route.interface = name(&netlink, index).await?,
                RouteAttribute::Gateway(RouteAddress::Inet(address)) => {
                    route.gateway = Some(address.into());
                }
                RouteAttribute::Gateway(RouteAddress::Inet6(address)) => {
                    route.gateway = Some(address.into());
                }
                _ => {}
            }
        }
        Ok(route)
    })
}

/// A request for the route to exactly this address.
fn route_request(destination: IpAddr, source: Option<IpAddr>) -> RouteMessage {
    match destination {
        IpAddr::V4(address) => {
            let request = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(address, 32);
            match source {
                Some(IpAddr::V4(source)) => request.source_prefix(source, 32).build(),
                _ => request.build(),
            }
        }
        IpAddr::V6(address) => {
            let request = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(address, 128);
            match source {
                Some(IpAddr::V6(source)) => request.source_prefix(source, 128).build(),
                _ => request.build(),
            }
        }
    }
}

/// The name of the interface with this index.
async fn name(netlink: &Handle, index: u32) -> Result<String, NetlinkError> {
    let mut links = netlink.link().get().match_index(index).execute();
    let link = links.try_next().await?;
    let attributes = link.into_iter().flat_map(|link| link.attributes);
    let names = attributes.filter_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    names.into_iter().next().ok_or_else(|| NetlinkError::NoInterface(format!("with index {index}")))
}
