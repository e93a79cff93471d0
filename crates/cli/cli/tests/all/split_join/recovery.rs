//! Shares are joined without Sunder: by the program in Python beside the format's page.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::SEGMENT;
use super::place::{TestDirectory, bytes, stderr};

/// Joins shares with the program in Python into `joined`; `None` where there is no Python.
fn join_in_python(place: &TestDirectory, shares: &[String]) -> Option<Output> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/formats");
    let mut python = Command::new("python3");
    python.arg(folder.join("join_shares.py")).arg("joined").args(shares);
    python.current_dir(place.path("."));
    match python.output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: python3 cannot be run: {error}");
            None
        }
    }
}

fn shares(coordinates: impl IntoIterator<Item = u8>) -> Vec<String> {
    coordinates.into_iter().map(|x| format!("secret.{x}.share")).collect()
}

#[test]
fn python_joins_what_split_wrote() {
    for (options, given) in [
        ("-k 1 -m 1", vec![1]),
        ("-k 2 -m 3", vec![3, 1]),
        ("-k 3 -m 5", vec![2, 5, 4]),
        ("-k 2 -m 5", vec![5, 4, 3, 2, 1]),
        ("-k 4 -m 255 --rng os", vec![255, 1, 128, 77]),
        ("-k 3 -m 3 --scheme xor", vec![2, 1, 3]),
    ] {
        for len in [0, 1, 17, 1000, SEGMENT - 1, SEGMENT, SEGMENT + 1] {
            let place = TestDirectory::new();
            let secret = bytes(len);
            place.split(options, &secret);
            let Some(output) = join_in_python(&place, &shares(given.iter().copied())) else {
                return;
            };
            assert!(output.status.success(), "{options}, {len}: {}", stderr(&output));
            assert!(place.read("joined") == secret, "{options}, {len} bytes");
        }
    }
}

#[test]
fn python_detects_changes() {
    for (options, given) in [("-k 2 -m 3", 1..=2), ("-k 2 -m 2 --scheme xor", 1..=2)] {
        let place = TestDirectory::new();
        place.split(options, &bytes(200));
        let original = place.read("secret.2.share");
        for at in [10, 13, 36, 37, 53, 69, 268] {
            place.edit("secret.2.share", |bytes| bytes[at] ^= 1);
            let Some(output) = join_in_python(&place, &shares(given.clone())) else { return };
            assert!(!output.status.success(), "{options}, byte {at}");
            assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
            assert!(!place.path("joined").exists() && !place.path("joined.partial").exists());
            place.write("secret.2.share", &original);
        }
        for count in [0, 1, 5] {
            place.edit("secret.2.share", |bytes| bytes.truncate(bytes.len() - count));
            let Some(output) = join_in_python(&place, &shares(given.clone())) else { return };
            assert_eq!(output.status.success(), count == 0);
            let _ = fs::remove_file(place.path("joined"));
            place.write("secret.2.share", &original);
        }
    }
}

#[test]
fn python_finds_right_shares_among_wrong_ones() {
    let place = TestDirectory::new();
    let secret = bytes(SEGMENT + 10);
    place.split("-k 2 -m 4", &secret);
    place.edit("secret.1.share", |bytes| bytes[100] ^= 1);
    place.edit("secret.3.share", |bytes| *bytes.last_mut().unwrap() ^= 1);
    let Some(output) = join_in_python(&place, &shares(1..=4)) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.read("joined") == secret);
}

#[test]
fn python_reads_typed_lines() {
    let place = TestDirectory::new();
    let secret = bytes(700);
    place.split("-k 2 -m 3 --paper", &secret);
    let text = super::paper::typed_lines(&place, 1) + &super::paper::typed_lines(&place, 3);
    place.write("typed.txt", text.to_lowercase().replace('o', "0").as_bytes());
    let Some(output) = join_in_python(&place, &["typed.txt".into()]) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.read("joined") == secret);
}

#[test]
fn the_shares_in_the_page_of_the_format_join() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/formats/share.md");
    let page = fs::read_to_string(page).unwrap();
    let example = page.split("```text\nshare 1\n").nth(1).unwrap().split("```").next().unwrap();
    let place = TestDirectory::new();
    for (x, digits) in [1, 3].into_iter().zip(example.split("share 3\n")) {
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let share: Vec<u8> = digits.chunks(2).map(byte).collect();
        place.write(&format!("secret.{x}.share"), &share);
    }
    place.succeed("join secret.1.share secret.3.share");
    assert_eq!(place.read("secret"), b"Meet at the bridge at eight.\n");
    let Some(output) = join_in_python(&place, &shares([1, 3])) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(place.read("joined"), b"Meet at the bridge at eight.\n");
}
