//! A group with two administrators, as processes: states are lost, and the group goes on; or the
//! two do not know of each other, and the group has two lists of members.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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

/// Copies the files of a folder.
fn copy_folder(from: &Path, to: &Path) {
    let _: Result<(), _> = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// The proxy shows bob an old state, in which both administrators then change the list.
#[test]
fn a_chat_follows_the_list_of_another_administrator_if_told_to() {
    let (room, proxy) = Room::open(&NAMES);
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    alice.enter("/admin bob");
    for member in [&mut bob, &mut carol] {
        member.wait_for("note the administrators of the group are now alice, bob");
    }
    for member in [&mut alice, &mut bob, &mut carol] {
        member.stop(Signal::TERM);
    }
    let [state, before, of_alice] =
        ["proxy.state", "before.state", "alice.proxy"].map(|name| room.path(name));
    let proxy = proxy.restart_after(&room, || copy_folder(&state, &before));
    let changed = "note the administrators of the group are now alice, bob, carol";
    let [mut alice, mut carol] = ["alice", "carol"].map(|name| room.talk(name));
    alice.wait_for("anonymity 2");
    alice.enter("/admin carol");
    carol.wait_for(changed);
    alice.wait_for(changed);
    alice.stop(Signal::TERM);
    carol.stop(Signal::TERM);
    let proxy = proxy.restart_after(&room, || {
        copy_folder(&state, &of_alice);
        copy_folder(&before, &state);
    });
    let mut bob = room.talk("bob");
    bob.wait_for("anonymity 1");
    bob.enter("/admin carol");
    bob.wait_for(changed);
    bob.stop(Signal::TERM);
    for (name, file) in [("bob", "bob.members"), ("carol", "alice.members")] {
        let config = format!("{name}.toml");
        let mut export = room.command(&["chat", "export", "--config", &config, "--out", file]);
        assert!(export.status().unwrap().success());
    }
    let _proxy = proxy.restart_after(&room, || copy_folder(&of_alice, &state));
    let [mut alice, mut carol, mut bob] = ["alice", "carol", "bob"].map(|name| room.talk(name));
    let told = bob.wait_for("disconnected");
    assert!(told.contains("sunder chat import --replace"), "{told}");
    bob.stop(Signal::TERM);
    let import = |options: &[&str]| {
        let arguments = ["chat", "import", "--config", "bob.toml"];
        let output = room.command(&[&arguments[..], options].concat()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, why) = import(&["alice.members"]);
    assert!(code == Some(1) && why.contains("add --replace"), "{why}");
    let (code, shown, why) = import(&["--replace", "alice.members"]);
    assert!(code == Some(2) && why.contains("--yes"), "{why}");
    for line in ["in both lists: ", "the other list is signed by alice"] {
        assert!(shown.lines().any(|it| it.starts_with(line)), "{shown}");
    }
    let (code, _, why) = import(&["--replace", "--yes", "alice.members"]);
    assert_eq!(code, Some(0), "{why}");
    // What bob has left does not come back.
    let (code, _, why) = import(&["--replace", "--yes", "bob.members"]);
    assert!(code == Some(1) && why.contains("older than what this chat knew"), "{why}");
    let mut bob = room.talk("bob");
    for member in [&mut alice, &mut bob, &mut carol] {
        member.wait_for("anonymity 3");
    }
    assert!(bob.say("alice", "together again"));
    assert_eq!(alice.wait_for("message"), "message bob together again");
}
