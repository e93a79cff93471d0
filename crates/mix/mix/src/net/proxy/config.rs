//! The configuration of a proxy.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use keys::IdentityPublicKey;
use service::config::{ConfigKey, ConfigKeys, ConfigProblems, ConfigTable, ConfigValue, key, read};

use crate::protocol::engine::MixEngineName;
use crate::protocol::exchange::{MAX_BROADCAST_SLOTS, MixExchangeKind};
use crate::protocol::group::{ArchiveLimits, MIN_AUDIT_ROUNDS};
use crate::protocol::wire::{GroupName, MixTerms, MixTermsError};
use crate::{MAX_AUDIT_SLOTS, MailboxShape};

/// The keys of the configuration.
pub const KEYS: ConfigKeys = ConfigKeys(&[PROXY_KEYS]);

const PROXY_KEYS: &[ConfigKey] = &[
    key("", "identity", "\"office/identity.key\""),
    key("", "listen", "\"0.0.0.0:6700\""),
    key("", "state", "\"/var/lib/sunder/mix-office\""),
    key("", "balancers", "[\"192.0.2.10\"]"),
    key(
        "",
        "group",
        "[{ name = \"friends\", administrator = \
         \"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\" }]",
    ),
    key("group", "name", "\"friends\""),
    key(
        "group",
        "administrator",
        "\"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\"",
    ),
    key("group", "profile", "\"messenger\""),
    key("group", "members", "16"),
    key("group", "slots_per_member", "2"),
    key("group", "writes", "1"),
    key("group", "reads", "10"),
    key("group", "slot_len", "256"),
    key("group", "interval_ms", "1000"),
    key("group", "min_interval_ms", "200"),
    key("group", "engine", "\"broadcast\""),
    key("group", "audit_every_rounds", "64"),
    key("group", "keep", "\"7d\""),
    key("group", "keep_mb", "1000"),
];

/// With this default, audits cost less than a hundredth of the rounds.
const AUDIT_EVERY_ROUNDS: u64 = 64;

/// The default of `keep`.
const KEEP: Duration = Duration::from_secs(7 * 86_400);
const MAX_KEEP: Duration = Duration::from_secs(365 * 86_400);

/// The default of `keep_mb`: a week of a group of 16 members in rounds of three seconds, and half a
/// day in rounds of 0.2 s.
const KEEP_MB: u64 = 1_000;

/// Settings that have a meaning in oblivious exchanges only.
const OBLIVIOUS_KEYS: [&str; 3] = ["writes", "reads", "audit_every_rounds"];

/// Longer rounds would be useless for a chat.
const MAX_INTERVAL_MS: i64 = 600_000;

/// The default settings of a group, for a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProfile {
    /// Messages arrive at once.
    Interactive,
    /// Messages arrive within seconds, at a low cost.
    Messenger,
    /// Long messages arrive within minutes.
    Mail,
}

impl GroupProfile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Messenger, Self::Mail];

    /// The profile's name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Messenger => "messenger",
            Self::Mail => "mail",
        }
    }

    /// The greatest and the least duration of a round in ms.
    fn intervals_ms(self) -> (u64, u64) {
        match self {
            Self::Interactive => (1_000, 200),
            Self::Messenger => (4_000, 3_000),
            Self::Mail => (75_000, 60_000),
        }
    }

    /// The bytes of a slot.
    fn slot_len(self) -> usize {
        match self {
            Self::Interactive | Self::Messenger => 256,
            Self::Mail => 4_096,
        }
    }

    /// The terms of a group of at most this number of members, with the defaults of the profile.
    ///
    /// # Errors
    /// If there cannot be as many.
    pub fn terms(self, members: usize) -> Result<MixTerms, MixTermsError> {
        let shape = MailboxShape::new(members, 1, 1, 3, self.slot_len())?;
        let (interval, least) = self.intervals_ms();
        let [interval, least] = [interval, least].map(Duration::from_millis);
        let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, interval, least)?;
        let archive = ArchiveLimits { keep: KEEP, keep_bytes: KEEP_MB * 1_000_000 };
        Ok(terms.with_keep(archive.period(&terms)))
    }
}

/// The settings of a proxy. Paths are relative to the configuration unless absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct MixProxyConfig {
    /// The directory of the configuration.
    pub config_dir: PathBuf,
    /// The file of the identity key.
    pub identity: PathBuf,
    /// The address for members' connections, over any transport: `HOST:PORT`.
    pub listen: String,
    /// The directory of the state.
    pub state: PathBuf,
    /// The addresses of load balancers, which state the addresses of members by the PROXY protocol.
    pub balancers: Vec<IpAddr>,
    /// The groups.
    pub groups: Vec<MixGroupConfig>,
}

