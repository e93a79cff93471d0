//! `sunder lab`: experiments from the command line, with JSON and with text.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{lab, performed};

/// Two points, measured by a program that every system has.
const QUICK: &str = r#"
about = "What a shell says"
repetitions = 3
[sweep]
speed = [7, 8.5]
[hosts.one]
[hosts.two]
[links.wire]
hosts = ["one", "two"]
both = { rate_mbit = 10 }
[measure]
host = "one"
run = ["sh", "-c", "echo speed: {speed}"]
[measure.values]
said = { after = "speed:", unit = "Mbit/s" }
[predict]
said = "slowest-channel"
[[plots]]
title = "Said"
x = "speed"
y = "said"
"#;

/// Runs `sunder lab` with wrong arguments. Returns its one-line message.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let output = lab(directory, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    stderr
}

/// A directory with an experiment file.
fn with_file(text: &str) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("quick.toml");
    fs::write(&file, text).unwrap();
    (place, file)
}

#[test]
fn the_experiments_are_listed() {
    let place = tempfile::tempdir().unwrap();
    let listed = lab(place.path(), &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let loss =
        listed.as_array().unwrap().iter().find(|entry| entry["name"] == "micss-loss").unwrap();
    assert!(loss["about"].as_str().unwrap().contains("lossy channels"));
    assert!(loss["trials"].as_u64().unwrap() > 0 && loss["paper"].is_string());
    assert!(loss["minutes"].as_u64().unwrap() > 0);
    let listed = lab(place.path(), &["list"]);
    assert_eq!(listed.status.code(), Some(0));
    assert!(String::from_utf8(listed.stdout).unwrap().contains("\n  links "));
}

#[test]
fn an_experiment_is_described() {
    let (place, _file) = with_file(QUICK);
    let described = lab(place.path(), &["describe", "quick.toml", "--json"]);
    let described: Value = serde_json::from_slice(&described.stdout).unwrap();
    assert_eq!((&described["name"], &described["trials"]), (&json!("quick"), &json!(6)));
    assert_eq!(described["keys"], json!([{ "name": "speed", "values": [7, 8.5] }]));
    assert_eq!(described["values"], json!([{ "name": "said", "unit": "Mbit/s" }]));
    assert_eq!(described["plots"], json!([{ "title": "Said", "x": "speed", "y": "said" }]));
    let described = lab(place.path(), &["describe", "compute-loss"]);
    let text = String::from_utf8(described.stdout).unwrap();
    for part in ["Reproduces: Transputation", "loss: 0, 0.0001, 0.0005", "time, ms", "MinCut"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(refused(place.path(), &["describe", "lots"]).contains("no experiment lots"));
}

#[test]
fn a_run_prints_its_events() {
    let (place, _file) = with_file(QUICK);
    let Some(events) = performed(place.path(), &["run", "quick.toml", "--events"]) else { return };
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|it| it["event"] == kind).collect::<Vec<_>>();
    assert_eq!((of("trial").len(), of("result").len(), of("end").len()), (6, 6, 1));
    assert_eq!(of("trial")[1]["point"], json!({ "speed": 8.5 }));
    assert_eq!(of("result")[1]["values"]["said"], 8.5);
    assert!(of("sample").len() >= 6, "{events:?}");
    assert!(of("sample").iter().all(|it| it["links"]["wire"] == json!([0, 0])), "{events:?}");
    assert_eq!(events.last().unwrap(), &json!({ "event": "end", "done": 6, "total": 6 }));
    let results = fs::read(place.path().join("lab-results/quick/results.json")).unwrap();
    let results: Value = serde_json::from_slice(&results).unwrap();
    assert_eq!(results["plots"][0]["title"], "Said");
}

#[test]
fn a_run_whose_events_nobody_reads_ends() {
    let (place, _file) = with_file(&QUICK.replace("echo speed:", "sleep 600; echo speed:"));
    let mut run = Command::new(env!("CARGO_BIN_EXE_sunder"));
    run.args(["lab", "run", "quick.toml", "--events"]).current_dir(place.path());
    let mut run =
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut events = BufReader::new(run.stdout.take().unwrap());
    let mut first = String::new();
    events.read_line(&mut first).unwrap();
    drop(events);
    let deadline = Instant::now() + Duration::from_secs(90);
    while run.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it goes on; its first event was {first}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn impossible_experiments_are_wrong_usage() {
    let (place, _file) = with_file(&QUICK.replace("rate_mbit = 10", "rate_mbit = 0"));
    let place = place.path();
    let message = refused(place, &["run", "lots"]);
    assert!(
        message.contains("no experiment lots") && message.contains("`sunder lab list`"),
        "{message}"
    );
    let message = refused(place, &["run", "none.toml"]);
    assert!(message.contains("no such file: none.toml"), "{message}");
    let message = refused(place, &["run", "quick.toml"]);
    assert!(message.contains("quick.toml: links.wire.both.rate_mbit: 0 cannot be"), "{message}");
    fs::write(place.join("quick.toml"), "about = ").unwrap();
    let message = refused(place, &["run", "quick.toml"]);
    assert!(message.contains("quick.toml: line 1: "), "{message}");
    fs::write(place.join("quick.toml"), b"\xff").unwrap();
    refused(place, &["run", "quick.toml"]);
    fs::write(place.join("quick.toml"), QUICK.replace("\"sh\"", "\"/nowhere/iperf3\"")).unwrap();
    let message = refused(place, &["run", "quick.toml"]);
    assert!(message.contains("measure.run") && message.contains("apt install iperf3"), "{message}");
    assert!(!place.join("lab-results").exists());
}

#[test]
fn results_in_the_sandbox_directory_are_refused() {
    let (place, _file) = with_file(QUICK);
    let message = refused(place.path(), &["run", "quick.toml", "--out", "/dev/shm/results"]);
    assert!(message.contains("/dev/shm/results is below /dev/shm"), "{message}");
}

#[test]
fn a_file_as_the_results_directory_is_refused() {
    let (place, file) = with_file(QUICK);
    for out in ["quick.toml", "quick.toml/in/it"] {
        let message = refused(place.path(), &["run", "quick.toml", "--out", out]);
        assert!(
            message.contains("quick.toml is not a directory; choose another place"),
            "{message}"
        );
    }
    assert_eq!(fs::read_to_string(file).unwrap(), QUICK);
}

#[test]
fn root_can_work_in_a_directory_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this is not root");
        return;
    }
    let (place, file) = with_file(QUICK);
    for path in [&file, place.path()] {
        chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    if performed(place.path(), &["run", "quick.toml"]).is_some() {
        assert!(place.path().join("lab-results/quick/results.csv").is_file());
    }
}

#[test]
fn redrawn_graphs_leave_out_invalid_trials() {
    let (place, _file) = with_file(QUICK);
    if performed(place.path(), &["run", "quick.toml"]).is_none() {
        return;
    }
    let out = place.path().join("lab-results/quick");
    let path = out.join("results.json");
    let mut results: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for trial in results["trials"].as_array_mut().unwrap() {
        let is_slow = trial["point"]["speed"] == 7;
        trial["late_ms"] = if is_slow { 4.0.into() } else { 0.5.into() };
    }
    fs::write(&path, results.to_string()).unwrap();
    let table = performed(place.path(), &["draw", "quick.toml"]).unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[3], ["7", "invalid", "9.653"]);
    assert_eq!(rows[4], ["8.5", "8.5", "9.653"]);
    assert!(table.contains("\n3 of 6 trials are invalid and left out"), "{table}");
    let csv = fs::read_to_string(out.join("results.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.ends_with(",4,0,1,true")).count(), 3, "{csv}");
    let graph = fs::read_to_string(out.join("said.svg")).unwrap();
    assert!(graph.contains("3 of 6 trials are invalid"));
    fs::write(&path, "{}").unwrap();
    assert!(refused(place.path(), &["draw", "quick.toml"]).contains("results.json: these are no"));
}

#[test]
fn an_experiment_gives_a_table_a_document_and_files() {
    let (place, _file) = with_file(QUICK);
    let Some(table) = performed(place.path(), &["run", "quick.toml"]) else { return };
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0].join(" "), "What a shell says");
    assert_eq!(rows[2], ["speed", "said,", "Mbit/s", "predicted"]);
    assert_eq!(rows[3], ["7", "7", "9.653"]);
    assert_eq!(rows[4], ["8.5", "8.5", "9.653"]);
    assert!(table.ends_with("lab-results/quick\n"), "{table}");
    let again = performed(place.path(), &["run", "quick.toml"]).unwrap();
    let (first, last) = again.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(first, table.trim_end());
    assert!(last.starts_with("Measured on 20"), "{last}");
    assert!(last.ends_with("remove lab-results/quick/trials.jsonl to measure again"), "{last}");

    let out = place.path().join("lab-results/quick");
    for name in ["trials.jsonl", "results.csv", "results.json", "said.svg"] {
        assert!(out.join(name).is_file(), "{name}");
    }
    // All trials are done already; the document is read from the file.
    let document = performed(place.path(), &["run", "quick.toml", "--json"]).unwrap();
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let file = fs::read_to_string(out.join("results.json")).unwrap();
    assert_eq!(read(&document), read(&file));
    assert_eq!(read(&document)["trials"].as_array().unwrap().len(), 6);
    // The journal of another experiment is refused.
    fs::write(place.path().join("quick.toml"), QUICK.replace("8.5", "9")).unwrap();
    let message = refused(place.path(), &["run", "quick.toml"]);
    assert!(message.contains("before it was changed") && message.contains("--out"), "{message}");
}

