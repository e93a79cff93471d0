//! The configuration of `sunder quorum node`.

mod rules;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keys::IdentityPublicKey;
use service::config::{
    ConfigKey, ConfigKeys, ConfigProblem, ConfigProblems, ConfigTable, key, read,
};

use crate::net::api::SocketAccess;
use crate::net::links::{QuorumPeer, ServerAddress};
use crate::net::store::audit;
use crate::protocol::policy::SigningRule;
use crate::protocol::refresh::RefreshDelays;
use crate::protocol::server::SigningTimeouts;

/// The keys of the configuration.
pub const KEYS: ConfigKeys = ConfigKeys(&[NODE_KEYS, rules::RULE_KEYS]);

const NODE_KEYS: &[ConfigKey] = &[
    key("", "identity", "\"identity.key\""),
    key("", "public_key", "\"public.pem\""),
    key("", "store", "\"/var/lib/sunder/quorum-a\""),
    key("", "master_key", "\"master.key\""),
    key("", "master_credential", "\"quorum-master\""),
    key("", "share", "\"server-1.share\""),
    key("", "listen", "[\"192.0.2.1:6530\"]"),
    key("", "socket", "\"/run/sunder/quorum.sock\""),
    key("", "socket_access", "\"owner\""),
    key("", "max_connections", "1024"),
    key("", "audit_mib", "1024"),
    key("", "sign_timeout_s", "10"),
    key("", "refresh_every", "\"7d\""),
    key("", "need_delay_s", "30"),
    key("", "grace_delay_s", "60"),
    key(
        "",
        "peer",
        "[{ identity = \"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\", \
         address = \"192.0.2.2:6530\" }]",
    ),
    key("peer", "identity", "\"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\""),
    key("peer", "address", "\"192.0.2.2:6530\""),
    key("", "rule", "[{ prefix = \"release \", max_len = 200 }]"),
];

/// The interval between the first two sends of the same item.
const RESEND_DELAY: Duration = Duration::from_secs(1);

/// The interval at which a header is signed, or an approval submitted, again.
const AGAIN_DELAY: Duration = Duration::from_secs(2);

/// The default maximum of local users' connections: about as many requests as a server signs in
/// four seconds, which is within the usual timeout. Each takes some 10 KiB, plus the message while
/// it is transferred.
const MAX_CONNECTIONS: usize = 1_024;

/// A refresh takes some seconds, and a group must not do nothing else.
const MIN_REFRESH_EVERY: Duration = Duration::from_secs(60);
const MAX_REFRESH_EVERY: Duration = Duration::from_secs(1_000 * 86_400);

/// A day, in seconds.
const MAX_DELAY_S: i64 = 86_400;

/// The largest number of addresses to listen on.
const MAX_LISTEN: usize = 16;

/// The settings of a server. Paths are relative to the configuration unless absolute.
#[derive(Clone, Debug)]
pub struct QuorumNodeConfig {
    /// The directory of the configuration.
    pub config_dir: PathBuf,
    /// The file of the identity key.
    pub identity: PathBuf,
    /// The file of the group's public key, in PEM.
    pub public_key: PathBuf,
    /// The directory of the store.
    pub store: PathBuf,
    /// Where the key is that encrypts the store's keys.
    pub master_key: MasterKeySource,
    /// The file with the shares from the ceremony, which is read once.
    pub share: Option<PathBuf>,
    /// Where to accept links.
    pub listen: Vec<SocketAddr>,
    /// The socket of the local API.
    pub socket: PathBuf,
    /// The users who may access it.
    pub socket_access: SocketAccess,
    /// The largest number of local users' connections at a time.
    pub max_connections: usize,
    /// The largest length of the audit log with its full files, in MiB.
    pub audit_mib: u64,
    /// Servers to have links with, besides those of the group. A new server lists those of the old
    /// group here.
    pub peers: Vec<QuorumPeer>,
    /// Messages that are signed without being registered.
    pub rules: Vec<SigningRule>,
    /// Waiting times in a refresh.
    pub delays: RefreshDelays,
    /// Timeouts of signing.
    pub timeouts: SigningTimeouts,
    /// How old an epoch may become before this server approves new shares for the same group.
    pub refresh_every: Option<Duration>,
}

/// Where the master key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
    /// In this file.
    File(PathBuf),
    /// In the credential of this name, which systemd passes to the service.
    Credential(String),
}

