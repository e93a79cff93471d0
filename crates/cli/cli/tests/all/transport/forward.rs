//! `sunder transport forward` and `expose` on one host: clients that are admitted and refused, a
//! relay, several channels, and wrong arguments.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::sunder;

/// An end of a forward, killed when dropped. Its log is in a file of its name.
struct ForwardEnd {
    child: Child,
    lines: Vec<String>,
}

impl ForwardEnd {
    /// Starts it, and reads what it prints until a line has this word.
    fn start(directory: &Path, name: &str, arguments: &[&str], last: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("transport").args(arguments).current_dir(directory);
        command.env("XDG_STATE_HOME", directory).env("RUNTIME_DIRECTORY", directory);
        let log = fs::File::create(directory.join(name)).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            lines.push(line.unwrap());
            if lines.last().is_some_and(|line| line.contains(last)) {
                break;
            }
        }
        Self { child, lines }
    }

    /// Exposes a service. Also returns what follows `sunder transport forward`.
    fn expose(
        directory: &Path,
        target: &str,
        place: [&str; 2],
        who: &[&str],
    ) -> (Self, Vec<String>) {
        let arguments = [&["expose", target], &place[..], who].concat();
        let end = Self::start(directory, "expose.log", &arguments, "sunder transport forward");
        let command = end.lines.last().unwrap().split(' ').skip(3);
        // Without `--listen PORT`, as the service has the port on this host.
        let command = command.take_while(|word| *word != "--listen").map(str::to_owned).collect();
        (end, command)
    }

    /// Forwards by a command of the other end. Also returns the address for programs.
    fn forward(directory: &Path, command: &[String], more: &[&str]) -> (Self, String) {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let arguments = [&["forward"], &command[..], &["--listen", "0"], more].concat();
        let end = Self::start(directory, "forward.log", &arguments, "listening on");
        let listening = end.lines.last().unwrap();
        let address = listening.split_whitespace().nth(2).unwrap().trim_end_matches(':');
        let address = address.to_owned();
        (end, address)
    }
}

impl Drop for ForwardEnd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service that sends back what it gets. Returns its address.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        }
    });
    address
}

/// What a program gets back from the service.
fn ask(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"hello")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn only_hosts_with_a_named_key_reach_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let key = sunder(directory.path(), &["transport", "key"]);
    let key = String::from_utf8(key.stdout).unwrap().trim().to_owned();
    let (exposer, command) =
        ForwardEnd::expose(directory.path(), &echo(), LISTEN, &["--peer", &key]);
    assert_eq!(exposer.lines[1], "can connect: the host with the key of --peer");
    // `forward` has the key that `sunder transport key` prints.
    let (_forwarder, address) = ForwardEnd::forward(directory.path(), &command, &[]);
    assert_eq!(ask(&address).unwrap(), "hello");
    let log = fs::read_to_string(directory.path().join("expose.log")).unwrap();
    assert!(log.contains(&format!("with key {key} is connected to ")), "{log}");
    // Another user.
    let other = tempfile::tempdir().unwrap();
    let (_other, address) = ForwardEnd::forward(other.path(), &command, &["--transport", "tcp"]);
    let error = ask(&address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let mut status = Command::new(env!("CARGO_BIN_EXE_sunder"));
    status.arg("status").env("RUNTIME_DIRECTORY", other.path());
    let page = String::from_utf8(status.output().unwrap().stdout).unwrap();
    let problem = "it does not expect a connection from this end's key";
    assert!(page.contains(problem) && page.contains("compare the keys"), "{page}");
}

#[test]
fn a_service_is_exposed_without_keys_and_to_any_peer() {
    for (who, line) in [
        ("--any-peer", "can connect: everyone who knows the key below"),
        ("--insecure", "sunder transport forward"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (exposer, command) = ForwardEnd::expose(directory.path(), &echo(), LISTEN, &[who]);
        assert!(exposer.lines[1].starts_with(line), "{:?}", exposer.lines);
        for transport in ["tcp", "burst", "quic", "sabul"] {
            let (_forwarder, address) =
                ForwardEnd::forward(directory.path(), &command, &["--transport", transport]);
            assert_eq!(ask(&address).unwrap(), "hello", "{who} {transport}");
        }
    }
}

#[test]
fn a_service_is_reached_through_a_relay_and_over_several_channels() {
    let directory = tempfile::tempdir().unwrap();
    let relay = ["relay", "--listen", "127.0.0.1:0"];
    let relay = ForwardEnd::start(directory.path(), "relay.log", &relay, "listening on");
    let relayed = relay.lines[0].split_whitespace().nth(2).unwrap();
    let target = echo();
    let (_exposer, command) =
        ForwardEnd::expose(directory.path(), &target, ["--via", relayed], &["--any-peer"]);
    let (_forwarder, address) = ForwardEnd::forward(directory.path(), &command, &[]);
    for _ in 0..3 {
        assert_eq!(ask(&address).unwrap(), "hello");
    }
    let (_exposer, mut command) =
        ForwardEnd::expose(directory.path(), &target, LISTEN, &["--any-peer"]);
    command[0] = format!("{0},{0}", command[0]);
    let channels = ["--transport", "micss"];
    let (_forwarder, address) = ForwardEnd::forward(directory.path(), &command, &channels);
    assert_eq!(ask(&address).unwrap(), "hello");
}

#[test]
fn one_must_say_who_can_connect() {
    let directory = tempfile::tempdir().unwrap();
    let key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    for (arguments, words) in [
        (&["expose", "127.0.0.1:1", "--listen", "127.0.0.1:0"][..], "--any-peer"),
        (&["expose", "127.0.0.1:1", "--any-peer"], "--listen"),
        (&["expose", "no port", "--listen", "127.0.0.1:0", "--any-peer"], "give HOST:PORT"),
        (&["forward", "no port", "--key", key, "--listen", "0"], "give HOST:PORT"),
        (&["forward", "127.0.0.1:1", "--listen", "0"], "--key"),
        (&["forward", "127.0.0.1:1", "--key", key, "--listen", "x"], "ADDR:PORT"),
        (
            &["forward", "127.0.0.1:1", "--key", key, "--listen", "0", "--transport", "micss"],
            "an address for each channel",
        ),
    ] {
        let output = sunder(directory.path(), &[&["transport"], arguments].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}
