//! The way that packets leave this host by.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::interface::{ask, index};

/// Where packets to an address go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface's name.
    pub interface: String,
    /// The router, if the address is not on the interface's own network.
    pub gateway: Option<IpAddr>,
}

/// The way of packets to `destination`, in the network namespace of the thread: from a `source` and
/// by a `device`, if they have one.
///
/// # Errors
/// When there is none, or no such device.
pub fn way_to(
    destination: IpAddr,
    source: Option<IpAddr>,
    device: Option<&str>,
) -> io::Result<Way> {
    ask(async |netlink| {
        let mut question = question(destination, source);
        if let Some(device) = device {
            question.attributes.push(RouteAttribute::Oif(index(&netlink, device).await?));
        }
        let mut answers = netlink.route().get(question).execute();
        let answer = answers.try_next().await.map_err(io::Error::other)?;
        let route = answer.ok_or(io::ErrorKind::NetworkUnreachable)?;
        let mut way = Way { interface: String::new(), gateway: None };
        for attribute in route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => way.interface = name(&netlink, index).await?,
                RouteAttribute::Gateway(RouteAddress::Inet(address)) => {
                    way.gateway = Some(address.into());
                }
                RouteAttribute::Gateway(RouteAddress::Inet6(address)) => {
                    way.gateway = Some(address.into());
                }
                _ => {}
            }
        }
        Ok(way)
    })
}

/// A route to exactly this address.
fn question(destination: IpAddr, source: Option<IpAddr>) -> RouteMessage {
    match destination {
        IpAddr::V4(address) => {
            let question = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(address, 32);
            match source {
                Some(IpAddr::V4(source)) => question.source_prefix(source, 32).build(),
                _ => question.build(),
            }
        }
        IpAddr::V6(address) => {
            let question = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(address, 128);
            match source {
                Some(IpAddr::V6(source)) => question.source_prefix(source, 128).build(),
                _ => question.build(),
            }
        }
    }
}

/// An interface's name.
async fn name(netlink: &Handle, index: u32) -> io::Result<String> {
    let mut links = netlink.link().get().match_index(index).execute();
    let link = links.try_next().await.map_err(io::Error::other)?;
    let attributes = link.into_iter().flat_map(|link| link.attributes);
    let names = attributes.filter_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    names.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
}
