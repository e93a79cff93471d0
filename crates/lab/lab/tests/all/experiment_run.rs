//! Runs of experiments: the order of trials, and what remains when a run stops. The measurements
//! are invented.

mod comparisons;
mod output;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use sunder_lab::experiment::{
    ExperimentEvent, ExperimentResults, ExperimentRunError, TrialRecord, run_with,
};
use sunder_lab::{Experiment, Trial, TrialContext, TrialError, TrialMeasurement};
use tempfile::TempDir;

const TEXT: &str = r#"
about = "How fast, and how \"far\""
paper = "001"
repetitions = 3
attempts = 1
seed = 7
[sweep]
rate = [10, 100.5]
name = ["a, b", "c"]
[hosts.one]
[hosts.two]
[links.wire]
hosts = ["one", "two"]
both = { rate_mbit = "{rate}" }
[measure]
host = "one"
run = ["sh", "{name}"]
[measure.values]
speed = { unit = "Mbit/s", after = "speed" }
far = { after = "far" }
[predict]
speed = "slowest-channel"
[[plots]]
title = "How fast?"
x = "rate"
y = "speed"
each = "name"
[[plots]]
title = "Far, of c alone"
x = "rate"
y = "far"
where = { name = ["c"] }
"#;

fn experiment(text: &str) -> Experiment {
    Experiment::parse(Path::new("lab/made-up.toml"), text).unwrap()
}

fn measured(speed: f64, late_ms: f64) -> TrialMeasurement {
    let values = BTreeMap::from([("speed".into(), speed), ("far".into(), 0.1 + 0.2)]);
    TrialMeasurement { values, late_ms, ..TrialMeasurement::default() }
}

/// Speeds that increase by one from trial to trial.
fn rising() -> impl FnMut(&Trial, TrialContext<'_>) -> Result<TrialMeasurement, TrialError> {
    rising_from(1)
}

fn rising_from(
    first: u32,
) -> impl FnMut(&Trial, TrialContext<'_>) -> Result<TrialMeasurement, TrialError> {
    let speeds = (first..).map(f64::from);
    let mut measurements = speeds.map(|speed| measured(speed, speed / 8.0));
    move |_, _| Ok(measurements.next().unwrap())
}

fn run_to_the_end(text: &str, out: &TempDir) -> ExperimentResults {
    run_with(&experiment(text), out.path(), |_| {}, rising()).unwrap()
}

/// Runs the given number of trials and then fails.
fn run_until_failure(out: &TempDir, trials: usize) -> String {
    let mut rising = rising();
    let mut left = trials;
    let failed = run_with(
        &experiment(TEXT),
        out.path(),
        |_| {},
        |trial, context| {
            let next = left.checked_sub(1).ok_or_else(|| TrialError("the cable burns".into()))?;
            left = next;
            rising(trial, context)
        },
    );
    failed.unwrap_err().to_string()
}

/// The error of a run that must not start a trial.
fn refused(text: &str, out: &TempDir) -> ExperimentRunError {
    let nothing = |_: &Trial, _: TrialContext<'_>| panic!("a trial was performed");
    run_with(&experiment(text), out.path(), |_| {}, nothing).unwrap_err()
}

