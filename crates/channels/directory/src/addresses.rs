//! The addresses of a peer, one for each channel, and their encoding.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The largest number of addresses of a peer: one for each channel of a stream.
pub const MAX_ADDRESSES: u8 = 16;

/// The addresses of a peer, one for each channel, in the order of the channels: 1 to
/// [`MAX_ADDRESSES`], all different. Each is the address of one host and port, and hosts on other
/// links can reach it.
///
/// An address has one text and a list has one encoding, so two lists are equal exactly when their
/// bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelAddresses(Vec<SocketAddr>);

/// Why addresses, or bytes, are not a list of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelAddressesError {
    /// The number of addresses is not 1 to [`MAX_ADDRESSES`].
    #[error("{found} addresses: give 1 to {MAX_ADDRESSES}")]
    Count {
        /// The number.
        found: usize,
    },
    /// An address occurs twice.
    #[error("{0} is there twice")]
    Repeated(SocketAddr),
    /// An address is unspecified, multicast or broadcast, or has port 0.
    #[error("{0} is not the address of one host and port")]
    NotOne(SocketAddr),
    /// An address is valid on one link only.
    #[error("{0} is not known beyond its link: give an address that others can reach")]
    OneLink(SocketAddr),
    /// An IPv4 address is encoded as an IPv6 address.
    #[error("{0} is an IPv4 address: write it as one")]
    Mapped(SocketAddr),
    /// The encoding has an unknown address family.
    #[error("an address of the unknown family {0}")]
    Family(u8),
    /// The bytes end inside the list.
    #[error("the list of addresses is cut short")]
    Short,
}

impl ChannelAddresses {
    /// A list of these addresses.
    ///
    /// # Errors
    /// Unless there are 1 to [`MAX_ADDRESSES`], all different, and each is of one host and port.
    pub fn new(addresses: Vec<SocketAddr>) -> Result<Self, ChannelAddressesError> {
        let found = addresses.len();
        if !(1..=usize::from(MAX_ADDRESSES)).contains(&found) {
            return Err(ChannelAddressesError::Count { found });
        }
        for (place, address) in addresses.iter().enumerate() {
            check(*address)?;
            if addresses[..place].contains(address) {
                return Err(ChannelAddressesError::Repeated(*address));
            }
        }
        Ok(Self(addresses))
    }

    /// The addresses, in the order of the channels.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }

    /// Whether they belong to at least two hosts. An eavesdropper at one host sees all of its
    /// ports, so ports of one host are one channel.
    pub fn have_two_hosts(&self) -> bool {
        self.0.iter().any(|address| address.ip() != self.0[0].ip())
    }

    /// Whether one of them belongs to this host.
    pub fn includes_host(&self, host: IpAddr) -> bool {
        self.0.iter().any(|address| address.ip() == host)
    }

    /// Reads a list from the beginning of `bytes`: the count, then family, address and port of
    /// each. Also returns the bytes that follow the list.
    ///
    /// # Errors
    /// When `bytes` do not begin with a list.
    pub fn parse_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), ChannelAddressesError> {
        let (&count, mut rest) = bytes.split_first().ok_or(ChannelAddressesError::Short)?;
        if !(1..=MAX_ADDRESSES).contains(&count) {
            return Err(ChannelAddressesError::Count { found: count.into() });
        }
        let mut addresses = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (address, after) = parse_address(rest)?;
            addresses.push(address);
            rest = after;
        }
        Ok((Self::new(addresses)?, rest))
    }

    /// The list's bytes, at most 305.
    pub fn encode(&self) -> Vec<u8> {
        // A list that exists has at most 16 addresses.
        let mut bytes = vec![u8::try_from(self.0.len()).unwrap_or(u8::MAX)];
        for address in &self.0 {
            match address.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(4);
                    bytes.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(6);
                    bytes.extend(ip.octets());
                }
            }
            bytes.extend(address.port().to_be_bytes());
        }
        bytes
    }
}

impl From<ChannelAddresses> for Vec<SocketAddr> {
    fn from(addresses: ChannelAddresses) -> Self {
        addresses.0
    }
}

impl fmt::Display for ChannelAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, address) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(", ")?;
            }
            address.fmt(f)?;
        }
        Ok(())
    }
}

fn check(address: SocketAddr) -> Result<(), ChannelAddressesError> {
    let ip = address.ip();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    if ip.is_unspecified() || ip.is_multicast() || is_broadcast || address.port() == 0 {
        return Err(ChannelAddressesError::NotOne(address));
    }
    if let SocketAddr::V6(v6) = address {
        if v6.ip().to_ipv4_mapped().is_some() {
            return Err(ChannelAddressesError::Mapped(address));
        }
        // The encoding has no scope and no flow label.
        if v6.ip().is_unicast_link_local() || v6.scope_id() != 0 || v6.flowinfo() != 0 {
            return Err(ChannelAddressesError::OneLink(address));
        }
    }
    Ok(())
}

