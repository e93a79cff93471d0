//! SOCKS5 (RFC 1928) without passwords: the commands CONNECT and UDP ASSOCIATE.

use std::net::SocketAddr;

use crate::protocol::target::{ParsedPrefix, ServiceRefusal, ServiceTarget, ServiceTargetError};

/// The reply that selects "no authentication".
pub const NO_AUTHENTICATION: [u8; 2] = [5, 0];

/// The reply that none of the client's authentication methods is acceptable.
pub const NO_METHOD: [u8; 2] = [5, 0xFF];

/// Why bytes are not a SOCKS5 greeting or request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// Another version, or not SOCKS.
    #[error("{}", other_protocol(*.0))]
    Version(u8),
    /// The client requires a password.
    #[error("the client does not offer access without a password")]
    NoMethod,
    /// BIND is not supported, and UDP ASSOCIATE only if it is configured.
    #[error("{}", other_command(*.0))]
    Command(u8),
    /// The target is invalid.
    #[error("the target: {0}")]
    Target(#[from] ServiceTargetError),
}

/// The protocol that the first byte of a connection that is not SOCKS5 indicates, and the fix.
fn other_protocol(first: u8) -> String {
    match first {
        4 => "SOCKS4: set the application to SOCKS5".to_owned(),
        b'A'..=b'Z' => "HTTP: set the application to SOCKS5, not to an HTTP proxy".to_owned(),
        0x16 => "TLS: set the application to SOCKS5, without TLS".to_owned(),
        _ => format!("not SOCKS5: the first byte is {first}"),
    }
}

/// A command that is not supported, and the fix if there is one.
fn other_command(command: u8) -> String {
    match command {
        UDP_ASSOCIATE => {
            "UDP ASSOCIATE: set socks_udp = true for applications that need UDP".to_owned()
        }
        other => format!("command {other} is not CONNECT"),
    }
}

/// The command that requests an association for datagrams.
pub const UDP_ASSOCIATE: u8 = 3;

/// What a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocksRequest {
    /// A connection to this target.
    Connect(ServiceTarget),
    /// An association for datagrams, which the client says that it will send from here. The address
    /// and the port are unspecified if it does not know them yet. Some clients name their target
    /// instead.
    Associate(ServiceTarget),
}

/// Parses a client's greeting.
///
/// # Errors
/// If it is not a SOCKS5 greeting, or does not offer the method "no authentication".
pub fn parse_greeting(bytes: &[u8]) -> Result<ParsedPrefix<()>, SocksError> {
    match *bytes {
        [] => Ok(ParsedPrefix::Missing(2)),
        [5] => Ok(ParsedPrefix::Missing(1)),
        [5, count, ref methods @ ..] => match methods.get(..usize::from(count)) {
            Some(methods) if methods.contains(&0) => Ok(ParsedPrefix::Done((), 2 + methods.len())),
            Some(_) => Err(SocksError::NoMethod),
            None => Ok(ParsedPrefix::Missing(usize::from(count) - methods.len())),
        },
        [version, ..] => Err(SocksError::Version(version)),
    }
}

/// Parses a client's request.
///
/// # Errors
/// If it is not a SOCKS5 request, or another command.
pub fn parse_request(bytes: &[u8]) -> Result<ParsedPrefix<SocksRequest>, SocksError> {
    match *bytes {
        [5] | [5, 1 | UDP_ASSOCIATE] | [5, 1 | UDP_ASSOCIATE, _] | [] => {
            Ok(ParsedPrefix::Missing(4 - bytes.len()))
        }
        [5, command @ (1 | UDP_ASSOCIATE), _, ref target @ ..] => {
            Ok(match ServiceTarget::parse_prefix(target)? {
                ParsedPrefix::Done(target, len) if command == UDP_ASSOCIATE => {
                    ParsedPrefix::Done(SocksRequest::Associate(target), 3 + len)
                }
                ParsedPrefix::Done(target, len) => {
                    ParsedPrefix::Done(SocksRequest::Connect(target), 3 + len)
                }
                ParsedPrefix::Missing(missing) => ParsedPrefix::Missing(missing),
            })
        }
        [5, command, ..] => Err(SocksError::Command(command)),
        [version, ..] => Err(SocksError::Version(version)),
    }
}

