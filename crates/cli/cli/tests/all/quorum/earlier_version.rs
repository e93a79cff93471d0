//! A group whose files an earlier version has written: see `crate::versions`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::group::{Group, Server};
use crate::common::free_address;
use crate::versions::earlier_files;

/// The group, with free ports in place of those that it had.
fn earlier_group() -> Group {
    let place = earlier_files("quorum");
    fs::rename(place.path().join("ceremony"), place.path().join("made")).unwrap();
    let addresses: Vec<String> = (0..4).map(|_| free_address().to_string()).collect();
    let nodes = with_addresses(place.path(), "nodes.toml", &addresses);
    for number in 1..=4 {
        let path = place.path().join(format!("{number}.toml"));
        let mut config = String::new();
        for line in fs::read_to_string(&path).unwrap().lines() {
            if line.starts_with("listen") {
                writeln!(config, "listen = [\"{}\"]", addresses[number - 1]).unwrap();
            } else {
                writeln!(config, "{line}").unwrap();
            }
        }
        config.push_str(&nodes.replace("[[server]]", "[[peer]]"));
        fs::write(path, config).unwrap();
    }
    Group { place, addresses }
}

/// Changes the addresses in a list of servers, and returns it.
fn with_addresses(place: &Path, file: &str, addresses: &[String]) -> String {
    let mut new = addresses.iter();
    let mut text = String::new();
    for line in fs::read_to_string(place.join(file)).unwrap().lines() {
        if line.starts_with("address") {
            writeln!(text, "address = \"{}\"", new.next().unwrap()).unwrap();
        } else {
            writeln!(text, "{line}").unwrap();
        }
    }
    fs::write(place.join(file), &text).unwrap();
    text
}

/// Has `message` signed by two of the servers.
fn sign(group: &Group, message: &str) {
    fs::write(group.path(message), message).unwrap();
    for socket in ["3.api", "4.api"] {
        group.run(&["register", "--socket", socket, message]);
    }
    group.run(&["sign", "--socket", "4.api", message]);
    assert!(group.openssl_accepts(message));
}

#[test]
fn stores_of_an_earlier_version_sign_and_refresh() {
    let group = earlier_group();
    assert!(group.openssl_accepts("message-1"), "signed by the earlier version");
    let epochs = group.run(&["verify-epochs", "--pubkey", "made/public.pem", "headers"]);
    assert!(epochs.starts_with("epoch 2, 4 servers"), "{epochs}");
    group.run(&["restore", "--config", "1.toml", "1.backup"]);
    let _servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    sign(&group, "new");
    group.run(&["refresh", "--no-wait", "--socket", "1.api", "--to", "nodes.toml"]);
    group.run(&["refresh", "--socket", "2.api", "--to", "nodes.toml"]);
    group.wait_until_healthy(1..=4);
    sign(&group, "refreshed");
}

#[test]
fn shares_of_an_earlier_ceremony_start_a_group() {
    let group = earlier_group();
    for number in 1..=4 {
        fs::remove_dir_all(group.path(&format!("store-{number}"))).unwrap();
    }
    let _servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    sign(&group, "new");
}
