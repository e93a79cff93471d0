//! `sunder mix` and `sunder chat`, as processes: a proxy and three members that talk with `--plain`
//! and in a terminal, and go on after each of them was stopped or killed.

mod administrators;
mod balancer;
mod delays;
mod everyday;
mod members;
mod moves;
mod reloading;
mod restarts;
mod screens;
mod staying;
mod terminal;
mod trust;

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use members::{Member, Room, STOP_SIGNALS};
use restarts::talk_with_restarts;
use terminal::Terminal;

/// The members, of which the first is the administrator.
const NAMES: [&str; 3] = ["alice", "bob", "carol"];

/// Waits for more than this number of rounds, in which all of [`NAMES`] take part and none is late,
/// as the proxy and a member see it. Up to three times, because a busy machine may delay a member.
fn wait_for_punctual_rounds(room: &Room, member: &mut Member, count: u64) {
    let group = || room.status()["groups"][0].clone();
    let mut seen = Vec::new();
    for _ in 0..3 {
        while member.has_printed("anonymity 2") {
            member.wait_for("anonymity 2");
        }
        let (before, rounds) = (group(), room.rounds());
        let deadline = Instant::now() + Duration::from_secs(120);
        while room.rounds() <= rounds + count {
            assert!(Instant::now() < deadline, "no rounds: {before}");
            thread::sleep(Duration::from_millis(20));
        }
        let after = group();
        let is_full = after["participants"] == NAMES.len() && after["late"] == before["late"];
        if is_full && !member.has_printed("anonymity 2") {
            return;
        }
        seen.push((before, after));
    }
    panic!("three times one was late: {seen:?}");
}

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
    // What cannot be sent is reported, and disturbs nobody.
    carol.enter("@dora hello");
    assert!(carol.wait_for("refused").starts_with("refused dora "));
    carol.enter("/invite dora");
    assert!(carol.wait_for("warning").contains("administrator"));
}