/// The reply to a request: connected, or why not. The bound address is zero.
pub fn reply(outcome: Result<(), ServiceRefusal>) -> [u8; 10] {
    let code = match outcome {
        Ok(()) => 0,
        Err(ServiceRefusal::Malformed) => 1,
        Err(ServiceRefusal::NotAllowed | ServiceRefusal::ClientAddressMissing) => 2,
        Err(ServiceRefusal::Unreachable) => 3,
        Err(ServiceRefusal::NameNotFound) => 4,
        Err(ServiceRefusal::ConnectionRefused) => 5,
    };
    reply_code(code)
}

/// The reply to a request for an association: the address to which datagrams are sent.
pub fn bound_reply(bound: SocketAddr) -> Vec<u8> {
    [&[5, 0, 0][..], &ServiceTarget::address(bound).encode()].concat()
}

/// The reply to an invalid request: command or address type not supported, or failure.
pub fn error_reply(error: SocksError) -> [u8; 10] {
    reply_code(match error {
        SocksError::Command(_) => 7,
        SocksError::Target(ServiceTargetError::UnknownType(_)) => 8,
        _ => 1,
    })
}

fn reply_code(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings() {
        assert_eq!(parse_greeting(&[5, 1, 0]), Ok(ParsedPrefix::Done((), 3)));
        assert_eq!(parse_greeting(&[5, 2, 2, 0, 9]), Ok(ParsedPrefix::Done((), 4)));
        assert_eq!(parse_greeting(&[5, 3, 2]), Ok(ParsedPrefix::Missing(2)));
        assert_eq!(parse_greeting(&[5, 1, 2]), Err(SocksError::NoMethod));
        assert_eq!(parse_greeting(&[5, 0]), Err(SocksError::NoMethod));
        for (bytes, named) in [(&b"GET /"[..], "HTTP"), (&[4, 1], "SOCKS4"), (&[0x16, 3], "TLS")] {
            let error = parse_greeting(bytes).unwrap_err();
            assert!(matches!(error, SocksError::Version(first) if first == bytes[0]), "{error:?}");
            assert!(error.to_string().starts_with(named), "{error}");
        }
    }

    #[test]
    fn requests() {
        let request = b"\x05\x01\x00\x03\x0bexample.org\x00\x50";
        let Ok(ParsedPrefix::Done(SocksRequest::Connect(target), 18)) = parse_request(request)
        else {
            panic!("a whole request");
        };
        assert_eq!(target.to_string(), "example.org:80");
        for cut in 0..request.len() {
            assert!(
                matches!(parse_request(&request[..cut]), Ok(ParsedPrefix::Missing(1..))),
                "{cut}"
            );
        }
        assert_eq!(parse_request(&[5, 2, 0, 1]), Err(SocksError::Command(2)));
        let associate = [5, 3, 0, 1, 0, 0, 0, 0, 0x12, 0x67];
        let stated = ServiceTarget::address("0.0.0.0:4711".parse().unwrap());
        let parsed = ParsedPrefix::Done(SocksRequest::Associate(stated), 10);
        assert_eq!(parse_request(&associate), Ok(parsed));
        assert_eq!(
            bound_reply("127.0.0.1:4711".parse().unwrap())[3..],
            [1, 127, 0, 0, 1, 0x12, 0x67]
        );
        assert_eq!(parse_request(&[4, 1, 0, 1]), Err(SocksError::Version(4)));
        let unknown = SocksError::Target(ServiceTargetError::UnknownType(9));
        assert_eq!(parse_request(&[5, 1, 0, 9]), Err(unknown));
        assert_eq!(error_reply(unknown)[1], 8);
    }
}
