//! Permissions, what waits for review, and a set-up by bundles.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::group::{Group, Server, error_of, signal, wait_until};
use crate::common::sunder;

/// Gives server 1 a socket for each permission.
fn separate_sockets(group: &Group) {
    let path = group.path("1.toml");
    let config = fs::read_to_string(&path).unwrap();
    let gid = fs::metadata(&path).map(|it| std::os::unix::fs::MetadataExt::gid(&it)).unwrap();
    let sockets = format!(
        "register_socket = \"1.register\"\nregister_access = \"group:{gid}\"\n\
         admin_socket = \"1.admin\"\n"
    );
    fs::write(&path, format!("{sockets}{config}")).unwrap();
}

#[test]
fn a_user_with_one_permission_is_told_which_one_is_missing() {
    let group = Group::new(4);
    separate_sockets(&group);
    let _servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    let mode = |name: &str| fs::metadata(group.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode("1.api"), mode("1.register"), mode("1.admin")], [0o600, 0o660, 0o600]);
    fs::write(group.path("message"), "message\n").unwrap();
    let refused =
        |arguments: &[&str]| error_of(group.place.path(), &[&["quorum"], arguments].concat(), 3);
    let at_api = refused(&["register", "--socket", "1.api", "message"]);
    assert!(at_api.contains("use the `register_socket`"), "{at_api}");
    for socket in ["1.api", "1.register"] {
        let refresh = refused(&["refresh", "--socket", socket, "--to", "old.toml"]);
        assert!(refresh.contains("use the `admin_socket`"), "{refresh}");
        let cancel = refused(&["refresh", "--socket", socket, "--cancel"]);
        assert!(cancel.contains("use the `admin_socket`"), "{cancel}");
    }
    let printed = group.run(&["register", "--socket", "1.register", "message"]);
    assert!(printed.contains(" is registered, until 20"), "{printed}");
    let sign = refused(&["sign", "--socket", "1.register", "message"]);
    assert!(sign.contains("use the `socket`"), "{sign}");
    // Server 2 has one socket, as in earlier versions, which is for everything.
    group.run(&["register", "--socket", "2.api", "message"]);
    group.run(&["sign", "--socket", "1.api", "message"]);
    assert!(group.openssl_accepts("message"));
    let log = fs::read_to_string(group.path("store-1/audit.log")).unwrap();
    for (event, part) in
        [("registered", "\"digest\""), ("signed", "\"digest\""), ("refused", "\"reason\"")]
    {
        let event = format!("\"event\":\"{event}\"");
        let line = log.lines().find(|line| line.contains(&event)).unwrap();
        assert!(line.contains("\"uid\":") && line.contains(part), "{line}");
    }
}

