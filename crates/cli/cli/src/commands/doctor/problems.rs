//! Which daemon a configuration is for, and its problems as findings.

use service::config::ConfigProblem;

use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::commands::EXAMINATIONS;
use crate::daemon::DaemonExamination;

/// All problems of a text that is meant to be a daemon's configuration, in the order of its lines.
pub(super) fn findings(daemon: &DaemonExamination, text: &str) -> Vec<CheckFinding> {
    let problems = (daemon.problems)(text);
    problems.iter().flatten().map(|problem| finding(daemon, text, problem)).collect()
}

fn finding(daemon: &DaemonExamination, text: &str, problem: &ConfigProblem) -> CheckFinding {
    let ConfigProblem { key, what, fix, .. } = problem;
    let subject = match problem.line(text) {
        Some(line) if key.is_empty() => format!("line {line}"),
        Some(line) => format!("line {line}, {key}"),
        None if key.is_empty() => "configuration".to_owned(),
        None => key.to_string(),
    };
    let fix = if problem.is_unknown_key() {
        advice(daemon, &key.table(), key.name())
    } else {
        fix.clone()
    };
    CheckFinding::new(FindingSeverity::Error, subject, what, fix)
}

/// The advice for a key that is unknown in its table.
fn advice(daemon: &DaemonExamination, table: &str, name: &str) -> String {
    let keys = daemon.keys;
    if keys.find_in_any_table(name).is_none() && keys.nearest(table, name).is_none() {
        let mut others = EXAMINATIONS.iter();
        if let Some(other) = others.find(|other| other.keys.find_in_any_table(name).is_some()) {
            let (other, own) = (other.name, daemon.name);
            return format!(
                "remove it: it is a key of sunder {other}, and this is a configuration \
                            of sunder {own}"
            );
        }
    }
    keys.unknown_key_fix(table, name)
}

#[cfg(test)]
mod tests {
    use service::config::ConfigKeys;

    use super::*;
    use crate::commands::{daemon_names, daemon_of};

