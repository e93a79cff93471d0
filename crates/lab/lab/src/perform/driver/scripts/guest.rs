//! What a script's virtual machine gets of its emulated host: the addresses on its links, the
//! routes and the system parameters. The host only passes packets on afterwards.

use containment::{GuestInterface, GuestMachine, MAX_GUEST_INTERFACES};
use ipnet::{IpNet, Ipv4Net};
use tun::interface::GivenAddress;

use crate::host::DEVICE_QUEUE;
use crate::network::EmulatedNetwork;
use crate::trial::all_links;

/// The prefix length of a link's network.
const PREFIX: u8 = 24;

/// Gives the addresses of a host to a guest. The error is one line.
pub(super) fn machine(network: &EmulatedNetwork, name: &str) -> Result<GuestMachine, String> {
    let refused = |why: &str| format!("host {name} {why}; set contain = true");
    let unknown = || format!("there is no host {name}");
    let plan = network.host_plan(name).ok_or_else(unknown)?;
    if plan.ipv6 || plan.forwards {
        return Err(refused("has IPv6 or forwards, which a script in a virtual machine has not"));
    }
    let links: Vec<_> = network.links_of(name).collect();
    if links.len() > MAX_GUEST_INTERFACES {
        let most = format!("has more than {MAX_GUEST_INTERFACES} links");
        return Err(refused(&most));
    }
    let mut congestions: Vec<_> = links.iter().map(|(_, link, _)| &link.congestion).collect();
    congestions.dedup();
    let [congestion] = congestions[..] else {
        return Err(refused("has no link, or links with different congestion controls"));
    };
    let mut parameters: Vec<_> = plan.sysctl.clone().into_iter().collect();
    let of_links = congestion.iter().cloned();
    parameters.extend(of_links.map(|name| ("net/ipv4/tcp_congestion_control".to_owned(), name)));
    let host = network.host(name).ok_or_else(unknown)?;
    let mut interfaces = Vec::new();
    for (i, (link, plan, is_through)) in links.into_iter().enumerate() {
        let address = network.address(name, link).ok_or_else(unknown)?;
        let address = Ipv4Net::new_assert(address, PREFIX);
        let routes: Vec<Ipv4Net> = is_through.then(all_links).into_iter().collect();
        let hardware = [2, 0, 0, 0, 0, u8::try_from(i).unwrap_or(u8::MAX)];
        // A link's name has no dot.
        let tap = format!("guest.{i}");
        let given = GivenAddress {
            from: link,
            tap: &tap,
            hardware,
            address: address.into(),
            mtu: plan.mtu,
            queue: DEVICE_QUEUE,
            routes: &routes.iter().copied().map(IpNet::from).collect::<Vec<_>>(),
        };
        let device = host
            .give_to_guest(&given)
            .map_err(|error| format!("cannot give host {name}'s address to a guest: {error}"))?;
        let (name, mtu) = (link.clone(), plan.mtu);
        interfaces.push(GuestInterface { name, device, hardware, address, mtu, routes });
    }
    Ok(GuestMachine { interfaces, parameters })
}
