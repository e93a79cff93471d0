//! What a proxy lets leave directly.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use serde_json::Value;

use super::processes::{Service, web_server};
use super::service::{curl, fetched};

/// A web server that answers with the address from which a connection comes.
fn address_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let body = stream.peer_addr().unwrap().ip().to_string();
            let len = body.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{body}");
        }
    });
    address
}

fn bypass_counts(proxy: &Service) -> [u64; 2] {
    let status: Value = serde_json::from_str(&proxy.status(&["--json"])).unwrap();
    ["opened", "failed"].map(|count| status[0]["bypass"][count].as_u64().unwrap())
}

#[test]
fn only_what_a_rule_names_leaves_directly() {
    let web = address_server();
    let port = web.port();
    // The server allows nothing, so what reaches the web server has left directly.
    let server = Service::server(2, "192.0.2.1:1");
    let config = format!(
        "socks = \"127.0.0.1:0\"\nbypass = [\"127.0.0.1:{port}\", \"localhost\", \"*.localhost\"]\n{}",
        server.channels()
    );
    let proxy = Service::start("proxy", &config, 1);
    let socks = proxy.address(0).to_string();
    let fetch = |host: &str| {
        let url = format!("http://{host}:{port}/");
        curl(["--socks5-hostname", &socks, &url]).output().unwrap()
    };
    assert_eq!(fetched(&fetch("127.0.0.1")), b"127.0.0.1");
    assert_eq!(fetched(&fetch("localhost")), b"127.0.0.1");
    assert_eq!(bypass_counts(&proxy), [2, 0]);
    assert!(proxy.status(&[]).contains("bypass: none open, 2 connected directly"));

    // All others are requests to the server, which refuses them.
    let other = web_server(b"other".to_vec(), 5);
    let url = format!("http://{other}/");
    assert!(!curl(["--socks5-hostname", &socks, &url]).output().unwrap().status.success());
    server.wait_for("service not on the allow-list");
    for host in ["evillocalhost", "localhost.evil", "127.0.0.2"] {
        assert!(!fetch(host).status.success(), "{host}");
    }
    assert_eq!(bypass_counts(&proxy), [2, 0]);

    // A destination that refuses is an error, and no reason to use the channels.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://localhost:{closed}/");
    let output = curl(["--socks5-hostname", &socks, &url]).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(bypass_counts(&proxy), [2, 1]);
    let status: Value = serde_json::from_str(&proxy.status(&["--json"])).unwrap();
    assert_eq!(status[0]["streams"]["refused"], 4, "{status}");
}

#[test]
fn bypassed_destinations_do_not_need_the_server() {
    let web = address_server();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!(
        "bypass = [\"127.0.0.0/8\"]\n[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{web}\"\n\
         [[channel]]\nserver = \"{closed}\"\n[[channel]]\nserver = \"127.0.0.2:{}\"\n",
        closed.port()
    );
    let proxy = Service::start("proxy", &config, 1);
    let url = format!("http://{}/", proxy.address(0));
    assert_eq!(fetched(&curl([&url]).output().unwrap()), b"127.0.0.1");
}
