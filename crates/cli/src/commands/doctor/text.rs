//! Every mistake in the text of a configuration.

use std::collections::BTreeSet;

use remicss::config::Config;
use service::config::Problem;
use toml::Table;
use toml::de::{DeTable, Error};

use super::Kind;
use super::finding::{Finding, Level};
use super::keys;
use super::mistake::Mistake;
use super::repair::Repair;

/// All that is wrong in a text that is meant to be a command's configuration, in the order of its lines.
pub(crate) fn mistakes(kind: Kind, text: &str) -> Vec<Finding> {
    if kind == Kind::Tunnel {
        let problems = Config::from_toml(text).err().into_iter().flatten();
        return problems.map(|problem| finding(kind, text, &problem)).collect();
    }
    let (mut found, rest) = syntax(kind, text);
    if let Some(Rest { text, lost }) = rest
        && let Some(repair) = Repair::new(kind, &text, lost)
    {
        found.extend(repair.run());
    }
    // What has no line is about the whole, and comes last.
    found.sort_by_key(|Mistake { line, .. }| line.unwrap_or(usize::MAX));
    found.into_iter().map(|mistake| mistake.finding).collect()
}

/// A problem, as it is shown.
fn finding(kind: Kind, text: &str, problem: &Problem) -> Finding {
    let Problem { key, what, fix, .. } = problem;
    let subject = match problem.line(text) {
        Some(line) if key.is_empty() => format!("line {line}"),
        Some(line) => format!("line {line}, {key}"),
        None if key.is_empty() => "configuration".to_owned(),
        None => key.to_string(),
    };
    let fix = if problem.is_unknown_key() {
        keys::advice(kind, &key.table(), key.name())
    } else {
        fix.clone()
    };
    Finding::new(Level::Error, subject, what, fix)
}

/// A text without the lines that are not TOML.
struct Rest {
    text: String,
    /// The keys in those lines.
    lost: Vec<String>,
}

/// What is not TOML; and the rest, if something can be said of that.
fn syntax(kind: Kind, text: &str) -> (Vec<Mistake>, Option<Rest>) {
    let (_, mut errors) = DeTable::parse_recoverable(text);
    // Numbers that are too large for TOML are found only when they are read.
    errors.extend(text.parse::<Table>().err().filter(|_| errors.is_empty()));
    let mut lines: Vec<&str> = text.lines().collect();
    let (mut mistakes, mut lost) = (Vec::new(), Vec::new());
    let mut wrong = BTreeSet::new();
    for error in &errors {
        let line = line_of(error, text).min(lines.len());
        // What comes after the first in a line is what comes of it.
        if wrong.insert(line) {
            let key = key_in(lines.get(line.wrapping_sub(1)).copied().unwrap_or_default());
            mistakes.push(mistake(kind, line, key, error));
            lost.push(key.to_owned());
        }
    }
    // What stands below a head that is none is anybody's guess.
    let has_lost_head = lost.iter().any(|key| key.starts_with('['));
    for line in wrong {
        if let Some(line) = lines.get_mut(line.wrapping_sub(1)) {
            *line = "";
        }
    }
    let text = lines.join("\n") + "\n";
    let is_rest = !has_lost_head && text.parse::<Table>().is_ok();
    (mistakes, is_rest.then_some(Rest { text, lost }))
}

fn line_of(error: &Error, text: &str) -> usize {
    let start = error.span().unwrap_or_default().start;
    1 + text.get(..start).unwrap_or(text).matches('\n').count()
}

/// The key that a line gives a value, or what the line has in its place.
fn key_in(line: &str) -> &str {
    line.split_once('=').map_or(line, |(key, _)| key).trim()
}

