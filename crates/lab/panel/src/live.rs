//! What runs on this host, as `sunder status --json` says it. Read only.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// How long an answer is used for all viewers.
const FRESH: Duration = Duration::from_millis(800);

/// The time within which the command must answer. It asks each process for 2 s at most.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The last answer.
#[derive(Default)]
pub(crate) struct LiveProcesses {
    last: Mutex<Option<(Instant, Vec<Value>)>>,
}

impl LiveProcesses {
    /// The documents of the processes. Asks at most once in a while, however many pages are open.
    ///
    /// # Errors
    /// If the command cannot be run.
    pub(crate) async fn get(&self, program: &Path) -> io::Result<Value> {
        let mut last = self.last.lock().await;
        let is_fresh = last.as_ref().is_some_and(|(asked, _)| asked.elapsed() < FRESH);
        if !is_fresh {
            let now = ask(program).await?;
            let before = last.take();
            *last = Some((Instant::now(), with_rates(now, before.as_ref())));
        }
        let documents =
            last.as_ref().map(|(_, documents)| documents.as_slice()).unwrap_or_default();
        Ok(json!({ "processes": documents.iter().map(process).collect::<Vec<_>>() }))
    }
}

/// The documents of `sunder status --json`: an array, empty where nothing runs.
async fn ask(program: &Path) -> io::Result<Vec<Value>> {
    let mut command = Command::new(program);
    command.args(["status", "--json"]).kill_on_drop(true).stdin(Stdio::null());
    let output = timeout(TIMEOUT, command.output()).await??;
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// Adds to each tunnel's channels the rate since the last answer, in Mbit/s.
fn with_rates(mut now: Vec<Value>, before: Option<&(Instant, Vec<Value>)>) -> Vec<Value> {
    let name = |document: &Value| (document["kind"].clone(), document["device"].clone());
    for document in now.iter_mut().filter(|it| it["kind"] == "tunnel") {
        let earlier = before.and_then(|(_, all)| all.iter().find(|it| name(it) == name(document)));
        let Some(earlier) = earlier.cloned() else { continue };
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let seconds = number(&document["uptime_s"]) - number(&earlier["uptime_s"]);
        if seconds <= 0.0 {
            continue;
        }
        let channels = document["channels"].as_array_mut().map(Vec::as_mut_slice);
        for (i, channel) in channels.unwrap_or_default().iter_mut().enumerate() {
            let sent =
                number(&channel["sent_bytes"]) - number(&earlier["channels"][i]["sent_bytes"]);
            channel["achieved_mbit"] = json!(sent.max(0.0) * 8e-6 / seconds);
        }
    }
    now
}

/// A process as the page shows it.
fn process(document: &Value) -> Value {
    let command = document["kind"].as_str().unwrap_or_default();
    let kind = match command {
        "serve" | "proxy" => "stream",
        "mix" => "chat proxy",
        "relay" => "transfer",
        other => other,
    };
    let name = ["name", "device"].iter().find_map(|key| document[*key].as_str());
    let mut process = json!({
        "kind": kind,
        "name": name.filter(|name| !name.is_empty()).unwrap_or(command),
        "since_s": document["uptime_s"],
        "status": document,
        "problems": problems(document),
    });
    if command == "tunnel" {
        let channels = document["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        process["channels"] = channels.iter().enumerate().map(ribbon).collect();
    }
    process
}

/// A channel of a tunnel.
fn ribbon((index, channel): (usize, &Value)) -> Value {
    let state = channel["state_out"].as_str().unwrap_or("not connected");
    json!({
        "name": (index + 1).to_string(),
        "state": state,
        "achieved_mbit": channel["achieved_mbit"].as_f64().unwrap_or_default(),
        "predicted_mbit": channel["rate_mbit"],
        "loss": channel["loss_out"],
        "quarantined": state == "quarantine",
    })
}

/// What is wrong with a process, since when, and what to do.
fn problems(document: &Value) -> Vec<Value> {
    let problem = |text: &Value, since: &Value, remedy: &Value| json!({ "text": text, "since": since, "remedy": remedy });
    if document["error"].is_string() {
        return vec![problem(&document["error"], &Value::Null, &"see its log".into())];
    }
    let problems = document["problems"].as_array().into_iter().flatten();
    problems.map(|it| problem(&it["text"], &it["since_s"], &it["remedy"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(uptime_s: f64, sent_bytes: [u64; 2]) -> Value {
        let channel = |sent_bytes, state| {
            json!({
                "state_out": state, "sent_bytes": sent_bytes, "rate_mbit": 50, "loss_out": 0.01,
            })
        };
        let [first, second] = sent_bytes;
        json!({
            "kind": "tunnel", "device": "sunder0", "uptime_s": uptime_s,
            "channels": [channel(first, "up"), channel(second, "quarantine")],
            "problems": [{ "text": "channel 2 is down", "since_s": 7, "remedy": "check its link" }],
        })
    }

    #[test]
    fn a_channel_has_its_rate_and_what_is_wrong_with_it() {
        let before = (Instant::now(), vec![tunnel(10.0, [1_000_000, 5])]);
        let now = with_rates(vec![tunnel(12.0, [3_500_000, 5])], Some(&before));
        let process = process(&now[0]);
        assert_eq!((&process["kind"], &process["name"]), (&json!("tunnel"), &json!("sunder0")));
        assert_eq!(process["channels"][0]["achieved_mbit"], 10.0);
        assert_eq!(process["channels"][1]["achieved_mbit"], 0.0);
        assert_eq!(process["channels"][0]["quarantined"], false);
        assert_eq!(process["channels"][1]["quarantined"], true);
        let problem =
            json!({ "text": "channel 2 is down", "since": 7, "remedy": "check its link" });
        assert_eq!(process["problems"], json!([problem]));
    }

    #[test]
    fn a_process_that_does_not_answer_is_named() {
        let silent = json!({ "kind": "quorum", "name": "a", "error": "it was killed" });
        let process = process(&silent);
        assert_eq!(process["problems"][0]["text"], "it was killed");
    }
}
