//! `sunder compute psi`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use transport::{ConnectionOptions, ConnectionSecurity, TransportChoice, connect};

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
    assert_eq!((&sender["other_values"], &sender["rows"]), (&3.into(), &Value::Null));
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
    pairs(40);
}

#[test]
#[ignore = "takes a minute: make soak"]
fn common_values_of_many_tables_are_those_of_pythons_sets() {
    pairs(400);
}

/// Writes two tables of which two of three keys are common.
fn write_tables(place: &Path) {
    let write = |name: &str, content: &str| fs::write(place.join(name), content).unwrap();
    write("a.csv", "email\nann\nbob\neve\n");
    write("b.csv", "mail,paid\nbob,10.5\nzoe,7\neve,-0.25\nbob,2\n");
}

#[test]
fn only_the_number_of_common_values_is_computed() {
    let place = tempfile::tempdir().unwrap();
    write_tables(place.path());
    let b = "b.csv --column mail";
    let [receiver, sender] = both(place.path(), "a.csv --count", &format!("{b} --count --rows 9"));
    assert_eq!((receiver.output(), sender.output()), ("2", "2"));
    assert!(receiver.errors.contains("2 of 3 values are common"), "{}", receiver.errors);
    let count = "--count --json --output-to receiver";
    let [receiver, sender] =
        both(place.path(), &format!("a.csv {count}"), &format!("{b} {count}")).map(|it| it.json());
    assert_eq!((&receiver["count"], &receiver["protocol"]), (&2.into(), &"ddh".into()));
    assert!(receiver["common"].is_null() && sender["count"].is_null(), "{receiver} {sender}");
    let dry = format!("psi {b} {count} --role sender --dry-run");
    let dry = Running::start(place.path(), &words(&dry)).end().json();
    assert_eq!(dry["bytes_sent"], sender["bytes_sent"]);
}

#[test]
fn numbers_of_common_values_are_summed() {
    let place = tempfile::tempdir().unwrap();
    write_tables(place.path());
    let b = "b.csv --column mail --sum paid";
    let [receiver, sender] = both(place.path(), "a.csv --sum paid", b);
    assert_eq!((receiver.output(), sender.output()), ("12.25", "12.25"));
    let only = "--json --output-to receiver";
    let [receiver, sender] =
        both(place.path(), &format!("a.csv --sum paid {only}"), &format!("{b} {only}"))
            .map(|it| it.json());
    assert_eq!((&receiver["sum"], &receiver["count"]), (&12.25.into(), &2.into()));
    assert!(sender["sum"].is_null() && sender["count"].is_null(), "{sender}");
    for (receiver, sender, expected) in [
        ("a.csv --sum price", b, "the column of numbers (--sum)"),
        ("a.csv --count", b, "what is computed (--count, --sum)"),
        ("a.csv", "b.csv --column mail --count", "what is computed (--count, --sum)"),
    ] {
        for ended in both(place.path(), receiver, sender) {
            assert!(ended.code == 2 && ended.error().contains(expected), "{}", ended.errors);
        }
    }
    let write = |content: &str| fs::write(place.path().join("c.csv"), content).unwrap();
    for (content, expected) in [
        ("mail,paid\nbob,1\neve,1e5\n", "line 3: paid is no number"),
        ("mail,paid\nbob,4398046511103\neve,-1\n", "may be 4398046511103 in all"),
        ("mail,price\nbob,1\n", "no column paid"),
    ] {
        write(content);
        let sender = "psi c.csv --column mail --sum paid --role sender --listen 127.0.0.1:0";
        let ended = Running::start(place.path(), &words(sender)).end();
        assert!(ended.code == 2 && ended.error().contains(expected), "{}", ended.errors);
    }
    for options in ["--count --sum paid", "--count --protocol circuit", "--count --print rows"] {
        let arguments = format!("psi a.csv {options} --role sender --listen 127.0.0.1:0");
        let ended = Running::start(place.path(), &words(&arguments)).end();
        assert!(
            ended.code == 2
                && ["cannot be used with", "exclude each other"]
                    .iter()
                    .any(|it| ended.errors.contains(it)),
            "{}",
            ended.errors
        );
    }
}

