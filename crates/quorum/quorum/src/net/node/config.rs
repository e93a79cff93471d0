//! The configuration of `sunder quorum node`.

mod rules;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keys::IdentityPublicKey;
use service::config::{
    ConfigKey, ConfigKeys, ConfigProblem, ConfigProblems, ConfigTable, key, read,
};

use crate::net::api::{ApiPermissions, SocketAccess};
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
    key("", "bundle", "\"group.bundle\""),
    key("", "share", "\"server-1.share\""),
    key("", "listen", "[\"192.0.2.1:6530\"]"),
    key("", "socket", "\"/run/sunder/quorum.sock\""),
    key("", "socket_access", "\"owner\""),
    key("", "register_socket", "\"/run/sunder/quorum-register.sock\""),
    key("", "register_access", "\"group:release\""),
    key("", "admin_socket", "\"/run/sunder/quorum-admin.sock\""),
    key("", "admin_access", "\"owner\""),
    key("", "max_connections", "1024"),
    key("", "audit_mib", "1024"),
    key("", "cometbft", "\"cometbft\""),
    key("", "sign_timeout_s", "10"),
    key("", "refresh_every", "\"7d\""),
    key("", "registration_expires", "\"7d\""),
    key("", "proposal_expires", "\"1d\""),
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

/// The shortest period between refreshes, and until something expires. A refresh takes some
/// seconds, and a group must not do nothing else.
const MIN_PERIOD: Duration = Duration::from_secs(60);
const MAX_PERIOD: Duration = Duration::from_secs(1_000 * 86_400);

/// How long a registration lasts by default.
const REGISTRATION_EXPIRES: Duration = Duration::from_secs(7 * 86_400);

/// How long an approval of a refresh waits for those of others by default.
const PROPOSAL_EXPIRES: Duration = Duration::from_secs(86_400);

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
    /// The file of the group's public key, in PEM. Without it, a bundle has it.
    pub public_key: Option<PathBuf>,
    /// The bundle with the public key, the servers and the encrypted shares. It is read at the
    /// first start.
    pub bundle: Option<PathBuf>,
    /// A bundle that is read in place of `bundle`, and left as it is: other servers may read the
    /// same file. It is no setting of the configuration.
    pub shared_bundle: Option<PathBuf>,
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
    /// The socket to register messages. Without it, `socket` is also for this.
    pub register_socket: Option<PathBuf>,
    /// The users who may access it.
    pub register_access: SocketAccess,
    /// The socket to administer refreshes. Without it, `socket` is also for this.
    pub admin_socket: Option<PathBuf>,
    /// The users who may access it.
    pub admin_access: SocketAccess,
    /// The largest number of local users' connections at a time.
    pub max_connections: usize,
    /// The largest length of the audit log with its full files, in MiB.
    pub audit_mib: u64,
    /// The directory of CometBFT, if it runs the agreement log.
    pub cometbft: Option<PathBuf>,
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
    /// How long a registration lasts.
    pub registration_expires: Duration,
    /// How long this server's approval of a refresh waits for those of others.
    pub proposal_expires: Duration,
}