/// The settings of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct MixGroupConfig {
    /// Its name.
    pub name: GroupName,
    /// The key of its administrator.
    pub administrator: IdentityPublicKey,
    /// The terms of its exchanges.
    pub terms: MixTerms,
    /// The number of rounds between two audited updates; 0 for no audits.
    pub audit_every_rounds: u64,
    /// How much is kept of rounds for members that are away.
    pub archive: ArchiveLimits,
}

impl MixProxyConfig {
    /// Reads a configuration. Its `config_dir` is empty.
    ///
    /// # Errors
    /// All problems of the configuration, if it is not valid.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read(text, KEYS, |table| {
            let text = |name: &str| table.require(name).and_then(|value| value.text());
            let (identity, listen, state) = (text("identity"), text("listen"), text("state"));
            let balancers = match table.get("balancers") {
                None => Some(Vec::new()),
                Some(value) => value.list()?.iter().map(ConfigValue::parsed).collect(),
            };
            let groups: Vec<MixGroupConfig> =
                table.tables("group").iter().filter_map(read_group).collect();
            let twice = groups
                .iter()
                .enumerate()
                .find(|(at, group)| groups[..*at].iter().any(|other| other.name == group.name));
            if let Some((_, group)) = twice {
                let what = format!("two groups are called {}", group.name);
                table.refuse(what, "give each a name of its own");
            }
            Some(Self {
                config_dir: PathBuf::new(),
                identity: identity?.into(),
                listen: listen?.to_owned(),
                state: state?.into(),
                balancers: balancers?,
                groups,
            })
        })
    }
}

fn read_group(table: &ConfigTable<'_>) -> Option<MixGroupConfig> {
    let name = table.require("name").and_then(|value| value.parsed());
    let administrator = table.require("administrator").and_then(|value| value.parsed());
    let number = |name: &str, default: usize, max: i64| match table.get(name) {
        None => Some(default),
        Some(value) => value.integer_in(1..=max),
    };
    let milliseconds = |name: &str, default: u64| match table.get(name) {
        None => Some(default),
        Some(value) => value.integer_in(1..=MAX_INTERVAL_MS),
    };
    let members = number("members", 16, 1024);
    let writes = number("writes", 1, 1024);
    let reads = number("reads", 10, 64);
    let profile = match table.get("profile") {
        None => Some(GroupProfile::Interactive),
        Some(value) => value.choice(&GroupProfile::ALL.map(|it| (it.as_str(), it))),
    };
    let defaults = profile.unwrap_or(GroupProfile::Interactive);
    let slot_len = number("slot_len", defaults.slot_len(), 4096);
    let (interval, least) = defaults.intervals_ms();
    let min_interval_ms = milliseconds("min_interval_ms", least);
    let interval_ms = match (table.get("interval_ms"), min_interval_ms) {
        // Longer rounds than those of the profile are as long as they are at least.
        (None, Some(least)) => Some(interval.max(least)),
        _ => milliseconds("interval_ms", interval),
    };
    let exchange = read_exchange(table);
    let is_broadcast = exchange == Some(MixExchangeKind::Broadcast);
    let slots = number("slots_per_member", if is_broadcast { 1 } else { 2 }, 1024)?;
    // By broadcast, a member writes all of its slots.
    let writes = if is_broadcast { slots } else { writes? };
    let shape = MailboxShape::new(members?, slots, writes, reads?, slot_len?);
    let shape = shape.map_err(|error| {
        let fix = format!("give {} to {}", error.min, error.max);
        table.refuse(format!("{} is {}", error.what, error.value), fix);
    });
    let (interval, least) = (interval_ms?, min_interval_ms?);
    if least > interval {
        let fix = format!("give {interval} at most, as interval_ms, or more there");
        table.refuse(format!("min_interval_ms = {least}"), fix);
        return None;
    }
    let exchange = exchange?;
    let terms = MixTerms::new(
        exchange,
        shape.ok()?,
        Duration::from_millis(interval),
        Duration::from_millis(least),
    );
    let terms = terms.map_err(|error| {
        let fix = format!(
            "have fewer or shorter slots (by broadcast at most {MAX_BROADCAST_SLOTS} of a member)"
        );
        table.refuse(error.to_string(), fix);
    });
    let terms = terms.ok()?;
    let audit_every_rounds = match exchange {
        MixExchangeKind::Broadcast => 0,
        MixExchangeKind::Oblivious(_) => read_audit_every_rounds(table, terms.shape())?,
    };
    let archive = read_archive(table, exchange)?;
    // No longer than the bytes allow: members rely on it.
    let terms = terms.with_keep(archive.period(&terms));
    let (name, administrator) = (name?, administrator?);
    Some(MixGroupConfig { name, administrator, terms, audit_every_rounds, archive })
}

