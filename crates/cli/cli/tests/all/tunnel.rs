//! `sunder tunnel` between two emulated hosts: packets cross, an eavesdropper on fewer channels
//! than the threshold reads none, and nothing remains after a lost channel, a restart or a kill.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{lab, performed, sunder};

/// Three captured channels, with shell commands where the tests differ.
const EXPERIMENT: &str = r#"
about = "A tunnel"
[hosts.client]
[hosts.server]
[links.a]
hosts = ["client", "server"]
both = { rate_mbit = 50, delay_ms = 2 }
tap = "a.pcapng"
[links.b]
hosts = ["client", "server"]
both = { rate_mbit = 50, delay_ms = 5 }
tap = "b.pcapng"
[links.c]
hosts = ["client", "server"]
both = { rate_mbit = 50, delay_ms = 9 }
tap = "c.pcapng"

[files]
"server.toml" = """
kappa = 2
mu = 3
addresses = ["10.9.0.1/24"]
key = "key"
channel = [{{ listen = "{server.a}:6521" }}, {{ listen = "{server.b}:6521" }}, {{ listen = "{server.c}:6521" }}]
"""
"client.toml" = """
kappa = 2
mu = 3
addresses = ["10.9.0.2/24"]
key = "key"
channel = [{{ server = "{server.a}:6521" }}, {{ server = "{server.b}:6521" }}, {{ server = "{server.c}:6521" }}]
"""
key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

[[programs]]
host = "server"
run = ["env", "RUNTIME_DIRECTORY={files}/s", "{sunder}", "tunnel", "--config", "{files}/server.toml"]
says = "device"
[[programs]]
host = "client"
run = ["env", "RUNTIME_DIRECTORY={files}/c", "{sunder}", "tunnel", "--config", "{files}/client.toml"]
says = "planned"
"#;

/// Datagrams through the tunnel at half of its capacity.
const FLOW: &str = r#"
[measure]
driver = "flow"
options = { from = "client", to = "server", address = "10.9.0.1:9000", payload = 1400, load = 0.1, mu = 3, seconds = 1, warm_up_s = 0.2 }
[measure.values]
carried = { unit = "Mbit/s" }
loss = {}
"#;

/// The measured values of an experiment with one trial; `None` if users may not create networks.
fn measured(directory: &Path, text: &str) -> Option<Value> {
    fs::write(directory.join("tunnel.toml"), text).unwrap();
    performed(directory, &["run", "tunnel.toml", "--out", "out", "--json"])?;
    let journal = fs::read_to_string(directory.join("out/trials.jsonl")).unwrap();
    let record: Value = serde_json::from_str(journal.lines().nth(1).unwrap()).unwrap();
    Some(record["values"].clone())
}

#[test]
fn one_channel_reveals_no_packets() {
    let mut seen = Vec::new();
    // A busy machine may lose packets of some.
    let place = loop {
        let place = tempfile::tempdir().unwrap();
        let Some(values) = measured(place.path(), &format!("{EXPERIMENT}{FLOW}")) else { return };
        if values["loss"].as_f64().unwrap() < 0.01 && values["carried"].as_f64().unwrap() > 4.0 {
            break place;
        }
        seen.push(values);
        assert!(seen.len() < 3, "three times: {seen:?}");
    };

    let captures = ["out/1-a.pcapng", "out/1-b.pcapng", "out/1-c.pcapng"];
    let arguments = [&["eavesdrop", "--json"][..], &captures].concat();
    let output = lab(place.path(), &arguments);
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    assert_eq!(findings.len(), 6, "three channels, and three pairs");
    for finding in findings {
        let (symbols, read) =
            (finding["symbols"].as_u64().unwrap(), finding["read"].as_u64().unwrap());
        assert!(symbols > 300, "{finding}");
        assert_eq!(finding["threshold"], 2);
        match finding["channels"].as_array().unwrap().len() {
            1 => assert!(read == 0 && finding["correlation"].as_f64().unwrap() < 6.0, "{finding}"),
            _ => assert_eq!(read, symbols, "{finding}"),
        }
    }
}

/// The experiment with a shell script on the client's host in place of the measurement. The script
/// prints the number.
fn script(lines: &str) -> String {
    format!(
        "{EXPERIMENT}\n[measure]\nhost = \"client\"\nrun = [\"sh\", \"-ec\", \'\'\'{lines}\'\'\']\n\
         [measure.values]\nnumber = {{ after = \"number:\" }}\n"
    )
}