fn mistake(kind: Kind, line: usize, key: &str, error: &Error) -> Mistake {
    let message = error.message().replace('\n', " ");
    let fix = match keys::all(kind).known_anywhere(key) {
        _ if message.starts_with("duplicate key") => "leave one of them".to_owned(),
        Some(key) => format!("write it as in: {}", key.written()),
        None => "write KEY = VALUE, with texts in \"quotes\" and lists in [brackets]".to_owned(),
    };
    let subject =
        if key.is_empty() { format!("line {line}") } else { format!("line {line}, {key}") };
    Mistake { line: Some(line), finding: Finding::new(Level::Error, subject, message, fix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mistakes in a text, each with its fix.
    fn said(kind: Kind, text: &str) -> Vec<String> {
        let said = |finding: Finding| {
            let Finding { subject, message, fix, .. } = finding;
            format!("{subject}: {message} -> {}", fix.unwrap())
        };
        mistakes(kind, text).into_iter().map(said).collect()
    }

    /// Whether there are exactly these mistakes, each of which has all of some words.
    fn assert_said(kind: Kind, text: &str, expected: &[&[&str]]) {
        let said = said(kind, text);
        assert_eq!(said.len(), expected.len(), "{text}\n{said:#?}");
        for (said, words) in said.iter().zip(expected) {
            assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        }
    }

    #[test]
    fn the_examples_have_no_mistakes() {
        for (kind, text) in [
            (Kind::Proxy, include_str!("../proxy.toml")),
            (Kind::Serve, include_str!("../serve.toml")),
            (Kind::Tunnel, include_str!("../tunnel.toml")),
            (Kind::Tunnel, include_str!("../tunnel-server.toml")),
        ] {
            assert_said(kind, text, &[]);
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
        assert_said(Kind::Serve, text, expected);
    }

    #[test]
    fn all_mistakes_of_a_proxy_are_found() {
        let text = "socks = \"local\"\nthreshold = 3\n[[channel]]\nserver = \"192.0.2.1:1\"\n\
                    rng = \"os\"\n[[channel]]\nsource = \"here\"\n[pool]\nsize = 20000\nidle_s = 0\n";
        let expected: &[&[&str]] = &[
            &["line 1, socks:", "invalid socket address", "socks = \"127.0.0.1:1080\""],
            &["line 2, threshold:", "threshold = 3", "-> give 1 to as many"],
            &["line 5, channel 1, rng:", "unknown key `rng`", "above the first [["],
            &["line 6, channel 2:", "`server` is missing", "-> add server = \"192.0.2.10:7000\""],
            &["line 7, channel 2, source:", "invalid IP address"],
            &["line 9, pool, size:", "size = 20000", "-> give 0 to 10000"],
            &["line 10, pool, idle_s:", "idle_s = 0", "-> give 1 to 80"],
        ];
        assert_said(Kind::Proxy, text, expected);
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
            &["line 8, peer 2, threshold:", "threshold = 9", "-> give 1 to as many"],
            &["line 11, peer 2, channel 1, server_:", "-> write `server`"],
            &["line 14, directory, max_age_h:", "max_age_h = 0", "-> give 1 to 8760"],
            &["line 16, directory, trust 1, network:", "no network", "-> write ADDRESS/PREFIX"],
            &["line 19, directory, trust 2, network:", "-> give either shared_key or public_key"],
        ];
        assert_said(Kind::Proxy, text, expected);
        let text =
            "listen = [\"192.0.2.1:1\", \"192.0.2.2:1\"]\nallow = []\n[directory]\nlisten = []\n";
        let expected: &[&[&str]] = &[
            &["line 3, directory, shared_key: something is missing", "-> give shared_key, or"],
            &["line 4, directory, listen:", "nothing to listen on", "-> give an address"],
        ];
        assert_said(Kind::Serve, text, expected);
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
            &["line 5, device:", "is no name of a device", "-> give 1 to 15 letters"],
            &["line 6, addresses 2:", "\"10.9.0.2/33\"", "-> give an address and the length"],
            &["line 7, routes 1:", "10.8.0.1/16 has host bits", "-> write 10.8.0.0/16"],
            &["line 10, channel 2:", "both `server` and `listen`", "-> give every channel"],
            &["line 14, channel 3:", "the same address", "-> let each"],
            &["line 16, channel 3, risk:", "risk = 1.5", "-> give 0 to 1"],
        ];
        assert_said(Kind::Tunnel, text, expected);
    }

    #[test]
    fn what_is_about_the_whole_has_no_line() {
        let channel = "[[channel]]\nserver = \"192.0.2.1:1\"\n";
        assert_said(
            Kind::Proxy,
            channel,
            &[&["configuration: nothing to listen on", "-> set `socks`"]],
        );
        let open =
            "kappa = 1\nmu = 1\naddresses = []\n[[channel]]\nlisten = \"192.0.2.1:1\"\nrisk = 2\n";
        let anyone = ["configuration: no channel has a `client` address", "-> give each one"];
        assert_said(Kind::Tunnel, open, &[&["line 6, channel 1, risk"], &anyone]);
        let missing = ["configuration: `allow` is missing", "-> add allow = [\"localhost:80\"]"];
        assert_said(Kind::Serve, "listen = [\"192.0.2.1:1\"]\n", &[&missing]);
        let many = format!("socks = \"127.0.0.1:0\"\npol = 1\n{}", channel.repeat(17));
        let expected: &[&[&str]] = &[
            &["line 2, pol:", "write `pool`"],
            &["line 2, pool"],
            &["17 channels", "-> give 1 to 16"],
        ];
        assert_said(Kind::Proxy, &many, expected);
    }

    #[test]
    fn what_is_not_toml_does_not_hide_the_rest() {
        let text = "socks = 127.0.0.1:1080\nrng = \"os\"\nrng = \"os\"\nthreshold = 0\n\
                    [[channel]]\nserver = \"192.0.2.1:1\"\n[[forward]]\nlisten = \"127.0.0.1:1\"\n\
                    target = \"a:1\"\n";
        let expected: &[&[&str]] = &[
            &["line 1, socks:", "-> write it as in: socks = \"127.0.0.1:1080\""],
            &["line 3, rng: duplicate key", "-> leave one of them"],
            &["line 4, threshold:", "threshold = 0"],
        ];
        assert_said(Kind::Proxy, text, expected);
        // What was in the line is not missed.
        let text = "listen = \nallow = [\"a:1\"]\nmin_channels = 0\n";
        assert_said(Kind::Serve, text, &[&["line 1, listen:"], &["line 3, min_channels"]]);
        for text in
            ["listen = [\n", "[[channel\nserver = 1\n", "max_streams = 99999999999999999999\n"]
        {
            assert!(!said(Kind::Serve, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn whatever_the_text_the_search_ends() {
        let list = "channel = [1, \"a\", {}, [], { server = 1 }]\n";
        for text in [
            list,
            "channel = 1\npool = []\nforward = {}\npeer = [{}, 1]\n",
            "[[pool]]\nsize = 1\n[[pool]]\n",
            "[channel]\nserver = \"192.0.2.1:1\"\n",
            "socks = { a = { b = [[[]]] } }\n\"\" = nan\n",
        ] {
            for kind in [Kind::Proxy, Kind::Serve, Kind::Tunnel] {
                assert!(!said(kind, text).is_empty(), "{text}");
            }
        }
    }
}
