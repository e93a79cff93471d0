//! Two hosts that meet at a third one, while the relay or the receiver's path fails.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::{EmulatedLinkConditions, EmulatedNetwork, LinkDirection};
use rustix::process::{Pid, Signal, kill_process};

use crate::emulation::{Process, network, until};
use crate::{in_time, pattern, succeeded, try_thrice};

/// What a file may take if its receiver has to find out that nobody reaches it at the relay.
const MAX_DELAY: Duration = Duration::from_secs(20);

struct Hosts {
    network: EmulatedNetwork,
    directory: tempfile::TempDir,
    relay: Process,
    _receiver: Process,
    data: Vec<u8>,
}

impl Hosts {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let topology = "measure = { driver = \"accuracy\", values = {} }\n\
             [hosts]\nsender = {}\nrelay = { forwards = true }\nreceiver = {}\n\
             [links.a]\nhosts = [\"sender\", \"relay\"]\n\
             both = { rate_mbit = 100, delay_ms = 10 }\n\
             [links.b]\nhosts = [\"relay\", \"receiver\"]\n\
             both = { rate_mbit = 100, delay_ms = 10 }\n";
        let network = network(topology, directory.path());
        let data = pattern(2_000_000);
        fs::write(directory.path().join("a"), &data).unwrap();
        let relay = relay(&network, directory.path());
        let receiver = receiver(&network, directory.path());
        Self { network, directory, relay, _receiver: receiver, data }
    }

    /// Starts to send the file.
    fn send(&self) -> Child {
        let (address, log) = (address(&self.network), self.log("receiver"));
        let words = log.split_whitespace().skip_while(|word| *word != "FILE").skip(1);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["transport", "send", "a", "--json"]).args(words.take(3));
        command.current_dir(self.directory.path());
        command.env("XDG_STATE_HOME", self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        assert!(log.contains(&address), "{log}");
        self.network.host("sender").unwrap().run(|| command.spawn()).unwrap().unwrap()
    }

    fn log(&self, host: &str) -> String {
        fs::read_to_string(self.directory.path().join(format!("{host}.log"))).unwrap()
    }

    /// Checks that the file has arrived, in time and by the first connection.
    fn check(&self, start: Instant, output: &Output) -> Result<(), String> {
        let (sent, took) = (succeeded(output), start.elapsed());
        println!("{took:.1?}: {sent}");
        let arrived = self.directory.path().join("out/a");
        assert!(fs::read(&arrived).unwrap() == self.data);
        fs::remove_file(arrived).unwrap();
        // On a busy machine, the first one may be silent for so long that there is another one.
        if sent["connections"] != 1 {
            return Err(sent.to_string());
        }
        in_time(took, MAX_DELAY)
    }

    /// Loses everything between the relay and the receiver, or nothing.
    fn cut(&self, is_cut: bool) {
        let before = self.network.conditions("b", LinkDirection::Forward).unwrap();
        let loss = if is_cut { 1.0 } else { 0.0 };
        for direction in LinkDirection::BOTH {
            let changed = EmulatedLinkConditions { loss, ..before };
            self.network.link("b").unwrap().set(direction, changed).unwrap();
        }
    }
}

/// The relay's, which both others reach.
fn address(network: &EmulatedNetwork) -> String {
    format!("{}:7100", network.address("relay", "b").unwrap())
}

fn relay(network: &EmulatedNetwork, directory: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "relay", "--listen", "0.0.0.0:7100"]).current_dir(directory);
    let log = directory.join("relay.log");
    let relay = Process::start(network.host("relay").unwrap(), &mut command, &log);
    until("the relay listens", || fs::read_to_string(&log).unwrap().contains("listening on"));
    relay
}

fn receiver(network: &EmulatedNetwork, directory: &Path) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "receive", "--out", "out", "--via", &address(network)]);
    fs::create_dir_all(directory.join("out")).unwrap();
    command.current_dir(directory);
    let log = directory.join("receiver.log");
    let receiver = Process::start(network.host("receiver").unwrap(), &mut command, &log);
    until("the receiver waits", || fs::read_to_string(&log).unwrap().contains("--key "));
    receiver
}

/// The first connection is not lost when the relay was restarted, nor when it has not noticed that
/// nobody reaches the receiver any more.
pub(crate) fn waiting_that_is_over() {
    let mut hosts = Hosts::new();
    try_thrice("the receiver waits", || {
        let start = Instant::now();
        hosts.check(start, &hosts.send().wait_with_output().unwrap())
    });
    // The receiver asks the next one for a while before it is there.
    try_thrice("the relay was restarted", || {
        let asks = |hosts: &Hosts| hosts.log("receiver").matches("asking again in 1.6s").count();
        let before = asks(&hosts);
        kill_process(Pid::from_child(&hosts.relay.0), Signal::KILL).unwrap();
        hosts.relay.0.wait().unwrap();
        until("the receiver asks in vain", || asks(&hosts) > before);
        hosts.relay = relay(&hosts.network, hosts.directory.path());
        let start = Instant::now();
        hosts.check(start, &hosts.send().wait_with_output().unwrap())
    });
    // The relay has told the sender nothing before the receiver is there again.
    try_thrice("the receiver was not reached", || {
        hosts.cut(true);
        let start = Instant::now();
        let sending = hosts.send();
        until("the relay has asked the receiver", || start.elapsed() > Duration::from_secs(4));
        hosts.cut(false);
        hosts.check(start, &sending.wait_with_output().unwrap())
    });
}