/// A socket of the local API.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredSocket<'a> {
    /// The setting that names it.
    pub key: &'static str,
    /// Its path.
    pub path: &'a Path,
    /// The users who may access it.
    pub access: &'a SocketAccess,
    /// What it allows.
    pub allowed: ApiPermissions,
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
            let optional = |name: &str| table.get(name).and_then(|it| it.text()).map(PathBuf::from);
            let (identity, public_key) = (file("identity"), optional("public_key"));
            let (store, socket) = (file("store"), file("socket"));
            let master_key = master_key(table);
            let (share, bundle) = (optional("share"), optional("bundle"));
            check_sources(table);
            let listen = listen(table);
            let socket_access = access(table, "socket_access");
            let (register_access, admin_access) =
                (access(table, "register_access"), access(table, "admin_access"));
            let (register_socket, admin_socket) =
                (optional("register_socket"), optional("admin_socket"));
            check_sockets(table);
            let max_connections = match table.get("max_connections") {
                None => Some(MAX_CONNECTIONS),
                Some(value) => value.integer_in(1..=16_384),
            };
            let audit_mib = match table.get("audit_mib") {
                None => Some(audit::MAX_LEN >> 20),
                Some(value) => value.integer_in(1..=1 << 20),
            };
            let cometbft = optional("cometbft");
            let peers = table.tables("peer").iter().filter_map(read_peer).collect();
            let rules = table.tables("rule").iter().filter_map(rules::read_rule).collect();
            let delays = RefreshDelays {
                need: seconds("need_delay_s", 30),
                grace: seconds("grace_delay_s", 60),
                resend: RESEND_DELAY,
            };
            let refresh_every = period(table, "refresh_every");
            let expires = |name, default| period(table, name).unwrap_or(default);
            let registration_expires = expires("registration_expires", REGISTRATION_EXPIRES);
            let proposal_expires = expires("proposal_expires", PROPOSAL_EXPIRES);
            let timeouts =
                SigningTimeouts { sign: seconds("sign_timeout_s", 10), retry: AGAIN_DELAY };
            Some(Self {
                config_dir: PathBuf::new(),
                identity: identity?,
                public_key,
                bundle,
                shared_bundle: None,
                store: store?,
                master_key: master_key?,
                share,
                listen: listen?,
                socket: socket?,
                socket_access: socket_access?,
                register_socket,
                register_access: register_access?,
                admin_socket,
                admin_access: admin_access?,
                max_connections: max_connections?,
                audit_mib: audit_mib?,
                cometbft,
                peers,
                rules,
                delays,
                timeouts,
                refresh_every,
                registration_expires,
                proposal_expires,
            })
        })
    }
}

