//! The service that a client asks the server to connect to, encoded as a SOCKS5 address (RFC 1928,
//! section 5), in SOCKS requests and in `Open` records.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The maximum length of a host name, in bytes.
const MAX_NAME: usize = 255;

/// A host and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceTarget {
    host: TargetHost,
    port: u16,
}

/// A host: an address, or a name that the server resolves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// An address. An IPv4 address that is mapped to IPv6, such as `::ffff:127.0.0.1`, is converted
    /// to the IPv4 address.
    Address(IpAddr),
    /// A name of 1 to 255 bytes, in lower case: letters, digits, hyphens, underscores and dots. Not
    /// an address.
    Name(String),
}

/// Why bytes or a text are not a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceTargetError {
    /// The address type is not IPv4, a name, or IPv6.
    #[error("unknown address type {0}")]
    UnknownType(u8),
    /// The name is empty, too long, or has other characters than names have.
    #[error("not a host name")]
    BadName,
    /// The text has no port from 1 to 65535.
    #[error("no port")]
    BadPort,
    /// An address or the prefix length of a network is invalid.
    #[error("no network")]
    BadNetwork,
    /// Bytes follow the target.
    #[error("bytes follow the target")]
    Trailing,
    /// The target is incomplete.
    #[error("the target is cut short")]
    Short,
}

/// The result of parsing the first bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedPrefix<T> {
    /// The value, and its length in bytes.
    Done(T, usize),
    /// At least this many more bytes are needed.
    Missing(usize),
}

impl ServiceTarget {
    /// A target with an address.
    pub fn address(address: SocketAddr) -> Self {
        Self { host: TargetHost::Address(address.ip().to_canonical()), port: address.port() }
    }

    /// The host.
    pub fn host(&self) -> &TargetHost {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Parses a target at the start of `bytes`: type, address, port.
    ///
    /// # Errors
    /// If `bytes` does not begin with a valid target.
    pub fn parse_prefix(bytes: &[u8]) -> Result<ParsedPrefix<Self>, ServiceTargetError> {
        let (head, len) = match bytes {
            [1, ..] => (1, 4),
            [4, ..] => (1, 16),
            [] | [3] => return Ok(ParsedPrefix::Missing(1)),
            [3, len, ..] => (2, usize::from(*len)),
            [other, ..] => return Err(ServiceTargetError::UnknownType(*other)),
        };
        let end = head + len + 2;
        let Some((address, [high, low])) = bytes.get(head..end).and_then(<[u8]>::split_last_chunk)
        else {
            return Ok(ParsedPrefix::Missing(end - bytes.len()));
        };
        let host = match (head, <[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
            (1, Ok(v4), _) => TargetHost::Address(Ipv4Addr::from(v4).into()),
            (1, _, Ok(v6)) => TargetHost::Address(Ipv6Addr::from(v6).to_canonical()),
            _ => parse_host(address)?,
        };
        Ok(ParsedPrefix::Done(Self { host, port: u16::from_be_bytes([*high, *low]) }, end))
    }

    /// Parses a target that is all of `bytes`.
    ///
    /// # Errors
    /// If `bytes` is not exactly one target.
    pub fn parse(bytes: &[u8]) -> Result<Self, ServiceTargetError> {
        match Self::parse_prefix(bytes)? {
            ParsedPrefix::Done(target, len) if len == bytes.len() => Ok(target),
            ParsedPrefix::Done(..) => Err(ServiceTargetError::Trailing),
            ParsedPrefix::Missing(_) => Err(ServiceTargetError::Short),
        }
    }

    /// The encoding of the target, at most 259 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 + MAX_NAME + 2);
        match &self.host {
            TargetHost::Address(IpAddr::V4(address)) => {
                bytes.push(1);
                bytes.extend(address.octets());
            }
            TargetHost::Address(IpAddr::V6(address)) => {
                bytes.push(4);
                bytes.extend(address.octets());
            }
            TargetHost::Name(name) => {
                bytes.push(3);
                // A valid name has at most 255 bytes.
                bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
                bytes.extend(name.as_bytes());
            }
        }
        bytes.extend(self.port.to_be_bytes());
        bytes
    }
}

/// A host as an application writes it. The text of an address is parsed as that address, even where
/// a name is expected: browsers send every host as a name.
fn parse_host(bytes: &[u8]) -> Result<TargetHost, ServiceTargetError> {
    let text = str::from_utf8(bytes).unwrap_or_default();
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bracketed.unwrap_or(text).parse::<Ipv6Addr>() {
        Ok(address) => Ok(TargetHost::Address(address.to_canonical())),
        Err(_) => parse_name(bytes),
    }
}

pub(crate) fn parse_name(bytes: &[u8]) -> Result<TargetHost, ServiceTargetError> {
    let valid = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    if bytes.is_empty() || bytes.len() > MAX_NAME || !bytes.iter().all(valid) {
        return Err(ServiceTargetError::BadName);
    }
    let name: String = bytes.iter().map(|b| char::from(b.to_ascii_lowercase())).collect();
    Ok(name
        .parse::<Ipv4Addr>()
        .map_or(TargetHost::Name(name), |address| TargetHost::Address(address.into())))
}

impl FromStr for ServiceTarget {
    type Err = ServiceTargetError;

    /// Parses `HOST:PORT`, with an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, ServiceTargetError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(ServiceTargetError::BadPort)?;
        let port = port.parse().map_err(|_| ServiceTargetError::BadPort)?;
        Ok(Self { host: parse_name(host.as_bytes())?, port })
    }
}

