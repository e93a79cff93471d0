//! Groups, files, cancelled messages, invitations in files, and a SOCKS proxy, by lines.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::members::{Member, Room};

const NAMES: [&str; 3] = ["alice", "bob", "carol"];

fn open() -> (Room, super::members::Proxy, [Member; 3]) {
    let (room, proxy) = Room::open(&NAMES);
    let mut members = NAMES.map(|name| room.talk(name));
    for member in &mut members {
        member.wait_for("anonymity 3");
    }
    (room, proxy, members)
}

#[test]
fn a_message_to_a_group_is_one_to_each_member() {
    let (room, _proxy, [mut alice, mut bob, mut carol]) = open();
    alice.enter("@all good morning");
    for member in [&mut bob, &mut carol] {
        assert_eq!(member.wait_for("message"), "message alice good morning");
    }
    for _ in 0..2 {
        alice.wait_for("queued");
        alice.wait_for("delivered");
    }
    alice.enter("/group team bob eve");
    assert!(alice.wait_for("warning").contains("eve"));
    alice.enter("/group team @bob carol");
    assert_eq!(alice.wait_for("note the group"), "note the group team is set");
    // It is there in the next run.
    alice.stop(rustix::process::Signal::TERM);
    let mut alice = room.talk("alice");
    alice.wait_for("anonymity 3");
    alice.enter("@team to the team");
    alice.enter("and again");
    for member in [&mut bob, &mut carol] {
        assert_eq!(member.messages(2), ["alice to the team", "alice and again"]);
    }
    alice.enter("/groups");
    assert_eq!(alice.wait_for("group"), "group team bob carol");
    alice.enter("/ungroup team");
    assert_eq!(alice.wait_for("note the group"), "note the group team is forgotten");
    alice.enter("@team nobody");
    assert!(alice.wait_for("refused").starts_with("refused team "));
}

#[test]
fn messages_that_have_not_left_are_cancelled() {
    let (room, _proxy, [mut alice, bob, _carol]) = open();
    // Bob does not take part, so what is sent to him waits.
    drop(bob);
    alice.wait_for("anonymity 2");
    let code = alice.invite("dave");
    alice.forget();
    room.join("dave", &code);
    let _dave = room.talk("dave");
    alice.wait_for("anonymity 3");
    let long = "x".repeat(40_000);
    for _ in 0..3 {
        assert!(alice.say("bob", &long));
    }
    alice.forget();
    alice.enter("/cancel bob");
    // At most the first one has left.
    let note = alice.wait_for("note");
    assert!(note.contains("dropped"), "{note}");
    alice.wait_for("cancelled");
    alice.wait_for("cancelled");
    alice.enter("@bob the last one");
    let mut bob = room.talk("bob");
    let mut texts = bob.messages(1);
    if texts[0] != "alice the last one" {
        assert_eq!(texts, [format!("alice {long}")]);
        texts = bob.messages(1);
    }
    assert_eq!(texts, ["alice the last one"]);
}

