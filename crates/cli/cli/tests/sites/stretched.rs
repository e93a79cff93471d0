//! Experiments on links that are emulated between sites, among them those of the papers' figures
//! that need two machines.

use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::testbed::{SiteTestbed, results, succeeded};
use super::{CLIENT, PAIR, SERVER};

/// The option for these runs.
pub(crate) const EMULATE: &str = "--emulate-links";

/// The experiments that come with Sunder, as they are.
const COMPUTE_DELAY: &str = include_str!("../../../../lab/lab/experiments/compute-delay.toml");
const COMPUTE_PATH: &str = include_str!("../../../../lab/lab/experiments/compute-path.toml");
const REMICSS_IDENTICAL: &str =
    include_str!("../../../../lab/lab/experiments/remicss-identical.toml");

/// An experiment with other values of a key, at the first place where it has some, and without
/// graphs.
fn with(text: &str, key: &str, values: &str) -> String {
    let is_of_key = |line: &&str| line.split('=').next().is_some_and(|it| it.trim() == key);
    let (text, _) = text.split_once("[[plots]]").unwrap_or((text, ""));
    let line = text.lines().find(is_of_key).unwrap();
    text.replacen(line, &format!("{key} = {values}"), 1)
}

/// A swept key with some of its named values only.
fn with_only(text: &str, names: &[&str]) -> String {
    let is_kept = |line: &&str| {
        let is_named = line.starts_with('"') && line.contains(" = {");
        let is_named = is_named || line.contains(" = { name = ");
        !is_named || names.iter().any(|name| line.contains(name))
    };
    text.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect()
}

/// The paths between hosts of the testbed have no limit of their own, and 0.4 ms.
fn with_fast_paths(testbed: &SiteTestbed) {
    for link in ["c", "f", "s"] {
        testbed.change(link, |conditions| {
            conditions.rate_mbit = None;
            conditions.delay_ms = 0.1;
        });
    }
}

fn number(trial: &Value, key: &str) -> Option<f64> {
    trial["values"].get(key).and_then(Value::as_f64)
}

pub(crate) fn computation_over_a_delay() {
    let testbed = SiteTestbed::new();
    with_fast_paths(&testbed);
    let text = with(COMPUTE_DELAY, "repetitions", "1");
    let text = with(&text, "circuit", r#"["aes128"]"#);
    let text = with(&text, "delay_ms", "[25]");
    let text = with_only(&text, &["glnp15, 10 Gbit/s", "auto", "tcp-cubic"]);
    let text = format!("attempts = 1\n{text}");
    let place = ["--place", "garbler=syd,evaluator=fra", EMULATE];
    let output = succeeded(testbed.run("compute-delay", &text, &place));
    let results = results(&output);
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2, "{results}");
    for trial in trials {
        // A round trip of the link to connect, and at least another one.
        assert!((100.0..30_000.0).contains(&number(trial, "time").unwrap()), "{trial}");
        assert!(number(trial, "over").unwrap() >= 1.0, "{trial}");
        assert!(trial["late_ms"].as_f64().unwrap() > 0.0, "{trial}");
    }
    assert_eq!(results["sites"]["syd"]["emulates_links"], true);
    // Nothing is continued on the paths themselves, where sysctl could not be set either.
    let stderr = refused(&testbed, "compute-delay", &text, &place[..2]);
    let why = "sysctl is for emulated links only; add --emulate-links, or run it without --sites";
    assert!(stderr.contains(why), "{stderr}");
}

