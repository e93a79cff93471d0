//! Agents, controllers, disks and paths that fail in the middle of a trial.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use super::emulation::until;
use super::testbed::{SiteTestbed, results, succeeded};

/// Each attempt of a trial writes a line to `attempts`, and lasts until there is a file `go`, so
/// that a test can act in the middle. The second trial does not wait.
fn waiting(testbed: &SiteTestbed) -> String {
    format!(
        r#"
about = "Attempts"
[sweep]
which = ["first", "second"]
[hosts.fra]
[hosts.syd]
[links.path]
hosts = ["fra", "syd"]
[[programs]]
host = "fra"
run = ["sh", "-c", "echo up; sleep 1000; echo never"]
says = "up"
[measure]
host = "syd"
run = ["sh", "-c", "echo {{which}} >> {place}/attempts; while test ! -e {place}/go; do sleep 0.05; done; echo value: $(wc -l < {place}/attempts)"]
[measure.values]
value = {{ after = "value:" }}
"#,
        place = testbed.path("").display()
    )
}

fn attempts(testbed: &SiteTestbed) -> usize {
    testbed.text("attempts").lines().count()
}

fn is_running(run: &mut Child) -> bool {
    run.try_wait().unwrap().is_none()
}

/// Checks that both trials count once, and the first one with its second attempt.
fn check_repeated(testbed: &SiteTestbed, run: Child, site: &str) {
    fs::write(testbed.path("go"), "").unwrap();
    let output = succeeded(run);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(&format!("site {site} is lost: ")), "{stderr}");
    assert!(stderr.contains(&format!("site {site} is back after ")), "{stderr}");
    let results = results(&output);
    let values = results["trials"].as_array().unwrap().iter().map(|it| &it["values"]["value"]);
    assert_eq!(values.collect::<Vec<_>>(), [2.0, 3.0], "{stderr}");
    // No attempt that was cut short is in the journal.
    assert_eq!(testbed.trials("waiting").len(), 2);
    assert_eq!(testbed.text("attempts"), "first\nfirst\nsecond\n");
}

pub(crate) fn killed_agent() {
    let mut testbed = SiteTestbed::new();
    let mut run = testbed.run("waiting", &waiting(&testbed), &[]);
    until("the trial measures", || attempts(&testbed) == 1);
    // SIGKILL; its programs end with it.
    testbed.syd = None;
    until("its programs have ended", || !has_process(&testbed));
    assert!(is_running(&mut run));
    testbed.syd = Some(testbed.agent("syd"));
    until("the trial measures again", || attempts(&testbed) == 2);
    check_repeated(&testbed, run, "syd");
}

pub(crate) fn short_cut() {
    cut(&SiteTestbed::new(), Duration::ZERO);
}

pub(crate) fn long_cut() {
    cut(&SiteTestbed::with_silence(30), Duration::from_secs(60));
}

/// Cuts the path of a site in the middle of a trial, for this time and until its agent is free.
fn cut(testbed: &SiteTestbed, time: Duration) {
    let mut run = testbed.run("waiting", &waiting(testbed), &[]);
    until("the trial measures", || attempts(testbed) == 1);
    testbed.change("f", |conditions| conditions.loss = 1.0);
    let began = Instant::now();
    while began.elapsed() < time {
        assert!(is_running(&mut run));
        thread::sleep(Duration::from_millis(20));
    }
    until("the agent is free", || testbed.text("fra.log").contains("the controller is lost"));
    testbed.change("f", |_| {});
    until("the trial measures again", || attempts(testbed) == 2);
    check_repeated(testbed, run, "fra");
}

pub(crate) fn lost_site() {
    let mut testbed = SiteTestbed::new();
    let run = testbed.run("waiting", &waiting(&testbed), &["--reconnect", "1"]);
    until("the trial measures", || attempts(&testbed) == 1);
    testbed.syd = None;
    let output = run.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.contains("trial 1 of 2") && last.contains("site syd: "), "{stderr}");
    assert!(last.contains("nobody listens there"), "{stderr}");
    assert_eq!(testbed.trials("waiting").len(), 0);
    // The same command continues when the site is there again.
    testbed.syd = Some(testbed.agent("syd"));
    fs::write(testbed.path("go"), "").unwrap();
    let results = results(&succeeded(testbed.run("waiting", &waiting(&testbed), &[])));
    assert_eq!(results["trials"][0]["values"]["value"], 2.0);
}