fn read(out: &TempDir, name: &str) -> String {
    fs::read_to_string(out.path().join(name)).unwrap()
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_run_resumes_after_a_failed_trial() {
    let out = directory();
    let message = run_until_failure(&out, 5);
    assert_eq!(message, "trial 6 of 12 (rate = 10, name = c, repetition 2): the cable burns");
    assert_eq!(read(&out, "trials.jsonl").lines().count(), 1 + 5);
    assert!(!out.path().join("results.json").exists());

    let mut events: Vec<Value> = Vec::new();
    let mut tried = Vec::new();
    let progress = |event: &ExperimentEvent<'_>| events.push(serde_json::to_value(event).unwrap());
    let mut rising = rising();
    let results = run_with(&experiment(TEXT), out.path(), progress, |trial, context| {
        tried.push(trial.measure.run.clone().unwrap()[1].clone());
        rising(trial, context)
    });
    let results = results.unwrap();
    assert_eq!(tried, ["c", "a, b", "c", "a, b", "c", "a, b", "c"]);
    let speeds: Vec<f64> = results.trials.iter().map(|trial| trial.values["speed"]).collect();
    assert_eq!(speeds, [1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let done: Vec<u64> = events.iter().filter_map(|event| event["done"].as_u64()).collect();
    assert_eq!(done, [5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(events[0]["event"], "trial");
    assert_eq!(events[0]["number"], 6);
    assert!(events[0]["name"].as_str().unwrap().starts_with("trial 6 of 12"));
    assert_eq!(events[1]["event"], "result");
    assert_eq!(events[1]["number"], 6);
    assert_eq!(events[1]["values"]["speed"], 1.0);
    assert_eq!(events[14], serde_json::json!({ "event": "end", "done": 12, "total": 12 }));
}

#[test]
fn results_do_not_depend_on_where_the_journal_was_truncated() {
    let whole = directory();
    let results = run_to_the_end(TEXT, &whole);
    let journal = fs::read(whole.path().join("trials.jsonl")).unwrap();
    let ends: Vec<usize> = (0..journal.len()).filter(|at| journal[*at] == b'\n').collect();
    let cuts = [0, 1, ends[0], ends[0] + 1, ends[3] - 1, ends[3], ends[3] + 1, ends[3] + 2];
    for cut in cuts {
        let out = directory();
        fs::write(out.path().join("trials.jsonl"), &journal[..cut]).unwrap();
        let lines = ends.iter().filter(|end| **end < cut).count();
        let next = u32::try_from(lines.max(1)).unwrap();
        let again = run_with(&experiment(TEXT), out.path(), |_| {}, rising_from(next));
        assert_eq!(again.unwrap().trials, results.trials, "cut at {cut}");
        assert_eq!(read(&out, "results.csv"), read(&whole, "results.csv"), "cut at {cut}");
        let lines = read(&out, "trials.jsonl").lines().count();
        assert_eq!(lines, 1 + 12, "cut at {cut}");
    }
}

#[test]
fn a_finished_run_starts_no_trial() {
    let out = directory();
    run_to_the_end(TEXT, &out);
    fs::remove_file(out.path().join("results.csv")).unwrap();
    let nothing = |_: &Trial, _: TrialContext<'_>| panic!("a trial was performed");
    run_with(&experiment(TEXT), out.path(), |_| {}, nothing).unwrap();
    assert!(out.path().join("results.csv").exists());
}

#[test]
fn texts_are_kept_beside_values() {
    let out = directory();
    let texts = BTreeMap::from([("why".into(), "it is \"fast\"".into())]);
    let measure = |trial: &Trial, _: TrialContext<'_>| {
        let is_named = trial.measure.run.clone().unwrap()[1] == "c";
        let texts = if is_named { texts.clone() } else { BTreeMap::new() };
        Ok(TrialMeasurement { texts, ..measured(1.0, 0.0) })
    };
    let results = run_with(&experiment(TEXT), out.path(), |_| {}, measure).unwrap();
    let named = results.trials.iter().filter(|trial| trial.texts == texts).count();
    assert_eq!(named, 6);
    for file in ["trials.jsonl", "results.json"] {
        assert_eq!(read(&out, file).matches(r#""texts":{"why":"it is \"fast\""}"#).count(), 6);
    }
    let nothing = |_: &Trial, _: TrialContext<'_>| panic!("a trial was performed");
    let again = run_with(&experiment(TEXT), out.path(), |_| {}, nothing).unwrap();
    assert_eq!(again.trials, results.trials);
}

#[test]
fn another_experiment_is_refused() {
    let out = directory();
    run_until_failure(&out, 2);
    let message = refused(&TEXT.replace("seed = 7", "seed = 8"), &out);
    assert!(matches!(message, ExperimentRunError::Changed(_)), "{message}");
    let message = message.to_string();
    assert!(message.contains("trials.jsonl") && message.contains("--out"), "{message}");
    assert_eq!(read(&out, "trials.jsonl").lines().count(), 1 + 2, "nothing is lost");
}

#[test]
fn an_experiment_may_change_before_its_first_finished_trial() {
    let out = directory();
    run_until_failure(&out, 0);
    let before = read(&out, "trials.jsonl");
    assert_eq!(before.lines().count(), 1);
    let changed = TEXT.replace("seed = 7", "seed = 8");
    let results = run_to_the_end(&changed, &out);
    assert_eq!(read(&out, "trials.jsonl").lines().count(), 1 + 12);
    assert!(!read(&out, "trials.jsonl").contains(&before), "it is begun anew");
    let nothing = |_: &Trial, _: TrialContext<'_>| panic!("a trial was performed");
    let again = run_with(&experiment(&changed), out.path(), |_| {}, nothing).unwrap();
    assert_eq!(again.trials, results.trials);
}

#[test]
fn an_endless_journal_is_not_read() {
    let out = directory();
    mkfifoat(CWD, out.path().join("trials.jsonl"), Mode::RWXU).unwrap();
    assert!(refused(TEXT, &out).to_string().contains("not a regular file"));
    let out = directory();
    let file = fs::File::create(out.path().join("trials.jsonl")).unwrap();
    file.set_len((1 << 30) + 1).unwrap();
    assert!(refused(TEXT, &out).to_string().contains("1 GiB"));
}

/// Other files with the journal's name are left unchanged.
#[test]
fn another_file_is_not_overwritten() {
    // An incomplete line, a line, and longer files with the same beginning as a journal.
    for content in ["precious", "precious\n", "{\"experiment\":\"x\"}\n", ""] {
        let out = directory();
        let precious = out.path().join("precious");
        fs::write(&precious, content).unwrap();
        let journal = out.path().join("trials.jsonl");
        let links: [fn(&Path, &Path) -> io::Result<()>; 2] =
            [|from, to| symlink(from, to), |from, to| fs::hard_link(from, to)];
        for link in links {
            link(&precious, &journal).unwrap();
            let message = refused(TEXT, &out).to_string();
            assert!(message.contains("trials.jsonl") && message.contains("--out"), "{message}");
            fs::remove_file(&journal).unwrap();
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), content);
        if !content.is_empty() {
            fs::rename(&precious, &journal).unwrap();
            assert!(matches!(refused(TEXT, &out), ExperimentRunError::Broken(_, 1)), "{content:?}");
            assert_eq!(fs::read_to_string(&journal).unwrap(), content);
        }
    }
    if rustix::process::geteuid().is_root() {
        let out = directory();
        let journal = out.path().join("trials.jsonl");
        fs::write(&journal, "").unwrap();
        chown(&journal, Some(1000), None).unwrap();
        assert!(refused(TEXT, &out).to_string().contains("belongs to user 1000"));
    }
}

#[test]
fn no_temporary_file_remains_if_results_cannot_be_written() {
    let out = directory();
    fs::create_dir(out.path().join("results.csv")).unwrap();
    let done = run_with(&experiment(TEXT), out.path(), |_| {}, rising());
    assert!(matches!(done, Err(ExperimentRunError::Writing(..))));
    assert!(!out.path().join("results.csv.new").exists());
}

#[test]
fn another_machine_is_refused() {
    let out = directory();
    run_until_failure(&out, 2);
    let journal = read(&out, "trials.jsonl").replacen("\"kernel\":\"", "\"kernel\":\"0.", 1);
    fs::write(out.path().join("trials.jsonl"), journal).unwrap();
    assert!(matches!(refused(TEXT, &out), ExperimentRunError::Moved(_)));
}

#[test]
fn a_malformed_journal_is_refused() {
    let out = directory();
    run_to_the_end(TEXT, &out);
    let journal = read(&out, "trials.jsonl");
    let lines: Vec<&str> = journal.lines().collect();
    let broken = [
        (3, [lines[0], lines[1], "{}", lines[3]].join("\n")),
        (2, [lines[0], lines[2], lines[1]].join("\n")),
        (1, lines[1..].join("\n")),
        (1, String::from("{}")),
        (2, [lines[0], &without_values(lines[1])].join("\n")),
        (14, journal.clone() + lines[1]),
    ];
    for (line, journal) in broken {
        fs::write(out.path().join("trials.jsonl"), journal + "\n").unwrap();
        let message = refused(TEXT, &out);
        assert!(
            matches!(message, ExperimentRunError::Broken(_, at) if at == line),
            "{line}: {message}"
        );
    }
}

/// The record of a trial, without its values.
fn without_values(line: &str) -> String {
    let mut trial: Value = serde_json::from_str(line).unwrap();
    trial["values"] = json!({});
    trial.to_string()
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let out = directory();
    let done = run_with(
        &experiment(TEXT),
        out.path(),
        |_| {},
        |_, _| {
            let message = refused(TEXT, &out);
            assert!(matches!(message, ExperimentRunError::Busy(_)), "{message}");
            Err(TrialError("enough".into()))
        },
    );
    assert!(matches!(done, Err(ExperimentRunError::Trial(..))));
}

#[test]
fn points_have_equal_seeds_and_repetitions_different_ones() {
    let seeds = |text: &str| {
        let mut seeds = Vec::new();
        let mut rising = rising();
        let done = run_with(
            &experiment(text),
            directory().path(),
            |_| {},
            |trial, context| {
                seeds.push(context.seed);
                rising(trial, context)
            },
        );
        done.unwrap();
        seeds
    };
    let all = seeds(TEXT);
    assert!(all.chunks(4).all(|repetition| repetition.iter().all(|seed| *seed == repetition[0])));
    assert!(all[0] != all[4] && all[4] != all[8] && all[0] != all[8]);
    assert_eq!(all, seeds(TEXT));
    let others = seeds(&TEXT.replace("seed = 7", "seed = 8"));
    assert!(others.iter().all(|seed| !all.contains(seed)));
}

#[test]
fn a_value_that_is_not_a_number_is_an_error() {
    let fail = |measured: TrialMeasurement| {
        let out = directory();
        let done = run_with(&experiment(TEXT), out.path(), |_| {}, |_, _| Ok(measured.clone()));
        assert_eq!(read(&out, "trials.jsonl").lines().count(), 1);
        done.unwrap_err().to_string()
    };
    assert!(fail(measured(f64::NAN, 0.0)).ends_with("speed is NaN, which is no number"));
    assert!(fail(measured(1.0, f64::INFINITY)).ends_with("late_ms is inf, which is no number"));
}

/// An experiment of one point, with its numbers of repetitions and attempts.
fn late_text(repetitions: &str, attempts: &str) -> String {
    TEXT.replace("repetitions = 3\nattempts = 1", &format!("{repetitions}\nattempts = {attempts}"))
        .replace("[10, 100.5]", "[10]")
        .replace("name = [\"a, b\", \"c\"]", "name = [\"c\"]")
        .replace("each = \"name\"", "")
}

/// Trials with the given lateness, one after the other, that measure 0, 1, 2 and so on.
fn late(
    late: &[f64],
) -> impl FnMut(&Trial, TrialContext<'_>) -> Result<TrialMeasurement, TrialError> {
    let mut left = (0_u32..).map(f64::from).zip(late.to_vec());
    move |_, _| {
        let (number, late) = left.next().expect("no trial is performed once too often");
        Ok(measured(number, late))
    }
}

fn seen(results: &ExperimentResults) -> Vec<(f64, f64, usize, bool)> {
    let seen = |record: &TrialRecord| {
        (record.values["speed"], record.late_ms, record.attempts, record.invalid)
    };
    results.trials.iter().map(seen).collect()
}

#[test]
fn a_trial_that_stays_late_is_invalid() {
    let first = |attempts: &str, late_ms: &[f64]| {
        let experiment = experiment(&late_text("repetitions = 1", attempts));
        let results = run_with(&experiment, directory().path(), |_| {}, late(late_ms)).unwrap();
        (seen(&results)[0], results.invalid)
    };
    // The attempt with the least lateness counts, whatever it measured.
    assert_eq!(first("3", &[1.0]), ((0.0, 1.0, 1, false), 0));
    assert_eq!(first("3", &[2.0, 0.5]), ((1.0, 0.5, 2, false), 0));
    assert_eq!(first("3", &[3.0, 2.0, 4.0]), ((1.0, 2.0, 3, true), 1));
    assert_eq!(first("1", &[3.0]), ((0.0, 3.0, 1, true), 1));
}

#[test]
fn late_trials_run_again_in_rounds_after_all_others() {
    let text = late_text("repetitions = 3", "3");
    let late_ms = [2.0, 0.5, 3.0, 4.0, 0.1, 1.5];
    let whole = directory();
    let mut message = Vec::new();
    let progress = |event: &ExperimentEvent<'_>| {
        if let ExperimentEvent::Trial { name, .. } = event {
            message.push((*name).to_owned());
        }
    };
    let results = run_with(&experiment(&text), whole.path(), progress, late(&late_ms)).unwrap();
    let expected = [(0.0, 2.0, 3, true), (1.0, 0.5, 1, false), (4.0, 0.1, 2, false)];
    assert_eq!(seen(&results)[1..], expected[1..]);
    assert_eq!(seen(&results)[0], (5.0, 1.5, 3, true));
    assert!(
        message[3].contains("repetition 1") && message[3].ends_with("attempt 2 of 3"),
        "{}",
        message[3]
    );
    assert!(
        message[5].contains("repetition 1") && message[5].ends_with("attempt 3 of 3"),
        "{}",
        message[5]
    );

    // A run continues with the next trial after a stop at any place.
    let journal = read(&whole, "trials.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for done in 1..=late_ms.len() {
        let out = directory();
        fs::write(out.path().join("trials.jsonl"), lines[..=done].concat()).unwrap();
        let mut rest = late(&late_ms);
        (0..done).for_each(|_| drop(rest(&trial(&text), context())));
        let again = run_with(&experiment(&text), out.path(), |_| {}, rest).unwrap();
        assert_eq!(again.trials, results.trials, "after {done}");
        assert_eq!(read(&out, "trials.jsonl"), journal, "after {done}");
    }
}

#[test]
fn invalid_trials_are_left_out_of_summaries_and_graphs() {
    let text = late_text("repetitions = 3", "1");
    let run = |late_ms: &[f64]| {
        let out = directory();
        let results = run_with(&experiment(&text), out.path(), |_| {}, late(late_ms)).unwrap();
        (results, read(&out, "how-fast.svg"))
    };
    let (results, graph) = run(&[0.1, 2.0, 0.1]);
    let summary = &results.summaries()[0];
    let speed = summary.values[0].unwrap();
    assert_eq!((speed.low, speed.middle, speed.high), (0.0, 1.0, 2.0));
    assert_eq!(summary.invalid, 1);
    assert!(graph.contains("1 of 3 trials are invalid") && graph.contains("measured"));
    let (results, graph) = run(&[3.0, 2.0, 3.0]);
    assert_eq!((results.summaries()[0].values[0], results.invalid), (None, 3));
    assert!(graph.contains("3 of 3 trials are invalid") && !graph.contains("measured"));
}

#[test]
fn keep_late_makes_late_trials_valid() {
    let text = late_text("repetitions = 1\nkeep_late = true", "3");
    let results = run_with(&experiment(&text), directory().path(), |_| {}, late(&[9.0])).unwrap();
    assert_eq!(seen(&results), [(0.0, 9.0, 1, false)]);
}

#[test]
fn seeds_have_a_mean_and_an_interval() {
    let text = late_text("seeds = 3", "1");
    let results =
        run_with(&experiment(&text), directory().path(), |_| {}, late(&[0.0; 3])).unwrap();
    let speed = results.summaries()[0].values[0].unwrap();
    let off = 4.303 / 3_f64.sqrt();
    assert!((speed.middle - 1.0).abs() < 1e-12 && (speed.high - 1.0 - off).abs() < 1e-9);
}

#[test]
fn older_results_are_checked_by_current_criteria() {
    let out = directory();
    let before =
        run_to_the_end(&TEXT.replace("attempts = 1", "attempts = 1\nkeep_late = true"), &out);
    assert_eq!(before.invalid, 0);
    let old =
        read(&out, "results.json").replace(",\"invalid\":false", "").replace(",\"attempts\":1", "");
    let again = ExperimentResults::read(&experiment(TEXT), old.as_bytes()).unwrap();
    assert_eq!(again.invalid, 4);
    again.write(&experiment(TEXT), out.path()).unwrap();
    assert!(read(&out, "results.csv").ends_with(",1.5,0,1,true\n"));
    let other = TEXT.replace("100.5", "101");
    assert!(
        ExperimentResults::read(&experiment(&other), old.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("points")
    );
    assert!(
        ExperimentResults::read(&experiment(TEXT), b"{}")
            .unwrap_err()
            .to_string()
            .contains("no results")
    );
}

/// The only trial of an experiment.
fn trial(text: &str) -> Trial {
    let mut found = None;
    let _ = run_with(
        &experiment(text),
        directory().path(),
        |_| {},
        |trial, _| {
            found = Some(trial.clone());
            Err(TrialError(String::new()))
        },
    );
    found.unwrap()
}

fn context() -> TrialContext<'static> {
    TrialContext { seed: 0, files: Path::new(""), results: Path::new(""), number: 0 }
}
