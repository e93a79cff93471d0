//! A tunnel between two hosts of an emulated network, whose ends can be killed and restarted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::{EmulatedHost, EmulatedNetwork, sandbox};
use remicss::status::TunnelStatus;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) use crate::emulation::until;
use crate::emulation::{self, Process};

/// A client and a server with three links between them; hosts and links may be added.
pub(crate) const THREE_LINKS: &str = include_str!("../emulation/three_links.toml");

/// The port of channels with separate addresses.
pub(crate) const PORT: u16 = 6521;

/// The ends' addresses in the tunnel.
pub(crate) const CLIENT: &str = "10.9.0.2";
pub(crate) const SERVER: &str = "10.9.0.1";

/// Tries three times, because a busy machine may delay some attempts.
pub(crate) fn in_one_of_three(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut failures = Vec::new();
    while failures.len() < 3 {
        match attempt() {
            Ok(()) => return,
            Err(failure) => failures.push(failure),
        }
    }
    panic!("three times: {failures:?}");
}

/// An error if more than this part of the datagrams of a stream are lost: 20 for a twentieth.
pub(crate) fn few_lost(sent: usize, lost: usize, part: usize) -> Result<(), String> {
    if lost * part <= sent { Ok(()) } else { Err(format!("of {sent} {lost} lost")) }
}

/// What a command of `sunder status` prints: it asks again if an end is late, because the machine
/// is busy.
pub(crate) fn answered(mut run: impl FnMut() -> Output) -> Output {
    let mut output = run();
    until("all ends answer", || {
        let printed = [&output.stdout[..], &output.stderr].concat();
        let is_late = String::from_utf8_lossy(&printed).contains("has not answered within");
        if is_late {
            output = run();
        }
        !is_late
    });
    output
}

/// The addresses and settings of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    /// The address on which the server listens.
    pub(crate) listen: SocketAddr,
    /// The address to which the client connects.
    pub(crate) server: SocketAddr,
    /// The configured rate at both ends. `None`: it is learnt.
    pub(crate) rate_mbit: Option<u32>,
    /// The device of the client.
    pub(crate) device: Option<&'static str>,
    /// The device of the server.
    pub(crate) server_device: Option<&'static str>,
}

impl Channel {
    /// A channel of 100 Mbit/s over any device.
    pub(crate) fn new(listen: SocketAddr, server: SocketAddr) -> Self {
        Self { listen, server, rate_mbit: Some(100), device: None, server_device: None }
    }
}

/// A network and a tunnel on it.
pub(crate) struct Pair {
    // First, because they must be killed before their hosts vanish.
    ends: BTreeMap<&'static str, End>,
    network: EmulatedNetwork,
    place: TempDir,
}

/// An end of the tunnel, on the host with the same name.
struct End {
    process: Process,
    directory: PathBuf,
}

/// The network of a topology in TOML.
pub(crate) fn network(topology: &str) -> EmulatedNetwork {
    emulation::network(topology, Path::new("/"))
}

/// The channels over links between client and server.
pub(crate) fn over(network: &EmulatedNetwork, links: &[&str]) -> Vec<Channel> {
    let channel = |link: &&str| {
        let server = SocketAddr::new(network.address("server", link).unwrap().into(), PORT);
        Channel::new(server, server)
    };
    links.iter().map(channel).collect()
}

impl Pair {
    /// Starts both ends of a tunnel over these channels, with these additional top-level settings
    /// in TOML.
    pub(crate) fn start(network: EmulatedNetwork, settings: &str, channels: &[Channel]) -> Self {
        Self::start_unlike(network, [settings, settings], channels)
    }

    /// The same, with different settings for the client and the server.
    pub(crate) fn start_unlike(
        network: EmulatedNetwork,
        settings: [&str; 2],
        channels: &[Channel],
    ) -> Self {
        let mut pair = Self::prepare(network, settings, channels);
        pair.start_end("server");
        pair.start_end("client");
        pair
    }

