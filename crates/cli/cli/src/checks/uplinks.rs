//! Detects channels that leave this host by the same route. An eavesdropper there reads both, so
//! the second one protects nothing.

use std::net::IpAddr;

use tun::route::{KernelRoute, route_to};

/// The settings that determine how a channel leaves this host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelUplink<'a> {
    /// The destination; `None` at an end that waits for its peer.
    pub(crate) to: Option<IpAddr>,
    /// The configured source address.
    pub(crate) source: Option<IpAddr>,
    /// The configured device.
    pub(crate) device: Option<&'a str>,
}

/// What to do about channels that leave by the same path, see [`shared_route_warnings`].
pub(crate) const SHARED_FIX: &str =
    "send it over another network: give it another `device`, `source` or route, or leave it out";

/// The route that the kernel selects for a channel; `None` if it is unknown.
pub(crate) fn route(uplink: &ChannelUplink<'_>) -> Option<KernelRoute> {
    route_to(uplink.to?, uplink.source, uplink.device).ok()
}

/// A warning for each channel that has the same route as an earlier one.
pub(crate) fn shared_route_warnings(
    channels: &[ChannelUplink<'_>],
    route: impl Fn(&ChannelUplink<'_>) -> Option<KernelRoute>,
) -> Vec<String> {
    let routes: Vec<Option<KernelRoute>> = channels.iter().map(route).collect();
    let routes: Vec<_> = channels.iter().zip(&routes).collect();
    let line = |(second, one): (usize, &(&ChannelUplink<'_>, &Option<KernelRoute>))| {
        let mut before = routes[..second].iter().enumerate();
        let (first, overlap) =
            before.find_map(|(first, other)| Some((first, overlap(*other, *one)?)))?;
        let (first, second) = (first + 1, second + 1);
        Some(format!(
            "channels {first} and {second} are both {overlap}: an eavesdropper there sees both, so \
             the second protects nothing"
        ))
    };
    routes.iter().enumerate().filter_map(line).collect()
}

/// What the paths of two channels have in common; `None` if nothing is known.
fn overlap(
    (one, one_route): (&ChannelUplink<'_>, &Option<KernelRoute>),
    (other, other_route): (&ChannelUplink<'_>, &Option<KernelRoute>),
) -> Option<String> {
    match (one.device, other.device) {
        (Some(device), Some(same)) if device == same => return Some(format!("on {device}")),
        (Some(_), Some(_)) => return None,
        _ => {}
    }
    match (one_route, other_route) {
        (Some(one), Some(other)) if one.interface != other.interface => return None,
        (Some(one), Some(other)) if one.interface != LOOPBACK => {
            let gateway = one.gateway.filter(|_| one.gateway == other.gateway);
            let router = gateway.map(|gateway| format!(", to {gateway}")).unwrap_or_default();
            return Some(format!("on {}{router}", one.interface));
        }
        _ => {}
    }
    if one.device != other.device {
        return None;
    }
    match (one.source, other.source) {
        (Some(source), same) if same == Some(source) => Some(format!("at {source}")),
        // Both leave by the route to their destination.
        (None, None) => one.to.filter(|to| other.to == Some(*to)).map(|to| format!("to {to}")),
        _ => None,
    }
}

/// Packets through it do not leave this host.
const LOOPBACK: &str = "lo";

#[cfg(test)]
mod tests {
    use super::*;

    const UNSET: ChannelUplink<'_> = ChannelUplink { to: None, source: None, device: None };

    fn to(address: &str) -> ChannelUplink<'_> {
        ChannelUplink { to: Some(address.parse().unwrap()), ..UNSET }
    }

    fn from<'a>(source: &str, uplink: ChannelUplink<'a>) -> ChannelUplink<'a> {
        ChannelUplink { source: Some(source.parse().unwrap()), ..uplink }
    }

    /// What two channels have in common.
    fn overlap_of(
        channels: [ChannelUplink<'_>; 2],
        routes: [Option<(&str, Option<&str>)>; 2],
    ) -> Option<String> {
        let routes = routes.map(|route| {
            route.map(|(interface, gateway)| KernelRoute {
                interface: interface.into(),
                gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            })
        });
        let [first, second] = [(&channels[0], &routes[0]), (&channels[1], &routes[1])];
        overlap(first, second)
    }

    #[test]
    fn settings_are_compared_if_routes_are_unknown() {
        let (a, b) = (to("192.0.2.1"), to("192.0.2.2"));
        let unknown = [None, None];
        assert_eq!(overlap_of([a, b], unknown), None);
        assert_eq!(overlap_of([a, a], unknown).unwrap(), "to 192.0.2.1");
        assert_eq!(overlap_of([from("10.0.0.1", a), a], unknown), None);
        let same = [from("10.0.0.1", a), from("10.0.0.1", b)];
        assert_eq!(overlap_of(same, unknown).unwrap(), "at 10.0.0.1");
        let wlan = ChannelUplink { device: Some("wlan0"), ..a };
        let wwan = ChannelUplink { device: Some("wwan0"), ..a };
        assert_eq!(overlap_of([wlan, wwan], unknown), None);
        assert_eq!(
            overlap_of([wlan, ChannelUplink { to: b.to, ..wlan }], unknown).unwrap(),
            "on wlan0"
        );
        assert_eq!(overlap_of([wlan, a], unknown), None);
    }

    #[test]
    fn known_routes_are_compared() {
        let (a, b) = (to("192.0.2.1"), to("198.51.100.1"));
        let router = Some("10.0.0.254");
        let same = [Some(("eth0", router)), Some(("eth0", router))];
        assert_eq!(overlap_of([a, b], same).unwrap(), "on eth0, to 10.0.0.254");
        let two = [Some(("eth0", router)), Some(("eth0", None))];
        assert_eq!(overlap_of([a, b], two).unwrap(), "on eth0");
        let others = [Some(("eth0", router)), Some(("eth1", router))];
        assert_eq!(overlap_of([a, a], others), None);
        let here = [Some(("lo", None)), Some(("lo", None))];
        assert_eq!(overlap_of([a, b], here), None);
        assert_eq!(overlap_of([a, a], here).unwrap(), "to 192.0.2.1");
    }

    #[test]
    fn each_channel_has_one_warning() {
        let a = to("192.0.2.1");
        let lines = shared_route_warnings(&[a, to("192.0.2.2"), a, a], |_| None);
        let expected = ["channels 1 and 3 are both to 192.0.2.1", "channels 1 and 4 are both"];
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, start) in lines.iter().zip(expected) {
            assert!(line.starts_with(start), "{line}");
        }
    }
}
