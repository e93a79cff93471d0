//! `sunder join` with shares that were changed, cut, moved, mixed or forged.

use std::fs;

use super::place::{TestDirectory, bytes, error_line, share_names, stderr};

const HEADER: usize = 37;
const CODE: usize = 32;
const SEGMENT: usize = 1 << 16;
const WHOLE: usize = CODE + SEGMENT;

/// The length of the secret: two whole segments and a short one.
const LEN: usize = 2 * SEGMENT + 100;

/// Two of three shares are needed.
fn two_of_three() -> TestDirectory {
    let place = TestDirectory::new();
    place.split("-k 2 -m 3", &bytes(LEN));
    place
}

/// Joins all three shares of [`two_of_three`], of which `wrong` is; it must be named, once, and
/// the secret be right.
fn joins_without(place: &TestDirectory, wrong: &str, why: &str) {
    let output = place.run("join --out - secret.1.share secret.2.share secret.3.share");
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{why}: {message}");
    assert!(output.stdout == bytes(LEN), "{why}");
    let warnings: Vec<&str> = message.lines().collect();
    assert!(
        matches!(warnings[..], [line] if line.starts_with(&format!("warning: left out {wrong} ("))),
        "{why}: {message}"
    );
}

#[test]
fn every_change_is_detected_and_attributed() {
    let regions = [
        ("magic", 0),
        ("end of the magic", 7),
        ("version", 8),
        ("scheme", 9),
        ("m", 11),
        ("identifier", 13),
        ("length, high", 29),
        ("length, low", 36),
        ("point", HEADER),
        ("tag", HEADER + 16),
        ("first byte", HEADER + CODE),
        ("last byte of the first segment", HEADER + WHOLE - 1),
        ("code of the second segment", HEADER + WHOLE),
        ("second segment", HEADER + WHOLE + 1000),
        ("code of the last segment", HEADER + 2 * WHOLE + 31),
        ("last byte", HEADER + 3 * CODE + LEN - 1),
    ];
    for wrong in ["secret.1.share", "secret.2.share", "secret.3.share"] {
        let place = two_of_three();
        let original = place.read(wrong);
        let other = if wrong == "secret.1.share" { "secret.2.share" } else { "secret.1.share" };
        for (region, at) in regions {
            for flip in [1, 0x80] {
                place.edit(wrong, |bytes| bytes[at] ^= flip);
                place.fail(3, &format!("join {other} {wrong}"));
                place.fail(3, &format!("join {wrong} {other}"));
                joins_without(&place, wrong, region);
                place.write(wrong, &original);
            }
        }
    }
}

#[test]
fn a_changed_threshold() {
    for (k, joins) in [(0, true), (1, true), (3, false), (4, true)] {
        let place = two_of_three();
        place.edit("secret.2.share", |bytes| bytes[10] = k);
        place.fail(3, "join secret.1.share secret.2.share");
        if joins {
            joins_without(&place, "secret.2.share", &format!("k = {k}"));
            continue;
        }
        // Were three needed indeed, the other two might be forged.
        let join = "join secret.1.share secret.2.share secret.3.share";
        let message = place.fail(3, join);
        assert!(
            message.contains("unlike most, secret.2.share comes from another split"),
            "{message}"
        );
    }
}

#[test]
fn a_share_of_another_coordinate() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 4", &bytes(LEN));
    // It says that it is share 4.
    place.edit("secret.3.share", |bytes| bytes[12] = 4);
    place.fail(3, "join secret.1.share secret.3.share");
    joins_without(&place, "secret.3.share", "another coordinate");
    let message = place.fail(3, "join secret.1.share secret.3.share secret.4.share");
    assert!(message.contains("both claim to be share 4"), "{message}");
    for x in [0, 5, 255] {
        place.edit("secret.3.share", |bytes| bytes[12] = x);
        place.fail(3, "join secret.1.share secret.3.share");
        joins_without(&place, "secret.3.share", "a coordinate that there is not");
    }
}

#[test]
fn a_share_that_is_too_short_or_too_long() {
    let full = HEADER + 3 * CODE + LEN;
    for len in
        [HEADER, HEADER + 1, HEADER + WHOLE, HEADER + 2 * WHOLE, full - 1, full + 1, 2 * full]
    {
        let place = two_of_three();
        place.edit("secret.2.share", |bytes| bytes.resize(len, 0));
        let message = place.fail(3, "join secret.1.share secret.2.share");
        assert!(message.contains("give 1 more; left out secret.2.share"), "{message}");
        joins_without(&place, "secret.2.share", &format!("{len} bytes of {full}"));
    }
    for len in [0, 1, 8, HEADER - 1] {
        let place = two_of_three();
        place.edit("secret.2.share", |bytes| bytes.truncate(len));
        place.fail(3, "join secret.2.share");
        place.fail(3, "join secret.1.share secret.2.share");
        joins_without(&place, "secret.2.share", &format!("{len} bytes of {full}"));
    }
}

#[test]
fn swapped_dropped_and_duplicated_segments_are_detected() {
    for why in ["swapped", "dropped", "doubled"] {
        let change = |bytes: &mut Vec<u8>| match why {
            "swapped" => bytes[HEADER..HEADER + 2 * WHOLE].rotate_left(WHOLE),
            "dropped" => drop(bytes.drain(HEADER..HEADER + WHOLE)),
            _ => bytes.extend_from_within(HEADER + WHOLE..),
        };
        let place = two_of_three();
        place.edit("secret.2.share", change);
        place.fail(3, "join secret.1.share secret.2.share");
        joins_without(&place, "secret.2.share", why);
        // The same in both shares, which then fit each other.
        place.edit("secret.1.share", change);
        place.fail(3, "join secret.1.share secret.2.share");
        place.fail(3, "join secret.1.share secret.2.share secret.3.share");
    }
}

