//! `sunder lab serve`: the page's server, as a browser uses it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::lab;

/// A running server.
struct PageServer {
    process: Child,
    /// The address and the token.
    address: String,
    token: String,
}

impl PageServer {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["lab", "serve", "--listen", "127.0.0.1:0", "--directory"]).arg(directory);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let (address, token) = address.split_once("/?t=").unwrap();
        Self { process, address: address.to_owned(), token: token.to_owned() }
    }

    /// Sends a request. Returns the status and the body.
    fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let Self { address, token, .. } = self;
        let (_, port) = address.split_once(':').unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nCookie: sunder-{port}={token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// Waits until a run is over.
    fn finished(&self, path: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let (_, run) = self.call("GET", path, &Value::Null);
            if !["queued", "running"].contains(&run["state"].as_str().unwrap()) {
                return run;
            }
            assert!(Instant::now() < deadline, "{run}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop(mut self, signal: Signal) {
        let process = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(process, signal).unwrap();
        let status = self.process.wait().unwrap();
        assert!(signal == Signal::KILL || status.success(), "{status}");
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// AES-128 over a short path.
fn computation(repetitions: u32) -> Value {
    json!({
        "template": "compute",
        "repetitions": repetitions,
        "values": {
            "circuit": ["aes128"], "scheme": ["half-gates"], "transport": ["auto", "tcp-bbr"],
            "delay_ms": [5], "loss": [0], "rate_mbit": [100], "back_mbit": [100],
        },
    })
}

/// Two lists, with braces and a quote in values that both have.
fn intersection() -> Value {
    let list = |text: &str| json!([{ "name": "../list.csv", "text": text }]);
    json!({
        "template": "sets",
        "values": {
            "garbler_list": list("email\n{sunder}\nb@example\no'hara"),
            "evaluator_list": list("mail\r\no'hara\r\nx@example\r\n{sunder}\r\n"),
            "rows": [8], "scheme": ["half-gates"], "transport": ["tcp-bbr"],
            "delay_ms": [1], "loss": [0], "rate_mbit": [100], "back_mbit": [100],
        },
    })
}

/// A server, and a client that tries to read a file of this host and to fill its memory.
fn attack(client: &str) -> Value {
    let script = |text: &str| json!([{ "name": "a.sh", "text": text }]);
    json!({
        "template": "scripts",
        "values": {
            "server_script": script("exec python3 -m http.server 80 --bind $2\n"),
            "client_script": script(client), "transport": ["tcp", "quic"],
            "delay_ms": [1], "loss": [0], "rate_mbit": [100], "back_mbit": [100],
        },
    })
}

#[test]
fn scripts_are_run_from_the_page_and_contained() {
    let directory = tempfile::tempdir().unwrap();
    let server = PageServer::start(directory.path());
    let secret = directory.path().join("secret");
    fs::write(&secret, "secret\n").unwrap();
    let steal = format!(
        "cat {0} /etc/shadow || echo none; curl -s http://$1/ | head -c 9",
        secret.display()
    );
    let burn = "exec python3 -c 'x = []\nwhile True: x.append(bytes(b\"x\" * (1 << 20)))'";
    for (client, result, output) in [
        (&*steal, "ok", "none <!DOCTYPE"),
        (burn, "client: stopped (memory): more than 512 MiB of memory", ""),
        ("exec yes", "client: stopped (output): more than 1 MiB of output", "y y"),
    ] {
        let (status, run) = server.call("POST", "/api/runs", &attack(client));
        assert_eq!(status, 201, "{run}");
        let path = format!("/api/runs/{}", run["id"].as_str().unwrap());
        let run = server.finished(&path);
        if is_skipped(&run) {
            return;
        }
        assert_eq!((&run["state"], &run["done"]), (&json!("finished"), &json!(2)), "{run}");
        for trial in run["trials"].as_array().unwrap() {
            let texts = &trial["texts"];
            let text = |name: &str| texts[name].as_str().unwrap_or_default();
            // Without control groups, a process that allocates quickly may fail by itself.
            let is_named = text("contained").starts_with("control groups") || client != burn;
            assert!(text("result").starts_with(result) || !is_named, "{texts}");
            assert!(text("client_output").contains(output), "{texts}");
            assert!(!text("client_output").contains("secret\n"), "{texts}");
        }
    }
}

/// Whether a run has failed because this machine cannot emulate networks.
fn is_skipped(run: &Value) -> bool {
    let Some(error) = run["error"].as_str() else { return false };
    let is_skipped = error.contains("networks") || error.contains("tun");
    if is_skipped {
        eprintln!("skipped: {error}");
    }
    is_skipped
}

#[test]
fn a_computation_is_run_from_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let server = PageServer::start(directory.path());
    let (status, run) = server.call("POST", "/api/runs", &computation(1));
    assert_eq!(status, 201, "{run}");
    let path = format!("/api/runs/{}", run["id"].as_str().unwrap());
    let run = server.finished(&path);
    if is_skipped(&run) {
        return;
    }
    assert_eq!((&run["state"], &run["done"]), (&json!("finished"), &json!(2)), "{run}");
    let trials = run["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2);
    for trial in trials {
        let time = trial["values"]["time"].as_f64().unwrap();
        assert!(time > 10.0, "a round trip takes 10 ms: {trial}");
        // Only auto has a reason.
        let is_auto = trial["point"]["transport"] == "auto";
        assert!(trial["texts"]["transport"].is_string(), "{trial}");
        assert_eq!(trial["texts"]["reason"].is_string(), is_auto, "{trial}");
    }
    assert!(run["machine"]["cores"].as_u64().unwrap() > 0);
    let (_, list) = server.call("GET", "/api/runs", &Value::Null);
    assert_eq!(list["total"], 1);

    let (status, run) = server.call("POST", "/api/runs", &intersection());
    assert_eq!(status, 201, "{run}");
    let run = server.finished(&format!("/api/runs/{}", run["id"].as_str().unwrap()));
    assert_eq!(run["state"], "finished", "{run}");
    assert_eq!(run["trials"][0]["values"]["common"], 2.0);
    assert_eq!(run["request"]["values"]["garbler_list"][0]["bytes"], 31);

    // A server that is killed leaves a run that says so, and no process.
    let (_, run) = server.call("POST", "/api/runs", &computation(50));
    let path = format!("/api/runs/{}", run["id"].as_str().unwrap());
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let (_, run) = server.call("GET", &path, &Value::Null);
        // On a busy machine all trials are invalid.
        if run["done"] != 0 || run["invalid"] != 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{run}");
        thread::sleep(Duration::from_millis(50));
    }
    server.stop(Signal::KILL);
    let server = PageServer::start(directory.path());
    let (_, run) = server.call("GET", &path, &Value::Null);
    assert_eq!(run["state"], "interrupted", "{run}");
    let place = directory.path().to_str().unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    while is_running(place) {
        assert!(Instant::now() < deadline, "a process of the run is left");
        thread::sleep(Duration::from_millis(50));
    }
    server.stop(Signal::TERM);
}

/// Whether a run has a process: one that has a directory of this place as an argument.
fn is_running(place: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut commands = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    commands.any(|command| {
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(place) && command.contains("\0run\0")
    })
}

#[test]
fn the_page_is_for_this_host_only() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_str().unwrap();
    let output = lab(directory.path(), &["serve", "--listen", "0.0.0.0:0", "--directory", place]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("0.0.0.0:0 is not an address of this host alone"), "{error}");
}
