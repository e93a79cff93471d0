//! One server with several clients: each on its own host and link, with three channels that differ
//! by their ports.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::{EmulatedHost, EmulatedNetwork, sandbox};
use remicss::status::{TunnelClientStatus, TunnelStatus};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::emulation::Process;
use crate::pair::{PORT, SERVER, answered, few_lost, in_one_of_three, network, until};
use crate::stream::{Stream, StreamRate};

/// The number of channels.
const CHANNELS: u16 = 3;

/// Above the first `[[client]]` of a server.
const SETTINGS: &str = "kappa = 2\nmu = 3\nroaming = true\n";

/// A server and clients, each on the host and the link with its name.
pub(crate) struct Clients {
    // First, because they must be killed before their hosts vanish.
    ends: BTreeMap<String, Process>,
    network: EmulatedNetwork,
    place: TempDir,
}

/// A client's address in the tunnel, by its number from 0.
pub(crate) fn address(number: usize) -> String {
    format!("10.9.0.{}", number + 2)
}

pub(crate) fn name(number: usize) -> String {
    format!("c{number}")
}

impl Clients {
    /// Starts a server for the first `configured` of `count` clients, and these clients.
    pub(crate) fn start(count: usize, configured: usize, link: &str) -> Self {
        let mut topology =
            "measure = { driver = \"accuracy\", values = {} }\n[hosts.server]\nforwards = true\n"
                .to_owned();
        for name in (0..count).map(name) {
            write!(
                topology,
                "[hosts.{name}]\n[links.{name}]\nhosts = [\"{name}\", \"server\"]\nboth = {{ {link} }}\n"
            )
            .unwrap();
        }
        let network = network(&topology);
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let mut clients = Self { ends: BTreeMap::new(), network, place };
        fs::create_dir(clients.directory("server")).unwrap();
        for number in 0..count {
            let name = name(number);
            let key = format!("{:02x}", number + 1).repeat(32);
            fs::write(clients.directory("server").join(format!("{name}.key")), &key).unwrap();
            fs::create_dir(clients.directory(&name)).unwrap();
            fs::write(clients.directory(&name).join("key"), &key).unwrap();
            let text = clients.client_configuration(number);
            fs::write(clients.directory(&name).join("tunnel.toml"), text).unwrap();
        }
        clients.configure(SETTINGS, &(0..configured).collect::<Vec<_>>());
        clients.start_end("server");
        (0..configured).for_each(|number| clients.start_end(&name(number)));
        clients
    }

    /// Writes the server's configuration.
    pub(crate) fn configure(&self, settings: &str, clients: &[usize]) {
        let mut text = format!("{settings}addresses = [\"{SERVER}/24\"]\n");
        for port in (0..CHANNELS).map(|channel| PORT + channel) {
            write!(text, "[[channel]]\nlisten = \"0.0.0.0:{port}\"\n").unwrap();
        }
        for number in clients {
            let (name, address) = (name(*number), address(*number));
            write!(
                text,
                "[[client]]\nname = \"{name}\"\nkey = \"{name}.key\"\nnetworks = [\"{address}/32\"]\n"
            )
            .unwrap();
        }
        fs::write(self.directory("server").join("tunnel.toml"), text).unwrap();
    }

