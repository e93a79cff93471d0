//! Programs that know nothing of transports, over `sunder transport forward` and a long path.

mod faults;
mod programs;
mod rate;
mod streams;

pub(crate) use faults::{
    broken_path_by_burst, broken_path_by_quic, broken_path_by_tcp, idle, stop, target_down,
};
pub(crate) use programs::{mp_spdz, postgresql, programs};
pub(crate) use rate::compared;
pub(crate) use streams::{exact_streams, many_connections, short_connections, slow_reader};

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use lab::EmulatedNetwork;
use serde_json::Value;

use crate::emulation::{Process, network, until};

/// A path between Europe and the east of North America.
const LONG_PATH: &str = "rate_mbit = 100, delay_ms = 55";

/// The transports that are tried.
const TRANSPORTS: [&str; 3] = ["tcp", "burst", "quic"];

/// The port of the service, at its host's loopback address.
const SERVICE: u16 = 5000;

/// The port of the programs, at their host's loopback address.
const LOCAL: u16 = 6000;

/// A service on one host, and its port forwarded to another one.
struct ForwardBed {
    network: EmulatedNetwork,
    directory: tempfile::TempDir,
    /// What follows `sunder transport forward`.
    command: Vec<String>,
    exposer: Process,
    forwarder: Option<Process>,
}

impl ForwardBed {
    /// `conditions` are those of the link, both ways.
    fn new(conditions: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let topology = format!(
            "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
             [hosts]\nclient = {{}}\nserver = {{}}\n\
             [links.a]\nhosts = [\"client\", \"server\"]\nboth = {{ {conditions} }}\n"
        );
        let network = network(&topology, directory.path());
        let address = network.address("server", "a").unwrap();
        let mut expose = sunder(&directory, "server");
        let target = format!("127.0.0.1:{SERVICE}");
        let listen = format!("{address}:7000");
        expose.args(["transport", "expose", &target, "--listen", &listen, "--any-peer"]);
        let log = directory.path().join("exposer.log");
        let exposer = Process::start(network.host("server").unwrap(), &mut expose, &log);
        let printed = || fs::read_to_string(&log).unwrap();
        until("the exposer listens", || printed().contains("--listen"));
        let printed = printed();
        let line = printed.lines().find_map(|line| line.strip_prefix("sunder transport forward "));
        // Without the port, which is that of the service.
        let words = line.unwrap().split(' ').take(3);
        let command = words.map(str::to_owned).collect();
        Self { network, directory, command, exposer, forwarder: None }
    }

    /// Starts to forward by this transport.
    fn forward(&mut self, transport: &str) {
        self.forwarder = None;
        let mut forward = sunder(&self.directory, "client");
        forward.args(["transport", "forward"]).args(&self.command);
        forward.args(["--listen", &LOCAL.to_string(), "--transport", transport]);
        let log = self.directory.path().join("forwarder.log");
        let host = self.network.host("client").unwrap();
        self.forwarder = Some(Process::start(host, &mut forward, &log));
        until("the forwarder listens", || self.log("forwarder").contains("listening on"));
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap()
    }

    /// Starts a program on a host, in the directory of the test.
    fn start(&self, host: &str, name: &str, command: &mut Command) -> Process {
        let log = self.directory.path().join(format!("{name}.log"));
        command.current_dir(self.directory.path());
        Process::start(self.network.host(host).unwrap(), command, &log)
    }

    /// Runs a program on the client's host to its end. Returns what it prints.
    fn run(&self, command: &mut Command) -> String {
        command.current_dir(self.directory.path());
        let host = self.network.host("client").unwrap();
        let output = host.run(|| command.output()).unwrap().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {stderr}\n{}", self.log("forwarder"));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Listens as the service.
    fn listen(&self) -> TcpListener {
        let host = self.network.host("server").unwrap();
        host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, SERVICE))).unwrap().unwrap()
    }

    /// Connects as a program.
    fn connect(&self) -> TcpStream {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, LOCAL));
        let host = self.network.host("client").unwrap();
        host.run(|| TcpStream::connect(address)).unwrap().unwrap()
    }

    /// Waits until a program listens as the service.
    fn until_served(&self) {
        let host = self.network.host("server").unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVICE));
        let is_served = || host.run(|| TcpStream::connect(address).is_ok()).unwrap();
        until("the service listens", is_served);
    }

    /// The status of an end, as `sunder status --json` shows it.
    fn status(&self, kind: &str) -> Value {
        let host = if kind == "forward" { "client" } else { "server" };
        let mut command = sunder(&self.directory, host);
        command.args(["status", "--json"]);
        let mut status = None;
        // A busy machine may answer too late.
        until(&format!("{kind} shows its status"), || {
            let output = command.output().unwrap();
            let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
            status = all.into_iter().find(|one| one["kind"] == kind);
            status.is_some()
        });
        status.unwrap()
    }
}

/// The command `sunder` of a host.
fn sunder(directory: &tempfile::TempDir, host: &str) -> Command {
    let place = directory.path().join(host);
    fs::create_dir_all(&place).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.env("XDG_STATE_HOME", &place).env("RUNTIME_DIRECTORY", &place);
    command.current_dir(directory.path());
    command
}

/// Whether a program is installed. If not, prints that its test is skipped.
fn is_installed(program: &str) -> bool {
    let found = Command::new("which").arg(program).output().is_ok_and(|it| it.status.success());
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}
