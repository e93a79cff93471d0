//! What a run is expected to measure, and how long it takes.

use std::io;

use lab::experiment::PointPrediction;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::refusal::RefusedRequest;
use crate::request::RunRequest;
use crate::template::ScriptIsolation;

/// How many points are predicted. A run may have more.
const MAX_POINTS: usize = 64;

/// How many requests are computed at a time. Others wait.
const MAX_AT_A_TIME: usize = 2;

/// What a trial takes besides its measurement: its network is created, and programs start and end.
const TRIAL_OVERHEAD_S: f64 = 0.3;

/// Places for requests. What is measured for predictions is of this process, too.
static PLACES: Semaphore = Semaphore::const_new(MAX_AT_A_TIME);

/// What the requested run is expected to measure at each point, and how long it takes.
///
/// # Errors
/// If nothing can be computed; the inner one if the request is wrong.
pub(crate) async fn predicted(request: RunRequest) -> io::Result<Result<Value, RefusedRequest>> {
    let place = PLACES.acquire().await.map_err(io::Error::other)?;
    let answer = spawn_blocking(move || {
        let answer = document(&request);
        drop(place);
        answer
    });
    answer.await.map_err(io::Error::other)
}

fn document(request: &RunRequest) -> Result<Value, RefusedRequest> {
    // By what scripts are contained changes no prediction.
    let experiment = request.experiment(ScriptIsolation::Sandbox)?.experiment;
    let (trials, predictions) = (experiment.trials(), experiment.predict(MAX_POINTS));
    Ok(json!({
        "trials": trials,
        "seconds": seconds(trials, &predictions),
        "predictions": predictions.iter().filter(|it| !it.values.is_empty()).collect::<Vec<_>>(),
    }))
}

/// About how long the run takes, if the duration of trials is predicted. Points without a
/// prediction count as the mean of the others.
fn seconds(trials: usize, predictions: &[PointPrediction<'_>]) -> Option<f64> {
    let known: Vec<f64> = predictions.iter().filter_map(|it| it.duration_s).collect();
    if known.is_empty() {
        return None;
    }
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    Some(trials as f64 * (mean + TRIAL_OVERHEAD_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn predicted_for(transports: &[&str], loss: &[f64], repetitions: u32) -> Value {
        let request = json!({
            "template": "compute",
            "values": {
                "circuit": ["aes128"], "scheme": ["half-gates"], "transport": transports,
                "delay_ms": [55], "loss": loss, "rate_mbit": [1000], "back_mbit": [1000],
            },
            "repetitions": repetitions,
        });
        let request = serde_json::from_value(request).unwrap();
        predicted(request).await.unwrap().map_err(|refused| refused.why).unwrap()
    }

    #[tokio::test]
    async fn a_run_is_predicted_before_it_is_started() {
        let document = predicted_for(&["auto", "tcp-cubic"], &[0.0], 3).await;
        assert_eq!(document["trials"], 6);
        let [auto, tcp] = [&document["predictions"][0], &document["predictions"][1]];
        assert_eq!(auto["point"]["transport"], "auto");
        assert_eq!(auto["texts"]["transport"], "burst");
        assert!(auto["texts"]["reason"].as_str().unwrap().contains("110.0 ms"), "{auto}");
        let value = &tcp["values"][0];
        assert_eq!((&value["name"], &value["unit"]), (&json!("time"), &json!("ms")));
        assert_eq!(tcp["texts"], Value::Null);
        let time = |it: &Value| it["values"][0]["predicted"].as_f64().unwrap();
        assert!(time(auto) >= 330.0 && time(auto) < time(tcp), "{document}");
        let seconds = document["seconds"].as_f64().unwrap();
        assert!(seconds > 6.0 * 0.33 && seconds < 60.0, "{seconds}");
    }

    #[tokio::test]
    async fn predictions_are_bounded() {
        let losses: Vec<f64> = (0..40).map(|it| f64::from(it) * 1e-3).collect();
        let document = predicted_for(&["tcp-cubic", "burst"], &losses, 1).await;
        assert_eq!(document["trials"], 80);
        assert_eq!(document["predictions"].as_array().unwrap().len(), MAX_POINTS);
    }

    #[tokio::test]
    async fn an_experiment_without_predicted_times_has_no_duration() {
        let request = serde_json::from_value(json!({ "experiment": "links" })).unwrap();
        let document = predicted(request).await.unwrap().map_err(|refused| refused.why).unwrap();
        assert_eq!(document["seconds"], Value::Null);
        assert!(document["predictions"][0]["values"][0]["predicted"].is_number(), "{document}");
    }
}
