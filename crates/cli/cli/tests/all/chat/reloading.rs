//! A proxy that reads its configuration again.

use std::fs;

use super::NAMES;
use super::members::Room;

#[test]
fn a_proxy_keeps_its_configuration_if_the_new_one_is_wrong() {
    let (room, proxy) = Room::open(&NAMES);
    let [mut alice, mut bob, _carol] = NAMES.map(|name| room.talk(name));
    alice.wait_for("anonymity 3");
    let groups = || {
        let status = room.status();
        let groups = status["groups"].as_array().unwrap().clone();
        groups.iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut talk = |text: &str| {
        assert!(bob.say("alice", text));
        assert_eq!(alice.wait_for("message"), format!("message bob {text}"));
    };

    // It has one more group, and a setting of that is wrong.
    let before = fs::read_to_string(room.path("proxy.toml")).unwrap();
    let friends = before.split_once("[[group]]").unwrap().1;
    let both = format!("{before}[[group]]{}", friends.replace("\"friends\"", "\"others\""));
    let wrong = format!("{both}keep = \"soon\"\n");
    let line = room.reload(&proxy, &wrong, "the configuration before stays in force");
    let place = format!("line {}: ", wrong.lines().count());
    assert!(line.contains(&place) && line.contains("give a period up to 365d"), "{line}");
    assert_eq!(groups(), ["friends"]);
    talk("still here");

    room.configure(&proxy, &both);
    assert_eq!(groups(), ["friends", "others"]);
    talk("and with others");
}
