//! The `[directory]` of a client's and a server's configuration, checked in full.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use keys::{IdentityPublicKey, IdentitySecretKey, KeyFileError, RsaPublicKey, SharedKey};
use service::config::{
    ConfigKey, ConfigKeys, ConfigProblem, ConfigProblems, ConfigTable, ConfigValue, key, read_part,
};

use super::addresses::ChannelAddresses;
use super::credentials::{DirectoryCredential, DirectoryServerKeys};

/// The keys of a client's `[directory]`.
pub const CLIENT_KEYS: &[ConfigKey] = &[
    key("", "directory", "{ file = \"/var/lib/sunder/proxy-office/peers\" }"),
    key("directory", "file", "\"/var/lib/sunder/proxy-office/peers\""),
    key("directory", "port", "6523"),
    key("directory", "max_age_h", "24"),
    key("directory", "signed_by", "\"group.pem\""),
    key(
        "directory",
        "trust",
        "[{ network = \"192.0.2.0/24\", shared_key = \"office/peers.key\" }]",
    ),
    key("directory.trust", "network", "\"192.0.2.0/24\""),
    key("directory.trust", "shared_key", "\"office/peers.key\""),
    key(
        "directory.trust",
        "public_key",
        "\"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\"",
    ),
];

/// The keys of a server's `[directory]`.
pub const SERVER_KEYS: &[ConfigKey] = &[
    key("", "directory", "{ listen = [\"192.0.2.10:6523\"], shared_key = \"office/peers.key\" }"),
    key("directory", "listen", "[\"192.0.2.10:6523\"]"),
    key("directory", "addresses", "[\"192.0.2.10:7000\", \"198.51.100.10:7000\"]"),
    key("directory", "shared_key", "\"office/peers.key\""),
    key("directory", "secret_key", "\"office/own.key\""),
];

/// The port at which peers answer by default.
const DEFAULT_PORT: u16 = 6523;

const DEFAULT_MAX_AGE_H: u32 = 24;

/// Shorter keys are broken, or will be soon.
const MIN_SIGNER_BITS: u32 = 2048;

/// A year. An answer that must be valid for longer can be added by hand.
const MAX_AGE_H: i64 = 8760;

/// The settings of a client's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryClientConfig {
    /// The database, relative to the configuration unless absolute.
    pub file: PathBuf,
    /// The port at which peers answer.
    pub port: u16,
    /// The greatest age of an answer. An older one is requested again.
    pub max_age: Duration,
    /// The public key whose signed lists are accepted: a file in PEM, relative to the configuration
    /// unless absolute.
    pub signed_by: Option<PathBuf>,
    /// The peers whose answers are accepted. No network occurs twice.
    pub trusted_networks: Vec<TrustedNetwork>,
}

/// Peers whose answers are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedNetwork {
    /// The addresses of the peers.
    pub network: IpNet,
    /// The key that verifies their answers.
    pub key: TrustedNetworkKey,
}

/// A key that verifies answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedNetworkKey {
    /// A key that the peers have too, in a file. Its path is relative to the configuration unless
    /// absolute.
    Shared(PathBuf),
    /// The public key of the peer or peers.
    Public(IdentityPublicKey),
}

/// The settings of a server's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryServerConfig {
    /// Where to listen for requests.
    pub listen: Vec<SocketAddr>,
    /// The addresses that the server answers with.
    pub addresses: ChannelAddresses,
    /// A key that clients have too, in a file. Its path is relative to the configuration unless
    /// absolute.
    pub shared_key: Option<PathBuf>,
    /// The server's own key, in a file. Its path is relative to the configuration unless absolute.
    pub secret_key: Option<PathBuf>,
}

