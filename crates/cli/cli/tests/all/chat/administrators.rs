//! A group with two administrators, as processes: states are lost, and the group goes on.

use std::fs;

use rustix::process::Signal;

use super::NAMES;
use super::members::Room;

#[test]
fn a_group_goes_on_when_the_founder_and_the_proxy_have_lost_their_states() {
    let (room, proxy) = Room::open(&NAMES);
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    carol.enter("/admin bob");
    assert!(carol.wait_for("warning").contains("only the group's administrators"));
    alice.enter("/admin bob");
    alice.wait_for("note bob is an administrator from the next epoch on");
    for member in [&mut bob, &mut carol] {
        member.wait_for("note the administrators of the group are now alice, bob");
    }
    for member in [&mut alice, &mut bob, &mut carol] {
        member.stop(Signal::TERM);
    }
    let export = room.command(&["chat", "export", "--config", "carol.toml", "--out", "members"]);
    assert!({ export }.status().unwrap().success());
    let proxy = proxy.restart_without_state(&room);
    fs::remove_dir_all(room.path("alice.state")).unwrap();
    // Nothing begins anew by itself, and the list is taken over from a file.
    let import = || room.command(&["chat", "import", "--config", "alice.toml", "members"]);
    assert!(import().status().unwrap().success());
    let again = import().output().unwrap();
    let stderr = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && stderr.contains("not newer"), "{stderr}");
    let found = room.command(&["chat", "found", "--config", "alice.toml"]).output().unwrap();
    assert!(!found.status.success(), "it has a state");
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    for member in [&mut alice, &mut bob, &mut carol] {
        member.wait_for("anonymity 3");
    }
    assert!(carol.say("alice", "you are back"));
    assert_eq!(alice.wait_for("message"), "message carol you are back");
    // The proxy alone loses its state, while nobody is an administrator but bob.
    alice.enter("/handover bob");
    for member in [&mut alice, &mut carol] {
        member.wait_for("note the administrator of the group is now bob");
    }
    let _proxy = proxy.restart_without_state(&room);
    carol.wait_for("note the proxy had lost the group's state, or had an old one:");
    assert!(bob.say("carol", "still here"));
    assert_eq!(carol.wait_for("message"), "message bob still here");
}
