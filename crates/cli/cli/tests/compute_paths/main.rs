//! `sunder compute` between emulated hosts: what `--dry-run` says beside what a run then takes.
//! Without user namespaces and `/dev/net/tun`, prints that the tests were skipped.
//!
//! `cargo test --release --package sunder-cli --test compute_paths -- --ignored --nocapture`
//! compares the times over links of many delays and rates, on a machine that does nothing else.

#[path = "../emulation/mod.rs"]
mod emulation;

use std::fs;
use std::process::{Command, ExitCode, Stdio};

use emulation::{Process, network, until};
use lab::{EmulatedNetwork, sandbox};
use libtest_mimic::{Arguments, Trial as Test};
use serde_json::Value;

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    let test = |name: &str, run: fn()| {
        Test::test(name, move || {
            run();
            Ok(())
        })
    };
    let tests = vec![
        test("a_dry_run_says_the_bytes_and_round_trips_of_a_run", bytes_and_round_trips),
        test("a_dry_run_says_the_time_of_a_run", times).with_ignored_flag(true),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Two hosts with a link.
struct Pair {
    network: EmulatedNetwork,
    directory: tempfile::TempDir,
}

/// What a dry run says, and what both parties then say.
struct Compared {
    predicted: Value,
    /// Of the party that connects, and of the one that listens.
    ran: [Value; 2],
}

impl Pair {
    /// `conditions` are those of the link, both ways.
    fn new(conditions: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let topology = format!(
            "measure = {{ driver = \"accuracy\", values = {{}} }}\n\
             [hosts.one]\n[hosts.two]\n\
             [links.a]\nhosts = [\"one\", \"two\"]\nboth = {{ {conditions} }}\n"
        );
        let network = network(&topology, directory.path());
        Self { network, directory }
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("compute").args(arguments.split_whitespace());
        // What is remembered of a path is not that of the user who runs the tests.
        command.current_dir(self.directory.path()).env("XDG_STATE_HOME", self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Whether a run takes the predicted round trips. What is exchanged must be as predicted.
    fn takes_its_round_trips(&self, role: &str, options: &str) -> bool {
        let Compared { predicted, ran: [ran, other] } = self.compare(role, "01", options);
        assert_eq!(predicted["bytes_sent"], ran["bytes_sent"], "{role} {options}");
        assert_eq!(predicted["bytes_received"], ran["bytes_received"], "{role} {options}");
        let garbler = if role == "garbler" { &ran } else { &other };
        // It ends when the garbler has the result.
        let round_trips = seconds(&garbler["run_s"]) / ROUND_TRIP_S;
        let expected = predicted["round_trips"].as_f64().unwrap();
        println!("{role} {options}: {round_trips:.2} round trips, {expected} predicted");
        (expected - 0.1..expected + 0.6).contains(&round_trips)
    }

    /// Predicts and runs; the party of `role` connects.
    fn compare(&self, role: &str, input: &str, options: &str) -> Compared {
        fs::write(self.directory.path().join("input"), input).unwrap();
        let other = if role == "garbler" { "evaluator" } else { "garbler" };
        let address = format!("{}:7000", self.network.address("two", "a").unwrap());
        let common = format!("--json --load-first {options}");
        let listening = format!("--role {other} --listen {address} --input-file input {common}");
        let log = self.directory.path().join("listening.log");
        let mut command = self.command(&listening);
        let mut process = Process::start(self.network.host("two").unwrap(), &mut command, &log);
        let printed = || fs::read_to_string(&log).unwrap();
        until("it listens", || printed().contains("--key "));
        let key =
            printed().split("--key ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        let connecting = format!("--role {role} --connect {address} --key {key} {common}");
        let run = |more: &str| -> Value {
            let mut command = self.command(&format!("{connecting} {more}"));
            let host = self.network.host("one").unwrap();
            let output = host.run(|| command.output()).unwrap().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{stderr}");
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let predicted = run("--dry-run");
        let connected = run("--input-file input");
        assert!(process.0.wait().unwrap().success());
        let printed = printed();
        let json = printed.lines().find(|line| line.starts_with('{')).unwrap();
        Compared { predicted, ran: [connected, serde_json::from_str(json).unwrap()] }
    }
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// From the start of the connection to the end of the run, at the party that connects.
fn took(run: &Value) -> f64 {
    let phases = run["phases"].as_array().unwrap();
    let connect = phases.iter().find(|phase| phase["name"] == "connect").unwrap();
    seconds(&connect["time_s"]) + seconds(&run["run_s"])
}

const AES_INPUT: &str = "00112233445566778899aabbccddeeff";

/// Two ANDs of a bit of each party: what takes time is the round trips alone.
const ANDS: &str = "3 5\n2 1 1\n1 1\n\n2 1 0 1 2 AND\n2 1 2 1 3 AND\n1 1 3 4 INV\n";

/// A link that is later than this with one packet of 100 is not the link that was asked for, as in
/// the experiments of the laboratory.
const MAX_LATE_MS: f64 = 1.0;

const ROUND_TRIP_S: f64 = 0.3;

fn bytes_and_round_trips() {
    let pair = Pair::new("rate_mbit = 1000, delay_ms = 150");
    fs::write(pair.directory.path().join("ands.txt"), ANDS).unwrap();
    for role in ["garbler", "evaluator"] {
        for options in ["", "--repeat 3", "--scheme glnp15 --transfers softspoken4"] {
            let options = format!("--circuit ands.txt --transport tcp {options}");
            // On a busy machine a run can take longer than its round trips.
            let is_right = (0..6).any(|_| pair.takes_its_round_trips(role, &options));
            assert!(is_right, "{role} {options}");
        }
    }
}

fn times() {
    let mincut = "5a".repeat(31_250);
    let mut errors = Vec::new();
    for (delay_ms, rate_mbit) in
        [(0.25, 1000), (5.0, 1000), (10.0, 100), (55.0, 1000), (150.0, 1000), (150.0, 100)]
    {
        for (circuit, input) in [("aes128", AES_INPUT), ("mincut", &mincut)] {
            for role in ["garbler", "evaluator"] {
                for transport in ["tcp", "burst"] {
                    let pair =
                        Pair::new(&format!("rate_mbit = {rate_mbit}, delay_ms = {delay_ms}"));
                    let options = format!("--circuit {circuit} --transport {transport}");
                    let Compared { predicted, ran: [ran, _] } = pair.compare(role, input, &options);
                    let (expected, took) = (seconds(&predicted["predicted_run_s"]), took(&ran));
                    let error = expected / took - 1.0;
                    let is_valid = pair.network.late_ms() <= MAX_LATE_MS;
                    println!(
                        "{delay_ms} ms, {rate_mbit} Mbit/s, {circuit}, {role}, {transport}: \
                         {expected:.4} s predicted, {took:.4} s measured, {:+.1} %{}",
                        error * 100.0,
                        if is_valid { "" } else { "; invalid: the link was late" }
                    );
                    if is_valid {
                        errors.push(error.abs());
                    }
                }
            }
        }
    }
    let near = errors.iter().filter(|error| **error <= 0.1).count();
    println!("{near} of {} valid predictions are within 10 %", errors.len());
    assert!(!errors.is_empty(), "the link was late in every run: nothing was measured");
    assert!(4 * near >= 3 * errors.len(), "a quarter are not within 10 %");
}
