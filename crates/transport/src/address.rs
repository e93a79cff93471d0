//! Addresses as people write them.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::Error;

/// The addresses of `HOST:PORT`.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>, Error> {
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && port.parse::<u16>().is_ok()
            && (host.ends_with(']') || !host.contains(':'))
    });
    if !has_port {
        let reason = "no address: give HOST:PORT, with an IPv6 address in brackets";
        return Err(Error::Address { address: address.to_owned(), reason });
    }
    let resolved = address.to_socket_addrs();
    let resolved =
        resolved.map_err(|source| Error::Resolve { address: address.to_owned(), source })?;
    Ok(resolved.collect())
}
