//! Networks: all addresses that begin with the same bits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses of one family that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first of them.
    first: IpAddr,
    /// How many bits are the same: at most 32 or 128.
    prefix: u8,
}

/// A text names no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no network: write ADDRESS/PREFIX, as in 192.0.2.0/24, or 192.0.2.10/32 for one host")]
pub struct NetworkError;

impl Network {
    /// Whether it has this address.
    pub fn has(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && first(address, self.prefix) == self.first
    }

    /// How many bits its addresses have in common: the more, the more specific it is.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Reads `ADDRESS/PREFIX`, with any address of the network.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = text.split_once('/').ok_or(NetworkError)?;
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let prefix = prefix.parse().map_err(|_| NetworkError)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let network = Self { first: first(address, prefix), prefix };
        if prefix <= most { Ok(network) } else { Err(NetworkError) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// The first address of the network that has this one.
fn first(address: IpAddr, prefix: u8) -> IpAddr {
    // A prefix of 0 would shift all bits out, and one that is too long is refused elsewhere.
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_what_begins_alike() {
        for (network, address, expected) in [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("192.0.2.7/24", "192.0.2.1", true),
            ("192.0.2.7/32", "192.0.2.7", true),
            ("192.0.2.7/32", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "0.0.0.0", false),
            ("2001:db8::1/128", "2001:db8::1", true),
            ("2001:db8::1/128", "2001:db8::2", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.has(address.parse().unwrap()), expected, "{network} has {address}");
            assert_eq!(network.to_string().parse(), Ok(network));
        }
        assert_eq!("192.0.2.7/24".parse::<Network>().unwrap().to_string(), "192.0.2.0/24");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "192.0.2.1", "192.0.2.0/33", "fd00::/129", "x/8", "192.0.2.0/-1", "/8"] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
