//! The configuration of a chat.

use std::path::PathBuf;

use keys::IdentityPublicKey;
use service::config::{ConfigKey, ConfigKeys, ConfigProblems, ConfigTable, key, read};
use transport::TransportChoice;

use crate::protocol::client::{AcceptableTerms, MAX_BYTES_PER_DAY, MAX_TERMS_CHANGE};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::{GroupAddress, MemberName};
use crate::protocol::wire::GroupName;

/// The keys of the configuration.
pub const KEYS: ConfigKeys = ConfigKeys(&[CHAT_KEYS]);

const CHAT_KEYS: &[ConfigKey] = &[
    key("", "identity", "\"alice.key\""),
    key("", "name", "\"alice\""),
    key("", "proxy", "\"mix.example:6700\""),
    key("", "proxy_key", "\"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\""),
    key("", "group", "\"friends\""),
    key(
        "",
        "administrator",
        "\"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\"",
    ),
    key("", "state", "\"alice.state\""),
    key("", "transport", "\"tcp\""),
    key("", "least_anonymity", "3"),
    key("", "history", "false"),
    key("", "stay", "100"),
    key("", "socks", "\"127.0.0.1:9050\""),
    key("", "files", "\"received\""),
    key("", "engine", "\"broadcast\""),
    key("", "rounds_kept", "true"),
    key("", "max_mb_per_day", "200000"),
    key("", "max_terms_change", "20"),
];

/// The default of `least_anonymity`. With two participants, the proxy would know that each is the
/// other's only partner.
const LEAST_ANONYMITY: usize = 3;

/// The default of `stay`. In a group of 100 members that read 10 slots each, a message is read
/// within 26 rounds, and so is its acknowledgement. Nearly all messages are delivered in 100
/// rounds, even if rounds are lost.
const STAY: u64 = 100;

/// The largest value of `max_mb_per_day`, more than any terms cost.
const MAX_MAX_MB_PER_DAY: i64 = 1_000_000_000_000;

/// The settings of a chat. Paths are relative to the configuration unless absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatConfig {
    /// The directory of the configuration.
    pub config_dir: PathBuf,
    /// The file of the identity key.
    pub identity: PathBuf,
    /// The member's own name.
    pub name: MemberName,
    /// The proxy's address: `HOST:PORT`, or several, for `micss`, separated by commas.
    pub proxy: String,
    /// The proxy's key.
    pub proxy_key: IdentityPublicKey,
    /// The group's name.
    pub group: GroupName,
    /// The administrator's key, which may be this member's own.
    pub administrator: IdentityPublicKey,
    /// The directory of the state.
    pub state: PathBuf,
    /// The transport to the proxy.
    pub transport: TransportChoice,
    /// The least number of participants with which a message is sent.
    pub least_anonymity: usize,
    /// Whether a history of messages is stored, encrypted, in the state directory.
    pub history: bool,
    /// The number of rounds with enough participants for which the member stays after
    /// [`super::ChatCommand::Finish`], whether or not its messages have arrived.
    pub stay: u64,
    /// The address `HOST:PORT` of a SOCKS5 proxy, such as Tor's, through which to connect.
    pub socks: Option<String>,
    /// The directory in which files of other members are saved.
    pub files: PathBuf,
    /// The terms of the proxy that the member accepts.
    pub terms: AcceptableTerms,
}

impl ChatConfig {
    /// The group's address.
    pub fn address(&self) -> GroupAddress {
        GroupAddress {
            proxy_address: self.proxy.clone(),
            proxy: self.proxy_key,
            group: self.group.clone(),
            administrator: self.administrator,
        }
    }

    /// Reads a configuration. Its `config_dir` is empty.
    ///
    /// # Errors
    /// All problems of the configuration, if it is not valid.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read(text, KEYS, |table| {
            let text = |name: &str| table.require(name).and_then(|value| value.text());
            let key = |name: &str| table.require(name).and_then(|value| value.parsed());
            let (identity, proxy) = (text("identity"), text("proxy"));
            let name = table.require("name").and_then(|value| {
                let name = MemberName::new(value.text()?);
                name.map_err(|error| value.refuse(error.to_string(), "as in: name = \"alice\""))
                    .ok()
            });
            let (proxy_key, administrator) = (key("proxy_key"), key("administrator"));
            let group = table.require("group").and_then(|value| value.parsed());
            let state = text("state");
            let socks = table.get("socks").map(|value| {
                let address = value.text()?;
                if GroupAddress::is_single_address(address) {
                    return Some(address.to_owned());
                }
                let fix = "as in: socks = \"127.0.0.1:9050\", without a user and a password";
                value.refuse("no address", fix);
                None
            });
            let has_socks = socks.is_some();
            let transport = match table.get("transport") {
                // Several addresses select MICSS by default.
                None if proxy.is_some_and(|proxy| proxy.contains(',')) => {
                    Some(TransportChoice::Auto)
                }
                None => Some(TransportChoice::Named("tcp")),
                Some(value) => value.parsed(),
            };
            let is_tcp = transport == Some(TransportChoice::Named("tcp"));
            if has_socks && transport.is_some() && !is_tcp {
                let fix = "remove socks, or give one address in proxy and transport = \"tcp\"";
                table.refuse("socks", fix);
            }
            let least_anonymity = match table.get("least_anonymity") {
                None => Some(LEAST_ANONYMITY),
                Some(value) => value.integer_in(2..=1024),
            };
            let history = match table.get("history") {
                None => Some(false),
                Some(value) => value.flag(),
            };
            let stay = match table.get("stay") {
                None => Some(STAY),
                Some(value) => value.integer_in(1..=1_000_000),
            };
            let files = match table.get("files") {
                None => Some("received"),
                Some(value) => value.text(),
            };
            let terms = read_terms(table);
            let socks = match socks {
                None => None,
                Some(socks) => Some(socks?),
            };
            Some(Self {
                config_dir: PathBuf::new(),
                identity: identity?.into(),
                name: name?,
                proxy: proxy?.to_owned(),
                proxy_key: proxy_key?,
                group: group?,
                administrator: administrator?,
                state: state?.into(),
                transport: transport?,
                least_anonymity: least_anonymity?,
                history: history?,
                stay: stay?,
                socks,
                files: files?.into(),
                terms: terms?,
            })
        })
    }
}

