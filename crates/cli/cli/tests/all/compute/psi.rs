//! `sunder compute psi`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use super::{Ended, Running, check_sum, words};

/// Runs the receiver and the sender.
fn both(place: &Path, receiver: &str, sender: &str) -> [Ended; 2] {
    let sender = format!("psi {sender} --role sender --listen 127.0.0.1:0");
    let (sender, address) = Running::started(place, &words(&sender));
    let receiver = format!("psi {receiver} --role receiver --connect {address}");
    let receiver = Running::start(place, &words(&receiver)).end();
    [receiver, sender.end()]
}

#[test]
fn circuits_find_common_values() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| fs::write(place.path().join(name), content).unwrap();
    write("a.csv", "id,email\n1,ann@example.com\n2, bob@example.com \n3,\n4,\"o'hara, c\"\n");
    write("b.csv", "email\nzoe@example.com\n\"o'hara, c\"\nbob@example.com\nbob@example.com\n");
    let listening =
        "psi a.csv --column email --rows 7 --protocol circuit --role garbler --listen 127.0.0.1:0";
    let run = |options: &str| {
        let listening = format!("{listening} {options}");
        let (garbler, address) = Running::started(place.path(), &words(&listening));
        let connecting = format!(
            "psi b.csv --rows 7 --protocol yao --role evaluator --connect {address} {options}"
        );
        let evaluator = Running::start(place.path(), &words(&connecting)).end();
        [garbler.end(), evaluator]
    };
    for ended in run("") {
        assert_eq!(ended.output(), "bob@example.com\no'hara, c");
    }
    for options in ["--json --private-output", "--json"] {
        let [garbler, evaluator] = run(options).map(|ended| ended.json());
        assert_eq!(garbler["common"].is_null(), options.contains("private"));
        assert_eq!(evaluator["common"].as_array().unwrap().len(), 2);
        assert_eq!((&garbler["own_values"], &evaluator["own_values"]), (&3.into(), &3.into()));
        assert_eq!(garbler["phases"].as_array().unwrap().len(), 7);
        let predicted = format!(
            "psi a.csv --column email --rows 7 --protocol circuit --role garbler --dry-run {options}"
        );
        let predicted = Running::start(place.path(), &words(&predicted)).end().json();
        check_sum(&predicted);
        for bytes in ["bytes_sent", "bytes_received"] {
            assert_eq!(predicted[bytes], garbler[bytes], "{options}");
        }
    }
    // Both say what is not the same.
    let (garbler, address) = Running::started(place.path(), &words(listening));
    let other = format!(
        "psi b.csv --column email --rows 8 --protocol circuit --role evaluator --connect {address}"
    );
    for ended in [Running::start(place.path(), &words(&other)), garbler].map(Running::end) {
        assert_eq!(ended.code, 2, "{}", ended.errors);
        assert!(ended.error().contains("compute psi` with --rows"), "{}", ended.errors);
    }
    for (arguments, expected) in [
        (
            "psi a.csv --column mail --role garbler --listen 127.0.0.1:0",
            "the columns are id, email",
        ),
        ("psi a.csv --role garbler --listen 127.0.0.1:0", "which column? give --column"),
        ("psi a.csv --column id --rows 3 --role garbler --listen 127.0.0.1:0", "--rows 3"),
        ("psi c.csv --column id --role garbler --listen 127.0.0.1:0", "c.csv"),
        ("psi a.csv --column id --role garbler", "--listen ADDR"),
        ("psi a.csv --column id --delimiter ; --role garbler --listen 127.0.0.1:0", "--delimiter"),
        ("psi a.csv --column id --delimiter ;; --role garbler --listen 127.0.0.1:0", "ASCII"),
        (
            "psi a.csv --column id --role garbler --listen 127.0.0.1:0 --output-to garbler",
            "instead",
        ),
    ] {
        let ended = Running::start(place.path(), &words(arguments)).end();
        assert!(ended.code > 0 && ended.error().contains(expected), "{}", ended.errors);
    }
}

#[test]
fn matching_rows_are_printed_as_they_are_in_the_file() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| fs::write(place.path().join(name), content).unwrap();
    write(
        "a.csv",
        b"\xEF\xBB\xBFid;E-Mail;note\r\n1;Ann@Example.com;\"two\r\nlines\"\r\n2;eve@example.com;\xFF\r\n\
          3; BOB@example.com;\"a \"\"quote\"\"\"\r\n4;ann@example.com;",
    );
    let mut compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    compressed.write_all(b"mail\nann@example.com\nbob@example.com\nzoe@example.com\n").unwrap();
    write("b.csv.gz", &compressed.finish().unwrap());
    let [receiver, sender] = both(
        place.path(),
        "a.csv --delimiter ; --column E-Mail --normalize email --print rows --output-to receiver",
        "b.csv.gz --normalize email --output-to receiver --rows 100",
    );
    let rows = "id;E-Mail;note\n1;Ann@Example.com;\"two\r\nlines\"\n3; BOB@example.com;\"a \
                \"\"quote\"\"\"\n4;ann@example.com;";
    assert!(receiver.printed.starts_with(rows), "{}", receiver.printed);
    assert!(receiver.errors.contains("2 of 3 values are common"), "{}", receiver.errors);
    assert_eq!((sender.code, &sender.printed[..]), (0, ""), "{}", sender.errors);
    assert!(sender.errors.contains("only the other party learns"), "{}", sender.errors);
}

