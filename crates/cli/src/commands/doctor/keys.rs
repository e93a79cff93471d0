//! The keys that configurations may have, with an example of each.

use strsim::damerau_levenshtein;

use super::kind::Kind;

/// A key of a configuration.
pub(crate) struct Key {
    /// The tables that it stands in, as in `peer.channel`; empty for the outermost.
    table: &'static str,
    pub(crate) name: &'static str,
    /// A value for it, as TOML.
    pub(crate) example: &'static str,
}

const fn key(table: &'static str, name: &'static str, example: &'static str) -> Key {
    Key { table, name, example }
}

const PROXY: &[Key] = &[
    key("", "socks", "\"127.0.0.1:1080\""),
    key("", "forward", "[{ listen = \"127.0.0.1:8080\", target = \"localhost:80\" }]"),
    key("forward", "listen", "\"127.0.0.1:8080\""),
    key("forward", "target", "\"localhost:80\""),
    key("", "intercept", "\"tcp dport { 80, 443 }\""),
    key("", "intercept_port", "522"),
    key("", "intercept_from", "[\"eth0\"]"),
    key("", "channel", "[{ server = \"192.0.2.10:7000\" }]"),
    key("channel", "server", "\"192.0.2.10:7000\""),
    key("channel", "source", "\"192.0.2.20\""),
    key("channel", "device", "\"wlan0\""),
    key("", "threshold", "2"),
    key(
        "",
        "peer",
        "[{ addresses = [\"203.0.113.1\"], channel = [{ server = \"203.0.113.1:7000\" }] }]",
    ),
    key("peer", "addresses", "[\"203.0.113.1\"]"),
    key("peer", "channel", "[{ server = \"203.0.113.1:7000\" }]"),
    key("peer", "threshold", "2"),
    key("peer.channel", "server", "\"203.0.113.1:7000\""),
    key("peer.channel", "source", "\"192.0.2.20\""),
    key("peer.channel", "device", "\"wlan0\""),
    key("", "directory", "{ file = \"/var/lib/sunder/proxy-office/peers\" }"),
    key("directory", "file", "\"/var/lib/sunder/proxy-office/peers\""),
    key("directory", "port", "6523"),
    key("directory", "max_age_h", "24"),
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
    key("", "uplink", "[{ device = \"wlan0\" }]"),
    key("uplink", "source", "\"192.0.2.20\""),
    key("uplink", "device", "\"wlan0\""),
    key("", "integrity", "\"tamper-code\""),
    key("", "rng", "\"seeded\""),
    key("", "max_streams", "4096"),
    key("", "on_lost_channel", "\"fail\""),
    key("", "lost_channel_timeout_s", "90"),
    key("", "pool", "{ size = 4 }"),
    key("pool", "size", "4"),
    key("pool", "keep", "64"),
    key("pool", "idle_s", "60"),
];

const SERVE: &[Key] = &[
    key("", "listen", "[\"192.0.2.10:7000\", \"198.51.100.10:7000\"]"),
    key("", "allow", "[\"localhost:80\"]"),
    key("", "min_channels", "2"),
    key("", "integrity", "\"tamper-code\""),
    key("", "rng", "\"seeded\""),
    key("", "max_streams", "4096"),
    key("", "lost_channel_timeout_s", "90"),
    key("", "max_channels", "3"),
    key("", "max_waiting", "8192"),
    key("", "max_memory_mib", "512"),
    key("", "directory", "{ listen = [\"192.0.2.10:6523\"], shared_key = \"office/peers.key\" }"),
    key("directory", "listen", "[\"192.0.2.10:6523\"]"),
    key("directory", "addresses", "[\"192.0.2.10:7000\", \"198.51.100.10:7000\"]"),
    key("directory", "shared_key", "\"office/peers.key\""),
    key("directory", "secret_key", "\"office/own.key\""),
];

