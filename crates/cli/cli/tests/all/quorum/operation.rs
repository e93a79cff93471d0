//! What an operator does with running servers.

use std::fs;
use std::process::Command;

use super::group::{Group, Server, error_of, signal, wait_until};

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
    let config = fs::read_to_string(group.path("2.toml")).unwrap();
    fs::write(group.path("2.toml"), config.replace("2.api", "other.api")).unwrap();
    signal(&servers[1], "HUP");
    wait_until("it is said what needs a restart", || {
        let log = fs::read_to_string(group.path("2.log")).unwrap();
        log.contains("that take effect only after a restart") && log.contains("settings=socket")
    });

    let status = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["status", "--json"])
        .env("RUNTIME_DIRECTORY", group.place.path())
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let text = status.to_string();
    assert_eq!(text.matches("\"kind\":\"quorum\"").count(), 4, "{text}");
    let doctor = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["doctor", "--config", "1.toml"])
        .current_dir(group.place.path())
        .env("RUNTIME_DIRECTORY", group.place.path())
        .output()
        .unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    for expected in ["this server is ", "in use by this quorum node, which is running"] {
        assert!(doctor.contains(expected), "{expected}: {doctor}");
    }

    // A backup of a running server replaces a lost database.
    let printed = group.run(&["backup", "--config", "4.toml", "backup"]);
    assert_eq!(printed, "backup: the state of epoch 1; it can be restored until the epoch ends\n");
    let mut fourth = servers.pop().unwrap();
    let message =
        error_of(group.place.path(), &["quorum", "restore", "--config", "4.toml", "backup"], 1);
    assert!(message.contains("in use by another process; stop it first"), "{message}");
    signal(&fourth, "TERM");
    assert!(fourth.0.wait().unwrap().success(), "{}", group.logs());
    // The others say what is wrong, since when, and what to do.
    let what = "the group signs, but no other server may fail (for ";
    wait_until("it is missed", || group.status(&["1"]).contains(what));
    let status = group.status(&["1"]);
    let (_, rest) = status.split_once(what).unwrap();
    assert!(
        rest.contains(" s): start ") && rest.contains("as a [[peer]] if it has moved"),
        "{rest}"
    );
    group.run(&["backup", "--config", "4.toml", "stopped"]);
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
    let log = fs::read_to_string(group.path("4.log")).unwrap();
    assert!(log.contains("does not have the voting key that the group knows of it"), "{log}");
    // A question on a new link is answered, and no correct server is suspected for that.
    assert!(!group.logs().contains("that was not asked for"), "{}", group.logs());
}
