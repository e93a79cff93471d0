//! Experiment files.

mod errors;

use std::collections::BTreeMap;
use std::path::Path;

use sunder_lab::experiment::{built_in, run_with};
use sunder_lab::{Experiment, Trial, TrialContext, TrialMeasurement};

/// An experiment that uses every part of the format.
const GOOD: &str = r#"
about = "A test"
repetitions = 2

[sweep]
loss = [0, 0.5]
[sweep.path]
direct = { through = [], port = 80 }
proxied = { through = ["--proxy", "{server.b}:{loss}"], port = 1080 }

[hosts.client]
sysctl = { "net/ipv4/ip_forward" = 1 }
[hosts.server]

[links.b]
hosts = ["client", "server"]
both = { loss = "{loss}", rate_mbit = 10 }
[links.a]
hosts = ["server", "client"]
forward = { rate_mbit = 20 }
tap = "wire.pcapng"

[files]
"page.json" = '{{"port": {port}, "path": "{path}"}}'
"port" = "{port}"

[[programs]]
host = "server"
run = ["{sunder}", "serve", "{files}/page.json", 7]
listens = "{port}"
[[programs]]
host = "client"
run = ["sh"]
only = { path = ["proxied"], loss = [0.0] }

[measure]
host = "client"
run = ["sh", "{through}", "{client.a}", "{port}", 2.5]
[measure.values]
speed = { unit = "Mbit/s", json = "/speed" }
files = { after = "files:", scale = 2 }

[predict]
speed = "slowest-channel"

[[plots]]
title = "Speed"
x = "loss"
y = "speed"
lines = "path"
"#;

