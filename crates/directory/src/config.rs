//! The `[directory]` of a client's and a server's configuration, checked in full.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use keys::{KeyError, PublicKey, PublicKeyError, SecretKey, SharedKey};
use serde::Deserialize;

use super::addresses::{Addresses, AddressesError};
use super::credentials::{Credential, ServerKeys};

/// Where peers answer, unless they say otherwise.
const DEFAULT_PORT: u16 = 6523;

const DEFAULT_MAX_AGE_H: u64 = 24;

/// A year: whoever wants an answer to be good for longer adds it by hand.
const MAX_AGE_H: u64 = 8760;

/// What a client is told about the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDirectory {
    /// The database, relative to the configuration unless absolute.
    pub file: PathBuf,
    /// The port at which peers answer.
    pub port: u16,
    /// What was learnt longer ago is asked for again.
    pub max_age: Duration,
    /// Whose answers are believed. No network is there twice.
    pub trusts: Vec<Trust>,
}

/// Whose answers are believed, and about which addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The peers.
    pub network: IpNet,
    /// What their answers are proven with.
    pub key: TrustedKey,
}

/// What answers are proven with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedKey {
    /// A key that the peers have too, in a file relative to the configuration unless absolute.
    Shared(PathBuf),
    /// The public key of the peer or peers.
    Public(PublicKey),
}

/// What a server is told about the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDirectory {
    /// Where to listen for questions.
    pub listen: Vec<SocketAddr>,
    /// What is told.
    pub addresses: Addresses,
    /// A key that clients have too, in a file relative to the configuration unless absolute.
    pub shared_key: Option<PathBuf>,
    /// The server's own key, in a file relative to the configuration unless absolute.
    pub secret_key: Option<PathBuf>,
}

/// Why a `[directory]` is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A network is none.
    #[error(
        "network = \"{text}\": no network: write ADDRESS/PREFIX, as in 192.0.2.0/24, or 192.0.2.10/32 for one \
         host"
    )]
    Network {
        /// The value.
        text: String,
    },
    /// A public key is none.
    #[error("public_key = \"{text}\": {source}")]
    PublicKey {
        /// The value.
        text: String,
        /// What is wrong with it.
        source: PublicKeyError,
    },
    /// A network is there twice.
    #[error("network = \"{text}\" is trusted twice: leave one of them out")]
    Twice {
        /// The value.
        text: String,
    },
    /// A network is trusted without a key, or with two.
    #[error("network = \"{text}\": give either shared_key or public_key")]
    TrustedKey {
        /// The network.
        text: String,
    },
    /// A number is out of its range.
    #[error("{key} = {found}: give {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        found: u64,
        /// What is possible.
        range: &'static str,
    },
    /// A server has no key to prove its answers with.
    #[error("directory: give shared_key, or secret_key, or both")]
    NoKey,
    /// A server does not listen for questions.
    #[error("directory: nothing to listen on: give an address in its `listen`")]
    NoListener,
    /// What a server is to tell is no list.
    #[error("directory: addresses: {0}")]
    Addresses(AddressesError),
    /// A server tells addresses of one host, which are one channel.
    #[error(
        "directory: addresses of one host are one channel, and clients do not take that: add another's"
    )]
    OneAddress,
    /// What a server listens on is not what it can tell.
    #[error("directory: clients cannot be told what listen says ({0}): set `addresses`")]
    Listen(AddressesError),
}

/// A client's `[directory]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawClientDirectory {
    file: PathBuf,
    port: Option<NonZero<u16>>,
    max_age_h: Option<u64>,
    #[serde(default)]
    trust: Vec<RawTrust>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTrust {
    network: String,
    shared_key: Option<PathBuf>,
    public_key: Option<String>,
}

/// A server's `[directory]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawServerDirectory {
    listen: Vec<SocketAddr>,
    addresses: Option<Vec<SocketAddr>>,
    shared_key: Option<PathBuf>,
    secret_key: Option<PathBuf>,
}

impl RawClientDirectory {
    /// What it says, if that can be.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(self) -> Result<ClientDirectory, ConfigError> {
        let max_age_h = self.max_age_h.unwrap_or(DEFAULT_MAX_AGE_H);
        if !(1..=MAX_AGE_H).contains(&max_age_h) {
            let (key, range) = ("max_age_h", "1 to 8760");
            return Err(ConfigError::Range { key, found: max_age_h, range });
        }
        let mut trusts: Vec<Trust> = Vec::new();
        for raw in self.trust {
            let text = raw.network.clone();
            let trust = raw.check()?;
            if trusts.iter().any(|other| other.network == trust.network) {
                return Err(ConfigError::Twice { text });
            }
            trusts.push(trust);
        }
        Ok(ClientDirectory {
            file: self.file,
            port: self.port.map_or(DEFAULT_PORT, NonZero::get),
            max_age: Duration::from_secs(3600 * max_age_h),
            trusts,
        })
    }
}