const TUNNEL: &[Key] = &[
    key("", "kappa", "2"),
    key("", "mu", "2.5"),
    key("", "addresses", "[\"10.9.0.2/24\"]"),
    key("", "routes", "[\"10.8.0.0/16\"]"),
    key("", "allowed", "[\"10.9.0.0/24\"]"),
    key("", "key", "\"tunnel.key\""),
    key("", "objective", "\"privacy\""),
    key("", "scheduler", "\"planned\""),
    key("", "min_threshold", "2"),
    key("", "min_channels", "2"),
    key("", "tamper_code", "true"),
    key("", "rng", "\"seeded\""),
    key("", "order", "\"auto\""),
    key("", "reassembly_mib", "16"),
    key("", "roaming", "true"),
    key("", "device", "\"sunder0\""),
    key("", "mtu", "1400"),
    key("", "channel", "[{ server = \"192.0.2.10:6521\" }]"),
    key("channel", "server", "\"192.0.2.10:6521\""),
    key("channel", "source", "\"192.0.2.20\""),
    key("channel", "listen", "\"192.0.2.10:6521\""),
    key("channel", "client", "\"192.0.2.20\""),
    key("channel", "device", "\"wlan0\""),
    key("channel", "risk", "0.2"),
    key("channel", "rate_mbit", "50"),
];

/// All keys of a command's configuration.
fn all(kind: Kind) -> &'static [Key] {
    match kind {
        Kind::Proxy => PROXY,
        Kind::Serve => SERVE,
        Kind::Tunnel => TUNNEL,
    }
}

/// The key of this name in a table.
pub(crate) fn known(kind: Kind, table: &str, name: &str) -> Option<&'static Key> {
    all(kind).iter().find(|key| key.table == table && key.name == name)
}

/// The key of this name in any table, the outermost first.
pub(crate) fn known_anywhere(kind: Kind, name: &str) -> Option<&'static Key> {
    known(kind, "", name).or_else(|| all(kind).iter().find(|key| key.name == name))
}

/// How much a key speaks for a command.
pub(crate) fn likeness(kind: Kind, table: &str, name: &str) -> usize {
    match known(kind, table, name) {
        Some(_) => 4,
        None => usize::from(nearest(kind, table, name).is_some()),
    }
}

impl Key {
    /// How to write it.
    pub(crate) fn written(&self) -> String {
        let Self { name, example, .. } = self;
        let within = |open, close| example.strip_prefix(open)?.strip_suffix(close);
        match (within("[{ ", " }]"), within("{ ", " }")) {
            (Some(inner), _) => format!("[[{name}]] with {inner}"),
            (None, Some(inner)) => format!("[{name}] with {inner}"),
            (None, None) => format!("{name} = {example}"),
        }
    }

    /// The head of the table that it stands in.
    fn head(&self, kind: Kind) -> String {
        let table = self.table;
        let (around, last) = table.rsplit_once('.').unwrap_or(("", table));
        let is_list = known(kind, around, last).is_some_and(|key| key.example.starts_with("[{"));
        if is_list { format!("[[{table}]]") } else { format!("[{table}]") }
    }
}

/// What to do about a key that is unknown where it stands.
pub(crate) struct Advice {
    /// For the person.
    pub(crate) fix: String,
    /// The key that was probably meant.
    pub(crate) meant: Option<&'static Key>,
}

/// What to do about a key that is unknown where it stands.
pub(crate) fn advice(kind: Kind, table: &str, name: &str) -> Advice {
    let only = |fix| Advice { fix, meant: None };
    let here = |key: &&Key| key.table == table;
    if let Some(elsewhere) = known_anywhere(kind, name) {
        return only(if elsewhere.table.is_empty() {
            "put it above the first [[...]]: it is a setting of the whole".to_owned()
        } else {
            format!("put it below a {}", elsewhere.head(kind))
        });
    }
    if let Some(meant) = nearest(kind, table, name) {
        return Advice { fix: format!("write `{}`", meant.name), meant: Some(meant) };
    }
    let others = [Kind::Proxy, Kind::Serve, Kind::Tunnel].into_iter();
    let mut others = others.filter(|other| known_anywhere(*other, name).is_some());
    if let Some(other) = others.next() {
        return only(format!("take it out: it is a key of sunder {other}, and this is {kind}'s"));
    }
    let names: Vec<&str> = all(kind).iter().filter(here).map(|key| key.name).collect();
    only(format!("take it out; what can stand here: {}", names.join(", ")))
}

