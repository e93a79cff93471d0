//! Addresses as users enter them.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::Error;

/// Resolves `HOST:PORT` to addresses, in the order in which to try them. An IPv6 address is in
/// brackets, and may have a zone: `[fe80::1%eth0]:7000`.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>, Error> {
    let reason = "no address: give HOST:PORT, with an IPv6 address in brackets";
    let (host, port) =
        split(address).ok_or_else(|| Error::Address { address: address.to_owned(), reason })?;
    let resolved = (host, port).to_socket_addrs();
    let resolved =
        resolved.map_err(|source| Error::Resolve { address: address.to_owned(), source })?;
    Ok(alternating(resolved.collect()))
}

/// Checks that a text is `HOST:PORT`, or several of them with commas, or `TOKEN@HOST:PORT`.
///
/// # Errors
/// If it is none of them. Names are not resolved.
pub(crate) fn check(address: &str) -> Result<(), Error> {
    let reason = "no address: give HOST:PORT, with an IPv6 address in brackets";
    let is_valid = address.split(',').all(|one| {
        let place = one.split_once('@').map_or(one, |(_, relay)| relay);
        split(place).is_some_and(|(host, _)| !host.contains(char::is_whitespace))
    });
    if is_valid { Ok(()) } else { Err(Error::Address { address: address.to_owned(), reason }) }
}

/// How often the system chooses another TCP port if its number is in use for UDP.
const MAX_PORTS_TRIED: usize = 20;

/// Whether to let the system choose another TCP port after this error of a UDP socket with the same
/// number. `attempts`: how often it has chosen.
pub(crate) fn may_choose_again(error: &io::Error, address: SocketAddr, attempts: usize) -> bool {
    error.kind() == io::ErrorKind::AddrInUse && address.port() == 0 && attempts < MAX_PORTS_TRIED
}

/// Splits an address into the host, without brackets, and the port.
pub(crate) fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains([':', ']']) => return None,
        None => host,
    };
    (!host.is_empty()).then_some(())?;
    Some((host, port.parse().ok()?))
}

/// Alternates between IPv6 and IPv4, starting with the family of the first address (RFC 8305, 4),
/// so that if one family does not work, the other one is tried next.
fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut result = Vec::new();
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            return result;
        }
        result.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!(split("example.com:70"), Some(("example.com", 70)));
        assert_eq!(split("[2001:db8::1]:70"), Some(("2001:db8::1", 70)));
        assert_eq!(split("[fe80::1%eth0]:70"), Some(("fe80::1%eth0", 70)));
        for wrong in
            ["", "host", ":70", "host:", "host:70000", "::1:70", "[::1:70", "[]:70", "a]:7"]
        {
            assert_eq!(split(wrong), None, "{wrong}");
        }
        // The zone is a number or the name of an interface.
        let zone = resolve("[fe80::1%lo]:70").unwrap();
        assert!(matches!(zone[..], [SocketAddr::V6(one)] if one.scope_id() == 1), "{zone:?}");
        assert!(matches!(resolve("[fe80::1%none]:70"), Err(Error::Resolve { .. })));
    }

    #[test]
    fn families_alternate() {
        let [a, b, c, d] =
            ["[::1]:1", "[::2]:1", "[::3]:1", "1.2.3.4:1"].map(|it| it.parse().unwrap());
        assert_eq!(alternating(vec![a, b, c, d]), [a, d, b, c]);
        assert_eq!(alternating(vec![d, a]), [d, a]);
    }
}
