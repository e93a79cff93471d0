//! Datagrams within a stream: each is two bytes with the length of what follows, a target as in
//! `Open`, and the payload. The target is where a client's datagram goes, or where a server's comes
//! from. In SOCKS5 (RFC 1928, section 7), a datagram has the same target and payload after a header
//! of three bytes.

use crate::protocol::target::{ParsedPrefix, ServiceTarget, ServiceTargetError};

/// The maximum length of target and payload.
pub(crate) const MAX_DATAGRAM: usize = 65_535;

/// The length of the header of a datagram in SOCKS5: two reserved bytes, and a fragment number.
pub(crate) const SOCKS_HEADER: [u8; 3] = [0; 3];

/// Why bytes are not a datagram that can be carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DatagramError {
    /// It is a fragment, which needs reassembly, or its header is incomplete.
    #[error("a fragment")]
    Fragment,
    /// The target is invalid.
    #[error("the target: {0}")]
    Target(#[from] ServiceTargetError),
}

/// The target and the payload, without the length.
///
/// # Errors
/// If the target is invalid.
pub(crate) fn parse_datagram(bytes: &[u8]) -> Result<(ServiceTarget, &[u8]), DatagramError> {
    match ServiceTarget::parse_prefix(bytes)? {
        ParsedPrefix::Done(target, len) => Ok((target, &bytes[len..])),
        ParsedPrefix::Missing(_) => Err(ServiceTargetError::Short.into()),
    }
}

/// The target and the payload of a SOCKS5 client's datagram, as they are carried.
///
/// # Errors
/// If it is a fragment, or the target is invalid.
pub(crate) fn parse_socks_datagram(bytes: &[u8]) -> Result<&[u8], DatagramError> {
    let [_, _, 0, datagram @ ..] = bytes else { return Err(DatagramError::Fragment) };
    parse_datagram(datagram)?;
    Ok(datagram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_socks_have_a_target_and_a_payload() {
        let bytes = b"\x00\x00\x00\x01\xc0\x00\x02\x01\x00\x35query";
        let carried = parse_socks_datagram(bytes).unwrap();
        let (target, payload) = parse_datagram(carried).unwrap();
        assert_eq!((target.to_string().as_str(), payload), ("192.0.2.1:53", &b"query"[..]));
        let (target, payload) = parse_datagram(b"\x03\x0bexample.org\x00\x35").unwrap();
        assert_eq!((target.to_string().as_str(), payload), ("example.org:53", &b""[..]));
        for cut in 0..10 {
            assert!(parse_socks_datagram(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut fragment = *bytes;
        fragment[2] = 1;
        assert_eq!(parse_socks_datagram(&fragment), Err(DatagramError::Fragment));
    }
}
