//! Comparisons of ways within each group of points, and runs in shards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sunder_lab::experiment::{ExperimentResults, ExperimentRunError, merge, run_with};
use sunder_lab::{Experiment, Trial, TrialContext, TrialError, TrialMeasurement};
use tempfile::TempDir;

use super::{directory, experiment, read};

/// Five groups of two ways, of which "new" is to be within 10 % of "old" and 20 % of "older".
const COMPARED: &str = r#"
about = "Ways"
repetitions = 2
attempts = 2
order = "random"
[sweep]
size = [1, 2, 3, 4, 5]
way = ["new", "old", "older"]
[hosts.one]
[measure]
host = "one"
run = ["echo", "{size}", "{way}"]
[measure.values]
time = { unit = "s", after = "time" }
[compare]
key = "way"
of = "new"
value = "time"
best = 0.1
limits = { older = 0.2 }
"#;

fn size_and_way(trial: &Trial) -> (u32, String) {
    let run = trial.measure.run.clone().unwrap();
    (run[1].parse().unwrap(), run[2].clone())
}

fn time(time: f64, late_ms: f64) -> TrialMeasurement {
    let values = BTreeMap::from([("time".into(), time)]);
    TrialMeasurement { values, late_ms, ..TrialMeasurement::default() }
}

#[test]
fn a_random_order_completes_groups_one_after_another() {
    let out = directory();
    let mut tried = Vec::new();
    let mut late = Some(9.0);
    run_with(
        &experiment(COMPARED),
        out.path(),
        |_| {},
        |trial, _| {
            tried.push(size_and_way(trial));
            Ok(time(1.0, late.take().unwrap_or(0.0)))
        },
    )
    .unwrap();
    // The first one was late, and runs again before the next group.
    assert_eq!(tried.len(), 5 * 6 + 1);
    assert_eq!(tried[6], tried[0]);
    tried.remove(6);
    let sizes: Vec<u32> = tried.chunks(6).map(|group| group[0].0).collect();
    for group in tried.chunks(6) {
        assert!(group.iter().all(|(size, _)| *size == group[0].0));
        assert_eq!(group[..3], group[3..], "the repetitions alternate");
    }
    let mut sorted = sizes.clone();
    sorted.sort_unstable();
    assert!(sorted == [1, 2, 3, 4, 5] && sizes != sorted, "{sizes:?}");
    let results: Value = serde_json::from_str(&read(&out, "results.json")).unwrap();
    let sizes = results["trials"].as_array().unwrap().iter().map(|it| it["point"]["size"].clone());
    assert_eq!(sizes.take(4).collect::<Vec<_>>(), [1, 1, 1, 2], "results are as swept");
}

#[test]
fn a_part_of_a_run_has_results_and_a_comparison() {
    let out = directory();
    let mut stopped = experiment(COMPARED);
    stopped.stop_at(std::time::Instant::now());
    let none = run_with(&stopped, out.path(), |_| {}, |_, _| panic!("it began")).unwrap();
    assert_eq!((none.left, none.comparison().unwrap().groups.len()), (30, 0));

    let mut left = 20;
    let part = run_with(
        &experiment(COMPARED),
        out.path(),
        |_| {},
        |trial, _| {
            left -= 1;
            if left < 0 {
                return Err(TrialError("no more time".into()));
            }
            let (size, way) = size_and_way(trial);
            let times = if way == "new" { 1.0 + 0.1 * f64::from(size - 1) } else { 1.0 };
            Ok(time(if way == "older" { 2.0 } else { times }, 0.0))
        },
    );
    assert!(part.is_err());
    let results = run_with(&stopped, out.path(), |_| {}, |_, _| panic!("it began")).unwrap();
    assert_eq!((results.left, results.trials.len()), (10, 20));
    let comparison = results.comparison().unwrap();
    // The fourth group has points, but not all of them twice: a median of one is one.
    assert_eq!((comparison.groups.len() + comparison.incomplete, comparison.keys.len()), (4, 1));
    for group in &comparison.groups {
        let size: f64 = group.settings[0].parse().unwrap();
        assert!((group.over_best() - 1.0 - 0.1 * (size - 1.0)).abs() < 1e-9);
        assert_eq!(group.best, "old");
        assert_eq!(comparison.excess(group) > 1.0, size > 2.0);
    }
    assert_eq!(comparison.within(0), comparison.groups.len());
    let csv = read(&out, "comparison.csv");
    assert!(
        csv.starts_with("size,best,time_best,time_new,new_over_best,new_over_older\n"),
        "{csv}"
    );
    let again =
        ExperimentResults::read(&experiment(COMPARED), read(&out, "results.json").as_bytes());
    assert_eq!(again.unwrap().trials, results.trials);
}

#[test]
fn a_comparison_names_values_that_there_are() {
    for (right, wrong) in [
        ("key = \"way\"", "key = \"road\""),
        ("of = \"new\"", "of = \"newest\""),
        ("value = \"time\"", "value = \"speed\""),
        ("older = 0.2", "oldest = 0.2"),
    ] {
        let text = COMPARED.replace(right, wrong);
        let error = Experiment::parse(Path::new("made-up.toml"), &text).unwrap_err();
        assert!(error.key.starts_with("compare"), "{error}");
    }
}