impl RawTrust {
    fn check(self) -> Result<Trust, ConfigError> {
        let Self { network: text, shared_key, public_key } = self;
        let Ok(network) = text.parse::<IpNet>() else {
            return Err(ConfigError::Network { text });
        };
        let key = match (shared_key, public_key) {
            (Some(file), None) => TrustedKey::Shared(file),
            (None, Some(text)) => match text.parse() {
                Ok(key) => TrustedKey::Public(key),
                Err(source) => return Err(ConfigError::PublicKey { text, source }),
            },
            _ => return Err(ConfigError::TrustedKey { text }),
        };
        Ok(Trust { network: network.trunc(), key })
    }
}

impl RawServerDirectory {
    /// What it says, if that can be. Unless it says which addresses are told, they are those that
    /// the server of streams listens on.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(self, server: &[SocketAddr]) -> Result<ServerDirectory, ConfigError> {
        let Self { listen, addresses, shared_key, secret_key } = self;
        if listen.is_empty() {
            return Err(ConfigError::NoListener);
        }
        if shared_key.is_none() && secret_key.is_none() {
            return Err(ConfigError::NoKey);
        }
        let addresses = match addresses {
            Some(addresses) => Addresses::new(addresses).map_err(ConfigError::Addresses)?,
            None => Addresses::new(server.to_vec()).map_err(ConfigError::Listen)?,
        };
        if !addresses.have_two_hosts() {
            return Err(ConfigError::OneAddress);
        }
        Ok(ServerDirectory { listen, addresses, shared_key, secret_key })
    }
}

impl ClientDirectory {
    /// The files of the keys, with the configuration in `config_dir`.
    pub fn key_files(&self, config_dir: &Path) -> Vec<PathBuf> {
        let file = |trust: &Trust| match &trust.key {
            TrustedKey::Shared(file) => Some(config_dir.join(file)),
            TrustedKey::Public(_) => None,
        };
        self.trusts.iter().filter_map(file).collect()
    }
}

impl Trust {
    /// The key, whose file is in the directory `config_dir` unless its name is absolute.
    pub(super) fn credential(&self, config_dir: &Path) -> Result<Credential, KeyError> {
        match &self.key {
            TrustedKey::Shared(file) => {
                Ok(Credential::Shared(SharedKey::read(&config_dir.join(file))?))
            }
            TrustedKey::Public(key) => Ok(Credential::Public(*key)),
        }
    }
}

impl ServerDirectory {
    /// The files of the keys, with the configuration in `config_dir`.
    pub fn key_files(&self, config_dir: &Path) -> Vec<PathBuf> {
        let files = self.shared_key.iter().chain(&self.secret_key);
        files.map(|file| config_dir.join(file)).collect()
    }

    /// The keys themselves.
    pub(super) fn keys(&self, config_dir: &Path) -> Result<ServerKeys, KeyError> {
        let shared = self.shared_key.as_ref().map(|file| SharedKey::read(&config_dir.join(file)));
        let secret = self.secret_key.as_ref().map(|file| SecretKey::read(&config_dir.join(file)));
        Ok(ServerKeys { shared: shared.transpose()?, secret: secret.transpose()? })
    }
}