    fn client_configuration(&self, number: usize) -> String {
        let server = self.network.address("server", &name(number)).unwrap();
        let mut text =
            format!("kappa = 2\nmu = 3\nkey = \"key\"\naddresses = [\"{}/24\"]\n", address(number));
        for port in (0..CHANNELS).map(|channel| PORT + channel) {
            write!(text, "[[channel]]\nserver = \"{server}:{port}\"\n").unwrap();
        }
        text
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn start_end(&mut self, name: &str) {
        let directory = self.directory(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .args(["tunnel", "--config"])
            .arg(directory.join("tunnel.toml"))
            .env("RUNTIME_DIRECTORY", &directory);
        let log = directory.join("log");
        let mut process = Process::start(self.host(name), &mut command, &log);
        until("the tunnel has its device", || {
            let ended = process.0.try_wait().unwrap();
            assert!(ended.is_none(), "{name} has ended: {}", self.log(name));
            self.log(name).contains("device sunder0")
        });
        self.ends.insert(name.to_owned(), process);
    }

    pub(crate) fn host(&self, name: &str) -> &EmulatedHost {
        self.network.host(name).unwrap()
    }

    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.ends["server"].0), Signal::HUP).unwrap();
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory(name).join("log")).unwrap_or_default()
    }

    pub(crate) fn process(&self, name: &str) -> u32 {
        self.ends[name].0.id()
    }

    /// The server's status.
    pub(crate) fn status(&self) -> TunnelStatus {
        let output = self.ask(&["status", "--json"]);
        let tunnels: Vec<TunnelStatus> = serde_json::from_str(&output).unwrap();
        let [status] = <[TunnelStatus; 1]>::try_from(tunnels).expect("one tunnel");
        status
    }

    /// What `sunder` prints with these arguments about the server.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(arguments).env("RUNTIME_DIRECTORY", self.directory("server"));
        let output = answered(|| command.output().unwrap());
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The server's status of a client.
    pub(crate) fn client(&self, number: usize) -> TunnelClientStatus {
        let clients = self.status().clients;
        clients.into_iter().find(|client| client.name == name(number)).expect("it is a client")
    }

    pub(crate) fn wait_for_client(&self, number: usize) {
        until(&format!("client {number} is associated"), || {
            self.client(number).associated_s.is_some()
        });
    }

    /// Packets from a client to the server.
    fn there(&self, number: usize) -> Stream {
        Stream::start(self.host(&name(number)), self.host("server"), SERVER, StreamRate::LIGHT)
    }

    /// Packets from the server to a client.
    fn back(&self, number: usize) -> Stream {
        let to = address(number);
        Stream::start(self.host("server"), self.host(&name(number)), &to, StreamRate::LIGHT)
    }
}

