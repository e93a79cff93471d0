//! Where another host is: an address, or a name that is looked up when it is needed, and again
//! when the address that was found does not answer.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum length of a name.
const MAX_NAME: usize = 255;

/// The address of another host, as it is configured. A name is looked up at the first connection,
/// and again after a connection has failed. All clones share what was found.
#[derive(Clone, Debug)]
pub struct RemoteAddress {
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
    /// The last one to which a connection failed, or that has not answered.
    failed: Option<SocketAddr>,
}

/// An attempt to connect to a host. Unless it succeeds, its name is looked up again before the
/// next attempt.
pub struct ConnectAttempt<'a> {
    remote: &'a RemoteAddress,
    address: SocketAddr,
    has_succeeded: bool,
}

impl RemoteAddress {
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
    pub async fn attempt(&self, source: Option<IpAddr>) -> io::Result<ConnectAttempt<'_>> {
        let address = match (&self.configured, self.known()) {
            (ConfiguredAddress::Address(address), _) => *address,
            (_, Some(known)) => known,
            (ConfiguredAddress::Name { host, port }, None) => {
                self.look_up(host, *port, source).await?
            }
        };
        Ok(ConnectAttempt { remote: self, address, has_succeeded: false })
    }

    /// Looks the name up again, because the address that was found has not answered, or for the
    /// first time. It blocks for as long as the system's resolver does. With `is_v4`, only
    /// addresses of this family are used. Of several addresses, it is not the one that has not
    /// answered. An address that is configured is returned unchanged.
    ///
    /// # Errors
    /// As [`Self::attempt`].
    pub fn look_up_again(&self, is_v4: Option<bool>) -> io::Result<SocketAddr> {
        let (host, port) = match &self.configured {
            ConfiguredAddress::Address(address) => return Ok(*address),
            ConfiguredAddress::Name { host, port } => (host, *port),
        };
        {
            let mut lookup = self.lookup();
            lookup.failed = lookup.found.take().or(lookup.failed);
        }
        let found = (host.as_str(), port).to_socket_addrs();
        self.choose_found(host, found.map(Iterator::collect), is_v4)
    }

    async fn look_up(
        &self,
        host: &str,
        port: u16,
        source: Option<IpAddr>,
    ) -> io::Result<SocketAddr> {
        let found = tokio::net::lookup_host((host, port)).await;
        self.choose_found(host, found.map(Iterator::collect), source.map(|own| own.is_ipv4()))
    }

    /// Chooses one of the addresses that a look-up has found.
    fn choose_found(
        &self,
        host: &str,
        found: io::Result<Vec<SocketAddr>>,
        is_v4: Option<bool>,
    ) -> io::Result<SocketAddr> {
        let unknown = |why: &str| {
            let what = format!("the name {host} cannot be looked up: {why}");
            io::Error::new(io::ErrorKind::HostUnreachable, what)
        };
        let last = self.lookup().failed;
        let chosen = match found {
            Ok(found) => self.choose(&found, is_v4),
            // The host may be where it was, although the DNS does not answer.
            Err(_) if last.is_some() => self.choose(last.as_slice(), is_v4),
            Err(error) => return Err(unknown(&error.to_string())),
        };
        chosen.ok_or_else(|| unknown("it has no address of the same kind as `source`"))
    }

    /// Chooses one of a name's addresses, and remembers it.
    fn choose(&self, found: &[SocketAddr], is_v4: Option<bool>) -> Option<SocketAddr> {
        let is_usable =
            |address: &&SocketAddr| is_v4.is_none_or(|is_v4| is_v4 == address.is_ipv4());
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
    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Keeps the address for the next connections.
    pub fn succeed(mut self) {
        self.has_succeeded = true;
    }
}

impl Drop for ConnectAttempt<'_> {
    fn drop(&mut self) {
        if !self.has_succeeded {
            let mut lookup = self.remote.lookup();
            // Another attempt may have found another address meanwhile.
            if lookup.found == Some(self.address) {
                lookup.failed = lookup.found.take();
            }
        }
    }
}