fn parse_address(bytes: &[u8]) -> Result<(SocketAddr, &[u8]), ChannelAddressesError> {
    let short = ChannelAddressesError::Short;
    let (family, rest) = bytes.split_first().ok_or(short)?;
    let (ip, rest) = match family {
        4 => {
            let (octets, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
            (IpAddr::from(*octets), rest)
        }
        6 => {
            let (octets, rest) = rest.split_first_chunk::<16>().ok_or(short)?;
            (IpAddr::from(*octets), rest)
        }
        other => return Err(ChannelAddressesError::Family(*other)),
    };
    let (port, rest) = rest.split_first_chunk().ok_or(short)?;
    Ok((SocketAddr::new(ip, u16::from_be_bytes(*port)), rest))
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use proptest::prelude::*;

    /// The list in a text, separated by spaces.
    pub(crate) fn list(text: &str) -> ChannelAddresses {
        ChannelAddresses::new(read(text)).unwrap()
    }

    fn read(text: &str) -> Vec<SocketAddr> {
        text.split_whitespace().map(|address| address.parse().unwrap()).collect()
    }

    /// Any valid list.
    pub(crate) fn lists() -> impl Strategy<Value = ChannelAddresses> {
        let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
        let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
        let address =
            (prop_oneof![v4, v6], 1_u16..).prop_map(|(ip, port)| SocketAddr::new(ip, port));
        let addresses = proptest::collection::vec(address, 1..=usize::from(MAX_ADDRESSES));
        addresses.prop_filter_map("no list", |addresses| ChannelAddresses::new(addresses).ok())
    }

    #[test]
    fn invalid_address_lists_are_rejected() {
        for (text, error) in [
            ("", "0 addresses: give 1 to 16"),
            ("192.0.2.1:1 [::1]:1 192.0.2.1:1", "192.0.2.1:1 is there twice"),
            ("192.0.2.1:0", "192.0.2.1:0 is not the address of one host and port"),
            ("0.0.0.0:1", "0.0.0.0:1 is not the address of one host and port"),
            ("255.255.255.255:1", "255.255.255.255:1 is not the address of one host and port"),
            ("224.0.0.1:1", "224.0.0.1:1 is not the address of one host and port"),
            ("[::]:1", "[::]:1 is not the address of one host and port"),
            ("[ff02::1]:1", "[ff02::1]:1 is not the address of one host and port"),
            ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.1]:1 is an IPv4 address: write it as one"),
            ("[fe80::1]:1", "[fe80::1]:1 is not known beyond its link"),
            ("[fd00::1%2]:1", "[fd00::1%2]:1 is not known beyond its link"),
        ] {
            let refused = ChannelAddresses::new(read(text)).unwrap_err().to_string();
            assert!(refused.starts_with(error), "{text}: {refused}");
        }
        let many: Vec<String> = (1..=17).map(|port| format!("192.0.2.1:{port}")).collect();
        assert_eq!(
            ChannelAddresses::new(read(&many.join(" "))),
            Err(ChannelAddressesError::Count { found: 17 })
        );
        assert!(ChannelAddresses::new(read(&many[1..].join(" "))).is_ok());
    }

    #[test]
    fn bytes_as_documented() {
        let list = list("192.0.2.1:6522 [2001:db8::2]:80");
        let mut bytes = vec![2, 4, 192, 0, 2, 1, 0x19, 0x7a, 6, 0x20, 1, 0x0d, 0xb8];
        bytes.extend([0; 11]);
        bytes.extend([2, 0, 80]);
        assert_eq!(list.encode(), bytes);
        assert!(list.includes_host("192.0.2.1".parse().unwrap()));
        assert!(!list.includes_host("192.0.2.2".parse().unwrap()));
        assert!(list.have_two_hosts() && !self::list("[::1]:1 [::1]:2").have_two_hosts());
        assert_eq!(list.to_string(), "192.0.2.1:6522, [2001:db8::2]:80");
    }

    #[test]
    fn wrong_bytes_are_refused() {
        for (bytes, error) in [
            (&[][..], ChannelAddressesError::Short),
            (&[0], ChannelAddressesError::Count { found: 0 }),
            (&[17], ChannelAddressesError::Count { found: 17 }),
            (&[1, 5, 192, 0, 2, 1, 0, 80], ChannelAddressesError::Family(5)),
            (&[1, 4, 192, 0, 2, 1, 0], ChannelAddressesError::Short),
            (&[2, 4, 192, 0, 2, 1, 0, 80], ChannelAddressesError::Short),
        ] {
            assert_eq!(ChannelAddresses::parse_prefix(bytes), Err(error), "{bytes:?}");
        }
        let twice = [&[2][..], &[4, 192, 0, 2, 1, 0, 80].repeat(2)].concat();
        assert!(matches!(
            ChannelAddresses::parse_prefix(&twice),
            Err(ChannelAddressesError::Repeated(_))
        ));
    }

    proptest! {
        #[test]
        fn a_list_is_read_back_whole(list in lists(), rest: Vec<u8>) {
            let bytes = list.encode();
            prop_assert!(bytes.len() <= 305);
            for cut in 0..bytes.len() {
                prop_assert_eq!(ChannelAddresses::parse_prefix(&bytes[..cut]), Err(ChannelAddressesError::Short));
            }
            let all = [bytes, rest.clone()].concat();
            prop_assert_eq!(ChannelAddresses::parse_prefix(&all), Ok((list, &rest[..])));
        }
    }
}