/// How much is kept of rounds. Those of oblivious exchanges cannot be kept.
fn read_archive(table: &ConfigTable<'_>, exchange: MixExchangeKind) -> Option<ArchiveLimits> {
    if let MixExchangeKind::Oblivious(engine) = exchange {
        let given = ["keep", "keep_mb"].into_iter().find(|name| table.get(name).is_some());
        if let Some(name) = given {
            let what = format!("{name} with engine = \"{engine}\"");
            table.refuse(what, format!("remove {name}, or have engine = \"broadcast\""));
            return None;
        }
        return Some(ArchiveLimits { keep: Duration::ZERO, keep_bytes: 0 });
    }
    let keep = match table.get("keep") {
        None => Some(KEEP),
        Some(value) => match humantime::parse_duration(value.text()?) {
            Ok(keep) if keep <= MAX_KEEP => Some(keep),
            _ => {
                let fix = "give a period up to 365d, for example \"7d\", or \"0s\" for none";
                value.refuse("not such a period", fix);
                None
            }
        },
    };
    let keep_mb: Option<u64> = match table.get("keep_mb") {
        None => Some(KEEP_MB),
        Some(value) => value.integer_in(1..=1_000_000),
    };
    Some(ArchiveLimits { keep: keep?, keep_bytes: keep_mb? * 1_000_000 })
}

/// The kind of exchange. Without `engine`, a group that has settings of oblivious exchanges only is
/// one of before there were broadcasts.
fn read_exchange(table: &ConfigTable<'_>) -> Option<MixExchangeKind> {
    let kinds = MixExchangeKind::ALL.map(|kind| (kind.as_str(), kind));
    let oblivious = OBLIVIOUS_KEYS.into_iter().find(|name| table.get(name).is_some());
    let Some(value) = table.get("engine") else {
        let default = MixExchangeKind::Broadcast;
        return Some(oblivious.map_or(default, |_| MixEngineName::Ot.into()));
    };
    let kind = value.choice(&kinds)?;
    if let Some(name) = oblivious.filter(|_| kind == MixExchangeKind::Broadcast) {
        let what = format!("{name} with engine = \"{kind}\"");
        table.refuse(what, format!("remove {name}, or have another engine, such as \"ot\""));
        return None;
    }
    Some(kind)
}

