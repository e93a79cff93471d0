//! The header of the PROXY protocol, with which a load balancer begins a connection that it passes
//! on: it states the address of the client. Version 1 is a line of text, version 2 is binary
//! (`proxy-protocol.txt` of `HAProxy`, 2.1 and 2.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE_2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const SIGNATURE_1: &[u8; 6] = b"PROXY ";

/// The longest header of version 1, with its line break.
const MAX_LEN_1: usize = 107;

/// The length of a header of version 2 up to the addresses.
const FIXED_LEN_2: usize = 16;

/// The longest rest of a header of version 2: addresses, and fields that are ignored.
const MAX_REST_2: usize = 4_096;

/// Version 2, for a connection of the balancer itself, such as a health check.
const LOCAL: u8 = 0x20;
/// Version 2, for a client's connection.
const PROXY: u8 = 0x21;

/// What the bytes of a connection so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BalancerHeader {
    /// At least this many bytes of the header are missing.
    Incomplete(usize),
    /// The header is complete. It states the client's address, or none for a connection of the
    /// balancer itself.
    Complete(Option<SocketAddr>),
}

/// The bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the load balancer's first bytes are not a header of the PROXY protocol: let it send one \
     (proxy_protocol on, send-proxy-v2)"
)]
pub(crate) struct BalancerHeaderError;

impl BalancerHeader {
    /// Whether a connection that begins with these 10 bytes or more begins with a header.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(SIGNATURE_1) || bytes.len() >= 10 && SIGNATURE_2.starts_with(&bytes[..10])
    }

    /// Parses the first bytes of a connection, which must not be more than were missing before.
    ///
    /// # Errors
    /// If they are not the beginning of a header.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BalancerHeaderError> {
        if let Some(rest) = bytes.strip_prefix(SIGNATURE_2) {
            return parse_2(rest);
        }
        if bytes.starts_with(SIGNATURE_1) {
            return parse_1(bytes);
        }
        if SIGNATURE_2.starts_with(bytes) || SIGNATURE_1.starts_with(bytes) {
            // No header of version 1 is shorter than the signature of version 2.
            return Ok(Self::Incomplete(SIGNATURE_2.len() - bytes.len()));
        }
        Err(BalancerHeaderError)
    }
}

fn parse_1(bytes: &[u8]) -> Result<BalancerHeader, BalancerHeaderError> {
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        let is_too_long = bytes.len() >= MAX_LEN_1 || bytes.contains(&b'\n');
        return if is_too_long {
            Err(BalancerHeaderError)
        } else {
            Ok(BalancerHeader::Incomplete(SIGNATURE_2.len().saturating_sub(bytes.len()).max(1)))
        };
    };
    let line = std::str::from_utf8(line).map_err(|_| BalancerHeaderError)?;
    let words: Vec<&str> = line.split(' ').collect();
    let address = |from: &str, port: &str, is_v4: bool| {
        let address: IpAddr = from.parse().ok()?;
        (address.is_ipv4() == is_v4).then_some(SocketAddr::new(address, port.parse().ok()?))
    };
    let client = match words[..] {
        ["PROXY", "UNKNOWN", ..] => return Ok(BalancerHeader::Complete(None)),
        ["PROXY", "TCP4", from, _, port, _] => address(from, port, true),
        ["PROXY", "TCP6", from, _, port, _] => address(from, port, false),
        _ => None,
    };
    client.map(|client| BalancerHeader::Complete(Some(client))).ok_or(BalancerHeaderError)
}

