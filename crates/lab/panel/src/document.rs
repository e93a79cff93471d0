//! Runs as the page gets them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind};

use lab::Experiment;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::run::{RunDirectory, RunRecord};

/// A run in a list.
pub(crate) fn summary(record: &RunRecord, seconds_left: Option<f64>) -> Value {
    json!({
        "id": record.id,
        "title": record.title,
        "request": record.request,
        "template": record.request.template,
        "experiment": record.request.experiment,
        "created": record.created,
        "state": record.state,
        "done": record.done,
        "total": record.total,
        "invalid": record.invalid,
        "note": record.note,
        "error": record.error,
        "seconds_left": seconds_left,
    })
}

/// A run with its results so far.
///
/// # Errors
/// If its files cannot be read.
pub(crate) fn whole(
    record: &RunRecord,
    directory: &RunDirectory,
    seconds_left: Option<f64>,
) -> io::Result<Value> {
    let mut document = summary(record, seconds_left);
    document["file"] = json!(record.file);
    let text = std::fs::read_to_string(directory.path().join(&record.file))?;
    // An experiment of an older version may not be valid any more. Its results are.
    let experiment = Experiment::parse(record.file.as_ref(), &text).ok();
    let description = experiment.as_ref().map(Experiment::describe);
    let names = description.iter().flat_map(|it| it.keys.iter().map(|key| key.name));
    document["keys"] = names.collect();
    document["values"] = json!(description.as_ref().map(|it| it.values).unwrap_or_default());
    document["plots"] = json!(description.as_ref().map(|it| it.plots).unwrap_or_default());
    document["trials"] = results(directory)?.into_iter().map(with_reason).collect();
    document["machine"] = machine(directory)?;
    Ok(document)
}

/// What matters here of an event.
#[derive(Deserialize)]
struct ResultEvent {
    event: String,
    number: Option<usize>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The result of each trial that has one: its last attempt.
fn results(directory: &RunDirectory) -> io::Result<Vec<Map<String, Value>>> {
    let file = match File::open(directory.events()) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut results = std::collections::BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        // Most lines are of what links carry.
        if !line.starts_with(br#"{"event":"result""#) {
            continue;
        }
        let Ok(ResultEvent { event, number: Some(number), mut rest }) =
            serde_json::from_slice(&line)
        else {
            continue;
        };
        if event == "result" {
            rest.insert("number".into(), number.into());
            results.insert(number, rest);
        }
    }
    Ok(results.into_values().collect())
}

/// The same result, with the reason if it is invalid.
fn with_reason(mut result: Map<String, Value>) -> Value {
    if result.get("invalid") == Some(&Value::Bool(true)) {
        let number = |name: &str| result.get(name).and_then(Value::as_f64).unwrap_or_default();
        let (late_ms, missed) = (number("late_ms"), number("missed"));
        let reason = if missed > 0.0 {
            format!(
                "the machine was busy: it lost {missed} packets that the path would have carried"
            )
        } else {
            format!("the machine was busy: packets arrived up to {late_ms:.1} ms late")
        };
        result.insert("reason".into(), reason.into());
    }
    Value::Object(result)
}

/// The machine on which the run began; `null` before.
fn machine(directory: &RunDirectory) -> io::Result<Value> {
    let mut line = Vec::new();
    match File::open(directory.path().join("trials.jsonl")) {
        Ok(file) => BufReader::new(file).read_until(b'\n', &mut line)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => return Err(error),
    };
    let header: Value = serde_json::from_slice(&line).unwrap_or_default();
    Ok(header.get("machine").cloned().unwrap_or_default())
}