#[test]
fn a_small_file_is_offered_and_saved_under_a_safe_name() {
    let (room, _proxy, [mut alice, bob, _carol]) = open();
    let content: Vec<u8> = (0..3000_u32).map(|at| at.to_le_bytes()[0]).collect();
    fs::create_dir(room.path("sent")).unwrap();
    fs::write(room.path("sent/a plan.bin"), &content).unwrap();
    bob.enter("/send alice sent/a plan.bin");
    assert_eq!(alice.wait_for("file"), "file 1 bob 3000 a_plan.bin");
    // The offer is there in the next run, and nothing was written.
    assert!(!room.path("received").exists());
    alice.stop(rustix::process::Signal::TERM);
    let mut alice = room.talk("alice");
    assert_eq!(alice.wait_for("file"), "file 1 bob 3000 a_plan.bin");
    // Entered twice, it is saved once.
    alice.enter("/accept 1");
    alice.enter("/accept 1");
    assert_eq!(alice.wait_for("warning"), "warning file 1 was accepted already");
    assert!(alice.wait_for("note file 1").ends_with("a_plan.bin"));
    let saved = room.path("received/a_plan.bin");
    assert_eq!(fs::read(&saved).unwrap(), content);
    assert_eq!(fs::metadata(saved).unwrap().permissions().mode() & 0o777, 0o600);
    alice.enter("/accept 1");
    assert_eq!(alice.wait_for("warning"), "warning file 1 was accepted already");
    alice.enter("/accept 2");
    assert_eq!(alice.wait_for("warning"), "warning there is no file 2");
    assert_eq!(fs::read_dir(room.path("received")).unwrap().count(), 1);
    // What cannot be sent.
    fs::write(room.path("large"), vec![0; 48_001]).unwrap();
    let mut bob = bob;
    mknodat(CWD, room.path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    for (file, why) in [
        ("large", "48000"),
        ("sent", "not a file"),
        ("pipe", "not a file"),
        ("missing", "No such file"),
    ] {
        bob.enter(&format!("/send alice {file}"));
        let refused = bob.wait_for("refused");
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn an_invitation_is_written_to_a_file_that_only_its_owner_can_read() {
    let (room, _proxy) = Room::open(&["alice"]);
    let run = |arguments: &[&str]| {
        let mut command = room.command(&[&["chat", "invite"], arguments].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output().unwrap()
    };
    // It is printed only if that is asked for.
    assert_eq!(run(&["--config", "alice.toml", "bob"]).status.code(), Some(2));
    let written = run(&["--config", "alice.toml", "--out", "bob.invitation", "bob"]);
    assert!(written.status.success() && written.stdout.is_empty());
    let path = room.path("bob.invitation");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = run(&["--config", "alice.toml", "--out", "bob.invitation", "bob"]);
    assert_eq!(again.status.code(), Some(2));
    let printed = run(&["--config", "alice.toml", "--print", "carol"]);
    assert!(printed.stdout.starts_with(b"sunder-mix-2-"));
    let _alice = room.talk("alice");
    let mut command = room.command(&["chat", "join", "bob.invitation", "--config", "bob.toml"]);
    let output = command.stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A SOCKS5 proxy that takes the name `mix.example` for the chat's proxy. Like Tor, it prefers
/// connections with a user and a password, and accepts any. Returns its address.
fn socks_proxy(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut greeting = [0; 4];
            client.read_exact(&mut greeting).unwrap();
            assert_eq!(greeting, [5, 2, 0, 2]);
            client.write_all(&[5, 2]).unwrap();
            let mut login = [0; 1 + 2 * (1 + 16)];
            client.read_exact(&mut login).unwrap();
            client.write_all(&[1, 0]).unwrap();
            let mut request = [0; 5 + 11 + 2];
            client.read_exact(&mut request).unwrap();
            assert_eq!(&request[5..16], b"mix.example", "the name is not resolved before");
            let Ok(server) = TcpStream::connect(&to) else { return };
            client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn a_file_that_is_entered_before_the_first_round_is_sent_later() {
    let (room, _proxy) = Room::open(&NAMES);
    fs::write(room.path("plan.txt"), "east").unwrap();
    let [mut alice, _carol] = ["alice", "carol"].map(|name| room.talk(name));
    let bob = room.talk("bob").enter_last("/send alice plan.txt");
    assert_eq!(alice.wait_for("file"), "file 1 bob 4 plan.txt");
    assert!(bob.ends().success());
}

#[test]
fn a_member_connects_through_a_socks_proxy_which_resolves_the_name() {
    let (room, _proxy) = Room::open(&NAMES);
    let socks = socks_proxy(room.address());
    let (_, port) = room.address().rsplit_once(':').unwrap();
    room.set_proxy("bob", &format!("mix.example:{port}"));
    let path = room.path("bob.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}socks = \"{socks}\"\n")).unwrap();
    let [mut alice, _carol] = ["alice", "carol"].map(|name| room.talk(name));
    let bob = room.talk("bob").enter_last("@alice through another proxy");
    assert_eq!(alice.wait_for("message"), "message bob through another proxy");
    assert!(bob.ends().success());
}

#[test]
fn join_refuses_options_that_an_existing_configuration_contradicts() {
    let (room, _proxy) = Room::open(&["alice"]);
    let mut alice = room.talk("alice");
    let code = alice.invite("bob");
    room.join("bob", &code);
    for (options, wrong) in [
        (["--socks", "127.0.0.1:9"], "without socks = \"127.0.0.1:9\""),
        (["--name", "robert"], "another name than robert"),
    ] {
        let again = room.run_join("bob", &code, &options);
        let stderr = String::from_utf8(again.stderr).unwrap();
        assert!(again.status.code() == Some(2) && stderr.contains(wrong), "{stderr}");
    }
    for options in [&[][..], &["--name", "bob"]] {
        let again = room.run_join("bob", &code, options);
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    }
}