impl DirectoryClientConfig {
    /// Reads the `[directory]` in a client's configuration. The client reads the rest.
    ///
    /// # Errors
    /// When there is no `[directory]`, or it is invalid: all its problems.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read_part(text, ConfigKeys(&[CLIENT_KEYS]), |table| {
            if !table.has("directory") {
                table.refuse("no [directory]", "add one, and name its file");
            }
            Self::read(&table.get("directory")?.table()?)
        })
    }

    /// Reads a client's `[directory]` from its table. Returns `None` only where it reports a
    /// problem.
    pub fn read(table: &ConfigTable<'_>) -> Option<Self> {
        let file = table.require("file").and_then(|file| file.text());
        let port = table.get("port").and_then(|port| port.integer_in(1..=65_535));
        let max_age_h = table.get("max_age_h").and_then(|hours| hours.integer_in(1..=MAX_AGE_H));
        let signed_by = table.get("signed_by").and_then(|file| file.text()).map(PathBuf::from);
        let mut trusts: Vec<TrustedNetwork> = Vec::new();
        for table in table.tables("trust") {
            let Some(trust) = TrustedNetwork::read(&table) else { continue };
            if trusts.iter().any(|other| other.network == trust.network) {
                let text = table.get("network").and_then(|network| network.text());
                let what = format!("network = \"{}\" is trusted twice", text.unwrap_or_default());
                table.report_key("network", ConfigProblem::new(what, "leave one of them out"));
            }
            trusts.push(trust);
        }
        Some(Self {
            file: PathBuf::from(file?),
            port: port.unwrap_or(DEFAULT_PORT),
            max_age: Duration::from_secs(3600 * u64::from(max_age_h.unwrap_or(DEFAULT_MAX_AGE_H))),
            signed_by,
            trusted_networks: trusts,
        })
    }

    /// The key whose signed lists are accepted, if there is one, with the configuration in
    /// `config_dir`.
    ///
    /// # Errors
    /// When the file cannot be read or contains no RSA public key of at least 2048 bits.
    pub fn signer(&self, config_dir: &Path) -> Result<Option<RsaPublicKey>, KeyFileError> {
        let Some(file) = &self.signed_by else { return Ok(None) };
        let path = config_dir.join(file);
        let key = RsaPublicKey::read(&path)?;
        if key.bits() < MIN_SIGNER_BITS { Err(KeyFileError::Rsa { path }) } else { Ok(Some(key)) }
    }

    /// The files of the keys, with the configuration in `config_dir`.
    pub fn key_files(&self, config_dir: &Path) -> Vec<PathBuf> {
        let file = |trust: &TrustedNetwork| match &trust.key {
            TrustedNetworkKey::Shared(file) => Some(config_dir.join(file)),
            TrustedNetworkKey::Public(_) => None,
        };
        self.trusted_networks.iter().filter_map(file).collect()
    }
}

impl TrustedNetwork {
    fn read(table: &ConfigTable<'_>) -> Option<Self> {
        let file = |name: &str| table.get(name).map(|file| file.text().map(PathBuf::from));
        let public = table.get("public_key").map(|key| public_key(&key));
        let shared = file("shared_key");
        let value = table.require("network")?;
        let text = value.text()?;
        let Ok(network) = text.parse::<IpNet>() else {
            let fix = "write ADDRESS/PREFIX, as in 192.0.2.0/24, or 192.0.2.10/32 for one host";
            value.refuse(format!("network = \"{text}\": no network"), fix);
            return None;
        };
        let key = match (shared, public) {
            (Some(file), None) => TrustedNetworkKey::Shared(file?),
            (None, Some(key)) => TrustedNetworkKey::Public(key?),
            (None, None) if table.has("shared_key") || table.has("public_key") => return None,
            _ => {
                let fix = "give either shared_key or public_key";
                value.refuse(format!("network = \"{text}\""), fix);
                return None;
            }
        };
        Some(Self { network: network.trunc(), key })
    }

    /// The key, whose file is in the directory `config_dir` unless its name is absolute.
    pub(super) fn credential(
        &self,
        config_dir: &Path,
    ) -> Result<DirectoryCredential, KeyFileError> {
        match &self.key {
            TrustedNetworkKey::Shared(file) => {
                Ok(DirectoryCredential::Shared(SharedKey::read(&config_dir.join(file))?))
            }
            TrustedNetworkKey::Public(key) => Ok(DirectoryCredential::Public(*key)),
        }
    }
}

fn public_key(value: &ConfigValue<'_>) -> Option<IdentityPublicKey> {
    let text = value.text()?;
    let key = text.parse().ok();
    if key.is_none() {
        let what = format!("public_key = \"{text}\": not a public key");
        value.refuse(what, "use the 64 digits that the server prints when it starts");
    }
    key
}