    fn daemon(name: &str) -> &'static DaemonExamination {
        EXAMINATIONS.iter().find(|daemon| daemon.name == name).unwrap()
    }

    /// The mistakes in a text, each with its fix.
    fn problem_texts(daemon: &DaemonExamination, text: &str) -> Vec<String> {
        let problem_text = |finding: CheckFinding| {
            let CheckFinding { subject, message, fix, .. } = finding;
            format!("{subject}: {message} -> {}", fix.unwrap())
        };
        findings(daemon, text).into_iter().map(problem_text).collect()
    }

    /// Whether there are exactly these mistakes, each of which has all of some words.
    fn assert_problems(name: &str, text: &str, expected: &[&[&str]]) {
        let problems = problem_texts(daemon(name), text);
        assert_eq!(problems.len(), expected.len(), "{text}\n{problems:#?}");
        for (problem, words) in problems.iter().zip(expected) {
            assert!(words.iter().all(|word| problem.contains(word)), "{words:?}: {problem}");
        }
    }

    #[test]
    fn the_examples_have_no_mistakes() {
        for (name, text) in [
            ("proxy", include_str!("../proxy.toml")),
            ("serve", include_str!("../serve.toml")),
            ("tunnel", include_str!("../tunnel.toml")),
            ("tunnel", include_str!("../tunnel-server.toml")),
        ] {
            assert_problems(name, text, &[]);
        }
    }

    #[test]
    fn all_mistakes_of_a_server_are_found() {
        let text = "listen = [\"192.0.2.1:1\", \"198.51.100.1\"]\nalow = [\"localhost\", \"b:1\"]\n\
                    min_channels = 17\nrng = \"dice\"\nmax_streams = \"many\"\nkappa = 2\n";
        let expected: &[&[&str]] = &[
            &["line 1, listen 2:", "invalid socket address", "listen = [\"192.0.2.10:7000\","],
            &["line 2, alow:", "unknown key `alow`", "-> write `allow`"],
            // It is looked at as what was meant.
            &["line 2, allow 1:", "allow = \"localhost\": no port", "-> write HOST:PORT"],
            &["line 3, min_channels:", "min_channels = 17", "-> give 1 to 16"],
            &["line 4, rng:", "unknown value `dice`", "-> write one of \"seeded\" or \"os\""],
            &["line 5, max_streams:", "invalid type: string \"many\"", "max_streams = 4096"],
            &["line 6, kappa:", "unknown key `kappa`", "a key of sunder tunnel"],
        ];
        assert_problems("serve", text, expected);
    }

    #[test]
    fn all_mistakes_of_a_proxy_are_found() {
        let text = "socks = \"local\"\nthreshold = 3\n[[channel]]\nserver = \"192.0.2.1:1\"\n\
                    rng = \"os\"\n[[channel]]\nsource = \"here\"\n[pool]\nsize = 20000\nidle_s = 0\n";
        let expected: &[&[&str]] = &[
            &["line 1, socks:", "invalid socket address", "socks = \"127.0.0.1:1080\""],
            &["line 2, threshold:", "threshold = 3", "-> give 1 to the number"],
            &["line 5, channel 1, rng:", "unknown key `rng`", "above the first [["],
            &["line 6, channel 2:", "`server` is missing", "-> add server = \"192.0.2.10:7000\""],
            &["line 7, channel 2, source:", "invalid IP address"],
            &["line 9, pool, size:", "size = 20000", "-> give 0 to 10000"],
            &["line 10, pool, idle_s:", "idle_s = 0", "-> give 1 to 80"],
        ];
        assert_problems("proxy", text, expected);
    }

    #[test]
    fn mistakes_among_peers_are_found() {
        let text = "socks = \"127.0.0.1:0\"\n[[peer]]\naddresses = [\"192.0.2.1\", \"192.0.2.2\"]\n\
                    [[peer.channel]]\nserver = \"192.0.2.1:1\"\n\
                    [[peer]]\naddresses = [\"192.0.2.2\"]\nthreshold = 9\n\
                    [[peer.channel]]\nserver = \"192.0.2.2:1\"\nserver_ = 1\n\
                    [directory]\nfile = \"peers\"\nmax_age_h = 0\n\
                    [[directory.trust]]\nnetwork = \"192.0.2.0\"\nshared_key = \"a.key\"\n\
                    [[directory.trust]]\nnetwork = \"198.51.100.0/24\"\n";
        let expected: &[&[&str]] = &[
            &["line 7, peer 2, addresses:", "192.0.2.2 is given twice", "-> name each address"],
            &["line 8, peer 2, threshold:", "threshold = 9", "-> give 1 to the number"],
            &["line 11, peer 2, channel 1, server_:", "-> write `server`"],
            &["line 14, directory, max_age_h:", "max_age_h = 0", "-> give 1 to 8760"],
            &["line 16, directory, trust 1, network:", "no network", "-> write ADDRESS/PREFIX"],
            &["line 19, directory, trust 2, network:", "-> give either shared_key or public_key"],
        ];
        assert_problems("proxy", text, expected);
        let text =
            "listen = [\"192.0.2.1:1\", \"192.0.2.2:1\"]\nallow = []\n[directory]\nlisten = []\n";
        let expected: &[&[&str]] = &[
            &["line 3, directory, shared_key: something is missing", "-> give shared_key, or"],
            &["line 4, directory, listen:", "nothing to listen on", "-> give an address"],
        ];
        assert_problems("serve", text, expected);
    }

    #[test]
    fn all_mistakes_of_a_tunnel_are_found() {
        let text = "kappa = 4\nmu = \"3\"\nmtu = 100\nkey = \"key\"\ndevice = \"a/b\"\n\
                    addresses = [\"10.9.0.1/24\", \"10.9.0.2/33\"]\nroutes = [\"10.8.0.1/16\"]\n\
                    [[channel]]\nlisten = \"192.0.2.1:1\"\n\
                    [[channel]]\nlisten = \"192.0.2.2:1\"\nserver = \"192.0.2.9:1\"\nrisk = 0.5\n\
                    [[channel]]\nlisten = \"192.0.2.1:1\"\nrisk = 1.5\n";
        let expected: &[&[&str]] = &[
            &["line 1, kappa:", "kappa = 4", "-> give 1 to 3, or more channels"],
            &["line 2, mu:", "expected a number", "mu = 2.5"],
            &["line 3, mtu:", "mtu = 100", "-> give 576 to 65000"],
            &["line 5, device:", "is not the name of a device", "-> give 1 to 15 letters"],
            &["line 6, addresses 2:", "\"10.9.0.2/33\"", "-> give an address and the length"],
            &["line 7, routes 1:", "10.8.0.1/16 has host bits", "-> write 10.8.0.0/16"],
            &["line 10, channel 2:", "both `server` and `listen`", "-> give every channel"],
            &["line 14, channel 3:", "the same address", "-> give each"],
            &["line 16, channel 3, risk:", "risk = 1.5", "-> give 0 to 1"],
        ];
        assert_problems("tunnel", text, expected);
    }

    #[test]
    fn problems_of_the_whole_configuration_have_no_line() {
        let channel = "[[channel]]\nserver = \"192.0.2.1:1\"\n";
        assert_problems(
            "proxy",
            channel,
            &[&["configuration: nothing to listen on", "-> set `socks`"]],
        );
        let open =
            "kappa = 1\nmu = 1\naddresses = []\n[[channel]]\nlisten = \"192.0.2.1:1\"\nrisk = 2\n";
        let anyone = ["configuration: no channel has a `client` address", "-> give each one"];
        assert_problems("tunnel", open, &[&["line 6, channel 1, risk"], &anyone]);
        let missing = ["configuration: `allow` is missing", "-> add allow = [\"localhost:80\"]"];
        assert_problems("serve", "listen = [\"192.0.2.1:1\"]\n", &[&missing]);
        let many = format!("socks = \"127.0.0.1:0\"\npol = 1\n{}", channel.repeat(17));
        let expected: &[&[&str]] = &[
            &["line 2, pol:", "write `pool`"],
            &["line 2, pool"],
            &["17 channels", "-> give 1 to 16"],
        ];
        assert_problems("proxy", &many, expected);
    }

    #[test]
    fn what_is_not_toml_does_not_hide_the_rest() {
        let text = "socks = 127.0.0.1:1080\nrng = \"os\"\nrng = \"os\"\nthreshold = 0\n\
                    [[channel]]\nserver = \"192.0.2.1:1\"\n[[forward]]\nlisten = \"127.0.0.1:1\"\n\
                    target = \"a:1\"\n";
        let expected: &[&[&str]] = &[
            &["line 1, socks:", "is not in quotes -> write socks = \"127.0.0.1:1080\""],
            &["line 3, rng: duplicate key", "-> leave one of them"],
            &["line 4, threshold:", "threshold = 0"],
        ];
        assert_problems("proxy", text, expected);
        // What was in the line is not missed.
        let text = "listen = \nallow = [\"a:1\"]\nmin_channels = 0\n";
        assert_problems("serve", text, &[&["line 1, listen:"], &["line 3, min_channels"]]);
        for text in
            ["listen = [\n", "[[channel\nserver = 1\n", "max_streams = 99999999999999999999\n"]
        {
            assert!(!problem_texts(daemon("serve"), text).is_empty(), "{text}");
        }
    }

    #[test]
    fn configurations_of_wrong_types_have_problems() {
        let list = "channel = [1, \"a\", {}, [], { server = 1 }]\n";
        for text in [
            list,
            "channel = 1\npool = []\nforward = {}\npeer = [{}, 1]\n",
            "[[pool]]\nsize = 1\n[[pool]]\n",
            "[channel]\nserver = \"192.0.2.1:1\"\n",
            "socks = { a = { b = [[[]]] } }\n\"\" = nan\n",
        ] {
            for daemon in EXAMINATIONS {
                assert!(!problem_texts(daemon, text).is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn a_command_is_known_by_its_keys() {
        for (text, expected) in [
            (include_str!("../proxy.toml"), Some("proxy")),
            (include_str!("../serve.toml"), Some("serve")),
            (include_str!("../tunnel.toml"), Some("tunnel")),
            (include_str!("../tunnel-server.toml"), Some("tunnel")),
            ("[[channel]]\nserver = \"192.0.2.1:1\"\n", Some("proxy")),
            ("[[channel]]\nserver = \"192.0.2.1:1\"\nrisk = 0.1\n", Some("tunnel")),
            ("rng = \"os\"\n", Some("proxy")),
            ("listen = []\n", Some("serve")),
            // Misspelt keys are keys, and so are those of a text that is not quite TOML.
            ("alow = []\nlisen = []\n", Some("serve")),
            ("kappa = \nmu = 2\n", Some("tunnel")),
            ("", None),
            ("something = \"else\"\n", None),
        ] {
            assert_eq!(daemon_of(text).map(|daemon| daemon.name), expected, "{text}");
        }
        assert_eq!(daemon_names(), "sunder serve, proxy, tunnel, quorum or mix");
    }

    /// The heads of a table and of those around it.
    fn heads(keys: ConfigKeys, table: &str) -> String {
        let depths = table.match_indices('.').map(|(end, _)| &table[..end]);
        let tables = depths.chain([table]).filter(|table| !table.is_empty());
        tables.map(|table| keys.table_header(table) + "\n").collect()
    }

    #[test]
    fn every_key_is_read() {
        // No key takes a date, and to read a key that is not among these panics.
        for daemon in EXAMINATIONS {
            for key in daemon.keys.iter() {
                let text = format!("{}{} = 1979-05-27\n", heads(daemon.keys, key.table), key.name);
                let problems = (daemon.problems)(&text).unwrap();
                let mut about = problems.iter().filter(|problem| problem.key.name() == key.name);
                assert!(about.any(|problem| problem.what.starts_with("invalid type")), "{text}");
            }
        }
    }

    #[test]
    fn examples_are_values() {
        for key in EXAMINATIONS.iter().flat_map(|daemon| daemon.keys.iter()) {
            let text = format!("x = {}", key.example);
            assert!(text.parse::<toml::Table>().is_ok(), "{text}");
        }
        let written = |name| daemon("proxy").keys.find("", name).unwrap().example_setting();
        assert_eq!(written("threshold"), "threshold = 2");
        assert_eq!(written("pool"), "[pool] with size = 4");
        assert_eq!(written("channel"), "[[channel]] with server = \"192.0.2.10:7000\"");
    }

    #[test]
    fn a_misspelt_key_is_recognised() {
        for (command, table, name, expected) in [
            ("serve", "", "alow", "write `allow`"),
            ("serve", "", "listens", "write `listen`"),
            ("proxy", "", "max-streams", "write `max_streams`"),
            ("proxy", "", "treshold", "write `threshold`"),
            ("proxy", "channel", "sorce", "write `source`"),
            ("proxy", "channel", "rng", "put it above the first [[...]]"),
            ("proxy", "", "server", "put it below a [[channel]]"),
            ("proxy", "", "idle_s", "put it below a [pool]"),
            (
                "proxy",
                "",
                "kappa",
                "it is a key of sunder tunnel, and this is a configuration of \
                                    sunder proxy",
            ),
            ("proxy", "pool", "colour", "remove it; the keys here are size, keep, idle_s"),
        ] {
            let fix = advice(daemon(command), table, name);
            assert!(fix.contains(expected), "{name}: {fix}");
        }
    }
}