impl QuorumNodeConfig {
    /// Reads a configuration. Its `config_dir` is empty.
    ///
    /// # Errors
    /// All errors in the configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read(text, KEYS, |table| {
            let file = |name: &str| table.require(name).and_then(|it| it.text()).map(PathBuf::from);
            let seconds = |name: &str, default: u64| {
                let seconds = table.get(name).and_then(|it| it.integer_in(1..=MAX_DELAY_S));
                Duration::from_secs(seconds.unwrap_or(default))
            };
            let (identity, public_key) = (file("identity"), file("public_key"));
            let (store, socket) = (file("store"), file("socket"));
            let master_key = master_key(table);
            let share = table.get("share").and_then(|it| it.text()).map(PathBuf::from);
            let listen = listen(table);
            let access = [("owner", SocketAccess::Owner), ("group", SocketAccess::Group)];
            let socket_access = table.choice("socket_access", &access);
            let max_connections = match table.get("max_connections") {
                None => Some(MAX_CONNECTIONS),
                Some(value) => value.integer_in(1..=16_384),
            };
            let audit_mib = match table.get("audit_mib") {
                None => Some(audit::MAX_LEN >> 20),
                Some(value) => value.integer_in(1..=1 << 20),
            };
            let peers = table.tables("peer").iter().filter_map(read_peer).collect();
            let rules = table.tables("rule").iter().filter_map(rules::read_rule).collect();
            let delays = RefreshDelays {
                need: seconds("need_delay_s", 30),
                grace: seconds("grace_delay_s", 60),
                resend: RESEND_DELAY,
            };
            let refresh_every = refresh_every(table);
            let timeouts =
                SigningTimeouts { sign: seconds("sign_timeout_s", 10), retry: AGAIN_DELAY };
            Some(Self {
                config_dir: PathBuf::new(),
                identity: identity?,
                public_key: public_key?,
                store: store?,
                master_key: master_key?,
                share,
                listen: listen?,
                socket: socket?,
                socket_access,
                max_connections: max_connections?,
                audit_mib: audit_mib?,
                peers,
                rules,
                delays,
                timeouts,
                refresh_every,
            })
        })
    }
}