#[test]
fn status_shows_measured_values() {
    let place = tempfile::tempdir().unwrap();
    // Until all have been measured.
    let lines = "for _ in $(seq 100); do sleep 0.5; \
                 RUNTIME_DIRECTORY={files}/c {sunder} status --json > {files}/status; \
                 up=$(tr , '\\n' < {files}/status | grep -c '\"state_.*\":\"up\"' || true); \
                 if [ $up = 6 ]; then break; fi; done; echo number: $up";
    let Some(values) = measured(place.path(), &script(lines)) else { return };
    assert_eq!(values["number"], 6.0, "three channels, out and in");
}

/// The client sends packets from its own addresses, over IPv4, IPv6 and from its link-local
/// address, and then with forged sources, among them the server's. The server drops the forged
/// packets, counts them, and logs this once.
#[test]
fn the_peer_sends_only_from_its_own_networks() {
    let place = tempfile::tempdir().unwrap();
    let python = r#"import socket
def send(source, to):
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(0, 19, 1) if family == socket.AF_INET else s.setsockopt(41, 75, 1)
    s.bind((source, 0))
    s.sendto(b"from " + source.encode(), (to, 9000))
for source, to in SENT: send(source, to)
"#;
    let sends = |pairs: &str| python.replace("SENT", pairs).replace('{', "{{").replace('}', "}}");
    let own =
        r#"[("10.9.0.2", "10.9.0.1"), ("10.8.3.4", "10.9.0.1"), ("fd00:9::2", "fd00:9::1")] * 5"#;
    let others = r#"[("203.0.113.9", "10.9.0.1"), ("10.9.0.1", "10.9.0.1"), ("2001:db8::9", "fd00:9::1")] * 5"#;
    let files = format!(
        "[files]\n\"own.py\" = '''{}'''\n\"others.py\" = '''{}'''",
        sends(own),
        sends(others)
    );
    let lines = "read_status() {{ RUNTIME_DIRECTORY={files}/s {sunder} status --json | tr ,{{}} '\\n\\n\\n' |                  sed -n \"s/^\\\"$1\\\"://p\" | head -n 1; }};                  for address in 203.0.113.9/32 10.8.3.4/32; do :; done;                  python3 {files}/own.py;                  until [ \"$(read_status received_symbols)\" -ge 15 ]; do sleep 0.05; done;                  [ \"$(read_status not_allowed)\" = 0 ];                  python3 {files}/others.py;                  until [ \"$(read_status not_allowed)\" -ge 15 ]; do sleep 0.05; done;                  echo number: $(read_status not_allowed)";
    let text = script(lines)
        .replace(
            "[hosts.client]\n[hosts.server]",
            "[hosts.client]\nipv6 = true\n[hosts.server]\nipv6 = true",
        )
        .replace("[files]", &files)
        .replace(
            "addresses = [\"10.9.0.1/24\"]",
            "addresses = [\"10.9.0.1/24\", \"fd00:9::1/64\"]\nroutes = [\"10.8.0.0/16\"]",
        )
        .replace(
            "addresses = [\"10.9.0.2/24\"]",
            "addresses = [\"10.9.0.2/24\", \"fd00:9::2/64\"]",
        );
    let Some(values) = measured(place.path(), &text) else { return };
    assert_eq!(values["number"], 15.0);
}

#[test]
fn a_killed_tunnel_leaves_no_device_and_starts_again() {
    let place = tempfile::tempdir().unwrap();
    // The client is killed and its device vanishes. Another client connects, and the server accepts
    // it.
    let lines = "start() {{ RUNTIME_DIRECTORY={files}/c {sunder} tunnel --config {files}/client.toml \
                 > {files}/log$1 2>&1 & until grep -q planned {files}/log$1; do sleep 0.02; done; }}; \
                 start 1; kill -9 $!; \
                 while [ -e /proc/sys/net/ipv4/conf/sunder0 ]; do sleep 0.02; done; \
                 start 2; kill $!; wait $! && grep -q stopping: {files}/log2 && echo number: $(cat {files}/log* | grep -c associated)";
    let (without_client, _) = EXPERIMENT.rsplit_once("[[programs]]").unwrap();
    let text = script(lines).replace(EXPERIMENT, without_client);
    let Some(values) = measured(place.path(), &text) else { return };
    assert_eq!(values["number"], 2.0);
}