pub(crate) fn killed_controller() {
    let testbed = SiteTestbed::new();
    let mut run = testbed.run("waiting", &waiting(&testbed), &[]);
    until("the trial measures", || attempts(&testbed) == 1);
    until("its program runs", || has_process(&testbed));
    run.kill().unwrap();
    run.wait().unwrap();
    until("its programs have ended", || !has_process(&testbed));
    until("the agent is free", || testbed.text("syd.log").contains("does not control"));
    fs::write(testbed.path("go"), "").unwrap();
    succeeded(testbed.run("waiting", &waiting(&testbed), &[]));
}

/// Whether the program of a trial runs on any host.
fn has_process(testbed: &SiteTestbed) -> bool {
    let mark = format!("{}/attempts", testbed.path("").display());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut commands = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    commands.any(|command| {
        let command = String::from_utf8_lossy(&command);
        command.contains("sh\0-c\0") && command.contains(&mark)
    })
}

const FULL: &str = r#"
about = "A program that fills the memory for files"
[hosts.fra]
[hosts.syd]
[links.path]
hosts = ["fra", "syd"]
[zeros]
"large" = 1000
[measure]
host = "syd"
run = ["sh", "-c", "echo value: 1; if test -e PLACE/fill; then head -c 200G /dev/zero > {files}/all 2> /dev/null; fi; true"]
[measure.values]
value = { after = "value:" }
"#;

pub(crate) fn full_disk() {
    let testbed = SiteTestbed::new();
    // The agent's own disk for trials would take a quarter of the memory to fill.
    let pid = testbed.syd.as_ref().unwrap().0.id();
    let inside = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let inside = inside.split_whitespace().next().unwrap();
    let shrunk = std::process::Command::new("nsenter")
        .args(["--mount", "--target", inside])
        .args(["mount", "-o", "remount,size=4m", "/dev/shm"])
        .output()
        .unwrap();
    assert!(shrunk.status.success(), "{}", String::from_utf8_lossy(&shrunk.stderr));
    let full = FULL.replace("PLACE", &testbed.path("").display().to_string());
    fs::write(testbed.path("fill"), "").unwrap();
    let output = testbed.run("full", &full, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("site syd: its disk for trials (/dev/shm) was full"), "{stderr}");
    assert_eq!(testbed.trials("full").len(), 0);
    // Files of a trial that do not fit.
    let text = "x".repeat(5_000_000);
    let large = full.replace("[zeros]", &format!("[files]\n\"text\" = \"{text}\"\n[zeros]"));
    let output = testbed.run("large", &large, &[]).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = "site syd: cannot write text: /dev/shm is full: ";
    assert!(stderr.contains(why), "{stderr}");
    // The same command continues when there is room.
    fs::remove_file(testbed.path("fill")).unwrap();
    let results = results(&succeeded(testbed.run("full", &full, &[])));
    assert_eq!(results["trials"][0]["values"]["value"], 1.0);
    assert!(Path::new("/dev/shm").exists());
}

pub(crate) fn changed_path() {
    let testbed = SiteTestbed::new();
    let run = testbed.run("waiting", &waiting(&testbed), &[]);
    until("the trial measures", || attempts(&testbed) == 1);
    testbed.change("s", |conditions| conditions.delay_ms = 15.0);
    fs::write(testbed.path("go"), "").unwrap();
    let results = results(&succeeded(run));
    let trials = results["trials"].as_array().unwrap();
    assert_eq!(trials[0]["path_changed"], true, "{results}");
    let before = trials[0]["paths"][0]["before"]["round_trip_ms"].as_f64().unwrap();
    let after = trials[0]["paths"][0]["after"]["round_trip_ms"].as_f64().unwrap();
    assert!(before < 30.0 && after > 39.0, "{results}");
}
