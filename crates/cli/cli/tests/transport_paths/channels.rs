//! `micss` over the links of two hosts: a file by command, and a channel that dies.

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedLinkConditions, EmulatedNetwork, LinkDirection};
use transport::{ConnectionOptions, ConnectionSecurity, Listener, connect};

use crate::emulation::{Process, network, until};
use crate::{pattern, succeeded, try_thrice};

const LINKS: [&str; 3] = ["a", "b", "c"];

/// How long a channel may be silent, and more than a busy machine adds.
const MAX_SILENCE: Duration = Duration::from_secs(40);

/// Two hosts with three links.
fn hosts(directory: &tempfile::TempDir) -> EmulatedNetwork {
    let link = |name| {
        format!(
            "[links.{name}]\nhosts = [\"sender\", \"receiver\"]\n\
             both = {{ rate_mbit = 50, delay_ms = 10 }}\n"
        )
    };
    let topology = format!(
        "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
         [hosts.sender]\n[hosts.receiver]\n{}",
        LINKS.map(link).concat()
    );
    network(&topology, directory.path())
}

/// The receiver's addresses, with this port, as a client names them.
fn addresses(network: &EmulatedNetwork, port: u16) -> String {
    let address = |link| format!("{}:{port}", network.address("receiver", link).unwrap());
    LINKS.map(address).join(",")
}

fn carried(network: &EmulatedNetwork, link: &str) -> u64 {
    network.link(link).unwrap().counts(LinkDirection::Forward).delivered_bytes
}

pub(crate) fn file() {
    let directory = tempfile::tempdir().unwrap();
    let network = hosts(&directory);
    let (data, log) = (pattern(3_000_000), directory.path().join("receiver.log"));
    fs::create_dir(directory.path().join("out")).unwrap();
    fs::write(directory.path().join("a"), &data).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "receive", "--out", "out", "--listen", "0.0.0.0:7000"]);
    command.current_dir(directory.path());
    let _receiver = Process::start(network.host("receiver").unwrap(), &mut command, &log);
    let printed = || fs::read_to_string(&log).unwrap();
    until("the receiver listens", || printed().contains("--key "));
    let printed = printed();
    let key = printed.split_whitespace().skip_while(|word| *word != "--key").nth(1).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "send", "a", &addresses(&network, 7000), "--key", key, "--json"]);
    command.args(["--transport", "micss"]).current_dir(directory.path());
    command.env("XDG_STATE_HOME", directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let arrived = directory.path().join("out/a");
    try_thrice("a file by micss", || {
        let sending = network.host("sender").unwrap().run(|| command.spawn()).unwrap().unwrap();
        let sent = succeeded(&sending.wait_with_output().unwrap());
        assert_eq!(sent["transport"], "micss", "{sent}");
        // The digest, too, has been checked.
        assert!(fs::read(&arrived).unwrap() == data);
        fs::remove_file(&arrived).unwrap();
        for link in LINKS {
            assert!(carried(&network, link) > 3_000_000, "a share of each byte on {link}");
        }
        // On a busy machine, it may be silent for so long that there is another one.
        (sent["connections"] == 1).then_some(()).ok_or_else(|| sent.to_string())
    });
}

/// All channels are needed: both ends have an error in bounded time.
pub(crate) fn channel_that_dies() {
    let directory = tempfile::tempdir().unwrap();
    let network = hosts(&directory);
    let open = ConnectionSecurity::open(transport::random_identity().unwrap());
    let key = open.public_key().unwrap();
    let receiver = network.host("receiver").unwrap();
    let bind = || Listener::bind("0.0.0.0:0", &ConnectionOptions::new(open)).unwrap();
    let listener = receiver.run(bind).unwrap();
    let to = addresses(&network, listener.local_addr().port());
    let security = ConnectionSecurity::pinned(transport::random_identity().unwrap(), vec![key]);
    let options = ConnectionOptions {
        transport: "micss".parse().unwrap(),
        ..ConnectionOptions::new(security)
    };
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut connection = listener.accept_timeout(MAX_SILENCE).unwrap().unwrap();
            io::copy(&mut connection, &mut io::sink())
        });
        let sender = network.host("sender").unwrap();
        let mut connection = sender.run(|| connect(&to, &options).unwrap()).unwrap();
        let writing = scope.spawn(move || {
            let block = vec![7; 1 << 16];
            loop {
                if let Err(error) = connection.write_all(&block) {
                    return error;
                }
            }
        });
        until("something is carried", || carried(&network, "b") > 1_000_000);
        let began = Instant::now();
        for direction in [LinkDirection::Forward, LinkDirection::Back] {
            let lost = EmulatedLinkConditions { loss: 1.0, ..EmulatedLinkConditions::default() };
            network.link("b").unwrap().set(direction, lost).unwrap();
        }
        let error = writing.join().unwrap().to_string();
        assert!(error.contains("a channel of micss has failed"), "{error}");
        assert!(reading.join().unwrap().is_err(), "nobody takes it for the end");
        assert!(began.elapsed() < MAX_SILENCE, "{:?}", began.elapsed());
    });
}