/// The records of this user, as `sunder compute psi-runs` prints them.
fn runs(place: &Path) -> Value {
    Running::start(place, &words("psi-runs --json")).end().json()
}

#[test]
fn other_parties_are_refused_when_they_have_used_up_their_budget() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (place.path().join("a"), place.path().join("b"));
    for place in [&a, &b] {
        fs::create_dir(place).unwrap();
        write_tables(place);
    }
    assert_eq!(runs(&a), Value::Array(Vec::new()));
    // The receiver learns nothing of the sender that the record of the receiver would count.
    let run = |options: &str, receiver: &str| {
        let sender =
            format!("psi a.csv --role sender --listen 127.0.0.1:0 --output-to receiver {options}");
        let (sender, address) = Running::started(&a, &words(&sender));
        let receiver = format!(
            "psi b.csv --column mail --role receiver --connect {address} --output-to receiver \
             {receiver}"
        );
        let receiver = Running::start(&b, &words(&receiver)).end();
        [receiver, sender.end()]
    };
    for options in ["", "--count"] {
        // A receiver of values can test an item in each of 512 bins, one of a count its 3 values.
        for ended in run(&format!("--max-runs 3 --max-rows 515 {options}"), options) {
            assert_eq!(ended.code, 0, "{}", ended.errors);
        }
    }
    assert_eq!(runs(&b), Value::Array(Vec::new()));
    let recorded = runs(&a);
    assert_eq!((&recorded[0]["runs"], &recorded[0]["rows"]), (&2.into(), &515.into()));
    assert!(recorded[0]["key"].is_null(), "{recorded}");
    assert_eq!(recorded[0]["latest"][1]["result"], "count");
    for (options, receiver, expected) in [
        ("--max-runs 2", "", "2 runs of this party are recorded, of --max-runs 2"),
        ("--max-rows 515", "", "asked with more than --max-rows 515 values (515 before)"),
        ("--max-rows 1026", "", "asked with more than --max-rows 1026 values (515 before)"),
        ("--max-rows 1784", "--rows 1000", "with more than --max-rows 1784 values (515 before)"),
    ] {
        let [receiver, sender] = run(options, receiver);
        assert!(sender.code == 3 && sender.error().contains(expected), "{}", sender.errors);
        assert!(receiver.code == 1 && receiver.printed.is_empty(), "{}", receiver.errors);
    }
    assert_eq!(runs(&a), recorded, "a refused run is none");
    // Nobody else can read or forge the record.
    let file = a.join("sunder/psi/unnamed.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&file, "{").unwrap();
    let [_, sender] = run("", "");
    assert!(sender.code == 1 && sender.error().contains("is damaged"), "{}", sender.errors);
    let text = Running::start(&a, &words("psi-runs")).end();
    assert!(text.code == 1 && text.error().contains("is damaged"), "{}", text.errors);
}

/// A key that the party has named has a budget of its own, also for a circuit.
#[test]
fn each_named_key_has_a_budget_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    write_tables(place.path());
    let key = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        let new = command.args(["key", "new", name]).current_dir(place.path()).output().unwrap();
        assert!(new.status.success(), "{}", String::from_utf8_lossy(&new.stderr));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        let public = command.args(["key", "public", name]).current_dir(place.path());
        String::from_utf8(public.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let (sender_key, one, two) = (key("sender.key"), key("one.key"), key("two.key"));
    let run = |identity: &str, protocol: &str| {
        let sender = format!(
            "psi a.csv --role sender --listen 127.0.0.1:0 --output-to receiver --max-runs 1 \
             --identity sender.key --key {one} --key {two} {protocol}"
        );
        let (sender, address) = Running::started(place.path(), &words(&sender));
        let receiver = format!(
            "psi b.csv --column mail --role receiver --connect {address} --key {sender_key} \
             --identity {identity} --output-to receiver {protocol}"
        );
        let receiver = Running::start(place.path(), &words(&receiver)).end();
        [receiver, sender.end()]
    };
    let circuit = "--protocol circuit --rows 5";
    let is_new = |sender: &Ended| sender.errors.contains("its budget begins at zero");
    for (identity, protocol) in [("one.key", ""), ("two.key", circuit)] {
        let [receiver, sender] = run(identity, protocol);
        assert_eq!((receiver.code, sender.code), (0, 0), "{}{}", receiver.errors, sender.errors);
        assert!(is_new(&sender), "{}", sender.errors);
    }
    for protocol in ["", circuit] {
        for identity in ["one.key", "two.key"] {
            let [_, sender] = run(identity, protocol);
            assert!(sender.code == 3 && !is_new(&sender), "{identity}: {}", sender.errors);
        }
    }
    let mut expected = [(one, 512), (two, 5)];
    expected.sort_unstable();
    let recorded = runs(place.path());
    for (record, (key, rows)) in recorded.as_array().unwrap().iter().zip(expected) {
        assert_eq!((&record["key"], &record["rows"]), (&key.into(), &rows.into()));
    }
    let text = Running::start(place.path(), &words("psi-runs")).end();
    assert_eq!(text.output().lines().count(), 3, "{}", text.printed);
}

/// However the other party ends a run after the terms are agreed, the run is recorded.
#[test]
fn a_run_that_is_cut_is_recorded() {
    let place = tempfile::tempdir().unwrap();
    write_tables(place.path());
    // Sends so many bytes of a receiver's first message, and returns what is recorded then.
    let cut = |options: &str, function: u8, size: u8, sent: usize| {
        let sender = format!("psi a.csv --role sender --listen 127.0.0.1:0 {options}");
        let (sender, address) = Running::started(place.path(), &words(&sender));
        let options = ConnectionOptions {
            transport: TransportChoice::Named("tcp"),
            ..ConnectionOptions::new(ConnectionSecurity::Insecure)
        };
        let (mut reader, mut writer) = connect(&address, &options).unwrap().split();
        let mut hello = [0; 96];
        hello[..8].copy_from_slice(b"SNDRPSI\x02");
        hello[10] = function;
        hello[15] = size;
        hello[32..64].copy_from_slice(Sha256::digest("trim").as_slice());
        writer.write_all(&hello[..sent]).unwrap();
        // What the sender has not read would be lost if this end closed with unread bytes.
        let _ = writer.finish();
        let _ = io::copy(&mut reader, &mut io::sink());
        assert_eq!(sender.end().code, 1);
        let recorded = runs(place.path());
        recorded.as_array().unwrap().first().map(|it| it["rows"].clone())
    };
    for (sent, is_recorded) in [(0, false), (95, false), (96, true)] {
        let rows = cut("--count --max-runs 1", 1, 7, sent);
        assert_eq!(rows, is_recorded.then(|| 7.into()), "{sent}");
    }
    // Without a value, a receiver of values could still test one in each of 512 bins.
    assert_eq!(cut("--max-rows 519", 0, 0, 96), Some(519.into()));
    let again = "psi a.csv --role sender --listen 127.0.0.1:0 --count --max-runs 1";
    let (sender, address) = Running::started(place.path(), &words(again));
    let receiver = format!("psi b.csv --column mail --count --role receiver --connect {address}");
    let receiver = Running::start(place.path(), &words(&receiver)).end();
    assert_eq!((receiver.code, sender.end().code), (1, 3));
}

/// A party with one value against one with a million, as either role. Takes most of a minute.
#[test]
#[ignore = "takes half a minute, and gigabytes of memory; part of make soak"]
fn one_value_is_compared_with_a_million() {
    let place = tempfile::tempdir().unwrap();
    let rows: Vec<String> = (0..1_000_000).map(|number| format!("user{number}")).collect();
    fs::write(place.path().join("many.csv"), format!("n\n{}\n", rows.join("\n"))).unwrap();
    fs::write(place.path().join("one.csv"), "n\nuser777777\n").unwrap();
    fs::write(place.path().join("none.csv"), "n\nnobody\n").unwrap();
    for (one, expected) in [("one.csv", "user777777"), ("none.csv", "")] {
        for (receiver, sender) in [(one, "many.csv"), ("many.csv", one)] {
            for ended in both(place.path(), receiver, sender) {
                assert_eq!(ended.output(), expected, "{receiver} {sender}");
            }
        }
    }
}