impl QuorumNodeConfig {
    /// The changed settings that take effect only after a restart. `share` is not one of them,
    /// because it is read once.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let differs = [
            ("identity", self.identity != new.identity),
            ("public_key", self.public_key != new.public_key),
            ("store", self.store != new.store),
            ("master_key", self.master_key != new.master_key),
            ("listen", self.listen != new.listen),
            ("socket", self.socket != new.socket),
            ("socket_access", self.socket_access != new.socket_access),
            ("max_connections", self.max_connections != new.max_connections),
            ("audit_mib", self.audit_mib != new.audit_mib),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

fn master_key(table: &ConfigTable<'_>) -> Option<MasterKeySource> {
    let file = table.get("master_key").map(|it| it.text().map(PathBuf::from));
    let credential = table.get("master_credential").map(|it| it.text().map(str::to_owned));
    match (file, credential) {
        (Some(file), None) => Some(MasterKeySource::File(file?)),
        (None, Some(name)) => Some(MasterKeySource::Credential(name?)),
        (Some(_), Some(_)) => {
            let problem = ConfigProblem::new(
                "both `master_key` and `master_credential` are given",
                "leave one of them out",
            );
            table.report_key("master_credential", problem);
            None
        }
        (None, None) => {
            if !table.has("master_key") && !table.has("master_credential") {
                table.refuse(
                    "no `master_key`, which encrypts the store",
                    "name a file, as in master_key = \"master.key\", or a credential of systemd",
                );
            }
            None
        }
    }
}

fn refresh_every(table: &ConfigTable<'_>) -> Option<Duration> {
    let value = table.get("refresh_every")?;
    let parsed = humantime::parse_duration(value.text()?);
    match parsed {
        Ok(every) if (MIN_REFRESH_EVERY..=MAX_REFRESH_EVERY).contains(&every) => Some(every),
        _ => {
            let what = if parsed.is_ok() { "out of range" } else { "not a period" };
            value.refuse(what, "give a period from 1m to 1000d, for example \"7d\" or \"12h\"");
            None
        }
    }
}

fn listen(table: &ConfigTable<'_>) -> Option<Vec<SocketAddr>> {
    let list = table.require("listen")?;
    let values = list.list()?;
    if !(1..=MAX_LISTEN).contains(&values.len()) {
        list.refuse(format!("{} addresses", values.len()), format!("give 1 to {MAX_LISTEN}"));
        return None;
    }
    let addresses =
        values.iter().map(|value| value.parsed_or::<SocketAddr>("give an IP address and a port"));
    // Parse all addresses, so that all errors are reported.
    addresses.collect::<Vec<_>>().into_iter().collect()
}

fn read_peer(table: &ConfigTable<'_>) -> Option<QuorumPeer> {
    let fix = "give the 64 digits that `sunder quorum identity FILE` says on that server";
    let key = table.require("identity").and_then(|it| it.parsed_or::<IdentityPublicKey>(fix));
    let fix = "give an IP address or the name of a host, and a port";
    let address = table.require("address").and_then(|it| it.parsed_or::<ServerAddress>(fix));
    Some(QuorumPeer { key: key?, address: address? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "identity = \"i\"\npublic_key = \"p\"\nstore = \"s\"\nmaster_key = \"m\"\n\
                         listen = [\"192.0.2.1:6530\"]\nsocket = \"q.sock\"\n";

    #[test]
    fn optional_settings_have_defaults() {
        let config = QuorumNodeConfig::from_toml(LEAST).unwrap();
        assert_eq!(config.master_key, MasterKeySource::File("m".into()));
        assert_eq!(config.socket_access, SocketAccess::Owner);
        assert_eq!(
            (config.timeouts.sign, config.delays.need.as_secs()),
            (Duration::from_secs(10), 30)
        );
        let more = format!(
            "{LEAST}socket_access = \"group\"\n[[rule]]\nprefix = \"release \"\nmax_len = 20\n\
             [[peer]]\nidentity = \"{}\"\naddress = \"192.0.2.2:1\"\n",
            keys::IdentitySecretKey::new(&[1; 32]).public()
        );
        let config = QuorumNodeConfig::from_toml(&more).unwrap();
        assert_eq!(config.rules, [SigningRule::with_prefix(b"release ", 20)]);
        assert_eq!((config.peers.len(), config.socket_access), (1, SocketAccess::Group));
    }

    #[test]
    fn settings_that_need_a_restart_are_named() {
        let config = QuorumNodeConfig::from_toml(LEAST).unwrap();
        let peer = keys::IdentitySecretKey::new(&[1; 32]).public();
        let changed = format!(
            "{LEAST}need_delay_s = 5\nsign_timeout_s = 7\nshare = \"s\"\n\
             [[rule]]\nprefix = \"a\"\n[[peer]]\nidentity = \"{peer}\"\naddress = \"192.0.2.2:1\"\n"
        );
        let changed = QuorumNodeConfig::from_toml(&changed).unwrap();
        assert!(config.needs_restart(&changed).is_empty());
        let other = LEAST.replace("\"s\"", "\"other\"").replace(":6530", ":6531");
        let other = QuorumNodeConfig::from_toml(&other).unwrap();
        assert_eq!(config.needs_restart(&other), ["store", "listen"]);
        // Every setting is in one of the two lists.
        let others = "identity = \"j\"\npublic_key = \"q\"\nstore = \"t\"\nmaster_credential = \"m\"\n\
                      listen = [\"192.0.2.2:6530\"]\nsocket = \"r.sock\"\nsocket_access = \"group\"\n\
                      max_connections = 9\naudit_mib = 9\n";
        let mut named = config.needs_restart(&QuorumNodeConfig::from_toml(others).unwrap());
        named.extend([
            "share",
            "sign_timeout_s",
            "refresh_every",
            "need_delay_s",
            "grace_delay_s",
            "peer",
            "rule",
        ]);
        named.push("master_credential");
        let mut all = KEYS.names("");
        all.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, all);
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let text = "identity = 1\nlisten = [\"x\", \"y\"]\nsocket_acces = \"all\"\n\
                    [[rule]]\nprefix = \"\"\n[[peer]]\naddress = \"192.0.2.2\"\n";
        let problems = QuorumNodeConfig::from_toml(text).unwrap_err();
        let keys: Vec<String> = problems.iter().map(|it| it.key.to_string()).collect();
        assert_eq!(problems.iter().count(), 12, "{keys:?}");
        let both = format!("{LEAST}master_credential = \"c\"\n");
        let message = QuorumNodeConfig::from_toml(&both).unwrap_err().to_string();
        assert!(message.contains("leave one of them out"), "{message}");
    }
}
