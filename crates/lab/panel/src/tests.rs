//! The interface as a browser, another page, and an attacker use it. Runs are scripts here.

mod accounts;
mod connections;
mod history;
mod links;
mod openapi;
mod uploads;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::cookie::PageCookie;
use crate::guard::PageGuard;
use crate::panel_state::PanelState;
use crate::runner::RunQueue;
use crate::store::{QueueAtRestart, RunStore};
use crate::template::ScriptIsolation;
use crate::token::PageToken;

const ADDRESS: &str = "127.0.0.1:8840";

/// A run that measures one trial of two.
const MEASURES: &str = r#"[ "$1" = lab ] || exit 0
cat > "$5/trials.jsonl" <<END
{"experiment":"00","started":"2026-11-28T12:00:00Z","machine":{"cpu":"test","cores":2,"memory_gib":4,"kernel":"6","congestion":"cubic","sunder":"0.1.0"}}
{"repetition":1,"point":{"loss":0},"values":{"time":5},"predictions":{},"late_ms":2.5,"missed":0,"attempts":1,"invalid":true}
END
echo '{"event":"trial","number":1,"done":0,"total":2,"name":"trial 1"}'
echo '{"event":"sample","time_s":0.1,"links":{"a":[100,20]}}'
echo '{"event":"result","number":1,"values":{"time":5},"late_ms":2.5,"missed":0,"invalid":true}'
echo '{"event":"end","done":2,"total":2}'"#;

/// A server with a directory of its own.
struct TestPanel {
    directory: TempDir,
    queue: Arc<RunQueue>,
    service: Router,
    token: String,
}

