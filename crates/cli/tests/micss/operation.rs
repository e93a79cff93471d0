//! What an operator asks of processes that run: how they are, and to read their configuration again.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::processes::{Service, curl, fetched, sunder, web_server};

/// Fetches a page through a proxy.
fn fetch(proxy: &Service, url: &str) -> Vec<u8> {
    let socks = proxy.address(0).to_string();
    fetched(&curl(["--socks5-hostname", &socks, url]).output().unwrap()).to_vec()
}

/// What the only entry of a JSON status is.
fn status(service: &Service) -> Value {
    let mut entries: Vec<Value> = serde_json::from_str(&service.status(&["--json"])).unwrap();
    assert_eq!(entries.len(), 1);
    entries.remove(0)
}

#[test]
fn status_shows_what_was_carried() {
    let web = web_server(vec![b'x'; 100_000], 100_000);
    let server = Service::server(2, &web.to_string());
    let mut proxy = Service::proxy(&server);
    assert_eq!(fetch(&proxy, &format!("http://{web}/")).len(), 100_000);
    for (service, kind, direction) in
        [(&proxy, "proxy", "received_bytes"), (&server, "serve", "sent_bytes")]
    {
        service.wait_for("stream finished");
        let entry = status(service);
        assert_eq!(entry["kind"], kind);
        assert_eq!(entry["streams"]["finished"], 1, "{entry}");
        let channels = entry["channels"].as_array().unwrap();
        assert_eq!(channels.len(), 2);
        for channel in channels {
            assert!(channel[direction].as_u64().unwrap() > 100_000, "{channel}");
        }
        let page = service.status(&[]);
        assert!(page.starts_with(kind) && page.contains("1 finished"), "{page}");
        let metrics = service.status(&["--metrics"]);
        let sample = metrics.lines().find(|line| {
            line.starts_with("sunder_streams_total{") && line.contains("end=\"finished\"")
        });
        assert!(sample.is_some_and(|line| line.ends_with("} 1")), "{metrics}");
    }
    assert_eq!(proxy.sockets(), 1);
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.wait(), Some(0));
    assert_eq!(proxy.sockets(), 0, "nothing is left behind");
}

#[test]
fn a_scrape_is_answered() {
    let web = web_server(Vec::new(), 0);
    let server = Service::server(2, &web.to_string());
    let mut exporter = sunder(["status", "--metrics", "--listen", "127.0.0.1:0"]);
    exporter.env("RUNTIME_DIRECTORY", server.runtime());
    let mut exporter = exporter.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = [0; 200];
    let len = exporter.stdout.as_mut().unwrap().read(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..len]).into_owned();
    let url = line.split_whitespace().last().unwrap();
    let answer = fetched(&curl(["--include", url]).output().unwrap()).to_vec();
    exporter.kill().unwrap();
    exporter.wait().unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.to_lowercase().contains("content-type: text/plain"), "{answer}");
    assert!(answer.contains("\nsunder_uptime_seconds{service=\"serve\""), "{answer}");
}

#[test]
fn nothing_runs_here() {
    let directory = tempfile::tempdir().unwrap();
    let output = sunder(["status"]).env("RUNTIME_DIRECTORY", directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("nothing runs here: nobody answers"), "{said}");
}

#[test]
fn a_hangup_has_the_configuration_read_again() {
    let web = web_server(b"hello".to_vec(), 5);
    let server = Service::server(2, &web.to_string());
    let mut proxy = Service::proxy(&server);
    // A stream that goes on.
    let url = format!("http://{web}/");
    let mut held = TcpStream::connect(proxy.address(0)).unwrap();
    held.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    held.read_exact(&mut method).unwrap();
    let mut request = vec![5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(web.port().to_be_bytes());
    held.write_all(&request).unwrap();
    held.read_exact(&mut [0; 10]).unwrap();

    let channels = server.channels();
    let first = proxy.address(0);
    proxy.rewrite(&format!("socks = \"{first}\"\n{channels}"));
    proxy.signal(Signal::HUP);
    // It was told to listen at any port, and that is not the same as at this one.
    proxy.wait_for("the configuration before stays in force: cannot listen on");
    let forward = format!("[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{web}\"\n");
    proxy.rewrite(&format!("socks = \"127.0.0.1:0\"\n{forward}{channels}"));
    proxy.signal(Signal::HUP);
    proxy.wait_for("the configuration was read again");
    proxy.hear_listening(2);
    assert_eq!(proxy.address(0), first);
    let forward = proxy.address(1);
    assert_eq!(fetch(&proxy, &url), b"hello");
    let by_forward = format!("http://{forward}/");
    assert_eq!(fetched(&curl([by_forward.as_str()]).output().unwrap()), b"hello");

    proxy.rewrite("socks = 1\n");
    proxy.signal(Signal::HUP);
    let line = proxy.wait_for("the configuration before stays in force");
    assert!(line.contains("line 1: socks"), "{line}");
    // The stream that was held has seen none of it.
    held.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    held.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
}