/// Where rounds are not kept, only those that take part can receive anything.
#[test]
fn nothing_is_sent_if_too_few_take_part() {
    let (room, _proxy) = Room::open_with(&NAMES, "keep = \"0s\"\n");
    let [mut alice, mut bob, _carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    alice.forget();
    bob.stop(STOP_SIGNALS[0]);
    alice.wait_for("anonymity 2");
    alice.enter("@carol hello?");
    assert!(alice.wait_for("refused").starts_with("refused carol "), "too few take part");
}

/// Bob and carol are never there together, and the proxy is killed in between.
#[test]
fn a_message_reaches_a_member_that_comes_later() {
    let (room, proxy) = Room::open(&NAMES);
    // All are there once, so that the administrator has their prekeys for later epochs.
    let all = NAMES.map(|name| room.talk(name));
    room.wait_for_participants(3);
    let rounds = room.rounds();
    while room.rounds() < rounds + 20 {
        thread::sleep(Duration::from_millis(20));
    }
    for mut member in all {
        member.stop(STOP_SIGNALS[0]);
    }
    let mut bob = room.talk("bob");
    bob.wait_for("connected");
    bob.enter("@carol until later");
    bob.enter(&format!("@carol {}", "and ".repeat(2_000)));
    for _ in 0..2 {
        assert!(bob.wait_for("stored").ends_with(" carol"));
    }
    bob.stop(STOP_SIGNALS[0]);
    let _proxy = proxy.restart(&room, STOP_SIGNALS[1]);
    let mut carol = room.talk("carol");
    assert_eq!(carol.wait_for("message"), "message bob until later");
    assert!(carol.wait_for("message").starts_with("message bob and and"));
    carol.enter("@bob thanks");
    carol.wait_for("stored");
    carol.stop(STOP_SIGNALS[0]);
    let mut bob = room.talk("bob");
    assert_eq!(bob.wait_for("message"), "message carol thanks");
    for _ in 0..2 {
        assert!(bob.wait_for("delivered").ends_with(" carol"));
    }
    let group = room.status()["groups"][0].clone();
    assert!(group["kept"]["rounds"].as_u64().unwrap() > 10, "{group}");
    assert_eq!(group["kept"]["unwritten"], Value::Null);
}

/// The oblivious exchanges of the paper still work.
#[test]
fn three_members_talk_by_an_oblivious_engine() {
    let (room, _proxy) = Room::open_with(&NAMES, "engine = \"ot\"\n");
    let [mut alice, bob, _carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    bob.enter("@alice hello");
    assert_eq!(alice.wait_for("message"), "message bob hello");
}

#[test]
fn no_message_is_lost_or_doubled_when_members_and_the_proxy_are_restarted() {
    let (room, proxy) = Room::open(&NAMES);
    talk_with_restarts(&room, proxy, &NAMES, |turns, _| turns == 60);
}

/// If its requests waited until its output is read, the proxy would see who has messages.
#[test]
fn requests_do_not_wait_for_a_full_pipe() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut alice = room.talk("alice");
    let _carol = room.talk("carol");
    let mut bob = room.talk_unread("bob");
    alice.wait_for("anonymity 3");
    // More than a pipe takes.
    let texts = ["a", "b", "c"].map(|text| text.repeat(40_000));
    for text in &texts {
        assert!(alice.say("bob", text));
    }
    alice.wait_for("delivered");
    alice.forget();
    // Bob takes part.
    wait_for_punctual_rounds(&room, &mut alice, 20);
    bob.read();
    assert_eq!(bob.messages(3), texts.map(|text| format!("alice {text}")));
}

#[test]
fn a_script_ends_after_its_rounds() {
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
    let stderr = String::from_utf8(clash.stderr).unwrap();
    assert!(!clash.status.success() && stderr.contains("name"), "{stderr}");
    // What is mistyped is reported before anything is written.
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

#[test]
fn a_person_talks_in_a_terminal() {
    let (room, _proxy) = Room::open(&["alice", "bob", "carol"]);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    let mut alice = Terminal::start(&room, "alice", [12, 70]);
    alice.wait_for("3 take part");
    // The name is completed, and kept.
    alice.press("@b\tgood morning\r");
    assert_eq!(bob.wait_for("message"), "message alice good morning");
    alice.wait_for("→ bob: good morning ✓");
    alice.wait_for("@bob>");
    alice.press("and again\r");
    assert_eq!(bob.wait_for("message"), "message alice and again");
    bob.enter("@alice this has \x1b[2J nothing to say to the terminal");
    // The library of the test does not keep the character in place of the escape.
    alice.wait_for("[2J");
    alice.wait_for("nothing to say to the terminal");
    // Back and forth.
    for at in 0..30 {
        bob.enter(&format!("@alice line {at}"));
    }
    alice.wait_for("line 29");
    alice.press("\x1b[5~\x1b[5~");
    alice.wait_for("scrolled");
    bob.enter("@alice one more");
    alice.wait_for("1 unread");
    alice.press("\x1b[F");
    alice.wait_for("bob: one more");
    alice.wait_until("no unread", |screen| !screen.contents().contains("unread"));
    // In a narrow window.
    alice.resize(6, 24);
    alice.wait_until("a status line of the new size", |screen| {
        screen.contents().lines().nth(4).is_some_and(|line| line.starts_with(" 3 take part"))
    });
    alice.press("\x03");
    alice.check_restored();
}

#[test]
fn the_terminal_is_restored_after_a_signal() {
    let (room, _proxy) = Room::open(&["alice"]);
    let mut alice = Terminal::start(&room, "alice", [24, 80]);
    alice.wait_for("You are alice");
    alice.signal(Signal::TERM);
    alice.check_restored();
}

/// The second signal arrives before the first one has had any effect.
#[test]
fn the_terminal_is_restored_after_a_second_signal() {
    let (room, _proxy) = Room::open(&["alice"]);
    let mut alice = Terminal::start(&room, "alice", [24, 80]);
    alice.wait_for("You are alice");
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        alice.signal(signal);
    }
    alice.check_restored();
}
