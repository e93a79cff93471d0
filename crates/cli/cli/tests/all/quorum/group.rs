//! Servers as processes on loopback.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use keys::IdentitySecretKey;
use quorum::links::QuorumLinks;
use quorum::nodes::parse_nodes;
use quorum::{QuorumShareFile, UnixSeconds, ceremony_files};
use random::RandomGenerator;
use rsa_arithmetic::fixture::large_key;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::common::{free_address, sunder};

/// The time limit for what servers do on a busy machine.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// Makes identity keys and a `nodes.toml` with these addresses.
pub(super) fn nodes(place: &Path, addresses: &[&str]) {
    let mut text = String::new();
    for (i, address) in addresses.iter().enumerate() {
        let name = format!("{}.key", i + 1);
        let path = place.join(&name);
        fs::write(&path, format!("{:02x}", i + 1).repeat(32)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let output = sunder(place, &["quorum", "identity", &name]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let identity = String::from_utf8(output.stdout).unwrap();
        let identity = identity.trim();
        let _ = writeln!(text, "[[server]]\nidentity = \"{identity}\"\naddress = \"{address}\"");
    }
    fs::write(place.join("nodes.toml"), text).unwrap();
}

pub(super) fn error_of(place: &Path, arguments: &[&str], code: i32) -> String {
    let output = sunder(place, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

/// A server as a process. It is killed when dropped.
pub(super) struct Server(pub(super) Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Servers on loopback, numbered from 1, of which the first four have the key.
pub(super) struct Group {
    pub(super) place: TempDir,
    pub(super) addresses: Vec<String>,
}

impl Group {
    pub(super) fn new(count: usize) -> Self {
        Self::with_key(count, "rsa-2048")
    }

    /// A group with a key of this kind.
    pub(super) fn with_key(count: usize, key: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let addresses: Vec<String> = (0..count).map(|_| free_address().to_string()).collect();
        let all: Vec<&str> = addresses.iter().map(String::as_str).collect();
        nodes(place.path(), &all);
        let group = Self { place, addresses };
        let text = fs::read_to_string(group.path("nodes.toml")).unwrap();
        let servers: Vec<&str> = text.split_inclusive("[[server]]\n").skip(1).collect();
        let list = |servers: &[&str]| {
            let servers = servers.iter().map(|it| it.trim_end_matches("[[server]]\n"));
            servers.map(|server| ["[[server]]\n", server].concat()).collect::<String>()
        };
        fs::write(group.path("old.toml"), list(&servers[..4])).unwrap();
        fs::write(group.path("new.toml"), list(&servers[4..])).unwrap();
        // The servers generate an Ed25519 key, and others get the bundle with it later.
        let is_generated = key == "ed25519";
        if is_generated {
            group.run(&["init", "--nodes", "old.toml", "--key", key, "--bundle", "group.bundle"]);
        } else {
            group.deal(key);
        }
        fs::write(group.path("master.key"), "0f".repeat(32)).unwrap();
        fs::set_permissions(group.path("master.key"), fs::Permissions::from_mode(0o600)).unwrap();
        for number in 1..=count {
            let public = "public_key = \"made/public.pem\"\n";
            let of_key: String = match number {
                1..=4 if is_generated => "bundle = \"group.bundle\"\n".into(),
                1..=4 => format!("{public}share = \"made/server-{number}.share\"\n"),
                _ if is_generated => "bundle = \"joining.bundle\"\n".into(),
                _ => public.into(),
            };
            let peers = list(&servers[..4]).replace("[[server]]", "[[peer]]");
            let config = format!(
                "identity = \"{number}.key\"\n{of_key}\
                 store = \"store-{number}\"\nmaster_key = \"master.key\"\n\
                 listen = [\"{}\"]\nsocket = \"{number}.api\"\n{peers}",
                group.addresses[number - 1]
            );
            fs::write(group.path(&format!("{number}.toml")), config).unwrap();
        }
        group
    }

    /// Deals a fixed key in the way that `sunder quorum init --out made` deals a new one. To find
    /// its primes would take seconds in each test.
    fn deal(&self, key: &str) {
        let group = parse_nodes(&fs::read_to_string(self.path("old.toml")).unwrap()).unwrap();
        let deal = match key {
            "rsa-2048" => QuorumShareFile::deal,
            "rsa-2048-polynomial" => QuorumShareFile::deal_polynomial,
            _ => panic!("{key} has no share files"),
        };
        let time = UnixSeconds::from_system(SystemTime::now());
        let mut generator = RandomGenerator::seeded().unwrap();
        let files = deal(&large_key(), &group, time, &mut generator).unwrap();
        let made = self.path("made");
        ceremony_files::create_directory(&made).unwrap();
        ceremony_files::write(&made, &files).unwrap();
    }

    /// Writes the bundle with the key that healthy servers have generated, for others.
    pub(super) fn take_generated_key(&self) {
        self.run(&["bundle", "--socket", "1.api", "joining.bundle"]);
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts a server. Its log is in a file.
    pub(super) fn start(&self, number: usize) -> Server {
        let path = self.path(&format!("{number}.log"));
        let log = File::options().create(true).append(true).open(path).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(["quorum", "node", "--config", &format!("{number}.toml")])
            .current_dir(self.place.path())
            .env("RUNTIME_DIRECTORY", self.place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Server(child)
    }

    /// Waits until a server that was started listens.
    pub(super) fn wait_until_listening(&self, number: usize) {
        let address = &self.addresses[number - 1];
        wait_until("it listens", || TcpStream::connect(address).is_ok());
    }

    /// Servers that answer who connects, and do nothing else until this is dropped.
    pub(super) fn answer_only(
        &self,
        numbers: RangeInclusive<usize>,
    ) -> (Vec<QuorumLinks>, Runtime) {
        let runtime = Runtime::new().unwrap();
        let answering = async |number: usize| {
            let address = self.addresses[number - 1].parse().unwrap();
            let listening = service::listening::listen([address], &[]).await.unwrap();
            let key = IdentitySecretKey::new(&[u8::try_from(number).unwrap(); 32]);
            let (links, _) = QuorumLinks::start(key, listening);
            links.set_peers(&[]);
            links
        };
        let links = numbers.map(|number| runtime.block_on(answering(number))).collect();
        (links, runtime)
    }

    /// Runs a command that succeeds, and returns what it prints.
    pub(super) fn run(&self, arguments: &[&str]) -> String {
        let output = sunder(self.place.path(), &[&["quorum"], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}{}", self.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    /// What `sunder status` with these arguments shows of the servers.
    pub(super) fn status(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .arg("status")
            .args(arguments)
            .env("RUNTIME_DIRECTORY", self.place.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the servers have logged.
    pub(super) fn logs(&self) -> String {
        let logs = (1..=self.addresses.len()).map(|number| {
            let log = fs::read_to_string(self.path(&format!("{number}.log")));
            format!("\n{number}:\n{}", log.unwrap_or_default())
        });
        logs.collect()
    }

    /// Waits until these servers are healthy.
    pub(super) fn wait_until_healthy(&self, numbers: impl IntoIterator<Item = usize>) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut numbers: Vec<usize> = numbers.into_iter().collect();
        while !numbers.is_empty() {
            numbers.retain(|number| {
                let client = health(&self.path(&format!("{number}.api")));
                client.is_none_or(|health| !health.contains("\"ok\":true"))
            });
            assert!(Instant::now() < deadline, "not healthy: {numbers:?}{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn openssl_accepts(&self, file: &str) -> bool {
        let signature = format!("{file}.sig");
        let output = Command::new("openssl")
            .args(["dgst", "-sha256", "-verify", "made/public.pem", "-signature", &signature, file])
            .current_dir(self.place.path())
            .output()
            .unwrap();
        output.stdout == b"Verified OK\n"
    }
}

/// What a server says of its health; `None` if it does not answer.
pub(super) fn health(socket: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let request = "GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(super) fn signal(server: &Server, name: &str) {
    let status = Command::new("kill").args(["-s", name, &server.0.id().to_string()]).status();
    assert!(status.unwrap().success());
}

pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}