    /// Writes the configurations of both ends, and starts none.
    pub(crate) fn prepare(
        network: EmulatedNetwork,
        settings: [&str; 2],
        channels: &[Channel],
    ) -> Self {
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        for (end, settings) in ["client", "server"].into_iter().zip(settings) {
            let directory = place.path().join(end);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("key"), "5e".repeat(32)).unwrap();
            fs::write(directory.join("tunnel.toml"), configuration(end, settings, channels))
                .unwrap();
        }
        Self { ends: BTreeMap::new(), network, place }
    }

    /// Starts an end, and waits until it has its device.
    pub(crate) fn start_end(&mut self, name: &'static str) {
        let directory = self.place.path().join(name);
        let end = End::start(self.host(name), directory);
        self.ends.insert(name, end);
    }

    /// Kills an end, and waits until its device has vanished.
    pub(crate) fn kill_end(&mut self, name: &'static str) {
        drop(self.ends.remove(name).unwrap());
        let host = self.host(name);
        let is_there = || Path::new("/proc/sys/net/ipv4/conf/sunder0").exists();
        until("a killed tunnel's device is gone", || !host.run(is_there).unwrap());
    }

    /// Stops an end by SIGTERM, and waits until it has ended.
    pub(crate) fn stop_end(&mut self, name: &'static str) {
        let mut end = self.ends.remove(name).unwrap();
        let process = Pid::from_child(&end.process.0);
        kill_process(process, Signal::TERM).unwrap();
        until("a stopped tunnel has ended", || end.process.0.try_wait().unwrap().is_some());
    }

    /// Writes the configuration of an end again, with these additional top-level settings.
    pub(crate) fn configure(&self, name: &str, settings: &str, channels: &[Channel]) {
        let path = self.place.path().join(name).join("tunnel.toml");
        fs::write(path, configuration(name, settings, channels)).unwrap();
    }

    /// Writes a name in place of a server's address into the configuration of an end.
    pub(crate) fn rename_server(&self, end: &str, address: SocketAddr, name: &str) {
        let path = self.place.path().join(end).join("tunnel.toml");
        let text = fs::read_to_string(&path).unwrap();
        let server = format!("server = \"{address}\"");
        assert!(text.contains(&server), "{text}");
        fs::write(path, text.replace(&server, &format!("server = \"{name}\""))).unwrap();
    }

    /// Adds a setting to the channel to a server in the configuration of an end.
    pub(crate) fn add_to_channel(&self, end: &str, server: SocketAddr, setting: &str) {
        let path = self.place.path().join(end).join("tunnel.toml");
        let text = fs::read_to_string(&path).unwrap();
        let line = format!("server = \"{server}\"\n");
        assert!(text.contains(&line), "{text}");
        fs::write(path, text.replace(&line, &format!("{line}{setting}\n"))).unwrap();
    }

    /// Has an end read its configuration again.
    pub(crate) fn hang_up(&self, name: &str) {
        kill_process(Pid::from_child(&self.ends[name].process.0), Signal::HUP).unwrap();
    }

    /// Ends both ends, and removes the network.
    pub(crate) fn remove(self) {
        let Self { ends, network, place: _place } = self;
        drop(ends);
        network.remove().unwrap();
    }

    /// A host, by name.
    pub(crate) fn host(&self, name: &str) -> &EmulatedHost {
        self.network.host(name).unwrap()
    }

    /// The network.
    pub(crate) fn network(&self) -> &EmulatedNetwork {
        &self.network
    }

    /// The status of an end.
    pub(crate) fn status(&self, name: &str) -> TunnelStatus {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["status", "--json"]).env("RUNTIME_DIRECTORY", &self.ends[name].directory);
        let output = answered(|| command.output().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tunnels: Vec<TunnelStatus> = serde_json::from_slice(&output.stdout).unwrap();
        let [status] = <[TunnelStatus; 1]>::try_from(tunnels).expect("one tunnel");
        status
    }

    /// What `sunder` prints on an end's host with these arguments, which may name the file
    /// `tunnel.toml`.
    pub(crate) fn ask(&self, name: &str, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.output(name, arguments).stdout).into_owned()
    }

    /// The same, with its messages.
    pub(crate) fn ask_with_errors(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.output(name, arguments);
        let bytes = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn output(&self, name: &str, arguments: &[&str]) -> Output {
        let directory = self.place.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(arguments).env("RUNTIME_DIRECTORY", &directory).current_dir(&directory);
        answered(|| self.host(name).run(|| command.output()).unwrap().unwrap())
    }

    /// Waits until an end's channel, counted from 0, is in these states: outbound, as the other end
    /// reports, and inbound.
    pub(crate) fn wait_for_states(&self, name: &str, channel: usize, states: [&str; 2]) {
        let what = format!("the {name}'s channel {} is {states:?}", channel + 1);
        until(&what, || {
            let channel = &self.status(name).channels[channel];
            [&channel.state_out, &channel.state_in].map(Option::as_deref) == states.map(Some)
        });
    }

    /// Waits until an end has logged a line with this level and this end.
    pub(crate) fn wait_for_line(&self, name: &str, level: &str, line: &str) {
        let is_it = |logged: &str| logged.contains(level) && logged.ends_with(line);
        until(&format!("the {name} logs: {line}"), || self.log(name).lines().any(is_it));
    }

    /// The log of an end since its last start.
    pub(crate) fn log(&self, name: &str) -> String {
        self.ends[name].log()
    }

    /// The process ID of an end.
    pub(crate) fn process(&self, name: &str) -> u32 {
        self.ends[name].process.0.id()
    }
}

impl End {
    fn start(host: &EmulatedHost, directory: PathBuf) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .args(["tunnel", "--config"])
            .arg(directory.join("tunnel.toml"))
            .env("RUNTIME_DIRECTORY", &directory);
        let process = Process::start(host, &mut command, &directory.join("log"));
        let mut end = Self { process, directory };
        until("the tunnel has its device", || {
            let ended = end.process.0.try_wait().unwrap();
            assert!(ended.is_none(), "the tunnel has ended: {}", end.log());
            end.directory.join("tunnel-sunder0.sock").exists()
                && end.log().contains("device sunder0")
        });
        end
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }
}

/// The configuration of an end. Over IPv6 it also has IPv6 inside.
fn configuration(end: &str, settings: &str, channels: &[Channel]) -> String {
    let (own, number) = if end == "client" { (CLIENT, 2) } else { (SERVER, 1) };
    let own_ipv6 = format!(", \"fd09::{number}/64\"");
    let own_ipv6 = if channels[0].listen.is_ipv6() { &own_ipv6 } else { "" };
    let mut text = format!("{settings}\nkey = \"key\"\naddresses = [\"{own}/24\"{own_ipv6}]\n");
    for Channel { listen, server, rate_mbit, device, server_device } in channels {
        let (address, device) = if end == "client" {
            (format!("server = \"{server}\""), device)
        } else {
            (format!("listen = \"{listen}\""), server_device)
        };
        let device = device.map(|device| format!("device = \"{device}\"")).unwrap_or_default();
        let rate = rate_mbit.map(|rate| format!("rate_mbit = {rate}")).unwrap_or_default();
        writeln!(text, "[[channel]]\n{rate}\n{address}\n{device}").unwrap();
    }
    text
}