impl QuorumNodeConfig {
    /// The sockets of the local API, with what each allows.
    pub fn sockets(&self) -> Vec<ConfiguredSocket<'_>> {
        let (register, admin) = (self.register_socket.as_deref(), self.admin_socket.as_deref());
        let socket = |key, path, access, allowed| ConfiguredSocket { key, path, access, allowed };
        let none = ApiPermissions::default();
        let rest = ApiPermissions {
            sign: true,
            register: register.is_none(),
            administer: admin.is_none(),
        };
        let mut sockets = vec![socket("socket", &*self.socket, &self.socket_access, rest)];
        sockets.extend(register.map(|path| {
            let allowed = ApiPermissions { register: true, ..none };
            socket("register_socket", path, &self.register_access, allowed)
        }));
        sockets.extend(admin.map(|path| {
            let allowed = ApiPermissions { administer: true, ..none };
            socket("admin_socket", path, &self.admin_access, allowed)
        }));
        sockets
    }

    /// The changed settings that take effect only after a restart. `share` and `bundle` are not
    /// among them, because they are read once.
    pub fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        let differs = [
            ("identity", self.identity != new.identity),
            ("public_key", self.public_key != new.public_key),
            ("store", self.store != new.store),
            ("master_key", self.master_key != new.master_key),
            ("listen", self.listen != new.listen),
            ("socket", self.socket != new.socket),
            ("socket_access", self.socket_access != new.socket_access),
            ("register_socket", self.register_socket != new.register_socket),
            ("register_access", self.register_access != new.register_access),
            ("admin_socket", self.admin_socket != new.admin_socket),
            ("admin_access", self.admin_access != new.admin_access),
            ("max_connections", self.max_connections != new.max_connections),
            ("audit_mib", self.audit_mib != new.audit_mib),
            ("cometbft", self.cometbft != new.cometbft),
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

/// A bundle has the public key and the shares.
fn check_sources(table: &ConfigTable<'_>) {
    if !table.has("bundle") && !table.has("public_key") {
        table.refuse(
            "neither `bundle` nor `public_key`, which say which key the group has",
            "name the file that `sunder quorum init --bundle` has written, as in bundle = \
             \"group.bundle\"",
        );
    }
    if table.has("bundle") && table.has("share") {
        let problem = ConfigProblem::new(
            "both `bundle` and `share` are given, and a bundle has the shares",
            "leave `share` out",
        );
        table.report_key("share", problem);
    }
}

/// Each socket that is named has a path, and users who may only sign cannot move the key.
fn check_sockets(table: &ConfigTable<'_>) {
    if table.has("register_socket") && !table.has("admin_socket") {
        let problem = ConfigProblem::new(
            "there is no `admin_socket`, so users of `socket` could move the key",
            "give an `admin_socket` too",
        );
        table.report_key("register_socket", problem);
    }
    for (access, socket) in
        [("register_access", "register_socket"), ("admin_access", "admin_socket")]
    {
        if table.has(access) && !table.has(socket) {
            let problem =
                ConfigProblem::new(format!("there is no `{socket}`"), format!("give a `{socket}`"));
            table.report_key(access, problem);
        }
    }
    let sockets = ["socket", "register_socket", "admin_socket"];
    let paths = sockets.map(|name| table.get(name).and_then(|value| value.text()));
    for (index, name) in sockets.iter().enumerate().skip(1) {
        if paths[index].is_some() && paths[..index].contains(&paths[index]) {
            let problem = ConfigProblem::new("another socket has this path", "give it another one");
            table.report_key(name, problem);
        }
    }
}

fn access(table: &ConfigTable<'_>, name: &str) -> Option<SocketAccess> {
    let Some(value) = table.get(name) else { return Some(SocketAccess::Owner) };
    match value.text()? {
        "owner" => Some(SocketAccess::Owner),
        "group" => Some(SocketAccess::Group),
        text => {
            let group = text.strip_prefix("group:").filter(|group| !group.is_empty());
            if group.is_none() {
                value.refuse(
                    format!("\"{text}\" is not known"),
                    "give \"owner\", \"group\" (the group of the server's process), or \
                     \"group:NAME\"",
                );
            }
            group.map(|group| SocketAccess::NamedGroup(group.to_owned()))
        }
    }
}

fn period(table: &ConfigTable<'_>, name: &str) -> Option<Duration> {
    let value = table.get(name)?;
    let parsed = humantime::parse_duration(value.text()?);
    match parsed {
        Ok(every) if (MIN_PERIOD..=MAX_PERIOD).contains(&every) => Some(every),
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
                      max_connections = 9\naudit_mib = 9\ncometbft = \"c\"\n\
                      register_socket = \"s.sock\"\nregister_access = \"group:1\"\n\
                      admin_socket = \"t.sock\"\nadmin_access = \"group:2\"\n";
        let mut named = config.needs_restart(&QuorumNodeConfig::from_toml(others).unwrap());
        named.extend([
            "share",
            "bundle",
            "sign_timeout_s",
            "refresh_every",
            "registration_expires",
            "proposal_expires",
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
    fn each_socket_allows_what_no_other_one_does() {
        let allowed = |more: &str| -> Vec<ApiPermissions> {
            let config = QuorumNodeConfig::from_toml(&format!("{LEAST}{more}")).unwrap();
            config.sockets().iter().map(|it| it.allowed).collect()
        };
        let none = ApiPermissions::default();
        let sign = ApiPermissions { sign: true, ..none };
        let register = ApiPermissions { register: true, ..none };
        let administer = ApiPermissions { administer: true, ..none };
        assert_eq!(allowed(""), [ApiPermissions::ALL]);
        let admin = "admin_socket = \"a\"\nadmin_access = \"group:admin\"\n";
        assert_eq!(allowed(admin), [ApiPermissions { register: true, ..sign }, administer]);
        let all = format!("{admin}register_socket = \"r\"\n");
        assert_eq!(allowed(&all), [sign, register, administer]);
        let problem = |more: &str| {
            let found = QuorumNodeConfig::from_toml(&format!("{LEAST}{more}"));
            found.unwrap_err().to_string()
        };
        assert!(problem("register_socket = \"r\"\n").contains("could move the key"));
        assert!(problem("admin_access = \"owner\"\n").contains("give a `admin_socket`"));
        assert!(problem("socket_access = \"group:\"\n").contains("\"group:NAME\""));
        assert!(problem("admin_socket = \"q.sock\"\n").contains("another socket has this path"));
        assert!(problem("bundle = \"b\"\nshare = \"s\"\n").contains("leave `share` out"));
        let without = LEAST.replace("public_key = \"p\"\n", "");
        let error = QuorumNodeConfig::from_toml(&without).unwrap_err().to_string();
        assert!(error.contains("neither `bundle` nor `public_key`"), "{error}");
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
