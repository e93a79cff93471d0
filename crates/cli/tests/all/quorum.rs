//! `sunder quorum`.

mod bad_input;
mod wiping;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::sunder;

/// Makes identity keys and a `nodes.toml` with these addresses.
fn nodes(place: &Path, addresses: &[&str]) {
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

fn error_of(place: &Path, arguments: &[&str], code: i32) -> String {
    let output = sunder(place, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_ceremony_writes_a_key_that_openssl_reads_and_overwrites_nothing() {
    let place = tempfile::tempdir().unwrap();
    let addresses = ["192.0.2.1:6530", "192.0.2.2:6530", "192.0.2.3:6530", "192.0.2.4:6530"];
    nodes(place.path(), &addresses);
    let init = ["quorum", "init", "--f", "1", "--nodes", "nodes.toml", "--out", "made", "--json"];
    let output = sunder(place.path(), &init);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["faulty"], &document["servers"]), (&1.into(), &4.into()));
    assert_eq!((&document["shares"], &document["bits"]), (&4.into(), &2048.into()));
    let made = place.path().join("made");
    for i in 1..=4 {
        let path = made.join(format!("server-{i}.share"));
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let openssl = Command::new("openssl")
        .args(["pkey", "-pubin", "-noout", "-text", "-in"])
        .arg(made.join("public.pem"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&openssl.stdout).contains("Public-Key: (2048 bit)"));

    let before = fs::read(made.join("server-1.share")).unwrap();
    let said = error_of(place.path(), &init, 2);
    assert!(said.contains("made is not empty, and nothing is overwritten"), "{said}");
    assert_eq!(fs::read(made.join("server-1.share")).unwrap(), before);
}

#[test]
fn groups_that_are_none_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let addresses = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1"];
    nodes(place.path(), &addresses);
    let init = |more: &[&str]| {
        let arguments = ["quorum", "init", "--nodes", "nodes.toml", "--out", "made"];
        let said = error_of(place.path(), &[&arguments, more].concat(), 2);
        assert!(!place.path().join("made").exists());
        said
    };
    let many = init(&["--f", "5"]);
    assert!(many.contains("4368 shares, and a refresh 19079424 subshares"), "{many}");
    assert!(init(&["--f", "2"]).contains("4 servers, but f = 2 needs 7"));
    assert!(init(&["--key", "ed25519"]).contains("rsa-2048"));
    let text = fs::read_to_string(place.path().join("nodes.toml")).unwrap();
    let three = text.rsplit_once("[[server]]").unwrap().0;
    fs::write(place.path().join("nodes.toml"), three).unwrap();
    assert!(init(&[]).contains("a group has 4, 7, 10 or 13 servers, not 3"));
}

#[test]
fn a_server_that_does_not_run_is_named() {
    let place = tempfile::tempdir().unwrap();
    let said = error_of(place.path(), &["quorum", "pubkey", "--socket", "none.sock"], 1);
    assert!(said.contains("no server answers at none.sock"), "{said}");
}

/// A server as a process. It is killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Servers on loopback, numbered from 1, of which the first four have the key.
struct Group {
    place: TempDir,
    addresses: Vec<String>,
}

impl Group {
    fn new(count: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        // All at once, so that they differ.
        let free: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<String> =
            free.iter().map(|it| it.local_addr().unwrap().to_string()).collect();
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
        group.run(&["init", "--nodes", "old.toml", "--out", "made"]);
        fs::write(group.path("master.key"), "0f".repeat(32)).unwrap();
        fs::set_permissions(group.path("master.key"), fs::Permissions::from_mode(0o600)).unwrap();
        for number in 1..=count {
            let share = match number {
                1..=4 => format!("share = \"made/server-{number}.share\"\n"),
                _ => String::new(),
            };
            let peers = list(&servers[..4]).replace("[[server]]", "[[peer]]");
            let config = format!(
                "identity = \"{number}.key\"\npublic_key = \"made/public.pem\"\n{share}\
                 store = \"store-{number}\"\nmaster_key = \"master.key\"\n\
                 listen = [\"{}\"]\nsocket = \"{number}.api\"\n{peers}",
                group.addresses[number - 1]
            );
            fs::write(group.path(&format!("{number}.toml")), config).unwrap();
        }
        group
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts a server. Its log is in a file.
    fn start(&self, number: usize) -> Server {
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

    /// Runs a command that succeeds, and returns what it prints.
    fn run(&self, arguments: &[&str]) -> String {
        let output = sunder(self.place.path(), &[&["quorum"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}{}", self.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the servers have logged.
    fn logs(&self) -> String {
        let logs = (1..=self.addresses.len()).map(|number| {
            let log = fs::read_to_string(self.path(&format!("{number}.log")));
            format!("\n{number}:\n{}", log.unwrap_or_default())
        });
        logs.collect()
    }

    /// Waits until these servers are healthy.
    fn wait_until_healthy(&self, numbers: impl IntoIterator<Item = usize>) {
        let deadline = Instant::now() + Duration::from_secs(40);
        let mut numbers: Vec<usize> = numbers.into_iter().collect();
        while !numbers.is_empty() {
            numbers.retain(|number| {
                let client = quorum_health(&self.path(&format!("{number}.api")));
                client.is_none_or(|health| !health.contains("\"ok\":true"))
            });
            assert!(Instant::now() < deadline, "not healthy: {numbers:?}{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn openssl_accepts(&self, file: &str) -> bool {
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
fn quorum_health(socket: &Path) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let request = "GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn four_processes_sign_without_one_of_them_and_move_the_key_to_four_others() {
    let group = Group::new(8);
    let mut servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    assert!(!group.path("made/server-1.share").exists());
    for name in ["first", "second", "third"] {
        fs::write(group.path(name), format!("{name}\n")).unwrap();
    }
    let refused =
        error_of(group.place.path(), &["quorum", "sign", "--socket", "1.api", "first"], 3);
    assert!(refused.contains("not registered"), "{refused}");
    for name in ["first", "second"] {
        for socket in ["1.api", "2.api", "3.api"] {
            group.run(&["register", "--socket", socket, name]);
        }
    }
    group.run(&["sign", "--socket", "1.api", "first"]);
    assert!(group.openssl_accepts("first"));
    let pem = group.run(&["pubkey", "--socket", "4.api"]);
    assert_eq!(pem, fs::read_to_string(group.path("made/public.pem")).unwrap());

    // One is killed: the others sign without it, and it is back after a restart.
    drop(servers.remove(1));
    group.run(&["sign", "--socket", "3.api", "second"]);
    assert!(group.openssl_accepts("second"));
    servers.push(group.start(2));
    group.wait_until_healthy([2]);

    servers.extend((5..=8).map(|number| group.start(number)));
    group.run(&["refresh", "--no-wait", "--socket", "1.api", "--to", "new.toml"]);
    let done = group.run(&["refresh", "--socket", "2.api", "--to", "new.toml"]);
    assert_eq!(done, "epoch 2 has begun\n");
    group.wait_until_healthy(5..=8);
    for socket in ["5.api", "6.api"] {
        group.run(&["register", "--socket", socket, "third"]);
    }
    group.run(&["sign", "--encoding", "pss", "--socket", "5.api", "third"]);
    group.run(&["headers", "--socket", "6.api", "headers"]);
    let verify = ["verify-epochs", "--pubkey", "made/public.pem", "headers"];
    let chain = group.run(&verify);
    assert!(chain.starts_with("epoch "), "{chain}");
    let mut headers = fs::read(group.path("headers")).unwrap();
    headers[60] ^= 1;
    fs::write(group.path("headers"), headers).unwrap();
    let said = sunder(group.place.path(), &[&["quorum"], &verify[..]].concat());
    assert!(matches!(said.status.code(), Some(2 | 3)), "{said:?}");
}

#[test]
fn a_server_reads_its_rules_again_and_returns_from_a_backup_and_from_nothing() {
    let group = Group::new(4);
    let mut servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);

    // Two servers get a rule: together they sign what it allows.
    fs::write(group.path("allowed"), "release 1.0\n").unwrap();
    for number in [1, 3] {
        let path = group.path(&format!("{number}.toml"));
        let config = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{config}[[rule]]\nprefix = \"release \"\n")).unwrap();
        signal(&servers[number - 1], "HUP");
    }
    let in_force = |log: String| log.contains("the configuration was read again");
    let is_read = |number| in_force(fs::read_to_string(group.path(number)).unwrap());
    wait_until("the rules are read", || is_read("1.log") && is_read("3.log"));
    group.run(&["sign", "--socket", "1.api", "allowed"]);
    assert!(group.openssl_accepts("allowed"));

    let status = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["status", "--json"])
        .env("RUNTIME_DIRECTORY", group.place.path())
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let text = status.to_string();
    assert_eq!(text.matches("\"kind\":\"quorum\"").count(), 4, "{text}");
    let doctor = sunder(group.place.path(), &["doctor", "--config", "1.toml"]);
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("this server is ") && doctor.contains("in use"), "{doctor}");

    // A backup replaces a lost database.
    let mut fourth = servers.pop().unwrap();
    signal(&fourth, "TERM");
    assert!(fourth.0.wait().unwrap().success(), "{}", group.logs());
    group.run(&["backup", "--config", "4.toml", "backup"]);
    fs::remove_file(group.path("store-4/epochs.sqlite")).unwrap();
    group.run(&["restore", "--config", "4.toml", "backup"]);
    let fourth = group.start(4);
    group.wait_until_healthy([4]);

    // Without any state, and without a share, it gets its shares from the others.
    drop(fourth);
    fs::remove_dir_all(group.path("store-4")).unwrap();
    let config = fs::read_to_string(group.path("4.toml")).unwrap();
    let config: Vec<&str> = config.lines().filter(|line| !line.starts_with("share")).collect();
    fs::write(group.path("4.toml"), config.join("\n")).unwrap();
    let _fourth = group.start(4);
    group.wait_until_healthy([4]);
    fs::write(group.path("message"), "message\n").unwrap();
    group.run(&["register", "--socket", "4.api", "message"]);
    group.run(&["register", "--socket", "2.api", "message"]);
    group.run(&["sign", "--socket", "4.api", "message"]);
    assert!(group.openssl_accepts("message"));
}

fn signal(server: &Server, name: &str) {
    let status = Command::new("kill").args(["-s", name, &server.0.id().to_string()]).status();
    assert!(status.unwrap().success());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(50);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}
