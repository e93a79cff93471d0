//! Experiments of `sunder lab` with two parties of `sunder compute`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{lab, performed};

/// The experiment behind the paper's table 4.
const LINKS: &str = include_str!("../../../../lab/lab/experiments/compute-links.toml");

/// AES-128 over a link of 10 ms.
const SMALL: &str = r#"
about = "AES-128"
[hosts.garbler]
[hosts.evaluator]
[links.a]
hosts = ["garbler", "evaluator"]
both = { rate_mbit = 1000, delay_ms = 10 }
[measure]
driver = "compute"
[measure.options]
sunder = "{sunder}"
garbler = "garbler"
evaluator = "evaluator"
address = "{garbler.a}:7000"
circuit = "aes128"
connecting = ["--transport", "tcp"]
limit_s = 30
[measure.values]
time = { unit = "ms", json = "/time_s", scale = 1000 }
least = { unit = "ms", json = "/least_s", scale = 1000 }
tables = { unit = "B", json = "/garbler/phases/gates/bytes_sent" }
"#;

/// The values of each trial of an experiment; `None`, after a message, if users may not create
/// networks.
fn values_of(place: &Path, text: &str) -> Option<Vec<Value>> {
    fs::write(place.join("small.toml"), text).unwrap();
    let document = performed(place, &["run", "small.toml", "--json"])?;
    let document: Value = serde_json::from_str(&document).unwrap();
    Some(document["trials"].as_array().unwrap().clone())
}

#[test]
fn a_computation_over_a_link_is_measured() {
    let place = tempfile::tempdir().unwrap();
    let Some(trials) = values_of(place.path(), SMALL) else { return };
    let values = &trials[0]["values"];
    let value = |name: &str| values[name].as_f64().unwrap();
    // A round trip of TCP, and one from the evaluator's choices to their answers.
    assert!((40.0..5000.0).contains(&value("time")), "{values}");
    // 20 ms, and the tables of 6,400 ANDs at 1 Gbit/s.
    assert!((21.6..23.0).contains(&value("least")), "{values}");
    assert!((204_800.0..206_000.0).contains(&value("tables")), "{values}");
}

#[test]
fn each_scheme_and_transport_of_the_table_works() {
    let place = tempfile::tempdir().unwrap();
    let (text, _plots) = LINKS.split_once("[[plots]]").unwrap();
    let text = text.replace("repetitions = 3", "repetitions = 1\nattempts = 1");
    let others = ["sha256 =", "mincut =", "EU-US =", "EU-AUS ="];
    let lines = text.lines().filter(|line| !others.iter().any(|it| line.starts_with(it)));
    let Some(trials) = values_of(place.path(), &lines.collect::<Vec<_>>().join("\n")) else {
        return;
    };
    assert_eq!(trials.len(), 5 * 7);
    for trial in trials {
        // udp fails if anything is lost, as on a busy machine.
        if trial["point"]["transport"] == "udp" && trial["values"]["time"] == 60_000.0 {
            continue;
        }
        let value = |name: &str| trial["values"][name].as_f64().unwrap();
        assert!(value("time") >= 1.0 && value("over") >= 1.0, "{trial}");
        assert!((0.15..1.0).contains(&value("sent")), "{trial}");
        assert!(value("garbler_memory") > 1.0 && value("evaluator_cpu") > 0.0, "{trial}");
    }
}

#[test]
fn a_wrong_output_fails_the_trial() {
    let place = tempfile::tempdir().unwrap();
    // `sh compute ...` runs this file.
    let program = env!("CARGO_BIN_EXE_sunder");
    let script = format!("{program} compute \"$@\" | sed s/3925841d/3925841e/");
    fs::write(place.path().join("compute"), script).unwrap();
    fs::write(place.path().join("small.toml"), SMALL.replace("{sunder}", "sh")).unwrap();
    let output = lab(place.path(), &["run", "small.toml"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    if !place.path().join("lab-results").exists() {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the garbler has the output \"3925841e02dc"), "{stderr}");
    assert!(stderr.contains("but 3925841d02dc09fbdc118597196a0b32 is right"), "{stderr}");
}

#[test]
fn a_run_beyond_its_limit_counts_as_that_long() {
    let place = tempfile::tempdir().unwrap();
    let text = SMALL.replace("limit_s = 30", "limit_s = 0.001");
    let Some(trials) = values_of(place.path(), &text) else { return };
    assert_eq!(trials[0]["values"], serde_json::json!({ "time": 1.0 }));
    let again = performed(place.path(), &["run", "small.toml"]).unwrap();
    assert!(again.contains("Measured on"), "its trial is done: {again}");
}

#[test]
fn a_party_that_fails_fails_the_trial_unless_it_may() {
    let place = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_sunder");
    let script = format!(
        "case $* in *'--role evaluator'*) echo out of luck >&2; exit 1; esac\n\
         exec {program} compute \"$@\""
    );
    fs::write(place.path().join("compute"), script).unwrap();
    let text = SMALL.replace("{sunder}", "sh");
    fs::write(place.path().join("small.toml"), &text).unwrap();
    let output = lab(place.path(), &["run", "small.toml"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    if !place.path().join("lab-results").exists() {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert!(stderr.contains("evaluator: ") && stderr.contains("out of luck"), "{stderr}");
    let may = text.replace("limit_s = 30", "limit_s = 30\nmay_fail = true");
    let trials = values_of(place.path(), &may).unwrap();
    assert_eq!(trials[0]["values"], serde_json::json!({ "time": 30_000.0 }));
}