/// What belongs to the most specific of the networks that have this address.
pub(super) fn most_specific<T>(trusted: &[(IpNet, T)], peer: IpAddr) -> Option<&T> {
    let covering = trusted.iter().filter(|(network, _)| network.contains(&peer));
    covering.max_by_key(|(network, _)| network.prefix_len()).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::list;
    use super::*;

    const PUBLIC: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

    fn client(text: &str) -> Result<ClientDirectory, ConfigError> {
        toml::from_str::<RawClientDirectory>(text).unwrap().check()
    }

    fn server(text: &str, listen: &[&str]) -> Result<ServerDirectory, ConfigError> {
        let listen: Vec<SocketAddr> = listen.iter().map(|text| text.parse().unwrap()).collect();
        toml::from_str::<RawServerDirectory>(text).unwrap().check(&listen)
    }

    #[test]
    fn a_client_is_told_whom_to_believe() {
        let text = format!(
            "file = \"d.sqlite\"\n[[trust]]\nnetwork = \"192.0.2.0/24\"\nshared_key = \"peers.key\"\n\
             [[trust]]\nnetwork = \"192.0.2.7/32\"\npublic_key = \"{PUBLIC}\"\n"
        );
        let config = client(&text).unwrap();
        assert_eq!((config.port, config.max_age), (6523, Duration::from_secs(24 * 3600)));
        assert_eq!(config.trusts[0].key, TrustedKey::Shared("peers.key".into()));
        assert_eq!(config.trusts[1].key, TrustedKey::Public(PUBLIC.parse().unwrap()));
        assert_eq!(config.key_files(Path::new("/etc")), [Path::new("/etc/peers.key")]);
        let set = client("file = \"/d\"\nport = 1\nmax_age_h = 8760\n").unwrap();
        assert_eq!((set.port, set.max_age), (1, Duration::from_secs(8760 * 3600)));
        assert!(set.trusts.is_empty());
    }

    #[test]
    fn a_clients_mistakes_are_named() {
        for (text, expected) in [
            ("max_age_h = 0", "max_age_h = 0: give 1 to 8760"),
            ("max_age_h = 8761", "max_age_h = 8761: give 1 to 8760"),
            ("[[trust]]\nnetwork = \"x\"\nshared_key = \"k\"", "network = \"x\": no network"),
            ("[[trust]]\nnetwork = \"::/0\"", "network = \"::/0\": give either"),
            (
                "[[trust]]\nnetwork = \"::/0\"\nshared_key = \"k\"\npublic_key = \"k\"",
                "network = \"::/0\": give either",
            ),
            (
                "[[trust]]\nnetwork = \"::/0\"\npublic_key = \"k\"",
                "public_key = \"k\": not a public key",
            ),
            (
                "[[trust]]\nnetwork = \"192.0.2.0/24\"\nshared_key = \"k\"\n\
                 [[trust]]\nnetwork = \"192.0.2.1/24\"\nshared_key = \"l\"",
                "network = \"192.0.2.1/24\" is trusted twice",
            ),
        ] {
            let error = client(&format!("file = \"d\"\n{text}\n")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for unknown in ["", "file = 1", "file = \"d\"\nport = 0", "file = \"d\"\nfiles = \"d\""] {
            assert!(toml::from_str::<RawClientDirectory>(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn a_server_tells_what_it_listens_on_unless_told_otherwise() {
        let text = "listen = [\"127.0.0.1:6523\"]\nshared_key = \"a\"\nsecret_key = \"/b\"\n";
        let config = server(text, &["192.0.2.1:1", "192.0.2.2:1"]).unwrap();
        assert_eq!(config.addresses, list("192.0.2.1:1 192.0.2.2:1"));
        let files = ["/etc/a", "/b"].map(PathBuf::from);
        assert_eq!(config.key_files(Path::new("/etc")), files);
        let other = format!("{text}addresses = [\"203.0.113.1:9\", \"203.0.113.2:9\"]\n");
        let told = server(&other, &["0.0.0.0:1"]).unwrap().addresses;
        assert_eq!(told, list("203.0.113.1:9 203.0.113.2:9"));
    }

    #[test]
    fn a_servers_mistakes_are_named() {
        let listen = "listen = [\"127.0.0.1:6523\"]\n";
        for (text, expected) in [
            ("listen = []\nshared_key = \"a\"".to_owned(), "directory: nothing to listen on"),
            (listen.to_owned(), "directory: give shared_key"),
            (
                format!("{listen}shared_key = \"a\""),
                "directory: clients cannot be told what listen says (0.0.0.0:1 is not",
            ),
            (
                format!("{listen}shared_key = \"a\"\naddresses = []"),
                "directory: addresses: 0 addresses",
            ),
            (
                format!(
                    "{listen}shared_key = \"a\"\naddresses = [\"203.0.113.1:8\", \"203.0.113.1:9\"]"
                ),
                "directory: addresses of one host are one channel",
            ),
        ] {
            let error = server(&text, &["0.0.0.0:1"]).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_most_specific_network_decides() {
        let trusted = ["192.0.2.0/24", "0.0.0.0/0", "192.0.2.7/32", "192.0.2.0/28", "fd00::/8"];
        let trusted = trusted.map(|text| (text.parse().unwrap(), text));
        for (peer, expected) in [
            ("192.0.2.7", Some("192.0.2.7/32")),
            ("192.0.2.8", Some("192.0.2.0/28")),
            ("192.0.2.200", Some("192.0.2.0/24")),
            ("203.0.113.1", Some("0.0.0.0/0")),
            ("fd00::1", Some("fd00::/8")),
            ("2001:db8::1", None),
        ] {
            assert_eq!(most_specific(&trusted, peer.parse().unwrap()).copied(), expected, "{peer}");
        }
    }
}
