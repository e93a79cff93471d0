//! The warning about listeners that other hosts can reach.

use std::net::SocketAddr;

/// A warning about listeners that only their address protects; `None` if all are on loopback.
/// `what` is the service that they give access to.
pub(crate) fn open_to_all(
    what: &str,
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> Option<String> {
    let open = addresses.into_iter().filter(|address| !address.ip().to_canonical().is_loopback());
    let open: Vec<String> = open.map(|address| address.to_string()).collect();
    (!open.is_empty()).then(|| {
        format!(
            "{what} on {} is open to all who reach that address: listen on 127.0.0.1, or let a firewall admit \
             only those who are meant to come",
            open.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_on_loopback_are_left_out() {
        let open = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| address.parse().unwrap());
            open_to_all("SOCKS5", addresses.collect::<Vec<SocketAddr>>())
        };
        let local = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"];
        assert_eq!(open(&local), None);
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            let said = open(&[local[0], address]).unwrap();
            assert!(said.starts_with(&format!("SOCKS5 on {address} is open to all")), "{said}");
        }
    }
}