#[test]
fn rows_are_compared_by_several_columns() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| fs::write(place.path().join(name), content).unwrap();
    write("a.csv", "first,last,tel\nAnn,\"Lee, B\",030 1\nAnn,Lee,+49 30 2\n,,\nBob,Lee,3\n");
    write("b.csv", "tel,name,family\n0301,ann,\"lee, b\"\n004930-2,Ann,Lee\n4,Bob,Lee\n");
    let rules = "--normalize lower,lower,phone";
    let [receiver, sender] = both(
        place.path(),
        &format!("a.csv --column first --column last --column tel {rules}"),
        &format!("b.csv --column name --column family --column tel {rules} --json"),
    );
    assert_eq!(receiver.output(), "ann,\"lee, b\",0301\nann,lee,+49302");
    let sender = sender.json();
    assert_eq!(sender["common"][1], "ann,lee,+49302");
    assert_eq!((&sender["other_values"], &sender["rows"]), (&3.into(), &serde_json::Value::Null));
}

#[test]
fn nothing_is_computed_if_the_parties_do_not_agree() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.csv"), "email\na\n").unwrap();
    for (receiver, sender, expected) in [
        ("a.csv --private-output", "a.csv", "who learns the result (--output-to)"),
        ("a.csv --normalize lower", "a.csv", "how values are compared (--normalize"),
        ("a.csv --protocol circuit", "a.csv", "the other"),
    ] {
        for ended in both(place.path(), receiver, sender) {
            assert_eq!(ended.printed, "");
            assert!(ended.code > 0 && ended.error().contains(expected), "{}", ended.errors);
        }
    }
}

#[test]
fn files_that_are_no_tables_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let table = place.path().join("a.csv");
    for (content, options, expected) in [
        ("id,email\n1,\"bob\n2,eve\n", "--column email", "line 2: a quote is not closed"),
        ("email,email\nx,y\n", "--column email", "two columns have the name email"),
        ("a,b\n1\n", "--column a", "line 2 has 1 columns, and the first row has 2"),
        ("a\n1\n2\n", "--rows 1", "there are 2 values, more than --rows 1"),
        ("a\n1\n", "--scheme fixed-key", "--scheme has a meaning only with --protocol circuit"),
        ("a\n1\n", "--output-to sender", "swap the roles"),
        ("a,b\n1,2\n", "--column a --normalize trim,lower", "2 rules for 1 columns"),
        ("a\n1\n", "--normalize mail", "email"),
    ] {
        fs::write(&table, content).unwrap();
        let arguments = format!("psi a.csv {options} --role sender --listen 127.0.0.1:0");
        let ended = Running::start(place.path(), &words(&arguments)).end();
        assert!(ended.code == 2 && ended.errors.contains(expected), "{}", ended.errors);
    }
}

#[test]
fn a_dry_run_predicts_bytes_and_time() {
    let place = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    fs::write(place.path().join("a.csv"), format!("n\n{}\n", rows.join("\n"))).unwrap();
    let dry = Running::start(place.path(), &words("psi a.csv --role sender --dry-run --json"));
    let dry = dry.end().json();
    let [_, sender] = both(place.path(), "a.csv", "a.csv --json").map(|ended| {
        assert_eq!(ended.code, 0, "{}", ended.errors);
        ended
    });
    let sender = sender.json();
    for key in ["bytes_sent", "bytes_received"] {
        assert_eq!(dry[key], sender[key]);
    }
    assert!(dry["predicted_s"].as_f64().unwrap() < 10.0, "{dry}");
    let dry = Running::start(place.path(), &words("psi a.csv --role sender --dry-run")).end();
    assert!(dry.output().contains("values        1000 at each party"), "{}", dry.printed);
}

/// Makes pairs of files with the faults of real ones, and says what is common by Python's own
/// reader and sets.
const PAIRS: &str = include_str!("psi_pairs.py");

fn pairs(count: usize) {
    let place = tempfile::tempdir().unwrap();
    let made = Command::new("python3")
        .args(["-c", PAIRS, &count.to_string()])
        .current_dir(place.path())
        .output();
    let made = match made {
        Ok(made) => made,
        Err(error) => return eprintln!("skipped: python3 cannot be run: {error}"),
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let expected: Vec<Vec<String>> = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(expected.len(), count);
    for (pair, expected) in expected.iter().enumerate() {
        let (a, b) = (format!("a{pair}.csv --column key --json"), format!("b{pair}.csv --json"));
        let [receiver, sender] =
            if pair % 2 == 0 { both(place.path(), &a, &b) } else { both(place.path(), &b, &a) };
        for ended in [receiver, sender] {
            let document = ended.json();
            let common = document["common"].as_array().unwrap();
            let common: Vec<&str> = common.iter().filter_map(|it| it.as_str()).collect();
            assert_eq!(common, *expected, "pair {pair}");
        }
    }
}

#[test]
fn common_values_are_those_of_pythons_sets() {
    pairs(200);
}
