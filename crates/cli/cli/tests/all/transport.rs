//! `sunder transport send` and `receive`, from one to the other.

mod code;
mod errors;
mod forward;
mod stream;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::sunder;

/// A receiver, killed when dropped.
struct Receiver {
    child: Child,
    output: BufReader<ChildStdout>,
    log: File,
    address: String,
    /// What the other end needs: `--key KEY` or `--insecure`.
    options: Vec<String>,
}

impl Receiver {
    fn start(directory: &Path, more: &[&str]) -> Self {
        Self::start_at(["--listen", "127.0.0.1:0"], directory, more)
    }

    fn start_at(place: [&str; 2], directory: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["transport", "receive"]).args(place).arg("--out");
        let log = tempfile::tempfile().unwrap();
        command.arg(directory).args(more).stdout(Stdio::piped()).stderr(log.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (address, options) = (String::new(), Vec::new());
        let mut receiver = Self { child, output, log, address, options };
        let first = receiver.line();
        assert!(first.starts_with("listening on 127.0.0.1:") || first.starts_with("waiting at "));
        let send = receiver.line();
        let words: Vec<&str> = send.split_whitespace().collect();
        assert_eq!(words[..4], ["sunder", "transport", "send", "FILE"]);
        words[4].clone_into(&mut receiver.address);
        receiver.options = words[5..].iter().map(|word| (*word).to_owned()).collect();
        receiver
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What it has logged.
    fn log(&mut self) -> String {
        let mut log = String::new();
        self.log.rewind().unwrap();
        self.log.read_to_string(&mut log).unwrap();
        log
    }

    /// Sends by the command that the receiver has printed.
    fn send(&self, directory: &Path, file: &str, more: &[&str]) -> Output {
        self.send_to(&self.address, directory, file, more)
    }

    fn send_to(&self, address: &str, directory: &Path, file: &str, more: &[&str]) -> Output {
        let mut arguments = vec!["transport", "send", file, address];
        arguments.extend(self.options.iter().map(String::as_str));
        arguments.extend(more);
        sunder(directory, &arguments)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn succeeded(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line of an error, with its exit code.
fn failed(output: &Output) -> (i32, String) {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors[..] else { panic!("{stderr}") };
    (output.status.code().unwrap(), error.to_owned())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + (i >> 8) * 7).to_le_bytes()[0]).collect()
}

#[test]
fn a_file_arrives_with_its_digest() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = pattern(5_000_000);
    fs::write(from.path().join("plan.pdf"), &data).unwrap();
    for more in [&["--once"][..], &["--once", "--insecure", "--overwrite"]] {
        let mut receiver = Receiver::start(to.path(), more);
        let json = succeeded(&receiver.send(from.path(), "plan.pdf", &["--json"]));
        let sent: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&sent["file"], &sent["bytes"]), (&"plan.pdf".into(), &data.len().into()));
        assert!(fs::read(to.path().join("plan.pdf")).unwrap() == data);
        assert!(
            receiver.line().starts_with(&format!("{}/plan.pdf: 5000000 ", to.path().display()))
        );
        assert_eq!(receiver.line(), format!("SHA-256 {}", sent["sha256"].as_str().unwrap()));
        assert_eq!(receiver.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn wrong_keys_and_names_are_refused_in_one_line() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("a"), "new").unwrap();
    fs::write(to.path().join("a"), "old").unwrap();
    let mut receiver = Receiver::start(to.path(), &[]);
    let (code, error) = failed(&receiver.send(from.path(), "a", &[]));
    assert_eq!(code, 1);
    assert!(error.contains("a already exists; send it under another name"), "{error}");
    assert_eq!(fs::read(to.path().join("a")).unwrap(), b"old");
    // The key of somebody else.
    receiver.options[1] = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c".into();
    let (code, error) = failed(&receiver.send(from.path(), "a", &[]));
    assert_eq!(code, 3);
    assert!(error.contains("the given key is not its key"), "{error}");
    receiver.options = vec!["--insecure".into()];
    let (code, error) = failed(&receiver.send(from.path(), "a", &[]));
    assert_eq!(code, 3);
    assert!(error.contains("give its key"), "{error}");
    receiver.options.clear();
    let (code, error) = failed(&receiver.send(from.path(), "a", &[]));
    assert_eq!(code, 2);
    assert!(error.contains("--key"), "{error}");
}

#[test]
fn only_the_named_senders_are_admitted() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("a"), "new").unwrap();
    fs::write(from.path().join("own.key"), "07".repeat(32)).unwrap();
    let own = keys::IdentitySecretKey::new(&[7; 32]).public().to_string();
    let receiver = Receiver::start(to.path(), &["--peer", &own]);
    let (code, error) = failed(&receiver.send(from.path(), "a", &[]));
    assert_eq!(code, 3);
    assert!(error.contains("does not expect a connection from this end's key"), "{error}");
    succeeded(&receiver.send(from.path(), "a", &["--identity", "own.key"]));
    assert_eq!(fs::read(to.path().join("a")).unwrap(), b"new");
}

