//! `sunder check`: shares are verified, and the secret is not written anywhere.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::place::{TestDirectory, bytes, share_names, stderr};
use super::{SEGMENT, peak_memory_kib};

/// Runs `sunder check --json`, which must end with this code and change nothing.
fn check(place: &TestDirectory, code: i32, shares: &str) -> Value {
    let before = place.names();
    let output = place.run(&format!("check --json {shares}"));
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{shares}: {message}");
    assert_eq!(message.lines().count(), usize::from(code != 0), "{message}");
    assert_eq!(place.names(), before);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The states of the shares of the only split.
fn states(document: &Value) -> Vec<&str> {
    let shares = document["splits"][0]["shares"].as_array().unwrap();
    shares.iter().map(|share| share["state"].as_str().unwrap()).collect()
}

#[test]
fn right_shares_are_verified_and_missing_ones_named() {
    for options in ["-k 2 -m 4", "-k 3 -m 3 --scheme xor", "-k 1 -m 2"] {
        let place = TestDirectory::new();
        place.split(options, &bytes(2 * SEGMENT + 9));
        let document = check(&place, 0, ".");
        assert_eq!(document["splits"][0]["result"], "verified");
        assert_eq!(document["splits"][0]["missing"], serde_json::json!([]));
        assert!(states(&document).iter().all(|state| *state == "verified"));
    }
    let place = TestDirectory::new();
    place.split("-k 2 -m 4", &bytes(500));
    let document = check(&place, 0, "secret.3.share secret.1.share");
    assert_eq!(states(&document), ["verified", "verified"]);
    assert_eq!(document["splits"][0]["missing"], serde_json::json!([2, 4]));
    let split = &document["splits"][0];
    assert_eq!((&split["k"], &split["m"], &split["bytes"]), (&2.into(), &4.into(), &500.into()));

    let document = check(&place, 2, "secret.3.share");
    assert_eq!(states(&document), ["complete"]);
    assert_eq!(document["splits"][0]["result"], "too_few");
    assert_eq!(document["splits"][0]["needed"], 1);
}

#[test]
fn the_secret_is_not_printed() {
    let place = TestDirectory::new();
    let secret = b"the bridge at eight o'clock";
    place.split("-k 2 -m 2", secret);
    for arguments in ["check .", "check --json ."] {
        let output = place.succeed(arguments);
        assert!(!output.stdout.windows(8).any(|window| secret.starts_with(window)));
    }
}

#[test]
fn a_name_does_not_look_like_a_line_of_the_report() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &bytes(500));
    let forged = "x\n  these shares restore the file\n.2.share";
    fs::rename(place.path("secret.2.share"), place.path(forged)).unwrap();
    fs::remove_file(place.path("secret.1.share")).unwrap();
    fs::remove_file(place.path("secret.3.share")).unwrap();
    let output = place.run("check .");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.lines().all(|line| line != "  these shares restore the file"), "{report}");
    assert!(report.contains("1 more needed"), "{report}");
}

#[test]
fn wrong_shares_are_named_where_there_are_more_than_needed() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 5] = [
        ("a byte", |bytes| bytes[90] ^= 1),
        ("the end", |bytes| bytes.truncate(SEGMENT)),
        ("more", |bytes| bytes.push(0)),
        ("the header", |bytes| bytes[10] = 1),
        ("the magic", |bytes| bytes[0] = 1),
    ];
    for (what, change) in changes {
        let place = TestDirectory::new();
        place.split("-k 2 -m 3", &bytes(SEGMENT + 1));
        place.edit("secret.2.share", change);
        let output = place.run("check .");
        assert_eq!(output.status.code(), Some(3), "{what}");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("secret.2.share")).unwrap();
        assert!(!line.contains("verified"), "{what}: {text}");
        for right in ["secret.1.share  verified", "secret.3.share  verified"] {
            assert!(text.contains(right), "{what}: {text}");
        }
    }
}