fn parse(text: &str) -> Experiment {
    Experiment::parse(Path::new("test.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

/// Measures 1 for each value.
fn ones(trial: &Trial) -> TrialMeasurement {
    let values = trial.measure.values.keys().map(|name| (name.clone(), 1.0));
    TrialMeasurement { values: values.collect(), ..TrialMeasurement::default() }
}

/// The trials of an experiment, in their order.
fn trials(text: &str) -> Vec<Trial> {
    let mut trials = Vec::new();
    let place = tempfile::tempdir().unwrap();
    let measure = |trial: &Trial, _: TrialContext<'_>| {
        trials.push(trial.clone());
        Ok(ones(trial))
    };
    run_with(&parse(text), place.path(), |_| {}, measure).unwrap();
    trials
}

#[test]
fn the_documented_example_is_valid() {
    let page = include_str!("../../../../../docs/formats/experiment.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(parse(example).trials(), 3 * 3 * 2);
}

#[test]
fn built_in_experiments_have_a_name_and_a_description() {
    for (name, text) in built_in() {
        let experiment = Experiment::parse(Path::new(&format!("{name}.toml")), text).unwrap();
        assert_eq!(experiment.name(), name);
        assert!(!experiment.about().is_empty() && !experiment.about().contains('\n'));
    }
}

#[test]
fn late_trials_are_refused_where_links_are_not_to_be_late() {
    assert!(parse(GOOD).refuses_late());
    assert!(!parse(&format!("keep_late = true\n{GOOD}")).refuses_late());
    let (_, without_links) = built_in().find(|(name, _)| *name == "quorum-refresh").unwrap();
    assert!(!parse(without_links).refuses_late());
}

#[test]
fn the_last_key_varies_fastest_and_repetitions_slowest() {
    let order: Vec<(f64, bool)> = trials(GOOD)
        .iter()
        .map(|trial| (trial.links["b"].both.unwrap().loss, trial.files["port"] == "1080"))
        .collect();
    let once = [(0.0, false), (0.0, true), (0.5, false), (0.5, true)];
    assert_eq!(order, [once, once].concat());
}

#[test]
fn keys_keep_the_order_of_the_file() {
    let text = GOOD.replace("loss = [0, 0.5]\n", "zebra = [1]\nloss = [0, 0.5]\nant = [1, 2]\n");
    let text = text.replace("lines = \"path\"", "lines = \"path\"\nwhere = { ant = [1] }");
    let place = tempfile::tempdir().unwrap();
    let measure = |trial: &Trial, _: TrialContext<'_>| Ok(ones(trial));
    let results = run_with(&parse(&text), place.path(), |_| {}, measure).unwrap();
    assert_eq!(results.keys, ["zebra", "loss", "ant", "path"]);
    let values: Vec<&str> = results.values.iter().map(|value| value.name.as_str()).collect();
    assert_eq!(values, ["speed", "files"]);
}

#[test]
fn a_range_can_begin_at_an_earlier_key() {
    let swept = "kappa = [1, 1.75]\nmu = { from = \"{kappa}\", to = 2, step = 0.1 }\n";
    let text = GOOD.replace("loss = [0, 0.5]\n", swept).replace("loss = [0.0]", "kappa = [1]");
    let text = text.replace("loss = \"{loss}\"", "delay_ms = \"{mu}\"").replace("{loss}", "{mu}");
    let text =
        text.replace("x = \"loss\"", "x = \"mu\"").replace("repetitions = 2", "repetitions = 1");
    let mus: Vec<f64> =
        trials(&text).iter().map(|trial| trial.links["b"].both.unwrap().delay_ms).collect();
    let expected = (0..=10).map(|i| 1.0 + f64::from(i) / 10.0).chain([1.75, 1.85, 1.95]);
    // One for each of two paths.
    assert_eq!(
        mus,
        expected.flat_map(|mu| [mu, mu]).map(|mu| (mu * 1e9).round() / 1e9).collect::<Vec<_>>()
    );
}

#[test]
fn without_a_sweep_there_is_one_point() {
    let text = "about = \"x\"\n[hosts.a]\n[measure]\nhost = \"a\"\nrun = [\"sh\"]\n\
                [measure.values]\nv = { after = \"v\" }\n";
    assert_eq!(trials(text).len(), 1);
}

#[test]
fn placeholders_have_the_expected_types() {
    let trials = trials(GOOD);
    let (direct, proxied) = (&trials[2], &trials[3]);
    assert_eq!((direct.programs[0].listens, proxied.programs[0].listens), (Some(80), Some(1080)));
    assert_eq!(direct.files["page.json"], r#"{"port": 80, "path": "direct"}"#);
    assert_eq!(direct.files["port"], "80");
    assert_eq!(direct.hosts["client"].sysctl["net/ipv4/ip_forward"], "1");
    // Links are numbered by name: a is 10.0.0.0/24, and its first host is the server.
    let run = |trial: &Trial| trial.measure.run.clone().unwrap();
    assert_eq!(run(direct), ["sh", "10.0.0.2", "80", "2.5"]);
    assert_eq!(run(proxied), ["sh", "--proxy", "10.0.1.2:0.5", "10.0.0.2", "1080", "2.5"]);
    let sunder = std::env::current_exe().unwrap();
    let command = [sunder.to_str().unwrap(), "serve", "/dev/shm/trial/page.json", "7"];
    assert_eq!(direct.programs[0].run, command);
    // A value named like a section of texts still has numbers.
    assert!((direct.measure.values["files"].scale - 2.0).abs() < 1e-9);
}

#[test]
fn programs_run_only_for_their_values() {
    let count = |trial: &Trial| trial.programs.len();
    assert_eq!(trials(GOOD)[..4].iter().map(count).collect::<Vec<_>>(), [1, 2, 1, 1]);
}

#[test]
fn figures_of_the_paper_are_beside_the_measurements() {
    let text = GOOD
        .replace("speed = \"slowest-channel\"", "speed = \"published\"")
        .replace("port = 80 }", "port = 80, published_speed = 7.5 }");
    let directory = tempfile::tempdir().unwrap();
    let measure = |trial: &Trial, _: TrialContext<'_>| Ok(ones(trial));
    let results = run_with(&parse(&text), directory.path(), |_| {}, measure).unwrap();
    let published: Vec<Option<f64>> =
        results.trials.iter().map(|trial| trial.predictions.get("speed").copied()).collect();
    assert_eq!(published[..4], [Some(7.5), None, Some(7.5), None]);
    let table = std::fs::read_to_string(directory.path().join("results.csv")).unwrap();
    assert!(table.starts_with("repetition,loss,path,speed,speed_published,files,files_predicted,"));
}

#[test]
fn the_slowest_channel_is_predicted() {
    let place = tempfile::tempdir().unwrap();
    let measured = || TrialMeasurement {
        values: BTreeMap::from([("speed".into(), 1.0)]),
        ..TrialMeasurement::default()
    };
    let predicted = |text: &str| {
        let out = place.path().join(text.len().to_string());
        let results = run_with(&parse(text), &out, |_| {}, |_, _| Ok(measured())).unwrap();
        results.trials[0].predictions.get("speed").copied()
    };
    assert_eq!(predicted(GOOD), Some(10.0 * 1448.0 / 1500.0));
    assert_eq!(predicted(&GOOD.replace(", rate_mbit = 10", "")), Some(20.0 * 1448.0 / 1500.0));
    let free = GOOD.replace(", rate_mbit = 10", "").replace("rate_mbit = 20", "delay_ms = 20");
    assert_eq!(predicted(&free), None);
    // A rate in the opposite direction does not limit the data.
    let back = free.replace("forward =", "back = { rate_mbit = 5 }\nforward =");
    assert_eq!(predicted(&back), None);
}
