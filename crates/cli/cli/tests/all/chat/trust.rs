//! Whether a name stands for the person that the user knows: safety numbers, keys that change, and
//! invitations that are bound to a name.

use std::fs;
use std::process::Output;

use rustix::process::Signal;

use super::members::Room;

const NAMES: [&str; 3] = ["alice", "bob", "carol"];

#[test]
fn members_compare_their_safety_number_and_a_changed_key_stops_messages() {
    let (room, _proxy) = Room::open(&NAMES);
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    for member in [&mut alice, &mut bob, &mut carol] {
        member.wait_for("anonymity 3");
    }
    let number = |line: String| line.splitn(3, ' ').nth(2).unwrap().to_owned();
    alice.enter("/verify carol");
    let of_alice = number(alice.wait_for("safety"));
    carol.enter("/verify alice");
    assert_eq!(number(carol.wait_for("safety")), of_alice);
    bob.enter("/verify alice");
    let of_bob = number(bob.wait_for("safety"));
    assert_ne!(of_bob, of_alice);
    // Carol enters Bob's number by mistake, and then hers.
    carol.enter(&format!("/verify alice {of_bob}"));
    assert!(carol.wait_for("warning").contains("not the number"));
    carol.enter(&format!("/verify alice {of_alice}"));
    assert_eq!(carol.wait_for("verified"), "verified alice");
    bob.enter("/verify carol");
    let of_both = number(bob.wait_for("safety"));
    bob.enter(&format!("/verify carol {of_both}"));
    assert_eq!(bob.wait_for("verified"), "verified carol");
    // Carol loses her key, and joins again with another one while Bob is away.
    bob.stop(Signal::TERM);
    carol.stop(Signal::TERM);
    room.lose(&mut alice, "carol");
    let mut carol = room.talk("carol");
    let mut bob = room.talk("bob");
    let warning = bob.wait_for("warning");
    assert!(warning.contains("carol has ANOTHER KEY"), "{warning}");
    // Alice had not verified her, and is told as well.
    assert!(alice.wait_for("warning").contains("carol has ANOTHER KEY"));
    bob.wait_for("anonymity 3");
    bob.enter("@carol is it you?");
    assert!(bob.wait_for("refused").contains("/trust carol"));
    // Carol is not sent what is for all, either.
    bob.enter("@all is it you?");
    assert!(bob.wait_for("refused").contains("/trust carol"));
    bob.enter("@alice is it her?");
    assert_eq!(alice.wait_for("message"), "message bob is it her?");
    bob.enter("/trust carol");
    bob.wait_for("note");
    bob.enter("@carol it is");
    assert_eq!(carol.wait_for("message"), "message bob it is");
}

/// The commands compare the keys too, and a chat that follows would not report it again.
#[test]
fn invite_and_join_report_a_changed_key() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut members = NAMES.map(|name| room.talk(name));
    for member in &mut members {
        member.wait_for("anonymity 3");
    }
    for mut member in members {
        member.stop(Signal::TERM);
    }
    let contacts = |name: &str| room.path(&format!("{name}.state/contacts"));
    let known = ["alice", "bob"].map(|name| (name, fs::read(contacts(name)).unwrap()));
    let mut alice = room.talk("alice");
    room.lose(&mut alice, "carol");
    let mut bob = room.talk("bob");
    for member in [&mut alice, &mut bob] {
        assert!(member.wait_for("warning").contains("carol has ANOTHER KEY"));
        member.stop(Signal::TERM);
    }
    // As if each command were the first to see her.
    for (name, known) in known {
        fs::write(contacts(name), known).unwrap();
    }
    let invite = || {
        let mut command =
            room.command(&["chat", "invite", "--config", "alice.toml", "--print", "dora"]);
        command.output().unwrap()
    };
    let is_warned = |output: &Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).contains("carol has ANOTHER KEY")
    };
    let invited = invite();
    assert!(is_warned(&invited));
    assert!(!is_warned(&invite()));
    let code = String::from_utf8(invited.stdout).unwrap();
    assert!(is_warned(&room.try_join("bob", &code)));
}

#[test]
fn an_invitation_is_for_its_name_and_the_administrator_sees_which_was_used() {
    let (room, _proxy) = Room::open(&["alice"]);
    let mut alice = room.talk("alice");
    let code = alice.invite("bob");
    let other = room.try_join_as("mallory", &code, "mallory");
    let stderr = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && stderr.contains("another name"), "{stderr}");
    let note = alice.wait_for("note mallory, with the invitation for bob,");
    assert!(note.contains("not admitted"), "{note}");
    room.join("bob", &code);
    let key = |name: &str| {
        let output = room.command(&["key", "public", &format!("{name}.key")]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let note = alice.wait_for("note bob has joined");
    assert!(note.contains("the invitation for bob") && note.contains(&key("bob")), "{note}");
    // Unless the person may choose a name, of any script.
    alice.enter("/invite guest any-name");
    let code = alice.wait_for("invitation").split_once(' ').unwrap().1.to_owned();
    let joined = room.try_join_as("friend", &code, "हिन्दी");
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    alice.wait_for("note हिन्दी has joined the group, with the invitation for guest");
    // But none that mixes scripts.
    let mixed = room.try_join_as("mixed", &code, "b\u{43e}b");
    assert_eq!(mixed.status.code(), Some(2));
    alice.enter("/invite \u{430}lice");
    assert!(alice.wait_for("warning").contains("name"));
}