impl fmt::Display for ServiceTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            TargetHost::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            TargetHost::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Why the server did not connect to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum ServiceRefusal {
    /// The request was not a target.
    #[error("the server does not understand the request")]
    Malformed = 1,
    /// The target is not on the server's allow-list.
    #[error("the server does not allow this service")]
    NotAllowed = 2,
    /// The name has no address.
    #[error("the server finds no address for the name")]
    NameNotFound = 3,
    /// The service refuses the connection.
    #[error("the service refuses connections")]
    ConnectionRefused = 4,
    /// The service cannot be reached.
    #[error("the server does not reach the service")]
    Unreachable = 5,
    /// The service gets a header of the PROXY protocol, and the client has not stated the address
    /// for it.
    #[error(
        "the service needs the address of the application: set send_client_address = true in the \
         proxy's configuration"
    )]
    ClientAddressMissing = 6,
}

impl ServiceRefusal {
    /// The refusal with this code.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Malformed,
            Self::NotAllowed,
            Self::NameNotFound,
            Self::ConnectionRefused,
            Self::Unreachable,
            Self::ClientAddressMissing,
        ]
        .into_iter()
        .find(|&refusal| refusal as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        for text in ["127.0.0.1:80", "[::1]:443", "example.org:8080", "a-b_c.d:1"] {
            let target: ServiceTarget = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(ServiceTarget::parse(&target.encode()), Ok(target));
        }
        assert_eq!("EXAMPLE.org:1".parse::<ServiceTarget>().unwrap().to_string(), "example.org:1");
        for (text, error) in [
            ("example.org", ServiceTargetError::BadPort),
            ("example.org:http", ServiceTargetError::BadPort),
            ("example.org:65536", ServiceTargetError::BadPort),
            (":80", ServiceTargetError::BadName),
            ("exa mple:80", ServiceTargetError::BadName),
            ("::1:80", ServiceTargetError::BadName),
        ] {
            assert_eq!(text.parse::<ServiceTarget>(), Err(error), "{text}");
        }
    }

    #[test]
    fn bytes_from_rfc_1928() {
        let target = ServiceTarget::parse(b"\x03\x0bexample.org\x01\xBB").unwrap();
        assert_eq!(target.to_string(), "example.org:443");
        assert_eq!(
            ServiceTarget::parse(&[1, 10, 0, 0, 1, 0, 80]).unwrap().to_string(),
            "10.0.0.1:80"
        );
        assert_eq!(ServiceTarget::parse(&[2, 0]), Err(ServiceTargetError::UnknownType(2)));
        assert_eq!(ServiceTarget::parse(&[3, 0, 0, 80]), Err(ServiceTargetError::BadName));
        assert_eq!(ServiceTarget::parse(&[1, 10, 0, 0, 1, 0]), Err(ServiceTargetError::Short));
        assert_eq!(
            ServiceTarget::parse(&[1, 10, 0, 0, 1, 0, 80, 0]),
            Err(ServiceTargetError::Trailing)
        );
    }

    #[test]
    fn a_name_that_is_an_address_is_that_address() {
        let parse = |name: &str| {
            let len = u8::try_from(name.len()).unwrap();
            ServiceTarget::parse(&[&[3, len], name.as_bytes(), &[0, 80]].concat())
        };
        for (name, expected) in [
            ("127.0.0.1", "127.0.0.1:80"),
            ("::1", "[::1]:80"),
            ("[::1]", "[::1]:80"),
            ("2001:DB8::7", "[2001:db8::7]:80"),
            ("[2001:db8:0:0:0:0:0:7]", "[2001:db8::7]:80"),
            ("::ffff:127.0.0.1", "127.0.0.1:80"),
            ("[::FFFF:7f00:1]", "127.0.0.1:80"),
        ] {
            let target = parse(name).unwrap();
            assert_eq!(target, expected.parse().unwrap(), "{name}");
            assert!(matches!(target.host(), TargetHost::Address(_)), "{name}");
            assert_eq!(ServiceTarget::parse(&target.encode()), Ok(target), "{name}");
        }
        let mapped = [&[4][..], &Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(), &[0, 80]].concat();
        assert_eq!(ServiceTarget::parse(&mapped).unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(
            "[::ffff:127.0.0.1]:80".parse::<ServiceTarget>().unwrap().to_string(),
            "127.0.0.1:80"
        );
        for name in ["127.0.0.1.example.org", "1.2.3", "256.0.0.1", "a-1"] {
            assert!(matches!(parse(name).unwrap().host(), TargetHost::Name(_)), "{name}");
        }
        for name in ["[127.0.0.1]", "[::1", "::1]", "[]", "[::1]x", "fe80::1%eth0", ":::"] {
            assert_eq!(parse(name), Err(ServiceTargetError::BadName), "{name}");
        }
    }

    proptest! {
        #[test]
        fn parsed_bytes_encode_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(ParsedPrefix::Done(target, len)) = ServiceTarget::parse_prefix(&bytes) {
                let again = ServiceTarget::parse(&target.encode());
                prop_assert_eq!(again, Ok(target));
                prop_assert!(len <= bytes.len());
            }
        }

        #[test]
        fn missing_bytes_are_counted(name in "[a-z][a-z0-9.-]{0,254}", port: u16) {
            let bytes = ServiceTarget { host: TargetHost::Name(name), port }.encode();
            for cut in 0..bytes.len() {
                let Ok(ParsedPrefix::Missing(missing)) = ServiceTarget::parse_prefix(&bytes[..cut]) else {
                    panic!("cut at {cut}");
                };
                prop_assert!(missing >= 1 && cut + missing <= bytes.len());
            }
        }
    }
}