/// Runs `ip` on a host.
fn ip(host: &EmulatedHost, arguments: &str) {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    let status = host.run(|| command.status()).unwrap().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Sends a few datagrams from an address of a host.
fn send_from(host: &EmulatedHost, from: &str, to: &str) {
    let socket = host.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
    (0..5).for_each(|_| drop(socket.send_to(b"hello", (to, 4000))));
}

pub(crate) fn three_clients_of_one_server_are_apart() {
    in_one_of_three(three_clients_are_apart);
}

fn three_clients_are_apart() -> Result<(), String> {
    let clients = Clients::start(3, 3, "rate_mbit = 100, delay_ms = 2");
    (0..3).for_each(|number| clients.wait_for_client(number));
    let mut streams: Vec<Stream> = (0..3).map(|number| clients.there(number)).collect();
    streams.extend((0..3).map(|number| clients.back(number)));
    for stream in &streams {
        stream.wait_for(300);
    }
    let begins: Vec<Duration> = streams.iter().map(Stream::now).collect();

    // A client has neither the source of another, nor a way to it.
    let one = clients.host(&name(0));
    ip(one, &format!("address add {}/32 dev lo", address(1)));
    send_from(one, &address(1), SERVER);
    until("a foreign source is dropped", || clients.client(0).dropped.not_allowed >= 5);
    send_from(one, &address(0), &address(2));
    until("a packet for another client is dropped", || {
        clients.client(0).dropped.between_clients >= 5
    });
    let other = clients.client(1).dropped;
    assert_eq!((other.not_allowed, other.between_clients), (0, 0));

    // Datagrams of nobody, from the host of a client.
    let socket = one.run(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
    let server = clients.network.address("server", &name(0)).unwrap();
    for number in 0..2000_u16 {
        let mut datagram = [0x5A; 400];
        datagram[0] = [0x01, 0x82, 0x30, 0xF0][usize::from(number % 4)];
        let _ = socket.send_to(&datagram, (server, PORT + number % CHANNELS));
    }
    until("they are counted", || clients.status().dropped.unrecognised > 500);

    let page = clients.ask(&["status"]);
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    let is_row = |line: &&str| line.trim_start().starts_with("c1 ");
    assert!(page.lines().find(is_row).is_some_and(|row| row.contains("3/3")), "{page}");
    let metrics = clients.ask(&["status", "--metrics"]);
    assert!(metrics.contains("sunder_tunnel_client_associated{"), "{metrics}");
    assert!(metrics.contains("client=\"c1\""), "{metrics}");
    assert!(clients.log("server").contains("c1: associated over 3 channels"));

    // The link of client 0 had no room for all of these datagrams.
    for (place, (stream, begin)) in streams.iter().zip(begins).enumerate() {
        stream.wait_for(100);
        let (sent, lost) = stream.lost(begin, stream.now());
        assert_eq!(stream.wrong(), 0);
        if place % 3 != 0 {
            few_lost(sent, lost, MIN_SENT_FOR_LOST)?;
        }
    }
    Ok(())
}

/// Of so many packets one may be lost because the machine is busy: on an idle one none are.
const MIN_SENT_FOR_LOST: usize = 100;

pub(crate) fn clients_move_come_and_go_and_others_notice_nothing() {
    in_one_of_three(clients_move_come_and_go);
}

fn clients_move_come_and_go() -> Result<(), String> {
    let mut clients = Clients::start(4, 3, "rate_mbit = 100, delay_ms = 2");
    (0..3).for_each(|number| clients.wait_for_client(number));
    let still = [clients.there(1), clients.back(1)];
    let moving = clients.back(0);
    for stream in still.iter().chain([&moving]) {
        stream.wait_for(300);
    }
    let begins = still.each_ref().map(Stream::now);

    // Client 0 gets another address.
    let link = name(0);
    let before = clients.network.address(&link, &link).unwrap();
    let [a, b, c, d] = before.octets();
    let server = clients.network.address("server", &link).unwrap();
    let after = (1..7).map(|next| (d & 0xF8) | next).map(|d| format!("{a}.{b}.{c}.{d}"));
    let mut after = after.rev().filter(|it| *it != before.to_string() && *it != server.to_string());
    let after = after.next().unwrap();
    let begin = moving.now();
    let host = clients.host(&link);
    ip(host, &format!("address add {after}/32 dev {link}"));
    ip(host, &format!("route replace {server}/32 dev {link} src {after}"));
    ip(clients.host("server"), &format!("route replace {after}/32 dev {link}"));
    moving.wait_for(300);
    until("the client has moved on all channels", || {
        let moved = |peer: &Option<String>| peer.as_ref().is_some_and(|it| it.starts_with(&after));
        clients.client(0).channels.iter().all(|channel| moved(&channel.peer))
    });
    let gap = moving.longest_gap(begin, moving.now());
    if gap >= Duration::from_secs(20) {
        return Err(format!("{gap:?} without packets"));
    }
    assert!(clients.log("server").contains("c0: channel 1: the peer is at"));

    // Client 2 is closed, and client 3 added.
    clients.configure(SETTINGS, &[0, 1, 3]);
    clients.hang_up();
    until("the clients are others", || {
        let names: Vec<String> = clients.status().clients.into_iter().map(|it| it.name).collect();
        names == ["c0", "c1", "c3"]
    });
    clients.start_end(&name(3));
    clients.wait_for_client(3);
    let new = clients.back(3);
    new.wait_for(100);
    until("the closed client notices", || {
        clients.log(&name(2)).contains("the peer does not answer")
    });

    // Clients may send to each other from now on.
    clients.configure(&format!("{SETTINGS}between_clients = true\n"), &[0, 1, 3]);
    clients.hang_up();
    let (zero, one) = (clients.host(&name(0)), clients.host(&name(1)));
    let between = Stream::start(zero, one, &address(1), StreamRate::LIGHT);
    between.wait_for(50);
    drop(between);

    // What cannot be is refused, and changes nothing.
    let key = clients.directory("server").join("c3.key");
    fs::copy(clients.directory("server").join("c1.key"), key).unwrap();
    clients.hang_up();
    until("a second key is refused", || {
        clients.log("server").contains("the clients c1 and c3 have the same key")
    });
    for (stream, begin) in still.iter().zip(begins) {
        stream.wait_for(100);
        let (sent, lost) = stream.lost(begin, stream.now());
        assert_eq!(stream.wrong(), 0);
        few_lost(sent, lost, MIN_SENT_FOR_LOST)?;
    }
    new.wait_for(100);
    Ok(())
}