/// What an invented trial measures: the same for the same trial, however often it runs.
fn by_point(trial: &Trial, context: TrialContext<'_>, lateness: f64) -> TrialMeasurement {
    let (size, way) = size_and_way(trial);
    let late_ms = if way == "old" { lateness } else { 0.0 };
    let [seed, ..] = context.seed.to_be_bytes();
    let way = ["new", "old", "older"].iter().position(|it| *it == way).unwrap_or(0);
    time(f64::from(size) + [0.25, 0.5, 0.75][way] + f64::from(seed), late_ms)
}

/// Runs an experiment whose trials "old" are late at their first attempts.
fn run_late_at_first(experiment: &Experiment, out: &Path) -> ExperimentResults {
    let mut tried = BTreeMap::new();
    let mut perform = |trial: &Trial, context: TrialContext<'_>| {
        let attempt = tried.entry((size_and_way(trial), context.seed)).or_insert(0);
        *attempt += 1;
        Ok(by_point(trial, context, 9.0 / f64::from(*attempt).powi(4)))
    };
    run_with(experiment, out, |_| {}, &mut perform).unwrap()
}

fn shard_of(text: &str) -> Experiment {
    experiment(COMPARED).of_shard(text.parse().unwrap())
}

#[test]
fn merged_shards_are_the_results_of_one_run() {
    let whole = directory();
    let expected = run_late_at_first(&experiment(COMPARED), whole.path());
    assert!(expected.trials.iter().any(|trial| trial.attempts == 2));
    let shards: Vec<TempDir> = (0..4).map(|_| directory()).collect();
    let mut trials = 0;
    for (i, out) in shards.iter().enumerate() {
        let results = run_late_at_first(&shard_of(&format!("{}/4", i + 1)), out.path());
        assert_eq!((results.left, results.elsewhere), (0, 30 - results.trials.len()));
        // The points that are compared are in one shard.
        for compared in results.trials.chunks(3) {
            assert!(compared.iter().all(|it| it.point["size"] == compared[0].point["size"]));
            assert!(compared.iter().all(|it| it.repetition == compared[0].repetition));
        }
        trials += results.trials.len();
    }
    assert_eq!(trials, 30);
    let out = directory();
    let places: Vec<PathBuf> = shards.iter().map(|out| out.path().to_owned()).collect();
    let merged = merge(&experiment(COMPARED), &places, out.path()).unwrap();
    assert_eq!(merged.trials, expected.trials);
    for name in ["results.csv", "comparison.csv"] {
        assert_eq!(read(&out, name), read(&whole, name), "{name}");
    }
    // The merged journal is one of a finished run.
    let again = run_with(&experiment(COMPARED), out.path(), |_| {}, |_, _| panic!("it began"));
    assert_eq!(again.unwrap().trials, expected.trials);
    let error = merge(&experiment(COMPARED), &places, out.path()).unwrap_err();
    assert!(matches!(error, ExperimentRunError::NotEmpty(_)), "{error}");
}

#[test]
fn shards_that_are_not_all_there_are_not_merged() {
    let (one, two, out) = (directory(), directory(), directory());
    run_late_at_first(&shard_of("1/2"), one.path());
    let merge = |places: &[&TempDir], text: &str| {
        let places: Vec<PathBuf> = places.iter().map(|out| out.path().to_owned()).collect();
        let error = merge(&experiment(text), &places, &out.path().join("merged")).unwrap_err();
        assert!(!out.path().join("merged/results.json").exists());
        error
    };
    let error = merge(&[&one], COMPARED);
    assert!(matches!(error, ExperimentRunError::Missing { missing: 15, of: 30 }), "{error}");
    let error = merge(&[&one, &two], COMPARED);
    assert!(matches!(error, ExperimentRunError::Reading(..)), "{error}");
    run_late_at_first(&shard_of("2/2"), two.path());
    let error = merge(&[&one, &two, &one], COMPARED);
    assert!(matches!(error, ExperimentRunError::Twice(..)), "{error}");
    let error = merge(&[&one, &two], &COMPARED.replace("size = [", "size = [9, "));
    assert!(matches!(error, ExperimentRunError::Changed(_)), "{error}");
    // The last line is an attempt of a trial that was late.
    let journal = read(&two, "trials.jsonl");
    let cut = journal.trim_end().rfind('\n').unwrap() + 1;
    fs::write(two.path().join("trials.jsonl"), &journal[..cut]).unwrap();
    let error = merge(&[&one, &two], COMPARED);
    assert!(matches!(error, ExperimentRunError::Unfinished(_)), "{error}");
    fs::write(two.path().join("trials.jsonl"), journal + "{}\n").unwrap();
    let error = merge(&[&one, &two], COMPARED);
    assert!(matches!(error, ExperimentRunError::Broken(..)), "{error}");
}

#[test]
fn another_shard_is_refused() {
    let out = directory();
    run_late_at_first(&shard_of("1/2"), out.path());
    for other in [shard_of("2/2"), experiment(COMPARED)] {
        let nothing = |_: &Trial, _: TrialContext<'_>| panic!("a trial was performed");
        let error = run_with(&other, out.path(), |_| {}, nothing).unwrap_err();
        assert!(error.to_string().contains("has the trials of shard 1/2"), "{error}");
    }
}