#[test]
fn errors_have_a_one_line_message() {
    let place = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        fs::write(place.path().join("t.toml"), text).unwrap();
        let output = sunder(place.path(), &["tunnel", "--config", "t.toml"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    };
    let good = "kappa = 1\nmu = 1\naddresses = []\nkey = \"none\"\n[[channel]]\nlisten = \"127.0.0.1:1\"\n";
    let message = refused(good);
    assert!(
        message.contains("key none: no such file") && message.contains("sunder key new"),
        "{message}"
    );
    assert!(!refused(&good.replace("none", ".")).contains("sunder key new"));
    let listen = "listen = \"127.0.0.1:1\"";
    let twice = format!("{listen}\n[[channel]]\n{listen}");
    for (from, to, expected) in [
        ("kappa = 1", "kappa = 2", "t.toml, line 1: kappa = 2: give 1 to 1, or more channels"),
        ("kappa = 1", "kappa = \"a\"", "line 1: invalid type: string \"a\", expected a number"),
        (
            "mu = 1",
            "mu = 1\nmtu = 1e3",
            "line 3: invalid type: floating point `1000.0`, expected a",
        ),
        ("mu = 1", "mu = 1\nmtu = 70000", "line 3: mtu = 70000: give 576 to 65000"),
        (
            "addresses = []",
            "addresses = 1",
            "line 3: addresses: give a list, as in [\"10.9.0.2/24\"]",
        ),
        ("addresses = []", "addresses = []\nroutes = [\"10.8.0.1/16\"]", "write 10.8.0.0/16"),
        ("listen", "listens", "unknown field `listens`"),
        (listen, "listen = \"localhost:1\"", "line 6: listen: \"localhost:1\": give ADDRESS:PORT"),
        (listen, &format!("{listen}\nmtu = 1000"), "line 7: unknown field `mtu`"),
        (listen, &format!("{listen}\nmtu = 1000"), "stand above the first [[channel]]"),
        (listen, &twice, "channels 1 and 2 have the same address"),
        ("key = \"none\"\n", "", "anyone could be the client"),
    ] {
        let message = refused(&good.replace(from, to));
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// The two ends in the guide, and those in `--help`.
fn examples() -> [[&'static str; 2]; 2] {
    let guide = include_str!("../../../../../docs/guides/tunnel.md").split("```toml\n").skip(1);
    let guide: Vec<&str> = guide.map(|rest| rest.split("```").next().unwrap()).collect();
    let help = [
        include_str!("../../src/commands/tunnel-server.toml"),
        include_str!("../../src/commands/tunnel.toml"),
    ];
    [guide.try_into().expect("two examples"), help]
}

#[test]
fn the_examples_associate() {
    for example in examples() {
        // Unchanged except for addresses and equal device names at both ends.
        let [server, client] = example.map(|text| {
            let text = text.replace("eth1", "wlan0").replace("eth2", "wwan0");
            let channels = [("192.0.2", "eth0"), ("198.51.100", "wlan0"), ("203.0.113", "wwan0")];
            channels.iter().fold(text, |text, (network, link)| {
                text.replace(&format!("{network}.10:"), &format!("{{server.{link}}}:"))
                    .replace(&format!("{network}.20\""), &format!("{{client.{link}}}\""))
            })
        });
        let mut parts: Vec<&str> = EXPERIMENT.split("\"\"\"").collect();
        (parts[1], parts[3]) = (&server, &client);
        let experiment = parts
            .join("\"\"\"")
            .replace("\nkey = \"0011", "\n\"tunnel.key\" = \"0011")
            .replace("[links.a]", "[links.eth0]")
            .replace("[links.b]", "[links.wlan0]")
            .replace("[links.c]", "[links.wwan0]");
        let lines = "RUNTIME_DIRECTORY={files}/c {sunder} status --json > {files}/status; \
                     echo number: $(grep -c '\"associated\":true' {files}/status)";
        let place = tempfile::tempdir().unwrap();
        let text = script(lines).replace(EXPERIMENT, &experiment);
        let Some(values) = measured(place.path(), &text) else { return };
        assert_eq!(values["number"], 1.0);
    }
}
