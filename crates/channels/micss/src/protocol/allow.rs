//! The services that a server lets its clients reach.

use std::fmt;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

use crate::protocol::target::{ServiceTarget, ServiceTargetError, TargetHost};

/// One service, or a port at every address of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedService {
    /// The service of exactly this name or address.
    Service(ServiceTarget),
    /// The port at every address of a network.
    Network {
        /// The network.
        network: IpNet,
        /// The port.
        port: u16,
    },
}

impl AllowedService {
    /// Whether a client may reach this.
    pub fn includes(&self, target: &ServiceTarget) -> bool {
        match self {
            Self::Service(service) => service == target,
            Self::Network { network, port } => {
                let TargetHost::Address(wanted) = target.host() else { return false };
                *port == target.port() && network.contains(wanted)
            }
        }
    }

    /// Whether both may be the same service: they have the same port, and an address in common. A
    /// name may have any address.
    pub fn may_meet(&self, other: &Self) -> bool {
        let (ours, port) = self.parts();
        let (theirs, others_port) = other.parts();
        port == others_port
            && ours.zip(theirs).is_none_or(|(a, b)| a.contains(&b) || b.contains(&a))
    }

    /// Its network, unless it is a name, and its port.
    fn parts(&self) -> (Option<IpNet>, u16) {
        match self {
            Self::Network { network, port } => (Some(*network), *port),
            Self::Service(service) => match service.host() {
                TargetHost::Address(address) => (Some(IpNet::from(*address)), service.port()),
                TargetHost::Name(_) => (None, service.port()),
            },
        }
    }
}

impl FromStr for AllowedService {
    type Err = ServiceTargetError;

    /// Reads `HOST:PORT` or `ADDRESS/PREFIX:PORT`, with an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, ServiceTargetError> {
        let Some((address, rest)) = text.split_once('/') else {
            return Ok(Self::Service(text.parse()?));
        };
        let (prefix, port) = rest.split_once(':').ok_or(ServiceTargetError::BadPort)?;
        let address =
            address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let network =
            format!("{address}/{prefix}").parse().map_err(|_| ServiceTargetError::BadNetwork)?;
        let network = canonical(network);
        let port = port.parse().map_err(|_| ServiceTargetError::BadPort)?;
        Ok(Self::Network { network, port })
    }
}

/// A network of IPv4 addresses that are mapped to IPv6 is that of the IPv4 addresses.
pub(super) fn canonical(network: IpNet) -> IpNet {
    let mapped = match network {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    let mapped = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    mapped.map_or(network, IpNet::V4)
}

impl fmt::Display for AllowedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(target) => target.fmt(f),
            Self::Network { network: IpNet::V4(network), port } => write!(f, "{network}:{port}"),
            Self::Network { network: IpNet::V6(network), port } => {
                write!(f, "[{}]/{}:{port}", network.addr(), network.prefix_len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_include_addresses_with_the_same_prefix() {
        for (allowed, target, expected) in [
            ("192.0.2.0/24:80", "192.0.2.255:80", true),
            ("192.0.2.0/24:80", "192.0.3.0:80", false),
            ("192.0.2.0/24:80", "192.0.2.1:443", false),
            ("192.0.2.0/24:80", "example.org:80", false),
            ("192.0.2.7/32:80", "192.0.2.7:80", true),
            ("192.0.2.7/32:80", "192.0.2.6:80", false),
            ("0.0.0.0/0:80", "203.0.113.9:80", true),
            ("0.0.0.0/0:80", "[fd00::1]:80", false),
            ("[fd00::]/8:80", "[fdff::1]:80", true),
            ("[fd00::]/8:80", "[fe00::1]:80", false),
            ("[::]/0:80", "[2001:db8::1]:80", true),
            ("[::]/0:80", "192.0.2.1:80", false),
            ("127.0.0.0/8:80", "[::ffff:127.0.0.1]:80", true),
            ("[::ffff:127.0.0.0]/104:80", "127.0.0.1:80", true),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("[::]/0:80", "[::ffff:127.0.0.1]:80", false),
            ("example.org:80", "EXAMPLE.org:80", true),
            ("127.0.0.1:80", "localhost:80", false),
        ] {
            let (allowed, target): (AllowedService, ServiceTarget) =
                (allowed.parse().unwrap(), target.parse().unwrap());
            assert_eq!(allowed.includes(&target), expected, "{allowed} includes {target}");
            assert_eq!(allowed.to_string().parse(), Ok(allowed));
        }
        for text in ["192.0.2.0/33:80", "[fd00::]/129:80", "example.org/8:80", "192.0.2.0/x:80"] {
            assert_eq!(
                text.parse::<AllowedService>(),
                Err(ServiceTargetError::BadNetwork),
                "{text}"
            );
        }
        for text in ["192.0.2.0/24", "192.0.2.0/24:x", "192.0.2.0"] {
            assert_eq!(text.parse::<AllowedService>(), Err(ServiceTargetError::BadPort), "{text}");
        }
    }
}
