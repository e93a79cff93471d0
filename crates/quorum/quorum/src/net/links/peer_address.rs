//! The address of a server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use tokio::net::{TcpStream, lookup_host};

/// The largest length of a host name.
const MAX_NAME_LEN: usize = 253;

/// The address of a server: an IP address or a host name, and a port. A name is resolved before
/// each connection attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A host name and a port.
    Name(String, u16),
}

/// A text that is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or the name of a host, with a port")]
pub struct ServerAddressError;

impl ServerAddress {
    /// Connects. For a name, connects to the first of its addresses that answers.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        match self {
            Self::Ip(address) => TcpStream::connect(address).await,
            Self::Name(name, port) => {
                let found: Vec<SocketAddr> = lookup_host((&name[..], *port)).await?.collect();
                TcpStream::connect(&found[..]).await
            }
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(out),
            Self::Name(name, port) => write!(out, "{name}:{port}"),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<Self, ServerAddressError> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        let (name, port) = text.rsplit_once(':').ok_or(ServerAddressError)?;
        let is_part = |part: &str| {
            let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            !part.is_empty() && part.len() < 64 && part.chars().all(is_inner)
        };
        let without_dot = name.strip_suffix('.').unwrap_or(name);
        let parts: Vec<&str> = without_dot.split('.').collect();
        // Otherwise it is a mistyped IP address.
        let is_named = parts.last().is_some_and(|last| last.parse::<u32>().is_err());
        let is_name = name.len() <= MAX_NAME_LEN && parts.iter().all(|part| is_part(part));
        let port: u16 = port.parse().map_err(|_| ServerAddressError)?;
        let is_valid = is_name && is_named && port > 0;
        is_valid.then(|| Self::Name(name.into(), port)).ok_or(ServerAddressError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_distinguished_from_anything_else() {
        for text in ["192.0.2.1:6530", "[2001:db8::1]:6530"] {
            let address: ServerAddress = text.parse().unwrap();
            assert!(matches!(address, ServerAddress::Ip(_)), "{text}");
            assert_eq!(address.to_string(), text);
        }
        for text in ["office.example.org:6530", "a:1", "office.example.org.:65535", "3d.example:1"]
        {
            let address: ServerAddress = text.parse().unwrap();
            assert!(matches!(address, ServerAddress::Name(..)), "{text}");
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            ":1",
            "office",
            "office:0",
            "office:65536",
            "2001:db8::1:6530",
            "192.0.2.1",
            "192.0.2.256:6530",
            "192.0.2:6530",
            "a..b:1",
            "a b:1",
            "user@office:1",
            "http://office:1",
            &format!("{}:1", "a".repeat(64)),
            &format!("{}a:1", "a.".repeat(127)),
        ] {
            assert_eq!(text.parse::<ServerAddress>(), Err(ServerAddressError), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_when_it_is_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address: ServerAddress = format!("localhost:{port}").parse().unwrap();
        let connected = address.connect().await.unwrap();
        assert_eq!(connected.peer_addr().unwrap().port(), port);
        let unknown: ServerAddress = "no-such-host.invalid:1".parse().unwrap();
        assert!(unknown.connect().await.is_err());
    }
}
