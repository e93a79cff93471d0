//! A proxy that gets another address and another key, as processes.

use std::fs;

use keys::IdentitySecretKey;
use rustix::process::Signal;

use super::NAMES;
use super::members::{Room, write_key};
use crate::common::free_address;

/// Carol is away when it moves, and comes while the old proxy still runs.
#[test]
fn members_follow_a_proxy_that_moves() {
    let (room, old) = Room::open(&NAMES);
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    carol.stop(Signal::TERM);
    assert!(bob.say("carol", "before"));
    bob.wait_for("stored");

    // The new one has the same group, and nothing of the old one's state.
    let address = free_address().to_string();
    let (elsewhere, new) = Room::open_empty(None, &address, "");
    let new = new.restart_after(&elsewhere, || write_key(&elsewhere.path("proxy.key"), 8));
    let [of_old, of_new] =
        [&room, &elsewhere].map(|it| fs::read_to_string(it.path("proxy.toml")).unwrap());
    let group = of_old.split_once("[[group]]").unwrap().1;
    elsewhere.configure(&new, &format!("{of_new}[[group]]{group}"));

    let key = IdentitySecretKey::new(&[8; 32]).public();
    bob.enter(&format!("/proxy {address} {key}"));
    assert!(bob.wait_for("warning").contains("only the group's administrators"));
    alice.enter(&format!("/proxy {address} {key}"));
    let moved = format!("note the administrators say that the proxy is now at {address} with");
    for member in [&mut alice, &mut bob] {
        member.wait_for(&moved);
    }
    elsewhere.wait_for_participants(2);
    assert!(bob.say("carol", "after"));
    let mut carol = room.talk("carol");
    carol.wait_for(&moved);
    assert_eq!(carol.messages(2), ["bob before", "bob after"]);
    assert!(carol.say("alice", "all are here"));
    assert_eq!(alice.wait_for("message"), "message carol all are here");

    // All remember it, and invitations name it.
    old.stop();
    for member in [&mut alice, &mut bob, &mut carol] {
        member.stop(Signal::TERM);
    }
    let [mut alice, mut bob, _carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    let code = alice.invite("dora");
    room.join("dora", &code);
    let config = fs::read_to_string(room.path("dora.toml")).unwrap();
    assert!(config.contains(&address) && config.contains(&key.to_string()), "{config}");
    assert!(bob.say("alice", "again"));
    assert_eq!(alice.wait_for("message"), "message bob again");
}