pub(crate) fn computation_over_the_path() {
    let testbed = SiteTestbed::new();
    let text = with(COMPUTE_PATH, "repetitions", "1");
    let text = with(&text, "circuit", r#"["aes128"]"#);
    let text = with(&text, "scheme", r#"["glnp15"]"#);
    let text = text.replace("udp = { may_fail = true }\n", "");
    let place = ["--place", "garbler=syd,evaluator=fra"];
    let results = results(&succeeded(testbed.run("compute-path", &text, &place)));
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3, "{results}");
    for trial in trials {
        // Two round trips of the path, which is in the results.
        assert!(number(trial, "time").unwrap() >= 40.0, "{trial}");
        let round_trip = trial["paths"][0]["before"]["round_trip_ms"].as_f64().unwrap();
        assert!((19.9..60.0).contains(&round_trip), "{trial}");
    }
    assert!(results["sites"]["syd"]["emulates_links"].is_null(), "{results}");
}

pub(crate) fn tunnel_over_like_channels() {
    // A busy machine may carry less, and delay some channels more than others.
    assert!((0..3).any(|_| carries_what_is_predicted()), "not in one of three runs");
}

/// Whether a tunnel over like channels carries what is predicted, and by all of them.
fn carries_what_is_predicted() -> bool {
    let testbed = SiteTestbed::new();
    with_fast_paths(&testbed);
    let text = with(REMICSS_IDENTICAL, "rate", "[8]");
    let text = format!("attempts = 1\n{}", with_only(&text, &["1, 1", "3, 5"]));
    let place = ["--place", "client=fra,server=syd", EMULATE];
    let results = results(&succeeded(testbed.run("remicss-identical", &text, &place)));
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2, "{results}");
    trials.iter().all(|trial| {
        println!("{trial}");
        // The clocks of two machines differ.
        assert_eq!(number(trial, "delay"), None, "{trial}");
        let predicted = trial["predictions"]["carried"].as_f64().unwrap();
        let carried = number(trial, "carried").unwrap();
        // A tenth more is sent than the tunnel can carry.
        let loss = number(trial, "loss").unwrap();
        carried > 0.5 * predicted
            && carried < 1.1 * predicted
            && (0.03..0.6).contains(&loss)
            && number(trial, "uneven").unwrap() < 0.5
    })
}

const ROUND_TRIP: &str = r#"
about = "A round trip over an emulated link"
attempts = 1
[sweep]
delay_ms = [2, 40]
[hosts.fra]
[hosts.syd]
[links.a]
hosts = ["fra", "syd"]
both = { rate_mbit = 10, delay_ms = "{delay_ms}" }
[measure]
host = "fra"
run = ["sh", "-c", "ping -c 3 -i 0.2 -q {syd.a} | sed -n 's|.* = \\([0-9.]*\\)/.*|least: \\1|p'"]
[measure.values]
least = { after = "least:", unit = "ms" }
"#;

pub(crate) fn path_that_is_too_long() {
    let testbed = SiteTestbed::new();
    // 10 ms in each direction.
    let output = succeeded(testbed.run("round-trip", ROUND_TRIP, &[EMULATE]));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let why = "link a cannot have a delay of 2 ms: that of the path is 1";
    assert_eq!(stderr.matches(why).count(), 1, "{stderr}");
    let results = results(&output);
    let trials = results["trials"].as_array().unwrap();
    // The path alone is longer than the first link is to be.
    assert_eq!(trials[0]["invalid"], true, "{results}");
    assert!(trials[0]["late_ms"].as_f64().unwrap() > 7.9, "{results}");
    assert!(number(&trials[0], "least").unwrap() >= 19.9, "{results}");
    // The other link adds what the path lacks.
    let least = number(&trials[1], "least").unwrap();
    assert!((79.0..120.0).contains(&least), "{results}");
}

pub(crate) fn forged_datagrams() {
    let testbed = SiteTestbed::new();
    let text = ROUND_TRIP.replace("[2, 40]", "[40]").replace("-c 3", "-c 10");
    let mut run = testbed.run("round-trip", &text, &[EMULATE]);
    // Datagrams to the ports of the link, until the run has ended.
    let ports = ["fra", "syd"].map(|site| testbed.address(site).replace(":7100", ":7101"));
    let sent = testbed.at_controller(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut sent = 0;
        while run.try_wait().unwrap().is_none() {
            for port in &ports {
                let mut datagram = vec![0; random.usize(1..1400)];
                random.fill(&mut datagram);
                // Some look like the first ones of a direction.
                if random.bool() {
                    datagram.resize(100, 0);
                    datagram[..8].copy_from_slice(&random.u64(..4).to_be_bytes());
                    datagram[16..18].copy_from_slice(&[0, 1]);
                }
                sent += usize::from(socket.send_to(&datagram, port).is_ok());
            }
            thread::sleep(Duration::from_micros(500));
        }
        sent
    });
    assert!(sent > 1000, "{sent}");
    let results = results(&succeeded(run));
    let least = number(&results["trials"][0], "least").unwrap();
    assert!((79.0..120.0).contains(&least), "{results}");
}