impl TestPanel {
    /// A server whose runs are this script.
    fn new(script: &str) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), script)
    }

    fn in_directory(directory: TempDir, script: &str) -> Self {
        let program = directory.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let token = PageToken::open(&directory.path().join("token")).unwrap();
        let store =
            RunStore::open(&directory.path().join("runs"), QueueAtRestart::Interrupted).unwrap();
        let queue = RunQueue::new(program, store, None);
        let guard = PageGuard::new(token.clone(), ADDRESS.parse().unwrap(), Arc::clone(&queue));
        let (cookie, isolation) = (PageCookie::of_port(8840), ScriptIsolation::Sandbox);
        let state = PanelState::new(Arc::clone(&queue), "http", cookie, isolation);
        let service = crate::service(state, guard);
        Self { directory, queue, service, token: token.as_str().to_owned() }
    }

    /// A request of the page itself, with its cookie.
    fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", ADDRESS)
            .header("cookie", format!("sunder-8840={}", self.token))
            .header("content-type", "application/json")
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.send(self.request(method, path).body(body.into()).unwrap()).await;
        let (status, bytes) = (response.status(), bytes(response).await);
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, document) = self.call("GET", path, &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{document}");
        document
    }

    /// Requests a run. Returns its path.
    async fn start(&self) -> String {
        let (status, document) = self.call("POST", "/api/runs", &computation()).await;
        assert_eq!(status, StatusCode::CREATED, "{document}");
        format!("/api/runs/{}", document["id"].as_str().unwrap())
    }

    /// Runs what waits until a run is in this state.
    async fn work_until(&self, path: &str, state: &str) -> Value {
        let mut changes = self.queue.changes();
        let reached = async {
            loop {
                let run = self.get(path).await;
                if run["state"] == state {
                    return run;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::select! {
            run = reached => run,
            () = self.queue.work() => unreachable!("it works for ever"),
            () = tokio::time::sleep(Duration::from_secs(90)) => panic!("never {state}"),
        }
    }
}

async fn bytes(response: Response<Body>) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

fn computation() -> Value {
    json!({ "template": "compute", "values": values() })
}

fn values() -> Value {
    json!({
        "circuit": ["aes128"], "scheme": ["half-gates"], "transport": ["auto", "tcp-bbr"],
        "delay_ms": [55], "loss": [0], "rate_mbit": [1000], "back_mbit": [100],
    })
}

#[tokio::test]
async fn a_run_is_queued_measured_and_kept() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    assert_eq!(panel.get(&path).await["state"], "queued");
    assert_eq!(panel.get("/api/queue").await["queued"][0]["state"], "queued");
    let run = panel.work_until(&path, "finished").await;
    assert_eq!((&run["done"], &run["total"], &run["invalid"]), (&json!(2), &json!(2), &json!(1)));
    assert_eq!(run["trials"][0]["values"]["time"], 5);
    let reason = run["trials"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("2.5 ms late"), "{reason}");
    assert_eq!(run["values"][0], json!({ "name": "time", "unit": "ms" }));

    let events =
        panel.send(panel.request("GET", &format!("{path}/events")).body(Body::empty()).unwrap());
    let events = String::from_utf8(bytes(events.await).await).unwrap();
    for part in ["\"event\":\"sample\"", "\"event\":\"end\"", "\"state\":\"finished\""] {
        assert!(events.contains(part), "{part} in {events}");
    }

    // Another server finds it.
    let TestPanel { directory, .. } = panel;
    let panel = TestPanel::in_directory(directory, MEASURES);
    assert_eq!(panel.get("/api/runs").await["runs"][0]["state"], "finished");
    let (status, _) = panel.call("PATCH", &path, &json!({ "note": "the first" })).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(panel.get("/api/runs?search=first").await["total"], 1);
    assert_eq!(panel.get("/api/runs?search=second").await["total"], 0);
    let (status, _) = panel.call("DELETE", &path, &Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(panel.get("/api/runs").await["total"], 0);
}

#[tokio::test]
async fn a_run_that_fails_says_why() {
    let panel = TestPanel::new("echo 'error: no tunnel device; see the guide' >&2; exit 1");
    let path = panel.start().await;
    let run = panel.work_until(&path, "failed").await;
    assert_eq!(run["error"], "no tunnel device; see the guide");
    let (status, _) = panel.call("POST", &format!("{path}/resume"), &Value::Null).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(panel.get(&path).await["state"], "queued");
}

#[tokio::test]
async fn a_run_is_stopped() {
    let script = "trap 'exit 143' TERM; echo '{\"event\":\"trial\",\"done\":0}'; \
                  while :; do sleep 0.05; done";
    let panel = TestPanel::new(script);
    let (path, waiting) = (panel.start().await, panel.start().await);
    let mut changes = panel.queue.changes();
    let stop = async {
        loop {
            let run = panel.get(&path).await;
            if run["state"] == "running" {
                break;
            }
            changes.changed().await.unwrap();
        }
        // The first line shows that it would notice a signal.
        let events = panel.directory.path().join("runs");
        while !fs::read_dir(&events).unwrap().any(|it| has_events(&it.unwrap().path())) {
            changes.changed().await.unwrap();
        }
        for path in [&waiting, &path] {
            let (status, _) = panel.call("DELETE", path, &Value::Null).await;
            assert_eq!(status, StatusCode::CONFLICT);
            let (status, _) = panel.call("POST", &format!("{path}/stop"), &Value::Null).await;
            assert_eq!(status, StatusCode::ACCEPTED);
        }
    };
    let (run, ()) = tokio::join!(panel.work_until(&path, "stopped"), stop);
    assert_eq!(run["error"], Value::Null);
    assert_eq!(panel.get(&waiting).await["state"], "stopped");
}

fn has_events(run: &Path) -> bool {
    fs::metadata(run.join("events.jsonl")).is_ok_and(|file| file.len() > 0)
}

#[tokio::test]
async fn a_run_whose_server_ended_is_interrupted() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    let TestPanel { directory, .. } = panel;
    let panel = TestPanel::in_directory(directory, MEASURES);
    assert_eq!(panel.get(&path).await["state"], "interrupted");
    let (status, _) = panel.call("POST", &format!("{path}/resume"), &Value::Null).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    panel.work_until(&path, "finished").await;
}

#[tokio::test]
async fn only_a_browser_of_this_host_with_the_token_is_answered() {
    let panel = TestPanel::new(MEASURES);
    let status = async |headers: &[(&str, &str)], path: &str| {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        panel.send(request.body(Body::empty()).unwrap()).await.status()
    };
    let cookie = format!("a=b; sunder-8840={}", panel.token);
    let host = ("host", ADDRESS);
    let known = ("cookie", cookie.as_str());
    let list = "/api/runs";
    assert_eq!(status(&[host, known], list).await, StatusCode::OK);
    assert_eq!(status(&[("host", "localhost:8840"), known], list).await, StatusCode::OK);
    assert_eq!(status(&[host], list).await, StatusCode::UNAUTHORIZED);
    let wrong = ("cookie", "sunder-8840=00000000000000000000000000000000");
    assert_eq!(status(&[host, wrong], list).await, StatusCode::UNAUTHORIZED);
    for name in ["evil.example", "127.0.0.1", "127.0.0.1:80", "evil.example:8840", ""] {
        let refused = status(&[("host", name), known], list).await;
        assert_eq!(refused, StatusCode::MISDIRECTED_REQUEST, "{name}");
    }
    assert_eq!(status(&[known], list).await, StatusCode::MISDIRECTED_REQUEST);
    for origin in ["http://evil.example", "null", "http://127.0.0.1:8841", "https://127.0.0.1:8840"]
    {
        let refused = status(&[host, known, ("origin", origin)], list).await;
        assert_eq!(refused, StatusCode::FORBIDDEN, "{origin}");
    }
    let cross = ("sec-fetch-site", "cross-site");
    assert_eq!(status(&[host, known, cross], list).await, StatusCode::FORBIDDEN);
    let own = ("origin", "http://127.0.0.1:8840");
    assert_eq!(status(&[host, known, own], list).await, StatusCode::OK);

    // The address that is printed, and what a person sees without it.
    assert_eq!(status(&[host], "/").await, StatusCode::OK);
    assert_eq!(status(&[host], "/?t=wrong").await, StatusCode::UNAUTHORIZED);
    let request = Request::builder().uri(format!("/?t={}", panel.token)).header("host", ADDRESS);
    let welcome = panel.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(welcome.status(), StatusCode::SEE_OTHER);
    assert_eq!(welcome.headers()["location"], "/");
    let cookie = welcome.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let policy = welcome.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'self'"), "{policy}");
}

#[tokio::test]
async fn nothing_of_a_request_becomes_a_path_or_an_option() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    panel.work_until(&path, "finished").await;
    for name in [
        "..%2F..%2Ftoken",
        "%2Fetc%2Fpasswd",
        "run.json",
        "events.jsonl",
        "a%00.svg",
        ".svg",
        "..",
        "A.svg",
        "trials.jsonl",
    ] {
        let (status, _) = panel.call("GET", &format!("{path}/files/{name}"), &Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{name}");
    }
    for id in ["..", "..%2F..", "20261128-154233", "20261128-154233-7f3a7f3A", "--help", "%00"] {
        let (status, _) = panel.call("GET", &format!("/api/runs/{id}"), &Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{id}");
    }
    for experiment in ["--events", "../compute", "compute-loss.toml", "", "-h", "/etc/passwd"] {
        let request = json!({ "experiment": experiment });
        let (status, _) = panel.call("POST", "/api/runs", &request).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{experiment}");
    }
    let hostile = [
        json!("{sunder}"),
        json!("--help"),
        json!("aes128\"]\n[hosts.evil]"),
        json!("../x"),
        json!(-1),
        json!(1e308),
        json!("<script>"),
        json!([]),
        json!({}),
        Value::Null,
        json!(true),
    ];
    for knob in values().as_object().unwrap().keys() {
        for value in &hostile {
            let mut request = computation();
            request["values"][knob] = json!([value]);
            let (status, document) = panel.call("POST", "/api/runs", &request).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{knob} {value}: {document}");
            assert_eq!(document["field"], *knob);
        }
    }
}

#[tokio::test]
async fn requests_are_bounded_and_wrong_ones_are_refused_in_one_line() {
    let panel = TestPanel::new(MEASURES);
    let wrong = [
        (json!({}), "template"),
        (json!({ "template": "compute", "experiment": "compute-loss" }), "template"),
        (json!({ "template": "none", "values": {} }), "template"),
        (json!({ "template": "compute", "values": {} }), "circuit"),
        (json!({ "template": "compute", "values": values(), "repetitions": 0 }), "repetitions"),
        (json!({ "template": "compute", "values": { "colour": [1] } }), "colour"),
        (json!({ "experiment": "compute-loss", "repetitions": 3 }), "values"),
    ];
    for (request, field) in wrong {
        let (status, document) = panel.call("POST", "/api/runs", &request).await;
        assert_eq!((status, &document["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(field)));
        let error = document["error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    }
    let mut many = computation();
    many["values"]["loss"] = (0..65).map(|it| json!(f64::from(it) / 1000.0)).collect();
    let (status, _) = panel.call("POST", "/api/runs", &many).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    for knob in ["loss", "delay_ms", "rate_mbit"] {
        many["values"][knob] = (1..50).map(|it| json!(f64::from(it) / 100.0)).collect();
    }
    let (status, _) = panel.call("POST", "/api/runs", &many).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "too many trials");
    let long = panel.request("POST", "/api/runs").body(vec![b' '; 17 << 20].into()).unwrap();
    assert_eq!(panel.send(long).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let text = panel.request("POST", "/api/runs").body("{".into()).unwrap();
    assert_eq!(panel.send(text).await.status(), StatusCode::BAD_REQUEST);

    let path = panel.start().await;
    let note = json!({ "note": "x".repeat(5000) });
    assert_eq!(panel.call("PATCH", &path, &note).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let watch = || panel.request("GET", &format!("{path}/events")).body(Body::empty()).unwrap();
    let mut viewers = Vec::new();
    let refused = loop {
        let response = panel.send(watch()).await;
        if response.status() != StatusCode::OK {
            break response.status();
        }
        viewers.push(response);
    };
    assert_eq!((refused, viewers.len()), (StatusCode::SERVICE_UNAVAILABLE, 256));
    viewers.pop();
    assert_eq!(panel.send(watch()).await.status(), StatusCode::OK);
    for _ in 1..100 {
        panel.start().await;
    }
    let (status, _) = panel.call("POST", "/api/runs", &computation()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_request_is_the_experiment_file_of_the_command_line() {
    let panel = TestPanel::new(MEASURES);
    let body = Body::from(computation().to_string());
    let response = panel.send(panel.request("POST", "/api/toml").body(body).unwrap()).await;
    let text = String::from_utf8(bytes(response).await).unwrap();
    let experiment = lab::Experiment::parse("compute.toml".as_ref(), &text).unwrap();
    assert_eq!(experiment.trials(), 2);
    assert!(text.contains("[sweep.transport.auto]") || text.contains("auto = {"), "{text}");
}

#[tokio::test]
async fn networks_have_values_of_knobs() {
    let panel = TestPanel::new(MEASURES);
    let (networks, templates) =
        (panel.get("/api/networks").await, panel.get("/api/templates").await);
    let knobs = templates[0]["knobs"].as_array().unwrap();
    let networks = networks.as_array().unwrap();
    assert_eq!(networks.len(), 3);
    for (name, value) in networks.iter().flat_map(|it| it["values"].as_object().unwrap()) {
        let knob = knobs.iter().find(|knob| knob["name"] == *name).unwrap();
        let [least, most, value] =
            [&knob["min"], &knob["max"], value].map(|it| it.as_f64().unwrap());
        assert!((least..=most).contains(&value), "{name} is {value}");
    }
}

#[test]
fn the_built_page_is_of_its_sources() {
    use sha2::{Digest as _, Sha256};

    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    let mut files = vec!["index.html".to_owned(), "package-lock.json".to_owned()];
    collect(&web, "src", &mut files);
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let bytes = fs::read(web.join(&file)).unwrap();
        digest.update(format!("{file}\0{}\0", bytes.len()));
        digest.update(bytes);
    }
    let digest = base16ct::lower::encode_string(&digest.finalize());
    let built = fs::read_to_string(web.join("dist/source.sha256")).unwrap();
    assert_eq!(built.trim(), digest, "run `npm ci && npm run build` in crates/lab/panel/web");
}

/// Adds the files below a folder, by their paths relative to the root.
fn collect(root: &Path, folder: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(root, &path, files);
        } else {
            files.push(path);
        }
    }
}
