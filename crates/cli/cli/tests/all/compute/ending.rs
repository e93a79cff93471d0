//! A party that goes, is stopped, or does not come.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use transport::{ConnectionOptions, ConnectionSecurity, TransportChoice, connect};

use super::{KEY, Running, words};

#[test]
fn a_party_that_goes_or_says_nothing_is_given_up() {
    let place = tempfile::tempdir().unwrap();
    let options = ConnectionOptions {
        transport: TransportChoice::Named("tcp"),
        ..ConnectionOptions::new(ConnectionSecurity::Insecure)
    };
    for command in listeners(place.path()) {
        for is_silent in [true, false] {
            let arguments = format!("{command} --timeout 1 --wait 600");
            let (listening, address) = Running::started(place.path(), &words(&arguments));
            let connection = connect(&address, &options).unwrap();
            let kept = is_silent.then_some(connection);
            let ended = listening.end();
            drop(kept);
            assert_eq!(ended.code, 1, "{command}: {}", ended.errors);
            let expected = if is_silent { "nothing from the other party for" } else { "ended" };
            assert!(ended.error().contains(expected), "{command}: {}", ended.errors);
        }
    }
}

#[test]
fn a_party_that_listens_waits_no_longer_than_it_is_told() {
    let place = tempfile::tempdir().unwrap();
    for command in listeners(place.path()) {
        let ended = Running::start(place.path(), &words(&format!("{command} --wait 1"))).end();
        assert_eq!(ended.code, 1, "{command}: {}", ended.errors);
        let expected = "the other party has not connected within 1 s";
        assert!(ended.error().contains(expected), "{command}: {}", ended.errors);
    }
}

/// A command that listens, of each protocol and role.
fn listeners(place: &Path) -> Vec<String> {
    fs::write(place.join("a.csv"), "email\nann@example.com\n").unwrap();
    let circuit = format!("--circuit aes128 --input {KEY}");
    let commands = [
        format!("--role garbler {circuit}"),
        format!("--role evaluator {circuit}"),
        format!("--role garbler --protocol gmw {circuit}"),
        "psi a.csv --role sender".to_owned(),
        "psi a.csv --role receiver".to_owned(),
        "psi a.csv --role sender --protocol circuit --rows 2".to_owned(),
        "psi a.csv --role receiver --protocol gmw --rows 2".to_owned(),
    ];
    commands.into_iter().map(|command| command + " --listen 127.0.0.1:0").collect()
}

#[test]
fn a_party_that_is_stopped_notifies_the_other() {
    let place = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(place.path().join("slow.txt")).status().unwrap().success());
    // One that computes for days, and one that loads its circuit.
    for circuit in ["aes128:1000000000", "slow.txt"] {
        for (role, other) in [("garbler", "evaluator"), ("evaluator", "garbler")] {
            let input = format!("--input {KEY} --explain");
            let waiting = format!("--role {other} --circuit aes128:1000000000 {input}");
            let (waiting, address) = Running::listen(place.path(), &words(&waiting));
            let stopped = format!(
                "--role {role} --circuit {circuit} {input} --connect {address} --transport tcp"
            );
            let mut stopped = Running::start(place.path(), &words(&stopped));
            assert!(stopped.line().contains("without encryption"));
            // It is connected.
            assert!(stopped.line().contains("as --transport says"));
            // Not SIGINT, which is ignored if the tests run in the background.
            kill_process(Pid::from_child(&stopped.child), Signal::TERM).unwrap();
            let [stopped, waiting] = [stopped, waiting].map(Running::end);
            assert_eq!((stopped.code, waiting.code), (128 + 15, 1), "{}", waiting.errors);
            assert_eq!(stopped.error(), "error: this party was stopped");
            let message = "the other party has given up: it was stopped";
            assert!(waiting.error().contains(message), "{}", waiting.errors);
        }
    }
}