impl DirectoryServerConfig {
    /// Reads a server's `[directory]` from its table. Without `addresses`, they are the addresses
    /// on which the MICSS server listens. `server` is `None` if these could not be read. Returns
    /// `None` only where a problem is reported.
    pub fn read(table: &ConfigTable<'_>, server: Option<&[SocketAddr]>) -> Option<Self> {
        let listen = table.require("listen").and_then(|listen| sockets(&listen));
        if listen.as_ref().is_some_and(Vec::is_empty) {
            let (what, fix) = ("nothing to listen on", "give an address in its `listen`");
            refuse(table, "listen", what, fix);
        }
        let file = |name: &str| {
            let file = table.get(name).and_then(|file| file.text());
            file.map(PathBuf::from)
        };
        let (shared_key, secret_key) = (file("shared_key"), file("secret_key"));
        if !table.has("shared_key") && !table.has("secret_key") {
            let what = "something is missing: a key that proves the answers";
            let fix = "give shared_key, or secret_key, or both";
            let problem = ConfigProblem::new(what, fix).summarized(format!("directory: {fix}"));
            table.report_key("shared_key", problem);
        }
        let addresses = addresses(table, server);
        if addresses.as_ref().is_some_and(|addresses| !addresses.have_two_hosts()) {
            let what = "addresses of one host are one channel, and clients do not take that";
            refuse(table, "addresses", what, "add another's");
        }
        Some(Self { listen: listen?, addresses: addresses?, shared_key, secret_key })
    }

    /// The files of the keys, with the configuration in `config_dir`.
    pub fn key_files(&self, config_dir: &Path) -> Vec<PathBuf> {
        let files = self.shared_key.iter().chain(&self.secret_key);
        files.map(|file| config_dir.join(file)).collect()
    }

    /// The keys themselves.
    pub(super) fn keys(&self, config_dir: &Path) -> Result<DirectoryServerKeys, KeyFileError> {
        let shared = self.shared_key.as_ref().map(|file| SharedKey::read(&config_dir.join(file)));
        let secret =
            self.secret_key.as_ref().map(|file| IdentitySecretKey::read(&config_dir.join(file)));
        Ok(DirectoryServerKeys { shared: shared.transpose()?, secret: secret.transpose()? })
    }
}

/// The addresses that a server answers with.
fn addresses(table: &ConfigTable<'_>, server: Option<&[SocketAddr]>) -> Option<ChannelAddresses> {
    if let Some(list) = table.get("addresses") {
        let refused = |error| {
            let fix = "give the address of one host and port on each channel, 1 to 16 of them";
            let problem = ConfigProblem::new(format!("{error}"), fix);
            list.report(problem.summarized(format!("directory: addresses: {error}")));
        };
        return ChannelAddresses::new(sockets(&list)?).map_err(refused).ok();
    }
    if table.has("addresses") {
        return None;
    }
    let refused = |error| {
        let what = format!("the addresses in listen cannot be sent to clients ({error})");
        refuse(table, "addresses", &what, "set `addresses`");
    };
    ChannelAddresses::new(server?.to_vec()).map_err(refused).ok()
}

/// Reports a problem of a key in a server's `[directory]`.
fn refuse(table: &ConfigTable<'_>, name: &str, what: &str, fix: &str) {
    let problem = ConfigProblem::new(what, fix);
    let summary = format!("directory: {problem}");
    table.report_key(name, problem.summarized(summary));
}

/// `None` if one of them is not an address.
fn sockets(list: &ConfigValue<'_>) -> Option<Vec<SocketAddr>> {
    let all: Vec<Option<SocketAddr>> = list.list()?.iter().map(ConfigValue::parsed).collect();
    all.into_iter().collect()
}