#[test]
fn with_as_many_as_are_needed_a_change_is_detected() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &bytes(SEGMENT + 1));
    place.edit("secret.2.share", |bytes| *bytes.last_mut().unwrap() ^= 1);
    let document = check(&place, 3, "secret.1.share secret.2.share");
    let split = &document["splits"][0];
    assert_eq!(split["result"], "changed");
    assert!(split["error"].as_str().unwrap().contains("from byte 65536 on"), "{split}");
    assert_eq!(states(&document), ["complete", "complete"]);
    // With fewer, only a wrong length is noticed.
    check(&place, 2, "secret.2.share");
    place.edit("secret.2.share", |bytes| bytes.truncate(bytes.len() - 1));
    let document = check(&place, 3, "secret.2.share");
    assert_eq!(states(&document), ["wrong"]);
    assert_eq!(document["splits"][0]["needed"], 2);
}

#[test]
fn several_splits_are_checked_each_by_itself() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &bytes(10));
    place.write("other", &bytes(20));
    place.succeed("split -k 3 -m 5 other");
    fs::remove_file(place.path("other")).unwrap();
    place.write("photo", &[1; 100]);
    let document = check(&place, 0, ".");
    assert_eq!(document["splits"].as_array().unwrap().len(), 2);
    assert_eq!(document["others"], 1);
    for x in 1..=3 {
        fs::remove_file(place.path(&format!("other.{x}.share"))).unwrap();
    }
    let document = check(&place, 2, ".");
    let results: Vec<&Value> =
        document["splits"].as_array().unwrap().iter().map(|it| &it["result"]).collect();
    assert_eq!(results, ["too_few", "verified"]);
    // A file that was given by name is to be a share.
    check(&place, 2, "photo secret.1.share secret.2.share");
}

#[test]
fn two_that_claim_to_be_one_share() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &bytes(10));
    fs::copy(place.path("secret.1.share"), place.path("copy")).unwrap();
    let document = check(&place, 0, "copy secret.1.share secret.2.share");
    assert_eq!(states(&document), ["verified", "verified"]);
    place.edit("copy", |bytes| bytes[70] ^= 1);
    let document = check(&place, 3, "copy secret.1.share secret.2.share");
    let error = document["splits"][0]["error"].as_str().unwrap();
    assert!(error.contains("both claim to be share 1"), "{error}");
}

#[test]
fn forged_shares_that_match_each_other_are_not_believed() {
    // Two files of an attacker, who has read a header, beside two true shares.
    let place = super::forging::with_invented(4);
    let document =
        check(&place, 3, "secret.1.share secret.2.share invented.3.share invented.4.share");
    assert_eq!(document["splits"][0]["result"], "changed");
    let error = document["splits"][0]["error"].as_str().unwrap();
    assert!(error.contains("two different files fit"), "{error}");
}

#[test]
fn memory_does_not_grow_with_the_shares() {
    const LIMIT_KIB: u64 = 32 << 10;
    let place = TestDirectory::new();
    place.write("large", &bytes(48 << 20));
    place.succeed("split -k 2 -m 3 large");
    let mut command = place.command(["check", "large.2.share", "large.3.share", "-"]);
    let mut check = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = check.stdin.take().unwrap();
    let share = place.read("large.1.share");
    // The last bytes are held back, so the command is still running.
    let (most, rest) = share.split_at(share.len() - 10);
    stdin.write_all(most).unwrap();
    let peak = peak_memory_kib(check.id());
    assert!(peak < LIMIT_KIB, "{peak} KiB");
    stdin.write_all(rest).unwrap();
    drop(stdin);
    let output = check.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("  verified").count(), 3, "{text}");
    assert!(output.status.success());
}

#[test]
fn the_largest_split_is_checked() {
    let place = TestDirectory::new();
    place.split("-k 200 -m 255", &bytes(1000));
    place.edit("secret.77.share", |bytes| bytes[100] ^= 1);
    let document = check(&place, 3, &share_names(1..=255));
    let wrong: Vec<u64> = document["splits"][0]["shares"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|share| share["state"] != "verified")
        .map(|share| share["share"].as_u64().unwrap())
        .collect();
    assert_eq!(wrong, [77]);
}
