//! A client and a server with three channels between them, and programs on both.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedHost, EmulatedNetwork, sandbox};
use tempfile::TempDir;

pub(crate) use crate::emulation::until;
use crate::emulation::{Process, WAIT_TIMEOUT, network};

/// The hosts. A third host sends its packets through the client.
const TOPOLOGY: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
ipv6 = true
sysctl = { "net/ipv4/ip_forward" = "1", "net/ipv6/conf/all/forwarding" = "1" }
[hosts.server]
ipv6 = true
[hosts.user]
ipv6 = true
[links.a]
hosts = ["client", "server"]
both = { delay_ms = 1 }
tap = "a"
[links.b]
hosts = ["client", "server"]
both = { delay_ms = 2 }
tap = "b"
[links.c]
hosts = ["client", "server"]
both = { delay_ms = 3 }
tap = "c"
[links.lan]
hosts = ["user", "client"]
both = {}
"#;

/// The channels' links.
pub(crate) const CHANNELS: [&str; 3] = ["a", "b", "c"];

/// The hosts, the links, and a directory for files.
pub(crate) struct Topology {
    network: EmulatedNetwork,
    place: TempDir,
}

impl Topology {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        // Programs that change to another user must be able to enter it.
        open_to_all(place.path());
        let network = network(TOPOLOGY, place.path());
        Self { network, place }
    }

    pub(crate) fn host(&self, name: &str) -> &EmulatedHost {
        self.network.host(name).unwrap()
    }

    /// A host's IPv4 address on a link.
    pub(crate) fn v4(&self, host: &str, link: &str) -> Ipv4Addr {
        self.network.address(host, link).unwrap()
    }

    /// A host's IPv6 address on a link.
    pub(crate) fn v6(&self, host: &str, link: &str) -> Ipv6Addr {
        format!("fd00::{}", self.v4(host, link)).parse().unwrap()
    }

    /// A file's path.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Writes a file that all users can read. Returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Starts `sunder serve` on the server's three addresses, for these services.
    pub(crate) fn serve(&self, allow: &str) -> Program {
        let listen: Vec<String> =
            CHANNELS.iter().map(|link| format!("\"{}:7000\"", self.v4("server", link))).collect();
        let listen = listen.join(", ");
        let text = format!("listen = [{listen}]\nallow = {allow}\nmin_channels = 3\n");
        let config = self.write("serve.toml", text);
        let config = config.to_str().unwrap();
        let server = self.start("server", SUNDER, &["serve", "--config", config]);
        server.wait_for("listening on", 3);
        server
    }

    /// Writes the client's configuration with these settings.
    pub(crate) fn proxy_toml(&self, settings: &str) -> PathBuf {
        let channel =
            |link: &&str| format!("[[channel]]\nserver = \"{}:7000\"\n", self.v4("server", link));
        let channels: String = CHANNELS.iter().map(channel).collect();
        self.write("proxy.toml", format!("{settings}\n{channels}"))
    }

    /// Starts `sunder proxy` with interception.
    pub(crate) fn proxy(&self, settings: &str) -> Program {
        let config = self.proxy_toml(settings);
        let client = self.start("client", SUNDER, &["proxy", "--config", config.to_str().unwrap()]);
        client.wait_for("intercepted", 2);
        client
    }

    /// Starts a program on a host.
    pub(crate) fn start(&self, host: &str, program: &str, arguments: &[&str]) -> Program {
        let log = tempfile::Builder::new().tempfile_in(self.place.path()).unwrap();
        let (_, log) = log.keep().unwrap();
        let mut command = Command::new(program);
        command.args(arguments).env("RUNTIME_DIRECTORY", self.place.path());
        command.env("RUST_LOG", "info,sunder_micss=debug");
        let process = Process::start(self.host(host), &mut command, &log);
        Program { process, log }
    }

    /// Runs a program on a host to its end.
    pub(crate) fn run(&self, host: &str, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        self.host(host).run(|| command.output()).unwrap().unwrap()
    }

    /// The output of a program that must succeed.
    pub(crate) fn ask(&self, host: &str, program: &str, arguments: &[&str]) -> String {
        let output = self.run(host, program, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {message}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Fetches with curl, by default over one connection for each document.
    pub(crate) fn fetch(&self, host: &str, address: IpAddr, document: &str) -> io::Result<Vec<u8>> {
        let address = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let url = format!("http://{address}/{document}");
        let output = self.run(host, "curl", &["--silent", "--show-error", "--globoff", &url]);
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// Removes the network. Returns the captures of the channels.
    pub(crate) fn captures(self) -> [Vec<u8>; 3] {
        self.network.remove().unwrap();
        CHANNELS.map(|link| fs::read(self.place.path().join(format!("1-{link}"))).unwrap())
    }
}

/// The program under test.
pub(crate) const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// A running program. It is killed when this is dropped.
pub(crate) struct Program {
    process: Process,
    log: PathBuf,
}

impl Program {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until a program has printed this in `lines` lines.
    pub(crate) fn wait_for(&self, what: &str, lines: usize) {
        let message = || self.log().lines().filter(|line| line.contains(what)).count() >= lines;
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !message() {
            assert!(Instant::now() < deadline, "it does not say \"{what}\", but: {}", self.log());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.0.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.process.0.wait().unwrap().success(), "{}", self.log());
    }

    /// Waits for its end. Returns whether it succeeded.
    pub(crate) fn ended_well(&mut self) -> bool {
        self.process.0.wait().unwrap().success()
    }
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    drop(File::open(path).unwrap());
}
