//! `sunder mix` and `sunder chat`, as processes: a proxy and three members that talk with `--plain`
//! and in a terminal, and go on after each of them was stopped or killed.

mod members;
mod terminal;

use rustix::process::Signal;
use serde_json::Value;

use members::{Room, STOP_SIGNALS};

/// The members, of which the first is the administrator.
const NAMES: [&str; 3] = ["alice", "bob", "carol"];

#[test]
fn three_members_talk() {
    let (room, _proxy) = Room::open(&NAMES);
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    for member in [&mut alice, &mut bob, &mut carol] {
        member.wait_for("anonymity 3");
    }
    bob.enter("@alice two\\nlines, and a \\\\");
    assert_eq!(alice.wait_for("message"), "message bob two\\nlines, and a \\\\");
    alice.enter("@carol hello");
    alice.enter("and to the same");
    assert_eq!(carol.wait_for("message"), "message alice hello");
    assert_eq!(carol.wait_for("message"), "message alice and to the same");
    alice.wait_for("delivered");
    alice.wait_for("delivered");
    // What cannot be sent is said, and disturbs nobody.
    carol.enter("@dora hello");
    assert!(carol.wait_for("refused").starts_with("refused dora "));
    carol.enter("/invite dora");
    assert!(carol.wait_for("warning").contains("administrator"));
    // With fewer participants than configured nothing is sent.
    alice.forget();
    bob.stop(STOP_SIGNALS[0]);
    alice.wait_for("anonymity 2");
    alice.enter("@carol hello?");
    assert!(alice.wait_for("refused").starts_with("refused carol "), "too few take part");
}

#[test]
fn no_message_is_lost_or_doubled_when_members_and_the_proxy_are_restarted() {
    const COUNT: usize = 60;
    let (room, mut proxy) = Room::open(&NAMES);
    let mut members = NAMES.map(|name| room.talk(name));
    for member in &mut members {
        member.wait_for("anonymity 3");
    }
    let mut got: [Vec<String>; 3] = Default::default();
    for at in 0..COUNT {
        for from in 0..NAMES.len() {
            let to = NAMES[(from + 1 + at % 2) % NAMES.len()];
            // Once it was taken it is not lost.
            while !members[from].say(to, &format!("{} {at}", NAMES[from])) {
                members[from].wait_for("anonymity 3");
            }
        }
        let signal = STOP_SIGNALS[at / 10 % 2];
        match at % 10 {
            3 => proxy = proxy.restart(&room, signal),
            6 => {
                let one = at / 10 % NAMES.len();
                got[one].extend(members[one].stop(signal));
                members[one] = room.talk(NAMES[one]);
                members[one].wait_for("anonymity 3");
                if signal == Signal::KILL {
                    // What it had written and not yet noted as written, it writes again.
                    let first = members[one].messages(1);
                    if got[one].last() != first.first() {
                        got[one].extend(first);
                    }
                }
            }
            _ => {}
        }
    }
    for (to, name) in NAMES.iter().enumerate() {
        let expected: Vec<Vec<String>> =
            (0..NAMES.len()).map(|from| sent(from, to, COUNT)).collect();
        let missing = expected.concat().len() - got[to].len();
        got[to].extend(members[to].messages(missing));
        for (from, expected) in expected.iter().enumerate() {
            let begin = format!("{} ", NAMES[from]);
            let of: Vec<&str> =
                got[to].iter().filter_map(|line| line.strip_prefix(&begin)).collect();
            assert_eq!(of, *expected, "{} to {name}", NAMES[from]);
        }
    }
}

/// What one says to another in the test above.
fn sent(from: usize, to: usize, count: usize) -> Vec<String> {
    let is_for = |at: &usize| from != to && (from + 1 + at % 2) % NAMES.len() == to;
    (0..count).filter(is_for).map(|at| format!("{} {at}", NAMES[from])).collect()
}

#[test]
fn a_script_ends_when_what_it_said_has_arrived() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut alice = room.talk("alice");
    let _carol = room.talk("carol");
    let bob = room.talk("bob").enter_last("@alice hello");
    assert_eq!(alice.wait_for("message"), "message bob hello");
    assert!(bob.ends().success());
    // What the proxy says of itself.
    let status = room.status();
    let group = &status["groups"][0];
    assert_eq!((&group["name"], &group["members"]), (&Value::from("friends"), &Value::from(3)));
    assert!(group["exchanges"].as_u64().unwrap() > 3, "{status}");
}

#[test]
fn who_is_not_invited_does_not_get_in() {
    let (room, _proxy) = Room::open(&NAMES[..1]);
    let mut alice = room.talk("alice");
    let code = alice.invite("bob");
    // An invitation is used once.
    room.join("bob", &code);
    let again = room.try_join("carol", &code);
    assert!(!again.status.success() && !again.stderr.is_empty());
    // A name is taken once.
    alice.enter("/invite bob");
    assert!(alice.wait_for("warning").contains("name"));
    let [first, second] = [(); 2].map(|()| alice.invite("dave"));
    room.join("dave", &first);
    let clash = room.try_join("dave2", &second);
    let said = String::from_utf8(clash.stderr).unwrap();
    assert!(!clash.status.success() && said.contains("name"), "{said}");
    // What is mistyped is said before anything is written.
    let mistyped = room.try_join("dora", &code[..code.len() - 1]);
    assert_eq!(mistyped.status.code(), Some(2));
    assert!(!room.path("dora.toml").exists());
}

#[test]
fn messages_go_by_every_transport() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut alice = room.talk("alice");
    let _bob = room.talk("bob");
    for transport in ["micss", "quic", "burst"] {
        room.set_transport("carol", transport);
        let carol = room.talk("carol").enter_last(&format!("@alice by {transport}"));
        assert_eq!(alice.wait_for("message"), format!("message carol by {transport}"));
        assert!(carol.ends().success());
    }
}