/// Forwards connections, and cuts the first `cuts` after so many bytes.
fn cutting_forwarder(to: String, cuts: usize, after: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (inward, outward) = (stream.unwrap(), TcpStream::connect(&to).unwrap());
            let (back_in, back_out) = (outward.try_clone().unwrap(), inward.try_clone().unwrap());
            thread::spawn(move || copy(&back_in, &back_out, u64::MAX));
            let limit = if number < cuts { after } else { u64::MAX };
            thread::spawn(move || copy(&inward, &outward, limit));
        }
    });
    address
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, limit: u64) {
    let _ = std::io::copy(&mut (&mut from).take(limit), &mut to);
    let _ = to.flush();
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_broken_transfer_goes_on_by_itself_and_after_the_receiver_was_killed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = pattern(20_000_000);
    fs::write(from.path().join("a"), &data).unwrap();
    // All connections break: it is stopped, and what has arrived stays.
    let receiver = Receiver::start(to.path(), &[]);
    let part = to.path().join(".a.part");
    let broken = cutting_forwarder(receiver.address.clone(), usize::MAX, 4_000_000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "send", "a", &broken]).args(&receiver.options);
    command.current_dir(from.path()).env("XDG_STATE_HOME", from.path());
    let sending = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while fs::metadata(&part).map_or(0, |part| part.len()) < 5_000_000 {
        thread::yield_now();
    }
    drop(receiver);
    // It would go on for a minute.
    kill_process(Pid::from_child(&sending), Signal::INT).unwrap();
    let output = sending.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("the same command resumes where this one stopped"), "{stderr}");
    // Another receiver, another sender; one more break.
    let receiver = Receiver::start(to.path(), &[]);
    let address = cutting_forwarder(receiver.address.clone(), 1, 4_000_000);
    let json = succeeded(&receiver.send_to(&address, from.path(), "a", &["--json"]));
    let sent: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(sent["resumed_from"].as_u64().unwrap() >= 5_000_000, "{sent}");
    assert_eq!(sent["connections"], 2);
    assert!(fs::read(to.path().join("a")).unwrap() == data);
    assert!(!part.exists());
}

/// Only some parts of a file are changed, and both ends are killed once.
#[test]
fn a_changed_file_is_resumed_after_both_ends_were_killed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let older = noise(1, 20_000_000);
    let mut newer = older.clone();
    for (number, part) in
        newer.chunks_mut(200_000).enumerate().filter(|(number, _)| number % 2 == 0)
    {
        part.copy_from_slice(&noise(number as u64 + 2, part.len()));
    }
    fs::write(from.path().join("a"), &newer).unwrap();
    fs::write(to.path().join("a"), &older).unwrap();
    let part = to.path().join(".a.part");
    let receiver = Receiver::start(to.path(), &["--overwrite"]);
    let broken = cutting_forwarder(receiver.address.clone(), usize::MAX, 4_000_000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "send", "a", &broken]).args(&receiver.options);
    command.current_dir(from.path()).env("XDG_STATE_HOME", from.path());
    let mut sending = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while fs::metadata(&part).map_or(0, |part| part.len()) < 5_000_000 {
        thread::yield_now();
    }
    drop(receiver);
    sending.kill().unwrap();
    sending.wait().unwrap();
    assert!(fs::read(to.path().join("a")).unwrap() == older);
    let receiver = Receiver::start(to.path(), &["--overwrite"]);
    let json = succeeded(&receiver.send(from.path(), "a", &["--json"]));
    let sent: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Half of it is that of the older version, and half of 5 MB have arrived before.
    assert!(sent["resumed_from"].as_u64().unwrap() > 11_000_000, "{sent}");
    assert!(fs::read(to.path().join("a")).unwrap() == newer);
    assert!(!part.exists());
}

/// Bytes of which no part is repeated.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = sim::SeededRng::new(seed);
    (0..len).map(|_| random.next_u64().to_le_bytes()[0]).collect()
}