#[test]
fn what_waits_is_shown_printed_and_withdrawn() {
    let group = Group::new(4);
    let servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    // Others may not have answered yet, and are named then.
    let none = group.run(&["pending", "--socket", "1.api"]);
    assert!(none.starts_with("no registrations wait\n"), "{none}");
    fs::write(group.path("message"), "a message\n").unwrap();
    let printed = group.run(&["register", "--socket", "2.api", "message"]);
    let digest = printed.split_whitespace().nth(1).unwrap();
    wait_until("another server shows it", || {
        let pending = group.run(&["pending", "--socket", "3.api"]);
        pending.contains(digest) && pending.contains("a message\\n")
    });
    let json = group.run(&["pending", "--json", "--socket", "3.api"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["registrations"][0]["server"], 2);
    assert_eq!(json["registrations"][0]["len"], 10);
    assert!(group.status(&[]).contains("1 registrations wait: sunder quorum pending"));
    assert_eq!(group.run(&["show", "--socket", "2.api", digest]), "a message\n");
    let missing = ["quorum", "show", "--socket", "3.api", digest];
    assert!(error_of(group.place.path(), &missing, 1).contains("sunder quorum pending"));
    let wrong = ["quorum", "withdraw", "--socket", "2.api", "0a"];
    assert!(error_of(group.place.path(), &wrong, 2).contains("64 hexadecimal digits"));
    let withdrawn = group.run(&["withdraw", "--socket", "2.api", digest]);
    assert_eq!(withdrawn, format!("SHA-256 {digest} is withdrawn here\n"));
    let sign = ["quorum", "sign", "--socket", "2.api", "message"];
    assert!(
        error_of(group.place.path(), &sign, 3).contains("not registered here, or not any more")
    );

    // The same servers in another order, approved by one of them.
    let list = fs::read_to_string(group.path("old.toml")).unwrap();
    let mut servers_of_list: Vec<&str> = list.split("[[server]]").skip(1).collect();
    servers_of_list.reverse();
    fs::write(
        group.path("turned.toml"),
        format!("[[server]]{}", servers_of_list.join("[[server]]")),
    )
    .unwrap();
    group.run(&["refresh", "--no-wait", "--socket", "1.api", "--to", "turned.toml"]);
    wait_until("status and `pending` of another server show the list", || {
        let pending = group.run(&["pending", "--socket", "4.api"]);
        pending.contains("for epoch 2, approved by 1 (1 of 2):\n  the same servers get new shares")
            && group.status(&[]).contains("approved by 1 (1 of 2), expires here at ")
    });
    let submitted = group.run(&["refresh", "--withdraw", "--socket", "1.api"]);
    assert!(submitted.starts_with("the withdrawal is submitted"), "{submitted}");
    wait_until("it is withdrawn", || {
        !group.run(&["pending", "--socket", "4.api"]).contains("for epoch 2")
    });
    drop(servers);
}

#[test]
fn a_bundle_starts_its_servers_once_and_no_others() {
    let group = Group::new(5);
    let init = ["init", "--nodes", "old.toml", "--bundle", "group.bundle"];
    let printed = group.run(&init);
    assert!(printed.starts_with("the public key has the SHA-256 "), "{printed}");
    let again = error_of(group.place.path(), &[&["quorum"], &init[..]].concat(), 2);
    assert!(again.contains("exists, and is kept"), "{again}");
    let with_bundle = |number: usize| {
        let path = group.path(&format!("{number}.toml"));
        let config = fs::read_to_string(&path).unwrap();
        let kept = config
            .lines()
            .filter(|line| !line.starts_with("share") && !line.starts_with("public_key"));
        let rest: Vec<&str> = kept.collect();
        let bundle = format!("bundle = \"{number}.bundle\"\n");
        fs::write(&path, format!("{bundle}{}", rest.join("\n"))).unwrap();
    };
    (1..=5).for_each(with_bundle);
    let node = |number: usize| {
        // A warning that memory is not locked can precede the error.
        let config = format!("{number}.toml");
        let output = sunder(group.place.path(), &["quorum", "node", "--config", &config]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
    };
    let missing = node(1);
    assert!(missing.contains("1.bundle does not exist, and the store has none"), "{missing}");
    let bundle = fs::read(group.path("group.bundle")).unwrap();
    fs::write(group.path("1.bundle"), &bundle[..bundle.len() - 1]).unwrap();
    assert!(node(1).contains("it was cut off or changed: copy it again"));
    let doctor = sunder(group.place.path(), &["doctor", "--config", "1.toml"]);
    assert!(String::from_utf8(doctor.stdout).unwrap().contains("it was cut off or changed"));
    for number in 1..=5 {
        fs::copy(group.path("group.bundle"), group.path(&format!("{number}.bundle"))).unwrap();
    }
    let mut servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    // The shares are in the stores alone.
    assert!(fs::metadata(group.path("1.bundle")).unwrap().len() < 2_000);
    // A fifth server, which the list does not have, gets none.
    let _fifth = group.start(5);
    group.wait_until_listening(5);
    let status = group.status(&[]);
    assert!(status.contains("5  in no group"), "{status}");

    fs::write(group.path("message"), "message\n").unwrap();
    for socket in ["1.api", "2.api"] {
        group.run(&["register", "--socket", socket, "message"]);
    }
    group.run(&["sign", "--socket", "1.api", "message"]);
    fs::write(group.path("made/public.pem"), group.run(&["pubkey", "--socket", "1.api"])).unwrap();
    assert!(group.openssl_accepts("message"));
    // A server that has lost its store recovers its shares, although its bundle still exists.
    signal(&servers[3], "TERM");
    assert!(servers[3].0.wait().unwrap().success());
    fs::remove_dir_all(group.path("store-4")).unwrap();
    servers[3] = group.start(4);
    group.wait_until_healthy([4]);
    let log = fs::read_to_string(group.path("4.log")).unwrap();
    assert!(log.contains("f+1 servers have invited this one"), "{log}");
    // Another key's bundle is refused.
    drop(servers);
    group.run(&["init", "--nodes", "old.toml", "--bundle", "other.bundle"]);
    fs::copy(group.path("other.bundle"), group.path("1.bundle")).unwrap();
    assert!(node(1).contains("the store has another public key"));
}
