//! `sunder doctor` with the configuration of a server.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::group::{Group, Server};
use crate::common::sunder;

/// What `sunder doctor` finds wrong, one line for each, and its exit code.
fn wrong(group: &Group, config: &str) -> (String, Option<i32>) {
    fs::write(group.path("x.toml"), config).unwrap();
    let output = sunder(group.place.path(), &["doctor", "--config", "x.toml", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let wrong = findings.filter(|it| it["level"] != "ok").map(|it| {
        let text = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("fix").is_empty(), "{it}");
        format!("{} {}: {}\n", text("level"), text("subject"), text("message"))
    });
    (wrong.collect(), output.status.code())
}

#[test]
fn doctor_names_what_is_wrong_with_a_server_of_a_quorum() {
    let group = Group::new(5);
    let mut servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    let config = fs::read_to_string(group.path("1.toml")).unwrap();
    let (findings, code) = wrong(&group, &config);
    assert_eq!(code, Some(0), "{findings}");
    // Free space and locked memory depend on where the test runs.
    let is_of_host = |line: &&str| line.contains(" space: ") || line.contains(" memory: ");
    let of_server: Vec<&str> = findings.lines().filter(|line| !is_of_host(line)).collect();
    assert!(
        of_server.len() == 1 && of_server[0].contains("in use: by this quorum node"),
        "{findings}"
    );
    let output = sunder(group.place.path(), &["doctor", "--config", "1.toml"]);
    let fine = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "store: it has the shares of epoch 1",
        "server: it runs in epoch 1, and 3 others are connected",
        "clock: times in logs, and when registrations expire, depend on it",
    ] {
        assert!(fine.contains(expected), "{expected}: {fine}");
    }
    assert_eq!(fine.matches(" has its key, and ").count(), 3, "{fine}");

    let other = fs::read_to_string(group.path("new.toml")).unwrap();
    let identity = |text: &str| text.split("identity = \"").nth(1).unwrap()[..64].to_owned();
    let peers = &config[config.find("[[peer]]").unwrap()..];
    let second =
        identity(peers.split_once("[[peer]]").unwrap().1.split_once("[[peer]]").unwrap().1);
    fs::write(group.path("other.key"), "0e".repeat(32)).unwrap();
    fs::set_permissions(group.path("other.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let replaced = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        wrong(&group, &config.replacen(from, to, 1))
    };
    for (from, to, expected) in [
        ("\"master.key\"", "\"other.key\"", "error store: the key of epoch 1 does not open"),
        ("\"master.key\"", "\"none.key\"", "error master_key: "),
        ("\"1.key\"", "\"none.key\"", "error identity: "),
        ("\"1.key\"", "\"5.key\"", "warning group: the group of epoch 1 does not have"),
        ("\"1.key\"", "\"2.key\"", "warning listen: the group reaches this server at"),
        ("\"store-1\"", "\"none\"", "error share: "),
        ("\"store-1\"", "\"1.toml\"", "error store: "),
        ("made/public.pem", "made/none.pem", "error public_key: "),
        ("\"1.api\"", "\"none/1.api\"", "error socket: "),
        (&second, &identity(&other), "the server there says that its key is"),
    ] {
        let (findings, code) = replaced(from, to);
        assert!(findings.contains(expected), "{from} {to}: {findings}");
        assert_eq!(code, Some(i32::from(findings.contains("error "))), "{findings}");
    }
    // Doctor has asked them as this server, and has ended no link.
    assert!(!group.logs().contains("link down"), "{}", group.logs());

    fs::set_permissions(group.path("store-1"), fs::Permissions::from_mode(0o777)).unwrap();
    let (findings, code) = wrong(&group, &config);
    assert!(findings.contains("error store: ") && code == Some(1), "{findings}");
    fs::set_permissions(group.path("store-1"), fs::Permissions::from_mode(0o700)).unwrap();
    servers.remove(2);
    let (findings, _) = wrong(&group, &config);
    assert!(findings.contains(": nobody listens there"), "{findings}");
    servers.truncate(1);
    let (findings, code) = wrong(&group, &config);
    assert!(
        findings.contains("error server: 1 servers with a vote are connected") && code == Some(1),
        "{findings}"
    );
}