fn read_terms(table: &ConfigTable<'_>) -> Option<AcceptableTerms> {
    let kinds = MixExchangeKind::ALL.map(|kind| (kind.as_str(), kind));
    let exchange = match table.get("engine") {
        None => Some(None),
        Some(value) => value.choice(&kinds).map(Some),
    };
    let rounds_kept = match table.get("rounds_kept") {
        None => Some(None),
        Some(value) => value.flag().map(Some),
    };
    let max_mb_per_day = match table.get("max_mb_per_day") {
        None => Some(MAX_BYTES_PER_DAY / 1_000_000),
        Some(value) => value.integer_in(1..=MAX_MAX_MB_PER_DAY),
    };
    let max_change = match table.get("max_terms_change") {
        None => Some(MAX_TERMS_CHANGE),
        Some(value) => value.integer_in(1..=i64::from(u32::MAX)),
    };
    Some(AcceptableTerms {
        exchange: exchange?,
        rounds_kept: rounds_kept?,
        max_bytes_per_day: max_mb_per_day? * 1_000_000,
        max_change: max_change?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::engine::MixEngineName;

    #[test]
    fn all_problems_are_found_at_once() {
        let key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        let right = format!(
            "identity = \"a.key\"\nname = \"alice\"\nproxy = \"127.0.0.1:1,127.0.0.2:1\"\n\
             proxy_key = \"{key}\"\nadministrator = \"{key}\"\ngroup = \"friends\"\n\
             state = \"a.state\"\n"
        );
        let config = ChatConfig::from_toml(&right).unwrap();
        assert_eq!((config.least_anonymity, config.history, config.stay), (3, false, 100));
        assert_eq!((&config.socks, &*config.files), (&None, std::path::Path::new("received")));
        // Through a SOCKS proxy, only TCP to one address.
        let single = right.replace(",127.0.0.2:1", "");
        let socks = format!("{single}socks = \"127.0.0.1:9050\"\nfiles = \"in\"\n");
        let config = ChatConfig::from_toml(&socks).unwrap();
        assert_eq!(config.socks.as_deref(), Some("127.0.0.1:9050"));
        for wrong in [
            format!("{right}socks = \"127.0.0.1:9050\"\n"),
            format!("{socks}transport = \"quic\"\n"),
            format!("{single}socks = \"9050\"\n"),
            format!("{single}socks = \"me:secret@127.0.0.1:9050\"\n"),
        ] {
            let problems = ChatConfig::from_toml(&wrong).unwrap_err();
            assert_eq!(problems.iter().count(), 1, "{wrong}");
        }
        assert_eq!(config.terms, AcceptableTerms::default());
        let terms = format!("{right}engine = \"ot\"\nrounds_kept = false\nmax_mb_per_day = 5\n");
        let terms = format!("{terms}max_terms_change = 300\n");
        let expected = AcceptableTerms {
            exchange: Some(MixEngineName::Ot.into()),
            rounds_kept: Some(false),
            max_bytes_per_day: 5_000_000,
            max_change: 300,
        };
        assert_eq!(ChatConfig::from_toml(&terms).unwrap().terms, expected);
        let wrong = right.replace("friends", "a b")
            + "transport = \"pigeon\"\nleast_anonymity = 1\nhistory = \"no\"\nstay = 0\n\
               engine = \"steam\"\nrounds_kept = 1\nmax_mb_per_day = 0\n\
               max_terms_change = 0\n";
        let problems = ChatConfig::from_toml(&wrong).unwrap_err();
        let found: Vec<String> = problems.iter().map(|problem| problem.key.to_string()).collect();
        assert_eq!(found[..5], ["group", "transport", "least_anonymity", "history", "stay"]);
        let terms = ["engine", "rounds_kept", "max_mb_per_day", "max_terms_change"];
        assert_eq!(found[5..], terms);
    }
}
