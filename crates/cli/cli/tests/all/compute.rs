//! `sunder compute`, as two processes.

mod ending;
mod psi;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

/// The example of FIPS 197, appendix B.
const KEY: &str = "2b7e151628aed2a6abf7158809cf4f3c";
const BLOCK: &str = "3243f6a8885a308d313198a2e0370734";
const ENCRYPTED: &str = "3925841d02dc09fbdc118597196a0b32";

/// An AND of a bit of each party, in Bristol's newer format.
const AND: &str = "1 3\n2 1 1\n1 1\n\n2 1 0 1 2 AND\n";

/// What a party has printed, and its exit code.
struct Ended {
    code: i32,
    printed: String,
    errors: String,
}

impl Ended {
    /// The output, if it has succeeded.
    fn output(&self) -> &str {
        assert_eq!(self.code, 0, "{}", self.errors);
        self.printed.trim_end()
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.output()).unwrap()
    }

    /// The one line of its error.
    fn error(&self) -> &str {
        let errors: Vec<&str> =
            self.errors.lines().filter(|line| line.starts_with("error: ")).collect();
        let [error] = errors[..] else { panic!("{}", self.errors) };
        error
    }
}

/// A party that runs, killed when dropped.
struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    fn start(place: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("compute").args(arguments).current_dir(place).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", place);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Starts one that listens. Its address.
    fn listen(place: &Path, arguments: &[&str]) -> (Self, String) {
        Self::started(place, &[&["--listen", "127.0.0.1:0"], arguments].concat())
    }

    /// Starts one whose arguments say that it listens. Its address.
    fn started(place: &Path, arguments: &[&str]) -> (Self, String) {
        let mut running = Self::start(place, arguments);
        let line = running.line();
        let address = line.strip_prefix("note: listening on ");
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        (running, address)
    }

    /// The next line of standard error.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The arguments of the command for the other party, which the next line has.
    fn others_command(&mut self) -> String {
        let line = self.line();
        let arguments = line.strip_prefix("note: run this at the other party: sunder compute ");
        arguments.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    fn end(mut self) -> Ended {
        let (mut printed, mut errors) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        Ended { code, printed, errors }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs both parties. The garbler listens.
fn both(garbler: &[&str], evaluator: &[&str]) -> [Ended; 2] {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("and.txt"), AND).unwrap();
    let garbler = [&["--role", "garbler"], garbler].concat();
    let (garbler, address) = Running::listen(place.path(), &garbler);
    let evaluator = [&["--role", "evaluator", "--connect", &address], evaluator].concat();
    let evaluator = Running::start(place.path(), &evaluator).end();
    [garbler.end(), evaluator]
}

/// Arguments in one string.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn a_party_ends_soon_after_the_other() {
    let [garbler, evaluator] =
        [KEY, BLOCK].map(|input| format!("--circuit aes128 --input {input}"));
    for transport in ["sabul", "burst", "udp", "quic"] {
        for _ in 0..4 {
            let start = Instant::now();
            let evaluator = format!("{evaluator} --transport {transport}");
            let ended = both(&words(&garbler), &words(&evaluator));
            assert_eq!(ended.each_ref().map(Ended::output), [ENCRYPTED; 2]);
            // One that is not told waits for 15 s, which begin later than this time.
            assert!(start.elapsed().as_secs() < 15, "{transport}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn two_processes_compute_the_example_of_fips_197() {
    let [garbler, evaluator] =
        [KEY, BLOCK].map(|input| format!("--circuit aes128 --input {input}"));
    let ended = both(&words(&garbler), &words(&evaluator));
    assert_eq!(ended.each_ref().map(Ended::output), [ENCRYPTED; 2]);
    // The other way round.
    let place = tempfile::tempdir().unwrap();
    let listening = [&["--role", "evaluator"], &words(&evaluator)[..]].concat();
    let (evaluator, address) = Running::listen(place.path(), &listening);
    let connecting = [&["--role", "garbler", "--connect", &address], &words(&garbler)[..]].concat();
    let garbler = Running::start(place.path(), &connecting).end();
    assert_eq!([garbler.output(), evaluator.end().output()], [ENCRYPTED; 2]);
}

#[test]
fn two_processes_compute_by_gmw() {
    let [garbler, evaluator] = [KEY, BLOCK]
        .map(|input| format!("--circuit aes128 --protocol gmw --repeat 2 --input {input} --json"));
    let [garbler, evaluator] = both(&words(&garbler), &words(&evaluator)).map(|it| it.json());
    for (this, other) in [(&garbler, &evaluator), (&evaluator, &garbler)] {
        assert_eq!((&this["output"], &this["protocol"]), (&ENCRYPTED.into(), &"gmw".into()));
        assert_eq!(this["scheme"], Value::Null);
        assert_eq!(this["bytes_sent"], other["bytes_received"]);
        let phases = this["phases"].as_array().unwrap();
        let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
        let of_run = ["setup", "agreement", "inputs", "triples", "gates", "output"];
        assert_eq!(names, [&["load", "connect"], &of_run[..]].concat());
    }
    // Two transfers of 16 bytes for each AND.
    let triples = &evaluator["phases"][5];
    assert_eq!(triples["bytes_sent"], 2 * (2 * 6_400 * 16 + 5), "{triples}");
    let place = tempfile::tempdir().unwrap();
    for (role, ran) in [("garbler", &garbler), ("evaluator", &evaluator)] {
        let arguments =
            format!("--role {role} --circuit aes128 --protocol gmw --repeat 2 --dry-run --json");
        let predicted = Running::start(place.path(), &words(&arguments)).end().json();
        assert_eq!(predicted["bytes_sent"], ran["bytes_sent"]);
        assert_eq!(predicted["bytes_received"], ran["bytes_received"]);
        assert_eq!((&predicted["garble_s"], &predicted["scheme"]), (&Value::Null, &Value::Null));
        assert!(predicted["triples_s"].as_f64().unwrap() > 0.0);
        assert!(predicted["predicted_run_s"].as_f64() > predicted["gates_s"].as_f64());
        check_sum(&predicted);
    }
}

#[test]
fn json_has_what_each_phase_took() {
    let [garbler, evaluator] = [KEY, BLOCK]
        .map(|input| format!("--circuit aes128 --input {input} --repeat 3 --json --explain"));
    let ended = both(&words(&garbler), &words(&evaluator));
    let [garbler, evaluator] = ended.map(|party| party.json());
    for (this, other) in [(&garbler, &evaluator), (&evaluator, &garbler)] {
        assert_eq!(this["output"], ENCRYPTED);
        assert_eq!((&this["ands"], &this["instances"]), (&6_400.into(), &3.into()));
        assert_eq!(this["bytes_sent"], other["bytes_received"]);
        assert!(this["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
        let phases = this["phases"].as_array().unwrap();
        let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["load", "connect", "setup", "agreement", "inputs", "gates", "output"]);
        for phase in phases {
            assert!(phase["peak_memory_bytes"].as_u64().unwrap() > 1 << 20, "{phase}");
            let is_idle = ["connect", "agreement"].contains(&phase["name"].as_str().unwrap());
            assert!(phase["cpu_s"].as_f64().unwrap() > 0.0 || is_idle, "{phase}");
        }
        let sent: u64 = phases.iter().map(|phase| phase["bytes_sent"].as_u64().unwrap()).sum();
        assert_eq!(this["bytes_sent"], sent);
    }
    let gates = &garbler["phases"][5];
    assert!(gates["bytes_sent"].as_u64().unwrap() >= 3 * 204_800, "{gates}");
    assert!(gates["cpu_s"].as_f64().unwrap() > 0.0, "{gates}");
}

#[test]
fn many_gates_take_no_more_memory_than_a_few() {
    // AES-128 has 36,663 gates: these are 36 million.
    let circuit = "aes128:1000";
    let [garbler, evaluator] =
        [KEY, BLOCK].map(|input| format!("--circuit {circuit} --input {input} --threads 2 --json"));
    let ended = both(&words(&garbler), &words(&evaluator));
    let eval = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["circuit", "eval", circuit, "--garbler", KEY, "--evaluator", BLOCK])
        .output()
        .unwrap();
    let expected = String::from_utf8(eval.stdout).unwrap();
    for party in ended.map(|party| party.json()) {
        assert_eq!(party["output"], expected.trim_end());
        let gates = party["ands"].as_u64().unwrap() + party["xors"].as_u64().unwrap();
        assert!(gates > 20_000_000, "{gates}");
        // The tables alone have 205 MB.
        let peak = party["peak_memory_bytes"].as_u64().unwrap();
        assert!(peak > 1 << 20 && peak < 128 << 20, "{peak}");
    }
}

#[test]
fn only_a_circuit_of_its_own_output_is_repeated() {
    for (circuit, message) in [
        ("mincut:2", "as long as the evaluator's input"),
        ("aes128:0", "at least once"),
        ("aes128:x", "the number of repetitions"),
    ] {
        let info =
            Command::new(env!("CARGO_BIN_EXE_sunder")).args(["circuit", "info", circuit]).output();
        let info = info.unwrap();
        let errors = String::from_utf8(info.stderr).unwrap();
        assert_eq!(info.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
}

#[test]
fn a_block_of_sha_256_is_divided_between_the_parties() {
    // "abc", padded.
    let block = format!("61626380{}18", "00".repeat(59));
    for split in [0, 6, 64, 128] {
        let (first, second) = block.split_at(split);
        let ended = both(
            &["--circuit", "sha256", "--input", first],
            &["--circuit", "sha256", "--input", second],
        );
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(ended.each_ref().map(Ended::output), [digest; 2]);
    }
}

#[test]
fn the_output_can_be_private() {
    let file = "--circuit and.txt --input 01";
    for (options, learners) in [
        ("", [true, true]),
        ("--private-output", [false, true]),
        ("--output-to evaluator", [false, true]),
        ("--output-to garbler", [true, false]),
    ] {
        let arguments = format!("{file} {options}");
        let ended = both(&words(&arguments), &words(&arguments));
        let expected = learners.map(|is_learner| if is_learner { "01" } else { "" });
        assert_eq!(ended.each_ref().map(Ended::output), expected, "{options}");
        let arguments = format!("{arguments} --json");
        let ended = both(&words(&arguments), &words(&arguments));
        let outputs = ended.map(|party| party.json()["output"].clone());
        let expected =
            learners.map(|is_learner| if is_learner { "01".into() } else { Value::Null });
        assert_eq!(outputs, expected, "{options}");
    }
}

#[test]
fn parties_that_want_something_else_say_so_in_one_line() {
    let aes = format!("--circuit aes128 --input {KEY}");
    for (garbler, evaluator, expected) in [
        (&aes[..], "--circuit and.txt --input 01", "the circuit is not the same"),
        ("--circuit and.txt --input 01 --scheme glnp15", "--circuit and.txt --input 01", "scheme"),
        ("--circuit and.txt --input 01 --private-output", "--circuit and.txt --input 00", "output"),
        (
            "--circuit and.txt --input 01 --transfers softspoken2",
            "--circuit and.txt --input 01",
            "--transfers",
        ),
        ("--circuit and.txt --input 01 --protocol gmw", "--circuit and.txt --input 00", "protocol"),
        (
            "--circuit and.txt --input 01 --security malicious",
            "--circuit and.txt --input 01",
            "give both the same",
        ),
        (
            "--circuit and.txt --input 01",
            "--circuit and.txt --input 01 --security semi-honest",
            "give both the same",
        ),
    ] {
        for ended in both(&words(garbler), &words(evaluator)) {
            assert_eq!(ended.code, 2, "{}", ended.errors);
            assert!(ended.error().contains(expected), "{}", ended.errors);
        }
    }
}

#[test]
fn wrong_circuits_and_inputs_are_refused_before_anybody_is_asked() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("and.txt"), AND).unwrap();
    fs::write(place.path().join("bad.txt"), "1 3\n2 1 1\n1 1\n\n2 1 0 9 2 AND\n").unwrap();
    for (arguments, expected) in [
        ("--circuit aes128 --input 00", "must have 16 bytes"),
        ("--circuit aes128 --input 0x00", "not hexadecimal: leave out 0x"),
        ("--circuit aes128 --input 012", "it has 3 digits; give two for each byte"),
        ("--circuit aes128 --input 01:2", "character 3 is not a hexadecimal digit"),
        ("--circuit no-such --input 00", "neither a file nor one of"),
        ("--circuit sha256 --input-file /no/such/file", "no such file: /no/such/file"),
        ("--circuit aes128 --input 00 --scheme rot13", "rot13"),
        ("--circuit aes128 --input 00 --protocol gmw --scheme half-gates", "which garbles nothing"),
        ("--circuit aes128 --input 00 --protocol gmw --security evaluator", "gmw is semi-honest"),
        (
            "--circuit aes128 --input 00 --security malicious --private-output",
            "both parties learn the output: leave out --output-to",
        ),
        ("--circuit aes128", "--input"),
        ("--circuit bad.txt --input 00", "bad.txt"),
        ("--circuit and.txt --input 02", "more than the 1 bits"),
        ("--circuit and.txt --input 0001", "the input has 2 bytes"),
        ("--circuit and.txt --input 01 --bit-order msb", "more than the 1 bits"),
        ("--circuit and.txt --input 01 --inputs 3", "the circuit has 2 input values"),
        ("--circuit and.txt --input 01 --inputs 1,1", "1 is there twice"),
        ("--circuit aes128 --inputs 1 --input 00", "--inputs is for circuits of files"),
    ] {
        let arguments = format!("--role garbler --listen 127.0.0.1:0 {arguments}");
        let ended = Running::start(place.path(), &words(&arguments)).end();
        assert!(ended.code > 0, "{}", ended.errors);
        assert!(ended.error().contains(expected), "{}", ended.errors);
    }
}

#[test]
fn each_party_gives_the_values_that_it_names() {
    let place = tempfile::tempdir().unwrap();
    // The AND of the first bits of the values 1 and 2, and the NOT of that of the value 3.
    let three = "2 8\n3 3 1 2\n2 1 1\n\n2 1 0 3 6 AND\n1 1 4 7 INV\n";
    fs::write(place.path().join("three.txt"), three).unwrap();
    fs::write(place.path().join("empty"), "").unwrap();
    for (garbler, evaluator, inputs, outputs) in [
        // The values are all 1 in their first bits, but for the third in the last case.
        ("--inputs 3,1 --input 8080 --bit-order msb", "--input 01", "--inputs 2", ["8000", "0100"]),
        ("--inputs none --input-file empty", "--input 010101", "--inputs 1,2,3", ["0100"; 2]),
        ("--inputs 3,2,1 --input 010100", "--input-file empty", "--inputs none", ["0101"; 2]),
    ] {
        let garbler = format!("--role garbler --circuit three.txt {garbler}");
        let (mut garbler, address) = Running::listen(place.path(), &words(&garbler));
        let command = garbler.others_command();
        assert!(command.contains(&format!("three.txt {inputs} --input-file FILE")), "{command}");
        let evaluator = format!("--circuit three.txt {inputs} {evaluator} --connect {address}");
        let evaluator = [&["--role", "evaluator"], &words(&evaluator)[..]].concat();
        let evaluator = Running::start(place.path(), &evaluator).end();
        assert_eq!([garbler.end().output(), evaluator.output()], outputs);
    }
    // Parties that do not agree on them are told so.
    let garbler = words("--role garbler --circuit three.txt --input 01");
    let (garbler, address) = Running::listen(place.path(), &garbler);
    let evaluator = format!("--role evaluator --inputs 3 --input 01 --connect {address}");
    let evaluator = [&words(&evaluator)[..], &["--circuit", "three.txt"]].concat();
    let evaluator = Running::start(place.path(), &evaluator).end();
    let both = [garbler.end(), evaluator];
    assert_eq!([both[0].code, both[1].code], [2, 2], "{}{}", both[0].errors, both[1].errors);
    let is_explained = |ended: &Ended| ended.error().contains("and their --inputs");
    assert!(both.iter().any(is_explained), "{}{}", both[0].errors, both[1].errors);
}

#[test]
fn the_error_of_a_circuit_that_loads_slowly_is_sent_to_the_other_party() {
    for (content, own, others) in [
        (
            "1 3\n2 1 1\n1 1\n\n2 1 0 9 2 AND\n",
            "line 5: there is no wire 9",
            "cannot load its circuit",
        ),
        (&AND.replace("2 1 1", "2 0 2")[..], "the circuit needs 0 bits", "its input does not fit"),
    ] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("and.txt"), AND).unwrap();
        let slow = place.path().join("slow.txt");
        assert!(Command::new("mkfifo").arg(&slow).status().unwrap().success());
        let arguments = words("--role garbler --circuit slow.txt --input 01");
        let (garbler, address) = Running::listen(place.path(), &arguments);
        let arguments =
            format!("--role evaluator --circuit and.txt --input 01 --connect {address}");
        let evaluator = Running::start(place.path(), &words(&arguments));
        fs::write(&slow, content).unwrap();
        let [garbler, evaluator] = [garbler, evaluator].map(Running::end);
        assert_eq!((garbler.code, evaluator.code), (2, 1), "{}", evaluator.errors);
        assert!(garbler.error().contains(own), "{}", garbler.errors);
        assert!(evaluator.error().contains(others), "{}", evaluator.errors);
    }
}

#[test]
fn a_party_that_computes_fewer_times_ends_the_other_one() {
    let file = "--circuit and.txt --input 01";
    let [garbler, evaluator] = both(&words(file), &words(&format!("{file} --repeat 2")));
    assert_eq!(garbler.output(), "01");
    assert_eq!(evaluator.code, 1);
    assert!(
        evaluator.error().contains("does the other party use the same --repeat?"),
        "{}",
        evaluator.errors
    );
}

#[test]
fn the_printed_command_is_that_of_the_other_party() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("and.txt"), AND).unwrap();
    fs::write(place.path().join("FILE"), "0 1\n").unwrap();
    let arguments = "--role evaluator --circuit and.txt --input 01 --scheme glnp15 --repeat 2 \
                     --transfers softspoken4 --output-to garbler";
    for place_of_key in ["", " --identity key"] {
        let key = place.path().join("key");
        fs::write(&key, "5a".repeat(32)).unwrap();
        fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let arguments = format!("{arguments}{place_of_key}");
        let (mut evaluator, _) = Running::listen(place.path(), &words(&arguments));
        let command = evaluator.others_command();
        let garbler = Running::start(place.path(), &words(&command)).end();
        assert_eq!((garbler.output(), evaluator.end().output()), ("01", ""));
        assert_eq!(command.contains("--key"), !place_of_key.is_empty(), "{command}");
        let is_noted = garbler.errors.contains("without encryption");
        assert_eq!(is_noted, place_of_key.is_empty(), "{}", garbler.errors);
    }
}

