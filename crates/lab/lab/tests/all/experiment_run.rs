//! Runs of experiments: the order of trials, what remains when a run stops, and the contents of the
//! results. The measurements are invented.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use sunder_lab::experiment::{
    ExperimentEvent, ExperimentResults, ExperimentRunError, TrialRecord, merge, run_with,
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

#[test]
fn results_csv_has_a_row_for_each_trial() {
    let out = directory();
    run_to_the_end(&TEXT.replace("repetitions = 3", "repetitions = 1"), &out);
    let slow = 10.0 * 1448.0 / 1500.0;
    let fast = 100.5 * 1448.0 / 1500.0;
    let expected = format!(
        "repetition,rate,name,speed,speed_predicted,far,far_predicted,late_ms,missed,attempts,invalid\n\
         1,10,\"a, b\",1,{slow},0.30000000000000004,,0.125,0,1,false\n\
         1,10,c,2,{slow},0.30000000000000004,,0.25,0,1,false\n\
         1,100.5,\"a, b\",3,{fast},0.30000000000000004,,0.375,0,1,false\n\
         1,100.5,c,4,{fast},0.30000000000000004,,0.5,0,1,false\n"
    );
    assert_eq!(read(&out, "results.csv"), expected);
}

#[test]
fn results_json_has_the_experiment_the_machine_and_the_trials() {
    let out = directory();
    let results = run_to_the_end(TEXT, &out);
    let document = read(&out, "results.json");
    assert!(document.ends_with("}\n"));
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["name"], "made-up");
    assert_eq!(document["about"], "How fast, and how \"far\"");
    assert_eq!(document["paper"], "001");
    assert_eq!((&document["repetitions"], &document["seed"]), (&json!(3), &json!(7)));
    assert_eq!(document["keys"], json!(["rate", "name"]));
    let values = json!([{"name": "speed", "unit": "Mbit/s"}, {"name": "far", "unit": ""}]);
    assert_eq!(document["values"], values);
    assert_eq!(document["sha256"].as_str().unwrap().len(), 64);
    let started = document["started"].as_str().unwrap();
    assert!(
        started.starts_with("20") && started.ends_with('Z') && started.len() == 20,
        "{started}"
    );
    for key in ["cpu", "kernel", "congestion", "sunder"] {
        assert!(!document["machine"][key].as_str().unwrap().is_empty(), "{key}");
    }
    assert!(document["machine"]["cores"].as_u64().unwrap() > 0);
    let fifth = json!({
        "repetition": 2,
        "point": {"rate": 10, "name": "a, b"},
        "values": {"speed": 5.0, "far": 0.1 + 0.2},
        "predictions": {"speed": 10.0 * 1448.0 / 1500.0},
        "late_ms": 0.625,
        "missed": 0,
        "attempts": 1,
        "invalid": false,
    });
    assert_eq!(document["trials"][4], fifth);
    // The ninth and later trials are more than 1 ms late.
    assert_eq!((results.invalid, &document["invalid"]), (4, &json!(4)));
}

#[test]
fn a_point_is_the_median_of_its_repetitions() {
    let out = directory();
    let results = run_to_the_end(TEXT, &out);
    let summaries = results.summaries();
    assert_eq!(summaries.len(), 4);
    assert_eq!(summaries[1].settings().collect::<Vec<_>>(), ["10", "c"]);
    let speed = summaries[1].values[0].unwrap();
    // The third attempt is late.
    assert_eq!((speed.low, speed.middle, speed.high), (2.0, 4.0, 6.0));
    assert_eq!(summaries[1].predictions, [Some(10.0 * 1448.0 / 1500.0), None]);
}

#[test]
fn graphs_show_measurements_and_predictions() {
    let out = directory();
    run_to_the_end(TEXT, &out);
    let fast = read(&out, "how-fast.svg");
    for message in
        ["How fast?", "name = a, b", "name = c", "speed, Mbit/s", "rate", "measured", "predicted"]
    {
        assert!(fast.contains(message), "{message}");
    }
    let far = read(&out, "far-of-c-alone.svg");
    assert!(far.contains("far") && !far.contains("predicted") && !far.contains("a, b"));
    let left: Vec<String> = fs::read_dir(out.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

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
