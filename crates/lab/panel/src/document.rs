//! Runs as the page gets them.

use std::io;

use lab::Experiment;
use serde_json::{Map, Value, json};

use crate::journal::{RunJournal, lateness};
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
        "shared": record.link.is_some(),
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
    document["seed"] = json!(seed(&text));
    let journal = RunJournal::read(directory)?;
    document["trials"] = journal.trials.into_iter().map(with_reason).collect();
    document["machine"] = journal.machine;
    Ok(document)
}

/// The seed of an experiment file.
fn seed(text: &str) -> u64 {
    let file: toml::Table = text.parse().unwrap_or_default();
    let seed = file.get("seed").and_then(toml::Value::as_integer);
    seed.and_then(|seed| seed.try_into().ok()).unwrap_or(1)
}

/// The same result, with the reason if it is invalid.
fn with_reason(mut result: Map<String, Value>) -> Value {
    if result.get("invalid") == Some(&Value::Bool(true)) {
        let (missed, late_ms) = lateness(&result);
        let reason = if missed > 0 {
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
