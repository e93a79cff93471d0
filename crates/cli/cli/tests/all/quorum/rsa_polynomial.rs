//! RSA keys that are shared by a polynomial, which a dealer makes.

use std::fs;
use std::process::Command;

use super::ed25519::{BundledGroup, openssh_signs};
use super::formats::{self, gpg_accepts_documents, openssl_accepts_formats};
use super::group::{error_of, health, nodes, wait_until};
use super::pkcs11::{self, pkcs11_tool_signs};
use crate::common::sunder;

const OPENSSL: &str = "openssl dgst -sha256 -verify public.pem";

/// Waits until a server is healthy in an epoch.
fn wait_for_epoch(group: &BundledGroup, number: usize, epoch: u64) {
    let epoch = format!("\"epoch\":{epoch},");
    wait_until(&format!("server {number} is healthy: {}", group.log(number)), || {
        let health = health(&group.path(&format!("{number}.api")));
        health.is_some_and(|it| it.contains("\"ok\":true") && it.contains(&epoch))
    });
}

/// Registers a file at two servers, has it signed at the first of them, and verifies the signature.
fn sign(group: &BundledGroup, [first, second]: [usize; 2], file: &str) {
    fs::write(group.path(file), format!("the content of {file}\n")).unwrap();
    for number in [first, second] {
        group.retry(&format!("register --socket {number}.api {file}"));
    }
    group.retry(&format!("sign --pubkey public.pem --socket {first}.api {file}"));
    let printed = group.succeeds(&format!("{OPENSSL} -signature {file}.sig {file}"));
    assert_eq!(printed, "Verified OK\n");
}

#[test]
fn servers_with_a_polynomial_rsa_key_sign_with_it_and_move_it() {
    let mut group = BundledGroup::new("rsa-2048-polynomial");
    let of_ceremony = ["--bundle", "group.bundle"];
    let mut servers: Vec<_> = (1..=4).map(|number| group.start(number, &of_ceremony)).collect();
    let pem = group.retry("pubkey --socket 1.api");
    fs::write(group.path("public.pem"), &pem).unwrap();
    for number in 1..=4 {
        assert_eq!(group.retry(&format!("pubkey --socket {number}.api")), pem);
        assert!(group.log(number).contains(&group.digest), "{}", group.log(number));
        wait_for_epoch(&group, number, 1);
    }
    sign(&group, [1, 2], "release.txt");
    let pss = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32";
    group.retry("sign --socket 2.api --encoding pss --out pss.sig release.txt");
    group.succeeds(&format!("{OPENSSL} {pss} -signature pss.sig release.txt"));
    openssh_signs(&group);
    programs_sign(&group);
    is_marked_experimental(&group);

    group.succeeds("sunder quorum bundle --socket 1.api joining.bundle");
    (5..=8).for_each(|number| group.set_up(number, "--joins joining.bundle"));
    servers.extend((5..=8).map(|number| group.start(number, &[])));
    let list = group.lines[4..].join(" ");
    for number in [1, 2] {
        group.retry(&format!("refresh --no-wait --socket {number}.api {list}"));
    }
    (5..=8).for_each(|number| wait_for_epoch(&group, number, 2));
    sign(&group, [5, 6], "moved.txt");
    assert_eq!(group.retry("pubkey --socket 5.api"), pem);
    let old = ["quorum", "sign", "--socket", "1.api", "--out", "-", "release.txt"];
    let refused = error_of(group.place(), &old, 1);
    assert!(refused.contains("not in the group"), "{refused}");

    // A server is killed and started again, another one loses its store, and the key moves on to
    // the same servers.
    drop(servers.remove(6));
    drop(servers.remove(4));
    fs::remove_dir_all(group.path("store-5")).unwrap();
    servers.extend([group.start(5, &["--bundle", "joining.bundle"]), group.start(7, &[])]);
    (5..=8).for_each(|number| wait_for_epoch(&group, number, 2));
    sign(&group, [5, 7], "recovered.txt");
    for number in [7, 8] {
        group.retry(&format!("refresh --no-wait --socket {number}.api {list}"));
    }
    (5..=8).for_each(|number| wait_for_epoch(&group, number, 3));
    sign(&group, [8, 5], "refreshed.txt");
    let printed = group.succeeds(
        "sunder quorum headers --socket 5.api headers
        sunder quorum verify-epochs --pubkey public.pem --at-least 3 headers",
    );
    assert!(printed.contains("epoch 3 since"), "{printed}");
    drop(servers);
}

/// For others, the key is an RSA key like any other.
fn programs_sign(group: &BundledGroup) {
    fs::create_dir(group.path("made")).unwrap();
    fs::copy(group.path("public.pem"), group.path("made/public.pem")).unwrap();
    openssl_accepts_formats(&group.files);
    if formats::has(&["gpg"]) {
        gpg_accepts_documents(&group.files);
    }
    if pkcs11::has("pkcs11-tool") {
        pkcs11_tool_signs(&group.files);
    }
}

fn is_marked_experimental(group: &BundledGroup) {
    let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .arg("status")
        .env("RUNTIME_DIRECTORY", group.place())
        .output()
        .unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    assert!(status.contains("EXPERIMENTAL"), "{status}");
    let doctor = sunder(group.place(), &["doctor", "--config", "1.toml"]);
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("which is experimental"), "{doctor}");
    // CometBFT is refused before anything happens.
    let config = fs::read_to_string(group.path("1.toml")).unwrap();
    fs::write(group.path("c.toml"), format!("cometbft = \"c\"\n{config}")).unwrap();
    let arguments = ["quorum", "cometbft-config", "--config", "c.toml", "--bundle", "group.bundle"];
    let arguments = [&arguments[..], &["--listen", "127.0.0.1:1"]].concat();
    let refused = error_of(group.place(), &arguments, 1);
    assert!(refused.contains("combinatorial shares"), "{refused}");
}

/// A group of 31 servers has one share each, and the help says that this is experimental.
#[test]
fn a_ceremony_of_31_servers_shares_an_rsa_key_by_a_polynomial() {
    let place = tempfile::tempdir().unwrap();
    let addresses: Vec<String> = (1..=31).map(|number| format!("192.0.2.{number}:6530")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    nodes(place.path(), &addresses);
    let init = ["quorum", "init", "--nodes", "nodes.toml", "--bundle", "group.bundle", "--json"];
    let wrong = error_of(place.path(), &init, 2);
    assert!(wrong.contains("rsa-2048-polynomial"), "{wrong}");
    let of_polynomial = [&init[..], &["--key", "rsa-2048-polynomial", "--f", "10"]].concat();
    let output = sunder(place.path(), &of_polynomial);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("experimental"), "{errors}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["faulty"], &document["servers"]), (&10.into(), &31.into()));
    assert_eq!((&document["shares"], &document["bits"]), (&31.into(), &2048.into()));
    let bundle = quorum::ceremony_files::read_bundle(&place.path().join("group.bundle")).unwrap();
    assert!(bundle.has_shares() && bundle.public().is_some());
    let help = sunder(place.path(), &["quorum", "init", "--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("EXPERIMENTAL"));
}
