//! `sunder quorum init`, and commands without a server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::group::{error_of, nodes};
use crate::common::sunder;

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
    let message = error_of(place.path(), &init, 2);
    assert!(message.contains("made is not empty, and nothing is overwritten"), "{message}");
    assert_eq!(fs::read(made.join("server-1.share")).unwrap(), before);
}

#[test]
fn groups_that_are_none_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let addresses = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1"];
    nodes(place.path(), &addresses);
    let init = |more: &[&str]| {
        let arguments = ["quorum", "init", "--nodes", "nodes.toml", "--out", "made"];
        let message = error_of(place.path(), &[&arguments, more].concat(), 2);
        assert!(!place.path().join("made").exists());
        message
    };
    let many = init(&["--f", "5"]);
    assert!(many.contains("4368 shares, and a refresh 19079424 subshares"), "{many}");
    assert!(many.contains("about 19 hours of processor time and 243 GB of memory"), "{many}");
    assert!(init(&["--f", "2"]).contains("4 servers, but f = 2 needs 7"));
    assert!(init(&["--key", "ed25519"]).contains("has no share files: write a bundle"));
    assert!(init(&["--key", "dsa"]).contains("rsa-2048"));
    let text = fs::read_to_string(place.path().join("nodes.toml")).unwrap();
    let three = text.rsplit_once("[[server]]").unwrap().0;
    fs::write(place.path().join("nodes.toml"), three).unwrap();
    assert!(init(&[]).contains("a group has 4, 7, 10 or 13 servers, not 3"));
}

#[test]
fn a_server_that_does_not_run_is_named() {
    let place = tempfile::tempdir().unwrap();
    let message = error_of(place.path(), &["quorum", "pubkey", "--socket", "none.sock"], 1);
    assert!(message.contains("no server answers at none.sock"), "{message}");
}
