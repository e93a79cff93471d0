//! Slow clients, many clients, and the end of the server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::body::Bytes;
use futures_util::stream::unfold;
use service::http::HttpServer;
use service::limits::raise_open_files;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::{PanelError, PanelOptions};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A run that goes on until it is stopped.
const ENDLESS: &str = r#"[ "$1" = lab ] || exit 0
trap 'exit 143' TERM
echo '{"event":"trial","number":1,"done":0,"total":2,"name":"trial 1"}'
while :; do sleep 0.05; done"#;

/// A server on a port of its own.
struct ServedPanel {
    address: SocketAddr,
    token: String,
    end: oneshot::Sender<()>,
    served: JoinHandle<Result<(), PanelError>>,
    directory: TempDir,
}

fn options(directory: &TempDir, script: &str) -> PanelOptions {
    let program = directory.path().join("program");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let (directory, isolation) = (directory.path().join("lab"), ScriptIsolation::Sandbox);
    PanelOptions { listen, directory, program, accounts: None, isolation }
}

impl ServedPanel {
    async fn new(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = options(&directory, script);
        let (end, ended) = oneshot::channel::<()>();
        let (opened, address) = oneshot::channel();
        let served = tokio::spawn(async move {
            let ready = |address: &str| opened.send(address.to_owned()).unwrap();
            crate::serve(options, ready, async move {
                let _ = ended.await;
            })
            .await
        });
        let address = address.await.unwrap();
        let (address, token) = address.strip_prefix("http://").unwrap().split_once("/?t=").unwrap();
        let (address, token) = (address.parse().unwrap(), token.to_owned());
        Self { address, token, end, served, directory }
    }

    /// A connection on which this request was sent.
    async fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let Self { address, token, .. } = self;
        let request = request(&address.to_string(), token, method, path, body);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The body of an answer.
    async fn call(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = self.send(method, path, body).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

fn request(host: &str, token: &str, method: &str, path: &str, body: &str) -> String {
    let (port, length) = (host.rsplit(':').next().unwrap(), body.len());
    // Streams of events are closed by the client.
    let close = if path.ends_with("/events") { "keep-alive" } else { "close" };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncookie: sunder-{port}={token}\r\n\
         connection: {close}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n\
         {body}"
    )
}

/// The status of the answer on a connection.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    std::str::from_utf8(&start[9..]).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_event_streams_256_are_served_and_the_server_goes_on() {
    raise_open_files();
    let panel = Arc::new(ServedPanel::new(ENDLESS).await);
    let run = panel.call("POST", "/api/runs", &computation().to_string()).await;
    let events = format!("/api/runs/{}/events", run["id"].as_str().unwrap());
    let mut asking = JoinSet::new();
    for _ in 0..1000 {
        let (panel, events) = (Arc::clone(&panel), events.clone());
        asking.spawn(async move {
            let mut stream = panel.send("GET", &events, "").await;
            (status(&mut stream).await, stream)
        });
    }
    let answers = timeout(LONG, asking.join_all()).await.unwrap();
    let served = answers.iter().filter(|(status, _)| *status == 200).count();
    let refused = answers.iter().filter(|(status, _)| *status == 503).count();
    assert_eq!((served, refused), (256, 744));
    let queue = timeout(LONG, panel.call("GET", "/api/queue", "")).await.unwrap();
    assert_eq!(queue["running"]["id"], run["id"]);
    // Those who have gone make room.
    drop(answers);
    let again = async {
        while status(&mut panel.send("GET", &events, "").await).await != 200 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, again).await.unwrap();
}

#[tokio::test]
async fn fifty_viewers_of_a_live_run_get_all_its_events() {
    const EVENTS: usize = 500;
    let script = format!(
        r#"[ "$1" = lab ] || exit 0
        while ! [ -e "$5/begin" ]; do sleep 0.01; done
        i=0
        while [ $i -lt {EVENTS} ]; do
            echo "{{\"event\":\"sample\",\"time_s\":$i,\"links\":{{\"a\":[$i,0]}}}}"
            i=$((i + 1))
        done"#
    );
    let panel = TestPanel::new(&script);
    let path = panel.start().await;
    let mut viewers = JoinSet::new();
    for _ in 0..50 {
        let request = panel.request("GET", &format!("{path}/events")).body(Body::empty()).unwrap();
        let answer = panel.send(request).await;
        viewers.spawn(async move { String::from_utf8(bytes(answer).await).unwrap() });
    }
    let run = path.rsplit('/').next().unwrap();
    fs::write(panel.directory.path().join("runs").join(run).join("begin"), "").unwrap();
    panel.work_until(&path, "finished").await;
    for seen in timeout(LONG, viewers.join_all()).await.unwrap() {
        let samples = seen.lines().filter_map(|line| line.strip_prefix("data: "));
        let samples = samples.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let numbers: Vec<Value> = samples
            .filter(|event| event["event"] == "sample")
            .map(|event| event["time_s"].clone())
            .collect();
        assert_eq!(numbers, (0..EVENTS).map(Value::from).collect::<Vec<_>>());
        assert!(seen.contains("\"state\":\"finished\""));
    }
}

