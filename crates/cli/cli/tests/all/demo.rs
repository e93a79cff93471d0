//! `sunder demo`: a file arrives, and only an eavesdropper on all channels can read it. Four
//! servers sign, and then four others. Two parties compute. Three members chat.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

/// Runs the demo with a separate directory for temporary files, which must be empty afterwards.
fn demo(arguments: &[&str]) -> Output {
    let temporary = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("demo").args(arguments).env("TMPDIR", temporary.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "something was left behind");
    output
}

fn succeed(arguments: &[&str]) -> String {
    let output = demo(arguments);
    let (message, shown) =
        (String::from_utf8_lossy(&output.stderr), String::from_utf8(output.stdout));
    assert_eq!(message, "", "{arguments:?}");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    shown.unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[arguments, &["--json"]].concat())).unwrap()
}

/// A file of distinct lines of text.
fn text(len: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    let lines =
        (0u32..).flat_map(|i| format!("{i} {}\n", i.wrapping_mul(0x9E37_79B9)).into_bytes());
    file.write_all(&lines.take(len).collect::<Vec<_>>()).unwrap();
    file
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The eavesdroppers in a document, each with its channels.
fn eavesdroppers(document: &Value) -> Vec<(Value, &Value)> {
    let all = document["eavesdroppers"].as_array().unwrap();
    all.iter().map(|eavesdropper| (eavesdropper["channels"].clone(), eavesdropper)).collect()
}

#[test]
fn the_proxy_of_the_chat_cannot_tell_what_a_member_does() {
    let document = json(&["chat"]);
    assert_eq!((&document["engine"], &document["slots"]), (&"broadcast".into(), &1.into()));
    assert!(document["said"].as_array().unwrap().iter().all(|line| line["arrived"] == true));
    let seen = document["seen"].as_array().unwrap();
    let doings: Vec<&str> = seen.iter().map(|it| it["alice"].as_str().unwrap()).collect();
    assert_eq!(doings, ["wrote to bob", "wrote to carol", "wrote nothing"]);
    assert!(seen.iter().all(|it| it["updates"].as_u64().unwrap() >= 40), "{document}");
    assert_eq!(document["is_unlinkable"], true);
}

#[test]
fn one_and_two_channels_are_noise() {
    let file = text(2 << 20);
    let document = json(&["--file", name(file.path())]);
    assert_eq!(document["file"]["name"], name(file.path()));
    assert_eq!(document["file"]["bytes"], 2 << 20);
    assert_eq!(document["file"]["sha256"], document["received"]["sha256"]);
    assert_eq!(document["file"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(document["received"]["bytes"], 2 << 20);
    assert_eq!(document["equal"], true);
    assert_eq!(document["channels"], 3);
    assert!(document["seconds"].as_f64().unwrap() > 0.0);
    assert!(document["bytes_per_second"].as_u64().unwrap() > 0);
    assert_eq!(document["samples"], 1000);
    assert_eq!(document["secret"], true);
    assert_eq!(document["readable_with_all"], Value::Null);

    let found = eavesdroppers(&document);
    let channels: Vec<&Value> = found.iter().map(|(channels, _)| channels).collect();
    let expected = [vec![0], vec![1], vec![2], vec![0, 1], vec![0, 2], vec![1, 2]];
    assert_eq!(channels, expected.map(Value::from).iter().collect::<Vec<_>>());
    for (channels, eavesdropper) in found {
        assert_eq!(eavesdropper["verdict"], "noise", "{channels}");
        assert_eq!(eavesdropper["samples_found"], 0, "{channels}");
        assert!(eavesdropper["bytes"].as_u64().unwrap() > 2 << 20, "{channels}");
        assert_eq!(eavesdropper["first_bytes"].as_str().unwrap().len(), 32, "{channels}");
        let chi_squared = eavesdropper["chi_squared"].as_f64().unwrap();
        assert!(chi_squared > document["noise"]["low"].as_f64().unwrap(), "{channels}");
        assert!(chi_squared < document["noise"]["high"].as_f64().unwrap(), "{channels}");
    }
}

#[test]
fn all_three_channels_are_the_file() {
    let file = text(2 << 20);
    let arguments = ["channels", "--eavesdrop", "all", "--file", name(file.path())];
    let document = json(&arguments);
    assert_eq!(document["secret"], true);
    assert_eq!(document["readable_with_all"], true);
    let found = eavesdroppers(&document);
    let (channels, all) = found.last().unwrap();
    assert_eq!(*channels, Value::from(vec![0, 1, 2]));
    assert_eq!(all["verdict"], "not-noise");
    // "HTTP/1.1 200 OK"
    assert!(all["first_bytes"].as_str().unwrap().starts_with("485454502f312e3120323030"));
    // One in 2000 extends over two records.
    assert!(all["samples_found"].as_u64().unwrap() >= 980, "{all}");
}

#[test]
fn the_default_output_is_a_table() {
    let file = text(100_000);
    let report = succeed(&["--eavesdrop", "all", "--file", name(file.path())]);
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    assert!(!report.contains('\x1b'), "{report}");
    let table = report.split_once("  channels ").unwrap().1;
    let row =
        |label: &str| table.lines().find(|line| line.trim_start().starts_with(label)).unwrap();
    for label in ["1 ", "2 ", "3 ", "1+2 ", "1+3 ", "2+3 "] {
        assert!(row(label).ends_with("noise      0 of 1000"), "{report}");
        assert!(!row(label).contains("NOT noise"), "{report}");
    }
    assert!(row("1+2+3 ").contains("HTTP/1.1 200 OK"), "{report}");
    assert!(row("1+2+3 ").contains("NOT noise"), "{report}");
    assert!(report.contains("THE FILE IS READABLE"), "{report}");
}

#[test]
fn files_too_short_for_the_test_arrive() {
    for len in [0, 1, 15, 16, 5000] {
        let file = text(len);
        let document = json(&["--eavesdrop", "all", "--file", name(file.path())]);
        assert_eq!(document["received"]["bytes"], len);
        assert_eq!(document["equal"], true);
        assert_eq!(document["secret"], true);
        assert_eq!(document["readable_with_all"], true);
        assert!(document["samples"].as_u64().unwrap() <= (len as u64).saturating_sub(15));
        for (channels, eavesdropper) in eavesdroppers(&document) {
            assert_eq!(eavesdropper["verdict"], "too-short", "{channels}");
            assert_eq!(eavesdropper["chi_squared"], Value::Null, "{channels}");
        }
    }
}

#[test]
fn non_files_are_refused_in_one_line() {
    let directory = TempDir::new().unwrap();
    let missing = directory.path().join("missing");
    for (file, expected) in [
        (name(&missing), "no such file"),
        (name(directory.path()), "is a directory"),
        ("/dev/null", "is not a regular file"),
    ] {
        let output = demo(&["--file", file]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty());
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(file) && message.contains(expected), "{message}");
    }
}

#[test]
fn any_two_of_four_servers_sign_and_then_of_four_others() {
    let file = text(100_000);
    let document = json(&["sign", "--file", name(file.path())]);
    assert_eq!(document["file"]["bytes"], 100_000);
    assert_eq!(document["modulus_bits"], 2048);
    assert!(document["openssl"].as_str().unwrap().starts_with("OpenSSL "), "{document}");
    assert!(document["public_key"].as_str().unwrap().starts_with("-----BEGIN PUBLIC KEY-----\n"));
    assert!(document["refresh_seconds"].as_f64().unwrap() > 0.0);
    let pairs = [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]].map(Value::from);
    for group in ["old_group", "new_group"] {
        let signatures = document[group].as_array().unwrap();
        assert!(signatures.iter().map(|it| &it["servers"]).eq(&pairs), "{document}");
        assert!(signatures.iter().all(|it| it["valid"] == true), "{document}");
    }
    assert_eq!(document["signed_epochs"], 2);
    assert_eq!(document["old_shares"]["count"], 4);
    assert_eq!(document["old_shares"]["in_memory_before_refresh"], 4);
    assert_eq!(document["old_shares"]["in_memory_after_refresh"], 0);
    let tried = |attempts: &str| ["pairs", "products", "signed"].map(|it| &document[attempts][it]);
    // Two servers of different groups have three shares each, two of one group four in all.
    assert_eq!(tried("across_groups"), [16, 16 << 6, 0]);
    assert_eq!(tried("in_one_group"), [12, 12 << 4, 12]);
}

#[test]
fn what_both_groups_have_signed_is_left_for_openssl() {
    let (place, file) = (TempDir::new().unwrap(), text(5_000));
    let out = place.path().join("signed");
    succeed(&["sign", "--file", name(file.path()), "--out", name(&out)]);
    assert_eq!(fs::read(out.join("message")).unwrap(), fs::read(file.path()).unwrap());
    for signature in ["message.sig", "message.after.sig"] {
        let mut openssl = Command::new("openssl");
        openssl.args(["dgst", "-sha256", "-verify", "public.pem", "-signature", signature]);
        let output = openssl.arg("message").current_dir(&out).output().unwrap();
        assert!(output.status.success(), "{signature}: {output:?}");
    }
    assert_eq!(demo(&["compute", "--out", name(&out)]).status.code(), Some(2));
}

#[test]
fn without_openssl_signatures_are_verified_all_the_same() {
    let empty = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["demo", "sign"]).env("PATH", empty.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    assert!(report.contains("Sunder itself verified the signatures"), "{report}");
    assert_eq!(report.matches("6 of 6 OK").count(), 2, "{report}");
    assert!(report.contains(" 0 of 16\n"), "{report}");
}

#[test]
fn what_cannot_be_signed_is_refused_in_one_line() {
    let (missing, long) = (Path::new("/no/such/file"), text((1 << 20) + 1));
    for (arguments, expected) in [
        (["--file", name(missing)], "no such file"),
        (["--file", name(long.path())], "more than 1048576 bytes"),
        (["--eavesdrop", "all"], "--eavesdrop is not for sunder demo sign"),
    ] {
        let output = demo(&[&["sign"][..], &arguments].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn two_parties_compute_without_receiving_the_other_input() {
    let document = json(&["compute"]);
    assert_eq!((&document["is_right"], &document["circuit"]), (&true.into(), &"aes128".into()));
    for (party, is_noise) in document["parties"].as_array().unwrap().iter().zip([None, Some(true)])
    {
        assert_eq!(party["output"], document["expected"]);
        assert_eq!(party["received_has_other_input"], false);
        assert_eq!(party["received_is_noise"].as_bool(), is_noise);
        assert_eq!(party["phases"].as_array().unwrap().len(), 5);
    }
    let report = succeed(&["compute"]);
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    assert!(report.contains("3925841d02dc09fbdc118597196a0b32: the same"), "{report}");
    assert!(report.contains("the evaluator has received"), "{report}");
    let output = demo(&["compute", "--file", "any"]);
    assert_eq!(output.status.code(), Some(2));
}