fn read_audit_every_rounds(table: &ConfigTable<'_>, shape: &MailboxShape) -> Option<u64> {
    let is_too_large = shape.slots() > MAX_AUDIT_SLOTS;
    let Some(value) = table.get("audit_every_rounds") else {
        return Some(if is_too_large { 0 } else { AUDIT_EVERY_ROUNDS });
    };
    let rounds = value.integer_in(0..=i64::from(u32::MAX))?;
    let wrong = format!("audit_every_rounds = {rounds}");
    if (1..MIN_AUDIT_ROUNDS).contains(&rounds) {
        table.refuse(wrong, format!("give {MIN_AUDIT_ROUNDS} or more, or 0 for no audits"));
        return None;
    }
    if rounds > 0 && is_too_large {
        let fix = format!("have {MAX_AUDIT_SLOTS} slots at most, or give 0");
        table.refuse(format!("{wrong}, of {} slots", shape.slots()), fix);
        return None;
    }
    Some(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMINISTRATOR: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";

    #[test]
    fn a_group_has_defaults() {
        let text = format!(
            "identity = \"x\"\nlisten = \"[::]:6700\"\nstate = \"y\"\n[[group]]\nname = \"a\"\n\
             administrator = \"{ADMINISTRATOR}\"\n"
        );
        let config = MixProxyConfig::from_toml(&text).unwrap();
        let [group] = &config.groups[..] else { panic!("one group") };
        assert_eq!(*group.terms.shape(), MailboxShape::new(16, 1, 1, 10, 256).unwrap());
        assert_eq!(group.terms.interval(), Duration::from_secs(1));
        assert_eq!(group.terms.exchange(), MixExchangeKind::Broadcast);
        assert_eq!(group.audit_every_rounds, 0);
        assert_eq!((group.archive.keep, group.archive.keep_bytes), (KEEP, 1_000_000_000));
        let kept = |keep: &str| MixProxyConfig::from_toml(&format!("{text}keep = \"{keep}\"\n"));
        let profile = |lines: &str| MixProxyConfig::from_toml(&format!("{text}{lines}"));
        for kind in GroupProfile::ALL {
            let config = profile(&format!("profile = \"{}\"\n", kind.as_str())).unwrap();
            let terms = config.groups[0].terms;
            let expected = kind.terms(16).unwrap();
            assert_eq!((terms.interval(), terms.keep()), (expected.interval(), expected.keep()));
            assert_eq!(terms.least_interval(), expected.least_interval());
            assert_eq!(terms.shape().slot_len(), expected.shape().slot_len());
        }
        let lines = "profile = \"messenger\"\nslot_len = 512\nmin_interval_ms = 5000\n";
        let terms = profile(lines).unwrap().groups[0].terms;
        assert_eq!((terms.shape().slot_len(), terms.interval().as_secs()), (512, 5));
        assert!(profile("profile = \"pigeon\"\n").is_err());
        // What is stated is what the bytes suffice for.
        let stated = |lines: &str| profile(lines).unwrap().groups[0].terms.keep().as_secs();
        assert_eq!(stated("") / 3600, 12);
        assert_eq!(stated("members = 64\n") / 3600, 3);
        assert_eq!(stated("keep = \"1h\"\n"), 3600);
        let large = "profile = \"mail\"\nmembers = 1024\nkeep_mb = 1\n";
        assert_eq!(stated(large), 1, "less than a round, and not nothing");
        assert_eq!(stated("keep_mb = 14000\n"), KEEP.as_secs());
        assert_eq!(stated("profile = \"messenger\"\n"), KEEP.as_secs());
        assert!(kept("0s").unwrap().groups[0].terms.keep().is_zero());
        assert!(kept("2 days").is_ok() && kept("366d").is_err() && kept("week").is_err());
        let oblivious = format!("{text}engine = \"ot\"\nkeep_mb = 5\n");
        let oblivious = MixProxyConfig::from_toml(&oblivious).unwrap_err().to_string();
        assert!(oblivious.contains("keep_mb with engine"), "{oblivious}");
        let several = format!("{text}slots_per_member = 3\n");
        let several = MixProxyConfig::from_toml(&several).unwrap();
        assert_eq!(several.groups[0].terms.shape().writes(), 3, "all slots are written");
        let many = format!("{text}slots_per_member = 65\n");
        let many = MixProxyConfig::from_toml(&many).unwrap_err().to_string();
        assert!(many.contains("has 65 slots, but at most 64"), "{many}");
        for setting in OBLIVIOUS_KEYS.map(|name| format!("{name} = 2\n")) {
            let both = format!("{text}engine = \"broadcast\"\n{setting}");
            assert!(MixProxyConfig::from_toml(&both).is_err(), "{setting}");
        }
        let before = MixProxyConfig::from_toml(&format!("{text}reads = 5\n")).unwrap();
        assert_eq!(before.groups[0].terms.exchange(), MixEngineName::Ot.into());
        let text = format!("{text}engine = \"ot\"\n");
        let group = &MixProxyConfig::from_toml(&text).unwrap().groups[0];
        assert_eq!(*group.terms.shape(), MailboxShape::new(16, 2, 1, 10, 256).unwrap());
        assert_eq!(group.terms.exchange(), MixEngineName::Ot.into());
        assert_eq!(group.audit_every_rounds, 64);
        let large = format!("{text}members = 1024\nslots_per_member = 16\nslot_len = 64\n");
        assert_eq!(MixProxyConfig::from_toml(&large).unwrap().groups[0].audit_every_rounds, 0);
        let audited = |text: &str, rounds: u64| {
            let config =
                MixProxyConfig::from_toml(&format!("{text}audit_every_rounds = {rounds}\n"));
            config.map(|config| config.groups[0].audit_every_rounds).map_err(|it| it.to_string())
        };
        assert_eq!((audited(&text, 0), audited(&text, 16)), (Ok(0), Ok(16)));
        assert!(audited(&text, 15).unwrap_err().contains("give 16 or more"));
        assert!(audited(&large, 16).unwrap_err().contains("have 16384 slots at most"));
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let text = format!(
            "identity = 1\nlisten = \"x\"\n[[group]]\nname = \"a/b\"\nadministrator = \"0\"\n\
             [[group]]\nname = \"c\"\nadministrator = \"{ADMINISTRATOR}\"\nwrites = 3\n\
             interval_ms = 100\nengine = \"fast\"\n"
        );
        let problems = MixProxyConfig::from_toml(&text).unwrap_err();
        let found: Vec<String> =
            problems.iter().map(|it| format!("{}: {}", it.key, it.what)).collect();
        let expected = [
            "identity: invalid type",
            "group 1, name: a group's name has",
            "group 1, administrator: not a public key",
            "group 2: the number of slots written is 3",
            "group 2: min_interval_ms = 200",
            "group 2, engine: unknown value `fast`",
            ": `state` is missing",
        ];
        for expected in expected {
            assert!(found.iter().any(|found| found.starts_with(expected)), "{expected}: {found:?}");
        }
        assert_eq!(found.len(), expected.len(), "{found:?}");
    }
}