#[tokio::test]
async fn events_go_on_where_a_browser_has_lost_them() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    panel.work_until(&path, "finished").await;
    let after = async |last: &str| {
        let request = panel.request("GET", &format!("{path}/events")).header("last-event-id", last);
        let answer = panel.send(request.body(Body::empty()).unwrap()).await;
        String::from_utf8(bytes(answer).await).unwrap()
    };
    let all = after("0").await;
    let ids: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids.len(), 4);
    let rest = after(ids[1]).await;
    assert_eq!(
        rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect::<Vec<_>>(),
        ids[2..]
    );
    // What is no place of an event gives no wrong answer.
    for last in ["99999999", "-1", "x", "18446744073709551615"] {
        assert!(after(last).await.contains("\"state\":\"finished\""), "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_that_trickles_in_ends_the_connection() {
    let panel = TestPanel::new(MEASURES);
    let (mut client, stream) = duplex(1 << 10);
    let http = HttpServer::new(crate::LIMITS);
    let served = tokio::spawn(crate::answer(http, panel.service.clone(), None, false, stream));
    let begin = Instant::now();
    for byte in request(ADDRESS, &panel.token, "GET", "/api/runs", "").bytes() {
        if client.write_all(&[byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    served.await.unwrap();
    assert!(begin.elapsed() < crate::LIMITS.header_timeout + Duration::from_secs(2));
}

/// A body of which a byte arrives each second.
fn trickling() -> Body {
    Body::from_stream(unfold((), |()| async {
        sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, io::Error>(Bytes::from_static(b" ")), ()))
    }))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_in_is_refused() {
    let panel = TestPanel::new(MEASURES);
    let begin = Instant::now();
    let answer = panel.send(panel.request("POST", "/api/runs").body(trickling()).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    assert!(begin.elapsed() <= Duration::from_secs(31));
}

#[tokio::test(start_paused = true)]
async fn few_long_bodies_are_read_at_a_time() {
    let panel = TestPanel::new(MEASURES);
    let long = |length: usize| {
        let request = panel.request("POST", "/api/runs").header("content-length", length);
        panel.send(request.body(trickling()).unwrap())
    };
    let mut reading: Vec<_> = (0..4).map(|_| Box::pin(long(1 << 20))).collect();
    for request in &mut reading {
        assert!(timeout(Duration::from_millis(1), request).await.is_err());
    }
    assert_eq!(long(1 << 20).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    // Short ones are read, and those that are too long are refused.
    panel.start().await;
    assert_eq!(long((16 << 20) + 1).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    drop(reading);
    assert_eq!(long(1 << 20).await.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_server_does_not_wait_for_viewers() {
    let panel = ServedPanel::new(ENDLESS).await;
    let run = panel.call("POST", "/api/runs", &computation().to_string()).await;
    let events = format!("/api/runs/{}/events", run["id"].as_str().unwrap());
    let mut stream = panel.send("GET", &events, "").await;
    assert_eq!(status(&mut stream).await, 200);
    panel.end.send(()).unwrap();
    timeout(LONG, panel.served).await.unwrap().unwrap().unwrap();
    let mut rest = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_and_an_address_have_one_server() {
    let panel = ServedPanel::new(MEASURES).await;
    let refused = async |directory: PathBuf, listen: SocketAddr| {
        let (program, isolation) = (PathBuf::new(), ScriptIsolation::Sandbox);
        let options = PanelOptions { listen, directory, program, accounts: None, isolation };
        let served = crate::serve(options, |_| {}, std::future::pending());
        timeout(LONG, served).await.unwrap().unwrap_err().to_string()
    };
    let (own, other) = (panel.directory.path().join("lab"), tempfile::tempdir().unwrap());
    let error = refused(own, "127.0.0.1:0".parse().unwrap()).await;
    let page = format!("http://{}/?t={}", panel.address, panel.token);
    assert!(error.contains(&page) && error.contains("--directory"), "{error}");
    let error = refused(other.path().to_owned(), panel.address).await;
    assert!(error.contains("another program") && error.contains("--listen"), "{error}");
    let error = refused(other.path().to_owned(), "0.0.0.0:0".parse().unwrap()).await;
    assert!(error.contains("127.0.0.1"), "{error}");
}