/// The value of the most specific network that contains this address.
pub(super) fn most_specific<T>(trusted: &[(IpNet, T)], peer: IpAddr) -> Option<&T> {
    let covering = trusted.iter().filter(|(network, _)| network.contains(&peer));
    covering.max_by_key(|(network, _)| network.prefix_len()).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::list;
    use super::*;

    const PUBLIC: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

    fn client(text: &str) -> Result<DirectoryClientConfig, ConfigProblems> {
        DirectoryClientConfig::from_toml(&format!("[directory]\n{text}"))
    }

    fn server(text: &str, listen: &[&str]) -> Result<DirectoryServerConfig, ConfigProblems> {
        let listen: Vec<SocketAddr> = listen.iter().map(|text| text.parse().unwrap()).collect();
        read_part(&format!("[directory]\n{text}"), ConfigKeys(&[SERVER_KEYS]), |table| {
            DirectoryServerConfig::read(&table.get("directory")?.table()?, Some(&listen))
        })
    }

    #[test]
    fn the_trusted_networks_of_a_client_are_read() {
        let text = format!(
            "file = \"d.sqlite\"\n[[directory.trust]]\nnetwork = \"192.0.2.0/24\"\nshared_key = \"peers.key\"\n\
             [[directory.trust]]\nnetwork = \"192.0.2.7/32\"\npublic_key = \"{PUBLIC}\"\n"
        );
        let config = client(&text).unwrap();
        assert_eq!((config.port, config.max_age), (6523, Duration::from_secs(24 * 3600)));
        assert_eq!(config.trusted_networks[0].key, TrustedNetworkKey::Shared("peers.key".into()));
        assert_eq!(
            config.trusted_networks[1].key,
            TrustedNetworkKey::Public(PUBLIC.parse().unwrap())
        );
        assert_eq!(config.key_files(Path::new("/etc")), [Path::new("/etc/peers.key")]);
        let set = client("file = \"/d\"\nport = 1\nmax_age_h = 8760\n").unwrap();
        assert_eq!((set.port, set.max_age), (1, Duration::from_secs(8760 * 3600)));
        assert!(set.trusted_networks.is_empty());
    }

    #[test]
    fn a_clients_mistakes_are_named() {
        for (text, expected) in [
            ("max_age_h = 0", "max_age_h = 0: give 1 to 8760"),
            ("max_age_h = 8761", "max_age_h = 8761: give 1 to 8760"),
            (
                "[[directory.trust]]\nnetwork = \"x\"\nshared_key = \"k\"",
                "network = \"x\": no network",
            ),
            ("[[directory.trust]]\nnetwork = \"::/0\"", "network = \"::/0\": give either"),
            (
                "[[directory.trust]]\nnetwork = \"::/0\"\nshared_key = \"k\"\npublic_key = \"k\"",
                "network = \"::/0\": give either",
            ),
            (
                "[[directory.trust]]\nnetwork = \"::/0\"\npublic_key = \"k\"",
                "public_key = \"k\": not a public key",
            ),
            (
                "[[directory.trust]]\nnetwork = \"192.0.2.0/24\"\nshared_key = \"k\"\n\
                 [[directory.trust]]\nnetwork = \"192.0.2.1/24\"\nshared_key = \"l\"",
                "network = \"192.0.2.1/24\" is trusted twice",
            ),
        ] {
            let error = client(&format!("file = \"d\"\n{text}\n")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        for unknown in ["", "file = 1", "file = \"d\"\nport = 0", "file = \"d\"\nfiles = \"d\""] {
            assert!(client(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn the_addresses_of_a_server_default_to_those_it_listens_on() {
        let text = "listen = [\"127.0.0.1:6523\"]\nshared_key = \"a\"\nsecret_key = \"/b\"\n";
        let config = server(text, &["192.0.2.1:1", "192.0.2.2:1"]).unwrap();
        assert_eq!(config.addresses, list("192.0.2.1:1 192.0.2.2:1"));
        let files = ["/etc/a", "/b"].map(PathBuf::from);
        assert_eq!(config.key_files(Path::new("/etc")), files);
        let other = format!("{text}addresses = [\"203.0.113.1:9\", \"203.0.113.2:9\"]\n");
        let addresses = server(&other, &["0.0.0.0:1"]).unwrap().addresses;
        assert_eq!(addresses, list("203.0.113.1:9 203.0.113.2:9"));
    }

    #[test]
    fn a_servers_mistakes_are_named() {
        let listen = "listen = [\"127.0.0.1:6523\"]\n";
        for (text, expected) in [
            ("listen = []\nshared_key = \"a\"".to_owned(), "directory: nothing to listen on"),
            (listen.to_owned(), "directory: give shared_key"),
            (
                format!("{listen}shared_key = \"a\""),
                "directory: the addresses in listen cannot be sent to clients (0.0.0.0:1 is not",
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
            let problems = server(&text, &["0.0.0.0:1"]).unwrap_err();
            let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert!(
                messages.iter().any(|message| message.starts_with(expected)),
                "{expected}: {messages:?}"
            );
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
