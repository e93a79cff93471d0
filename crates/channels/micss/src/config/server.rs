//! Where a server is: an address, or a name that is looked up when it is needed.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::target::{ServiceTarget, TargetHost};

/// The address of a server on a channel, as it is configured. A name is looked up at the first
/// connection, and again after a connection has failed. All clones share what was found.
#[derive(Clone, Debug)]
pub struct StreamServerAddress {
    configured: ConfiguredAddress,
    lookup: Arc<Mutex<NameLookup>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ConfiguredAddress {
    Address(SocketAddr),
    Name { host: String, port: u16 },
}

/// What is known of a name.
#[derive(Debug, Default)]
struct NameLookup {
    /// The address that is used.
    found: Option<SocketAddr>,
    /// The last one to which a connection failed.
    failed: Option<SocketAddr>,
}

/// An attempt to connect to a server. Unless it succeeds, its name is looked up again before the
/// next attempt.
pub(crate) struct ConnectAttempt<'a> {
    server: &'a StreamServerAddress,
    pub(crate) address: SocketAddr,
    has_succeeded: bool,
}

impl StreamServerAddress {
    /// The address that is configured, or that was found last for the name.
    pub fn known(&self) -> Option<SocketAddr> {
        match self.configured {
            ConfiguredAddress::Address(address) => Some(address),
            ConfiguredAddress::Name { .. } => self.lookup().found,
        }
    }

    /// The name, if one is configured.
    pub fn name(&self) -> Option<&str> {
        match &self.configured {
            ConfiguredAddress::Address(_) => None,
            ConfiguredAddress::Name { host, .. } => Some(host),
        }
    }

    /// Looks the name up, if there is one and no address is known that works. With a source, only
    /// addresses of its family are used. Of several addresses, it is not the one to which a
    /// connection has failed last.
    ///
    /// # Errors
    /// If the name has no such address, or cannot be looked up.
    pub(crate) async fn attempt(&self, source: Option<IpAddr>) -> io::Result<ConnectAttempt<'_>> {
        let address = match (&self.configured, self.known()) {
            (ConfiguredAddress::Address(address), _) => *address,
            (_, Some(known)) => known,
            (ConfiguredAddress::Name { host, port }, None) => {
                self.look_up(host, *port, source).await?
            }
        };
        Ok(ConnectAttempt { server: self, address, has_succeeded: false })
    }

    async fn look_up(
        &self,
        host: &str,
        port: u16,
        source: Option<IpAddr>,
    ) -> io::Result<SocketAddr> {
        let unknown = |why: &str| {
            let what = format!("the name {host} cannot be looked up: {why}");
            io::Error::new(io::ErrorKind::HostUnreachable, what)
        };
        let found = tokio::net::lookup_host((host, port)).await;
        let last = self.lookup().failed;
        let chosen = match found {
            Ok(found) => self.choose(&found.collect::<Vec<_>>(), source),
            // The server may be where it was, although the DNS does not answer.
            Err(_) if last.is_some() => self.choose(last.as_slice(), source),
            Err(error) => return Err(unknown(&error.to_string())),
        };
        chosen.ok_or_else(|| unknown("it has no address of the same kind as `source`"))
    }

    /// Chooses one of a name's addresses, and remembers it.
    fn choose(&self, found: &[SocketAddr], source: Option<IpAddr>) -> Option<SocketAddr> {
        let is_usable =
            |address: &&SocketAddr| source.is_none_or(|own| own.is_ipv4() == address.is_ipv4());
        let usable: Vec<SocketAddr> = found.iter().filter(is_usable).copied().collect();
        let mut lookup = self.lookup();
        let failed = lookup.failed.and_then(|it| usable.iter().position(|address| *address == it));
        let place = failed.map_or(0, |place| (place + 1) % usable.len());
        lookup.found = usable.get(place).copied();
        lookup.found
    }

    fn lookup(&self) -> std::sync::MutexGuard<'_, NameLookup> {
        self.lookup.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectAttempt<'_> {
    /// Keeps the address for the next connections.
    pub(crate) fn succeed(mut self) {
        self.has_succeeded = true;
    }
}

impl Drop for ConnectAttempt<'_> {
    fn drop(&mut self) {
        if !self.has_succeeded {
            let mut lookup = self.server.lookup();
            // Another attempt may have found another address meanwhile.
            if lookup.found == Some(self.address) {
                lookup.failed = lookup.found.take();
            }
        }
    }
}

impl From<SocketAddr> for StreamServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self { configured: ConfiguredAddress::Address(address), lookup: Arc::default() }
    }
}

impl FromStr for StreamServerAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let target: ServiceTarget = text.parse().map_err(|_| "not HOST:PORT")?;
        match target.host() {
            TargetHost::Name(host) if target.port() != 0 => Ok(Self {
                configured: ConfiguredAddress::Name { host: host.clone(), port: target.port() },
                lookup: Arc::default(),
            }),
            _ => Err("not HOST:PORT"),
        }
    }
}

/// As it is configured.
impl fmt::Display for StreamServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.configured {
            ConfiguredAddress::Address(address) => address.fmt(f),
            ConfiguredAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Whether the same is configured.
impl PartialEq for StreamServerAddress {
    fn eq(&self, other: &Self) -> bool {
        self.configured == other.configured
    }
}

impl Eq for StreamServerAddress {}

impl Hash for StreamServerAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.configured.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_configured() {
        for text in ["192.0.2.1:7000", "[2001:db8::1]:7000", "vpn.example.com:7000"] {
            let server: StreamServerAddress = text.parse().unwrap();
            assert_eq!(server.to_string(), text);
            assert_eq!(server.known().is_some(), !text.contains("example"), "{text}");
            assert_eq!(server, text.parse().unwrap());
        }
        for text in ["", "vpn.example.com", "vpn.example.com:0", "192.0.2.1", "a b:1", ":7000"] {
            assert!(text.parse::<StreamServerAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_next_address_is_used_after_a_failure() {
        let server: StreamServerAddress = "vpn.example.com:7000".parse().unwrap();
        let all: Vec<SocketAddr> = ["192.0.2.1:7000", "[2001:db8::1]:7000", "192.0.2.2:7000"]
            .map(|it| it.parse().unwrap())
            .into();
        let source = Some([192, 0, 2, 9].into());
        let tried: Vec<SocketAddr> = (0..3)
            .map(|_| {
                let address = server.choose(&all, source).unwrap();
                drop(ConnectAttempt { server: &server, address, has_succeeded: false });
                assert_eq!(server.known(), None);
                address
            })
            .collect();
        assert_eq!(tried, [all[0], all[2], all[0]]);
        let address = server.choose(&all, None).unwrap();
        ConnectAttempt { server: &server, address, has_succeeded: false }.succeed();
        assert_eq!(server.clone().known(), Some(all[1]), "clones share what was found");
        assert_eq!(server.choose(&all[..1], Some("::1".parse().unwrap())), None);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_for_a_connection() {
        let server: StreamServerAddress = "localhost:7000".parse().unwrap();
        let attempt = server.attempt(Some([127, 0, 0, 1].into())).await.unwrap();
        assert_eq!(attempt.address, "127.0.0.1:7000".parse().unwrap());
        attempt.succeed();
        assert_eq!(server.known(), Some("127.0.0.1:7000".parse().unwrap()));
    }
}