impl From<SocketAddr> for RemoteAddress {
    fn from(address: SocketAddr) -> Self {
        Self { configured: ConfiguredAddress::Address(address), lookup: Arc::default() }
    }
}

impl FromStr for RemoteAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) = text.rsplit_once(':').ok_or("not HOST:PORT")?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or("not HOST:PORT")?;
        if !is_host_name(host.as_bytes()) {
            return Err("not HOST:PORT");
        }
        let host = host.to_ascii_lowercase();
        let configured = ConfiguredAddress::Name { host, port };
        Ok(Self { configured, lookup: Arc::default() })
    }
}

/// Whether this is a name of a host: 1 to 255 letters, digits, hyphens, underscores and dots, and
/// not an address of IPv4.
pub fn is_host_name(bytes: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_name = (1..=MAX_NAME).contains(&bytes.len()) && bytes.iter().all(is_valid);
    is_name && str::from_utf8(bytes).is_ok_and(|text| text.parse::<Ipv4Addr>().is_err())
}

/// As it is configured.
impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.configured {
            ConfiguredAddress::Address(address) => address.fmt(f),
            ConfiguredAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Whether the same is configured.
impl PartialEq for RemoteAddress {
    fn eq(&self, other: &Self) -> bool {
        self.configured == other.configured
    }
}

impl Eq for RemoteAddress {}

impl Hash for RemoteAddress {
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
            let server: RemoteAddress = text.parse().unwrap();
            assert_eq!(server.to_string(), text);
            assert_eq!(server.known().is_some(), !text.contains("example"), "{text}");
            assert_eq!(server, text.parse().unwrap());
        }
        for text in ["", "vpn.example.com", "vpn.example.com:0", "192.0.2.1", "a b:1", ":7000"] {
            assert!(text.parse::<RemoteAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_next_address_is_used_after_a_failure() {
        let server: RemoteAddress = "vpn.example.com:7000".parse().unwrap();
        let all: Vec<SocketAddr> = ["192.0.2.1:7000", "[2001:db8::1]:7000", "192.0.2.2:7000"]
            .map(|it| it.parse().unwrap())
            .into();
        let tried: Vec<SocketAddr> = (0..3)
            .map(|_| {
                let address = server.choose(&all, Some(true)).unwrap();
                drop(ConnectAttempt { remote: &server, address, has_succeeded: false });
                assert_eq!(server.known(), None);
                address
            })
            .collect();
        assert_eq!(tried, [all[0], all[2], all[0]]);
        let address = server.choose(&all, None).unwrap();
        ConnectAttempt { remote: &server, address, has_succeeded: false }.succeed();
        assert_eq!(server.clone().known(), Some(all[1]), "clones share what was found");
        assert_eq!(server.choose(&all[..1], Some(false)), None);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_for_a_connection() {
        let server: RemoteAddress = "localhost:7000".parse().unwrap();
        let attempt = server.attempt(Some([127, 0, 0, 1].into())).await.unwrap();
        assert_eq!(attempt.address(), "127.0.0.1:7000".parse().unwrap());
        attempt.succeed();
        assert_eq!(server.known(), Some("127.0.0.1:7000".parse().unwrap()));
    }

    #[test]
    fn a_name_is_looked_up_again_when_its_address_does_not_answer() {
        let server: RemoteAddress = "localhost:7000".parse().unwrap();
        let expected = "127.0.0.1:7000".parse().unwrap();
        // There is no other address of this family.
        assert_eq!(server.look_up_again(Some(true)).unwrap(), expected);
        assert_eq!(server.look_up_again(Some(true)).unwrap(), expected);
        assert_eq!(server.known(), Some(expected));
        let fixed: RemoteAddress = "192.0.2.1:7000".parse().unwrap();
        assert_eq!(Some(fixed.look_up_again(Some(false)).unwrap()), fixed.known());
        // It stays where it was while the DNS does not answer.
        let failed = Err(io::ErrorKind::TimedOut.into());
        let found = server.lookup().found.take();
        server.lookup().failed = found;
        assert_eq!(server.choose_found("localhost", failed, None).unwrap(), expected);
    }
}