/// The key of a table that a misspelt one is most like, if it is like any.
fn nearest(kind: Kind, table: &str, name: &str) -> Option<&'static Key> {
    let distance = |key: &&Key| damerau_levenshtein(key.name, name);
    let here = all(kind).iter().filter(|key| key.table == table);
    let is_near =
        |key: &&Key| distance(key) <= 1 + name.len() / 5 && distance(key) < key.name.len();
    here.filter(is_near).min_by_key(distance)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_of_the_commands_is_here_and_no_other() {
        for kind in [Kind::Proxy, Kind::Serve, Kind::Tunnel] {
            let tables: BTreeSet<&str> = all(kind).iter().map(|key| key.table).collect();
            for table in tables {
                let here = all(kind).iter().filter(|key| key.table == table);
                let here: BTreeSet<&str> = here.map(|key| key.name).collect();
                // Whoever reads it names what it knows.
                let refusal = kind.refusal(&format!("{}\"?\" = 0\n", heads(kind, table))).unwrap();
                let names = refusal.message.split('`').skip(3).step_by(2);
                assert_eq!(names.collect::<BTreeSet<_>>(), here, "{kind}, [{table}]: {refusal:?}");
            }
        }
    }

    /// The heads of a table and of those around it.
    fn heads(kind: Kind, table: &str) -> String {
        let depths = table.match_indices('.').map(|(end, _)| &table[..end]);
        let tables = depths.chain([table]).filter(|table| !table.is_empty());
        let head =
            |table| all(kind).iter().find(|key| key.table == table).unwrap().head(kind) + "\n";
        tables.map(head).collect()
    }

    #[test]
    fn examples_are_values() {
        for key in [PROXY, SERVE, TUNNEL].into_iter().flatten() {
            let text = format!("x = {}", key.example);
            assert!(text.parse::<toml::Table>().is_ok(), "{text}");
        }
        let written = |kind, name| known(kind, "", name).unwrap().written();
        assert_eq!(written(Kind::Proxy, "threshold"), "threshold = 2");
        assert_eq!(written(Kind::Proxy, "pool"), "[pool] with size = 4");
        let channel = "[[channel]] with server = \"192.0.2.10:7000\"";
        assert_eq!(written(Kind::Proxy, "channel"), channel);
    }

    #[test]
    fn a_misspelt_key_is_recognised() {
        for (kind, table, name, expected) in [
            (Kind::Serve, "", "alow", "write `allow`"),
            (Kind::Serve, "", "listens", "write `listen`"),
            (Kind::Proxy, "", "max-streams", "write `max_streams`"),
            (Kind::Proxy, "", "treshold", "write `threshold`"),
            (Kind::Proxy, "channel", "sorce", "write `source`"),
            (Kind::Proxy, "channel", "rng", "put it above the first [[...]]"),
            (Kind::Proxy, "", "server", "put it below a [[channel]]"),
            (Kind::Proxy, "", "idle_s", "put it below a [pool]"),
            (Kind::Proxy, "", "kappa", "it is a key of sunder tunnel, and this is proxy's"),
            (Kind::Proxy, "pool", "colour", "take it out; what can stand here: size, keep, idle_s"),
        ] {
            let fix = advice(kind, table, name).fix;
            assert!(fix.contains(expected), "{name}: {fix}");
        }
    }
}