/// `rest` are the bytes after the signature.
fn parse_2(rest: &[u8]) -> Result<BalancerHeader, BalancerHeaderError> {
    let fixed_len = FIXED_LEN_2 - SIGNATURE_2.len();
    let Some(([command, family, high, low], addresses)) = rest.split_first_chunk() else {
        return Ok(BalancerHeader::Incomplete(fixed_len - rest.len()));
    };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    if len > MAX_REST_2 || addresses.len() > len {
        return Err(BalancerHeaderError);
    }
    if addresses.len() < len {
        return Ok(BalancerHeader::Incomplete(len - addresses.len()));
    }
    // The addresses of the client and of the balancer, then their ports.
    let client = match (*command, *family) {
        (LOCAL, _) | (PROXY, 0) => None,
        (PROXY, 0x11) => Some(
            part::<4>(addresses, 0)
                .zip(part(addresses, 8))
                .map(|(ip, port)| SocketAddr::from((Ipv4Addr::from(ip), u16::from_be_bytes(port))))
                .ok_or(BalancerHeaderError)?,
        ),
        (PROXY, 0x21) => Some(
            part::<16>(addresses, 0)
                .zip(part(addresses, 32))
                .map(|(ip, port)| SocketAddr::from((Ipv6Addr::from(ip), u16::from_be_bytes(port))))
                .ok_or(BalancerHeaderError)?,
        ),
        _ => return Err(BalancerHeaderError),
    };
    Ok(BalancerHeader::Complete(client))
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a header byte by byte, as slowly as it can come.
    fn parsed(header: &[u8]) -> Result<Option<SocketAddr>, BalancerHeaderError> {
        for end in 0..=header.len() {
            match BalancerHeader::parse(&header[..end])? {
                BalancerHeader::Incomplete(count) => {
                    assert!((1..=header.len() - end).contains(&count), "{end} {count}");
                }
                BalancerHeader::Complete(client) => {
                    assert_eq!(end, header.len());
                    return Ok(client);
                }
            }
        }
        panic!("not complete: {header:?}")
    }

    fn client(text: &str) -> Result<Option<SocketAddr>, BalancerHeaderError> {
        Ok(Some(text.parse().unwrap()))
    }

    #[test]
    fn headers_of_version_1() {
        assert_eq!(
            parsed(b"PROXY TCP4 192.0.2.9 198.51.100.1 4711 443\r\n"),
            client("192.0.2.9:4711")
        );
        let v6 = b"PROXY TCP6 2001:db8::9 2001:db8::1 4711 443\r\n";
        assert_eq!(parsed(v6), client("[2001:db8::9]:4711"));
        assert_eq!(parsed(b"PROXY UNKNOWN\r\n"), Ok(None));
        assert_eq!(parsed(b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n"), Ok(None));
        for wrong in [
            &b"PROXY TCP4 2001:db8::9 2001:db8::1 4711 443\r\n"[..],
            b"PROXY TCP4 192.0.2.9 198.51.100.1 70000 443\r\n",
            b"PROXY TCP4 192.0.2.9\r\n",
            b"PROXY UDP4 192.0.2.9 198.51.100.1 4711 443\r\n",
            b"PROXY TCP4 192.0.2.9 198.51.100.1 4711 443\n\r\n",
            b"SNDRTRPT\x02\x01",
        ] {
            let is_wrong =
                (0..=wrong.len()).any(|end| BalancerHeader::parse(&wrong[..end]).is_err());
            assert!(is_wrong, "{wrong:?}");
        }
        let endless = [&b"PROXY UNKNOWN "[..], &[b'x'; 200]].concat();
        assert!(BalancerHeader::parse(&endless[..MAX_LEN_1]).is_err());
    }

    /// The bytes follow the layout of `proxy_hdr_v2` in the specification.
    #[test]
    fn headers_of_version_2() {
        let v4 = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c\
                   \xc0\x00\x02\x09\xc6\x33\x64\x01\x12\x67\x01\xbb";
        assert_eq!(parsed(v4), client("192.0.2.9:4711"));
        let with = |command: u8, family: u8, rest: &[u8]| {
            let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
            [&SIGNATURE_2[..], &[command, family], &len, rest].concat()
        };
        let mut addresses = [0; 36];
        addresses[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        addresses[15] = 9;
        addresses[32..34].copy_from_slice(&4711_u16.to_be_bytes());
        // Fields after the addresses are ignored.
        let v6 = with(PROXY, 0x21, &[&addresses[..], &[4, 0, 1, 7]].concat());
        assert_eq!(parsed(&v6), client("[2001:db8::9]:4711"));
        assert_eq!(parsed(&with(LOCAL, 0, b"")), Ok(None));
        assert_eq!(parsed(&with(LOCAL, 0x11, &[0; 12])), Ok(None));
        assert_eq!(parsed(&with(PROXY, 0, b"")), Ok(None));
        for (command, family, len) in [
            (0x31, 0x11, 12),
            (0x22, 0x11, 12),
            (PROXY, 0x12, 12),
            (PROXY, 0x11, 9),
            (PROXY, 0x21, 33),
        ] {
            assert!(BalancerHeader::parse(&with(command, family, &vec![0; len])).is_err());
        }
        assert!(BalancerHeader::parse(&with(LOCAL, 0, &[0; MAX_REST_2 + 1])[..16]).is_err());
    }

    proptest! {
        /// No bytes panic, and a driver that reads what is missing ends.
        #[test]
        fn any_bytes_end(
            signature in prop::sample::select(vec![&b""[..], SIGNATURE_1, SIGNATURE_2]),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [signature, &bytes].concat();
            let mut end = 0;
            while let Ok(BalancerHeader::Incomplete(count)) = BalancerHeader::parse(&bytes[..end]) {
                prop_assert!(count > 0);
                end += count;
                if end > bytes.len() {
                    break;
                }
            }
        }
    }
}
