//! Fetching with curl through both commands, and how the commands end.

use std::io::Read;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use super::processes::{Service, web_server};
use super::service::{curl, fetched, pattern};

/// Starts fetching an endless answer, and waits until some of it has arrived.
fn fetch_without_end(proxy: &Service, port: u16) -> Child {
    let socks = proxy.address(0).to_string();
    let url = format!("http://localhost:{port}/");
    let mut curl = curl(["--no-buffer", "--socks5-hostname", &socks, &url]);
    let mut curl = curl.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut some = vec![0; 100_000];
    curl.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    assert!(some == pattern(100_000));
    curl
}

#[test]
fn curl_fetches_through_socks_and_forwards() {
    let body = pattern(5_000_000);
    let port = web_server(body.clone(), body.len()).port();
    let target = format!("localhost:{port}");
    for n in [2, 3] {
        let mut server = Service::server(n, &target);
        let channels = server.channels();
        let config = format!(
            "socks = \"127.0.0.1:0\"\n[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n\
             {channels}"
        );
        let mut proxy = Service::start("proxy", &config, 2);
        assert!(proxy.listening[0].ends_with(": SOCKS5"));
        assert!(proxy.listening[1].ends_with(&format!(": to {target}")));
        let (socks, forward) = (proxy.address(0).to_string(), proxy.address(1));

        let url = format!("http://{target}/");
        let output = curl(["--socks5-hostname", &socks, &url]).output().unwrap();
        assert!(fetched(&output) == body, "{n} channels, SOCKS5");
        let output = curl([format!("http://{forward}/")]).output().unwrap();
        assert!(fetched(&output) == body, "{n} channels, forward");

        let other = format!("http://127.0.0.1:{port}/");
        for _ in 0..5 {
            let output = curl(["--socks5-hostname", &socks, &other]).output().unwrap();
            assert!(!output.status.success(), "not on the allow-list");
        }
        let message = server.wait_for("service not on the allow-list");
        assert!(message.contains("occurrences=1"), "{message}");
        server.wait_for("stream not opened");

        for service in [&mut proxy, &mut server] {
            service.signal(Signal::TERM);
            // Repeated refusals do not fill the log.
            let lines = std::iter::repeat_with(|| service.wait_for(""));
            let lines: Vec<_> = lines.take_while(|line| !line.contains("stopping")).collect();
            let is_refusal = |line: &String| {
                line.contains("not on the allow-list") || line.contains("not opened")
            };
            assert!(!lines.iter().any(is_refusal), "{lines:#?}");
            assert_eq!(service.wait(), Some(0));
        }
    }
}

#[test]
fn a_channel_may_have_the_name_of_a_server() {
    let body = pattern(100_000);
    let port = web_server(body.clone(), body.len()).port();
    let server = Service::server(2, &format!("localhost:{port}"));
    // Where the name has an IPv6 address too, the server does not listen there.
    let channels = server.channels().replacen("127.0.0.1:", "localhost:", 1);
    assert!(channels.contains("localhost:"), "{channels}");
    let proxy = Service::start("proxy", &format!("socks = \"127.0.0.1:0\"\n{channels}"), 1);
    let socks = proxy.address(0).to_string();
    let url = format!("http://localhost:{port}/");
    let output = curl(["--retry", "9", "--retry-all-errors", "--socks5-hostname", &socks, &url]);
    assert!(fetched(&{ output }.output().unwrap()) == body);
    let status = proxy.status(&[]);
    assert!(status.contains("localhost:"), "{status}");
}

#[test]
fn a_stop_lets_streams_finish_and_a_second_does_not() {
    let port = web_server(pattern(100_000), usize::MAX).port();
    let server = Service::server(3, &format!("localhost:{port}"));
    let mut proxy = Service::proxy(&server);
    let mut curl = fetch_without_end(&proxy, port);
    proxy.signal(Signal::INT);
    proxy.wait_for("stopping");
    assert!(proxy.is_running() && curl.try_wait().unwrap().is_none());
    proxy.signal(Signal::TERM);
    let line = proxy.wait_for("error:");
    assert!(line.starts_with("error: stopped by a second signal"), "{line}");
    assert_eq!(proxy.wait(), Some(1));
    assert!(!curl.wait().unwrap().success());
}

#[test]
fn a_killed_server_is_an_error_for_its_streams_only() {
    let port = web_server(pattern(100_000), usize::MAX).port();
    let target = format!("localhost:{port}");
    let mut server = Service::server(3, &target);
    let mut proxy = Service::proxy(&server);
    let mut curl = fetch_without_end(&proxy, port);
    let listen = server.listening.join("\", \"");
    server.signal(Signal::KILL);
    server.wait();
    assert!(!curl.wait().unwrap().success(), "an incomplete answer must not pass for one");
    proxy.wait_for("stream aborted");
    assert!(proxy.is_running());

    let config = format!("listen = [\"{listen}\"]\nallow = [\"{target}\"]\n");
    let _server = Service::start("serve", &config, 3);
    let mut curl = fetch_without_end(&proxy, port);
    curl.kill().unwrap();
    curl.wait().unwrap();
}
