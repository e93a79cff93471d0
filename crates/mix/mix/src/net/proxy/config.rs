//! The configuration of a proxy.

use std::path::PathBuf;
use std::time::Duration;

use keys::IdentityPublicKey;
use service::config::{ConfigKey, ConfigKeys, ConfigProblems, ConfigTable, key, read};

use crate::protocol::engine::MixEngineName;
use crate::protocol::group::MIN_AUDIT_ROUNDS;
use crate::protocol::wire::{GroupName, MixTerms};
use crate::{MAX_AUDIT_SLOTS, MailboxShape};

/// The keys of the configuration.
pub const KEYS: ConfigKeys = ConfigKeys(&[PROXY_KEYS]);

const PROXY_KEYS: &[ConfigKey] = &[
    key("", "identity", "\"office/identity.key\""),
    key("", "listen", "\"0.0.0.0:6700\""),
    key("", "state", "\"/var/lib/sunder/mix-office\""),
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
    key("group", "members", "16"),
    key("group", "slots_per_member", "2"),
    key("group", "writes", "1"),
    key("group", "reads", "10"),
    key("group", "slot_len", "256"),
    key("group", "interval_ms", "1000"),
    key("group", "min_interval_ms", "200"),
    key("group", "engine", "\"ot\""),
    key("group", "audit_every_rounds", "64"),
];

/// With this default, audits cost less than a hundredth of the rounds.
const AUDIT_EVERY_ROUNDS: u64 = 64;

/// Longer rounds would be useless for a chat.
const MAX_INTERVAL_MS: i64 = 60_000;

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
    let slots_per_member = number("slots_per_member", 2, 1024);
    let writes = number("writes", 1, 1024);
    let reads = number("reads", 10, 64);
    let slot_len = number("slot_len", 256, 4096);
    let interval_ms = milliseconds("interval_ms", 1000);
    let min_interval_ms = milliseconds("min_interval_ms", 200);
    let engines = MixEngineName::ALL.map(|engine| (engine.as_str(), engine));
    let engine = match table.get("engine") {
        None => Some(MixEngineName::Ot),
        Some(value) => value.choice(&engines),
    };
    let shape = MailboxShape::new(members?, slots_per_member?, writes?, reads?, slot_len?);
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
    let terms = MixTerms::new(
        engine?,
        shape.ok()?,
        Duration::from_millis(interval),
        Duration::from_millis(least),
    );
    let terms = terms.map_err(|error| {
        table.refuse(error.to_string(), "have fewer or shorter slots, or engine = \"ot\"");
    });
    let terms = terms.ok()?;
    let audit_every_rounds = read_audit_every_rounds(table, terms.shape())?;
    Some(MixGroupConfig { name: name?, administrator: administrator?, terms, audit_every_rounds })
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
        assert_eq!(*group.terms.shape(), MailboxShape::new(16, 2, 1, 10, 256).unwrap());
        assert_eq!(group.terms.interval(), Duration::from_secs(1));
        assert_eq!(group.terms.engine(), MixEngineName::Ot);
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
