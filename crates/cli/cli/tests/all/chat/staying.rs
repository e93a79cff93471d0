//! What a chat does when somebody leaves, when its disk is full, and when nobody reads it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::members::{Member, Room};
use super::wait_for_punctual_rounds;

/// A relay on the path of one member, without any key, that holds what passes.
pub(super) struct Relay {
    pub(super) address: String,
    is_holding: Arc<AtomicBool>,
}

impl Relay {
    pub(super) fn start(proxy: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_holding = Arc::new(AtomicBool::new(false));
        let (proxy, holds) = (proxy.to_owned(), is_holding.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&proxy) else { return };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let holds = holds.clone();
                    thread::spawn(move || pass(from, to, &holds));
                }
            }
        });
        Self { address, is_holding }
    }

    pub(super) fn hold(&self, is_holding: bool) {
        self.is_holding.store(is_holding, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, holds: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while holds.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// The adversary of this test holds up one member, to see whether a script that writes to somebody
/// waits for it.
#[test]
fn a_script_does_not_wait_for_whom_it_wrote_to() {
    let names = ["alice", "bob", "carol", "dave", "erin"];
    // Otherwise every message is kept for its receiver, and none is missing.
    let (room, _proxy) = Room::open_with(&names, "keep = \"0s\"\n");
    let relay = Relay::start(room.address());
    room.set_proxy("carol", &relay.address);
    let _alice = room.talk("alice");
    let others = ["carol", "dave", "erin"].map(|name| room.talk(name));
    let mut unacknowledged = 0;
    for to in ["carol", "dave"] {
        room.wait_for_participants(4);
        relay.hold(true);
        room.wait_for_participants(3);
        let bob = room.talk("bob").enter_last(&format!("@{to} meet me"));
        // Its exit code says whether the message has arrived; it goes after its rounds in any case.
        let (status, log) = bob.ends_with_log();
        // On a busy host even dave's acknowledgement may be too late.
        unacknowledged += usize::from(!status.success());
        assert!(to == "dave" || unacknowledged == 1, "{log}");
        assert_eq!(log.matches("not been acknowledged").count(), unacknowledged, "{to}: {log}");
        // Bob no longer takes part when carol returns.
        room.wait_for_participants(3);
        relay.hold(false);
    }
    let [mut carol, mut dave, _] = others;
    assert_eq!(dave.wait_for("message"), "message bob meet me");
    let _bob = room.talk("bob");
    assert_eq!(carol.wait_for("message"), "message bob meet me");
}

#[test]
fn a_full_disk_is_named_and_nothing_is_lost() {
    let (room, _proxy) = Room::open(&["alice", "bob", "carol"]);
    let [mut alice, mut bob, _carol] = ["alice", "bob", "carol"].map(|name| room.talk(name));
    for member in [&mut alice, &mut bob] {
        member.wait_for("anonymity 3");
        member.forget();
    }
    // No file can be made there.
    let obstacle = room.path("bob.state/state.new");
    write_to_a_full_disk(&mut alice, &mut bob, &obstacle);
    alice.enter("@bob sent to a full disk");
    alice.wait_for("queued");
    // It takes part, and neither sends nor shows anything.
    wait_for_punctual_rounds(&room, &mut alice, 30);
    assert!(!alice.has_printed("message") && !alice.has_printed("delivered"));
    assert!(!bob.has_printed("message") && !bob.has_printed("queued"));
    fs::remove_dir(&obstacle).unwrap();
    bob.wait_for("queued");
    assert_eq!(alice.wait_for("message"), "message bob written to a full disk");
    assert_eq!(bob.wait_for("message"), "message alice sent to a full disk");
    alice.wait_for("delivered");
    // A signal ends it, and what was not taken is reported.
    bob.wait_for("delivered");
    bob.forget();
    obstruct(&obstacle);
    bob.enter("@alice not taken");
    bob.wait_for("warning");
    bob.signal(Signal::TERM);
    let (status, _) = bob.ends_with_log();
    assert!(!status.success());
}

/// Obstructs bob's state, has bob write to alice, and waits for the warning: it comes at once. Up
/// to three times, because a busy machine may delay it.
fn write_to_a_full_disk(alice: &mut Member, bob: &mut Member, obstacle: &Path) {
    let mut late = Vec::new();
    loop {
        obstruct(obstacle);
        let began = Instant::now();
        bob.enter("@alice written to a full disk");
        let warning = bob.wait_for("warning");
        assert!(warning.contains("bob.state"), "{warning}");
        if began.elapsed() < Duration::from_secs(2) {
            return;
        }
        late.push(began.elapsed());
        assert!(late.len() < 3, "three times: {late:?}");
        // All is as before.
        fs::remove_dir(obstacle).unwrap();
        bob.wait_for("queued");
        alice.wait_for("message");
        bob.wait_for("delivered");
        bob.forget();
    }
}

/// Makes a directory where a new state is to be written.
fn obstruct(path: &Path) {
    // A state that is being written may be there.
    let end = Instant::now() + Duration::from_secs(90);
    while fs::create_dir(path).is_err() {
        assert!(Instant::now() < end, "{} stays", path.display());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_not_written_for_a_reader_that_has_gone_is_shown_in_the_next_run() {
    let (room, _proxy) = Room::open(&["alice", "bob", "carol"]);
    let [mut alice, _carol] = ["alice", "carol"].map(|name| room.talk(name));
    let mut bob = room.talk_unread("bob");
    alice.wait_for("anonymity 3");
    bob.close_output();
    assert!(alice.say("bob", "are you there?"));
    // It stays for its rounds, and says why it has ended.
    let (status, log) = bob.ends_with_log();
    assert!(!status.success() && log.contains("standard output is closed"), "{log}");
    let mut bob = room.talk("bob");
    assert_eq!(bob.wait_for("message"), "message alice are you there?");
    alice.wait_for("delivered");
}

#[test]
fn what_waits_for_a_member_that_was_removed_is_given_up() {
    let (room, _proxy) = Room::open(&["alice", "bob", "carol", "dave"]);
    let [mut alice, _carol, _dave] = ["alice", "carol", "dave"].map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    alice.enter("@bob come back");
    alice.wait_for("queued");
    alice.enter("/remove bob");
    let line = alice.wait_for("undelivered");
    assert!(line.contains(" bob ") && line.contains("no longer a member"), "{line}");
    // So a script ends.
    alice.enter("/quit");
    let (status, log) = alice.ends_with_log();
    assert!(status.success(), "{log}");
}

#[test]
fn the_rest_of_a_long_line_is_not_obeyed() {
    let (room, _proxy) = Room::open(&["alice", "bob", "carol"]);
    let [mut alice, _bob, _carol] = ["alice", "bob", "carol"].map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    alice.enter(&format!("@bob {}/remove carol", "x".repeat(128 << 10)));
    assert!(alice.wait_for("warning").contains("ignored"));
    alice.enter("/members");
    alice.wait_for("members bob carol");
}
