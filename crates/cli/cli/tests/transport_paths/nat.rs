//! Two hosts behind two NATs, which meet at a relay by a code.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::EmulatedNetwork;
use serde_json::Value;

use crate::emulation::{Process, network, until};
use crate::{pattern, succeeded, try_thrice};

/// What a NAT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nat {
    /// A port keeps its number for all destinations, and lets in only those to which it has sent.
    PortRestricted,
    /// A port has another number for each destination.
    Symmetric,
    /// As the first, but it drops UDP.
    TcpOnly,
}

impl Nat {
    /// The rules for a host whose link to the outside has this name.
    fn rules(self, outside: &str) -> String {
        let masquerade = match self {
            Self::Symmetric => "masquerade fully-random",
            Self::PortRestricted | Self::TcpOnly => "masquerade",
        };
        let udp = match self {
            Self::TcpOnly => "add rule ip path forwarded meta l4proto udp drop\n",
            Self::PortRestricted | Self::Symmetric => "",
        };
        format!(
            "add table ip path\n\
             add chain ip path leaving {{ type nat hook postrouting priority 100; }}\n\
             add rule ip path leaving oifname \"{outside}\" {masquerade}\n\
             add chain ip path forwarded {{ type filter hook forward priority 0; }}\n\
             {udp}\
             add rule ip path forwarded iifname \"{outside}\" ct state new,invalid drop\n\
             add chain ip path arriving {{ type filter hook input priority 0; }}\n\
             add rule ip path arriving iifname \"{outside}\" ct state new,invalid drop\n"
        )
    }
}

/// The hosts, and the running relay.
struct NatHosts {
    network: EmulatedNetwork,
    directory: tempfile::TempDir,
    relay: Process,
}

impl NatHosts {
    /// `conditions` are those of both links to the relay, both ways.
    fn new(nats: [Nat; 2], conditions: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let topology = format!(
            "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
             [hosts]\nsender = {{}}\nreceiver = {{}}\n\
             relay = {{ forwards = true }}\nnat_a = {{ forwards = true }}\n\
             nat_b = {{ forwards = true }}\n\
             [links.a]\nhosts = [\"sender\", \"nat_a\"]\n\
             [links.b]\nhosts = [\"nat_a\", \"relay\"]\nboth = {{ {conditions} }}\n\
             [links.c]\nhosts = [\"relay\", \"nat_b\"]\nboth = {{ {conditions} }}\n\
             [links.d]\nhosts = [\"nat_b\", \"receiver\"]\n"
        );
        let network = network(&topology, directory.path());
        for (host, outside, nat) in [("nat_a", "b", nats[0]), ("nat_b", "c", nats[1])] {
            let run = |program: &str, arguments: &[&str]| {
                let mut command = Command::new(program);
                command.args(arguments);
                let status = network.host(host).unwrap().run(|| command.status());
                assert!(status.unwrap().unwrap().success(), "{program} {arguments:?}");
            };
            run("ip", &["route", "add", "default", "dev", outside]);
            run("nft", &[&nat.rules(outside)]);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        // It has an address on each link, and both parties use the same one.
        command.args(["transport", "relay", "--listen", "0.0.0.0:7100"]);
        command.current_dir(directory.path()).env("RUNTIME_DIRECTORY", directory.path());
        let log = directory.path().join("relay.log");
        let relay = Process::start(network.host("relay").unwrap(), &mut command, &log);
        until("the relay listens", || fs::read_to_string(&log).unwrap().contains("listening on"));
        fs::create_dir(directory.path().join("out")).unwrap();
        Self { network, directory, relay }
    }

    /// Sends a file with a code that the receiver shows. Returns what the sender prints, and what
    /// the receiver prints.
    fn transfer(&self, data: &[u8], more: &[&str]) -> (Value, String) {
        let (output, mut receiver) = self.send(data, more);
        print!("{}", String::from_utf8_lossy(&output.stderr));
        let sent = succeeded(&output);
        until("the receiver has ended", || receiver.0.try_wait().unwrap().is_some());
        let printed = fs::read_to_string(self.directory.path().join("receiver.log")).unwrap();
        assert!(receiver.0.wait().unwrap().success(), "{printed}");
        let arrived = self.directory.path().join("out/a");
        assert!(fs::read(&arrived).unwrap() == data);
        fs::remove_file(arrived).unwrap();
        (sent, printed)
    }

    /// Sends a file with a code. Returns the sender's output, and the receiver.
    fn send(&self, data: &[u8], more: &[&str]) -> (Output, Process) {
        let address = format!("{}:7100", self.network.address("relay", "b").unwrap());
        fs::write(self.directory.path().join("a"), data).unwrap();
        let command = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
            command.args(["transport"]).args(words).current_dir(self.directory.path());
            // What is remembered of a path is not that of the user who runs the tests.
            command.env("XDG_STATE_HOME", self.directory.path());
            command
        };
        let mut receive = command(&["receive", "--via", &address, "--out", "out", "--once"]);
        receive.arg("--code");
        let log = self.directory.path().join("receiver.log");
        let host = self.network.host("receiver").unwrap();
        let receiver = Process::start(host, &mut receive, &log);
        let printed = || fs::read_to_string(&log).unwrap();
        until("the receiver shows a code", || printed().contains("--code "));
        let code = printed().split_whitespace().last().unwrap().to_owned();
        let mut send = command(&["send", "a", &address, "--json", "--code", &code]);
        send.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let host = self.network.host("sender").unwrap();
        let sending = host.run(|| send.spawn()).unwrap().unwrap();
        (sending.wait_with_output().unwrap(), receiver)
    }

    /// The bytes of datagrams that the relay has forwarded.
    fn relayed_bytes(&self) -> u64 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["status", "--json"]).env("RUNTIME_DIRECTORY", self.directory.path());
        let mut bytes = None;
        // A busy machine may answer too late.
        until("the relay shows what it has forwarded", || {
            let output = command.output().unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            bytes = find(&status, "datagram_bytes");
            bytes.is_some()
        });
        bytes.unwrap()
    }
}

