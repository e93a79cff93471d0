//! The keys that configurations may have, with an example of each.

use service::config::{Key, Keys, key};

use super::Kind;

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

/// All keys of a command's configuration.
pub(crate) fn all(kind: Kind) -> Keys {
    match kind {
        Kind::Proxy => Keys(&[PROXY]),
        Kind::Serve => Keys(&[SERVE]),
        Kind::Tunnel => remicss::config::KEYS,
    }
}

/// What to do about a key that is unknown where it stands.
pub(crate) fn advice(kind: Kind, table: &str, name: &str) -> String {
    let keys = all(kind);
    if keys.known_anywhere(name).is_none() && keys.nearest(table, name).is_none() {
        let others = [Kind::Proxy, Kind::Serve, Kind::Tunnel].into_iter();
        let mut others = others.filter(|other| all(*other).known_anywhere(name).is_some());
        if let Some(other) = others.next() {
            return format!("take it out: it is a key of sunder {other}, and this is {kind}'s");
        }
    }
    keys.advice(table, name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_of_the_commands_is_here_and_no_other() {
        for kind in [Kind::Proxy, Kind::Serve] {
            let tables: BTreeSet<&str> = all(kind).iter().map(|key| key.table).collect();
            for table in tables {
                let here: BTreeSet<&str> = all(kind).names(table).into_iter().collect();
                // Whoever reads it names what it knows.
                let refusal = kind.refusal(&format!("{}\"?\" = 0\n", heads(kind, table))).unwrap();
                let names = refusal.message.split('`').skip(3).step_by(2);
                assert_eq!(names.collect::<BTreeSet<_>>(), here, "{kind}, [{table}]: {refusal:?}");
            }
        }
    }

    #[test]
    fn every_key_of_a_tunnel_is_read() {
        // No key takes a date, and whoever reads a key that is not among these panics.
        for key in all(Kind::Tunnel).iter() {
            let text = format!("{}{} = 1979-05-27\n", heads(Kind::Tunnel, key.table), key.name);
            let problems = remicss::config::Config::from_toml(&text).unwrap_err();
            let mut about = problems.iter().filter(|problem| problem.key.name() == key.name);
            assert!(about.any(|problem| problem.what.starts_with("invalid type")), "{text}");
        }
    }

    /// The heads of a table and of those around it.
    fn heads(kind: Kind, table: &str) -> String {
        let depths = table.match_indices('.').map(|(end, _)| &table[..end]);
        let tables = depths.chain([table]).filter(|table| !table.is_empty());
        tables.map(|table| all(kind).head(table) + "\n").collect()
    }

    #[test]
    fn examples_are_values() {
        for key in
            [Kind::Proxy, Kind::Serve, Kind::Tunnel].into_iter().flat_map(|kind| all(kind).iter())
        {
            let text = format!("x = {}", key.example);
            assert!(text.parse::<toml::Table>().is_ok(), "{text}");
        }
        let written = |kind, name| all(kind).known("", name).unwrap().written();
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
            let fix = advice(kind, table, name);
            assert!(fix.contains(expected), "{name}: {fix}");
        }
    }
}