#[test]
fn exchanges_are_measured() {
    for insecure in [&["--insecure"][..], &[]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["transport", "serve", "--listen", "127.0.0.1:0"]).args(insecure);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut word = || lines.next().unwrap().unwrap().rsplit_once(' ').unwrap().1.to_owned();
        let address = word();
        let key = if insecure.is_empty() { vec!["--key".to_owned(), word()] } else { vec![] };
        for transport in ["auto", "tcp", "sabul"] {
            let mut arguments = vec!["transport", "measure", &address, "--transport", transport];
            arguments.extend(key.iter().map(String::as_str).chain(insecure.iter().copied()));
            arguments.extend(["--send", "100000", "--receive", "7", "--rounds", "3", "--json"]);
            let output = sunder(Path::new("."), &arguments);
            assert!(output.status.success(), "{output:?}");
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((&report["sent"], &report["rounds"]), (&100_000.into(), &3.into()));
            let time = |name: &str| report[name].as_f64().unwrap();
            assert!(time("connected_s") <= time("first_byte_s"));
            assert!(time("first_byte_s") <= time("complete_s"));
            assert!(transport == "auto" || report["transport"] == transport);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn two_hosts_meet_at_a_relay() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "relay", "--listen", "127.0.0.1:0"]);
    let sockets = tempfile::tempdir().unwrap();
    command.env("RUNTIME_DIRECTORY", sockets.path());
    let mut relay = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(relay.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap();
    let receiver = Receiver::start_at(["--via", address], to.path(), &[]);
    assert_eq!(receiver.address.split_once('@').unwrap().1, address);
    let mut joined = 0;
    for (name, transport, path) in
        [("a", "auto", "direct"), ("b", "burst", "direct"), ("c", "tcp", "relayed tcp")]
    {
        joined += send_over([from.path(), to.path()], &receiver, name, transport, path);
    }
    let (code, error) =
        failed(&receiver.send_to(&receiver.address, from.path(), "a1", &["--transport", "quic"]));
    assert_eq!(code, 2);
    assert!(error.contains("only the transports burst and tcp can be used"), "{error}");
    let status = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["status", format]).env("RUNTIME_DIRECTORY", sockets.path());
        succeeded(&command.output().unwrap())
    };
    let all: serde_json::Value = serde_json::from_str(&status("--json")).unwrap();
    let relayed = &all[0];
    let port = address.rsplit_once(':').unwrap().1;
    assert_eq!((&relayed["kind"], &relayed["name"]), (&"relay".into(), &port.into()), "{all}");
    assert_eq!(relayed["listen"], address, "{all}");
    assert_eq!(relayed["joined"], joined, "{all}");
    assert!(relayed["to_waiting_bytes"].as_u64().unwrap() > 1_000_000, "{all}");
    let metrics = status("--metrics");
    let labels = format!("{{service=\"relay\",name=\"{port}\"}}");
    let joined = format!("sunder_relay_joined_total{labels} {joined}\n");
    assert!(metrics.contains(&joined), "{metrics}");
    relay.kill().unwrap();
    relay.wait().unwrap();
}

/// Sends a file from one directory to the other at a relay, by this transport, until it goes by
/// this path: up to three times, because direct paths are given up soon, and a busy machine may be
/// too late for some. Returns how often it was sent.
fn send_over(
    [from, to]: [&Path; 2],
    receiver: &Receiver,
    name: &str,
    transport: &str,
    path: &str,
) -> u64 {
    let mut seen = Vec::new();
    for times in 1..=3 {
        let (name, data) = (format!("{name}{times}"), pattern(1_000_000));
        fs::write(from.join(&name), &data).unwrap();
        let sent = succeeded(&receiver.send(from, &name, &["--json", "--transport", transport]));
        let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
        assert!(fs::read(to.join(&name)).unwrap() == data);
        if sent["path"] == path {
            return times;
        }
        seen.push(sent);
    }
    panic!("three times not {path}: {seen:?}");
}

/// The connection breaks twice, and both ends are killed once.
#[test]
fn a_directory_is_resumed_after_breaks_and_after_both_ends_were_killed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let docs = from.path().join("docs");
    fs::create_dir(&docs).unwrap();
    for number in 0..40 {
        fs::write(docs.join(number.to_string()), pattern(500_000 + number)).unwrap();
    }
    let receiver = Receiver::start(to.path(), &[]);
    let broken = cutting_forwarder(receiver.address.clone(), usize::MAX, 4_000_000);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "send", "docs", &broken]).args(&receiver.options);
    command.current_dir(from.path()).env("XDG_STATE_HOME", from.path());
    let mut sending = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !to.path().join("docs/9").exists() && !to.path().join("docs/.9.part").exists() {
        thread::yield_now();
    }
    drop(receiver);
    sending.kill().unwrap();
    sending.wait().unwrap();
    let mut receiver = Receiver::start(to.path(), &["--once"]);
    let address = cutting_forwarder(receiver.address.clone(), 2, 4_000_000);
    let json = succeeded(&receiver.send_to(&address, from.path(), "docs", &["--json"]));
    let sent: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&sent["files"], &sent["bytes"]), (&40.into(), &20_000_780.into()), "{sent}");
    assert!(sent["resumed_from"].as_u64().unwrap() > 1_000_000, "{sent}");
    for number in 0..40 {
        let name = number.to_string();
        let [one, two] =
            [&docs, &to.path().join("docs")].map(|it| fs::read(it.join(&name)).unwrap());
        assert!(one == two, "{name}");
    }
    assert!(receiver.line().starts_with(&format!("{}/docs: 40 files, ", to.path().display())));
    assert_eq!(receiver.child.wait().unwrap().code(), Some(0));
}

/// 1 MB at 4 Mbit/s takes two seconds, over each kind of transport.
#[test]
fn a_limit_is_kept() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(to.path(), &[]);
    for transport in ["auto", "tcp", "burst", "quic"] {
        fs::write(from.path().join(transport), pattern(1_000_000)).unwrap();
        let more = ["--limit", "4Mbit", "--transport", transport, "--json"];
        let json = succeeded(&receiver.send(from.path(), transport, &more));
        let sent: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(sent["elapsed_s"].as_f64().unwrap() > 1.8, "{sent}");
        assert_eq!(sent["connections"], 1, "{sent}");
    }
}