fn find(value: &Value, key: &str) -> Option<u64> {
    match value {
        Value::Object(fields) => fields
            .get(key)
            .and_then(Value::as_u64)
            .or_else(|| fields.values().find_map(|value| find(value, key))),
        Value::Array(values) => values.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

/// The paths that files take between NATs of these kinds.
pub(crate) fn paths() {
    use Nat::{PortRestricted, Symmetric, TcpOnly};
    for (nats, transport, path) in [
        ([PortRestricted, PortRestricted], "burst", "direct"),
        ([Symmetric, Symmetric], "burst", "relayed datagrams"),
        ([PortRestricted, Symmetric], "burst", "relayed datagrams"),
        ([TcpOnly, PortRestricted], "tcp", "relayed tcp"),
        ([PortRestricted, TcpOnly], "tcp", "relayed tcp"),
    ] {
        let hosts = NatHosts::new(nats, "rate_mbit = 100, delay_ms = 10");
        let data = pattern(5_000_000);
        // On a busy machine, pings between the NATs may be late.
        try_thrice(&format!("{nats:?}"), || {
            let before = hosts.relayed_bytes();
            let (sent, received) = hosts.transfer(&data, &[]);
            println!("{nats:?}: {sent}");
            let bytes = hosts.relayed_bytes() - before;
            let is_expected = sent["transport"] == transport && sent["path"] == path;
            if !is_expected || sent["connections"] != 1 {
                return Err(format!("not by one connection of {transport}, {path}: {sent}"));
            }
            let is_relayed = path != "direct";
            assert_eq!(received.contains(&format!("path: {path}")), is_relayed, "{received}");
            assert_eq!(bytes > 5_000_000, path == "relayed datagrams", "{bytes}");
            Ok(())
        });
    }
}

/// Where no datagrams get through, a sender that requires them says so.
pub(crate) fn required_datagrams() {
    let hosts = NatHosts::new([Nat::TcpOnly; 2], "rate_mbit = 100, delay_ms = 10");
    let (output, _receiver) = hosts.send(&pattern(1000), &["--transport", "burst"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let text = "no datagrams reach the other end, neither directly nor through the relay";
    assert!(error.contains(text), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// The duration of a large file by each path.
pub(crate) fn compared() {
    use Nat::{PortRestricted, Symmetric};
    let data = pattern(50_000_000);
    let ways = [
        ([PortRestricted; 2], &[][..]),
        ([Symmetric; 2], &[]),
        ([PortRestricted; 2], &["--transport", "tcp"]),
        ([PortRestricted; 2], &["--transport", "tcp", "--congestion", "cubic"]),
    ];
    for (loss, (nats, more)) in [0.0, 0.001].into_iter().flat_map(|loss| ways.map(|it| (loss, it)))
    {
        println!("loss of each link: {loss}, {}", more.join(" "));
        // A round trip of 110 ms.
        let hosts =
            NatHosts::new(nats, &format!("rate_mbit = 200, delay_ms = 27.5, loss = {loss}"));
        for _ in 0..3 {
            let start = Instant::now();
            let (sent, _) = hosts.transfer(&data, more);
            let took: Duration = start.elapsed();
            println!(
                "{} by {}: {:.2} s, with the pairing {:.2} s",
                sent["path"],
                sent["transport"],
                sent["elapsed_s"].as_f64().unwrap(),
                took.as_secs_f64()
            );
        }
        drop(hosts.relay);
    }
}
