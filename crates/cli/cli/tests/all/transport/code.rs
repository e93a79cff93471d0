//! Two hosts that have never met, and a code.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use super::{cutting_forwarder, failed, pattern, succeeded};
use crate::common::sunder;

/// A command that runs, killed when dropped.
pub(super) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(arguments).current_dir(directory).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", directory).env("RUNTIME_DIRECTORY", directory);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The words of the command that it prints for the other host.
    fn command(&mut self) -> Vec<String> {
        self.line().split(' ').map(str::to_owned).collect()
    }

    /// What it has printed since, when it has ended.
    fn end(mut self) -> Output {
        let mut stdout = Vec::new();
        self.output.read_to_end(&mut stdout).unwrap();
        let mut stderr = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const DIRECT: [&str; 8] =
    ["transport", "receive", "--listen", "127.0.0.1:0", "--out", ".", "--once", "--code"];

fn hosts() -> (tempfile::TempDir, tempfile::TempDir, Vec<u8>) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = pattern(1_000_000);
    fs::write(from.path().join("a"), &data).unwrap();
    (from, to, data)
}

/// Runs a printed `sunder ...` command, with the name of the file.
fn run(directory: &Path, words: &[String], file: &str) -> Output {
    let words = words[1..].iter().map(|word| if word == "FILE" { file } else { word });
    sunder(directory, &words.collect::<Vec<_>>())
}

pub(super) fn relay() -> (Running, tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let mut relay =
        Running::start(directory.path(), &["transport", "relay", "--listen", "127.0.0.1:0"]);
    let address = relay.line().strip_prefix("listening on ").unwrap().to_owned();
    (relay, directory, address)
}

#[test]
fn a_code_pairs_two_hosts_that_have_never_met() {
    let (from, to, data) = hosts();
    let mut receiver = Running::start(to.path(), &DIRECT);
    let words = receiver.command();
    assert_eq!(words[..4], ["sunder", "transport", "send", "FILE"]);
    assert_eq!((words[5].as_str(), words[6].split('-').count()), ("--code", 4));
    succeeded(&run(from.path(), &words, "a"));
    assert!(receiver.line().starts_with("paired with the sender with key "));
    assert!(fs::read(to.path().join("a")).unwrap() == data);
    succeeded(&receiver.end());
}

#[test]
fn a_code_pairs_two_hosts_at_a_relay_and_either_end_shows_it() {
    let (_relay, _directory, relay) = relay();
    let (from, to, data) = hosts();
    let arguments = ["transport", "receive", "--via", &relay, "--out", ".", "--once", "--code"];
    let mut receiver = Running::start(to.path(), &arguments);
    let words = receiver.command();
    assert_eq!((words[4].as_str(), words[6].split('-').count()), (relay.as_str(), 5));
    succeeded(&run(from.path(), &words, "a"));
    assert!(fs::read(to.path().join("a")).unwrap() == data);
    succeeded(&receiver.end());

    fs::remove_file(to.path().join("a")).unwrap();
    let mut sender = Running::start(from.path(), &["transport", "send", "a", &relay, "--code"]);
    let mut words = sender.command();
    assert_eq!(words[..5], ["sunder", "transport", "receive", "--via", &relay]);
    assert_eq!((words[6].as_str(), words[7].as_str()), ("DIR", "--code"));
    words[6] = ".".into();
    words.push("--once".into());
    succeeded(&run(to.path(), &words, ""));
    succeeded(&sender.end());
    assert!(fs::read(to.path().join("a")).unwrap() == data);
}

/// Each code is for one attempt: after a wrong one, the right one has no effect.
#[test]
fn a_wrong_word_is_refused_without_a_second_try() {
    let (from, to, _) = hosts();
    let mut receiver = Running::start(to.path(), &DIRECT);
    let mut words = receiver.command();
    let right = words[6].clone();
    let word = right.split('-').next().unwrap();
    words[6] = right.replacen(word, if word == "zoo" { "zone" } else { "zoo" }, 1);
    let (code, error) = failed(&run(from.path(), &words, "a"));
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("it refuses the code, which is wrong or was used before"), "{error}");
    let (code, error) = failed(&receiver.end());
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("has given a wrong code"), "{error}");
    words[6] = right;
    let (code, error) = failed(&run(from.path(), &words, "a"));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("nobody listens there"), "{error}");
    assert!(!to.path().join("a").exists());
}

/// What is not sent, and what is no attempt, does not cost the code.
#[test]
fn typing_mistakes_and_strangers_do_not_cost_the_code() {
    let (from, to, data) = hosts();
    let mut receiver = Running::start(to.path(), &DIRECT);
    let words = receiver.command();
    let mut misspelt = words.clone();
    misspelt[6].push('q');
    let (code, error) = failed(&run(from.path(), &misspelt, "a"));
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("is not a word of codes"), "{error}");
    let (code, error) = failed(&run(from.path(), &words, "none"));
    assert_eq!(code, 2, "{error}");
    // One says nothing, one something else, and one begins the exchange and gives up.
    let _silent = TcpStream::connect(&words[4]).unwrap();
    let mut other = TcpStream::connect(&words[4]).unwrap();
    other.write_all(&[b"GET / HTTP/1.0\r\n\r\n", &[b' '; 100][..]].concat()).unwrap();
    let mut begun = TcpStream::connect(&words[4]).unwrap();
    begun.write_all(&[&b"SNDRCODE\x01"[..], &[0; 32]].concat()).unwrap();
    let mut answer = [0; 33];
    begun.read_exact(&mut answer).unwrap();
    drop((other, begun));
    succeeded(&run(from.path(), &words, "a"));
    assert!(fs::read(to.path().join("a")).unwrap() == data);
}

/// An attacker that passes everything on is paired with neither end. One that cuts the exchange
/// costs the attempt.
#[test]
fn a_forwarder_learns_nothing_and_a_cut_exchange_sends_nothing() {
    let (from, to, data) = hosts();
    let mut receiver = Running::start(to.path(), &DIRECT);
    let mut words = receiver.command();
    let address = words[4].clone();
    // It cuts the first connection before the confirmation.
    words[4] = cutting_forwarder(address, 1, 50);
    let (code, error) = failed(&run(from.path(), &words, "a"));
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("while the code was checked"), "{error}");
    succeeded(&run(from.path(), &words, "a"));
    assert!(fs::read(to.path().join("a")).unwrap() == data);
}

#[test]
fn a_code_needs_one_sender_and_one_receiver() {
    let (_relay, _directory, relay) = relay();
    let (from, to, _) = hosts();
    let mut sender = Running::start(from.path(), &["transport", "send", "a", &relay, "--code"]);
    let code = sender.command()[8].clone();
    let (exit_code, error) =
        failed(&sunder(from.path(), &["transport", "send", "a", &relay, "--code", &code]));
    assert_eq!(exit_code, 2, "{error}");
    assert!(error.contains("the other end sends, too"), "{error}");
    let (exit_code, error) = failed(&sender.end());
    assert_eq!(exit_code, 2, "{error}");
    for (arguments, words) in [
        (&["--via", &relay, "--code", "river-lamp-ocean-zebra"][..], "begins with a number"),
        (&["--listen", "127.0.0.1:0", "--code", "10000-river-lamp-ocean-zoo"], "give --via"),
    ] {
        let all = [&["transport", "receive", "--out", "."], arguments].concat();
        let (exit_code, error) = failed(&sunder(to.path(), &all));
        assert_eq!(exit_code, 2, "{error}");
        assert!(error.contains(words), "{error}");
    }
}