/// What a run wrote to standard error, without the warning that other tests use the processors.
fn without_busy_warning(stderr: &[u8]) -> String {
    let lines = str::from_utf8(stderr).unwrap().split_inclusive('\n');
    lines.filter(|line| !line.starts_with("warning: other programs use")).collect()
}

#[test]
fn a_failed_trial_fails_and_earlier_trials_are_kept() {
    let command = "sh\", \"-c\", \"test {speed} = 7 && echo speed: 7";
    let (place, _file) = with_file(&QUICK.replace("sh\", \"-c\", \"echo speed: {speed}", command));
    let output = lab(place.path(), &["run", "quick.toml", "--out", "here"]);
    let stderr = without_busy_warning(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    if !place.path().join("here").exists() {
        eprintln!("skipped: {stderr}");
        return;
    }
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.contains("trial 2 of 6 (speed = 8.5, repetition 1)") && stderr.contains("kept"),
        "{stderr}"
    );
    assert_eq!(
        fs::read_to_string(place.path().join("here/trials.jsonl")).unwrap().lines().count(),
        2
    );
}

#[test]
fn no_results_remain_if_the_first_trial_failed() {
    let (place, _file) = with_file(&QUICK.replace("echo speed: {speed}", "exit {speed}"));
    let output = lab(place.path(), &["run", "quick.toml", "--out", "here"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    if place.path().join("here").exists() {
        assert!(stderr.ends_with("repetition 1): sh failed with exit code 7\n"), "{stderr}");
    }
}

/// Ends a run in its second trial by calling `end` on its process, then completes it. Its exit code
/// must be `code`, and its message must contain `expected`.
fn interrupted(end: impl FnOnce(&Child), code: Option<i32>, expected: &str) {
    // The first trial ends at once, the second only when the file exists.
    let command = "test {speed} = 7 || until test -e go; do sleep 0.01; done; echo speed: {speed}";
    let (place, _file) = with_file(&QUICK.replace("echo speed: {speed}", command));
    let arguments = ["lab", "run", "quick.toml", "--out", "here"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(arguments).current_dir(place.path()).stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    let journal = || fs::read_to_string(place.path().join("here/trials.jsonl")).unwrap_or_default();
    // This program, the sandbox's first process, and the program of the second trial.
    while journal().lines().count() < 2 || processes_in(place.path()).len() < 3 {
        if run.try_wait().unwrap().is_some() {
            eprintln!("skipped: there is no sandbox here");
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    end(&run);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), code);
    assert_eq!(without_busy_warning(&output.stderr), expected);
    // The sandbox ends with its processes, and with it the hosts and devices.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !processes_in(place.path()).is_empty() {
        assert!(Instant::now() < deadline, "left over: {:?}", processes_in(place.path()));
        thread::sleep(Duration::from_millis(5));
    }

    fs::write(place.path().join("go"), "").unwrap();
    let before = journal();
    performed(place.path(), &arguments[1..]).unwrap();
    assert!(journal().starts_with(&before));
    assert_eq!(journal().lines().count(), 1 + 6);
}

/// The processes whose working directory this is, except zombies.
fn processes_in(directory: &Path) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let here = processes.filter(|process| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|place| place == directory)
    });
    let numbers = here.filter_map(|process| process.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

#[test]
fn an_interrupted_run_resumes_and_leaves_no_processes() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    if u64::from_str_radix(ignored.trim(), 16).unwrap() & 2 != 0 {
        eprintln!(
            "skipped: SIGINT was ignored when this was started, and stays so, as `nohup` has it"
        );
        return;
    }
    let message = "error: interrupted; the same command continues after trial 1 of 6\n";
    interrupted(|run| kill_process(Pid::from_child(run), Signal::INT).unwrap(), Some(130), message);
}

#[test]
fn a_terminated_run_resumes_and_leaves_no_directory_on_the_disk() {
    // The sandbox is killed, and cannot remove what a driver has made there.
    let left = PathBuf::from(format!("/var/tmp/sunder-lab-test-{}", std::process::id()));
    let end = |run: &Child| {
        fs::create_dir(&left).unwrap();
        kill_process(Pid::from_child(run), Signal::TERM).unwrap();
    };
    let message = "error: interrupted; the same command continues after trial 1 of 6\n";
    interrupted(end, Some(143), message);
    assert!(!left.exists());
}

#[test]
fn a_killed_run_resumes_and_leaves_no_processes() {
    interrupted(|run| kill_process(Pid::from_child(run), Signal::KILL).unwrap(), None, "");
}

#[test]
fn a_killed_sandbox_leaves_no_processes() {
    let kill = |run: &Child| {
        let children = format!("/proc/{0}/task/{0}/children", run.id());
        let inside = fs::read_to_string(children).unwrap();
        kill_process(Pid::from_raw(inside.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    };
    let message = "error: the sandbox was killed (signal 9, perhaps for want of memory); the \
                   finished trials are kept\n";
    interrupted(kill, Some(1), message);
}