pub(crate) fn own_scripts() {
    let testbed = SiteTestbed::new();
    with_fast_paths(&testbed);
    let pair = testbed.path("pair");
    fs::create_dir(&pair).unwrap();
    fs::write(pair.join("web-server.sh"), SERVER).unwrap();
    fs::write(pair.join("web-client.sh"), CLIENT).unwrap();
    fs::write(pair.join("page"), "a page\n").unwrap();
    let text =
        PAIR.replace(r#""tcp", "udp", "sabul", "burst", "quic", "auto""#, r#""tcp", "quic""#);
    let results = results(&succeeded(testbed.run("pair", &text, &[EMULATE])));
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2);
    for trial in trials {
        assert_eq!(trial["texts"]["result"], "ok", "{trial}");
        assert_eq!(trial["texts"]["started"], "the server has opened a port", "{trial}");
        // Two round trips of the link, of 10 ms each.
        assert!(number(trial, "time").unwrap() >= 0.02, "{trial}");
    }
}

pub(crate) fn used_port() {
    let testbed = SiteTestbed::new();
    // Another program of the site has the port of the link.
    let socket = testbed.at_site("syd", || UdpSocket::bind("0.0.0.0:7101").unwrap());
    let run = testbed.run("round-trip", ROUND_TRIP, &[EMULATE]);
    let output = run.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.contains("site syd: cannot make link a: UDP port 7101: "), "{stderr}");
    // The same command continues when it is free.
    drop(socket);
    let results = results(&succeeded(testbed.run("round-trip", ROUND_TRIP, &[EMULATE])));
    assert_eq!(results["trials"].as_array().unwrap().len(), 2);
}

const STRANGER: &str = r#"
about = "What a program on an emulated host sees"
[hosts.fra]
[hosts.syd]
[links.a]
hosts = ["fra", "syd"]
[measure]
host = "fra"
run = ["sh", "-c", "echo interfaces: $(ls /proc/self/net/dev_snmp6 2>/dev/null | wc -l) $(tail -n +3 /proc/self/net/dev | wc -l); echo value: $(tail -n +3 /proc/self/net/dev | wc -l)"]
[measure.values]
value = { after = "value:" }
"#;

pub(crate) fn own_network_of_a_host() {
    let testbed = SiteTestbed::new();
    let results = results(&succeeded(testbed.run("stranger", STRANGER, &[EMULATE])));
    // Its loopback interface and the link.
    assert_eq!(results["trials"][0]["values"]["value"], 2.0, "{results}");
    assert_eq!(testbed.interfaces("fra"), ["f", "lo"]);
}

pub(crate) fn refused_settings() {
    let testbed = SiteTestbed::new();
    for (what, text, why) in [
        (
            "tap",
            STRANGER.replace("hosts = [\"fra\"", "tap = \"x.pcapng\"\nhosts = [\"fra\""),
            "tap is for emulated networks only",
        ),
        (
            "ipv6",
            STRANGER.replace("[hosts.fra]", "[hosts.fra]\nipv6 = true"),
            "ipv6 is for emulated networks only",
        ),
        (
            "place",
            STRANGER.replace("[hosts.syd]", "[hosts.syd]\nsite = \"fra\""),
            "links.a: joins hosts at one site",
        ),
    ] {
        let stderr = refused(&testbed, what, &text, &[EMULATE]);
        assert!(stderr.contains(why), "{what}: {stderr}");
    }
    let without_sites = testbed.run_emulated_with("stranger", STRANGER, &[EMULATE]);
    let output = without_sites.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The message of a run that is refused before its first trial.
fn refused(testbed: &SiteTestbed, name: &str, text: &str, more: &[&str]) -> String {
    let output = testbed.run(name, text, more).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}
