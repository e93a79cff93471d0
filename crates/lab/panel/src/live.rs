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
        "problems": problems(command, document),
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
        "quarantined": state == "quarantined",
    })
}

/// What is wrong with a process, since when, and what to do.
fn problems(command: &str, document: &Value) -> Vec<Value> {
    if let Some(error) = document["error"].as_str() {
        return vec![problem(error, &Value::Null, "see its log")];
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match command {
        "tunnel" => {
            let down = |(index, channel): (usize, Value)| {
                let state = channel["state_out"].as_str().unwrap_or("not connected").to_owned();
                (state != "up").then(|| {
                    let text = format!("channel {} is {state}", index + 1);
                    let remedy = "check its cable and its address, and see the log";
                    problem(&text, &channel["missing_s"], remedy)
                })
            };
            list(&document["channels"]).into_iter().enumerate().filter_map(down).collect()
        }
        "quorum" => {
            let health = &document["health"];
            let text = health["problem"].as_str().filter(|text| !text.is_empty());
            let health = text.map(|text| problem(text, &health["problem_s"], "see sunder doctor"));
            let refresh = &document["refresh"];
            let text = refresh["problem"].as_str().filter(|text| !text.is_empty());
            let remedy = refresh["remedy"].as_str().unwrap_or("see the log");
            health.into_iter().chain(text.map(|text| problem(text, &Value::Null, remedy))).collect()
        }
        "serve" | "proxy" => {
            let down = |channel: Value| {
                let why = channel["why"].as_str()?.to_owned();
                let text = format!("channel {}: {why}", channel["server"].as_str()?);
                Some(problem(&text, &channel["state_s"], "check that network, and see the log"))
            };
            list(&document["channels"]).into_iter().filter_map(down).collect()
        }
        "mix" => {
            let unwritten = |group: Value| {
                let text = group["unwritten"]["why"].as_str()?.to_owned();
                let text = format!("the state of {} is not written: {text}", group["name"]);
                Some(problem(&text, &group["unwritten"]["for_s"], "make room on the disk"))
            };
            list(&document["groups"]).into_iter().filter_map(unwritten).collect()
        }
        _ => Vec::new(),
    }
}

fn problem(text: &str, since_s: &Value, remedy: &str) -> Value {
    json!({ "text": text, "since": since_s, "remedy": remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(uptime_s: f64, sent_bytes: [u64; 2]) -> Value {
        let channel = |sent_bytes, state, missing_s: Value| {
            json!({
                "state_out": state, "missing_s": missing_s, "sent_bytes": sent_bytes,
                "rate_mbit": 50, "loss_out": 0.01,
            })
        };
        let [first, second] = sent_bytes;
        json!({
            "kind": "tunnel", "device": "sunder0", "uptime_s": uptime_s,
            "channels": [channel(first, "up", Value::Null), channel(second, "down", json!(7))],
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
        let problem = &process["problems"][0];
        assert_eq!((&problem["text"], &problem["since"]), (&json!("channel 2 is down"), &json!(7)));
        assert_eq!(process["problems"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_process_that_does_not_answer_is_named() {
        let silent = json!({ "kind": "quorum", "name": "a", "error": "it was killed" });
        let process = process(&silent);
        assert_eq!(process["problems"][0]["text"], "it was killed");
    }
}
