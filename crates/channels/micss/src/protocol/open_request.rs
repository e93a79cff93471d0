//! The payload of an `Open` record: the target, and then fields that only some clients send.
//!
//! A request without fields is the target alone, as older versions send and expect it. Each field
//! is a type, the length of its value, and the value. A server refuses a request with a field that
//! it does not know, because the field may limit what the client permits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::protocol::target::{ParsedPrefix, ServiceTarget, ServiceTargetError, TargetHost};

const CLIENT_ADDRESS: u8 = 1;
const DATAGRAMS: u8 = 2;

/// What a client requests of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// What the stream leads to.
    pub destination: StreamDestination,
    /// The address of the application's connection, as the client has seen it, if the client states
    /// it.
    pub client_address: Option<SocketAddr>,
}

/// What a stream leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamDestination {
    /// A TCP service.
    Service(ServiceTarget),
    /// A UDP socket of the server: the stream carries datagrams, each with its target.
    Datagrams,
}

impl OpenRequest {
    /// A request for a service, without fields.
    pub fn service(target: ServiceTarget) -> Self {
        Self { destination: StreamDestination::Service(target), client_address: None }
    }

    /// The encoding of the request, at most 282 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = match &self.destination {
            StreamDestination::Service(target) => target.encode(),
            StreamDestination::Datagrams => unspecified().encode(),
        };
        if let Some(address) = self.client_address {
            let address = ServiceTarget::address(address).encode();
            // An address has 7 or 19 bytes.
            bytes.extend([CLIENT_ADDRESS, u8::try_from(address.len()).unwrap_or(u8::MAX)]);
            bytes.extend(address);
        }
        if self.destination == StreamDestination::Datagrams {
            bytes.extend([DATAGRAMS, 0]);
        }
        bytes
    }

    /// Parses a request that is all of `bytes`.
    ///
    /// # Errors
    /// If `bytes` is not exactly one target with fields that are known, each of them once.
    pub fn parse(bytes: &[u8]) -> Result<Self, ServiceTargetError> {
        let (target, len) = match ServiceTarget::parse_prefix(bytes)? {
            ParsedPrefix::Done(target, len) => (target, len),
            ParsedPrefix::Missing(_) => return Err(ServiceTargetError::Short),
        };
        let (mut fields, mut client_address, mut has_datagrams) = (&bytes[len..], None, false);
        while !fields.is_empty() {
            let &[kind, len, ref rest @ ..] = fields else {
                return Err(ServiceTargetError::Trailing);
            };
            let (value, rest) =
                rest.split_at_checked(len.into()).ok_or(ServiceTargetError::Trailing)?;
            match (kind, value) {
                (CLIENT_ADDRESS, value) if client_address.is_none() => {
                    client_address = Some(socket_address(&ServiceTarget::parse(value)?)?);
                }
                (DATAGRAMS, []) if !has_datagrams => has_datagrams = true,
                _ => return Err(ServiceTargetError::Trailing),
            }
            fields = rest;
        }
        let destination = match has_datagrams {
            false => StreamDestination::Service(target),
            true if target == unspecified() => StreamDestination::Datagrams,
            true => return Err(ServiceTargetError::Trailing),
        };
        Ok(Self { destination, client_address })
    }
}

impl fmt::Display for StreamDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(target) => target.fmt(f),
            Self::Datagrams => f.write_str("UDP"),
        }
    }
}

/// The place of the target in a request for datagrams.
fn unspecified() -> ServiceTarget {
    ServiceTarget::address((Ipv4Addr::UNSPECIFIED, 0).into())
}

/// A target that is an address, not a name.
fn socket_address(target: &ServiceTarget) -> Result<SocketAddr, ServiceTargetError> {
    match target.host() {
        TargetHost::Address(address) => {
            Ok(SocketAddr::new(IpAddr::to_canonical(address), target.port()))
        }
        TargetHost::Name(_) => Err(ServiceTargetError::BadName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_without_fields_is_the_target() {
        let target: ServiceTarget = "example.org:443".parse().unwrap();
        let request = OpenRequest::service(target.clone());
        assert_eq!(request.encode(), target.encode());
        assert_eq!(OpenRequest::parse(&target.encode()), Ok(request));
    }

    #[test]
    fn fields_follow_the_target() {
        let target: ServiceTarget = "192.0.2.1:80".parse().unwrap();
        for (address, len) in [("192.0.2.9:4711", 7), ("[2001:db8::9]:4711", 19)] {
            let client_address = Some(address.parse().unwrap());
            let request = OpenRequest { client_address, ..OpenRequest::service(target.clone()) };
            let bytes = request.encode();
            assert_eq!(bytes[..7], target.encode());
            assert_eq!(bytes[7..9], [1, len]);
            assert_eq!(OpenRequest::parse(&bytes), Ok(request));
            // An older server expects a target alone.
            assert_eq!(ServiceTarget::parse(&bytes), Err(ServiceTargetError::Trailing));
            for cut in 8..bytes.len() {
                assert!(OpenRequest::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
        let datagrams =
            OpenRequest { destination: StreamDestination::Datagrams, client_address: None };
        assert_eq!(datagrams.encode(), [1, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(OpenRequest::parse(&datagrams.encode()), Ok(datagrams));
    }

    #[test]
    fn unknown_and_repeated_fields_are_refused() {
        let target = ServiceTarget::address("192.0.2.1:80".parse().unwrap()).encode();
        for fields in [
            &[0, 0][..],
            &[3, 0],
            &[1, 0],
            &[2, 1, 0],
            // A request for datagrams has no target.
            &[2, 0],
            &[1, 7, 3, 3, b'a', b'.', b'b', 0, 80],
            &[1, 7, 1, 192, 0, 2, 9, 0, 80, 1, 7, 1, 192, 0, 2, 9, 0, 80],
        ] {
            assert!(OpenRequest::parse(&[&target, fields].concat()).is_err(), "{fields:?}");
        }
    }

    proptest! {
        #[test]
        fn parsed_bytes_encode_to_the_same_request(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = OpenRequest::parse(&bytes) {
                prop_assert_eq!(OpenRequest::parse(&request.encode()), Ok(request));
            }
        }
    }
}
