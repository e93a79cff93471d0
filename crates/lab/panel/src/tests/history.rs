//! What is known of runs after a disk was full, a process failed, or a server has started again.

use std::os::unix::fs::symlink;
use std::time::Instant;

use super::*;
use crate::journal::RunJournal;
use crate::run::{RunDirectory, RunName};

/// The directory of a run.
fn directory_of(panel: &TestPanel, path: &str) -> std::path::PathBuf {
    panel.directory.path().join("runs").join(path.rsplit('/').next().unwrap())
}

#[tokio::test]
async fn results_are_those_of_the_journal_if_a_full_disk_took_the_events() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    symlink("/dev/full", directory_of(&panel, &path).join("events.jsonl")).unwrap();
    let run = panel.work_until(&path, "finished").await;
    assert_eq!((&run["done"], &run["invalid"]), (&json!(2), &json!(1)));
    assert_eq!(run["trials"][0]["values"]["time"], 5);
    assert_eq!((&run["trials"][0]["number"], &run["machine"]["cpu"]), (&json!(1), &json!("test")));
}

#[tokio::test]
async fn a_disk_that_is_full_fails_the_run_and_its_state_is_written_later() {
    let error = "cannot write trials.jsonl: No space left on device (os error 28)";
    let panel = TestPanel::new(&format!("echo 'error: {error}' >&2; exit 1"));
    let path = panel.start().await;
    // The record cannot be replaced any more.
    let obstacle = directory_of(&panel, &path).join("run.json.new");
    fs::create_dir(&obstacle).unwrap();
    let run = panel.work_until(&path, "failed").await;
    assert_eq!(run["error"], error);
    assert_eq!(panel.get("/api/runs").await["runs"][0]["error"], error);
    fs::remove_dir(&obstacle).unwrap();
    panel.queue.store().write_again();
    let TestPanel { directory, .. } = panel;
    let panel = TestPanel::in_directory(directory, MEASURES);
    let run = panel.get(&path).await;
    assert_eq!((&run["state"], &run["error"]), (&json!("failed"), &json!(error)));
}

#[tokio::test]
async fn a_resumed_run_counts_the_invalid_trials_of_all_its_processes() {
    let script = r#"
        trial() {
            echo "{\"repetition\":1,\"point\":{\"loss\":$1},\"values\":{},\"predictions\":{},\"late_ms\":0,\"missed\":0,\"attempts\":1,\"invalid\":$2}" >> "$3/trials.jsonl"
            echo "{\"event\":\"result\",\"number\":$1,\"invalid\":$2}"
        }
        if [ -e "$5/trials.jsonl" ]; then
            trial 2 false "$5"
            echo '{"event":"end","done":2,"total":2}'
        else
            echo '{"machine":{}}' > "$5/trials.jsonl"
            trial 1 true "$5"
            exit 1
        fi"#;
    let panel = TestPanel::new(script);
    let path = panel.start().await;
    assert_eq!(panel.work_until(&path, "failed").await["invalid"], 1);
    panel.call("POST", &format!("{path}/resume"), &Value::Null).await;
    let run = panel.work_until(&path, "finished").await;
    assert_eq!((&run["done"], &run["invalid"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn an_interrupted_run_counts_what_is_in_its_journal() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    let trial = r#"{"repetition":1,"point":{"loss":0},"values":{},"late_ms":3,"invalid":true}"#;
    let journal = format!("{{\"machine\":{{}}}}\n{trial}\n{{\"repetition\":1,\"poi");
    fs::write(directory_of(&panel, &path).join("trials.jsonl"), journal).unwrap();
    let TestPanel { directory, .. } = panel;
    let panel = TestPanel::in_directory(directory, MEASURES);
    let run = panel.get(&path).await;
    assert_eq!(run["state"], "interrupted");
    assert_eq!((&run["done"], &run["invalid"]), (&json!(1), &json!(1)));
    assert_eq!(run["trials"].as_array().unwrap().len(), 1);
}

#[test]
fn of_several_attempts_the_one_with_the_least_lateness_is_the_result() {
    let place = tempfile::tempdir().unwrap();
    let name = RunName::new().unwrap();
    let directory = RunDirectory::new(place.path(), &name);
    fs::create_dir(directory.path()).unwrap();
    let line = |point: u32, attempts: u32, late_ms: f64, missed: u32| {
        let (point, is_invalid) = (json!({ "loss": point }), late_ms > 1.0 || missed > 0);
        json!({
            "repetition": 1, "point": point, "values": { "time": late_ms }, "attempts": attempts,
            "late_ms": late_ms, "missed": missed, "invalid": is_invalid,
        })
    };
    // The first and the last are different trials with the same values of the swept keys.
    let lines = [
        json!({ "machine": { "cores": 2 } }),
        line(0, 1, 9.0, 0),
        line(1, 1, 0.5, 3),
        line(0, 1, 0.1, 0),
        line(0, 2, 0.2, 0),
        line(1, 2, 7.0, 0),
        line(1, 3, 8.0, 0),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(directory.journal(), lines.join("\n") + "\n{\"repetition\":1,").unwrap();
    let journal = RunJournal::read(&directory).unwrap();
    let results = journal
        .trials
        .iter()
        .map(|trial| ["number", "attempts", "late_ms"].map(|name| trial[name].as_f64().unwrap()));
    assert_eq!(results.collect::<Vec<_>>(), [[1.0, 2.0, 0.2], [2.0, 3.0, 7.0], [3.0, 1.0, 0.1]]);
    assert_eq!(journal.invalid(), [2].into());
    assert_eq!(journal.machine["cores"], 2);
}

/// Without its directory, a list can only come from memory.
#[tokio::test]
async fn ten_thousand_runs_are_listed_without_opening_a_file() {
    const RUNS: usize = 10_000;
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    panel.work_until(&path, "finished").await;
    let record = fs::read_to_string(directory_of(&panel, &path).join("run.json")).unwrap();
    let runs = panel.directory.path().join("runs");
    let id = path.rsplit('/').next().unwrap().to_owned();
    for number in 1..RUNS {
        let name = format!("20200101-000000-{number:08x}");
        let directory = runs.join(&name);
        fs::create_dir(&directory).unwrap();
        let record = record
            .replace(&id, &name)
            .replace("\"note\": \"\"", &format!("\"note\": \"run {number}.\""));
        fs::write(directory.join("run.json"), record).unwrap();
    }
    let TestPanel { directory, .. } = panel;
    let begin = Instant::now();
    let panel = TestPanel::in_directory(directory, MEASURES);
    println!("{RUNS} runs are read in {:?}", begin.elapsed());
    fs::remove_dir_all(&runs).unwrap();
    let first = panel.get("/api/runs?limit=500").await;
    assert_eq!((&first["total"], &first["runs"][0]["id"]), (&json!(RUNS), &json!(id)));
    let (mut seen, mut page) = (0, first);
    while let Some(last) = page["runs"].as_array().unwrap().last() {
        seen += page["runs"].as_array().unwrap().len();
        let before = last["id"].as_str().unwrap();
        page = panel.get(&format!("/api/runs?limit=500&before={before}")).await;
    }
    assert_eq!(seen, RUNS);
    let begin = Instant::now();
    let found = panel.get("/api/runs?search=Run%209999.").await;
    assert_eq!((&found["total"], &found["runs"][0]["note"]), (&json!(1), &json!("run 9999.")));
    // Values of the request are found as well.
    assert_eq!(panel.get("/api/runs?search=HALF-gates").await["total"], RUNS);
    println!("two searches take {:?}", begin.elapsed());
}