#[test]
fn every_transport_carries_a_computation() {
    // mptcp may be tcp, by the system.
    for (transport, _) in transport::names().filter(|(name, _)| *name != "mptcp") {
        let place = tempfile::tempdir().unwrap();
        let arguments = format!("--role evaluator --circuit aes128 --input {BLOCK}");
        let (evaluator, address) = Running::listen(place.path(), &words(&arguments));
        let address = if transport == "micss" { format!("{address},{address}") } else { address };
        let arguments = format!(
            "--role garbler --circuit aes128 --input {KEY} --connect {address} --explain \
             --transport {transport}"
        );
        let garbler = Running::start(place.path(), &words(&arguments)).end();
        assert_eq!((garbler.output(), evaluator.end().output()), (ENCRYPTED, ENCRYPTED));
        let explained = format!("note: {transport}: as --transport says");
        assert!(garbler.errors.contains(&explained), "{}", garbler.errors);
    }
}

#[test]
fn two_parties_meet_at_a_relay() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["transport", "relay", "--listen", "127.0.0.1:0"]).current_dir(place.path());
    command.env("RUNTIME_DIRECTORY", place.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut relay = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(relay.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap();
    fs::write(place.path().join("FILE"), BLOCK).unwrap();
    let arguments = format!("--role garbler --circuit aes128 --input {KEY} --via {address}");
    let mut garbler = Running::start(place.path(), &words(&arguments));
    assert_eq!(garbler.line(), format!("note: waiting at {address}"));
    let command = garbler.others_command();
    let evaluator = Running::start(place.path(), &words(&command)).end();
    assert_eq!((evaluator.output(), garbler.end().output()), (ENCRYPTED, ENCRYPTED));
    relay.kill().unwrap();
    relay.wait().unwrap();
}

#[test]
fn each_level_of_security_takes_what_a_dry_run_says() {
    let place = tempfile::tempdir().unwrap();
    let predicted = ["garbler", "evaluator"].map(|role| {
        let arguments = format!("--role {role} --circuit aes128 --dry-run --json");
        Running::start(place.path(), &words(&arguments)).end().json()["levels"].clone()
    });
    for (at, level) in ["semi-honest", "evaluator", "malicious"].into_iter().enumerate() {
        let [garbler, evaluator] = [KEY, BLOCK]
            .map(|input| format!("--circuit aes128 --input {input} --security {level} --json"));
        let ran = both(&words(&garbler), &words(&evaluator)).map(|party| party.json());
        for (ran, predicted) in ran.iter().zip(&predicted) {
            assert_eq!((&ran["output"], &ran["security"]), (&ENCRYPTED.into(), &level.into()));
            let predicted = &predicted[at];
            assert_eq!(predicted["security"], level);
            assert_eq!(predicted["bytes_sent"], ran["bytes_sent"]);
            assert_eq!(predicted["bytes_received"], ran["bytes_received"]);
            assert!(predicted["predicted_s"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn a_dry_run_says_the_bytes_that_a_run_takes() {
    let [garbler, evaluator] =
        [KEY, BLOCK].map(|input| format!("--circuit aes128 --input {input} --json"));
    let [garbler, evaluator] = both(&words(&garbler), &words(&evaluator)).map(|it| it.json());
    let place = tempfile::tempdir().unwrap();
    for (role, ran) in [("garbler", &garbler), ("evaluator", &evaluator)] {
        let arguments = format!("--role {role} --circuit aes128 --dry-run");
        let predicted = [&words(&arguments)[..], &["--json"]].concat();
        let predicted = Running::start(place.path(), &predicted).end().json();
        assert_eq!(predicted["bytes_sent"], ran["bytes_sent"]);
        assert_eq!(predicted["bytes_received"], ran["bytes_received"]);
        assert!(predicted["predicted_s"].as_f64().unwrap() > 0.0);
        assert_eq!(predicted["network_s"], Value::Null);
        assert!(predicted["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
        check_sum(&predicted);
        let shown = Running::start(place.path(), &words(&arguments)).end();
        assert!(shown.output().contains("round trips   2"), "{}", shown.printed);
        assert!(shown.output().contains("malicious     "), "{}", shown.printed);
        assert!(shown.output().contains("loading       "), "{}", shown.printed);
        assert!(shown.output().ends_with(" ms, without the network"), "{}", shown.printed);
    }
}

/// Checks that a prediction has all of a run: also the loading before it.
fn check_sum(predicted: &Value) {
    let [load, run, all] =
        ["load_s", "predicted_run_s", "predicted_s"].map(|name| predicted[name].as_f64().unwrap());
    assert!(load > 0.0 && run > 0.0, "{predicted}");
    assert!((load + run - all).abs() < 1e-6, "{predicted}");
}
