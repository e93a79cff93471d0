//! The header of the PROXY protocol, version 2, by which a service learns the address of a client
//! whose connection was carried by others.
//!
//! The format is in sections 2.2 and 2.3 of `proxy-protocol.txt` (`HAProxy`).

use std::net::{IpAddr, SocketAddr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, command PROXY.
const VERSION_AND_COMMAND: u8 = 0x21;

const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The header of a connection from `client` to `service`: 28 or 52 bytes. If only one of the
/// addresses is of IPv4, it is mapped to IPv6.
pub(crate) fn proxy_header(client: SocketAddr, service: SocketAddr) -> Vec<u8> {
    let (client_ip, service_ip) = (client.ip().to_canonical(), service.ip().to_canonical());
    let (family, addresses) = match (client_ip, service_ip) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (TCP_OVER_IPV4, [from.octets(), to.octets()].concat())
        }
        (from, to) => (TCP_OVER_IPV6, [mapped(from), mapped(to)].concat()),
    };
    let ports = [client.port().to_be_bytes(), service.port().to_be_bytes()].concat();
    // 12 or 36 bytes.
    let len = u16::try_from(addresses.len() + ports.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&SIGNATURE[..], &[VERSION_AND_COMMAND, family], &len, &addresses, &ports].concat()
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes follow the layout of `proxy_hdr_v2` in the specification.
    #[test]
    fn headers_have_the_layout_of_the_specification() {
        let header = |client: &str, service: &str| {
            proxy_header(client.parse().unwrap(), service.parse().unwrap())
        };
        let v4 = header("192.0.2.9:4711", "198.51.100.1:443");
        let expected = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c\
                         \xc0\x00\x02\x09\xc6\x33\x64\x01\x12\x67\x01\xbb";
        assert_eq!(v4, expected);
        let v6 = header("[2001:db8::9]:4711", "[2001:db8::1]:443");
        assert_eq!((v6.len(), &v6[12..16]), (52, &[0x21, 0x21, 0, 36][..]));
        assert_eq!(v6[16..20], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(v6[48..], [0x12, 0x67, 0x01, 0xbb]);
        let mixed = header("192.0.2.9:4711", "[::1]:443");
        assert_eq!(mixed[16..32], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 9]);
        assert_eq!(header("[::ffff:192.0.2.9]:4711", "198.51.100.1:443"), v4);
    }
}
