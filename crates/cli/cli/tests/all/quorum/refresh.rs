//! Signatures before and after a refresh.

use std::fs;

use super::group::{Group, Server, error_of, wait_until};
use crate::common::sunder;

#[test]
fn four_processes_sign_without_one_of_them_and_move_the_key_to_four_others() {
    let group = Group::new(8);
    let mut servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    assert!(!group.path("made/server-1.share").exists());
    for name in ["first", "second", "third"] {
        fs::write(group.path(name), format!("{name}\n")).unwrap();
    }
    let refused =
        error_of(group.place.path(), &["quorum", "sign", "--socket", "1.api", "first"], 3);
    assert!(refused.contains("not registered"), "{refused}");
    for name in ["first", "second"] {
        for socket in ["1.api", "2.api", "3.api"] {
            group.run(&["register", "--socket", socket, name]);
        }
    }
    group.run(&["sign", "--socket", "1.api", "first"]);
    assert!(group.openssl_accepts("first"));
    let pem = group.run(&["pubkey", "--socket", "4.api"]);
    assert_eq!(pem, fs::read_to_string(group.path("made/public.pem")).unwrap());

    // One is killed: the others sign without it, and it is back after a restart.
    drop(servers.remove(1));
    group.run(&["sign", "--socket", "3.api", "second"]);
    assert!(group.openssl_accepts("second"));
    servers.push(group.start(2));
    group.wait_until_healthy([2]);

    // No server is approved that does not answer, as one with a wrong digit in its address.
    let approve = ["quorum", "refresh", "--no-wait", "--socket", "1.api", "--to", "new.toml"];
    let message = error_of(group.place.path(), &approve, 1);
    assert!(message.contains("new servers do not answer: "), "{message}");
    assert_eq!(message.matches(": nobody listens there").count(), 4, "{message}");
    servers.extend((5..=8).map(|number| group.start(number)));
    (5..=8).for_each(|it| group.wait_until_listening(it));

    // A refresh that is approved is given up by two of four.
    group.run(&["backup", "--config", "1.toml", "backup"]);
    group.run(&["refresh", "--no-wait", "--socket", "1.api", "--to", "new.toml"]);
    wait_until("status says for whom the refresh waits", || {
        let status = group.status(&[]);
        let line = "refresh to epoch 2: approvals of servers, 1 of 2; not yet: 2 (127.0.0.1:";
        status.matches(line).count() == 4
    });
    group.run(&["refresh", "--no-wait", "--socket", "3.api", "--cancel"]);
    let printed = group.run(&["refresh", "--socket", "1.api", "--cancel"]);
    assert_eq!(printed, "the refresh to epoch 2 was cancelled\n");
    let message = error_of(group.place.path(), &["quorum", "refresh", "--socket", "1.api"], 2);
    assert!(message.contains("--to"), "{message}");

    group.run(&["refresh", "--no-wait", "--socket", "1.api", "--to", "new.toml"]);
    let done = group.run(&["refresh", "--socket", "2.api", "--to", "new.toml"]);
    assert_eq!(done, "epoch 2 has begun\n");
    group.wait_until_healthy(5..=8);
    for socket in ["5.api", "6.api"] {
        group.run(&["register", "--socket", socket, "third"]);
    }
    group.run(&["sign", "--encoding", "pss", "--socket", "5.api", "third"]);
    group.run(&["headers", "--socket", "6.api", "headers"]);
    let verify = ["verify-epochs", "--pubkey", "made/public.pem", "headers"];
    let chain = group.run(&verify);
    assert!(chain.starts_with("epoch "), "{chain}");
    let mut newer = verify.to_vec();
    newer.extend(["--at-least", "2", "--not-older-than", "1h"]);
    assert_eq!(group.run(&newer), chain);
    newer[5] = "3";
    let short = [&["quorum"], &newer[..]].concat();
    let message = error_of(group.place.path(), &short, 3);
    assert!(message.contains("the chain ends with epoch 2, before epoch 3"), "{message}");
    let mut headers = fs::read(group.path("headers")).unwrap();
    headers[60] ^= 1;
    fs::write(group.path("headers"), headers).unwrap();
    let output = sunder(group.place.path(), &[&["quorum"], &verify[..]].concat());
    assert!(matches!(output.status.code(), Some(2 | 3)), "{output:?}");

    // A backup of the ended epoch is worthless.
    drop(servers);
    let restore = ["quorum", "restore", "--config", "1.toml", "backup"];
    let message = error_of(group.place.path(), &restore, 1);
    assert!(message.contains("that epoch has ended"), "{message}");
}