#[test]
fn a_length_that_was_changed_in_all_shares() {
    let lens = [0, 1, SEGMENT as u64, LEN as u64 - 1, LEN as u64 + 1, 3 * SEGMENT as u64, u64::MAX];
    for len in lens {
        let place = two_of_three();
        for name in place.names() {
            place.edit(&name, |bytes| bytes[29..HEADER].copy_from_slice(&len.to_be_bytes()));
        }
        place.fail(3, "join secret.1.share secret.2.share");
        place.fail(3, "join secret.1.share secret.2.share secret.3.share");
    }
}

#[test]
fn wrong_shares_may_differ_between_segments() {
    let place = two_of_three();
    place.edit("secret.1.share", |bytes| bytes[HEADER + 5] ^= 1);
    place.edit("secret.2.share", |bytes| bytes[HEADER + WHOLE + 5] ^= 1);
    place.edit("secret.3.share", |bytes| bytes.truncate(HEADER + 2 * WHOLE + 5));
    let output = place.run("join --out joined secret.1.share secret.2.share secret.3.share");
    assert_eq!(stderr(&output).lines().count(), 3);
    assert!(place.read("joined") == bytes(LEN));
}

#[test]
fn correctable_wrong_shares_are_corrected() {
    let place = TestDirectory::new();
    place.split("-k 3 -m 8", &bytes(LEN));
    let join = format!("join --out joined {}", share_names(1..=8));
    // Five of eight are wrong from the second segment on, and three are right.
    for x in [1, 2, 4, 6, 7] {
        place.edit(&format!("secret.{x}.share"), |bytes| {
            bytes[HEADER + WHOLE..].iter_mut().for_each(|byte| *byte ^= 0x55 + x);
        });
    }
    let output = place.run(&join);
    let message = stderr(&output);
    assert_eq!(message.lines().count(), 5, "{message}");
    for (line, x) in message.lines().zip([1, 2, 4, 6, 7]) {
        assert!(
            line.contains(&format!(
                "secret.{x}.share (changed in 2 of 3 segments, first from byte 65536 on"
            )),
            "{line}"
        );
    }
    assert!(place.read("joined") == bytes(LEN));

    fs::remove_file(place.path("joined")).unwrap();
    place.edit("secret.3.share", |bytes| bytes[HEADER + WHOLE] ^= 1);
    let message = place.fail(3, &join);
    assert!(message.contains("too many shares were changed"), "{message}");
}

#[test]
fn shares_of_different_splits() {
    let place = two_of_three();
    place.write("other", &bytes(LEN));
    place.succeed("split -k 2 -m 3 other");
    place.fail(3, "join --out x secret.1.share other.2.share");
    place.fail(3, "join --out x secret.1.share secret.2.share other.1.share other.2.share");

    let output = place.run("join --out x secret.1.share other.3.share secret.2.share");
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).starts_with("warning: left out other.3.share (of another split"));
    assert!(place.read("x") == bytes(LEN));

    // Another threshold: nobody can tell who is right.
    place.write("third", &bytes(LEN));
    place.succeed("split -k 3 -m 3 third");
    let message = place.fail(3, "join --out y secret.1.share third.3.share secret.2.share");
    assert!(message.contains("unlike most, third.3.share comes from another split"), "{message}");

    // The other split's body under this one's header.
    let header = place.read("secret.3.share")[..HEADER].to_owned();
    place.edit("other.3.share", |bytes| bytes[..HEADER].copy_from_slice(&header));
    place.fail(3, "join --out y secret.1.share other.3.share");
}

#[test]
fn a_share_twice() {
    let place = two_of_three();
    let message = place.fail(2, "join secret.1.share secret.1.share");
    assert!(message.contains("given twice"), "{message}");
    let message = place.fail(2, "join secret.1.share ./secret.1.share secret.2.share");
    assert!(message.contains("the same file"), "{message}");
    fs::copy(place.path("secret.1.share"), place.path("copy")).unwrap();
    // A copy is no second share.
    let message = place.fail(2, "join --out x copy secret.1.share");
    assert!(message.contains("1 of the 2 that are needed"), "{message}");
    place.edit("copy", |bytes| bytes[HEADER + 3] ^= 1);
    let message = place.fail(3, "join --out x copy secret.1.share");
    assert!(message.contains("both claim to be share 1"), "{message}");
}

#[test]
fn files_that_are_no_shares() {
    let place = two_of_three();
    place.write("text", b"This is a text, and quite long enough for the header of a share.");
    place.write("empty", b"");
    place.fail(2, "join --out x text");
    place.fail(2, "join --out x text empty");
    let message = place.fail(2, "join --out x secret.1.share text");
    assert!(message.contains("give 1 more; left out text (not a share file)"), "{message}");
    let output = place.run("join --out x secret.1.share text secret.2.share");
    assert_eq!(output.status.code(), Some(0));
    assert!(place.read("x") == bytes(LEN));
}

#[test]
fn a_late_failure_on_standard_output_is_reported() {
    let place = two_of_three();
    place.edit("secret.2.share", |bytes| bytes[HEADER + WHOLE] ^= 1);
    let output = place.run("join --out - secret.1.share secret.2.share");
    let message = error_line(&output, 3);
    assert!(message.contains("standard output is incomplete"), "{message}");
    assert!(output.stdout == bytes(SEGMENT), "only what was checked is written");
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let place = TestDirectory::new();
    let name = "a\n\u{1b}[31m.1.share";
    place.write(name, b"no share at all");
    let output = place.command(["join", "--out", "x", name]).output().unwrap();
    let message = error_line(&output, 3);
    assert!(!message.contains('\u{1b}'), "{message:?}");
}
