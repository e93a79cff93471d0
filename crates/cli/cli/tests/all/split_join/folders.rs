//! `sunder join` with folders in which shares of several splits are, among other files.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use super::place::{TestDirectory, bytes, error_line, stderr};

/// The identifier of a split, from one of its shares.
fn id_of(place: &TestDirectory, share: &str) -> String {
    base16ct::lower::encode_string(&place.read(share)[13..29])
}

/// A folder `mixed` with two splits that can be joined, one that lacks a share, and other files.
fn mixed() -> TestDirectory {
    let place = TestDirectory::new();
    fs::create_dir_all(place.path("mixed/below")).unwrap();
    for (name, options, kept) in [
        ("plan", "-k 2 -m 3", 1..=3),
        ("key", "-k 2 -m 2 --scheme xor", 1..=2),
        ("old", "-k 3 -m 4", 2..=3),
    ] {
        place.write(name, &bytes(100 + name.len()));
        place.succeed(&format!("split {options} {name}"));
        fs::remove_file(place.path(name)).unwrap();
        for x in kept {
            let share = format!("{name}.{x}.share");
            fs::rename(place.path(&share), place.path(&format!("mixed/{share}"))).unwrap();
        }
    }
    place
        .write("mixed/README.txt", b"Shares of the firm. Keep this folder: K3F7 is not a label.\n");
    place.write("mixed/photo.jpg", &[0xFF; 3000]);
    place.write("mixed/empty", b"");
    place
}

#[test]
fn a_folder_with_several_splits_needs_a_choice() {
    let place = mixed();
    let message = place.fail(2, "join mixed");
    assert!(message.contains("choose one with --id ID, or join each with --all"), "{message}");
    for (name, found, k) in [("plan", 3, 2), ("key", 2, 2), ("old", 2, 3)] {
        let listed = format!("({name}) has {found} shares and needs {k}");
        assert!(message.contains(&listed), "{message}");
    }
    let id = id_of(&place, "mixed/plan.2.share");
    for digits in [&id[..], &id[..10], &id[..10].to_uppercase()] {
        place.succeed(&format!("join --id {digits} mixed"));
        assert_eq!(place.read("plan"), bytes(104));
        fs::remove_file(place.path("plan")).unwrap();
    }
    let message = place.fail(2, "join --id abcdefabcdef mixed");
    assert!(message.contains("no share belongs to split abcdefabcdef; there are: "), "{message}");
    let id = id_of(&place, "mixed/old.2.share");
    let message = place.fail(2, &format!("join --id {id} mixed"));
    assert!(message.contains("2 of the 3 that are needed; give 1 more"), "{message}");
    // The missing share is elsewhere.
    place.succeed(&format!("join --id {id} mixed old.4.share"));
    assert_eq!(place.read("old"), bytes(103));
}

#[test]
fn a_folder_with_one_split_needs_none() {
    let place = mixed();
    for name in ["plan", "old"] {
        for x in 1..=3 {
            let _ = fs::remove_file(place.path(&format!("mixed/{name}.{x}.share")));
        }
    }
    fs::create_dir(place.path("restored")).unwrap();
    place.succeed("join --out restored mixed");
    assert_eq!(place.read("restored/key"), bytes(103));
}

#[test]
fn all_splits_are_joined_that_can_be() {
    let place = mixed();
    fs::create_dir(place.path("restored")).unwrap();
    let before = place.names();
    let output = place.run("join --all --out restored mixed");
    let message = error_line(&output, 2);
    assert!(message.contains("1 of 3 splits were not joined; split "), "{message}");
    assert!(message.contains("2 of the 3 that are needed; give 1 more"), "{message}");
    assert_eq!(place.names(), before);
    assert_eq!(place.read("restored/plan"), bytes(104));
    assert_eq!(place.read("restored/key"), bytes(103));
    assert!(!place.path("restored/old").exists());

    for name in ["plan", "key"] {
        fs::remove_file(place.path(&format!("restored/{name}"))).unwrap();
    }
    // One of three is changed, and named; one of two cannot be told from the other.
    place.edit("mixed/plan.2.share", |bytes| bytes[80] ^= 1);
    place.edit("mixed/key.2.share", |bytes| bytes[80] ^= 1);
    let output = place.run("join --json --all --out restored mixed old.4.share");
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{message}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let joined = document["joined"].as_array().unwrap();
    assert_eq!(joined.len(), 2, "{document}");
    let plan = joined.iter().find(|it| it["file"] == "restored/plan").unwrap();
    assert_eq!(plan["wrong"][0]["file"], "mixed/plan.2.share");
    assert_eq!(document["failed"][0]["exit_code"], 3);
    assert_eq!(document["failed"][0]["id"], id_of(&place, "mixed/key.1.share"));
    assert_eq!(place.read("restored/old"), bytes(103));
    assert!(!place.path("restored/key").exists());
}

#[test]
fn two_splits_of_files_of_one_name_get_two_names() {
    let place = TestDirectory::new();
    for (folder, len) in [("a", 5), ("b", 6)] {
        fs::create_dir(place.path(folder)).unwrap();
        place.write("plan", &bytes(len));
        place.succeed(&format!("split -k 1 -m 1 --out {folder} plan"));
    }
    fs::create_dir(place.path("restored")).unwrap();
    place.succeed("join --all --out restored a b");
    for (folder, len) in [("a", 5), ("b", 6)] {
        let id = id_of(&place, &format!("{folder}/plan.1.share"));
        assert_eq!(place.read(&format!("restored/plan.{}", &id[..8])), bytes(len));
    }
}

#[test]
fn copies_of_a_share_count_once() {
    let place = mixed();
    fs::copy(place.path("mixed/plan.1.share"), place.path("mixed/plan (copy).1.share")).unwrap();
    let id = id_of(&place, "mixed/plan.1.share");
    place.succeed(&format!("join --out plan --id {id} mixed"));
    assert_eq!(place.read("plan"), bytes(104));
    // One that differs is no copy.
    place.edit("mixed/plan (copy).1.share", |bytes| bytes[90] ^= 1);
    let message = place.fail(3, &format!("join --out again --id {id} mixed"));
    assert!(message.contains("both claim to be share 1 and differ"), "{message}");
}

#[test]
fn a_header_that_was_changed_is_not_a_split_of_its_own() {
    let place = mixed();
    // An attacker with one share claims that it is enough.
    place.edit("mixed/plan.2.share", |bytes| bytes[10] = 1);
    let id = id_of(&place, "mixed/plan.1.share");
    let output = place.run(&format!("join --out plan --id {id} mixed"));
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).starts_with("warning: left out mixed/plan.2.share ("));
    assert_eq!(place.read("plan"), bytes(104));
    fs::remove_file(place.path("mixed/plan.3.share")).unwrap();
    place.fail(3, &format!("join --out again --id {id} mixed"));
}

#[test]
fn pipes_sockets_and_folders_in_a_folder_are_left_alone() {
    let place = mixed();
    let _socket = UnixListener::bind(place.path("mixed/socket.1.share")).unwrap();
    let made = Command::new("mkfifo").arg(place.path("mixed/pipe.1.share")).status();
    assert!(made.unwrap().success());
    let id = id_of(&place, "mixed/key.1.share");
    place.succeed(&format!("join --id {id} mixed"));
    assert_eq!(place.read("key"), bytes(103));
}

#[test]
fn a_damaged_share_in_a_folder_is_named() {
    let place = mixed();
    place.edit("mixed/key.2.share", |bytes| bytes[0] = b'x');
    let id = id_of(&place, "mixed/key.1.share");
    let message = place.fail(3, &format!("join --id {id} mixed"));
    assert!(message.contains("left out mixed/key.2.share (not a share file)"), "{message}");
    place.write("mixed/key.2.share", b"");
    place.fail(3, &format!("join --id {id} mixed"));
}

#[test]
fn wrong_usage_of_folders() {
    let place = TestDirectory::new();
    fs::create_dir(place.path("empty")).unwrap();
    for arguments in [
        "join empty",
        "join --all empty",
        "join --all --out - empty",
        "join --all --out missing empty",
        "join --all --id 12 empty",
        "check empty",
        "check missing",
        "check",
    ] {
        place.fail(2, arguments);
    }
}
